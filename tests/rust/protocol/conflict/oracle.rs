//! An oracle for the conflict rules: small tables on which operations are executed row by row.
//!
//! If the rules let a commit follow its winners, it must leave the table that its operation leaves when it is executed after
//! them.

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit, serialize_commit};
use deltic_protocol::action::{Action, Add, CommitInfo, DeletionVectorDescriptor, PartitionValues, Remove};
use deltic_protocol::commit::{Actions, AddedFiles, MarkedFile, MarkedFiles, Pending, ReadSet, WinnerRows};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::error::Result;
use deltic_protocol::predicate::BoundPredicate;
use deltic_protocol::property::IsolationLevel;
use proptest::prelude::*;
use serde_json::json;

use super::{predicates, state, vectors};

/// The columns `p` and `x`.
type Row = (char, i64);

/// The rows of each file by position, `None` if deleted; all rows of a file have the same `p`.
type Files = BTreeMap<String, Vec<Option<Row>>>;

/// A predicate as SQL and as a function of a row.
type Condition = (&'static str, fn(Row) -> bool);

const CONDITIONS: &[Condition] = &[
    ("p = 'a'", |(p, _)| p == 'a'),
    ("p = 'b'", |(p, _)| p == 'b'),
    ("x = 2", |(_, x)| x == 2),
    ("x > 3", |(_, x)| x > 3),
    ("p = 'a' AND x < 3", |(p, x)| p == 'a' && x < 3),
    ("x IN (1, 5) OR p = 'b' AND x = 0", |(p, x)| x == 1 || x == 5 || p == 'b' && x == 0),
    ("NOT (x BETWEEN 1 AND 4)", |(_, x)| !(1..=4).contains(&x)),
];

#[derive(Debug, Clone)]
enum Operation {
    Append(Vec<Row>),
    /// Deletes the rows that match a condition, by rewriting their files.
    Delete(usize),
    /// Adds ten to `x` of the rows that match a condition, by rewriting their files.
    Update(usize),
    /// Deletes the rows that match a condition, by deletion vectors.
    Mark(usize),
    /// Adds ten to `x` of the rows that match a condition, by deletion vectors and new files.
    Move(usize),
    /// Inserts a row whose `x` is the number of rows that match a condition.
    Count(usize, char),
    Overwrite(Vec<Row>),
    /// Rewrites the files of a partition as one file.
    Optimize(char),
    /// Removes a file with all its rows.
    Drop(usize),
}

/// The read set and the effects of an operation.
struct Prepared {
    read: ReadSet,
    removed: BTreeSet<String>,
    added: Files,
    data_change: bool,
    /// The files that it marks: their rows, and the positions of the deleted ones.
    marked: BTreeMap<String, (Vec<Option<Row>>, BTreeSet<usize>)>,
}

impl Operation {
    /// The effects of the operation on these files. `tag` is part of new names.
    fn prepare(&self, files: &Files, tag: &str) -> Prepared {
        let mut done = Prepared {
            read: ReadSet::Nothing,
            removed: BTreeSet::new(),
            added: Files::new(),
            data_change: true,
            marked: BTreeMap::new(),
        };
        let rewrite = |done: &mut Prepared, condition: usize, change: &dyn Fn(Row) -> Option<Row>| {
            let (text, holds) = CONDITIONS[condition];
            let found: Vec<&String> =
                files.iter().filter(|(_, rows)| rows.iter().flatten().any(|r| holds(*r))).map(|(f, _)| f).collect();
            let names: Vec<&str> = found.iter().map(|f| f.as_str()).collect();
            done.read = predicates(&[text], &names);
            for file in found {
                let rows = files[file].iter().flatten();
                let rows = rows.filter_map(|row| if holds(*row) { change(*row) } else { Some(*row) }).collect();
                done.removed.insert(file.clone());
                add(&mut done.added, &format!("{tag}-{file}"), rows);
            }
        };
        let mark = |done: &mut Prepared, condition: usize, again: &dyn Fn(Row) -> Option<Row>| {
            let (text, holds) = CONDITIONS[condition];
            let mut gone = Vec::new();
            for (file, rows) in files {
                let found = |(at, row): (usize, &Option<Row>)| row.filter(|row| holds(*row)).map(|_| at);
                let places: BTreeSet<usize> = rows.iter().enumerate().filter_map(found).collect();
                add(
                    &mut done.added,
                    &format!("{tag}-{file}"),
                    places.iter().filter_map(|at| again(rows[*at]?)).collect(),
                );
                if places.len() == rows.iter().flatten().count() {
                    // A file without remaining rows is removed, and counts as read.
                    done.removed.insert(file.clone());
                    gone.push(file.as_str());
                } else if !places.is_empty() {
                    done.marked.insert(file.clone(), (rows.clone(), places));
                }
            }
            done.read = predicates(&[text], &gone);
        };
        match self {
            Self::Mark(condition) => mark(&mut done, *condition, &|_| None),
            Self::Move(condition) => mark(&mut done, *condition, &|(p, x)| Some((p, x + 10))),
            Self::Append(rows) => add(&mut done.added, tag, rows.clone()),
            Self::Delete(condition) => rewrite(&mut done, *condition, &|_| None),
            Self::Update(condition) => rewrite(&mut done, *condition, &|(p, x)| Some((p, x + 10))),
            Self::Count(condition, p) => {
                let (text, holds) = CONDITIONS[*condition];
                let found = files.iter().filter(|(_, rows)| rows.iter().flatten().any(|r| holds(*r)));
                let names: Vec<&str> = found.map(|(f, _)| f.as_str()).collect();
                done.read = predicates(&[text], &names);
                let count = files.values().flatten().flatten().filter(|r| holds(**r)).count();
                add(&mut done.added, tag, vec![(*p, i64::try_from(count).unwrap())]);
            }
            Self::Overwrite(rows) => {
                done.read = ReadSet::AllRows;
                done.removed = files.keys().cloned().collect();
                add(&mut done.added, tag, rows.clone());
            }
            Self::Optimize(p) => {
                let inside: Vec<&String> =
                    files.iter().filter(|(_, rows)| partition(rows) == *p).map(|(f, _)| f).collect();
                let rows = inside.iter().flat_map(|f| files[*f].clone()).flatten().collect();
                done.read = ReadSet::Files(inside.iter().map(|f| f.as_str()).collect());
                done.removed = inside.into_iter().cloned().collect();
                add(&mut done.added, tag, rows);
                done.data_change = false;
            }
            Self::Drop(at) => {
                let Some(file) = files.keys().nth(at % files.len().max(1)) else { return done };
                done.read = ReadSet::Files([file.as_str()].into_iter().collect());
                done.removed.insert(file.clone());
            }
        }
        done
    }
}

/// Adds the rows as one file per partition.
fn add(files: &mut Files, name: &str, rows: Vec<Row>) {
    for row in rows {
        files.entry(format!("{name}-{}", row.0)).or_default().push(Some(row));
    }
}

fn partition(rows: &[Option<Row>]) -> char {
    rows.iter().flatten().next().unwrap().0
}

/// The deletion vector of a file.
fn vector(rows: &[Option<Row>]) -> DeletionVector {
    (0..).zip(rows).filter(|(_, row)| row.is_none()).map(|(at, _)| at).collect()
}

fn descriptor(vector: &DeletionVector) -> Option<DeletionVectorDescriptor> {
    (!vector.is_empty()).then(|| vector.to_inline().unwrap())
}

/// The `add` action of a file.
fn action(path: &str, rows: &[Option<Row>], data_change: bool) -> Add {
    let (least, most) = (rows.iter().flatten().map(|r| r.1).min(), rows.iter().flatten().map(|r| r.1).max());
    let stats = json!({"numRecords": rows.len(), "minValues": {"x": least}, "maxValues": {"x": most},
        "nullCount": {"x": 0}});
    Add {
        path: path.to_owned(),
        partition_values: PartitionValues::from([("p".to_owned(), Some(partition(rows).to_string()))]),
        data_change,
        stats: Some(stats.to_string()),
        deletion_vector: descriptor(&vector(rows)),
        ..Add::default()
    }
}

impl Prepared {
    /// The actions of the commit, on a table with these files.
    fn actions(&self, files: &Files) -> Vec<Action> {
        let removes = self.removed.iter().map(|path| {
            let deletion_vector = files.get(path).and_then(|rows| descriptor(&vector(rows)));
            Action::Remove(Remove {
                path: path.clone(),
                data_change: self.data_change,
                deletion_vector,
                ..Remove::default()
            })
        });
        removes.chain(self.added.iter().map(|(path, rows)| Action::Add(action(path, rows, self.data_change)))).collect()
    }

    fn marked(&self) -> MarkedFiles {
        let mut files = MarkedFiles::default();
        for (path, (rows, places)) in &self.marked {
            let (before, gone) = (vector(rows), places.iter().map(|at| *at as u64).collect());
            let add = action(path, rows, true);
            files.mark(MarkedFile {
                add,
                physical_rows: rows.len() as u64,
                vector: None,
                rows_deleted_before_commit: before,
                rows: gone,
            });
        }
        files
    }

    fn pending(self, files: &Files, isolation: IsolationLevel) -> Pending {
        self.pending_on(files, isolation, false)
    }

    fn pending_on(self, files: &Files, isolation: IsolationLevel, tracks_rows: bool) -> Pending {
        let (actions, marked) = (Actions::of(self.actions(files)).unwrap(), self.marked());
        let mut state = state(if tracks_rows { "1,7 appendOnly invariants domainMetadata rowTracking" } else { "1,2" });
        if tracks_rows {
            state.metadata.configuration.insert("delta.enableRowTracking".to_owned(), "true".to_owned());
        }
        Pending { state: Some(state), read: self.read, read_apps: Default::default(), isolation, actions, marked }
    }

    fn committed(&self, files: &Files, version: u64) -> CommitActions {
        let blind = self.read.is_nothing() && self.removed.is_empty();
        let info = json!({"isBlindAppend": blind}).as_object().unwrap().clone();
        let mut lines = serialize_commit(&[Action::CommitInfo(CommitInfo(info))]).unwrap();
        lines.extend(serialize_commit(&self.actions(files)).unwrap());
        for marked in self.marked().iter() {
            let marked = MarkedFile { vector: descriptor(&marked.all_deleted()), ..marked.clone() };
            lines.extend(serialize_commit(&marked.actions(0).unwrap()).unwrap());
        }
        parse_commit(&lines.into(), Origin::Commit(version), Wanted::All).unwrap()
    }

    /// The files after the commit. The caller checks that removed files exist.
    fn apply(&self, files: &Files) -> Files {
        let mut files = files.clone();
        files.retain(|path, _| !self.removed.contains(path));
        files.extend(self.added.clone());
        for (path, (_, places)) in &self.marked {
            places.iter().for_each(|at| files.get_mut(path).unwrap()[*at] = None);
        }
        files
    }

    /// Marks the rows where winners have moved them.
    fn follow_moved_rows(&mut self, moved: &Moved, now: &Files) {
        for (path, (rows, places)) in std::mem::take(&mut self.marked) {
            for at in places {
                let (path, at) = moved.get(&(path.clone(), at)).cloned().unwrap_or_else(|| (path.clone(), at));
                let rows = now.get(&path).unwrap_or(&rows).clone();
                self.marked.entry(path).or_insert_with(|| (rows, BTreeSet::new())).1.insert(at);
            }
        }
    }

    fn is_nothing(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty() && self.marked.is_empty()
    }
}

fn rows(files: &Files) -> Vec<Row> {
    let mut rows: Vec<Row> = files.values().flatten().flatten().copied().collect();
    rows.sort_unstable();
    rows
}

fn row() -> impl Strategy<Value = Row> {
    (prop::sample::select(vec!['a', 'b']), 0..6_i64)
}

fn operation() -> impl Strategy<Value = Operation> {
    let condition = 0..CONDITIONS.len();
    let some = || prop::collection::vec(row(), 1..3);
    prop_oneof![
        some().prop_map(Operation::Append),
        condition.clone().prop_map(Operation::Delete),
        condition.clone().prop_map(Operation::Update),
        condition.clone().prop_map(Operation::Mark),
        condition.clone().prop_map(Operation::Move),
        (condition, prop::sample::select(vec!['a', 'b'])).prop_map(|(c, p)| Operation::Count(c, p)),
        some().prop_map(Operation::Overwrite),
        prop::sample::select(vec!['a', 'b']).prop_map(Operation::Optimize),
        (0..4_usize).prop_map(Operation::Drop),
    ]
}

fn table() -> impl Strategy<Value = Files> {
    prop::collection::vec((prop::sample::select(vec!['a', 'b']), prop::collection::vec(0..6_i64, 1..4)), 0..5).prop_map(
        |files| {
            let rows = |p: char, xs: Vec<i64>| xs.into_iter().map(|x| Some((p, x))).collect();
            files.into_iter().enumerate().map(|(n, (p, xs))| (format!("f{n}"), rows(p, xs))).collect()
        },
    )
}

/// The new positions of rows that an OPTIMIZE moved, by old file and position.
type Moved = BTreeMap<(String, usize), (String, usize)>;

/// The new positions of the rows that an OPTIMIZE of `files` moved: it concatenates the files that it removes.
fn moved(optimize: &Prepared, files: &Files) -> Moved {
    let live = |path: &String| {
        let rows = files[path].clone().into_iter().enumerate();
        rows.filter(|(_, row)| row.is_some()).map(|(at, _)| (path.clone(), at)).collect::<Vec<_>>()
    };
    let (from, to) = (optimize.removed.iter().flat_map(live), optimize.added.keys().next());
    from.enumerate().filter_map(|(at, old)| Some((old, (to?.clone(), at)))).collect()
}

/// The input of the conflict check for a winner: deletion vectors, the rows of this commit that the winner moved, and whether
/// rows that it added match.
fn found(pending: &Pending, winner: &CommitActions, places: &Moved, files: &Files) -> WinnerRows {
    let mut rows = vectors(pending, winner);
    for from in pending.moved_rows(winner).unwrap().into_iter().flat_map(|moved| moved.from) {
        let mut by_file: BTreeMap<&String, Vec<u64>> = BTreeMap::new();
        for at in from.rows.iter() {
            let (path, at) = &places[&(from.add.path.clone(), at as usize)];
            by_file.entry(path).or_default().push(*at as u64);
        }
        rows.moved.extend(by_file.into_iter().map(|(path, at)| MarkedFile {
            add: action(path, &files[path], false),
            physical_rows: files[path].len() as u64,
            rows_deleted_before_commit: DeletionVector::default(),
            rows: at.into_iter().collect(),
            vector: None,
        }));
    }
    let added = pending.added_files(winner, &rows).unwrap();
    rows.no_added_row_matches = matches!(added, AddedFiles::Irrelevant);
    if let AddedFiles::Search(added) = added {
        let searched: Vec<_> = added.searches.iter().flat_map(|search| &search.predicates).collect();
        let is_searched = |sql: &str| predicate_of(sql).is_some_and(|predicate| searched.contains(&&predicate));
        let conditions: Vec<_> = CONDITIONS.iter().filter(|(sql, _)| is_searched(sql)).collect();
        assert_eq!(conditions.len(), searched.len());
        let mut live = added.files.iter().flat_map(|file| files[&file.path].iter().flatten());
        rows.no_added_row_matches = !live.any(|row| conditions.iter().any(|(_, holds)| holds(*row)));
    }
    rows
}

fn predicate_of(sql: &str) -> Option<BoundPredicate> {
    let ReadSet::Predicates(read) = predicates(&[sql], &[]) else { return None };
    read.searches.into_iter().flat_map(|search| search.predicates).next()
}

fn followed(mut pending: Pending, winner: &CommitActions) -> Result<()> {
    let known = vectors(&pending, winner);
    pending.check_and_rebase(winner, &known, 5)
}

proptest! {
    #![proptest_config(crate::cases(6000))]

    #[test]
    fn accepted_commits_are_serializable(
        base in table(),
        own in operation(),
        winners in prop::collection::vec(operation(), 1..4),
        tracks_rows: bool,
    ) {
        let prepared = own.prepare(&base, "own");
        let mut mine = own.prepare(&base, "own");
        // An operation without effects commits nothing.
        if mine.is_nothing() {
            return Ok(());
        }
        let mut pending = prepared.pending_on(&base, IsolationLevel::Serializable, tracks_rows);
        let mut now = base;
        for (n, winner) in winners.iter().enumerate() {
            let winner = winner.prepare(&now, &format!("w{n}"));
            let version = 5 + n as u64;
            let committed = winner.committed(&now, version);
            let places = if winner.data_change { Moved::new() } else { moved(&winner, &now) };
            now = winner.apply(&now);
            let known = found(&pending, &committed, &places, &now);
            if pending.check_and_rebase(&committed, &known, version).is_err() {
                return Ok(());
            }
            mine.follow_moved_rows(&places, &now);
        }
        for path in mine.removed.iter().chain(mine.marked.keys()) {
            prop_assert!(now.contains_key(path), "{path} is removed already");
        }
        prop_assert_eq!(pending.marked.len(), mine.marked.len());
        for marked in pending.marked.iter() {
            let own: DeletionVector = mine.marked[&marked.add.path].1.iter().map(|at| *at as u64).collect();
            prop_assert_eq!(&marked.rows, &own);
            // The marked file agrees with the table, and its rows are still live.
            let (rows, places) = (&now[&marked.add.path], &mine.marked[&marked.add.path].1);
            prop_assert_eq!(&vector(rows), &marked.rows_deleted_before_commit);
            prop_assert!(places.iter().all(|at| rows[*at].is_some()), "a row is deleted twice");
            prop_assert_eq!(&marked.add.deletion_vector, &descriptor(&marked.rows_deleted_before_commit));
        }
        let left = mine.apply(&now);
        let Operation::Drop(_) = own else {
            prop_assert_eq!(rows(&left), rows(&own.prepare(&now, "again").apply(&now)));
            return Ok(());
        };
    }

    /// Commits that mark different rows of one file do not conflict.
    #[test]
    fn marks_of_different_rows_of_one_file_do_not_conflict(xs in prop::collection::vec(0..6_i64, 2..8), own in 0..6_i64, others in prop::collection::vec(0..6_i64, 1..4)) {
        let rows: Vec<Option<Row>> = xs.iter().map(|x| Some(('a', *x))).collect();
        let places = |x: i64| -> BTreeSet<usize> { (0..xs.len()).filter(|at| xs[*at] == x).collect() };
        let base = Files::from([("f".to_owned(), rows)]);
        let mark = |files: &Files, x: i64| Prepared {
            read: predicates(&[&format!("x = {x}")], &[]),
            removed: BTreeSet::new(),
            added: Files::new(),
            data_change: true,
            marked: BTreeMap::from([("f".to_owned(), (files["f"].clone(), places(x)))]),
        };
        if others.contains(&own) || places(own).is_empty() {
            return Ok(());
        }
        let (mut pending, mut now) = (mark(&base, own).pending(&base, IsolationLevel::Serializable), base.clone());
        for (version, x) in (5..).zip(others) {
            let winner = mark(&now, x);
            if winner.marked["f"].1.is_empty() || winner.marked["f"].1.iter().any(|at| now["f"][*at].is_none()) {
                continue;
            }
            let committed = winner.committed(&now, version);
            let known = vectors(&pending, &committed);
            prop_assert!(pending.check_and_rebase(&committed, &known, version).is_ok());
            now = winner.apply(&now);
        }
        prop_assert_eq!(&pending.marked.get("f").unwrap().rows_deleted_before_commit, &vector(&now["f"]));
    }

    #[test]
    fn a_blind_append_follows_any_operation(base in table(), added in prop::collection::vec(row(), 1..3), winner in operation()) {
        let mut pending = Operation::Append(added).prepare(&base, "own").pending(&base, IsolationLevel::Serializable);
        prop_assert!(pending.check_and_rebase(&winner.prepare(&base, "w").committed(&base, 5), &WinnerRows::default(), 5).is_ok());
    }

    #[test]
    fn removes_of_the_same_file_conflict_in_either_order(base in table(), one in operation(), other in operation()) {
        let (a, b) = (one.prepare(&base, "a"), other.prepare(&base, "b"));
        if a.removed.is_disjoint(&b.removed) {
            return Ok(());
        }
        let (after_b, after_a) = (b.committed(&base, 5), a.committed(&base, 5));
        prop_assert!(followed(a.pending(&base, IsolationLevel::WriteSerializable), &after_b).is_err());
        prop_assert!(followed(b.pending(&base, IsolationLevel::WriteSerializable), &after_a).is_err());
    }

    #[test]
    fn a_weaker_level_never_refuses_more(base in table(), own in operation(), winner in operation()) {
        let winner = winner.prepare(&base, "w").committed(&base, 5);
        let verdict = |level| followed(own.prepare(&base, "own").pending(&base, level), &winner).is_ok();
        let levels = [IsolationLevel::Serializable, IsolationLevel::WriteSerializable, IsolationLevel::SnapshotIsolation];
        prop_assert!(levels.map(verdict).is_sorted());
    }
}
