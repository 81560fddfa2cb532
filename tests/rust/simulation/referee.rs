//! The referee: knows what every transaction was to do and what its writer was told, sees every version appear, and says
//! what is wrong.

use std::collections::BTreeMap;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::{CommitInfo, DomainMetadata};
use deltic_protocol::commit::rebase::num_records;
use deltic_protocol::commit::{ROW_TRACKING_DOMAIN, watermark};
use deltic_protocol::feature;
use deltic_protocol::property::IsolationLevel;
use deltic_table::transaction::Committed;

use crate::table::{Author, Design, Files, Operation, Prepared, State};

/// What a writer was told of its transaction.
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
    /// The version that it builds on.
    base: Option<u64>,
    told: Told,
    /// Where it stands.
    landed: Option<u64>,
}

/// What was seen of the table, by whoever looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) watermark: Option<i64>,
    pub(crate) time: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Referee {
    design: Design,
    isolation: IsolationLevel,
    known: Vec<Known>,
    /// What each version must look like, fixed when it appears, and its transaction.
    versions: BTreeMap<u64, (Seen, usize)>,
    pub(crate) violation: Option<String>,
}

impl Referee {
    pub(crate) fn new(design: Design, isolation: IsolationLevel) -> Self {
        Self { design, isolation, known: Vec::new(), versions: BTreeMap::new(), violation: None }
    }

    /// The number of the next transaction.
    pub(crate) fn born(&self) -> usize {
        self.known.len()
    }

    /// A writer is about to commit.
    pub(crate) fn prepared(&mut self, operation: Operation, prepared: Prepared, base: Option<u64>) {
        self.known.push(Known { operation, prepared, base, told: Told::Nothing, landed: None });
    }

    /// A writer was told something.
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

    /// What a writer is told of the table after its commit must be so.
    pub(crate) fn acknowledged(&mut self, committed: &Committed, first: u64, lines: Option<&Bytes>) {
        let Some((seen, _)) = self.versions.get(&committed.version) else { return };
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
    pub(crate) fn landed(&mut self, version: u64, born: usize, lines: &Bytes) {
        if let Err(what) = self.judge(version, born, lines) {
            self.object(format!("version {version} (transaction {born}, {:?}): {what}", self.known[born].operation));
        }
    }

    /// A version was deleted. Whoever was to make it, others may have read it and built on it.
    pub(crate) fn removed(&mut self, version: u64) {
        self.object(format!("version {version} was visible and is removed"));
    }

    fn judge(&mut self, version: u64, born: usize, lines: &Bytes) -> Result<(), String> {
        let known = &self.known[born];
        match known.told {
            Told::Nothing | Told::Unknown => {}
            Told::NotMade => return Err("it was said not to be made".to_owned()),
            Told::Committed(at) => return Err(format!("it was acknowledged as version {at}")),
        }
        if let Some(at) = known.landed {
            return Err(format!("it stands at {at} already"));
        }
        let before = match version.checked_sub(1) {
            Some(before) => &self.versions.get(&before).ok_or("the version before it is not there")?.0,
            None => &Seen { state: State::default(), watermark: None, time: None },
        };
        if matches!(known.operation, Operation::Create(_)) != (version == 0) {
            return Err("a table is created once, by version 0".to_owned());
        }
        self.isolated(known, version, born, &before.state)?;
        let state = known.prepared.apply(&before.state, self.design);
        let (watermark, time) = match self.design.featured {
            true => derived(lines, version, before)?,
            false => (None, None),
        };
        if let Some((_, replaced)) = self.versions.insert(version, (Seen { state, watermark, time }, born)) {
            // A store that overwrites. Whoever was told of what was there finds out.
            self.known[replaced].landed = None;
        }
        self.known[born].landed = Some(version);
        Ok(())
    }

    /// Whether the transaction left what doing it on the version before leaves.
    fn isolated(&self, known: &Known, version: u64, born: usize, before: &State) -> Result<(), String> {
        if let Some(path) = known.prepared.removed.iter().find(|path| !before.files.contains_key(*path)) {
            return Err(format!("it removes {path}, which is not there"));
        }
        for (path, places) in &known.prepared.marked {
            let Some(rows) = before.files.get(path) else {
                return Err(format!("it takes rows out of {path}, which is not there"));
            };
            if places.iter().any(|at| rows.get(*at).is_none_or(Option::is_none)) {
                return Err(format!("it takes a row out of {path} that is gone"));
            }
        }
        // Under WriteSerializable blind appends may count as made after it. Whoever changes metadata sees them.
        let first = known.base.map_or(0, |base| base + 1);
        let passable = self.isolation == IsolationLevel::WriteSerializable && !known.prepared.changes_metadata();
        let between = self.versions.range(first..version).map(|(_, (_, born))| *born);
        let passed = between.filter(|born| passable && self.known[*born].prepared.is_blind()).collect();
        let (alone, passed) = before.without(&passed);
        let by = Author { born, design: self.design };
        let left = known.prepared.apply(before, self.design);
        let again = match known.operation {
            // Says which file goes, not which rows.
            Operation::Drop(_) => known.prepared.clone(),
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
        let expected = self.versions.get(&version).map(|(expected, _)| expected);
        if expected != Some(seen) {
            let what = format!("version {version} was read as {seen:?} and is {expected:?}");
            self.object(what);
        }
    }

    /// After every step: what was acknowledged is where it was said to be, and versions follow each other.
    pub(crate) fn check(&mut self) {
        let told = |known: &Known| if let Told::Committed(version) = known.told { Some(version) } else { None };
        for (born, known) in self.known.iter().enumerate() {
            if let Some(version) = told(known)
                && self.versions.get(&version).map(|(_, born)| *born) != Some(born)
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

/// Row ids and times of a commit: each id is given once, each time is later than the one before.
fn derived(lines: &Bytes, version: u64, before: &Seen) -> Result<(Option<i64>, Option<i64>), String> {
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
        if add.deletion_vector.is_some() {
            // It was there before, and keeps its ids: whoever adds a new file has taken no row out of it.
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
