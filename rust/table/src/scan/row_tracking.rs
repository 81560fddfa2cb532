//! The columns `_metadata.row_id` and `_metadata.row_commit_version`, which a caller may ask for by these names, and the
//! positions of rows in their file, which deltic itself needs to change them.
//!
//! A row that was copied to another file keeps its values in columns that the table's properties name, outside the
//! table's schema. If these are missing or null, the values are derived from the file: its first row id and the row's
//! position, and the version that added the file. The decoder returns the positions of rows.
//!
//! Proved by `tests/rust/table/read/row_tracking.rs`, mainly `a_row_keeps_its_id`.
//!
//! PROTOCOL.md: "Row Tracking".

use std::collections::BTreeMap;

use arrow_array::{Array, Int64Array};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::property::RowTracking;
use deltic_protocol::schema::{DataType, StructField};

use super::task::FileTask;

/// Name of the column with row ids.
pub const ROW_ID: &str = "_metadata.row_id";

/// Name of the column with the versions in which rows were last changed.
pub const ROW_COMMIT_VERSION: &str = "_metadata.row_commit_version";

/// Name of the column with the positions of rows in their file. Only deltic itself uses it.
pub(crate) const ROW_INDEX: &str = "_metadata.row_index";

/// Whether the name is one of the first two. A column of the table with the same name takes precedence.
pub(crate) fn is_column(name: &str) -> bool {
    name == ROW_ID || name == ROW_COMMIT_VERSION
}

/// The column with one of the three names. `may_be_missing`: rows may have no id or version, which is null then.
///
/// # Errors
/// `Invalid` if the table does not track rows.
pub(crate) fn field(name: &str, tracking: Option<&RowTracking>, may_be_missing: bool) -> Result<StructField> {
    match tracking {
        _ if name == ROW_INDEX => Ok(StructField::new(name, DataType::LONG, false)),
        Some(_) => Ok(StructField::new(name, DataType::LONG, may_be_missing)),
        None => Err(Error::invalid(format!(
            "there is no column `{name}` because the table does not track rows; leave the column out, or enable row \
             tracking (`delta.enableRowTracking`) on the table"
        ))),
    }
}

/// A column of row tracking in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// Name of the file's column with the values of copied rows, if files may have one.
    pub(crate) stored: Option<String>,
    /// How the values of all other rows are derived.
    pub(crate) derived: DerivedRowTracking,
}

/// Values that are derived from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DerivedRowTracking {
    /// The file's first row id, and the position of the row.
    RowId(Option<i64>),
    /// The version that added the file.
    CommitVersion(Option<i64>),
    /// The position of the row.
    Position,
    /// There are none: the file is not part of the table yet.
    Unknown,
}

/// The columns of row tracking in the file of `task`, by the names that callers use, and the positions of its rows.
/// `may_be_missing`: values that cannot be derived from the file are null.
pub(crate) fn of_file(
    tracking: Option<&RowTracking>,
    task: &FileTask,
    may_be_missing: bool,
) -> BTreeMap<&'static str, Tracked> {
    let mut columns = BTreeMap::from([(ROW_INDEX, Tracked { stored: None, derived: DerivedRowTracking::Position })]);
    if let Some(tracking) = tracking {
        let derived_if = |is_known: bool, derived: DerivedRowTracking| match is_known || !may_be_missing {
            true => derived,
            false => DerivedRowTracking::Unknown,
        };
        let (base, version) = (task.base_row_id, task.default_row_commit_version);
        let derived = derived_if(base.is_some(), DerivedRowTracking::RowId(base));
        columns.insert(ROW_ID, Tracked { stored: tracking.row_id_column.clone(), derived });
        let derived = derived_if(version.is_some(), DerivedRowTracking::CommitVersion(version));
        columns.insert(ROW_COMMIT_VERSION, Tracked { stored: tracking.row_commit_version_column.clone(), derived });
    }
    columns
}

impl DerivedRowTracking {
    /// Whether [`DerivedRowTracking::fill`] needs the positions of rows in the file.
    pub(crate) fn needs_positions(self) -> bool {
        matches!(self, Self::RowId(_) | Self::Position)
    }

    /// The values of `rows` rows: those in `stored` that are not null, derived ones otherwise.
    pub(crate) fn fill(
        self,
        stored: Option<&Int64Array>,
        positions: Option<&Int64Array>,
        rows: usize,
    ) -> Result<Int64Array> {
        match (stored, positions) {
            (Some(stored), _) if stored.null_count() == 0 => Ok(stored.clone()),
            (None, Some(positions)) if self == Self::Position && positions.len() == rows => Ok(positions.clone()),
            _ => (0..rows)
                .map(|row| match stored {
                    Some(stored) if stored.is_valid(row) => Ok(Some(stored.value(row))),
                    Some(_) | None => self.value(positions, row),
                })
                .collect::<Result<Vec<Option<i64>>>>()
                .map(Int64Array::from),
        }
    }

    fn value(self, positions: Option<&Int64Array>, row: usize) -> Result<Option<i64>> {
        match self {
            Self::RowId(base) => {
                let base = base.ok_or_else(|| missing("baseRowId"))?;
                let id = base.checked_add(position(positions, row)?);
                id.map(Some)
                    .ok_or_else(|| Error::corrupt(format!("row ids that begin at {base} go beyond the largest number")))
            }
            Self::CommitVersion(version) => version.map(Some).ok_or_else(|| missing("defaultRowCommitVersion")),
            Self::Position => position(positions, row).map(Some),
            Self::Unknown => Ok(None),
        }
    }
}

fn position(positions: Option<&Int64Array>, row: usize) -> Result<i64> {
    let known = positions.filter(|positions| row < positions.len());
    Ok(known.ok_or_else(|| Error::internal("the positions of rows are not known"))?.value(row))
}

fn missing(member: &str) -> Error {
    Error::corrupt(format!(
        "the table tracks rows but the file has no `{member}` in the log; leave the column out, or backfill the table"
    ))
}
