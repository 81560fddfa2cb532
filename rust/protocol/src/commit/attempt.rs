//! Rebase: completes a prepared commit for one attempt, which has a version and the table state before it. Which
//! winners a commit may follow is decided before, by [`conflict`](super::conflict).
//!
//! The actions of a [`Pending`] are the same in every attempt. While they are printed, [`Attempt`] adds what depends
//! on the version:
//! row ids above the high watermark, row commit versions, versions of type changes, the commit's time. Values that an
//! action has already stay: a file that was moved keeps its ids.
//!
//! PROTOCOL.md: "Row Tracking", "In-Commit Timestamps", "Type Widening".

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pending::{Pending, ROW_TRACKING_DOMAIN, is_watermark};
use crate::action::json::print_action;
use crate::action::lines::{Lines, file_action_of};
use crate::action::{Action, Add, CommitInfo, DomainMetadata, Metadata};
use crate::alter::PROTECTION;
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;

/// One attempt at a commit.
#[derive(Debug, Clone)]
pub struct Attempt {
    version: u64,
    /// The version that the first attempt made.
    first: u64,
    /// The in-commit timestamp, if the table has them.
    pub in_commit_timestamp: Option<i64>,
    /// Whether this commit enables in-commit timestamps.
    enables_timestamps: bool,
    /// Whether files get row ids.
    tracks_rows: bool,
    /// The next row id to give out.
    next_row_id: i64,
    /// Whether this commit gives out any row id.
    given: bool,
}

impl Attempt {
    /// The next attempt at `pending`, whose first was to make version `first`.
    ///
    /// # Errors
    /// `Corrupt` if a property that it needs is malformed, `Internal` if there is neither a table nor one to create.
    pub fn new(pending: &Pending, first: u64, now_ms: i64) -> Result<Self> {
        let (Some(protocol), Some(metadata)) = (pending.protocol(), pending.metadata()) else {
            return Err(Error::internal("a commit without table creates none either"));
        };
        let supported = feature::supported(protocol);
        let carries_time = |metadata: &Metadata| Properties::of(metadata).is_true("delta.enableInCommitTimestamps");
        let has_time = supported.contains("inCommitTimestamp") && carries_time(metadata)?;
        let had_time = match &pending.state {
            Some(state) => {
                feature::supported(&state.protocol).contains("inCommitTimestamp") && carries_time(&state.metadata)?
            }
            // A new table has them from its first version on, so that nothing is recorded.
            None => true,
        };
        let before = pending.state.as_ref().and_then(|state| state.timestamp);
        let after = before.map_or(now_ms, |before| now_ms.max(before.saturating_add(1)));
        let suspended = Properties::of(metadata).is_true("delta.rowTrackingSuspended")?;
        let given_before = pending.state.as_ref().and_then(|state| state.row_id_watermark);
        let own = pending.own_watermark()?;
        Ok(Self {
            version: pending.version(),
            first,
            in_commit_timestamp: has_time.then_some(after),
            enables_timestamps: has_time && !had_time,
            tracks_rows: supported.contains("rowTracking") && !suspended,
            next_row_id: given_before.max(own).unwrap_or(-1).saturating_add(1),
            given: own.is_some(),
        })
    }

    /// All that this attempt writes: the lines, and separately those that are not of files.
    ///
    /// # Errors
    /// As [`Attempt::action`].
    pub fn print(&mut self, info: CommitInfo, pending: &Pending, now_ms: i64) -> Result<(Lines, Vec<u8>)> {
        let actions = &pending.actions;
        let mut others = Vec::new();
        print_action(&Action::CommitInfo(self.commit_info(info)), &mut others)?;
        // The row id high watermark comes last, since it includes the ids of this attempt.
        for action in actions.others().iter().filter(|action| !is_watermark(action)) {
            print_action(&*self.action(action)?, &mut others)?;
        }
        let mut lines = Lines::of(&others)?;
        if self.tracks_rows {
            actions.files().each(|line| match file_action_of(line)? {
                Some(add @ Action::Add(_)) => lines.push(&*self.action(&add)?),
                _ => lines.push_line(line),
            })?;
        } else {
            lines.append(actions.files().clone())?;
        }
        for marked in pending.marked.iter() {
            for action in marked.actions(now_ms)? {
                lines.push(&*self.action(&action)?)?;
            }
        }
        if let Some(action) = self.closing() {
            print_action(&action, &mut others)?;
            lines.push(&action)?;
        }
        Ok((lines, others))
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
            Action::Add(add) if self.tracks_rows => Cow::Owned(Action::Add(self.tracked(add)?)),
            Action::Metadata(metadata) => match self.dated(metadata)? {
                Some(metadata) => Cow::Owned(Action::Metadata(metadata)),
                None => Cow::Borrowed(action),
            },
            other => Cow::Borrowed(other),
        })
    }

    /// The last action: the row id high watermark.
    pub fn closing(&self) -> Option<Action> {
        self.watermark().map(|id| {
            let configuration = json!({ "rowIdHighWaterMark": id }).to_string();
            Action::DomainMetadata(DomainMetadata {
                domain: ROW_TRACKING_DOMAIN.to_owned(),
                configuration,
                removed: false,
            })
        })
    }

    /// The highest row id, if any was given out.
    pub fn watermark(&self) -> Option<i64> {
        self.given.then(|| self.next_row_id.saturating_sub(1))
    }

    fn tracked(&mut self, add: &Add) -> Result<Add> {
        let mut add = add.clone();
        if add.base_row_id.is_none() {
            let rows = add.stats.as_deref().and_then(num_records).ok_or_else(|| {
                Error::invalid("rows are tracked in this table, so the statistics must say how many rows the file has")
                    .in_file(&add.path)
            })?;
            add.base_row_id = Some(self.next_row_id);
            let too_many = || Error::invalid("the table has assigned all row ids");
            self.next_row_id = self.next_row_id.checked_add(rows).ok_or_else(too_many)?;
            self.given = true;
        }
        if add.default_row_commit_version.is_none() {
            add.default_row_commit_version = i64::try_from(self.version).ok();
        }
        Ok(add)
    }

    /// Metadata with the properties and versions that depend on the attempt, if there are any.
    fn dated(&self, metadata: &Metadata) -> Result<Option<Metadata>> {
        let mut dated = metadata.clone();
        if let (true, Some(time)) = (self.enables_timestamps, self.in_commit_timestamp) {
            let mut set = |key: &str, value: String| drop(dated.configuration.insert(key.to_owned(), value));
            set("delta.inCommitTimestampEnablementVersion", self.version.to_string());
            set("delta.inCommitTimestampEnablementTimestamp", time.to_string());
        }
        let is_own = |value: &String| value.trim().parse() == Ok(self.first);
        if self.version != self.first && dated.configuration.get(PROTECTION).is_some_and(is_own) {
            // Only a checkpoint protection that this commit sets gets its version.
            dated.configuration.insert(PROTECTION.to_owned(), self.version.to_string());
        }
        if self.version != self.first && dated.schema_string.contains("delta.typeChanges") {
            let corrupt = |e| Error::corrupt("the schema in the metadata is no JSON").caused_by(e);
            let mut schema: Value = serde_json::from_str(&dated.schema_string).map_err(corrupt)?;
            move_type_changes(&mut schema, self.first, self.version);
            dated.schema_string = schema.to_string();
        }
        Ok((dated != *metadata).then_some(dated))
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
