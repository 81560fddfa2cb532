//! The parts of a transaction: what it is based on, what it writes, and what it changes. Plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltic_protocol::action::{DomainMetadata, Metadata, Protocol};
use deltic_protocol::commit::Actions;
use deltic_protocol::log_bounds::TableShape;
use serde_json::{Map, Value};

use super::added::AddedFiles;
use super::options::{Mode, Overwrites, Planned};
use super::rows::RowChanges;
use crate::post_commit::HandleState;
use crate::snapshot::Snapshot;
use crate::write::options::FileOptions;
use deltic_store::Syncing;

/// The version that a transaction is based on.
#[derive(Debug, Clone, Default)]
pub(super) struct BaseVersion {
    /// Its state; none if the transaction creates the table.
    pub(super) state: Option<HandleState>,
    /// The version, opened when it is first read.
    pub(super) snapshot: Option<Snapshot>,
    /// A version that was open already; it is refreshed rather than opened anew.
    pub(super) latest: Option<Snapshot>,
    /// Whether another process started the transaction, which may have committed it already: see
    /// [`TransactionHeader`](super::TransactionHeader).
    pub(super) is_resumed: bool,
    /// Whether every live file has row ids.
    pub(super) all_files_have_row_ids: bool,
}

/// A write of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Write {
    /// Whether the transaction is a write of rows, maybe of none.
    pub(super) is_write: bool,
    /// What the write does if the table exists.
    pub(super) mode: Mode,
    /// Which files of the base are removed at the end, besides those that steps have removed.
    pub(super) overwrites: Overwrites,
    /// The condition for rows that must be deleted before new ones are added (`replace_where`); none after they were deleted.
    pub(super) replace_where_pending: Option<String>,
    /// The condition that added rows must make TRUE.
    pub(super) replace_where: Option<String>,
    /// Whether the engine that has the rows evaluates the table's rules that deltic cannot evaluate.
    pub(super) engine_evaluates: bool,
    /// Whether the added rows are the removed ones, in other files.
    pub(super) rearrange_only: bool,
    /// How files are written.
    pub(super) file_options: FileOptions,
}

/// Changes of the table's metadata, protocol and domains.
#[derive(Debug, Clone, Default)]
pub(super) struct TableChanges {
    pub(super) metadata: Option<Metadata>,
    pub(super) protocol: Option<Protocol>,
    pub(super) domains: BTreeMap<String, DomainMetadata>,
    /// Physical paths of the clustering columns, if they were set. Their domain is among `domains`, too.
    pub(super) clustering: Option<Vec<Vec<String>>>,
}

impl TableChanges {
    /// Whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.metadata.is_none() && self.protocol.is_none() && self.domains.is_empty()
    }
}

/// Changes of the table's files.
#[derive(Debug, Default)]
pub(super) struct FileChanges {
    pub(super) added: AddedFiles,
    pub(super) removed: Actions,
    /// Existing files that are added or removed, if the transaction does nothing else to files.
    pub(super) only_file_actions: Option<Actions>,
    /// The changes of rows in files that stay.
    pub(super) rows: RowChanges,
    /// The metrics of OPTIMIZE, if that wrote the files. The files stay after a conflict, to be committed again.
    pub(super) optimize_metrics: Option<Map<String, Value>>,
    /// Files that were written and removed again.
    pub(super) discarded: Vec<String>,
    /// The syncing of added files. They are durable when it has ended.
    pub(super) syncing: Syncing,
    /// Whether all files that the commit needs have been written.
    pub(super) are_complete: bool,
}

impl FileChanges {
    /// Whether there is no change.
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.only_adds()
    }

    /// Whether there is no change except files with new rows.
    pub(super) fn only_adds(&self) -> bool {
        self.removed.is_empty() && self.rows.is_empty() && self.only_file_actions.is_none()
    }
}

/// The operation of a transaction, for the history.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The parameters of the operation; none if its steps give them.
    pub(super) parameters: Map<String, Value>,
    /// The operation and the parameters of each step that has its own.
    pub(super) operations: Vec<(&'static str, Map<String, Value>)>,
}

/// What is computed on first use from the base and the changes. It is reset when these change.
#[derive(Debug, Default)]
pub(super) struct Derived {
    /// The schema and partitioning after the commit.
    pub(super) shape: Option<Arc<TableShape>>,
    /// The version that is read, with the metadata after the commit.
    pub(super) snapshot: Option<Snapshot>,
    /// The write plan of a schema.
    pub(super) write_plan: Option<Planned>,
}
