//! A referee for the conflict rules: tiny tables whose operations are run for real, row by row.
//!
//! If a commit may follow its winners, the table it leaves must be the one that doing the same operation after them
//! leaves, and every winner must have been made on the table as it then was.

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit, print_commit};
use deltic_protocol::action::{Action, Add, CommitInfo, PartitionValues, Remove};
use deltic_protocol::commit::{Actions, Pending, ReadSet};
use deltic_protocol::property::IsolationLevel;
use proptest::prelude::*;
use serde_json::json;

use super::{predicates, state};

/// `p` and `x`.
type Row = (char, i64);

/// The rows of each file; a file has one `p`.
type Files = BTreeMap<String, Vec<Row>>;

/// Conditions in SQL and in Rust.
/// A predicate's text and what it says of a row.
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
    /// Rows come.
    Append(Vec<Row>),
    /// Rows that match go; the others of their files are written anew.
    Delete(usize),
    /// `x` of rows that match grows by ten.
    Update(usize),
    /// A row with `x` the number of rows that match comes.
    Count(usize, char),
    /// All rows go and others come.
    Overwrite(Vec<Row>),
    /// The files of a partition become one.
    Optimize(char),
    /// The largest file goes, whatever is in it.
    Drop(usize),
}

/// A commit as it is prepared.
struct Prepared {
    read: ReadSet,
    removed: BTreeSet<String>,
    added: Files,
    data_change: bool,
}

impl Operation {
    /// What the operation does to these files. `tag` makes new names.
    fn prepare(&self, files: &Files, tag: &str) -> Prepared {
        let mut done =
            Prepared { read: ReadSet::Nothing, removed: BTreeSet::new(), added: Files::new(), data_change: true };
        let rewrite = |done: &mut Prepared, condition: usize, change: &dyn Fn(Row) -> Option<Row>| {
            let (text, holds) = CONDITIONS[condition];
            let found: Vec<&String> =
                files.iter().filter(|(_, rows)| rows.iter().any(|r| holds(*r))).map(|(f, _)| f).collect();
            let names: Vec<&str> = found.iter().map(|f| f.as_str()).collect();
            done.read = predicates(&[text], &names);
            for file in found {
                let rows: Vec<Row> =
                    files[file].iter().filter_map(|row| if holds(*row) { change(*row) } else { Some(*row) }).collect();
                done.removed.insert(file.clone());
                add(&mut done.added, &format!("{tag}-{file}"), rows);
            }
        };
        match self {
            Self::Append(rows) => add(&mut done.added, tag, rows.clone()),
            Self::Delete(condition) => rewrite(&mut done, *condition, &|_| None),
            Self::Update(condition) => rewrite(&mut done, *condition, &|(p, x)| Some((p, x + 10))),
            Self::Count(condition, p) => {
                let (text, holds) = CONDITIONS[*condition];
                let found = files.iter().filter(|(_, rows)| rows.iter().any(|r| holds(*r)));
                let names: Vec<&str> = found.map(|(f, _)| f.as_str()).collect();
                done.read = predicates(&[text], &names);
                let count = files.values().flatten().filter(|r| holds(**r)).count();
                add(&mut done.added, tag, vec![(*p, i64::try_from(count).unwrap())]);
            }
            Self::Overwrite(rows) => {
                done.read = ReadSet::WholeTable;
                done.removed = files.keys().cloned().collect();
                add(&mut done.added, tag, rows.clone());
            }
            Self::Optimize(p) => {
                let inside: Vec<&String> = files.iter().filter(|(_, rows)| rows[0].0 == *p).map(|(f, _)| f).collect();
                let rows = inside.iter().flat_map(|f| files[*f].clone()).collect();
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

/// One file for each partition of the rows.
fn add(files: &mut Files, name: &str, rows: Vec<Row>) {
    for row in rows {
        files.entry(format!("{name}-{}", row.0)).or_default().push(row);
    }
}

impl Prepared {
    fn actions(&self) -> Vec<Action> {
        let values = |p: char| PartitionValues::from([("p".to_owned(), Some(p.to_string()))]);
        let removes = self.removed.iter().map(|path| {
            Action::Remove(Remove { path: path.clone(), data_change: self.data_change, ..Remove::default() })
        });
        let adds = self.added.iter().map(|(path, rows)| {
            let (least, most) = (rows.iter().map(|r| r.1).min(), rows.iter().map(|r| r.1).max());
            let stats = json!({"numRecords": rows.len(), "minValues": {"x": least}, "maxValues": {"x": most},
                "nullCount": {"x": 0}});
            Action::Add(Add {
                path: path.clone(),
                partition_values: values(rows[0].0),
                data_change: self.data_change,
                stats: Some(stats.to_string()),
                ..Add::default()
            })
        });
        removes.chain(adds).collect()
    }

    fn pending(self, isolation: IsolationLevel) -> Pending {
        let actions = Actions::of(self.actions()).unwrap();
        Pending { state: Some(state("1,2")), read: self.read, read_apps: Default::default(), isolation, actions }
    }

    fn committed(&self, version: u64) -> CommitActions {
        let blind = self.read.is_nothing() && self.removed.is_empty();
        let info = json!({"isBlindAppend": blind}).as_object().unwrap().clone();
        let mut lines = print_commit(&[Action::CommitInfo(CommitInfo(info))]).unwrap();
        lines.extend(print_commit(&self.actions()).unwrap());
        parse_commit(&lines.into(), Origin::Commit(version), Wanted::All).unwrap()
    }

    /// The table after it. That a removed file is there is checked by the caller.
    fn apply(&self, files: &Files) -> Files {
        let mut files = files.clone();
        files.retain(|path, _| !self.removed.contains(path));
        files.extend(self.added.clone());
        files
    }
}

fn rows(files: &Files) -> Vec<Row> {
    let mut rows: Vec<Row> = files.values().flatten().copied().collect();
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
        (condition, prop::sample::select(vec!['a', 'b'])).prop_map(|(c, p)| Operation::Count(c, p)),
        some().prop_map(Operation::Overwrite),
        prop::sample::select(vec!['a', 'b']).prop_map(Operation::Optimize),
        (0..4_usize).prop_map(Operation::Drop),
    ]
}

fn table() -> impl Strategy<Value = Files> {
    prop::collection::vec((prop::sample::select(vec!['a', 'b']), prop::collection::vec(0..6_i64, 1..4)), 0..5).prop_map(
        |files| {
            let rows = |p: char, xs: Vec<i64>| xs.into_iter().map(|x| (p, x)).collect();
            files.into_iter().enumerate().map(|(n, (p, xs))| (format!("f{n}"), rows(p, xs))).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_let_through_is_serialisable(
        base in table(),
        own in operation(),
        winners in prop::collection::vec(operation(), 1..4),
    ) {
        let prepared = own.prepare(&base, "own");
        let mine = own.prepare(&base, "own");
        // Who changes nothing stands where it has read.
        if mine.removed.is_empty() && mine.added.is_empty() {
            return Ok(());
        }
        let mut pending = prepared.pending(IsolationLevel::Serializable);
        let mut now = base;
        for (n, winner) in winners.iter().enumerate() {
            let winner = winner.prepare(&now, &format!("w{n}"));
            now = winner.apply(&now);
            let version = 5 + n as u64;
            if pending.follow(&winner.committed(version), version).is_err() {
                return Ok(());
            }
        }
        for path in &mine.removed {
            prop_assert!(now.contains_key(path), "{path} is gone already");
        }
        let left = mine.apply(&now);
        let Operation::Drop(_) = own else {
            prop_assert_eq!(rows(&left), rows(&own.prepare(&now, "again").apply(&now)));
            return Ok(());
        };
    }

    #[test]
    fn a_blind_append_always_follows_rows(base in table(), added in prop::collection::vec(row(), 1..3), winner in operation()) {
        let mut pending = Operation::Append(added).prepare(&base, "own").pending(IsolationLevel::Serializable);
        prop_assert!(pending.follow(&winner.prepare(&base, "w").committed(5), 5).is_ok());
    }

    #[test]
    fn who_removes_the_same_file_collides_in_either_order(base in table(), one in operation(), other in operation()) {
        let (a, b) = (one.prepare(&base, "a"), other.prepare(&base, "b"));
        if a.removed.is_disjoint(&b.removed) {
            return Ok(());
        }
        let (after_b, after_a) = (b.committed(5), a.committed(5));
        prop_assert!(a.pending(IsolationLevel::WriteSerializable).follow(&after_b, 5).is_err());
        prop_assert!(b.pending(IsolationLevel::WriteSerializable).follow(&after_a, 5).is_err());
    }

    #[test]
    fn a_looser_level_never_refuses_more(base in table(), own in operation(), winner in operation()) {
        let winner = winner.prepare(&base, "w").committed(5);
        let verdict = |level| own.prepare(&base, "own").pending(level).follow(&winner, 5).is_ok();
        let levels = [IsolationLevel::Serializable, IsolationLevel::WriteSerializable, IsolationLevel::SnapshotIsolation];
        prop_assert!(levels.map(verdict).is_sorted());
    }
}
