//! Conflict checks between a commit and a winner, and what the commit becomes after it.
//!
//! A commit was prepared on a version, and another commit (the winner) is the next version. [`Pending::check_and_rebase`] runs
//! [`CHECKS`] in order, against what the commit reads and writes, and moves the state that the commit builds on past the
//! winner. [`Attempt`](super::attempt::Attempt) then completes the commit for that state. No I/O, no clock.
//!
//! The checks are delta-spark's, in its order and with its exception names; if one refuses less, its `argument` says why
//! that is safe. Invariant: commits that pass give the same table as if they had run one after the other
//! (`conflict::oracle::accepted_commits_are_serializable`); cases in `tests/data/text/conflict.txt`.
//!
//! PROTOCOL.md: "Commit Protocol".

use std::collections::HashMap;

use arrow_array::{Array, BooleanArray, cast::AsArray};
use arrow_buffer::BooleanBuffer;

use crate::action::Action;
use crate::action::batch::AddBatch;
use crate::action::json::CommitActions;
use crate::error::{Conflict, Error, Kind, Result};
use crate::feature;
use crate::log_bounds::LogBounds;
use crate::property::{IsolationLevel, Properties};
use crate::prune;
use crate::replay::canonical_path;
use crate::replay::paths::PathSet;

mod added;
mod metadata;
mod rows;

pub use metadata::{METADATA_ONLY_PROPERTIES, PROPERTIES_A_WINNER_MAY_SET};

use super::marked::WinnerRows;
use super::pending::{CLUSTERING_DOMAIN, Pending, ROW_TRACKING_DOMAIN, clustering_columns, watermark};
use super::read_set::{PredicatesRead, ReadSet, Search};

/// One check of [`CHECKS`].
#[derive(Debug)]
pub struct Check {
    /// What it checks.
    pub name: &'static str,
    /// When it refuses.
    pub refuses: &'static str,
    /// The conflict.
    pub conflict: &'static str,
    /// What it changes in the commit or the state it builds on, when it does not refuse.
    pub rebases: &'static str,
    /// Where it refuses less than delta-spark's, and why that is safe.
    pub argument: &'static str,
    run: fn(&mut ConflictCheck<'_>) -> Result<()>,
}

/// Every check, in order.
pub const CHECKS: &[Check] = &[
    Check {
        name: "protocol",
        refuses: "the winner created the table or dropped a feature, or both change the protocol, or the new \
                  protocol needs a feature that deltic does not write",
        conflict: "ProtocolChanged, or an error that names the missing feature",
        rebases: "the winner's protocol applies",
        argument: "",
        run: |case| case.protocol(),
    },
    Check {
        name: "metadata",
        refuses: "both change the metadata, or the winner changes more than the high watermark of identity columns \
                  and what the lists below allow",
        conflict: "MetadataChanged",
        rebases: "the winner's metadata applies",
        argument: "Rows and files that a commit adds or removes do not depend on the name, on the description, or on \
                   properties that concern only cleaning, checkpoints and file sizes.",
        run: |case| case.metadata(),
    },
    Check {
        name: "domain metadata",
        refuses: "both set or remove the same domain, except `delta.rowTracking`; or the winner clusters the table \
                  by other columns, and this commit adds files, which may lack statistics of these columns, or drops \
                  one of them",
        conflict: "ConcurrentTransaction, MetadataChanged",
        rebases: "",
        argument: "",
        run: |case| case.domains(),
    },
    Check {
        name: "application transactions",
        refuses: "the winner advances an application whose version this commit advances or has read",
        conflict: "ConcurrentTransaction",
        rebases: "",
        argument: "",
        run: |case| case.transactions(),
    },
    Check {
        name: "row-tracking backfill",
        refuses: "",
        conflict: "",
        rebases: "files that this commit removes or adds again keep the ids that a backfill gave them; a backfill \
                  leaves out files that the winner mentions",
        argument: "",
        run: |case| case.backfill(),
    },
    Check {
        name: "row ids",
        refuses: "",
        conflict: "",
        rebases: "new files get ids above the winner's high watermark",
        argument: "",
        run: |case| case.row_ids(),
    },
    Check {
        name: "rows of one file",
        refuses: "both delete rows of one file by its deletion vector, and at least one row is the same; or the \
                  winner restored rows of the file, or removed the whole file, unless it only moved the rows and \
                  the table tracks rows",
        conflict: "ConcurrentDeleteDelete, ConcurrentAppend",
        rebases: "this commit's rows are united with the winner's deletion vector; rows that the winner moved are \
                  deleted in its files",
        argument: "Rows keep their positions in a file, and a larger vector only deletes more of them: after the \
                   winner this commit would have found the same rows, since none of them is gone and none was \
                   restored. For the same reason such a file does not count as added. A winner that removes the file \
                   with `dataChange` = false, as OPTIMIZE does, has the same rows in other files, with the same row \
                   ids: every row of this commit is found there exactly once, or the commit is refused. delta-spark \
                   compares files, not rows.",
        run: |case| case.rows_of_files(),
    },
    Check {
        name: "added files",
        refuses: "the winner added a file with a row which this commit had to read; under WriteSerializable a winner \
                  may be a blind append, unless this commit changes metadata; under SnapshotIsolation any added file \
                  is allowed",
        conflict: "ConcurrentAppend",
        rebases: "such files of a blind append count as read for the next winners",
        argument: "Files are tested against the whole condition, with partition values and statistics: bounds rule a \
                   file out only if no row of it can make the condition TRUE. The rows of the other files are read and \
                   tested, unless the winner changed the metadata or another check refuses this commit. If \
                   no row makes the condition TRUE, reading after the winner would have given the same rows. A file \
                   with `dataChange` = false holds rows that were there before: if one of them matches, this commit \
                   has read its old file, and the next check decides. delta-spark tests partition values only.",
        run: |case| case.added_files(),
    },
    Check {
        name: "removed files, read",
        refuses: "the winner removed a file that this commit has read",
        conflict: "ConcurrentDeleteRead",
        rebases: "",
        argument: "A remove with `dataChange` = false only moved the rows: reading after the winner would have given \
                   the same rows. If this commit has read such a file as a whole, the files with the moved rows count \
                   as read from then on, for the next winners. If this commit removes the file too, the next check \
                   refuses it.",
        run: |case| case.removed_files_read(),
    },
    Check {
        name: "removed files, removed",
        refuses: "both remove a file with the same path",
        conflict: "ConcurrentDeleteDelete",
        rebases: "",
        argument: "",
        run: |case| case.removed_files_removed(),
    },
    Check {
        name: "in-commit timestamp",
        refuses: "",
        conflict: "",
        rebases: "the time of the attempt is later than the winner's; a commit that enables in-commit timestamps \
                  records its own version and time",
        argument: "",
        run: |case| case.timestamp(),
    },
    Check {
        name: "duplicate actions",
        refuses: "after these checks the commit would add or remove a logical file twice",
        conflict: "an internal error",
        rebases: "",
        argument: "",
        run: |case| case.duplicates(),
    },
];

impl Pending {
    /// Checks whether the commit may follow `winner`, which is version `version`; if so, the commit builds on it from then on.
    /// `rows`: what was read of the winner for [`Pending::vectors_needed`], [`Pending::moved_rows`] and
    /// [`Pending::added_files`].
    ///
    /// # Errors
    /// `Conflict` with the reason; `Unsupported` if the winner made the table one that deltic does not write; `Corrupt`
    /// if the winner's actions are.
    pub fn check_and_rebase(&mut self, winner: &CommitActions, rows: &WinnerRows, version: u64) -> Result<()> {
        let isolation = self.effective_isolation();
        let mut case =
            ConflictCheck { pending: self, winner, rows, isolation, files_with_fewer_rows: PathSet::default() };
        CHECKS.iter().try_for_each(|check| (check.run)(&mut case)).map_err(|e| e.at_version(version))?;
        if let Some(state) = &mut self.state {
            state.version = version;
        }
        Ok(())
    }
}

/// One commit and one winner.
struct ConflictCheck<'a> {
    pending: &'a mut Pending,
    winner: &'a CommitActions,
    rows: &'a WinnerRows,
    isolation: IsolationLevel,
    /// Files that the winner removed and added again with fewer rows.
    files_with_fewer_rows: PathSet,
}

pub(super) fn refuse(conflict: Conflict, detail: &str) -> Error {
    refuse_because(conflict, conflict.explanation(), detail)
}

/// Why a commit may not follow one that changed rows of a file, but did not remove the file.
const ROWS_CHANGED: &str = "another writer changed rows in a file of which this commit has read or changes rows, too; \
                            run the operation again on the new version";

/// The conflict of two commits that change the same rows of a file.
fn refuse_same_rows(detail: &str) -> Error {
    let explanation = "another writer changed the same rows as this commit; run the operation again on the new version";
    refuse_because(Conflict::ConcurrentDeleteDelete, explanation, detail)
}

/// The conflict if the winner removed a file of which this commit marks rows as deleted.
pub(super) fn refuse_lost_file(path: &str) -> Error {
    let explanation =
        "another writer removed a file of which this commit changes rows; run the operation again on the new version";
    refuse_because(Conflict::ConcurrentDeleteDelete, explanation, &format!("for example {path}"))
}

/// The conflict of two commits that set one metadata domain.
fn refuse_domain(detail: &str) -> Error {
    let explanation = "another writer set the same metadata domain; run the operation again on the new version";
    refuse_because(Conflict::ConcurrentTransaction, explanation, detail)
}

fn refuse_because(conflict: Conflict, explanation: &str, detail: &str) -> Error {
    Error::new(Kind::Conflict(conflict), format!("{conflict}: {explanation} ({detail})"))
}

impl ConflictCheck<'_> {
    fn protocol(&mut self) -> Result<()> {
        let Some(state) = &mut self.pending.state else {
            return Err(refuse(Conflict::ProtocolChanged, "another writer created the table first"));
        };
        let Some(protocol) = &self.winner.protocol else { return Ok(()) };
        feature::check_readable(protocol)?;
        if self.pending.actions.non_file_actions().iter().any(|a| matches!(a, Action::Protocol(_))) {
            return Err(refuse(Conflict::ProtocolChanged, "both commits change the protocol"));
        }
        let (before, after) = (feature::supported(&state.protocol), feature::supported(protocol));
        if let Some(dropped) = before.difference(&after).next() {
            return Err(refuse(Conflict::ProtocolChanged, &format!("the feature `{dropped}` was dropped")));
        }
        state.protocol = protocol.clone();
        self.check_writable()
    }

    fn metadata(&mut self) -> Result<()> {
        let Some(metadata) = &self.winner.metadata else { return Ok(()) };
        if self.pending.own_metadata().is_some() {
            return Err(refuse(Conflict::MetadataChanged, "both commits change the metadata"));
        }
        if let Some(state) = &mut self.pending.state {
            // Such a change does not affect whether deltic can write the table.
            if metadata::differs_only_in_identity_watermarks(&state.metadata, metadata)? {
                state.metadata = metadata.clone();
                return Ok(());
            }
            if let Some(change) = metadata::incompatible(&state.metadata, metadata, &state.protocol)? {
                return Err(refuse(Conflict::MetadataChanged, &change));
            }
            state.metadata = metadata.clone();
        }
        self.check_writable()
    }

    /// Checks that deltic can still write the table after the winner, with this commit's own metadata if it has any.
    fn check_writable(&self) -> Result<()> {
        match (self.pending.protocol(), self.pending.metadata()) {
            (Some(protocol), Some(metadata)) => {
                let schema = metadata.schema()?;
                feature::check_writable(protocol, metadata, &schema)
            }
            (None, _) | (_, None) => Ok(()),
        }
    }

    fn domains(&mut self) -> Result<()> {
        for action in self.pending.actions.non_file_actions() {
            if let Action::DomainMetadata(domain) = action
                && domain.domain != ROW_TRACKING_DOMAIN
                && self.winner.domains.iter().any(|d| d.domain == domain.domain)
            {
                return Err(refuse_domain(&format!("`{}`, which this commit sets too", domain.domain)));
            }
            if let Action::Protocol(protocol) = action
                && !feature::supported(protocol).contains("domainMetadata")
                && let Some(domain) = self.winner.domains.iter().find(|domain| !domain.removed)
            {
                return Err(refuse_domain(&format!("`{}`, whose feature this commit drops", domain.domain)));
            }
        }
        self.clustering()
    }

    fn clustering(&mut self) -> Result<()> {
        let Some(domain) = self.winner.domains.iter().find(|d| d.domain == CLUSTERING_DOMAIN) else { return Ok(()) };
        let clustering = if domain.removed { Vec::new() } else { clustering_columns(&domain.configuration)? };
        if let Some(metadata) = self.pending.own_metadata() {
            let (schema, mapping) = (metadata.schema()?, Properties::of(metadata).column_mapping_mode()?);
            if let Some(column) = clustering.iter().find(|column| mapping.logical_path(&schema, column).is_none()) {
                let detail = format!("the table is now clustered by `{}`, which this commit drops", column.join("."));
                return Err(refuse(Conflict::MetadataChanged, &detail));
            }
        }
        let Some(state) = &mut self.pending.state else { return Ok(()) };
        let (actions, clustering_before) = (&self.pending.actions, &state.clustering);
        let is_new = actions.num_added() > 0 && !actions.is_re_add();
        if let Some(column) = clustering.iter().find(|column| is_new && !clustering_before.contains(column)) {
            let detail = format!("the table is now clustered by `{}`", column.join("."));
            return Err(refuse(Conflict::MetadataChanged, &detail));
        }
        state.clustering = clustering;
        Ok(())
    }

    fn transactions(&mut self) -> Result<()> {
        let written_apps = self.pending.actions.non_file_actions().iter().filter_map(|a| match a {
            Action::Txn(txn) => Some(&txn.app_id),
            _ => None,
        });
        for app_id in written_apps.chain(&self.pending.read_apps) {
            if self.winner.txns.iter().any(|t| &t.app_id == app_id) {
                return Err(refuse(Conflict::ConcurrentTransaction, &format!("application `{app_id}`")));
            }
        }
        Ok(())
    }

    fn backfill(&mut self) -> Result<()> {
        if self.pending.actions.is_re_add() {
            return self.drop_superseded();
        }
        if !is_backfill(self.winner) || self.winner.adds.is_empty() {
            return Ok(());
        }
        let adds = &self.winner.adds;
        let actions = &mut self.pending.actions;
        let path = |row: usize| adds.path().value(row);
        let marked = &self.pending.marked;
        let is_own = |path: &str| actions.removes(path) || actions.adds(path) || marked.get(path).is_some();
        let own = (0..adds.len()).filter(|row| is_own(path(*row)));
        let rows: HashMap<_, _> = own.map(|row| (canonical_path(path(row)), row)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let number = |name: &str, row: usize| adds.int64(name).filter(|c| c.is_valid(row)).map(|c| c.value(row));
        for row in rows.values() {
            if let Some(marked) = self.pending.marked.get_mut(path(*row)) {
                marked.add.base_row_id = number("baseRowId", *row);
                marked.add.default_row_commit_version = number("defaultRowCommitVersion", *row);
            }
        }
        actions.change_files(|action| {
            let (path, base_row_id, commit_version) = match action {
                Action::Add(add) => (&add.path, &mut add.base_row_id, &mut add.default_row_commit_version),
                Action::Remove(remove) => {
                    (&remove.path, &mut remove.base_row_id, &mut remove.default_row_commit_version)
                }
                _ => return Ok(()),
            };
            if let Some(row) = rows.get(&canonical_path(path)) {
                *base_row_id = number("baseRowId", *row);
                *commit_version = number("defaultRowCommitVersion", *row);
            }
            Ok(())
        })
    }

    /// Leaves out files that the winner mentions: a removed file must not come back, and the winner's `add` of a file is newer.
    fn drop_superseded(&mut self) -> Result<()> {
        let (actions, adds, removes) = (&mut self.pending.actions, &self.winner.adds, &self.winner.removes);
        let added = adds.path().iter().flatten();
        let mentioned = added.chain((0..removes.len()).map(|row| removes.path(row)));
        let mentioned: PathSet = mentioned.filter(|path| actions.adds(path)).collect();
        if mentioned.is_empty() { Ok(()) } else { actions.leave_out(|path| mentioned.contains(path)) }
    }

    fn row_ids(&mut self) -> Result<()> {
        let Some(domain) = self.winner.domains.iter().find(|d| d.domain == ROW_TRACKING_DOMAIN) else { return Ok(()) };
        let watermark = if domain.removed { None } else { Some(watermark(&domain.configuration)?) };
        if let Some(state) = &mut self.pending.state {
            state.row_id_watermark = watermark;
        }
        Ok(())
    }

    fn removed_files_read(&mut self) -> Result<()> {
        let removes = &self.winner.removes;
        let changing = data_changing(&self.winner.remove_rows, removes.len());
        let mut removed = (0..removes.len()).filter(|row| changing.value(*row)).map(|row| removes.path(row));
        let clash = match &self.pending.read {
            ReadSet::Nothing => None,
            ReadSet::AllRows => removed.next(),
            ReadSet::AllFiles => {
                // Files that this commit adds again without row ids would keep the ids that the winner assigned.
                let again = self.winner.adds.path().iter().flatten().filter(|_| self.pending.actions.is_re_add());
                (0..removes.len()).map(|row| removes.path(row)).chain(again).next()
            }
            ReadSet::Files(files) | ReadSet::Predicates(PredicatesRead { files, .. }) => {
                removed.find(|path| files.contains(path))
            }
        };
        if let Some(path) = clash {
            return Err(self.refuse_removed(Conflict::ConcurrentDeleteRead, path));
        }
        self.follow_moved_rows()
    }

    /// Counts the files to which the winner moved rows that were read as read, since later winners may remove them.
    fn follow_moved_rows(&mut self) -> Result<()> {
        let adds = &self.winner.adds;
        if adds.is_empty() {
            return Ok(());
        }
        let moved = adds.filter(!&data_changing(adds.rows(), adds.len()))?;
        let removes = &self.winner.removes;
        let has_read = |files: &PathSet| (0..removes.len()).any(|row| files.contains(removes.path(row)));
        match &mut self.pending.read {
            ReadSet::Files(files) if has_read(files) => files.extend(moved.path().iter().flatten().collect()),
            ReadSet::Predicates(read) if has_read(&read.files) => {
                let found = matching(&moved, read)?;
                read.files.extend(found.path().iter().flatten().collect());
            }
            ReadSet::Nothing | ReadSet::Files(_) | ReadSet::Predicates(_) | ReadSet::AllRows | ReadSet::AllFiles => {}
        }
        Ok(())
    }

    fn removed_files_removed(&mut self) -> Result<()> {
        let removes = &self.winner.removes;
        let mut paths = (0..removes.len()).map(|row| removes.path(row));
        match paths.find(|path| self.pending.actions.removes(path)) {
            Some(path) => Err(self.refuse_removed(Conflict::ConcurrentDeleteDelete, path)),
            None => Ok(()),
        }
    }

    /// The conflict for a file that the winner removed. If it added the file again, it has only marked rows of it.
    fn refuse_removed(&self, conflict: Conflict, path: &str) -> Error {
        let detail = format!("for example {path}");
        match self.winner.adds.path().iter().flatten().any(|added| added == path) {
            true => refuse_because(conflict, ROWS_CHANGED, &detail),
            false => refuse(conflict, &detail),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "one signature for all checks")]
    fn timestamp(&mut self) -> Result<()> {
        let info = self.winner.commit_info.as_ref();
        let time = info.and_then(|info| info.in_commit_timestamp().or(info.timestamp()));
        if let Some(state) = &mut self.pending.state {
            state.timestamp = state.timestamp.max(time);
        }
        Ok(())
    }

    fn duplicates(&mut self) -> Result<()> {
        // Only a backfill changes actions; it leaves out files, and adds none.
        let broken = |e: Error| Error::internal("after rebasing, the commit contains a file twice").caused_by(e);
        if is_backfill(self.winner) { self.pending.check_duplicates().map_err(broken) } else { Ok(()) }
    }
}

/// The files that may hold a row which makes one of the predicates TRUE.
fn matching(adds: &AddBatch, read: &PredicatesRead) -> Result<AddBatch> {
    let mut kept = BooleanBuffer::new_unset(adds.len());
    for Search { shape, predicates } in &read.searches {
        for predicate in predicates {
            let bounds = LogBounds::of_statistics(adds, shape, &predicate.columns(), true)?;
            kept = &kept | &prune::keep(predicate, &bounds)?;
        }
    }
    adds.filter(kept)
}

/// Whether the winner only gave ids to existing rows, or removed their ids.
fn is_backfill(winner: &CommitActions) -> bool {
    let operation = winner.commit_info.as_ref().and_then(|info| info.0.get("operation")).and_then(|o| o.as_str());
    matches!(operation, Some("ROW TRACKING BACKFILL" | "ROW TRACKING UNBACKFILL"))
}

/// The file actions with `dataChange` true, or without it.
fn data_changing(rows: &arrow_array::RecordBatch, len: usize) -> BooleanBuffer {
    let column: Option<&BooleanArray> = rows.column_by_name("dataChange").and_then(|c| c.as_boolean_opt());
    BooleanBuffer::collect_bool(len, |row| column.is_none_or(|c| c.is_null(row) || c.value(row)))
}
