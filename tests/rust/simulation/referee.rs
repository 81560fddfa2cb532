//! The referee: records the operation and the outcome of every transaction, checks every new version, and reports
//! violations.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::{CommitInfo, DomainMetadata};
use deltic_protocol::commit::Committed;
use deltic_protocol::commit::num_records;
use deltic_protocol::commit::{ROW_TRACKING_DOMAIN, watermark};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::feature;
use deltic_protocol::property::IsolationLevel;

use crate::operation::Operation;
use crate::store::{Stored, VacuumBasis};
use crate::table::{Author, Design, Files, Prepared, Row, State};
use crate::view::vector_file;

/// The outcome of a transaction, as reported to its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// None yet, or never if the writer was killed.
    Pending,
    Committed(u64),
    /// It failed, and must never land.
    NotCommitted,
    Unknown,
}

/// A transaction as its writer prepared it.
#[derive(Debug)]
struct TransactionRecord {
    operation: Operation,
    prepared: Prepared,
    start: TransactionStart,
    outcome: Outcome,
    /// Its version in the log.
    landed: Option<u64>,
}

/// The state in which a transaction began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransactionStart {
    pub(crate) base: Option<u64>,
    pub(crate) isolation: IsolationLevel,
    /// When its files were written.
    pub(crate) began_ms: i64,
}

/// The expected contents of a version, computed when it lands.
#[derive(Debug)]
struct LogEntry {
    contents: TableContents,
    transaction: usize,
    /// Its commit timestamp.
    since_ms: i64,
    /// The deletion vector file of each data file that has one.
    vectors: BTreeMap<String, String>,
}

impl LogEntry {
    fn needs(&self, path: &str) -> bool {
        self.contents.state.files.contains_key(path) || self.vectors.values().any(|vectors| vectors == path)
    }
}

/// The contents of a version, as expected or as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableContents {
    pub(crate) state: State,
    pub(crate) watermark: Option<i64>,
    pub(crate) time: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Referee {
    design: Design,
    transactions: Vec<TransactionRecord>,
    versions: BTreeMap<u64, LogEntry>,
    deleted: BTreeSet<String>,
    /// Deleted files that a version may lack: its commit took longer than the retention of a vacuum, or restored a version
    /// older than the retention.
    may_be_missing: BTreeSet<String>,
    pub(crate) violation: Option<String>,
}

impl Referee {
    pub(crate) fn new(design: Design) -> Self {
        Self {
            design,
            transactions: Vec::new(),
            versions: BTreeMap::new(),
            deleted: BTreeSet::new(),
            may_be_missing: BTreeSet::new(),
            violation: None,
        }
    }

    /// The id of the next transaction.
    pub(crate) fn next_transaction(&self) -> usize {
        self.transactions.len()
    }

    /// Records a transaction that is about to be committed.
    pub(crate) fn begin(&mut self, operation: Operation, prepared: Prepared, start: TransactionStart) {
        self.transactions.push(TransactionRecord {
            operation,
            prepared,
            start,
            outcome: Outcome::Pending,
            landed: None,
        });
    }

    pub(crate) fn began_ms(&self, transaction: usize) -> i64 {
        self.transactions[transaction].start.began_ms
    }

    /// Records the outcome that a writer got.
    pub(crate) fn finish(&mut self, transaction: usize, outcome: Outcome) {
        self.transactions[transaction].outcome = outcome;
        match (outcome, self.transactions[transaction].landed) {
            (Outcome::Committed(version), landed) if landed != Some(version) => {
                self.report(format!(
                    "transaction {transaction} was acknowledged as version {version}, but is in the log as {landed:?}"
                ));
            }
            (Outcome::NotCommitted, Some(version)) => {
                self.report(format!(
                    "transaction {transaction} was reported as failed, but is in the log as {version}"
                ));
            }
            _ => {}
        }
    }

    /// Checks what a writer gets after its commit.
    pub(crate) fn check_acknowledged(&mut self, committed: &Committed, first: u64, lines: Option<&Bytes>) {
        let Some(LogEntry { contents, .. }) = self.versions.get(&committed.version) else { return };
        let state = &committed.state;
        let found = (feature::supported(&state.protocol), &state.metadata.configuration, state.row_id_watermark);
        let expected = (contents.state.features.clone(), &contents.state.properties, contents.watermark);
        let own_lines: Vec<u8> = committed.lines.pieces().flat_map(Result::unwrap).collect();
        let place = (state.version, committed.in_commit_timestamp, committed.follows_base, Some(own_lines.as_slice()));
        if found != expected
            || place != (committed.version, contents.time, committed.version == first, lines.map(AsRef::as_ref))
        {
            let what = format!("version {} is {contents:?}, but its writer got {committed:?}", committed.version);
            self.report(what);
        }
    }

    pub(crate) fn report(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The rows of files, as they were written.
    pub(crate) fn rows_of(&self, paths: impl Iterator<Item = String>) -> Result<Files, String> {
        let find = |path: String| {
            let rows = self.transactions.iter().find_map(|record| record.prepared.added.get(&path));
            rows.cloned().map(|rows| (path.clone(), rows)).ok_or(format!("the file {path} was never written"))
        };
        paths.map(find).collect()
    }

    /// Checks a version that was put.
    pub(crate) fn landed(&mut self, version: u64, (transaction, now_ms): (usize, i64), lines: &Bytes) {
        if let Err(what) = self.check_version(version, (transaction, now_ms), lines) {
            self.report(format!(
                "version {version} (transaction {transaction}, {:?}): {what}",
                self.transactions[transaction].operation
            ));
        }
    }

    /// A version was deleted. That is never allowed: other writers may have read it and committed on it.
    pub(crate) fn commit_deleted(&mut self, version: u64) {
        self.report(format!("version {version} was visible and was deleted"));
    }

    fn check_version(
        &mut self,
        version: u64,
        (transaction, now_ms): (usize, i64),
        lines: &Bytes,
    ) -> Result<(), String> {
        let record = &self.transactions[transaction];
        match record.outcome {
            Outcome::Pending | Outcome::Unknown => {}
            Outcome::NotCommitted => return Err("it was reported as failed".to_owned()),
            Outcome::Committed(at) => return Err(format!("it was acknowledged as version {at}")),
        }
        if let Some(at) = record.landed {
            return Err(format!("it is in the log as {at} already"));
        }
        let empty = TableContents { state: State::default(), watermark: None, time: None };
        let nothing = LogEntry { contents: empty, transaction, since_ms: i64::MIN, vectors: BTreeMap::new() };
        let entry_before = match version.checked_sub(1) {
            Some(before) => self.versions.get(&before).ok_or("the version before it is missing")?,
            None => &nothing,
        };
        let before = &entry_before.contents;
        if matches!(record.operation, Operation::Create(_)) != (version == 0) {
            return Err("a table is created once, by version 0".to_owned());
        }
        let prepared = self.follow_moved_rows(&record.prepared, &before.state);
        self.check_isolation((record, &prepared), version, transaction, &before.state)?;
        let state = prepared.apply(&before.state, self.design);
        let target = record.prepared.restores.and_then(|target| self.versions.get(&target));
        check_lineage(&before.state, &state, transaction, target.map(|target| &target.contents.state))?;
        let (watermark, time) = match self.design.row_tracking {
            true => check_row_ids_and_time(lines, version, (before, &record.prepared))?,
            false => (None, None),
        };
        let since_ms = time.unwrap_or(now_ms.max(entry_before.since_ms.saturating_add(1)));
        let vectors = match self.design.vector_files {
            true => vectors_of(lines, version, (entry_before, &state))?,
            false => BTreeMap::new(),
        };
        let restores = target.is_some();
        let entry = LogEntry { contents: TableContents { state, watermark, time }, transaction, since_ms, vectors };
        let own = &record.prepared.added;
        let gone: Vec<String> = self.deleted.iter().filter(|path| entry.needs(path)).cloned().collect();
        // A vacuum may have deleted files of a slow commit, or of a restored version older than the retention.
        let is_excused = |path: &&String| restores || own.contains_key(*path) || self.may_be_missing.contains(*path);
        if let Some(path) = gone.iter().find(|path| !is_excused(path) && entry_before.needs(path)) {
            return Err(format!("it still has {path}, which is deleted"));
        }
        self.may_be_missing.extend(gone);
        if let Some(replaced) = self.versions.insert(version, entry) {
            // An overwriting store. The loss is reported for the writer of the first commit.
            self.transactions[replaced.transaction].landed = None;
        }
        self.transactions[transaction].landed = Some(version);
        Ok(())
    }

    /// The effects of a transaction on a version. With row tracking it deletes rows where winners have moved them.
    fn follow_moved_rows(&self, prepared: &Prepared, on: &State) -> Prepared {
        if !self.design.row_tracking {
            return prepared.clone();
        }
        let written = self.rows_of(prepared.marked.keys().cloned()).unwrap_or_default();
        prepared.follow_moved_rows(on, &written)
    }

    /// The positions of the deleted rows of a file in a version.
    pub(crate) fn deleted_rows(&self, version: u64, path: &str) -> Option<DeletionVector> {
        let rows = self.versions.get(&version)?.contents.state.files.get(path)?;
        Some((0..).zip(rows).filter(|(_, row)| row.is_none()).map(|(at, _)| at).collect())
    }

    /// Checks that the transaction leaves what its operation, repeated on the version before, leaves.
    fn check_isolation(
        &self,
        (record, prepared): (&TransactionRecord, &Prepared),
        version: u64,
        transaction: usize,
        before: &State,
    ) -> Result<(), String> {
        if let Some(path) = record.prepared.removed.iter().find(|path| !before.files.contains_key(*path)) {
            return Err(format!("it removes {path}, which is missing"));
        }
        for (path, places) in &prepared.marked {
            let Some(rows) = before.files.get(path) else {
                return Err(format!("it deletes rows of {path}, which is missing"));
            };
            if places.iter().any(|at| rows.get(*at).is_none_or(Option::is_none)) {
                return Err(format!("it deletes a row of {path} that is deleted already"));
            }
        }
        let left = prepared.apply(before, self.design);
        if record.prepared.rearranges && left.rows() != before.rows() {
            return Err(format!("it only rearranges rows, but leaves {:?} of {:?}", left.rows(), before.rows()));
        }
        if let Some(target) = record.prepared.restores {
            let target = &self.versions.get(&target).ok_or("the version that it restores is missing")?.contents.state;
            if left.rows() != target.rows() {
                let (left, target) = (left.rows(), target.rows());
                return Err(format!("it restores {target:?}, but leaves {left:?}"));
            }
            return Ok(());
        }
        // Under WriteSerializable, blind appends may count as made after it, unless it changes metadata.
        let TransactionStart { base, isolation, .. } = record.start;
        let first = base.map_or(0, |base| base + 1);
        let can_pass = isolation == IsolationLevel::WriteSerializable && !record.prepared.changes_metadata();
        let between = self.versions.range(first..version).map(|(_, entry)| entry.transaction);
        let passed =
            between.filter(|transaction| can_pass && self.transactions[*transaction].prepared.is_blind()).collect();
        let (alone, passed) = before.without(&passed);
        let by = Author { transaction, design: self.design };
        // Under SnapshotIsolation it reads its base version. The checks above and `check_lineage` find rows that it deletes
        // twice or brings back.
        let old = base.and_then(|base| self.versions.get(&base)).map(|entry| &entry.contents.state);
        let repeated = match (&record.operation, isolation, old) {
            // These name files, not rows.
            (Operation::Drop(_) | Operation::Compact(_), ..) => record.prepared.clone(),
            (_, IsolationLevel::SnapshotIsolation, Some(old)) => record.operation.prepare(old, by).unwrap_or_default(),
            _ => record.operation.prepare(&alone, by).unwrap_or_default(),
        };
        if repeated.observed != record.prepared.observed {
            let (own, observed) = (&record.prepared.observed, &repeated.observed);
            return Err(format!("it read {own:?}, but repeated it reads {observed:?}"));
        }
        let expected = self.follow_moved_rows(&repeated, &alone).apply(&alone, self.design);
        let mut rows = expected.rows();
        rows.extend(passed);
        rows.sort_unstable();
        if left.rows() != rows {
            return Err(format!("it leaves {:?}, but repeated it leaves {rows:?}", left.rows()));
        }
        let rest = |state: State| State { files: Files::new(), ..state };
        let (left, expected) = (rest(left), rest(expected));
        if left != expected {
            return Err(format!("it leaves {left:?}, but repeated it leaves {expected:?}"));
        }
        Ok(())
    }

    /// Checks what a process read of a version.
    pub(crate) fn check_read(&mut self, version: u64, contents: &TableContents) {
        let expected = self.versions.get(&version).map(|entry| &entry.contents);
        if expected != Some(contents) {
            let what = format!("version {version} was read as {contents:?}, but is {expected:?}");
            self.report(what);
        }
    }

    /// Checks that a vacuum may delete a file, and returns what to count.
    pub(crate) fn file_vacuumed(&mut self, path: &str, file: &Stored, basis: VacuumBasis) -> &'static str {
        let VacuumBasis { cutoff_ms, newest_read } = basis;
        if file.modified_ms >= cutoff_ms {
            self.report(format!("a vacuum deleted {path}, which is younger than its retention"));
        }
        let mut later = self.versions.values().skip(1).map(|entry| entry.since_ms);
        for (version, entry) in self.versions.range(..=newest_read) {
            let until_ms = later.next();
            let is_kept = *version == newest_read || until_ms.is_none_or(|until_ms| until_ms > cutoff_ms);
            if is_kept && entry.needs(path) {
                let what = format!("a vacuum deleted {path}, which version {version} needs within its retention");
                self.report(what);
                return "";
            }
        }
        let newer = self.versions.range(newest_read + 1..);
        if newer.into_iter().any(|(_, entry)| entry.needs(path)) {
            self.may_be_missing.insert(path.to_owned());
        }
        self.deleted.insert(path.to_owned());
        if path.starts_with("deletion_vector") {
            "deletion vector files that a vacuum deleted"
        } else {
            "files that a vacuum deleted"
        }
    }

    /// A writer deletes a file of its own that no commit may name.
    pub(crate) fn file_rolled_back(&mut self, path: &str) {
        if let Some((version, _)) = self.versions.iter().find(|(_, entry)| entry.needs(path)) {
            let what = format!("{path} is deleted as unreferenced, but version {version} names it");
            self.report(what);
        }
        self.deleted.insert(path.to_owned());
    }

    /// A reader of a version misses a file. That is an error if the version was current after `since_ms`. Returns what to
    /// count.
    pub(crate) fn file_missing(&mut self, version: u64, path: &str, since_ms: i64) -> &'static str {
        let until_ms = self.versions.get(&(version + 1)).map(|next| next.since_ms);
        let is_kept = until_ms.is_none_or(|until_ms| until_ms > since_ms);
        if !is_kept {
            return "missing files of versions beyond the retention";
        }
        if !self.may_be_missing.contains(path) {
            self.report(format!("a reader of version {version} misses {path}"));
        }
        "missing files of transactions slower than the retention"
    }

    /// After every step: acknowledged commits are in the log at their version, and versions have no gap.
    pub(crate) fn check(&mut self) {
        let acknowledged = |record: &TransactionRecord| {
            if let Outcome::Committed(version) = record.outcome { Some(version) } else { None }
        };
        for (transaction, record) in self.transactions.iter().enumerate() {
            if let Some(version) = acknowledged(record)
                && self.versions.get(&version).map(|entry| entry.transaction) != Some(transaction)
            {
                let what =
                    format!("transaction {transaction} was acknowledged as version {version}, but is missing there");
                return self.report(what);
            }
        }
        if !self.versions.keys().copied().eq(0..self.versions.len() as u64) {
            self.report(format!("the log has the versions {:?}", self.versions.keys()));
        }
    }

    /// At the end: for each transaction with an unknown outcome, whether it is in the log.
    pub(crate) fn unknown_outcomes(&self) -> Vec<bool> {
        let unknown = self.transactions.iter().filter(|record| record.outcome == Outcome::Unknown);
        unknown.map(|record| record.landed.is_some()).collect()
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        self.versions.last_key_value().map(|(version, _)| *version)
    }
}

/// No row is in the table twice, and no deleted row reappears unless the restored version `target` has it.
fn check_lineage(before: &State, after: &State, transaction: usize, target: Option<&State>) -> Result<(), String> {
    let ids =
        |state: &State| -> BTreeSet<(usize, usize)> { state.files.values().flatten().flatten().map(Row::id).collect() };
    let (were, target) = (ids(before), target.map(ids).unwrap_or_default());
    let mut seen = BTreeSet::new();
    for row in after.files.values().flatten().flatten() {
        let id = row.id();
        if !seen.insert(id) {
            return Err(format!("the row {row:?} is in the table twice"));
        }
        if row.transaction != transaction && !were.contains(&id) && !target.contains(&id) {
            return Err(format!("the row {row:?} was deleted and reappears"));
        }
    }
    Ok(())
}

/// The deletion vector files of a version, by data file.
fn vectors_of(
    lines: &Bytes,
    version: u64,
    (before, after): (&LogEntry, &State),
) -> Result<BTreeMap<String, String>, String> {
    let commit = parse_commit(lines, Origin::Commit(version), Wanted::All).map_err(|e| e.to_string())?;
    let mut vectors = before.vectors.clone();
    for row in 0..commit.removes.len() {
        vectors.remove(commit.removes.path(row));
    }
    for row in 0..commit.adds.len() {
        if let Some(descriptor) = commit.adds.deletion_vector(row).map_err(|e| e.to_string())? {
            let file = vector_file(&descriptor).ok_or("a deletion vector is inline")?;
            vectors.insert(commit.adds.path().value(row).to_owned(), file);
        }
    }
    vectors.retain(|path, _| after.files.contains_key(path));
    Ok(vectors)
}

/// Checks row ids and timestamp of a commit, and returns the new watermark and time: each row id is assigned once, and
/// timestamps increase.
fn check_row_ids_and_time(
    lines: &Bytes,
    version: u64,
    (before, prepared): (&TableContents, &Prepared),
) -> Result<(Option<i64>, Option<i64>), String> {
    let commit = parse_commit(lines, Origin::Commit(version), Wanted::All).map_err(|e| e.to_string())?;
    let time =
        commit.commit_info.as_ref().and_then(CommitInfo::in_commit_timestamp).ok_or("it has no in-commit timestamp")?;
    if before.time.is_some_and(|before| before >= time) {
        return Err(format!("its time {time} is not after {:?}", before.time));
    }
    let domain = commit.domains.iter().find(|d: &&DomainMetadata| d.domain == ROW_TRACKING_DOMAIN);
    let recorded = domain.map(|d| watermark(&d.configuration)).transpose().map_err(|e| e.to_string())?;
    let mut fresh = 0;
    let mut given = before.watermark.map_or(0, |highest| highest + 1);
    for row in 0..commit.adds.len() {
        let add = commit.adds.add(row).map_err(|e| e.to_string())?;
        if let Some((returned, _)) = prepared.returned.get(&add.path) {
            if add.base_row_id.is_none() || add.base_row_id != returned.base_row_id {
                return Err(format!("{} is restored with row ids from {:?}", add.path, add.base_row_id));
            }
            continue;
        }
        if add.deletion_vector.is_some() {
            // The file is not new: a new file has no deletion vector. It keeps its row ids.
            if !before.state.files.contains_key(&add.path) || add.base_row_id.is_none_or(|id| id >= given) {
                return Err(format!("{} lost rows, and has row ids from {:?}", add.path, add.base_row_id));
            }
            continue;
        }
        fresh += 1;
        if (add.base_row_id, add.default_row_commit_version) != (Some(given), Some(version as i64)) {
            return Err(format!("{} has row ids from {:?}, not from {given}", add.path, add.base_row_id));
        }
        given += add.stats.as_deref().and_then(num_records).unwrap_or_default();
    }
    let highest = (fresh > 0).then(|| given - 1);
    if recorded != highest {
        return Err(format!("its row id high watermark is {recorded:?}, not {highest:?}"));
    }
    Ok((highest.or(before.watermark), Some(time)))
}
