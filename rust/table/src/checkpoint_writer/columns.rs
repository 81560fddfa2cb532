//! The rows of a checkpoint: one column for each kind of action, one action in a row.
//!
//! This module decides the schema for one table and converts actions to it, wherever they were read. Members keep their values;
//! only `dataChange` becomes false, since a checkpoint changes nothing.
//!
//! Names inside lists and maps are Parquet's own (`list.element`, `key_value`), and nothing but a file's `path` is
//! required, so that the layout is that of other writers' checkpoints.
//!
//! PROTOCOL.md: "Checkpoint Schema", "Checkpoints".

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, MapArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, UInt64Array, new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema, SchemaRef};
use arrow_select::take::take;
use deltic_protocol::action::batch::{ADD_SCHEMA, AddBatch, STRING_MAP};
use deltic_protocol::action::{DomainMetadata, Metadata, Protocol, Sidecar, Txn};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};
use deltic_protocol::stats::collect::IndexedColumns;
use deltic_protocol::stats::json::complete;
use deltic_protocol::stats::typed::StatsLayout;

use super::encode::PIECE_ROWS;
use super::numbers::{all_there, filled};
use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};

/// Up to so many rows of all kinds are joined into one batch.
const MAX_JOINED_ROWS: usize = 256;

/// Members of `remove` in checkpoints: tombstones need neither statistics nor tags.
const REMOVE_MEMBERS: [&str; 9] = [
    "path",
    "deletionTimestamp",
    "dataChange",
    "extendedFileMetadata",
    "partitionValues",
    "size",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
];

/// The schema of one table's checkpoints.
#[derive(Debug)]
pub(super) struct CheckpointSchema {
    shape: TableShape,
    /// Logical and physical names of the partition columns that are stored typed.
    partitions: Vec<(String, String)>,
    writes_json_stats: bool,
    stats: Option<StatsLayout>,
    add: Fields,
    schema: SchemaRef,
    file_schema: SchemaRef,
    /// Columns of nulls for missing actions and missing members of `add`, which are shared.
    nulls: Vec<ArrayRef>,
    add_nulls: Vec<ArrayRef>,
}

/// The actions other than file actions.
#[derive(Debug)]
pub(super) struct CheckpointActions {
    pub(super) protocol: Protocol,
    pub(super) metadata: Metadata,
    pub(super) txns: Vec<Txn>,
    pub(super) domains: Vec<DomainMetadata>,
    /// The version, where the checkpoint follows the V2 spec.
    pub(super) checkpoint_metadata: Option<i64>,
    /// Where its files are, unless they are in the checkpoint itself.
    pub(super) sidecars: Vec<Sidecar>,
}

impl CheckpointSchema {
    /// The schema for a table whose last checkpoint, if there was one, had typed statistics of the columns in `typed`.
    pub(super) fn of(
        shape: &TableShape,
        properties: Properties<'_>,
        typed: &HashSet<Vec<String>>,
        is_v2: bool,
    ) -> Result<Self> {
        let writes_json_stats = properties.checkpoint_write_stats_as_json()?;
        let writes_typed = properties.checkpoint_write_stats_as_struct()?;
        let mut partitions = Vec::new();
        let mut stats = None;
        if writes_typed {
            for name in &shape.partition_columns {
                // Other types have no typed values.
                let is_typed = |f: &&StructField| f.data_type.as_primitive().is_some_and(|p| *p != PrimitiveType::Void);
                let field = shape.schema.field(name).filter(is_typed);
                if let Some(field) = field {
                    partitions.push((name.clone(), shape.mapping.physical_name(field)?.to_owned()));
                }
            }
            stats = Some(stats_layout(shape, properties, typed, writes_json_stats)?);
        }
        let mut schema = Self {
            shape: shape.clone(),
            partitions,
            writes_json_stats,
            stats,
            add: Fields::empty(),
            schema: Arc::new(Schema::empty()),
            file_schema: Arc::new(Schema::empty()),
            nulls: Vec::new(),
            add_nulls: Vec::new(),
        };
        schema.add = schema.add_fields()?;
        let structure = |name: &str, fields: Fields| Field::new(name, ArrowType::Struct(fields), true);
        let mut roots = vec![
            structure("txn", txns(&[])?.fields().clone()),
            structure("add", schema.add.clone()),
            structure("remove", remove_fields()),
            structure("metaData", metadata(&[])?.fields().clone()),
            structure("protocol", protocol(&[])?.fields().clone()),
            structure("domainMetadata", domains(&[])?.fields().clone()),
        ];
        if is_v2 {
            roots.push(structure("checkpointMetadata", checkpoint_metadata(&[])?.fields().clone()));
            roots.push(structure("sidecar", sidecars(&[])?.fields().clone()));
        }
        schema.schema = Arc::new(Schema::new(roots));
        schema.file_schema =
            Arc::new(Schema::new(vec![structure("add", schema.add.clone()), structure("remove", remove_fields())]));
        let nulls =
            |fields: &Fields| fields.iter().map(|field| new_null_array(field.data_type(), PIECE_ROWS)).collect();
        (schema.nulls, schema.add_nulls) = (nulls(schema.schema.fields()), nulls(&schema.add));
        Ok(schema)
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns of a sidecar, which holds files and tombstones alone.
    pub(super) fn file_schema(&self) -> &SchemaRef {
        &self.file_schema
    }

    /// Leaf columns, by physical path, that have typed statistics here.
    pub(super) fn typed_stats(&self) -> HashSet<Vec<String>> {
        let mut leaves = HashSet::new();
        if let Some(ArrowType::Struct(bounds)) = self.add.find("stats_parsed").map(|(_, stats)| stats.data_type())
            && let Some(ArrowType::Struct(least)) = bounds.find("minValues").map(|(_, values)| values.data_type())
        {
            add_leaves(least, &mut Vec::new(), &mut leaves);
        }
        leaves
    }

    /// The columns of the file actions that must be read to write them.
    pub(super) fn wanted(&self) -> AddColumns {
        AddColumns { stats_json: self.wants_stats(), stats_typed: self.wants_stats(), ..AddColumns::all() }
    }

    fn add_fields(&self) -> Result<Fields> {
        let mut fields: Vec<Field> = ADD_SCHEMA.fields().iter().map(|f| f.as_ref().clone()).collect();
        fields.retain(|f| self.writes_json_stats || f.name() != "stats");
        // Long strings are passed from page to page as views.
        for field in fields.iter_mut().filter(|field| matches!(field.name().as_str(), "path" | "stats")) {
            *field = field.clone().with_data_type(ArrowType::Utf8View);
        }
        if !self.partitions.is_empty() {
            let mut typed = Vec::with_capacity(self.partitions.len());
            for (logical, physical) in &self.partitions {
                let field = self.shape.schema.field(logical);
                let field = field.ok_or_else(|| Error::internal("a partition column is not in the schema"))?;
                typed.push(Field::new(physical, to_arrow_type(&field.data_type), true));
            }
            fields.push(Field::new("partitionValues_parsed", ArrowType::Struct(typed.into()), true));
        }
        if let Some(stats) = &self.stats {
            fields.push(Field::new("stats_parsed", ArrowType::Struct(stats.fields()?), true));
        }
        Ok(fields.into())
    }

    /// Live files in the form of a `RangeBuffer`: the members of `add` that any of them has, with paths and
    /// JSON statistics as views. `paths`: the paths, if they are not in the batch. Typed statistics are included
    /// if the files have some, or if `all_typed`.
    pub(super) fn buffered_rows(
        &self,
        adds: &AddBatch,
        paths: Option<&ArrayRef>,
        all_typed: bool,
    ) -> Result<RecordBatch> {
        let typed = adds.structure("stats_parsed");
        let stats = if self.wants_stats() { stats_json(adds)? } else { None };
        let json = match typed {
            Some(typed) if self.writes_json_stats && lacks_json_stats(stats.as_ref(), typed) => {
                Some(as_views(&complete(stats.as_ref().map(|stats| stats.as_string_view()), typed)?)?)
            }
            Some(_) | None => stats.clone(),
        };
        let (mut fields, mut columns, mut wants_json) = (Vec::new(), Vec::new(), true);
        for field in &self.add {
            let column: ArrayRef = match field.name().as_str() {
                "dataChange" | "stats" | "stats_parsed" => continue,
                "path" => paths.map_or_else(|| member(adds.rows(), field), |paths| Ok(paths.clone()))?,
                "partitionValues" => string_map(adds.rows(), field, true)?,
                "tags" => string_map(adds.rows(), field, false)?,
                "size" => all_there(member(adds.rows(), field)?, adds, paths)?,
                "modificationTime" => filled(&member(adds.rows(), field)?),
                "partitionValues_parsed" => Arc::new(self.partition_values(adds, field)?),
                _ => member(adds.rows(), field)?,
            };
            if column.null_count() < column.len() {
                fields.push(field.as_ref().clone());
                columns.push(column);
            }
        }
        if let Some(layout) = self.stats.as_ref().filter(|_| all_typed || typed.is_some()) {
            let stats = stats.as_ref().map(|stats| stats.as_string_view());
            let typed = layout.columns(stats, typed, adds.len())?;
            fields.push(Field::new("stats_parsed", typed.data_type().clone(), true));
            columns.push(Arc::new(typed));
            wants_json = self.writes_json_stats;
        }
        if let Some(json) = json.filter(|json| wants_json && json.null_count() < json.len()) {
            fields.push(Field::new("stats", ArrowType::Utf8View, true));
            columns.push(json);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(adds.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }

    /// Buffered rows with typed statistics, which are computed if they have none.
    pub(super) fn with_typed_stats(&self, buffered: &RecordBatch) -> Result<RecordBatch> {
        let Some(layout) = self.stats.as_ref().filter(|_| buffered.column_by_name("stats_parsed").is_none()) else {
            return Ok(buffered.clone());
        };
        let json = buffered.column_by_name("stats").map(|json| json.as_string_view());
        let typed = layout.columns(json, None, buffered.num_rows())?;
        let (schema, mut columns, _) = buffered.clone().into_parts();
        let field = Arc::new(Field::new("stats_parsed", typed.data_type().clone(), true));
        columns.push(Arc::new(typed));
        let fields: Vec<_> = schema.fields().iter().cloned().chain([field]).collect();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// The column `add` of buffered rows.
    pub(super) fn adds(&self, buffered: &RecordBatch) -> Result<StructArray> {
        let rows = buffered.num_rows();
        let json = buffered.column_by_name("stats").map(|json| json.as_string_view());
        let mut columns = Vec::with_capacity(self.add.len());
        for (field, nulls) in self.add.iter().zip(&self.add_nulls) {
            let column: ArrayRef = match (field.name().as_str(), buffered.column_by_name(field.name())) {
                ("dataChange", _) => Arc::new(BooleanArray::new(BooleanBuffer::new_unset(rows), None)),
                ("stats_parsed", None) => match &self.stats {
                    Some(layout) => Arc::new(layout.columns(json, None, rows)?),
                    None => null_column(nulls, rows),
                },
                (_, Some(column)) => column.clone(),
                (_, None) => null_column(nulls, rows),
            };
            columns.push(column);
        }
        Ok(StructArray::try_new(self.add.clone(), columns, None)?)
    }

    fn wants_stats(&self) -> bool {
        self.writes_json_stats || self.stats.is_some()
    }

    fn partition_values(&self, adds: &AddBatch, field: &Field) -> Result<StructArray> {
        let values = self.partitions.iter().map(|(logical, _)| self.shape.partition_values(adds, logical));
        match field.data_type() {
            ArrowType::Struct(fields) => {
                Ok(StructArray::try_new(fields.clone(), values.collect::<Result<_>>()?, None)?)
            }
            _ => Err(Error::internal("typed partition values are not a struct")),
        }
    }

    /// Tombstones, given as the columns of `remove`, in the types of this checkpoint.
    pub(super) fn removes(&self, removes: &RecordBatch) -> Result<RecordBatch> {
        let fields = remove_fields();
        let mut columns = Vec::with_capacity(fields.len());
        for field in &fields {
            columns.push(match field.name().as_str() {
                "dataChange" => Arc::new(BooleanArray::from(vec![false; removes.num_rows()])),
                "partitionValues" => string_map(removes, field, false)?,
                _ => member(removes, field)?,
            });
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// Actions other than file actions as rows; if they are many, each kind in a batch.
    pub(super) fn non_file_rows(&self, actions: &CheckpointActions) -> Result<Vec<RecordBatch>> {
        let mut kinds = vec![
            ("protocol", protocol(&[&actions.protocol])?),
            ("metaData", metadata(&[&actions.metadata])?),
            ("txn", txns(&actions.txns)?),
            ("domainMetadata", domains(&actions.domains)?),
        ];
        if let Some(version) = actions.checkpoint_metadata {
            kinds.push(("checkpointMetadata", checkpoint_metadata(&[version])?));
            kinds.push(("sidecar", sidecars(&actions.sidecars)?));
        }
        kinds.retain(|(_, actions)| !actions.is_empty());
        // Usually there are only few rows, and it is cheaper to join them than to encode them one by one.
        if kinds.iter().map(|(_, actions)| actions.len()).sum::<usize>() <= MAX_JOINED_ROWS {
            return Ok(vec![rows_of_kinds(&self.schema, &kinds)?]);
        }
        kinds.into_iter().map(|(root, actions)| self.rows_of(&self.schema, root, actions)).collect()
    }

    /// Rows of one kind of action, in all of `schema` or of that of sidecars; the columns of the others are null.
    pub(super) fn rows_of(&self, schema: &SchemaRef, root: &str, actions: StructArray) -> Result<RecordBatch> {
        let rows = actions.len();
        let actions: ArrayRef = Arc::new(actions);
        let column =
            |field: &Arc<Field>| match self.schema.index_of(field.name()).ok().and_then(|at| self.nulls.get(at)) {
                _ if field.name() == root => actions.clone(),
                Some(nulls) => null_column(nulls, rows),
                None => new_null_array(field.data_type(), rows),
            };
        Ok(RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())?)
    }
}

/// Rows of several kinds of actions, one kind after the other.
fn rows_of_kinds(schema: &SchemaRef, kinds: &[(&str, StructArray)]) -> Result<RecordBatch> {
    let rows = kinds.iter().map(|(_, actions)| actions.len()).sum();
    let column = |field: &Arc<Field>| {
        let mut before = 0_usize;
        for (root, actions) in kinds {
            if root == field.name() {
                let own = |row: usize| row.checked_sub(before).filter(|own| *own < actions.len()).map(|own| own as u64);
                return Ok(take(actions, &(0..rows).map(own).collect::<UInt64Array>(), None)?);
            }
            before += actions.len();
        }
        Ok(new_null_array(field.data_type(), rows))
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// A column of `rows` nulls: a slice of the shared ones, unless they are too few.
fn null_column(nulls: &ArrayRef, rows: usize) -> ArrayRef {
    if rows <= nulls.len() { nulls.slice(0, rows) } else { new_null_array(nulls.data_type(), rows) }
}

/// The layout of typed statistics: the indexed columns, and those that had some before. If no JSON statistics are kept, the
/// typed ones have every column.
fn stats_layout(
    shape: &TableShape,
    properties: Properties<'_>,
    typed: &HashSet<Vec<String>>,
    writes_json_stats: bool,
) -> Result<StatsLayout> {
    let data = shape.schema.fields.iter().filter(|f| !shape.is_partition_column(&f.name)).cloned().collect();
    let data = StructType::new(data);
    let physical = shape.mapping.physical_schema(&data)?;
    let indexed = leaf_paths(&IndexedColumns::of(properties)?.of_schema(&data), shape.mapping)?;
    let keeps = |path: &[String]| !writes_json_stats || indexed.contains(path) || typed.contains(path);
    Ok(StatsLayout::new(&physical, &keeps))
}

/// Physical paths of all leaves in `schema`.
fn leaf_paths(schema: &StructType, mapping: ColumnMapping) -> Result<HashSet<Vec<String>>> {
    fn walk(schema: &StructType, path: &mut Vec<String>, paths: &mut HashSet<Vec<String>>) {
        for field in &schema.fields {
            path.push(field.name.clone());
            match &field.data_type {
                DataType::Struct(inner) => walk(inner, path, paths),
                DataType::Primitive(_)
                | DataType::Array(_)
                | DataType::Map(_)
                | DataType::Variant
                | DataType::Foreign(_) => {
                    paths.insert(path.clone());
                }
            }
            path.pop();
        }
    }
    let mut paths = HashSet::new();
    walk(&mapping.physical_schema(schema)?, &mut Vec::new(), &mut paths);
    Ok(paths)
}

fn remove_fields() -> Fields {
    let data_type = |name: &str| match name {
        "deletionTimestamp" => ArrowType::Int64,
        "extendedFileMetadata" => ArrowType::Boolean,
        shared => ADD_SCHEMA.field_with_name(shared).map_or(ArrowType::Null, |f| f.data_type().clone()),
    };
    REMOVE_MEMBERS.iter().map(|name| Field::new(*name, data_type(name), *name != "path")).collect()
}

/// The JSON strings of statistics as views.
fn stats_json(adds: &AddBatch) -> Result<Option<ArrayRef>> {
    match adds.rows().column_by_name("stats") {
        Some(views) if views.data_type() == &ArrowType::Utf8View => Ok(Some(views.clone())),
        Some(_) => adds.stats()?.map(|json| as_views(&json)).transpose(),
        None => Ok(None),
    }
}

fn as_views(json: &StringArray) -> Result<ArrayRef> {
    Ok(cast(json, &ArrowType::Utf8View)?)
}

/// Whether a file has typed statistics and no JSON string.
fn lacks_json_stats(json: Option<&ArrayRef>, typed: &StructArray) -> bool {
    let nulls = |array: &dyn Array| array.nulls().cloned().unwrap_or_else(|| NullBuffer::new_valid(array.len()));
    let typed = nulls(typed);
    match json.map(|json| nulls(json.as_ref())) {
        None => typed.null_count() < typed.len(),
        Some(json) => json.null_count() > 0 && (&!json.inner() & typed.inner()).count_set_bits() > 0,
    }
}

/// A member cast to its type; null if it was not read.
fn member(rows: &RecordBatch, field: &Field) -> Result<ArrayRef> {
    let foreign = |e| Error::corrupt(format!("`{}` of a file action cannot be read", field.name())).caused_by(e);
    match rows.column_by_name(field.name()) {
        Some(column) if column.data_type() == field.data_type() => Ok(column.clone()),
        Some(column) => cast(column, field.data_type()).map_err(foreign),
        None => Ok(new_null_array(field.data_type(), rows.num_rows())),
    }
}

/// A map of strings with the names that this file uses inside. If it is required and missing, it is empty.
fn string_map(rows: &RecordBatch, field: &Field, is_required: bool) -> Result<ArrayRef> {
    let no_map = || Error::corrupt(format!("`{}` of a file action is not a map of strings", field.name()));
    let (ArrowType::Map(entries_field, _), ArrowType::Map(..)) = (&*STRING_MAP, field.data_type()) else {
        return Err(Error::internal("the type of a map of strings is not a map"));
    };
    let ArrowType::Struct(entry_fields) = entries_field.data_type() else {
        return Err(Error::internal("the entries of a map are not a struct"));
    };
    let Some(column) = rows.column_by_name(field.name()) else {
        let missing = new_null_array(&STRING_MAP, rows.num_rows());
        return Ok(if is_required { without_nulls(missing.as_map()) } else { missing });
    };
    let map = column.as_map_opt().ok_or_else(no_map)?;
    let to_utf8 = |array: &ArrayRef| cast(array, &ArrowType::Utf8).map_err(|e| no_map().caused_by(e));
    let columns = vec![to_utf8(map.keys())?, to_utf8(map.values())?];
    let entries = StructArray::try_new(entry_fields.clone(), columns, None).map_err(|e| no_map().caused_by(e))?;
    let map = MapArray::try_new(entries_field.clone(), map.offsets().clone(), entries, map.nulls().cloned(), false)
        .map_err(|e| no_map().caused_by(e))?;
    Ok(if is_required { without_nulls(&map) } else { Arc::new(map) })
}

/// Empty maps instead of null ones, unless a null map has entries.
fn without_nulls(map: &MapArray) -> ArrayRef {
    let empty = |row: usize| map.value_length(row) == 0;
    let (field, offsets, entries, nulls, ordered) = map.clone().into_parts();
    let hidden = nulls.as_ref().is_some_and(|n| (0..n.len()).any(|row| n.is_null(row) && !empty(row)));
    let nulls = nulls.filter(|_| hidden);
    MapArray::try_new(field, offsets, entries, nulls, ordered)
        .map_or_else(|_| Arc::new(map.clone()) as _, |m| Arc::new(m) as _)
}

fn structure(members: Vec<(&str, ArrayRef)>) -> Result<StructArray> {
    let fields: Fields = members.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    Ok(StructArray::try_new(fields, members.into_iter().map(|(_, array)| array).collect(), None)?)
}

fn strings<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn longs(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

fn lists<'a>(values: impl IntoIterator<Item = Option<&'a Vec<String>>>) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(Field::new("element", ArrowType::Utf8, true));
    for list in values {
        list.into_iter().flatten().for_each(|value| builder.values().append_value(value));
        builder.append(list.is_some());
    }
    Arc::new(builder.finish())
}

fn map_names() -> MapFieldNames {
    MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() }
}

fn maps<'a>(values: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> Result<ArrayRef> {
    let mut builder = MapBuilder::new(Some(map_names()), StringBuilder::new(), StringBuilder::new());
    for map in values {
        for (key, value) in map {
            builder.keys().append_value(key);
            builder.values().append_value(value);
        }
        builder.append(true)?;
    }
    Ok(Arc::new(builder.finish()))
}

fn protocol(protocols: &[&Protocol]) -> Result<StructArray> {
    // The lists must be there from versions 3 and 7 on, and must not before.
    let readers = protocols.iter().map(|p| p.reader_features.as_ref().filter(|_| p.min_reader_version >= 3));
    let writers = protocols.iter().map(|p| p.writer_features.as_ref().filter(|_| p.min_writer_version >= 7));
    structure(vec![
        ("minReaderVersion", Arc::new(protocols.iter().map(|p| Some(p.min_reader_version)).collect::<Int32Array>())),
        ("minWriterVersion", Arc::new(protocols.iter().map(|p| Some(p.min_writer_version)).collect::<Int32Array>())),
        ("readerFeatures", lists(readers)),
        ("writerFeatures", lists(writers)),
    ])
}

fn metadata(all: &[&Metadata]) -> Result<StructArray> {
    let format = structure(vec![
        ("provider", strings(all.iter().map(|m| Some(m.format.provider.as_str())))),
        ("options", maps(all.iter().map(|m| &m.format.options))?),
    ])?;
    structure(vec![
        ("id", strings(all.iter().map(|m| Some(m.id.as_str())))),
        ("name", strings(all.iter().map(|m| m.name.as_deref()))),
        ("description", strings(all.iter().map(|m| m.description.as_deref()))),
        ("format", Arc::new(format)),
        ("schemaString", strings(all.iter().map(|m| Some(m.schema_string.as_str())))),
        ("partitionColumns", lists(all.iter().map(|m| Some(&m.partition_columns)))),
        ("createdTime", longs(all.iter().map(|m| m.created_time))),
        ("configuration", maps(all.iter().map(|m| &m.configuration))?),
    ])
}

fn txns(all: &[Txn]) -> Result<StructArray> {
    structure(vec![
        ("appId", strings(all.iter().map(|t| Some(t.app_id.as_str())))),
        ("version", longs(all.iter().map(|t| Some(t.version)))),
        ("lastUpdated", longs(all.iter().map(|t| t.last_updated))),
    ])
}

fn domains(all: &[DomainMetadata]) -> Result<StructArray> {
    structure(vec![
        ("domain", strings(all.iter().map(|d| Some(d.domain.as_str())))),
        ("configuration", strings(all.iter().map(|d| Some(d.configuration.as_str())))),
        ("removed", Arc::new(all.iter().map(|d| Some(d.removed)).collect::<BooleanArray>())),
    ])
}

fn checkpoint_metadata(versions: &[i64]) -> Result<StructArray> {
    let tags = BTreeMap::new();
    structure(vec![
        ("version", longs(versions.iter().map(|v| Some(*v)))),
        ("tags", maps(versions.iter().map(|_| &tags))?),
    ])
}

fn sidecars(all: &[Sidecar]) -> Result<StructArray> {
    let mut tags = MapBuilder::new(Some(map_names()), StringBuilder::new(), StringBuilder::new());
    for sidecar in all {
        for (key, value) in sidecar.tags.iter().flatten() {
            tags.keys().append_value(key);
            tags.values().append_option(value.as_ref());
        }
        tags.append(sidecar.tags.is_some())?;
    }
    structure(vec![
        ("path", strings(all.iter().map(|s| Some(s.path.as_str())))),
        ("sizeInBytes", longs(all.iter().map(|s| Some(s.size_in_bytes)))),
        ("modificationTime", longs(all.iter().map(|s| Some(s.modification_time)))),
        ("tags", Arc::new(tags.finish())),
    ])
}

/// Adds the paths of the leaves below some fields.
fn add_leaves(fields: &Fields, path: &mut Vec<String>, leaves: &mut HashSet<Vec<String>>) {
    for field in fields {
        path.push(field.name().clone());
        match field.data_type() {
            ArrowType::Struct(members) => add_leaves(members, path, leaves),
            _ => drop(leaves.insert(path.clone())),
        }
        path.pop();
    }
}
