//! File actions from JSON lines into columns.
//!
//! Members that few writers use cost nothing if no action has them: a column without a value is left out.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{
    BooleanBuilder, Int32Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder, make_view,
};
use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch};
use arrow_buffer::{Buffer, NullBufferBuilder};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use bytes::Bytes;

use super::batch::{ADD_SCHEMA, DELETION_VECTOR_FIELDS, NO_ADDS, STRING_MAP};
use super::file_line::{DeletionVectorLine, FileLine, Texts, place_in};
use crate::error::{Error, Result};

/// The members of `remove` that are columns.
static REMOVE_SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("deletionTimestamp", DataType::Int64, true),
        Field::new("dataChange", DataType::Boolean, true),
        Field::new("extendedFileMetadata", DataType::Boolean, true),
        Field::new("partitionValues", STRING_MAP.clone(), true),
        Field::new("size", DataType::Int64, true),
        Field::new("tags", STRING_MAP.clone(), true),
        Field::new("deletionVector", DataType::Struct(DELETION_VECTOR_FIELDS.clone()), true),
        Field::new("baseRowId", DataType::Int64, true),
        Field::new("defaultRowCommitVersion", DataType::Int64, true),
    ])
});
pub(super) static NO_REMOVES: LazyLock<RecordBatch> =
    LazyLock::new(|| RecordBatch::new_empty(Arc::new(REMOVE_SCHEMA.clone())));
/// The field of statistics that are kept as the JSON strings of their lines.
static QUOTED_STATS: LazyLock<FieldRef> = LazyLock::new(|| Arc::new(Field::new("stats", DataType::BinaryView, true)));

/// A builder of a column that may begin with nulls.
trait Nulls {
    /// Without a value, and with room for `room` values.
    fn empty(room: usize) -> Self;
    fn nulls(&mut self, count: usize);
}

/// A builder that makes a whole column.
trait Column: Nulls {
    fn finish(&mut self) -> Result<ArrayRef>;
}

macro_rules! columns {
    ($($builder:ty: |$room:ident| $capacity:expr),*) => {$(
        impl Nulls for $builder {
            fn empty($room: usize) -> Self {
                $capacity
            }

            fn nulls(&mut self, count: usize) {
                (0..count).for_each(|_| self.append_null());
            }
        }

        impl Column for $builder {
            fn finish(&mut self) -> Result<ArrayRef> {
                Ok(Arc::new(Self::finish(self)))
            }
        }
    )*};
}

columns!(
    StringBuilder: |room| Self::with_capacity(room, room * STRING_BYTES),
    Int64Builder: |room| Self::with_capacity(room),
    BooleanBuilder: |room| Self::with_capacity(room)
);

/// Bytes that are reserved for each string. Most strings are paths.
const STRING_BYTES: usize = 96;
/// Most rows that room is reserved for; builders grow if there are more.
const MAX_ROOM: usize = 8192;

/// A column whose builder is made with its first value.
struct Sparse<C> {
    nulls: usize,
    room: usize,
    column: Option<C>,
}

impl<C> Default for Sparse<C> {
    fn default() -> Self {
        Self { nulls: 0, room: 0, column: None }
    }
}

impl<C: Nulls> Sparse<C> {
    /// With room for so many rows.
    fn new(room: usize) -> Self {
        Self { room: room.min(MAX_ROOM), ..Self::default() }
    }

    fn append<V>(&mut self, value: Option<V>, put: impl FnOnce(&mut C, V)) {
        match (value, &mut self.column) {
            (None, None) => self.nulls += 1,
            (None, Some(column)) => column.nulls(1),
            (Some(value), column) => {
                let begun = column.get_or_insert_with(|| {
                    let mut column = C::empty(self.room);
                    column.nulls(self.nulls);
                    column
                });
                put(begun, value);
            }
        }
    }
}

impl<C: Column> Sparse<C> {
    fn finish(&mut self) -> Result<Option<ArrayRef>> {
        self.column.as_mut().map(Column::finish).transpose()
    }
}

/// Collects `add` lines of commits.
#[derive(Default)]
pub(super) struct AddBuilder {
    rows: usize,
    /// The strings that the lines are in.
    commits: Vec<Bytes>,
    path: Sparse<StringBuilder>,
    partition_values: Sparse<StringMaps>,
    size: Sparse<Int64Builder>,
    modification_time: Sparse<Int64Builder>,
    data_change: Sparse<BooleanBuilder>,
    stats: Sparse<QuotedStrings>,
    tags: Sparse<StringMaps>,
    deletion_vector: Sparse<DeletionVectorBuilder>,
    base_row_id: Sparse<Int64Builder>,
    default_row_commit_version: Sparse<Int64Builder>,
    clustering_provider: Sparse<StringBuilder>,
}

impl AddBuilder {
    /// With room for so many lines.
    pub(super) fn new(room: usize) -> Self {
        Self {
            path: Sparse::new(room),
            partition_values: Sparse::new(room),
            size: Sparse::new(room),
            modification_time: Sparse::new(room),
            data_change: Sparse::new(room),
            stats: Sparse::new(room),
            ..Self::default()
        }
    }

    /// Begins a commit: the lines that come next are in it.
    pub(super) fn begin(&mut self, commit: &Bytes) {
        self.commits.push(commit.clone());
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    pub(super) fn append(&mut self, add: &FileLine<'_>) {
        self.rows += 1;
        self.path.append(Some(&add.path), |c, v| c.append_value(v));
        self.partition_values.append(add.partition_values.as_ref(), StringMaps::append);
        self.size.append(add.size, Int64Builder::append_value);
        self.modification_time.append(add.modification_time, Int64Builder::append_value);
        self.data_change.append(add.data_change, BooleanBuilder::append_value);
        match add.quoted_stats {
            Some(quoted) => self.stats.append(Some(quoted), |c, v| c.append(v, &self.commits)),
            None => self.stats.append(add.stats.as_deref(), QuotedStrings::append_string),
        }
        self.tags.append(add.tags.as_ref(), StringMaps::append);
        self.deletion_vector.append(add.deletion_vector.as_ref(), DeletionVectorBuilder::append);
        self.base_row_id.append(add.base_row_id, Int64Builder::append_value);
        self.default_row_commit_version.append(add.default_row_commit_version, Int64Builder::append_value);
        self.clustering_provider.append(add.clustering_provider.as_deref(), |c, v| c.append_value(v));
    }

    /// The columns that have values.
    pub(super) fn finish(mut self) -> Result<RecordBatch> {
        if self.rows == 0 {
            return Ok(NO_ADDS.clone());
        }
        let stats = self.stats.column.map(|stats| stats.finish(self.commits)).transpose()?;
        let columns = [
            self.path.finish()?,
            self.partition_values.finish()?,
            self.size.finish()?,
            self.modification_time.finish()?,
            self.data_change.finish()?,
            stats,
            self.tags.finish()?,
            self.deletion_vector.finish()?,
            self.base_row_id.finish()?,
            self.default_row_commit_version.finish()?,
            self.clustering_provider.finish()?,
        ];
        batch(&ADD_SCHEMA, columns)
    }
}

/// Collects `remove` lines: what identifies them, and what checkpoints keep of tombstones.
#[derive(Default)]
pub(super) struct RemoveBuilder {
    rows: usize,
    path: Sparse<StringBuilder>,
    deletion_timestamp: Sparse<Int64Builder>,
    data_change: Sparse<BooleanBuilder>,
    extended_file_metadata: Sparse<BooleanBuilder>,
    partition_values: Sparse<StringMaps>,
    size: Sparse<Int64Builder>,
    tags: Sparse<StringMaps>,
    deletion_vector: Sparse<DeletionVectorBuilder>,
    base_row_id: Sparse<Int64Builder>,
    default_row_commit_version: Sparse<Int64Builder>,
}

impl RemoveBuilder {
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    pub(super) fn append(&mut self, remove: &FileLine<'_>) {
        self.rows += 1;
        self.path.append(Some(&remove.path), |c, v| c.append_value(v));
        self.deletion_timestamp.append(remove.deletion_timestamp, Int64Builder::append_value);
        self.data_change.append(remove.data_change, BooleanBuilder::append_value);
        self.extended_file_metadata.append(remove.extended_file_metadata, BooleanBuilder::append_value);
        self.partition_values.append(remove.partition_values.as_ref(), StringMaps::append);
        self.size.append(remove.size, Int64Builder::append_value);
        self.tags.append(remove.tags.as_ref(), StringMaps::append);
        self.deletion_vector.append(remove.deletion_vector.as_ref(), DeletionVectorBuilder::append);
        self.base_row_id.append(remove.base_row_id, Int64Builder::append_value);
        self.default_row_commit_version.append(remove.default_row_commit_version, Int64Builder::append_value);
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch> {
        if self.rows == 0 {
            return Ok(NO_REMOVES.clone());
        }
        let columns = [
            self.path.finish()?,
            self.deletion_timestamp.finish()?,
            self.data_change.finish()?,
            self.extended_file_metadata.finish()?,
            self.partition_values.finish()?,
            self.size.finish()?,
            self.tags.finish()?,
            self.deletion_vector.finish()?,
            self.base_row_id.finish()?,
            self.default_row_commit_version.finish()?,
        ];
        batch(&REMOVE_SCHEMA, columns)
    }
}

/// The columns that have values, with their names in `schema`.
fn batch<const N: usize>(schema: &Schema, columns: [Option<ArrayRef>; N]) -> Result<RecordBatch> {
    let there = schema.fields().iter().zip(columns).filter_map(|(field, column)| {
        let column = column?;
        let field = if column.data_type() == &DataType::BinaryView { &QUOTED_STATS } else { field };
        Some((field.clone(), column))
    });
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) = there.unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// Strings as JSON strings. Most of them are views into the text of the commits.
#[derive(Default)]
struct QuotedStrings {
    views: Vec<u128>,
    valid: Option<NullBufferBuilder>,
    /// Strings that are not views into a commit's text. It is the first of the buffers that the views refer to.
    printed: Vec<u8>,
}

impl QuotedStrings {
    /// Appends a JSON string that is in the text of the last commit.
    fn append(&mut self, quoted: &str, commits: &[Bytes]) {
        let place = commits.last().and_then(|commit| place_in(commit, quoted.as_bytes()));
        match (place.and_then(|place| u32::try_from(place.start).ok()), u32::try_from(commits.len())) {
            (Some(offset), Ok(buffer)) => self.push(make_view(quoted.as_bytes(), buffer, offset)),
            _ => self.print(quoted.as_bytes()),
        }
    }

    /// Appends a value that is not a JSON string yet.
    fn append_string(&mut self, text: &str) {
        // Serialising a string cannot fail.
        self.print(&serde_json::to_vec(text).unwrap_or_default());
    }

    fn print(&mut self, quoted: &[u8]) {
        let offset = u32::try_from(self.printed.len()).unwrap_or(u32::MAX);
        self.printed.extend_from_slice(quoted);
        self.push(make_view(quoted, 0, offset));
    }

    fn push(&mut self, view: u128) {
        self.views.push(view);
        self.valid.get_or_insert_with(|| NullBufferBuilder::new(0)).append_non_null();
    }

    fn finish(self, commits: Vec<Bytes>) -> Result<ArrayRef> {
        let printed = std::iter::once(Buffer::from_vec(self.printed));
        let buffers: Vec<Buffer> = printed.chain(commits.into_iter().map(Buffer::from)).collect();
        let nulls = self.valid.and_then(|mut valid| valid.finish());
        let views = BinaryViewArray::try_new(self.views.into(), buffers, nulls);
        Ok(Arc::new(
            views.map_err(|e| Error::internal("statistics are not at the place where they were found").caused_by(e))?,
        ))
    }
}

impl Nulls for QuotedStrings {
    fn empty(room: usize) -> Self {
        Self { views: Vec::with_capacity(room), ..Self::default() }
    }

    fn nulls(&mut self, count: usize) {
        self.views.resize(self.views.len() + count, 0);
        self.valid.get_or_insert_with(|| NullBufferBuilder::new(0)).append_n_nulls(count);
    }
}

struct StringMaps(MapBuilder<StringBuilder, StringBuilder>);

impl StringMaps {
    fn append(&mut self, texts: &Texts<'_>) {
        for (key, value) in &texts.0 {
            self.0.keys().append_value(key);
            self.0.values().append_option(value.as_deref());
        }
        self.end(true);
    }

    fn end(&mut self, is_valid: bool) {
        // Keys and values were appended in pairs, the only thing that this can refuse.
        let _paired = self.0.append(is_valid);
    }
}

impl Nulls for StringMaps {
    fn empty(room: usize) -> Self {
        let names = MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
        let texts = || StringBuilder::with_capacity(room, 0);
        Self(MapBuilder::with_capacity(Some(names), texts(), texts(), room))
    }

    fn nulls(&mut self, count: usize) {
        (0..count).for_each(|_| self.end(false));
    }
}

impl Column for StringMaps {
    fn finish(&mut self) -> Result<ArrayRef> {
        Ok(Arc::new(self.0.finish()))
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
    fn append(&mut self, line: &DeletionVectorLine<'_>) {
        self.put(Some(line));
    }

    fn put(&mut self, line: Option<&DeletionVectorLine<'_>>) {
        self.valid.get_or_insert_with(|| NullBufferBuilder::new(0)).append(line.is_some());
        self.storage_type.append_option(line.map(|l| l.storage_type.as_ref()));
        self.path_or_inline_dv.append_option(line.map(|l| l.path_or_inline_dv.as_ref()));
        self.offset.append_option(line.and_then(|l| l.offset));
        self.size_in_bytes.append_option(line.map(|l| l.size_in_bytes));
        self.cardinality.append_option(line.map(|l| l.cardinality));
    }
}

impl Nulls for DeletionVectorBuilder {
    fn empty(_room: usize) -> Self {
        Self::default()
    }

    fn nulls(&mut self, count: usize) {
        (0..count).for_each(|_| self.put(None));
    }
}

impl Column for DeletionVectorBuilder {
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
