//! Splits batches by the values of the partition columns.
//!
//! Rows keep their order within a partition. Copied rows keep the strings of their values: those with other strings are another
//! partition. A batch of one partition is passed on without copying its rows.
//! The empty string becomes null, as the protocol defines, and all NaNs are equal.
//!
//! Invariant: a partition value is read back from the log as the same value (`write::partition_values_read_back`); a value that
//! the log cannot represent is refused.
//!
//! PROTOCOL.md: "Partition Value Serialization".

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow_ord::partition::partition;
use arrow_row::{RowConverter, SortField};
use arrow_select::take::{take, take_record_batch};
use deltic_protocol::action::PartitionValues;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::{PrimitiveType, StructType, with_article};

use super::pieces::{memory, overhead};
use deltic_protocol::scalar::partition::{normalise, normalise_columns};

/// The partition values of a file: physical name and text of each partition column, in the table's order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PartitionKey(Vec<(String, Option<String>)>);

impl PartitionKey {
    /// A key of these names and strings; `None` means null.
    pub fn new(entries: Vec<(String, Option<String>)>) -> Self {
        Self(entries)
    }

    /// Names and strings in the order of the partition columns.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    /// In the form of an `add` action.
    pub fn to_partition_values(&self) -> PartitionValues {
        self.0.iter().cloned().collect()
    }
}

#[derive(Debug)]
struct PartitionColumn {
    name: String,
    index: usize,
    data_type: PrimitiveType,
    nullable: bool,
}

/// Splits batches with one schema.
#[derive(Debug)]
pub struct PartitionSplitter {
    columns: Vec<PartitionColumn>,
    kept: Vec<usize>,
    /// Whether data files have the partition columns too, after the other columns.
    materializes: bool,
}

impl PartitionSplitter {
    /// For batches with the columns of `schema` in order, under logical or physical names.
    ///
    /// # Errors
    /// `Corrupt` if a partition column is not in the schema or cannot be one by its type.
    pub fn new(schema: &StructType, partition_columns: &[String]) -> Result<Self> {
        let mut columns = Vec::with_capacity(partition_columns.len());
        for name in partition_columns {
            let field = schema.index_of(name).and_then(|index| Some((index, schema.fields.get(index)?)));
            let Some((index, field)) = field else {
                return Err(Error::corrupt(format!("the partition column `{name}` is not in the schema")));
            };
            let Some(data_type) = field.data_type.as_primitive() else {
                return Err(Error::corrupt(format!(
                    "the partition column `{name}` is {}; only columns without inner columns can partition a table",
                    with_article(&field.data_type)
                )));
            };
            let name = field.name.clone();
            columns.push(PartitionColumn { name, index, data_type: data_type.clone(), nullable: field.nullable });
        }
        let kept = (0..schema.fields.len()).filter(|i| columns.iter().all(|c| c.index != *i)).collect();
        Ok(Self { columns, kept, materializes: false })
    }

    /// Writes the partition columns into data files too, after the other columns, with the values of the log.
    #[must_use]
    pub fn with_partition_columns(mut self) -> Self {
        self.materializes = true;
        self
    }

    /// The rows with their partition values in the form in which they will be read.
    ///
    /// # Errors
    /// As [`normalise_columns`].
    pub(super) fn normalised(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let positions: Vec<usize> = self.columns.iter().map(|column| column.index).collect();
        normalise_columns(rows.clone(), &positions)
    }

    /// The rows of each partition, without the partition columns, partitions in the order in which they appear.
    ///
    /// # Errors
    /// `Invalid`, naming column and value, if a partition value has no string.
    pub fn split(&self, batch: &RecordBatch) -> Result<Vec<(PartitionKey, RecordBatch)>> {
        Ok(self.divide(batch, &[])?.take(usize::MAX)?.rows)
    }

    /// Divides rows whose last columns are the strings of their partition values from these.
    ///
    /// # Errors
    /// `Internal` if there are no such columns.
    pub(super) fn take_strings(&self, rows: &RecordBatch) -> Result<(RecordBatch, Vec<StringArray>)> {
        let others = rows.num_columns().saturating_sub(self.columns.len());
        let strings = rows.columns().iter().skip(others).map(|column| column.as_string_opt().cloned());
        let strings = strings.collect::<Option<Vec<_>>>().filter(|strings| strings.len() == self.columns.len());
        let strings =
            strings.ok_or_else(|| Error::internal("rows came without the strings of their partition values"))?;
        Ok((rows.project(&(0..others).collect::<Vec<_>>())?, strings))
    }

    /// As [`PartitionSplitter::split`], but the rows of a partition are copied only when they are taken. `strings`: those of
    /// [`PartitionSplitter::take_strings`], if the rows have them.
    ///
    /// # Errors
    /// As [`PartitionSplitter::split`].
    pub(super) fn divide(&self, batch: &RecordBatch, strings: &[StringArray]) -> Result<Divided> {
        if batch.num_rows() == 0 {
            return Ok(Divided::new(batch.project(&self.kept)?, Vec::new()));
        }
        if u32::try_from(batch.num_rows()).is_err() {
            return Err(Error::invalid("a batch has more than 4 294 967 295 rows; pass smaller batches"));
        }
        let mut data = batch.project(&self.kept)?;
        if self.columns.is_empty() {
            return Ok(Divided::new(data, vec![(PartitionKey::default(), None)]));
        }
        let mut values = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            values.push(normalise(batch.column(column.index))?);
        }
        if self.materializes {
            data = self.with_values(batch, data, &values)?;
        }
        let mut keys = values.clone();
        keys.extend(strings.iter().map(|strings| Arc::new(strings.clone()) as ArrayRef));
        let runs = partition(&keys)?.ranges();
        if runs.len() == 1 {
            return Ok(Divided::new(data, vec![(self.key(&values, strings, 0)?, None)]));
        }
        let mut groups = Vec::new();
        for group in group_runs(&keys, &runs)? {
            let first = group.first().map_or(0, |&run| runs[run].start);
            let rows: UInt32Array = group.iter().flat_map(|&run| runs[run].clone()).map(|row| row as u32).collect();
            groups.push((self.key(&values, strings, first)?, Some(rows)));
        }
        Ok(Divided::new(data, groups))
    }

    /// The data and, after its columns, the values of the partition columns.
    fn with_values(&self, batch: &RecordBatch, data: RecordBatch, values: &[ArrayRef]) -> Result<RecordBatch> {
        for (column, values) in self.columns.iter().zip(values).filter(|(column, _)| !column.nullable) {
            // An empty string is null in a partition column.
            if let Some(row) = (0..values.len()).find(|row| values.is_null(*row)) {
                column.print(&Scalar::from_array(values, row)?)?;
            }
        }
        let of_columns = self.columns.iter().map(|column| column.index);
        let schema = batch.schema().project(&self.kept.iter().copied().chain(of_columns).collect::<Vec<_>>())?;
        let columns = data.columns().iter().chain(values).cloned().collect();
        Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
    }

    fn key(&self, values: &[ArrayRef], strings: &[StringArray], row: usize) -> Result<PartitionKey> {
        let entry = |(at, (column, values)): (usize, (&PartitionColumn, &ArrayRef))| {
            let kept =
                strings.get(at).filter(|strings| strings.is_valid(row)).map(|strings| strings.value(row).to_owned());
            let string = match kept {
                Some(kept) => Some(kept),
                None => column.print(&Scalar::from_array(values, row)?)?,
            };
            Ok((column.name.clone(), string))
        };
        self.columns.iter().zip(values).enumerate().map(entry).collect::<Result<_>>().map(PartitionKey)
    }
}

/// The rows of a batch, and the positions of those of each partition.
pub(super) struct Divided {
    data: RecordBatch,
    /// The partitions that are not taken yet, with the positions of their rows. `None`: all rows.
    groups: std::vec::IntoIter<(PartitionKey, Option<UInt32Array>)>,
}

/// Rows of some partitions.
pub(super) struct Parts {
    pub(super) rows: Vec<(PartitionKey, RecordBatch)>,
    /// About how many bytes of memory they take.
    pub(super) bytes: usize,
}

impl Divided {
    fn new(data: RecordBatch, groups: Vec<(PartitionKey, Option<UInt32Array>)>) -> Self {
        Self { data, groups: groups.into_iter() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.as_slice().is_empty()
    }

    /// Takes the rows of the next partitions, at least of one, until they have so many bytes.
    ///
    /// # Errors
    /// Those of Arrow.
    pub(super) fn take(&mut self, bytes: usize) -> Result<Parts> {
        let besides = overhead(self.data.num_columns());
        let of_row = (memory(&self.data) - besides).div_ceil(self.data.num_rows().max(1));
        let mut parts = Parts { rows: Vec::with_capacity(self.groups.len()), bytes: 0 };
        while parts.bytes < bytes {
            let Some((key, positions)) = self.groups.next() else { break };
            let rows = match &positions {
                Some(positions) => take_record_batch(&self.data, positions)?,
                None => self.data.clone(),
            };
            parts.bytes = parts.bytes.saturating_add(besides + rows.num_rows().saturating_mul(of_row));
            parts.rows.push((key, rows));
        }
        Ok(parts)
    }
}

impl PartitionColumn {
    fn print(&self, value: &Scalar) -> Result<Option<String>> {
        let refuse = |why: &str| {
            Error::invalid(format!("`{value}` cannot be a value of the partition column `{}`: {why}", self.name))
        };
        let text = value.print_partition().map_err(|e| refuse(e.message()))?.filter(|text| !text.is_empty());
        match &text {
            None if self.nullable => {}
            None => {
                return Err(refuse("the column may not be null, and an empty string is null in a partition column"));
            }
            Some(text) => {
                let is_dated = matches!(value, Scalar::Date(_) | Scalar::Timestamp(_) | Scalar::TimestampNtz(_));
                if is_dated && (text.starts_with(['+', '-']) || text.starts_with("0000")) {
                    return Err(refuse("of a partition value other clients read only years from 1 to 9999"));
                }
                let read = Scalar::parse(text, &self.data_type);
                let is_nan =
                    matches!(value, Scalar::Float(v) if v.is_nan()) || matches!(value, Scalar::Double(v) if v.is_nan());
                if !is_nan && read.as_ref() != Some(value) {
                    return Err(refuse("no partition value in the log can represent it"));
                }
            }
        }
        Ok(text)
    }
}

/// Positions of the runs that belong together, in order of appearance.
fn group_runs(values: &[ArrayRef], runs: &[std::ops::Range<usize>]) -> Result<Vec<Vec<usize>>> {
    let starts: UInt32Array = runs.iter().map(|run| run.start as u32).collect();
    let heads = values.iter().map(|column| take(column, &starts, None)).collect::<Result<Vec<_>, _>>()?;
    let fields = heads.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let rows = RowConverter::new(fields)?.convert_columns(&heads)?;
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for (run, row) in rows.iter().enumerate() {
        let group = *known.entry(row).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(run);
    }
    Ok(groups)
}
