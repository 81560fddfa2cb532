//! A commit that is to be made: what it has read, what it does, and the table that it builds on.
//!
//! PROTOCOL.md: "Commit Protocol".

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::actions::Actions;
use super::marked::MarkedFiles;
use crate::action::{Action, Metadata, Protocol};
use crate::error::{Error, Result};
use crate::log_bounds::TableShape;
use crate::predicate::BoundPredicate;
use crate::property::IsolationLevel;
use crate::replay::paths::PathSet;

/// The domain of the row id high watermark.
pub const ROW_TRACKING_DOMAIN: &str = "delta.rowTracking";

/// The domain that names the columns by which a table is clustered.
pub const CLUSTERING_DOMAIN: &str = "delta.clustering";

/// What a commit has read of the table.
#[derive(Debug, Clone, Default)]
pub enum ReadSet {
    /// Nothing: a blind append, if nothing is removed either.
    #[default]
    Nothing,
    /// These files. Other files do not matter.
    Files(PathSet),
    /// The rows that make one of some predicates TRUE.
    Predicates(PredicatesRead),
    /// All rows of the table, as an overwrite reads them. Commits that only move rows to other files do not matter.
    AllRows,
    /// All files of the table, as restoring a version, copying a table and dropping a feature (which removes row ids) read
    /// them. Commits that only move rows to other files, or add files that are said to change no data, matter, too.
    AllFiles,
}

/// Predicates by which rows were searched, and the files in which they were found.
#[derive(Debug, Clone)]
pub struct PredicatesRead {
    /// The predicates. A transaction that changes columns has predicates of several schemas.
    pub searches: Vec<Search>,
    /// The files that were read.
    pub files: PathSet,
}

/// Predicates that are bound to the columns of one schema.
#[derive(Debug, Clone)]
pub struct Search {
    /// The columns at the time of reading.
    pub shape: TableShape,
    /// The predicates; each was evaluated on the whole table.
    pub predicates: Vec<BoundPredicate>,
}

impl PredicatesRead {
    /// A read by one predicate.
    pub fn new(shape: TableShape, predicate: BoundPredicate, files: PathSet) -> Self {
        Self { searches: vec![Search { shape, predicates: vec![predicate] }], files }
    }

    /// Adds another read of the same version.
    fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        for search in other.searches {
            match self.searches.iter_mut().find(|known| known.shape == search.shape) {
                Some(known) => known.predicates.extend(search.predicates),
                None => self.searches.push(search),
            }
        }
    }
}

impl ReadSet {
    /// Adds another read of the same version.
    pub fn extend(&mut self, other: Self) {
        *self = match (std::mem::take(self), other) {
            (Self::AllFiles, _) | (_, Self::AllFiles) => Self::AllFiles,
            (Self::AllRows, _) | (_, Self::AllRows) => Self::AllRows,
            (Self::Nothing, read) | (read, Self::Nothing) => read,
            (Self::Files(mut files), Self::Files(more)) => {
                files.extend(more);
                Self::Files(files)
            }
            (Self::Predicates(mut read), Self::Files(files)) | (Self::Files(files), Self::Predicates(mut read)) => {
                read.files.extend(files);
                Self::Predicates(read)
            }
            (Self::Predicates(mut read), Self::Predicates(more)) => {
                read.extend(more);
                Self::Predicates(read)
            }
        };
    }

    /// Whether nothing was read.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

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
