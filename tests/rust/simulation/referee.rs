//! The referee: knows the operation of every transaction and the result that its writer got, sees every new version,
//! and reports errors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::{CommitInfo, DomainMetadata};
use deltic_protocol::commit::attempt::num_records;
use deltic_protocol::commit::{ROW_TRACKING_DOMAIN, watermark};
use deltic_protocol::feature;
use deltic_protocol::property::IsolationLevel;
use deltic_table::transaction::Committed;

use crate::operation::Operation;
use crate::store::{GoesBy, Stored};
use crate::table::{Author, Design, Files, Prepared, Row, State};
use crate::view::vector_file;

/// The result of a transaction that its writer got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing yet; or it was killed and never will be.
    Nothing,
    Committed(u64),
    /// It was not made and will not be.
    NotMade,
    /// Nobody knows.
    Unknown,
}

/// A transaction as its writer prepared it.
#[derive(Debug)]
struct Known {
    operation: Operation,
    prepared: Prepared,
    beginning: Beginning,
    told: Told,
    /// Where it stands.
    landed: Option<u64>,
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    /// The version that it builds on.
    pub(crate) base: Option<u64>,
    pub(crate) isolation: IsolationLevel,
    /// When its files were written.
    pub(crate) began_ms: i64,
}

/// A version as it must look, fixed when it appears.
#[derive(Debug)]
struct Made {
    seen: Seen,
    /// Its transaction.
    born: usize,
    /// The time by which it is found.
    since_ms: i64,
    /// The files of deletion vectors, by the data files that they are of.
    vectors: BTreeMap<String, String>,
}

impl Made {
    fn needs(&self, path: &str) -> bool {
        self.seen.state.files.contains_key(path) || self.vectors.values().any(|vectors| vectors == path)
    }
}

/// A read of the table by any process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) watermark: Option<i64>,
    pub(crate) time: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Referee {
    design: Design,
    known: Vec<Known>,
    versions: BTreeMap<u64, Made>,
    /// Files that are deleted.
    deleted: BTreeSet<String>,
    /// Those of them that a vacuum may have taken from who was slower than its retention, or went back to what was older.
    excused: BTreeSet<String>,
    pub(crate) violation: Option<String>,
}

impl Referee {
    pub(crate) fn new(design: Design) -> Self {
        Self {
            design,
            known: Vec::new(),
            versions: BTreeMap::new(),
            deleted: BTreeSet::new(),
            excused: BTreeSet::new(),
            violation: None,
        }
    }

    /// The number of the next transaction.
    pub(crate) fn born(&self) -> usize {
        self.known.len()
    }

    /// A writer is about to commit.
    pub(crate) fn prepared(&mut self, operation: Operation, prepared: Prepared, beginning: Beginning) {
        self.known.push(Known { operation, prepared, beginning, told: Told::Nothing, landed: None });
    }

    /// When a transaction began.
    pub(crate) fn began_ms(&self, born: usize) -> i64 {
        self.known[born].beginning.began_ms
    }

    /// A writer got a result.
    pub(crate) fn told(&mut self, born: usize, told: Told) {
        self.known[born].told = told;
        match (told, self.known[born].landed) {
            (Told::Committed(version), landed) if landed != Some(version) => {
                self.object(format!(
                    "transaction {born} was acknowledged as version {version} and stands at {landed:?}"
                ));
            }
            (Told::NotMade, Some(version)) => {
                self.object(format!("transaction {born} was said not to be made and stands at {version}"));
            }
            _ => {}
        }
    }

    /// Checks the facts about the table that a writer gets after its commit.
    pub(crate) fn acknowledged(&mut self, committed: &Committed, first: u64, lines: Option<&Bytes>) {
        let Some(Made { seen, .. }) = self.versions.get(&committed.version) else { return };
        let state = &committed.state;
        let found = (feature::supported(&state.protocol), &state.metadata.configuration, state.row_id_watermark);
        let expected = (seen.state.features.clone(), &seen.state.properties, seen.watermark);
        let said: Vec<u8> = committed.lines.pieces().flat_map(Result::unwrap).collect();
        let place = (state.version, committed.in_commit_timestamp, committed.follows_base, Some(said.as_slice()));
        if found != expected
            || place != (committed.version, seen.time, committed.version == first, lines.map(AsRef::as_ref))
        {
            let what = format!("version {} is {seen:?} and its writer was told {committed:?}", committed.version);
            self.object(what);
        }
    }

    pub(crate) fn object(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The rows of files, by the transactions that wrote them. Data files are there before their commit and stay.
    pub(crate) fn rows_of(&self, paths: impl Iterator<Item = String>) -> Result<Files, String> {
        let find = |path: String| {
            let rows = self.known.iter().find_map(|known| known.prepared.added.get(&path));
            rows.cloned().map(|rows| (path.clone(), rows)).ok_or(format!("nobody wrote the file {path}"))
        };
        paths.map(find).collect()
    }

    /// A version was put.
    pub(crate) fn landed(&mut self, version: u64, (born, now_ms): (usize, i64), lines: &Bytes) {
        if let Err(what) = self.judge(version, (born, now_ms), lines) {
            self.object(format!("version {version} (transaction {born}, {:?}): {what}", self.known[born].operation));
        }
    }

    /// A version was deleted. Whoever was to make it, others may have read it and built on it.
    pub(crate) fn removed(&mut self, version: u64) {
        self.object(format!("version {version} was visible and is removed"));
    }

    fn judge(&mut self, version: u64, (born, now_ms): (usize, i64), lines: &Bytes) -> Result<(), String> {
        let known = &self.known[born];
        match known.told {
            Told::Nothing | Told::Unknown => {}
            Told::NotMade => return Err("it was said not to be made".to_owned()),
            Told::Committed(at) => return Err(format!("it was acknowledged as version {at}")),
        }
        if let Some(at) = known.landed {
            return Err(format!("it stands at {at} already"));
        }
        let nothing = || Seen { state: State::default(), watermark: None, time: None };
        let nothing = Made { seen: nothing(), born, since_ms: i64::MIN, vectors: BTreeMap::new() };
        let made_before = match version.checked_sub(1) {
            Some(before) => self.versions.get(&before).ok_or("the version before it is not there")?,
            None => &nothing,
        };
        let before = &made_before.seen;
        if matches!(known.operation, Operation::Create(_)) != (version == 0) {
            return Err("a table is created once, by version 0".to_owned());
        }
        let prepared = self.followed(&known.prepared, &before.state);
        self.isolated((known, &prepared), version, born, &before.state)?;
        let state = prepared.apply(&before.state, self.design);
        let target = known.prepared.restores.and_then(|target| self.versions.get(&target));
        lineage(&before.state, &state, born, target.map(|target| &target.seen.state))?;
        let (watermark, time) = match self.design.featured {
            true => derived(lines, version, (before, &known.prepared))?,
            false => (None, None),
        };
        let since_ms = time.unwrap_or(now_ms.max(made_before.since_ms.saturating_add(1)));
        let vectors = match self.design.vector_files {
            true => vectors_of(lines, version, (made_before, &state))?,
            false => BTreeMap::new(),
        };
        let restores = target.is_some();
        let made = Made { seen: Seen { state, watermark, time }, born, since_ms, vectors };
        let own = &known.prepared.added;
        let gone: Vec<String> = self.deleted.iter().filter(|path| made.needs(path)).cloned().collect();
        // Who was slow, or went back to what is older than the retention, may have lost files to a vacuum.
        let is_excused = |path: &&String| restores || own.contains_key(*path) || self.excused.contains(*path);
        if let Some(path) = gone.iter().find(|path| !is_excused(path) && made_before.needs(path)) {
            return Err(format!("it still has {path}, which is deleted"));
        }
        self.excused.extend(gone);
        if let Some(replaced) = self.versions.insert(version, made) {
            // A store that overwrites. The loss is reported for the writer of the first commit.
            self.known[replaced.born].landed = None;
        }
        self.known[born].landed = Some(version);
        Ok(())
    }

    /// What a transaction does on a version. If rows are tracked, it deletes them wherever others have moved them.
    fn followed(&self, prepared: &Prepared, on: &State) -> Prepared {
        if !self.design.featured {
            return prepared.clone();
        }
        let once = self.rows_of(prepared.marked.keys().cloned()).unwrap_or_default();
        prepared.followed(on, &once)
    }

    /// Whether the transaction left what doing it on the version before leaves.
    fn isolated(
        &self,
        (known, prepared): (&Known, &Prepared),
        version: u64,
        born: usize,
        before: &State,
    ) -> Result<(), String> {
        if let Some(path) = known.prepared.removed.iter().find(|path| !before.files.contains_key(*path)) {
            return Err(format!("it removes {path}, which is not there"));
        }
        for (path, places) in &prepared.marked {
            let Some(rows) = before.files.get(path) else {
                return Err(format!("it takes rows out of {path}, which is not there"));
            };
            if places.iter().any(|at| rows.get(*at).is_none_or(Option::is_none)) {
                return Err(format!("it takes a row out of {path} that is gone"));
            }
        }
        let left = prepared.apply(before, self.design);
        if known.prepared.rearranges && left.rows() != before.rows() {
            return Err(format!("it only rearranges, and leaves {:?} of {:?}", left.rows(), before.rows()));
        }
        if let Some(target) = known.prepared.restores {
            let target = &self.versions.get(&target).ok_or("the version that it goes back to is not there")?.seen.state;
            if left.rows() != target.rows() {
                let (left, target) = (left.rows(), target.rows());
                return Err(format!("it goes back to {target:?} and leaves {left:?}"));
            }
            return Ok(());
        }
        // Under WriteSerializable blind appends may count as made after it. Whoever changes metadata sees them.
        let Beginning { base, isolation, .. } = known.beginning;
        let first = base.map_or(0, |base| base + 1);
        let passable = isolation == IsolationLevel::WriteSerializable && !known.prepared.changes_metadata();
        let between = self.versions.range(first..version).map(|(_, made)| made.born);
        let passed = between.filter(|born| passable && self.known[*born].prepared.is_blind()).collect();
        let (alone, passed) = before.without(&passed);
        let by = Author { born, design: self.design };
        // Under SnapshotIsolation it reads what was there when it began. That it still finds the rows that it takes, and
        // brings none back, is looked at for all.
        let old = base.and_then(|base| self.versions.get(&base)).map(|made| &made.seen.state);
        let again = match (&known.operation, isolation, old) {
            // They say which files go, not which rows.
            (Operation::Drop(_) | Operation::Compact(_), ..) => known.prepared.clone(),
            (_, IsolationLevel::SnapshotIsolation, Some(old)) => known.operation.prepare(old, by).unwrap_or_default(),
            _ => known.operation.prepare(&alone, by).unwrap_or_default(),
        };
        if again.observed != known.prepared.observed {
            return Err(format!("it went by {:?} and there is {:?}", known.prepared.observed, again.observed));
        }
        let expected = again.apply(&alone, self.design);
        let mut rows = expected.rows();
        rows.extend(passed);
        rows.sort_unstable();
        if left.rows() != rows {
            return Err(format!("it leaves {:?} and doing it again leaves {rows:?}", left.rows()));
        }
        let rest = |state: State| State { files: Files::new(), ..state };
        let (left, expected) = (rest(left), rest(expected));
        if left != expected {
            return Err(format!("it leaves {left:?} and doing it again leaves {expected:?}"));
        }
        Ok(())
    }

    /// Somebody has read a version.
    pub(crate) fn saw(&mut self, version: u64, seen: &Seen) {
        let expected = self.versions.get(&version).map(|made| &made.seen);
        if expected != Some(seen) {
            let what = format!("version {version} was read as {seen:?} and is {expected:?}");
            self.object(what);
        }
    }

    /// A vacuum has taken a file; what that was.
    pub(crate) fn discarded(&mut self, path: &str, file: &Stored, goes_by: GoesBy) -> &'static str {
        let GoesBy { cutoff_ms, seen } = goes_by;
        if file.modified_ms >= cutoff_ms {
            self.object(format!("a vacuum took {path}, which was changed within its retention"));
        }
        let mut later = self.versions.values().skip(1).map(|made| made.since_ms);
        for (version, made) in self.versions.range(..=seen) {
            let until_ms = later.next();
            let is_kept = *version == seen || until_ms.is_none_or(|until_ms| until_ms > cutoff_ms);
            if is_kept && made.needs(path) {
                let what = format!("a vacuum took {path}, which version {version} needs, within its retention");
                return self.fail(what);
            }
        }
        let newer = self.versions.range(seen + 1..);
        if newer.into_iter().any(|(_, made)| made.needs(path)) {
            self.excused.insert(path.to_owned());
        }
        self.deleted.insert(path.to_owned());
        if path.starts_with("deletion_vector") {
            "files of vectors that a vacuum took"
        } else {
            "files that a vacuum took"
        }
    }

    fn fail(&mut self, what: String) -> &'static str {
        self.object(what);
        ""
    }

    /// A file that no commit should name is deleted by who wrote it.
    pub(crate) fn abandoned(&mut self, path: &str) {
        if let Some((version, _)) = self.versions.iter().find(|(_, made)| made.needs(path)) {
            let what = format!("{path} is deleted as if no commit named it, and version {version} does");
            self.object(what);
        }
        self.deleted.insert(path.to_owned());
    }

    /// A reader of a version misses a file. That must not be where the version was current after `since_ms`.
    pub(crate) fn missed(&mut self, version: u64, path: &str, since_ms: i64) -> &'static str {
        let until_ms = self.versions.get(&(version + 1)).map(|next| next.since_ms);
        let is_kept = until_ms.is_none_or(|until_ms| until_ms > since_ms);
        if !is_kept {
            return "files of versions beyond the retention that were gone";
        }
        if !self.excused.contains(path) {
            self.object(format!("a reader of version {version} misses {path}"));
        }
        "files that a vacuum took from who was slower than it"
    }

    /// After every step: what was acknowledged is where it was said to be, and versions follow each other.
    pub(crate) fn check(&mut self) {
        let told = |known: &Known| if let Told::Committed(version) = known.told { Some(version) } else { None };
        for (born, known) in self.known.iter().enumerate() {
            if let Some(version) = told(known)
                && self.versions.get(&version).map(|made| made.born) != Some(born)
            {
                let what = format!("transaction {born} was acknowledged as version {version} and is not there");
                return self.object(what);
            }
        }
        if !self.versions.keys().copied().eq(0..self.versions.len() as u64) {
            self.object(format!("there are the versions {:?}", self.versions.keys()));
        }
    }

    /// What became of transactions of which nobody knew, when all is over: `true` for those that stand.
    pub(crate) fn resolved(&self) -> Vec<bool> {
        let unknown = self.known.iter().filter(|known| known.told == Told::Unknown);
        unknown.map(|known| known.landed.is_some()).collect()
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        self.versions.last_key_value().map(|(version, _)| *version)
    }
}

/// Rows appear once, by their first writer, or from a restored version.
fn lineage(before: &State, after: &State, born: usize, target: Option<&State>) -> Result<(), String> {
    let ids =
        |state: &State| -> BTreeSet<(usize, usize)> { state.files.values().flatten().flatten().map(Row::id).collect() };
    let (were, target) = (ids(before), target.map(ids).unwrap_or_default());
    let mut seen = BTreeSet::new();
    for row in after.files.values().flatten().flatten() {
        let id = row.id();
        if !seen.insert(id) {
            return Err(format!("the row {row:?} is there twice"));
        }
        if row.born != born && !were.contains(&id) && !target.contains(&id) {
            return Err(format!("the row {row:?} was gone and comes again"));
        }
    }
    Ok(())
}

/// The files of vectors of a version.
fn vectors_of(
    lines: &Bytes,
    version: u64,
    (before, after): (&Made, &State),
) -> Result<BTreeMap<String, String>, String> {
    let commit = parse_commit(lines, Origin::Commit(version), Wanted::All).map_err(|e| e.to_string())?;
    let mut vectors = before.vectors.clone();
    for row in 0..commit.removes.len() {
        vectors.remove(commit.removes.path(row));
    }
    for row in 0..commit.adds.len() {
        if let Some(descriptor) = commit.adds.deletion_vector(row).map_err(|e| e.to_string())? {
            let file = vector_file(&descriptor).ok_or("a vector stands in the log")?;
            vectors.insert(commit.adds.path().value(row).to_owned(), file);
        }
    }
    vectors.retain(|path, _| after.files.contains_key(path));
    Ok(vectors)
}

/// Row ids and times of a commit: each id is given once, each time is later than the one before.
fn derived(
    lines: &Bytes,
    version: u64,
    (before, prepared): (&Seen, &Prepared),
) -> Result<(Option<i64>, Option<i64>), String> {
    let commit = parse_commit(lines, Origin::Commit(version), Wanted::All).map_err(|e| e.to_string())?;
    let time = commit.commit_info.as_ref().and_then(CommitInfo::in_commit_timestamp).ok_or("it has no time")?;
    if before.time.is_some_and(|before| before >= time) {
        return Err(format!("its time {time} is not after {:?}", before.time));
    }
    let domain = commit.domains.iter().find(|d: &&DomainMetadata| d.domain == ROW_TRACKING_DOMAIN);
    let said = domain.map(|d| watermark(&d.configuration)).transpose().map_err(|e| e.to_string())?;
    let mut fresh = 0;
    let mut given = before.watermark.map_or(0, |highest| highest + 1);
    for row in 0..commit.adds.len() {
        let add = commit.adds.add(row).map_err(|e| e.to_string())?;
        if let Some((returned, _)) = prepared.returned.get(&add.path) {
            if add.base_row_id.is_none() || add.base_row_id != returned.base_row_id {
                return Err(format!("{} comes back with the row ids from {:?}", add.path, add.base_row_id));
            }
            continue;
        }
        if add.deletion_vector.is_some() {
            // The file existed before and keeps its ids: a commit that adds a new file has removed no row of it.
            if !before.state.files.contains_key(&add.path) || add.base_row_id.is_none_or(|id| id >= given) {
                return Err(format!("{} lost rows, and has the row ids from {:?}", add.path, add.base_row_id));
            }
            continue;
        }
        fresh += 1;
        if (add.base_row_id, add.default_row_commit_version) != (Some(given), Some(version as i64)) {
            return Err(format!("{} has the row ids from {:?} and not {given}", add.path, add.base_row_id));
        }
        given += add.stats.as_deref().and_then(num_records).unwrap_or_default();
    }
    let highest = (fresh > 0).then(|| given - 1);
    if said != highest {
        return Err(format!("it says that the highest row id is {said:?} and not {highest:?}"));
    }
    Ok((highest.or(before.watermark), Some(time)))
}
