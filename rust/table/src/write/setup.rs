//! Settings of a writer, computed once from its specification.
//!
//! PROTOCOL.md: "Data Files", "Column Mapping".

use std::sync::Arc;

use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::mapping::{ColumnMapping, check_mapped};
use uuid::Uuid;

use super::format::layout::FileFormat;
use super::input::char_lengths::CharLengths;
use super::input::condition::Condition;
use super::input::conform::{Conformer, stored_schema};
use super::input::rules::RowRules;
use super::layout::{DataPath, file_id, file_name, random_prefix};
use super::options::Compression;
use super::partition::{PartitionKey, PartitionSplitter};
use super::plan::{FileKind, WriteSpec};

/// Milliseconds since the epoch. Passed in, so that a simulation can have its own.
pub type Clock = fn() -> i64;

/// Bytes of a partition from which on encoding is worth while.
const WORTH_ENCODING: usize = 4 * 1024 * 1024;

/// Bytes of a file that are gathered before its rows are sorted.
const WORTH_SORTING: usize = 64 * 1024 * 1024;

/// Length of the random prefix if the table asks for one without giving a length.
const RANDOM_PREFIX_LENGTH: u8 = 2;

/// Settings that do not change while files are written.
pub(super) struct Setup {
    pub(super) conformer: Conformer,
    pub(super) lengths: CharLengths,
    pub(super) rules: Option<RowRules>,
    /// Conditions that must be TRUE for every row.
    pub(super) condition: Option<Condition>,
    /// Physical names of the partition columns.
    pub(super) partition_names: Vec<String>,
    pub(super) splitter: PartitionSplitter,
    pub(super) format: FileFormat,
    pub(super) compression: Compression,
    pub(super) kind: FileKind,
    pub(super) target_file_size: u64,
    /// The most rows of a file.
    pub(super) max_rows: u64,
    /// Bytes of a partition from which on encoding is worth while.
    pub(super) worth_encoding: usize,
    pub(super) rearrange_only: bool,
    pub(super) random_prefix_length: Option<u8>,
    pub(super) id_prefix: Option<u64>,
    pub(super) clock: Clock,
}

/// Refuses a specification with which no file could be written.
///
/// # Errors
/// `Corrupt` or `Unsupported` if no data files could be written for its schema, `Invalid` for options that the
/// columns do not allow.
pub fn check(spec: &WriteSpec) -> Result<()> {
    Setup::new(spec, || 0).map(drop)
}

impl Setup {
    /// The settings of `spec`.
    ///
    /// # Errors
    /// As [`check`].
    pub(super) fn new(spec: &WriteSpec, clock: Clock) -> Result<Self> {
        let mapping = ColumnMapping::parse(&spec.column_mapping)?;
        check_mapped(&spec.schema, mapping)?;
        let columns = spec.columns()?;
        let conformer = Conformer::new(&columns, mapping)?.with_partition_columns(&spec.partition_columns);
        let logical = stored_schema(&columns);
        // Existing strings may be longer: not every writer checks lengths.
        let lengths = if spec.rules.is_some() { CharLengths::of(&logical)? } else { CharLengths::default() };
        let condition = spec.replace_where.as_deref().map(|text| Condition::new(text, &logical)).transpose()?;
        let physical = mapping.physical_schema(&logical)?;
        let is_partition = partition_positions(&logical, &spec.partition_columns)?;
        let partition_columns: Vec<String> =
            is_partition.iter().filter_map(|&i| physical.fields.get(i)).map(|f| f.name.clone()).collect();
        let splitter = PartitionSplitter::new(&physical, &partition_columns)?;
        let kept: Vec<usize> = (0..physical.fields.len()).filter(|i| !is_partition.contains(i)).collect();
        if kept.is_empty() {
            return Err(Error::unsupported(
                "tables of partition columns only",
                "every column is a partition column, so data files would have none; add a column to the table",
            ));
        }
        let (splitter, stored) = match spec.materializes_partition_columns {
            true => (splitter.with_partition_columns(), [kept.as_slice(), &is_partition].concat()),
            false => (splitter, kept.clone()),
        };
        let arrow = Arc::new(conformer.schema().project(&stored)?);
        let data = StructType::new(kept.iter().filter_map(|&i| logical.fields.get(i)).cloned().collect());
        let format = FileFormat::new(arrow, &data, spec)?;
        let random_prefix_length = match (spec.random_prefix_length, mapping) {
            (None, ColumnMapping::Name | ColumnMapping::Id | ColumnMapping::Unlisted) => Some(RANDOM_PREFIX_LENGTH),
            (length, _) => length,
        };
        let target_file_size = spec.target_file_size.max(1);
        let worth = if format.sorts() { WORTH_SORTING } else { WORTH_ENCODING };
        Ok(Self {
            conformer,
            lengths,
            rules: RowRules::new(&columns, spec.rules.as_ref(), &spec.partition_columns)?,
            condition,
            partition_names: partition_columns,
            splitter,
            format,
            compression: spec.compression,
            kind: spec.kind,
            target_file_size,
            max_rows: spec.max_rows_per_file.unwrap_or(u64::MAX).max(1),
            worth_encoding: usize::try_from(target_file_size).unwrap_or(usize::MAX).min(worth),
            rearrange_only: spec.rearrange_only,
            random_prefix_length,
            id_prefix: spec.id_prefix,
            clock,
        })
    }

    /// A new name for a file of a partition. `number`: its number among those of a writer.
    pub(super) fn name_file(&self, number: usize, key: &PartitionKey) -> DataPath {
        let prefix =
            self.random_prefix_length.map(|length| random_prefix(std::iter::repeat_with(Uuid::new_v4), length));
        let name = file_name((self.kind.name(), number), file_id(self.id_prefix), self.compression.extension());
        DataPath::new(key, prefix.as_deref(), &name).below(self.kind.folder())
    }
}

fn partition_positions(schema: &StructType, names: &[String]) -> Result<Vec<usize>> {
    let position = |name: &String| {
        schema.index_of(name).ok_or_else(|| {
            Error::corrupt(format!("the partition column `{name}` is not among the columns that hold values"))
        })
    };
    names.iter().map(position).collect()
}
