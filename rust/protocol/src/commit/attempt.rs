//! Attempt: completes a prepared commit for one version. Which winners a commit may follow is decided before, by
//! [`conflict`](super::conflict).
//!
//! The actions of a [`Pending`] are the same in every attempt. While they are serialised, [`Attempt`] adds what depends on
//! the version: row ids above the high watermark, row commit versions, versions of type changes, the commit's time. Values that
//! an action has already stay: a file that was moved keeps its ids.
//!
//! PROTOCOL.md: "Row Tracking", "In-Commit Timestamps", "Type Widening".

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pending::{Pending, ROW_TRACKING_DOMAIN, is_watermark};
use crate::action::json::serialize_action;
use crate::action::lines::{Lines, file_action_of};
use crate::action::{Action, Add, CommitInfo, DomainMetadata, Metadata};
use crate::alter::CHECKPOINT_PROTECTION_VERSION;
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;

/// A commit as its lines.
#[derive(Debug, Clone)]
pub struct SerializedCommit {
    /// All lines.
    pub lines: Lines,
    /// The lines of non-file actions alone.
    pub non_file_lines: Vec<u8>,
}

/// One attempt at a commit.
#[derive(Debug, Clone)]
pub struct Attempt {
    version: u64,
    /// The version that the first attempt made.
    first_version: u64,
    /// The in-commit timestamp, if the table has them.
    pub in_commit_timestamp: Option<i64>,
    /// Whether this commit enables in-commit timestamps.
    enables_timestamps: bool,
    /// Whether files get row ids.
    tracks_rows: bool,
    /// The next row id to give out.
    next_row_id: i64,
    /// Whether this commit gives out any row id.
    has_assigned_row_ids: bool,
}

impl Attempt {
    /// The next attempt at `pending`, whose first was to make version `first_version`.
    ///
    /// # Errors
    /// `Corrupt` if a property that it needs is malformed, `Internal` if there is neither a table nor one to create.
    pub fn new(pending: &Pending, first_version: u64, now_ms: i64) -> Result<Self> {
        let (Some(protocol), Some(metadata)) = (pending.protocol(), pending.metadata()) else {
            return Err(Error::internal("neither a base version nor a new table"));
        };
        let supported = feature::supported(protocol);
        let has_in_commit_timestamps =
            |metadata: &Metadata| Properties::of(metadata).is_true("delta.enableInCommitTimestamps");
        let has_time = supported.contains("inCommitTimestamp") && has_in_commit_timestamps(metadata)?;
        let had_time = match &pending.state {
            Some(state) => {
                feature::supported(&state.protocol).contains("inCommitTimestamp")
                    && has_in_commit_timestamps(&state.metadata)?
            }
            // A new table has them from its first version on, so that nothing is recorded.
            None => true,
        };
        let before = pending.state.as_ref().and_then(|state| state.timestamp);
        let after = before.map_or(now_ms, |before| now_ms.max(before.saturating_add(1)));
        let suspended = Properties::of(metadata).is_true("delta.rowTrackingSuspended")?;
        let assigned_before = pending.state.as_ref().and_then(|state| state.row_id_watermark);
        let own = pending.own_watermark()?;
        Ok(Self {
            version: pending.version(),
            first_version,
            in_commit_timestamp: has_time.then_some(after),
            enables_timestamps: has_time && !had_time,
            tracks_rows: supported.contains("rowTracking") && !suspended,
            next_row_id: assigned_before.max(own).unwrap_or(-1).saturating_add(1),
            has_assigned_row_ids: own.is_some(),
        })
    }

    /// Serialises all actions of this attempt.
    ///
    /// # Errors
    /// As [`Attempt::action`].
    pub fn serialize(&mut self, info: CommitInfo, pending: &Pending, now_ms: i64) -> Result<SerializedCommit> {
        let actions = &pending.actions;
        let mut non_file_lines = Vec::new();
        serialize_action(&Action::CommitInfo(self.commit_info(info)), &mut non_file_lines)?;
        // The row id high watermark comes last, since it includes the ids of this attempt.
        for action in actions.non_file_actions().iter().filter(|action| !is_watermark(action)) {
            serialize_action(&*self.action(action)?, &mut non_file_lines)?;
        }
        let mut lines = Lines::of(&non_file_lines)?;
        if self.tracks_rows {
            actions.files().each(|line| match file_action_of(line)? {
                Some(add @ Action::Add(_)) => lines.push(&*self.action(&add)?),
                _ => lines.push_line(line),
            })?;
        } else {
            lines.append(actions.files().clone())?;
        }
        for marked in pending.marked.iter() {
            let [remove, add] = marked.actions(now_ms)?;
            lines.push(&remove)?;
            lines.push(&*self.action(&add)?)?;
        }
        if let Some(action) = self.row_tracking_domain() {
            serialize_action(&action, &mut non_file_lines)?;
            lines.push(&action)?;
        }
        Ok(SerializedCommit { lines, non_file_lines })
    }

    /// The commit info of this attempt, with the commit's time in it.
    pub fn commit_info(&self, mut info: CommitInfo) -> CommitInfo {
        if let Some(time) = self.in_commit_timestamp {
            info.0.insert("inCommitTimestamp".to_owned(), json!(time));
        }
        info
    }

    /// An action as this attempt writes it.
    ///
    /// # Errors
    /// `Invalid` if rows are tracked and a file does not say how many it has.
    pub fn action<'a>(&mut self, action: &'a Action) -> Result<Cow<'a, Action>> {
        Ok(match action {
            Action::Add(add) if self.tracks_rows => Cow::Owned(Action::Add(self.with_row_ids(add)?)),
            Action::Metadata(metadata) => match self.with_attempt_values(metadata)? {
                Some(metadata) => Cow::Owned(Action::Metadata(metadata)),
                None => Cow::Borrowed(action),
            },
            other => Cow::Borrowed(other),
        })
    }

    /// The last action of the commit: the row id high watermark.
    pub fn row_tracking_domain(&self) -> Option<Action> {
        self.watermark().map(|id| {
            let configuration = json!({ "rowIdHighWaterMark": id }).to_string();
            Action::DomainMetadata(DomainMetadata {
                domain: ROW_TRACKING_DOMAIN.to_owned(),
                configuration,
                removed: false,
            })
        })
    }

    /// The highest row id, if any was assigned.
    pub fn watermark(&self) -> Option<i64> {
        self.has_assigned_row_ids.then(|| self.next_row_id.saturating_sub(1))
    }

    fn with_row_ids(&mut self, add: &Add) -> Result<Add> {
        let mut add = add.clone();
        if add.base_row_id.is_none() {
            let rows = add.stats.as_deref().and_then(num_records).ok_or_else(|| {
                Error::invalid("row tracking is enabled, so numRecords is required in the statistics")
                    .in_file(&add.path)
            })?;
            add.base_row_id = Some(self.next_row_id);
            let too_many = || Error::invalid("the row id high watermark would exceed 64 bits");
            self.next_row_id = self.next_row_id.checked_add(rows).ok_or_else(too_many)?;
            self.has_assigned_row_ids = true;
        }
        if add.default_row_commit_version.is_none() {
            add.default_row_commit_version = i64::try_from(self.version).ok();
        }
        Ok(add)
    }

    /// Metadata with the properties and versions that depend on the attempt, if there are any.
    fn with_attempt_values(&self, metadata: &Metadata) -> Result<Option<Metadata>> {
        let mut completed = metadata.clone();
        if let (true, Some(time)) = (self.enables_timestamps, self.in_commit_timestamp) {
            let mut set = |key: &str, value: String| drop(completed.configuration.insert(key.to_owned(), value));
            set("delta.inCommitTimestampEnablementVersion", self.version.to_string());
            set("delta.inCommitTimestampEnablementTimestamp", time.to_string());
        }
        let is_own = |value: &String| value.trim().parse() == Ok(self.first_version);
        if self.version != self.first_version
            && completed.configuration.get(CHECKPOINT_PROTECTION_VERSION).is_some_and(is_own)
        {
            // Only a checkpoint protection that this commit sets gets its version.
            completed.configuration.insert(CHECKPOINT_PROTECTION_VERSION.to_owned(), self.version.to_string());
        }
        if self.version != self.first_version && completed.schema_string.contains("delta.typeChanges") {
            let corrupt = |e| Error::corrupt("the schema in the metadata is not valid JSON").caused_by(e);
            let mut schema: Value = serde_json::from_str(&completed.schema_string).map_err(corrupt)?;
            move_type_changes(&mut schema, self.first_version, self.version);
            completed.schema_string = schema.to_string();
        }
        Ok((completed != *metadata).then_some(completed))
    }
}

/// Gives the commit's own type changes, which are those with the version of its first attempt, the version of this attempt.
fn move_type_changes(value: &mut Value, first: u64, version: u64) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Array(changes)) = members.get_mut("delta.typeChanges") {
                for at in changes.iter_mut().filter_map(|change| change.get_mut("tableVersion")) {
                    if at.as_u64() == Some(first) {
                        *at = json!(version);
                    }
                }
            }
            members.values_mut().for_each(|member| move_type_changes(member, first, version));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| move_type_changes(item, first, version)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The number of rows in a file's statistics.
pub fn num_records(stats: &str) -> Option<i64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Counted {
        #[serde(default)]
        num_records: Option<i64>,
    }
    serde_json::from_str::<Counted>(stats).ok()?.num_records.filter(|rows| *rows >= 0)
}
