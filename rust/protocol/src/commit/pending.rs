//! A commit that is to be made: what it has read, what it does, and the table that it builds on.
//!
//! PROTOCOL.md: "Commit Protocol".

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::actions::Actions;
use super::marked::MarkedFiles;
use super::read_set::ReadSet;
use crate::action::{Action, Metadata, Protocol};
use crate::error::{Error, Result};
use crate::property::IsolationLevel;

/// The domain of the row id high watermark.
pub const ROW_TRACKING_DOMAIN: &str = "delta.rowTracking";

/// The domain that names the columns by which a table is clustered.
pub const CLUSTERING_DOMAIN: &str = "delta.clustering";

/// The state of the table that commits depend on. Each winner changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableState {
    /// The version.
    pub version: u64,
    /// Which clients may read and write.
    pub protocol: Protocol,
    /// Identity, schema, partitioning, properties.
    pub metadata: Metadata,
    /// The row id high watermark, if ids were given out.
    pub row_id_watermark: Option<i64>,
    /// Physical paths of the columns by which the table is clustered: every file has statistics of them.
    pub clustering: Vec<Vec<String>>,
    /// Time of the version: its in-commit timestamp, or else the best time that is known.
    pub timestamp: Option<i64>,
}

/// A commit that is to be made.
#[derive(Debug, Clone)]
pub struct Pending {
    /// The table it builds on; `None` creates it.
    pub state: Option<TableState>,
    /// What it has read.
    pub read: ReadSet,
    /// Applications whose version it has read, besides those it advances.
    pub read_apps: BTreeSet<String>,
    /// The isolation asked for.
    pub isolation: IsolationLevel,
    /// Its actions as prepared, without commit info. [`Attempt`](super::attempt::Attempt) adds the ids and times of an attempt.
    pub actions: Actions,
    /// Files of which it deletes rows by deletion vectors. The actions do not include them.
    pub marked: MarkedFiles,
}

impl Pending {
    /// The version that the next attempt makes.
    pub fn version(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.version.saturating_add(1))
    }

    /// Whether it only adds files, and has read none.
    pub fn is_blind_append(&self) -> bool {
        // Rows that are only rearranged were read before.
        let is_new = self.actions.changes_data() || self.actions.num_added() == 0;
        is_new && self.read.is_nothing() && self.actions.only_adds() && self.marked.is_empty()
    }

    /// The protocol after it.
    pub fn protocol(&self) -> Option<&Protocol> {
        let non_file_actions = self.actions.non_file_actions().iter();
        let new_protocol =
            non_file_actions.clone().find_map(|a| if let Action::Protocol(new) = a { Some(new) } else { None });
        new_protocol.or(self.state.as_ref().map(|state| &state.protocol))
    }

    /// The metadata after it.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.own_metadata().or(self.state.as_ref().map(|state| &state.metadata))
    }

    /// The row id high watermark among its own actions, if there is one.
    pub(super) fn own_watermark(&self) -> Result<Option<i64>> {
        let domain = self.actions.non_file_actions().iter().find(|action| is_watermark(action));
        match domain {
            Some(Action::DomainMetadata(domain)) => watermark(&domain.configuration).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn own_metadata(&self) -> Option<&Metadata> {
        let mut non_file_actions = self.actions.non_file_actions().iter();
        non_file_actions.find_map(|a| if let Action::Metadata(metadata) = a { Some(metadata) } else { None })
    }

    /// The isolation level that applies: a commit that only rearranges rows, and has no actions but those of files, needs only
    /// that its files are still there.
    pub fn effective_isolation(&self) -> IsolationLevel {
        let of_files = |action: &Action| match action {
            Action::DomainMetadata(domain) => domain.domain == ROW_TRACKING_DOMAIN,
            Action::CommitInfo(_) => true,
            _ => false,
        };
        if !self.actions.changes_data()
            && self.marked.is_empty()
            && self.actions.non_file_actions().iter().all(of_files)
        {
            IsolationLevel::SnapshotIsolation
        } else {
            self.isolation
        }
    }

    /// Refuses a commit that adds, or removes, a logical file twice.
    pub fn check_duplicates(&self) -> Result<()> {
        if let Some(marked) = self.marked.iter().find(|marked| self.actions.removes(&marked.add.path)) {
            return Err(Error::invalid("the commit adds or removes this file twice").in_file(&marked.add.path));
        }
        self.actions.check_duplicates()
    }
}

/// Whether an action sets the row id high watermark.
pub(super) fn is_watermark(action: &Action) -> bool {
    matches!(action, Action::DomainMetadata(domain) if domain.domain == ROW_TRACKING_DOMAIN && !domain.removed)
}

/// The row id high watermark in the configuration of the domain `delta.rowTracking`.
///
/// # Errors
/// `Corrupt` if it is not there.
pub fn watermark(configuration: &str) -> Result<i64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Domain {
        row_id_high_water_mark: i64,
    }
    let parsed = serde_json::from_str::<Domain>(configuration);
    parsed
        .map(|domain| domain.row_id_high_water_mark)
        .map_err(|e| Error::corrupt("the metadata domain `delta.rowTracking` cannot be read").caused_by(e))
}

/// The columns in the configuration of the domain `delta.clustering`: their physical paths.
///
/// # Errors
/// `Corrupt` if it cannot be read.
pub fn clustering_columns(configuration: &str) -> Result<Vec<Vec<String>>> {
    /// PROTOCOL.md's example has names; writers write paths.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Column {
        Name(String),
        Path(Vec<String>),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Domain {
        clustering_columns: Vec<Column>,
    }
    let path = |column| match column {
        Column::Name(name) => vec![name],
        Column::Path(path) => path,
    };
    let parsed = serde_json::from_str::<Domain>(configuration);
    parsed
        .map(|domain| domain.clustering_columns.into_iter().map(path).collect())
        .map_err(|e| Error::corrupt("the metadata domain `delta.clustering` cannot be read").caused_by(e))
}
