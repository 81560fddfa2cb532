//! The columns `_metadata.row_id` and `_metadata.row_commit_version`, which a caller may ask for by these names.
//!
//! A row that moved between files brings its values along in columns that the table's properties name, outside the
//! table's schema. Where those are absent or null the values follow from the file: its first row id and the row's
//! position, and the version that added the file. Which position a row has is for the decoder to say.
//!
//! Proved by `tests/rust/table/read/row_tracking.rs`, above all `a_row_keeps_its_id`.
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

/// Whether the name is one of these two, which a table's own column takes precedence over.
pub(crate) fn is_column(name: &str) -> bool {
    name == ROW_ID || name == ROW_COMMIT_VERSION
}

/// The column of one of the two names.
///
/// # Errors
/// `Invalid` if the table does not track rows.
pub(crate) fn field(name: &str, tracking: Option<&RowTracking>) -> Result<StructField> {
    match tracking {
        Some(_) => Ok(StructField::new(name, DataType::LONG, false)),
        None => Err(Error::invalid(format!(
            "there is no column `{name}` because the table does not track rows; leave the column out, or enable row \
             tracking (`delta.enableRowTracking`) on the table"
        ))),
    }
}

/// A column of row tracking in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// Name of the file's column with what rows brought along, if files may have one.
    pub(crate) stored: Option<String>,
    /// The values of all other rows.
    pub(crate) fresh: Fresh,
}

/// Values that follow from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// The file's first row id, and the position of the row.
    RowId(Option<i64>),
    /// The version that added the file.
    CommitVersion(Option<i64>),
}

/// The columns of row tracking in the file of `task`, by the names a caller has for them.
pub(crate) fn of_file(tracking: &RowTracking, task: &FileTask) -> BTreeMap<&'static str, Tracked> {
    let row_id = Tracked { stored: tracking.row_id_column.clone(), fresh: Fresh::RowId(task.base_row_id) };
    let version = Tracked {
        stored: tracking.row_commit_version_column.clone(),
        fresh: Fresh::CommitVersion(task.default_row_commit_version),
    };
    BTreeMap::from([(ROW_ID, row_id), (ROW_COMMIT_VERSION, version)])
}

impl Fresh {
    /// Whether [`Fresh::fill`] needs to know where the rows stand in the file.
    pub(crate) fn needs_positions(self) -> bool {
        matches!(self, Self::RowId(_))
    }

    /// The values of `rows` rows: the ones in `stored` that are not null, fresh ones otherwise.
    pub(crate) fn fill(
        self,
        stored: Option<&Int64Array>,
        positions: Option<&Int64Array>,
        rows: usize,
    ) -> Result<Int64Array> {
        match stored {
            Some(stored) if stored.null_count() == 0 => Ok(stored.clone()),
            Some(_) | None => (0..rows)
                .map(|row| match stored {
                    Some(stored) if stored.is_valid(row) => Ok(stored.value(row)),
                    Some(_) | None => self.value(positions, row),
                })
                .collect::<Result<Vec<i64>>>()
                .map(Int64Array::from),
        }
    }

    fn value(self, positions: Option<&Int64Array>, row: usize) -> Result<i64> {
        match self {
            Self::RowId(base) => {
                let base = base.ok_or_else(|| missing("baseRowId"))?;
                let position = positions
                    .filter(|positions| row < positions.len())
                    .ok_or_else(|| Error::internal("the positions of rows are not known"))?
                    .value(row);
                base.checked_add(position)
                    .ok_or_else(|| Error::corrupt(format!("row ids that begin at {base} go beyond the largest number")))
            }
            Self::CommitVersion(version) => version.ok_or_else(|| missing("defaultRowCommitVersion")),
        }
    }
}

fn missing(member: &str) -> Error {
    Error::corrupt(format!(
        "the table tracks rows but the file has no `{member}` in the log; leave the column out, or backfill the table"
    ))
}
