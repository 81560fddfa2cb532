//! File actions in columns: what replay, pruning and planning work on.
//!
//! An [`AddBatch`] is a record batch whose columns have the names of members of `add`, any subset of them:
//! members that were not asked for are not decoded. Accessors return `None` for a column that is not there. A null means
//! the same as a missing member. A [`KeyBatch`] has only what identifies logical files.
//!
//! Invariant: `path` is there and never null (`tests/rust/protocol/action.rs`).
//!
//! PROTOCOL.md: "Add File and Remove File".

use std::sync::{Arc, LazyLock};

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Int32Array, Int64Array, MapArray, RecordBatch, RecordBatchOptions,
    StringArray, StringViewArray, StructArray,
};
use arrow_buffer::BooleanBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;

use super::{Add, DeletionVectorDescriptor, PartitionValues};
use crate::error::{Error, Result};
use crate::json::unescape;
use crate::schema::arrow::table_type_name;

/// Where a batch of actions was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Commit, or the end of a compacted range of commits.
    Commit(u64),
    /// Checkpoint of a version.
    Checkpoint(u64),
}

/// Members of the deletion vector descriptor, in columns.
pub static DELETION_VECTOR_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("storageType", DataType::Utf8, true),
        Field::new("pathOrInlineDv", DataType::Utf8, true),
        Field::new("offset", DataType::Int32, true),
        Field::new("sizeInBytes", DataType::Int32, true),
        Field::new("cardinality", DataType::Int64, true),
    ])
});

/// The Arrow type of a map of strings with null values.
pub static STRING_MAP: LazyLock<DataType> = LazyLock::new(|| {
    let entries =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)]);
    DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entries), false)), false)
});

/// All columns that an [`AddBatch`] read from JSON may have. Columns without a value are left out, and `stats` are
/// [quoted](AddBatch::stats).
pub static ADD_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("partitionValues", STRING_MAP.clone(), true),
        Field::new("size", DataType::Int64, true),
        Field::new("modificationTime", DataType::Int64, true),
        Field::new("dataChange", DataType::Boolean, true),
        Field::new("stats", DataType::Utf8, true),
        Field::new("tags", STRING_MAP.clone(), true),
        Field::new("deletionVector", DataType::Struct(DELETION_VECTOR_FIELDS.clone()), true),
        Field::new("baseRowId", DataType::Int64, true),
        Field::new("defaultRowCommitVersion", DataType::Int64, true),
        Field::new("clusteringProvider", DataType::Utf8, true),
    ]))
});
/// No files.
pub(super) static NO_ADDS: LazyLock<RecordBatch> = LazyLock::new(|| RecordBatch::new_empty(ADD_SCHEMA.clone()));

/// Data files in columns.
#[derive(Debug, Clone)]
pub struct AddBatch {
    /// Where in the log the actions are.
    pub origin: Origin,
    rows: RecordBatch,
}

/// What identifies logical files, in columns: path and deletion vector id.
#[derive(Debug, Clone)]
pub struct KeyBatch {
    path: Paths,
    deletion_vector: Option<DeletionVectors>,
}

/// Paths, in one of the layouts of strings.
#[derive(Debug, Clone)]
enum Paths {
    Plain(StringArray),
    Views(StringViewArray),
}

/// Deletion vector descriptors in columns.
#[derive(Debug, Clone)]
struct DeletionVectors {
    descriptor: StructArray,
    storage_type: StringArray,
    path: StringArray,
    offset: Int32Array,
}

impl AddBatch {
    /// Wraps columns named after the members of `add`.
    ///
    /// # Errors
    /// `Corrupt` if the path is missing or null, or a column has a type that its member cannot have.
    pub fn new(origin: Origin, rows: RecordBatch) -> Result<Self> {
        for field in rows.schema().fields() {
            if let Ok(expected) = ADD_SCHEMA.field_with_name(field.name())
                && !same_layout(field.data_type(), expected.data_type())
                && !(field.name() == "stats" && matches!(field.data_type(), DataType::BinaryView | DataType::Utf8View))
            {
                return Err(Error::corrupt(format!(
                    "`add.{}` has the type {} instead of {}",
                    field.name(),
                    field.data_type(),
                    expected.data_type()
                )));
            }
        }
        match rows.column_by_name("path") {
            Some(path) if path.null_count() == 0 => Ok(Self { origin, rows }),
            Some(_) => Err(Error::corrupt("an `add` action has no path")),
            None => Err(Error::corrupt("`add` actions have no path column")),
        }
    }

    /// No files.
    pub fn none(origin: Origin) -> Self {
        Self { origin, rows: NO_ADDS.clone() }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns as they are.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The files whose bit is set. If these are few of many, they do not keep the text of the whole commit in memory.
    pub fn filter(&self, keep: BooleanBuffer) -> Result<Self> {
        let rows = filter_record_batch(&self.rows, &BooleanArray::new(keep, None))?;
        let are_few = rows.num_rows() < self.rows.num_rows() / 2;
        Ok(Self { origin: self.origin, rows: if are_few { without_other_strings(rows)? } else { rows } })
    }

    /// Several batches with the same columns as one, which has the origin of the first. `None` if there is no batch.
    pub fn concat(batches: &[Self]) -> Result<Option<Self>> {
        let Some(first) = batches.first() else { return Ok(None) };
        if batches.len() == 1 {
            return Ok(Some(first.clone()));
        }
        let rows = concat_batches(&first.rows.schema(), batches.iter().map(Self::rows))?;
        Ok(Some(Self { origin: first.origin, rows }))
    }

    /// What identifies the files.
    pub fn keys(&self) -> Result<KeyBatch> {
        KeyBatch::new(&self.rows)
    }

    /// Paths as the log has them.
    pub fn path(&self) -> &StringArray {
        match self.rows.column_by_name("path") {
            Some(column) => column.as_string::<i32>(),
            None => unreachable_column(),
        }
    }

    /// Bytes.
    pub fn size(&self) -> Option<&Int64Array> {
        self.int64("size")
    }

    /// A 64-bit member by name.
    pub fn int64(&self, name: &str) -> Option<&Int64Array> {
        self.rows.column_by_name(name)?.as_primitive_opt::<Int64Type>()
    }

    /// Statistics as JSON text.
    ///
    /// Statistics of a commit are kept as JSON strings, as the commit has them, in a column of bytes: they are long, and few
    /// readers of a commit need them. Each call copies them.
    ///
    /// # Errors
    /// `Unsupported` if there is more text than a column can hold.
    pub fn stats(&self) -> Result<Option<StringArray>> {
        self.rows.column_by_name("stats").map_or(Ok(None), stats_strings)
    }

    /// Partition values by physical name.
    pub fn partition_values(&self) -> Option<&MapArray> {
        self.rows.column_by_name("partitionValues")?.as_map_opt()
    }

    /// A column with children, such as `stats_parsed`.
    pub fn structure(&self, name: &str) -> Option<&StructArray> {
        self.rows.column_by_name(name)?.as_struct_opt()
    }

    /// The deletion vector of the file at `row`.
    pub fn deletion_vector(&self, row: usize) -> Result<Option<DeletionVectorDescriptor>> {
        match self.structure("deletionVector") {
            Some(column) => descriptor(column, row),
            None => Ok(None),
        }
    }

    /// The partition values of the file at `row`.
    ///
    /// # Errors
    /// `Corrupt` if they are not strings.
    pub fn partition_values_at(&self, row: usize) -> Result<PartitionValues> {
        self.partition_values().map_or_else(|| Ok(PartitionValues::new()), |map| string_map_at(map, row))
    }

    /// As [`AddBatch::add`], for a file that is added to the log again.
    ///
    /// # Errors
    /// `Corrupt` if the log does not say its size: readers would believe any number that was written instead.
    pub fn sized_add(&self, row: usize) -> Result<Add> {
        match self.size().is_some_and(|sizes| sizes.is_valid(row)) {
            true => self.add(row),
            false => {
                let message = "the log does not say the size of a file; rewrite that file, or remove it from the table";
                Err(Error::corrupt(message).in_file(self.path().value(row)))
            }
        }
    }

    /// The file at `row` as a struct, for when there are few files.
    pub fn add(&self, row: usize) -> Result<Add> {
        let number = |name: &str| self.int64(name).filter(|c| c.is_valid(row)).map(|c| c.value(row));
        let text = |name: &str| {
            let column = self.rows.column_by_name(name)?.as_string_opt::<i32>()?;
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let tags = self.rows.column_by_name("tags").and_then(|c| c.as_map_opt()).filter(|c| c.is_valid(row));
        let data_change = self.rows.column_by_name("dataChange").and_then(|c| c.as_boolean_opt());
        let stats =
            self.rows.column_by_name("stats").map_or(Ok(None), |column| stats_strings(&column.slice(row, 1)))?;
        Ok(Add {
            path: self.path().value(row).to_owned(),
            partition_values: self.partition_values_at(row)?,
            size: number("size").unwrap_or_default(),
            modification_time: number("modificationTime").unwrap_or_default(),
            data_change: data_change.is_some_and(|c| c.is_valid(row) && c.value(row)),
            stats: stats.filter(|stats| stats.is_valid(0)).map(|stats| stats.value(0).to_owned()),
            tags: tags.map(|map| string_map_at(map, row)).transpose()?,
            deletion_vector: self.deletion_vector(row)?,
            base_row_id: number("baseRowId"),
            default_row_commit_version: number("defaultRowCommitVersion"),
            clustering_provider: text("clusteringProvider"),
        })
    }
}

/// Statistics as JSON strings, from any of their forms.
fn stats_strings(stats: &ArrayRef) -> Result<Option<StringArray>> {
    match stats.data_type() {
        DataType::BinaryView => unquoted(stats.as_binary_view()).map(Some),
        DataType::Utf8View => Ok(Some(stats.as_string_view().iter().collect())),
        _ => Ok(stats.as_string_opt::<i32>().cloned()),
    }
}

/// The rows with copies of their statistics, if most of the text that the statistics refer to is not theirs.
fn without_other_strings(rows: RecordBatch) -> Result<RecordBatch> {
    let copied = |column: &ArrayRef| {
        let stats = column.as_binary_view_opt()?;
        let text: usize = stats.data_buffers().iter().map(|buffer| buffer.len()).sum();
        (text / 2 > stats.total_buffer_bytes_used()).then(|| Arc::new(stats.gc()) as ArrayRef)
    };
    let columns = rows.columns().iter().map(|column| copied(column).unwrap_or_else(|| column.clone())).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(rows.schema(), columns, &options)?)
}

/// The values of JSON strings.
fn unquoted(literals: &BinaryViewArray) -> Result<StringArray> {
    let broken = || Error::internal("kept statistics are not a JSON string");
    let mut strings = StringBuilder::with_capacity(literals.len(), literals.total_buffer_bytes_used());
    let mut scratch = String::new();
    let mut bytes = 0_usize;
    for literal in literals {
        let Some(literal) = literal else {
            strings.append_null();
            continue;
        };
        unescape(simdutf8::basic::from_utf8(literal).map_err(|_| broken())?, &mut scratch).ok_or_else(broken)?;
        bytes += scratch.len();
        if i32::try_from(bytes).is_err() {
            return Err(Error::unsupported(
                "statistics beyond 2 GiB",
                "the files of a batch have more than 2 GiB of statistics",
            ));
        }
        strings.append_value(&scratch);
    }
    Ok(strings.finish())
}

/// [`AddBatch::new`] has checked that the column is there; with this the accessor needs no error.
fn unreachable_column() -> &'static StringArray {
    static EMPTY: LazyLock<StringArray> = LazyLock::new(|| StringArray::from(Vec::<&str>::new()));
    &EMPTY
}

/// Equal except for nullability, the names inside maps and members that deltic does not know: writers differ in these.
fn same_layout(found: &DataType, expected: &DataType) -> bool {
    match (found, expected) {
        (DataType::Map(found, _), DataType::Map(expected, _)) => match (found.data_type(), expected.data_type()) {
            (DataType::Struct(found), DataType::Struct(expected)) => {
                let same = |(f, e): (&Arc<Field>, &Arc<Field>)| same_layout(f.data_type(), e.data_type());
                found.len() == expected.len() && found.iter().zip(expected).all(same)
            }
            _ => false,
        },
        (DataType::Struct(found), DataType::Struct(expected)) => expected
            .iter()
            .all(|e| found.find(e.name()).is_none_or(|(_, found)| same_layout(found.data_type(), e.data_type()))),
        (found, expected) => found == expected,
    }
}

/// The entries of a map of strings, in whatever layout, at `row`.
///
/// # Errors
/// `Corrupt` if they are not strings.
pub fn string_map_at(map: &MapArray, row: usize) -> Result<PartitionValues> {
    if map.is_null(row) {
        return Ok(PartitionValues::new());
    }
    let entries = map.value(row);
    let (keys, values) = (plain_strings(entries.column(0))?, plain_strings(entries.column(1))?);
    let entries = keys.iter().zip(values.iter());
    Ok(entries.filter_map(|(key, value)| Some((key?.to_owned(), value.map(str::to_owned)))).collect())
}

/// Strings in the layout that they have in actions read from JSON. Some writers do not mark strings as such in Parquet.
pub(super) fn plain_strings(column: &ArrayRef) -> Result<StringArray> {
    use DataType as D;
    let not_strings =
        || Error::corrupt(format!("a column of strings has the type {}", table_type_name(column.data_type())));
    let texts = match column.data_type() {
        D::Utf8 => column.clone(),
        D::LargeUtf8 | D::Utf8View | D::Binary | D::LargeBinary | D::BinaryView | D::Null => {
            let strictly = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(column, &D::Utf8, &strictly).map_err(|e| not_strings().caused_by(e))?
        }
        _ => return Err(not_strings()),
    };
    texts.as_string_opt().cloned().ok_or_else(not_strings)
}

fn descriptor(column: &StructArray, row: usize) -> Result<Option<DeletionVectorDescriptor>> {
    if column.is_null(row) {
        return Ok(None);
    }
    let text = |name: &str| {
        let column = column.column_by_name(name)?.as_string_opt::<i32>()?;
        column.is_valid(row).then(|| column.value(row).to_owned())
    };
    let int32 = |name: &str| {
        let column = column.column_by_name(name)?.as_primitive_opt::<Int32Type>()?;
        column.is_valid(row).then(|| column.value(row))
    };
    let cardinality = column.column_by_name("cardinality").and_then(|c| c.as_primitive_opt::<Int64Type>());
    // Some writers fill the struct with nulls where there is no deletion vector.
    let Some(storage_type) = text("storageType") else { return Ok(None) };
    let missing = || Error::corrupt("a deletion vector descriptor lacks a member");
    Ok(Some(DeletionVectorDescriptor {
        storage_type,
        path_or_inline_dv: text("pathOrInlineDv").ok_or_else(missing)?,
        offset: int32("offset"),
        size_in_bytes: int32("sizeInBytes").ok_or_else(missing)?,
        cardinality: cardinality.filter(|c| c.is_valid(row)).map(|c| c.value(row)).ok_or_else(missing)?,
    }))
}

impl KeyBatch {
    /// Takes `path` and `deletionVector` from columns named after the members of `add` or `remove`.
    ///
    /// # Errors
    /// `Corrupt` if the path is missing, null or no string.
    pub fn new(rows: &RecordBatch) -> Result<Self> {
        let path = rows.column_by_name("path").and_then(|c| c.as_string_opt::<i32>()).filter(|c| c.null_count() == 0);
        let path = path.ok_or_else(|| Error::corrupt("a file action has no path"))?.clone();
        let vectors = rows.column_by_name("deletionVector").and_then(|c| c.as_struct_opt());
        Ok(Self { path: Paths::Plain(path), deletion_vector: vectors_of(vectors)? })
    }

    /// Keys of paths that are not copied. The columns have the same length. Where a path is null, the key has no meaning.
    ///
    /// # Errors
    /// `Corrupt` if the deletion vectors lack a member.
    pub fn of_views(path: StringViewArray, vectors: Option<&StructArray>) -> Result<Self> {
        Ok(Self { path: Paths::Views(path), deletion_vector: vectors_of(vectors)? })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        match &self.path {
            Paths::Plain(path) => path.len(),
            Paths::Views(path) => path.len(),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Path as the log has it.
    pub fn path(&self, row: usize) -> &str {
        match &self.path {
            Paths::Plain(path) => path.value(row),
            Paths::Views(path) => path.value(row),
        }
    }

    /// The deletion vector's storage type, path and offset, which make its unique id.
    pub fn deletion_vector(&self, row: usize) -> Option<(&str, &str, Option<i32>)> {
        self.deletion_vector.as_ref().and_then(|d| d.id(row))
    }
}

fn vectors_of(column: Option<&StructArray>) -> Result<Option<DeletionVectors>> {
    column.filter(|column| column.null_count() < column.len()).map(DeletionVectors::new).transpose()
}

impl DeletionVectors {
    fn new(column: &StructArray) -> Result<Self> {
        let text = |name: &str| column.column_by_name(name).and_then(|c| c.as_string_opt::<i32>()).cloned();
        let offset = column.column_by_name("offset").and_then(|c| c.as_primitive_opt::<Int32Type>()).cloned();
        match (text("storageType"), text("pathOrInlineDv"), offset) {
            (Some(storage_type), Some(path), Some(offset)) => {
                Ok(Self { descriptor: column.clone(), storage_type, path, offset })
            }
            _ => Err(Error::corrupt("deletion vector descriptors lack a member")),
        }
    }

    fn id(&self, row: usize) -> Option<(&str, &str, Option<i32>)> {
        let there = self.descriptor.is_valid(row) && self.storage_type.is_valid(row) && self.path.is_valid(row);
        let offset = self.offset.is_valid(row).then(|| self.offset.value(row));
        there.then(|| (self.storage_type.value(row), self.path.value(row), offset))
    }
}
