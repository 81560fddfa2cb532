//! A source of a merge whose rows are in other processes: what the driver knows of it, and which rows each task needs.
//!
//! A task needs the rows of the source whose keys are those of some row in its files. Keys are compared by their hashes: if
//! two keys have the same, a task gets a row that matches nothing there, which changes nothing.
//!
//! Proved by `tests/spark/test_divided_source.py`.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_row::{RowConverter, SortField};
use arrow_schema::Field;
use deltic_protocol::expression::{Context, evaluate_at};
use deltic_protocol::row_merge::{Bounds, JoinCondition, JoinKey, Sides};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::{StructType, TableSchema};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use super::super::places::Places;
use super::join::{of_source_row, of_target};
use super::keys::{equalized, present_rows};
use super::source::batch_of_sides;
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{FileTask, ReadSpec};
use crate::write::pieces::memory;
use deltic_store::Storage;

/// The kind of these bytes, in their envelope.
const KEYS: &str = "key of a merge";

/// The columns of a summary: the number of rows and their bytes; for each key its values, whether these are all, and
/// whether NULL is one.
const ROWS: &str = "rows";
const BYTES: &str = "bytes";
const COLUMNS_OF_A_KEY: [&str; 3] = ["values", "all", "null"];

/// Bytes of the values of a key that are listed in a summary: there may be thousands of summaries.
const MOST_VALUE_BYTES: usize = 16 * 1024;

/// Which rows of a source a process has.
#[derive(Debug, Clone)]
pub enum SourceRows {
    /// All of them.
    All,
    /// Those that can match in the files of one task. Each has a number among all.
    Part(Int64Array),
    /// Those that belong to the rows of the target in the files of one task: another engine has joined the sides.
    Placed(Box<Places>),
    /// None of them. These are the [summaries](SourceSummary) of the processes that have them.
    Elsewhere(Vec<RecordBatch>),
}

impl SourceRows {
    /// How many rows the source has, if other processes have them.
    ///
    /// # Errors
    /// `Invalid` for summaries that cannot be read, and for a part of the rows, which is not enough to plan.
    pub(crate) fn elsewhere(&self) -> Result<Option<u64>> {
        match self {
            Self::All => Ok(None),
            Self::Part(_) | Self::Placed(_) => {
                Err(Error::invalid("a merge cannot be planned with a part of its source"))
            }
            Self::Elsewhere(summaries) => summed(summaries, 0).map(|(rows, _)| Some(rows)),
        }
    }
}

/// The keys of both sides of a merge, as plain data.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeysSpec {
    source: TableSchema,
    target: TableSchema,
    source_alias: String,
    target_alias: String,
    on: String,
    now: Option<i64>,
}

/// Computes the keys of both sides of a merge, in any process.
#[derive(Debug)]
pub struct MergeKeys {
    sides: Sides,
    keys: Vec<JoinKey>,
    null_safe: Vec<bool>,
    now: Option<i64>,
    converter: RowConverter,
}

/// What [`MergeKeys::from_bytes`] reads.
pub(super) fn keys_to_bytes(sides: Sides, on: String, now: Option<i64>) -> Result<Vec<u8>> {
    let Sides { source, target, source_alias, target_alias } = sides;
    pack(KEYS, &KeysSpec { source: source.into(), target: target.into(), source_alias, target_alias, on, now })
}

impl MergeKeys {
    /// Reads what `Transaction::merge_keys` returned.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let KeysSpec { source, target, source_alias, target_alias, on, now } = unpack(KEYS, bytes)?;
        let (target, source) = (StructType::clone(&target), StructType::clone(&source));
        let sides = Sides::new(target, source, &source_alias, &target_alias)?;
        let keys = JoinCondition::parse(&on, &sides)?.keys;
        let types = keys.iter().map(|key| SortField::new(to_arrow_type(key.source.data_type())));
        let converter = RowConverter::new(types.collect())?;
        let null_safe = keys.iter().map(|key| key.null_safe).collect();
        Ok(Self { sides, keys, null_safe, now, converter })
    }

    /// The hash of the key of each row of the source; null for keys that equal none.
    ///
    /// # Errors
    /// `Invalid` for a key that cannot be computed.
    pub fn hashes(&self, rows: &RecordBatch) -> Result<Int64Array> {
        self.hashed(&self.values(true, rows)?)
    }

    fn values(&self, of_source: bool, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let alias = if of_source { &self.sides.source_alias } else { &self.sides.target_alias };
        let on = batch_of_sides(vec![(alias, Arc::new(StructArray::from(rows.clone())))])?;
        let context = Context { now: self.now, first_row: 0 };
        let of = |key: &JoinKey| match of_source {
            true => evaluate_at(&key.source, &on, context).map_err(|e| of_source_row(&e)),
            false => evaluate_at(&key.target, &on, context).map_err(|e| of_target(&e)),
        };
        self.keys.iter().map(of).collect()
    }

    fn hashed(&self, values: &[ArrayRef]) -> Result<Int64Array> {
        let values: Vec<ArrayRef> = values.iter().map(equalized).collect();
        let present = present_rows(&values, &self.null_safe);
        let rows = self.converter.convert_columns(&values)?;
        Ok(rows.iter().zip(present.iter()).map(|(row, present)| present.then(|| hash(row.data()))).collect())
    }

    /// The hashes of the keys in files, each at most once for each batch of rows that is read.
    pub(crate) fn of_files(
        self,
        storage: Storage,
        find: ReadSpec,
        files: Vec<FileTask>,
    ) -> Result<impl Stream<Item = Result<HashSet<i64>>> + Send + 'static> {
        let mut columns: Vec<String> = Vec::new();
        for name in self.keys.iter().flat_map(|key| self.sides.columns_of(false, &key.target)) {
            if !columns.iter().any(|known| known == name) {
                columns.push(name.to_owned());
            }
        }
        let reader = Reader::new(storage, ReadSpec { columns, ..find })?;
        let rows = reader.read(files, ReadOptions::default());
        Ok(rows.map(move |rows| Ok(self.hashed(&self.values(false, &rows?)?)?.iter().flatten().collect())))
    }
}

/// The same in every process of one release.
fn hash(key: &[u8]) -> i64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish().cast_signed()
}

/// How many rows of a source some process has, and the bounds of their keys.
#[derive(Debug)]
pub struct SourceSummary {
    keys: Option<MergeKeys>,
    bounds: Vec<Bounds>,
    rows: u64,
    bytes: u64,
}

impl SourceSummary {
    /// Of no rows yet. Without keys only rows and bytes are counted.
    pub fn new(keys: Option<MergeKeys>) -> Self {
        let bounds = keys.iter().flat_map(|keys| &keys.keys).map(|_| Bounds::new()).collect();
        Self { keys, bounds, rows: 0, bytes: 0 }
    }

    /// Adds rows, in the types of a table.
    ///
    /// # Errors
    /// `Invalid` for a key that cannot be computed.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        self.rows = self.rows.saturating_add(rows.num_rows() as u64);
        self.bytes = self.bytes.saturating_add(memory(rows) as u64);
        let Some(keys) = &self.keys else { return Ok(()) };
        for (bounds, values) in self.bounds.iter_mut().zip(&keys.values(true, rows)?) {
            bounds.extend(values)?;
        }
        Ok(())
    }

    /// The summary as a batch of one row, for [`SourceRows::Elsewhere`].
    ///
    /// # Errors
    /// `Internal` for a key of a nested type (cannot happen).
    pub fn to_batch(&self) -> Result<RecordBatch> {
        let count =
            |count: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![i64::try_from(count).unwrap_or(i64::MAX)])) };
        let mut columns = vec![(ROWS.to_owned(), count(self.rows)), (BYTES.to_owned(), count(self.bytes))];
        for (at, (bounds, key)) in self.bounds.iter().zip(self.keys.iter().flat_map(|keys| &keys.keys)).enumerate() {
            let of_key = key.source.data_type().as_primitive();
            let of_key = of_key.ok_or_else(|| Error::internal("a key of a merge is nested"))?;
            let mut bounds = bounds.clone();
            let mut values = Scalar::to_column(&bounds.values(), of_key)?;
            if values.get_array_memory_size() > MOST_VALUE_BYTES {
                bounds.forget_values();
                values = Scalar::to_column(&bounds.values(), of_key)?;
            }
            let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            let list = ListArray::try_new(item, OffsetBuffer::from_lengths([values.len()]), values, None)?;
            let flag = |flag: bool| -> ArrayRef { Arc::new(BooleanArray::from(vec![flag])) };
            let of: [ArrayRef; 3] = [Arc::new(list), flag(bounds.has_all_values()), flag(bounds.has_null())];
            columns.extend(COLUMNS_OF_A_KEY.iter().map(|name| format!("{name}{at}")).zip(of));
        }
        Ok(RecordBatch::try_from_iter(columns)?)
    }
}

/// How many rows the source has, and the bounds of each of its `keys` keys, from summaries.
pub(super) fn summed(summaries: &[RecordBatch], keys: usize) -> Result<(u64, Vec<Bounds>)> {
    let unreadable = || Error::invalid("the summary of a source is not readable");
    let mut rows: u64 = 0;
    let mut all: Vec<Bounds> = (0..keys).map(|_| Bounds::new()).collect();
    for summary in summaries {
        let column = |name: &str| summary.column_by_name(name).ok_or_else(unreadable);
        let counts = column(ROWS)?.as_primitive_opt::<Int64Type>().ok_or_else(unreadable)?;
        for row in 0..summary.num_rows() {
            rows = rows.saturating_add(u64::try_from(counts.value(row)).unwrap_or_default());
            for (at, bounds) in all.iter_mut().enumerate() {
                let of = |name: &str| column(&format!("{name}{at}"));
                let [values, has_all, has_null] = COLUMNS_OF_A_KEY.map(of);
                let values = values?.as_list_opt::<i32>().ok_or_else(unreadable)?.value(row);
                let flag = |of: &ArrayRef| of.as_boolean_opt().map(|of| of.value(row)).ok_or_else(unreadable);
                let values = (0..values.len()).map(|at| Scalar::from_array(&values, at)).collect::<Result<_>>()?;
                bounds.unite(values, flag(has_all?)?, flag(has_null?)?);
            }
        }
    }
    Ok((rows, all))
}
