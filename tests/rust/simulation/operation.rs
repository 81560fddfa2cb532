//! The operations on the tiny tables.
//!
//! An operation can be repeated on any state. The referee uses that: the version in the log must have the rows that its
//! operation gives on the version before.

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::Add;
use deltic_protocol::alter::restored;
use deltic_protocol::commit::{PredicatesRead, ReadSet};
use deltic_protocol::error::Result;
use deltic_protocol::replay::logical::LogicalFiles;

use crate::random::Random;
use crate::table::{Author, CONDITIONS, IS_MERGED, MERGED, Prepared, Row, SHAPES, State, metadata, sorted};
use crate::view::View;

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// The table is made, with a few rows.
    Create(Vec<(char, i64)>),
    /// Rows come.
    Append(Vec<(char, i64)>),
    /// Rows come, and an application moves on by one.
    AppendOnce(&'static str, Vec<(char, i64)>),
    /// Matching rows are deleted, by deletion vectors or by rewriting the other rows of their files.
    Delete(usize, Way),
    /// `x` of rows that match grows by ten: they go, and come again in other files.
    Update(usize, Way),
    /// Of the values that a merge brings, those that no row has come as rows of `p`, and its rows that have one of them
    /// become something else.
    Merge(char, Then, Way),
    /// A row with `x` the number of rows that match comes.
    Count(usize, char),
    /// All rows go and others come.
    Overwrite(Vec<(char, i64)>),
    /// Files become one; no row changes.
    Optimize(char),
    /// The files of each `p` become one. Those that others got to are left out then: only these are taken, by their paths.
    Compact(Option<Vec<BTreeSet<String>>>),
    /// One file goes, whatever is in it.
    Drop(usize),
    /// The table is again what it was so many versions ago.
    Restore(u64),
    /// A property is set.
    Set(&'static str, &'static str),
    /// A feature is added.
    AddFeature(&'static str),
    /// The number in a metadata domain grows by one.
    Advance(&'static str),
    /// The begin or end of a vacuum in the history.
    Vacuum(&'static str),
}

/// How rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Files are written again without them.
    Rewrites,
    /// They are marked in deletion vectors. A file with no other row goes.
    Marks,
}

/// What becomes of rows that match one of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Updates,
    Deletes,
    /// Nothing: only what is missing is inserted.
    Stays,
}

impl Operation {
    pub(crate) fn random(random: &mut Random) -> Self {
        let rows = |random: &mut Random| -> Vec<(char, i64)> {
            let count = 1 + random.below(2);
            (0..count).map(|_| (random.pick(&['a', 'b']), random.below(6) as i64)).collect()
        };
        let condition = random.below(CONDITIONS.len());
        let way = random.pick(&[Way::Rewrites, Way::Marks, Way::Marks]);
        match random.below(32) {
            0..4 => Self::Append(rows(random)),
            4 => Self::AppendOnce(random.pick(&["etl", "cdc"]), rows(random)),
            5..9 => Self::Delete(condition, way),
            9..13 => Self::Update(condition, way),
            13..18 => {
                let then = random.pick(&[Then::Updates, Then::Updates, Then::Deletes, Then::Stays]);
                Self::Merge(random.pick(&['a', 'b']), then, way)
            }
            18..20 => Self::Count(condition, random.pick(&['a', 'b'])),
            20 => Self::Overwrite(rows(random)),
            21..23 => Self::Optimize(random.pick(&['a', 'b'])),
            23..26 => Self::Compact(None),
            26 => Self::Drop(random.below(4)),
            27..29 => Self::Restore(1 + random.below(3) as u64),
            29 => {
                let (key, value) = random.pick(&[
                    ("delta.appendOnly", "true"),
                    ("delta.checkpointInterval", "20"),
                    ("delta.logRetentionDuration", "interval 9 days"),
                    ("team", "blue"),
                ]);
                Self::Set(key, value)
            }
            30 => Self::AddFeature(random.pick(&["vacuumProtocolCheck", "deletionVectors"])),
            _ => Self::Advance(random.pick(&["one", "two"])),
        }
    }

    pub(crate) fn append(random: &mut Random) -> Self {
        Self::Append(vec![(random.pick(&['a', 'b']), random.below(6) as i64)])
    }

    /// What the operation does to this state; `None` if there is nothing to do, or the table does not allow it. Going back
    /// to an older version takes more: [`restore`].
    pub(crate) fn prepare(&self, on: &State, by: Author) -> Option<Prepared> {
        let mut done = Prepared::default();
        let name = format!("t{}", by.born);
        match self {
            Self::Create(rows) => {
                done.creates = true;
                done.properties = Some(metadata(by.design).configuration);
                by.add(&mut done.added, &name, by.fresh(rows));
            }
            Self::Append(rows) => by.add(&mut done.added, &name, by.fresh(rows)),
            Self::AppendOnce(app, rows) => {
                by.add(&mut done.added, &name, by.fresh(rows));
                done.app = Some(((*app).to_owned(), on.apps.get(*app).map_or(1, |seen| seen + 1)));
            }
            Self::Delete(at, way) => {
                let found = look(&mut done, on, by, *at);
                change(&mut done, (on, by), found, (&CONDITIONS[*at].1, &|_| None), *way);
            }
            Self::Update(at, way) => {
                let found = look(&mut done, on, by, *at);
                change(&mut done, (on, by), found, (&CONDITIONS[*at].1, &|r| Some(Row { x: r.x + 10, ..r })), *way);
            }
            Self::Merge(p, then, way) => merge(&mut done, (on, by), (*p, *then), *way),
            Self::Count(at, p) => {
                let found = look(&mut done, on, by, *at);
                let count = found.iter().flat_map(|f| &on.files[f]).flatten().filter(|r| CONDITIONS[*at].1(r)).count();
                set_read_files(&mut done, found);
                by.add(&mut done.added, &name, by.fresh(&[(*p, count as i64)]));
            }
            Self::Overwrite(rows) => {
                done.read = ReadSet::WholeTable;
                done.observed = on.rows();
                done.removed = on.files.keys().cloned().collect();
                by.add(&mut done.added, &name, by.fresh(rows));
            }
            Self::Optimize(p) => rearrange(&mut done, on, by, &[files_of(on, *p)]),
            Self::Compact(None) => rearrange(&mut done, on, by, &['a', 'b'].map(|p| files_of(on, p))),
            Self::Compact(Some(bins)) => rearrange(&mut done, on, by, bins),
            Self::Drop(at) => {
                let file = on.files.keys().nth(at % on.files.len().max(1))?;
                done.read = ReadSet::Files([file.clone()].into_iter().collect());
                done.removed.insert(file.clone());
            }
            Self::Set(key, value) => {
                let mut properties = on.properties.clone();
                let before = properties.insert((*key).to_owned(), (*value).to_owned());
                done.properties = (before.as_deref() != Some(*value)).then_some(properties);
            }
            Self::AddFeature(feature) => {
                done.feature = (!on.features.contains(*feature)).then(|| (*feature).to_owned());
            }
            Self::Advance(domain) => {
                let before: u32 = on.domains.get(*domain).map_or(0, |value| value.parse().unwrap());
                done.domain = Some(((*domain).to_owned(), (before + 1).to_string()));
            }
            Self::Vacuum(told) => done.told = Some(told),
            Self::Restore(_) => return None,
        }
        (done.is_allowed_on(on) && !done.says_nothing()).then_some(done)
    }
}

impl Prepared {
    fn is_allowed_on(&self, on: &State) -> bool {
        let append_only = on.properties.get("delta.appendOnly").is_some_and(|v| v == "true");
        (self.removed.is_empty() && self.marked.is_empty()) || self.rearranges || !append_only
    }
}

/// What takes the table from one version back to another; `None` if that is not allowed. Which files go and come, and what
/// the metadata is then, is the code's that restores tables.
pub(crate) fn restore(on: &View, old: &View) -> Result<Option<Prepared>> {
    let of = |files: &BTreeMap<String, Add>| {
        let mut logical = LogicalFiles::default();
        files.values().for_each(|add| logical.insert(&add.path, add.deletion_vector.as_ref()));
        logical
    };
    let (now, then) = (of(&on.files), of(&old.files));
    let others = |files: &BTreeMap<String, Add>, than: &LogicalFiles| -> Vec<Add> {
        files.values().filter(|add| !than.has(&add.path, add.deletion_vector.as_ref())).cloned().collect()
    };
    let (protocol, metadata) = restored((&on.protocol, &on.metadata), (&old.protocol, &old.metadata), false)?;
    assert_eq!(protocol, None, "features are only added here");
    let returned = others(&old.files, &now).into_iter();
    let state = &old.seen.state;
    let done = Prepared {
        read: ReadSet::EveryFile,
        observed: on.seen.state.rows(),
        removed: others(&on.files, &then).into_iter().map(|add| add.path).collect(),
        returned: returned.map(|add| (add.path.clone(), (add.clone(), state.files[&add.path].clone()))).collect(),
        restores: Some(old.version),
        properties: Some(metadata.configuration),
        ..Prepared::default()
    };
    Ok(done.is_allowed_on(&on.seen.state).then_some(done))
}

/// The files whose first row has this `p`.
pub(crate) fn files_of(on: &State, p: char) -> BTreeSet<String> {
    let files = on.files.iter().filter(|(_, rows)| rows.iter().flatten().next().is_some_and(|row| row.p == p));
    files.map(|(file, _)| file.clone()).collect()
}

/// The rows of each bin of files come into another.
fn rearrange(done: &mut Prepared, on: &State, by: Author, bins: &[BTreeSet<String>]) {
    for (n, bin) in bins.iter().enumerate() {
        let rows: Vec<Row> = bin.iter().filter_map(|f| on.files.get(f)).flatten().flatten().copied().collect();
        by.add(&mut done.added, &format!("t{}.{n}", by.born), rows);
        done.removed.extend(bin.iter().cloned());
    }
    done.read = ReadSet::Files(done.removed.iter().cloned().collect());
    done.rearranges = true;
}

/// Reads by a condition; the files that hold matching rows.
fn look(done: &mut Prepared, on: &State, by: Author, condition: usize) -> Vec<String> {
    let holds = CONDITIONS[condition].1;
    let found: Vec<String> =
        on.files.iter().filter(|(_, rows)| rows.iter().flatten().any(holds)).map(|(f, _)| f.clone()).collect();
    let (shape, bound) = &SHAPES[usize::from(by.design.partitioned)];
    let (predicates, files) = (vec![bound[condition].clone()], Default::default());
    done.read = ReadSet::Predicates(PredicatesRead { shape: shape.clone(), predicates, files });
    done.observed = sorted(on.files.values().flatten().flatten().filter(|r| holds(r)));
    found
}

/// Files count as read that do not stay. Those that stay are read row by row.
fn set_read_files(done: &mut Prepared, files: Vec<String>) {
    if let ReadSet::Predicates(read) = &mut done.read {
        read.files = files.into_iter().collect();
    }
}

/// What hits a row, and what becomes of it.
type Changing<'c> = (&'c dyn Fn(&Row) -> bool, &'c dyn Fn(Row) -> Option<Row>);

/// Changes rows of files.
fn change(done: &mut Prepared, (on, by): (&State, Author), found: Vec<String>, (hits, again): Changing<'_>, way: Way) {
    let mut gone = Vec::new();
    for (n, file) in found.into_iter().enumerate() {
        let rows = &on.files[&file];
        let is_hit = |row: &Option<Row>| row.as_ref().is_some_and(hits);
        let places: BTreeSet<usize> = (0..rows.len()).filter(|at| is_hit(&rows[*at])).collect();
        if places.is_empty() {
            continue;
        }
        let is_whole = places.len() == rows.iter().flatten().count();
        let marks = way == Way::Marks && !is_whole;
        let anew = |row: &Row| if hits(row) { again(*row) } else { Some(*row).filter(|_| !marks) };
        by.add(&mut done.added, &format!("t{}.{n}", by.born), rows.iter().flatten().filter_map(anew));
        if marks {
            done.marked.insert(file, places);
        } else {
            done.removed.insert(file.clone());
            gone.push(file);
        }
    }
    set_read_files(done, gone);
}

fn merge(done: &mut Prepared, (on, by): (&State, Author), (p, then): (char, Then), way: Way) {
    let matches = CONDITIONS[IS_MERGED].1;
    let found = look(done, on, by, IS_MERGED);
    let hits = |row: &Row| then != Then::Stays && row.p == p && matches(row);
    let again = |row: Row| (then == Then::Updates).then_some(Row { x: row.x + 10, ..row });
    change(done, (on, by), found.clone(), (&hits, &again), way);
    // That no row is inserted depends on rows that match and stay.
    let stays = |file: &&String| on.files[*file].iter().flatten().any(|row| matches(row) && !hits(row));
    done.left_alone = found.iter().filter(stays).cloned().collect();
    let has = |x: i64| on.files.values().flatten().flatten().any(|row| row.x == x);
    let missing: Vec<(char, i64)> = MERGED.iter().filter(|x| !has(**x)).map(|x| (p, *x)).collect();
    by.add(&mut done.added, &format!("t{}", by.born), by.fresh(&missing));
}
