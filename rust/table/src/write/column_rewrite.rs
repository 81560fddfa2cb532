//! Rewrites a data file in which only some columns change: these are encoded, and the column chunks of the others are copied
//! from the old file.
//!
//! The new file has the row groups of the old one. The statistics of copied columns come from the `add` action of the old file.
//! A file is refused ([`NotCopied`]) if the result could differ from a rewrite of all columns in more than encodings and
//! compression; the caller then rewrites all columns.
//!
//! PROTOCOL.md: "Data Files", "Per-file Statistics".

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use deltic_protocol::action::{Add, PartitionValues};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};
use deltic_protocol::stats::collect::{IndexedColumns, StatsCollector};
use parquet::schema::types::SchemaDescriptor;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use super::format::copied::CopiedChunk;
use super::format::copied::CopyingEncoder;
use super::layout::DataPath;
use super::partition::PartitionKey;
use super::plan::{DataFile, FileKind, WriteSpec, add_leaves};
use super::setup::{Clock, Setup};

/// Why no columns are copied.
#[derive(Debug)]
pub(crate) enum NotCopied {
    /// The file has to be rewritten with all its columns. The text says why.
    Refused(&'static str),
    /// An error that a rewrite of all columns would meet, too.
    Failed(Error),
}

impl From<Error> for NotCopied {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// How the files of one step are rewritten. "New" columns are those whose values change.
pub(crate) struct ColumnRewrite {
    /// Settings of a writer of all columns.
    whole: Setup,
    /// Settings of a writer of the new columns alone.
    part: Setup,
    /// For each leaf of a file, whether it is of a new column.
    is_new: Arc<[bool]>,
    /// Physical names of the new columns.
    new_columns: HashSet<String>,
    /// The columns with statistics, under physical names.
    indexed: StructType,
    spec: WriteSpec,
}

impl ColumnRewrite {
    /// `spec`: how whole files are written. `new_columns`: logical names.
    ///
    /// # Errors
    /// [`NotCopied::Refused`] if no file of the table can be rewritten in this way.
    pub(crate) fn new(spec: &WriteSpec, new_columns: &[String], clock: Clock) -> Result<Self, NotCopied> {
        let refuse = |why| Err(NotCopied::Refused(why));
        let is_new = |name: &String| new_columns.contains(name);
        if !spec.hidden_columns.is_empty() {
            return refuse("the table tracks rows");
        }
        if spec.kind != FileKind::Data || spec.rules.is_some() || spec.replace_where.is_some() || spec.rearrange_only {
            return refuse("the rows are not an update");
        }
        if spec.partition_columns.iter().any(is_new) {
            return refuse("the rows may move to other partitions");
        }
        if !spec.sort_by.is_empty() || !spec.column_options.is_empty() || !spec.identities.is_empty() {
            return refuse("columns have options");
        }
        if spec.materializes_partition_columns || spec.shreds_variants || spec.max_rows_per_file.is_some() {
            return refuse("the layout of files depends on their rows");
        }
        let fields = spec.schema.fields.iter().filter(|field| is_new(&field.name)).cloned().collect();
        let part = WriteSpec {
            schema: StructType::new(fields).into(),
            partition_columns: Vec::new(),
            clustering: Vec::new(),
            ..spec.clone()
        };
        let (whole, part) = (Setup::new(spec, clock)?, Setup::new(&part, clock)?);
        let (Some(all), Some(alone)) = (whole.format.fixed_layout(), part.format.fixed_layout()) else {
            return refuse("the layout of files depends on their rows");
        };
        let names: HashSet<String> = alone.arrow.fields().iter().map(|field| field.name().clone()).collect();
        let leaves = all.parquet.columns().iter();
        let is_new: Arc<[bool]> =
            leaves.map(|leaf| leaf.path().parts().first().is_some_and(|name| names.contains(name))).collect();
        let encoded = all.parquet.columns().iter().zip(is_new.iter()).filter(|(_, is_new)| **is_new);
        if !encoded.map(|(leaf, _)| leaf).eq(alone.parquet.columns()) {
            return refuse("the columns alone would be stored in another way");
        }
        if is_new.iter().all(|is_new| *is_new) {
            return refuse("every column is new");
        }
        let indexed = whole.format.indexed.of_schema(&whole.format.schema);
        Ok(Self { whole, part, is_new, new_columns: names, indexed, spec: spec.clone() })
    }

    /// For each leaf of a file, whether it is of a new column.
    pub(crate) fn is_new(&self) -> &[bool] {
        &self.is_new
    }

    /// The most bytes of a file.
    pub(crate) fn target_file_size(&self) -> u64 {
        self.whole.target_file_size
    }

    /// Whether a file with this schema stores the table's columns as a new file would.
    pub(crate) fn fits(&self, file: &SchemaDescriptor) -> bool {
        let layout = self.whole.format.fixed_layout();
        layout.is_some_and(|layout| layout.parquet.root_schema().get_fields() == file.root_schema().get_fields())
    }

    /// The path of a new file, and its partition. `number`: its number among the files of the step.
    ///
    /// # Errors
    /// `Internal` if a partition value is missing.
    pub(crate) fn name(&self, number: usize, values: &PartitionValues) -> Result<NewFile, NotCopied> {
        let mut entries = Vec::with_capacity(self.spec.partition_columns.len());
        for name in &self.whole.partition_names {
            let Some(value) = values.get(name) else {
                return Err(NotCopied::Refused("a partition value is missing"));
            };
            // The empty string is null.
            entries.push((name.clone(), value.clone().filter(|value| !value.is_empty())));
        }
        let key = PartitionKey::new(entries);
        Ok(NewFile { path: self.whole.name_file(number, &key), key })
    }

    /// Begins a file in place of one with `rows` rows. `stats`: of the `add` action of the old file; `is_by_deltic`: whether
    /// deltic wrote that file.
    ///
    /// # Errors
    /// [`NotCopied::Refused`] if the statistics lack a column, or bounds by which the table is clustered may be inexact.
    pub(crate) fn begin(&self, stats: &str, rows: u64, is_by_deltic: bool) -> Result<FileRewrite, NotCopied> {
        let refused = NotCopied::Refused("the log lacks statistics of copied columns");
        let old = Stats::parse(stats).filter(|old| old.num_records == Some(rows) && old.tight_bounds != Some(false));
        let Some(old) = old else { return Err(refused) };
        for field in self.indexed.fields.iter().filter(|field| !self.new_columns.contains(&field.name)) {
            let counts = old.null_count.get(&field.name).and_then(|counts| serde_json::from_str(counts.get()).ok());
            if !counts.is_some_and(|counts: Value| has_counts(&field.data_type, &counts)) {
                return Err(refused);
            }
        }
        if !is_by_deltic && !self.spec.clustering.is_empty() {
            return Err(NotCopied::Refused("clustered tables need bounds, and those of another writer may be inexact"));
        }
        let (Some(whole), Some(part)) = (self.whole.format.fixed_layout(), self.part.format.fixed_layout()) else {
            return Err(refused);
        };
        let mut leaves = Vec::new();
        let new = self.indexed.fields.iter().filter(|field| self.new_columns.contains(&field.name)).cloned();
        add_leaves(&StructType::new(new.collect()), &[], &mut leaves);
        let collector = StatsCollector::new(&self.part.format.schema, &IndexedColumns::Named(leaves))
            .with_prefix_length(self.spec.string_prefix_length);
        let encoder = CopyingEncoder::new((whole, part), Arc::clone(&self.is_new), collector)?;
        Ok(FileRewrite { encoder, rows: 0, has_exact_bounds: is_by_deltic })
    }

    /// Encodes rows of the current row group. `rows`: the new columns, by their logical names.
    ///
    /// # Errors
    /// `Invalid` for rows that do not fit the table.
    pub(crate) fn write(&self, file: &mut FileRewrite, rows: &RecordBatch) -> Result<()> {
        file.encoder.write(&self.part.conformer.conform(rows)?)?;
        file.rows = file.rows.saturating_add(rows.num_rows() as u64);
        Ok(())
    }

    /// The new file for the transaction. `stats`: as for [`ColumnRewrite::begin`]. `size`: bytes of the new file.
    pub(crate) fn data_file(
        &self,
        ended: &EndedFile,
        stats: &str,
        NewFile { path, key }: NewFile,
        size: u64,
    ) -> Result<DataFile> {
        let lost = || Error::internal("statistics were lost");
        let (old, new) = (Stats::parse(stats).ok_or_else(lost)?, Stats::parse(&ended.stats).ok_or_else(lost)?);
        let size = i64::try_from(size).map_err(|e| Error::internal("a file is too long for the log").caused_by(e))?;
        let add = Add {
            path: path.log,
            partition_values: key.to_partition_values(),
            size,
            modification_time: (self.whole.clock)(),
            data_change: true,
            stats: Some(self.merged(ended, &old, &new)),
            ..Add::default()
        };
        Ok(DataFile { add, rows: ended.rows, identities: BTreeMap::new() })
    }

    /// The statistics of the new file: of each column as `old` or `new` has them.
    fn merged(&self, ended: &EndedFile, old: &Stats<'_>, new: &Stats<'_>) -> String {
        let member = |old: &Members<'_>, new: &Members<'_>, is_exact: bool| {
            let mut members = Vec::with_capacity(self.indexed.fields.len());
            for field in &self.indexed.fields {
                let is_new = self.new_columns.contains(&field.name);
                let Some(value) = if is_new { new } else { old }.get(&field.name) else { continue };
                let value = match is_new || is_exact {
                    true => Some(value.to_string()),
                    false => exact_bounds(field, value),
                };
                members.extend(value.map(|value| format!("{}:{value}", Value::from(field.name.as_str()))));
            }
            format!("{{{}}}", members.join(","))
        };
        format!(
            r#"{{"numRecords":{},"minValues":{},"maxValues":{},"nullCount":{},"tightBounds":true}}"#,
            ended.rows,
            member(&old.min_values, &new.min_values, ended.has_exact_bounds),
            member(&old.max_values, &new.max_values, ended.has_exact_bounds),
            member(&old.null_count, &new.null_count, true),
        )
    }
}

/// The path of a new file in the table, and the partition that it belongs to.
pub(crate) struct NewFile {
    pub(crate) path: DataPath,
    key: PartitionKey,
}

/// A file that is being rewritten.
pub(crate) struct FileRewrite {
    encoder: CopyingEncoder,
    rows: u64,
    /// Whether all bounds of the old file are exact.
    has_exact_bounds: bool,
}

/// A file whose last row group was written.
pub(crate) struct EndedFile {
    /// Its last bytes, to upload.
    pub(crate) rest: Bytes,
    /// Statistics of the new columns.
    stats: String,
    rows: u64,
    /// Whether all bounds of the old file are exact.
    has_exact_bounds: bool,
}

impl FileRewrite {
    /// Bytes of the current row group in memory.
    pub(crate) fn memory(&self) -> usize {
        self.encoder.memory()
    }

    /// Ends the row group. `copied`: the column chunks of the leaves that are not new. Returns bytes to upload.
    pub(crate) fn end_group(&mut self, copied: Vec<CopiedChunk>) -> Result<Bytes> {
        self.encoder.end_group(copied)?;
        Ok(self.encoder.take())
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> Result<EndedFile> {
        let (rest, stats) = self.encoder.finish()?;
        Ok(EndedFile { rest, stats, rows: self.rows, has_exact_bounds: self.has_exact_bounds })
    }
}

/// The members of an object of the statistics, one for each column, as text.
type Members<'t> = BTreeMap<String, &'t RawValue>;

/// The statistics of an `add` action. The values of columns are not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats<'t> {
    num_records: Option<u64>,
    #[serde(borrow, default)]
    min_values: Members<'t>,
    #[serde(borrow, default)]
    max_values: Members<'t>,
    #[serde(borrow, default)]
    null_count: Members<'t>,
    tight_bounds: Option<bool>,
}

impl<'t> Stats<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Whether there is a null count for each leaf of a column.
fn has_counts(data_type: &DataType, counts: &Value) -> bool {
    match data_type {
        DataType::Struct(inner) => {
            let has = |counts: &Map<String, Value>| {
                inner
                    .fields
                    .iter()
                    .all(|field| counts.get(&field.name).is_some_and(|c| has_counts(&field.data_type, c)))
            };
            counts.as_object().is_some_and(has)
        }
        _ => counts.is_u64(),
    }
}

/// The bounds of a column, as text, if every writer prints them exactly: delta-rs ignores NaN, which is greater than every
/// number, and rounds decimals to doubles. Structs are left out whole.
fn exact_bounds(field: &StructField, bounds: &RawValue) -> Option<String> {
    let is_inexact = matches!(
        field.data_type,
        DataType::Primitive(PrimitiveType::Float | PrimitiveType::Double | PrimitiveType::Decimal { .. })
            | DataType::Struct(_)
    );
    (!is_inexact).then(|| bounds.to_string())
}
