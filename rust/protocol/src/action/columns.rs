//! File actions from JSON lines into columns.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int32Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{DataType, Field, Schema};

use super::batch::{ADD_SCHEMA, DELETION_VECTOR_FIELDS, TEXT_MAP};
use super::json::{DeletionVectorLine, FileLine, Texts};
use crate::error::Result;

/// Collects `add` lines.
#[derive(Default)]
pub(super) struct AddBuilder {
    path: StringBuilder,
    partition_values: TextMaps,
    size: Int64Builder,
    modification_time: Int64Builder,
    data_change: BooleanBuilder,
    stats: StringBuilder,
    tags: TextMaps,
    deletion_vector: DeletionVectorBuilder,
    base_row_id: Int64Builder,
    default_row_commit_version: Int64Builder,
    clustering_provider: StringBuilder,
}

impl AddBuilder {
    pub(super) fn append(&mut self, add: &FileLine<'_>) {
        self.path.append_value(&add.path);
        self.partition_values.append(add.partition_values.as_ref());
        self.size.append_option(add.size);
        self.modification_time.append_option(add.modification_time);
        self.data_change.append_option(add.data_change);
        self.stats.append_option(add.stats.as_deref());
        self.tags.append(add.tags.as_ref());
        self.deletion_vector.append(add.deletion_vector.as_ref());
        self.base_row_id.append_option(add.base_row_id);
        self.default_row_commit_version.append_option(add.default_row_commit_version);
        self.clustering_provider.append_option(add.clustering_provider.as_deref());
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.path.finish()),
            self.partition_values.finish(),
            Arc::new(self.size.finish()),
            Arc::new(self.modification_time.finish()),
            Arc::new(self.data_change.finish()),
            Arc::new(self.stats.finish()),
            self.tags.finish(),
            self.deletion_vector.finish()?,
            Arc::new(self.base_row_id.finish()),
            Arc::new(self.default_row_commit_version.finish()),
            Arc::new(self.clustering_provider.finish()),
        ];
        Ok(RecordBatch::try_new(ADD_SCHEMA.clone(), columns)?)
    }
}

/// Collects `remove` lines: what identifies them, and what checkpoints keep of tombstones.
#[derive(Default)]
pub(super) struct KeyBuilder {
    path: StringBuilder,
    deletion_timestamp: Int64Builder,
    data_change: BooleanBuilder,
    extended_file_metadata: BooleanBuilder,
    partition_values: TextMaps,
    size: Int64Builder,
    deletion_vector: DeletionVectorBuilder,
    base_row_id: Int64Builder,
    default_row_commit_version: Int64Builder,
}

impl KeyBuilder {
    pub(super) fn append(&mut self, remove: &FileLine<'_>) {
        self.path.append_value(&remove.path);
        self.deletion_timestamp.append_option(remove.deletion_timestamp);
        self.data_change.append_option(remove.data_change);
        self.extended_file_metadata.append_option(remove.extended_file_metadata);
        self.partition_values.append(remove.partition_values.as_ref());
        self.size.append_option(remove.size);
        self.deletion_vector.append(remove.deletion_vector.as_ref());
        self.base_row_id.append_option(remove.base_row_id);
        self.default_row_commit_version.append_option(remove.default_row_commit_version);
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch> {
        let schema = Schema::new(vec![
            Field::new("path", DataType::Utf8, false),
            Field::new("deletionTimestamp", DataType::Int64, true),
            Field::new("dataChange", DataType::Boolean, true),
            Field::new("extendedFileMetadata", DataType::Boolean, true),
            Field::new("partitionValues", TEXT_MAP.clone(), true),
            Field::new("size", DataType::Int64, true),
            Field::new("deletionVector", DataType::Struct(DELETION_VECTOR_FIELDS.clone()), true),
            Field::new("baseRowId", DataType::Int64, true),
            Field::new("defaultRowCommitVersion", DataType::Int64, true),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.path.finish()),
            Arc::new(self.deletion_timestamp.finish()),
            Arc::new(self.data_change.finish()),
            Arc::new(self.extended_file_metadata.finish()),
            self.partition_values.finish(),
            Arc::new(self.size.finish()),
            self.deletion_vector.finish()?,
            Arc::new(self.base_row_id.finish()),
            Arc::new(self.default_row_commit_version.finish()),
        ];
        Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
    }
}

struct TextMaps(MapBuilder<StringBuilder, StringBuilder>);

impl Default for TextMaps {
    fn default() -> Self {
        let names = MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
        Self(MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new()))
    }
}

impl TextMaps {
    fn append(&mut self, texts: Option<&Texts<'_>>) {
        for (key, value) in texts.map(|t| t.0.as_slice()).unwrap_or_default() {
            self.0.keys().append_value(key);
            self.0.values().append_option(value.as_deref());
        }
        // Keys and values were appended in pairs, the only thing that this can refuse.
        let _paired = self.0.append(texts.is_some());
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

#[derive(Default)]
struct DeletionVectorBuilder {
    valid: Option<NullBufferBuilder>,
    storage_type: StringBuilder,
    path_or_inline_dv: StringBuilder,
    offset: Int32Builder,
    size_in_bytes: Int32Builder,
    cardinality: Int64Builder,
}

impl DeletionVectorBuilder {
    fn append(&mut self, line: Option<&DeletionVectorLine<'_>>) {
        self.valid.get_or_insert_with(|| NullBufferBuilder::new(0)).append(line.is_some());
        self.storage_type.append_option(line.map(|l| l.storage_type.as_ref()));
        self.path_or_inline_dv.append_option(line.map(|l| l.path_or_inline_dv.as_ref()));
        self.offset.append_option(line.and_then(|l| l.offset));
        self.size_in_bytes.append_option(line.map(|l| l.size_in_bytes));
        self.cardinality.append_option(line.map(|l| l.cardinality));
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.storage_type.finish()),
            Arc::new(self.path_or_inline_dv.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.size_in_bytes.finish()),
            Arc::new(self.cardinality.finish()),
        ];
        let nulls = self.valid.as_mut().and_then(NullBufferBuilder::finish);
        Ok(Arc::new(arrow_array::StructArray::try_new(DELETION_VECTOR_FIELDS.clone(), columns, nulls)?))
    }
}
