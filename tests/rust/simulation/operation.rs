//! The operations on the simulated table.
//!
//! An operation can be repeated on any state. The referee repeats it on the version before, and compares the rows with those
//! of the version in the log.

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::Add;
use deltic_protocol::alter::restored;
use deltic_protocol::commit::{PredicatesRead, ReadSet};
use deltic_protocol::error::Result;
use deltic_protocol::replay::logical::LogicalFiles;

use crate::random::Random;
use crate::table::{Author, CONDITIONS, MERGE_CONDITION, MERGE_SOURCE, Prepared, Row, SHAPES, State, metadata, sorted};
use crate::view::View;

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Creates the table with a few rows.
    Create(Vec<(char, i64)>),
    Append(Vec<(char, i64)>),
    /// Appends rows, and advances the `txn` version of an application by one.
    AppendOnce(&'static str, Vec<(char, i64)>),
    /// Deletes the rows that match a condition.
    Delete(usize, ChangeMethod),
    /// Adds ten to `x` of the rows that match a condition.
    Update(usize, ChangeMethod),
    /// Merges the values of [`MERGE_SOURCE`]. Values without a row are inserted with this `p`. Matched rows of this `p` are
    /// updated, deleted or kept.
    Merge(char, WhenMatched, ChangeMethod),
    /// Inserts a row whose `x` is the number of rows that match a condition.
    Count(usize, char),
    Overwrite(Vec<(char, i64)>),
    /// Rewrites the files of one `p` as one file.
    Optimize(char),
    /// Rewrites the files of each `p` as one file. After a conflict, only the given bins, by the paths of their files.
    Compact(Option<Vec<BTreeSet<String>>>),
    /// Removes one file with all its rows.
    Drop(usize),
    /// Restores the version that is so many versions older.
    Restore(u64),
    /// Sets a table property.
    Set(&'static str, &'static str),
    AddFeature(&'static str),
    /// Adds one to the number in a metadata domain.
    Advance(&'static str),
    /// The commit at the start or end of a vacuum.
    Vacuum(&'static str),
}

/// How rows are deleted or updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeMethod {
    /// By copy-on-write.
    Rewrite,
    /// By deletion vectors. A file without live rows is removed.
    Mark,
}

/// The action of a merge for matched rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenMatched {
    Update,
    Delete,
    Keep,
}

impl Operation {
    pub(crate) fn random(random: &mut Random) -> Self {
        let rows = |random: &mut Random| -> Vec<(char, i64)> {
            let count = 1 + random.below(2);
            (0..count).map(|_| (random.pick(&['a', 'b']), random.below(6) as i64)).collect()
        };
        let condition = random.below(CONDITIONS.len());
        let method = random.pick(&[ChangeMethod::Rewrite, ChangeMethod::Mark, ChangeMethod::Mark]);
        match random.below(32) {
            0..4 => Self::Append(rows(random)),
            4 => Self::AppendOnce(random.pick(&["etl", "cdc"]), rows(random)),
            5..9 => Self::Delete(condition, method),
            9..13 => Self::Update(condition, method),
            13..18 => {
                let when_matched =
                    random.pick(&[WhenMatched::Update, WhenMatched::Update, WhenMatched::Delete, WhenMatched::Keep]);
                Self::Merge(random.pick(&['a', 'b']), when_matched, method)
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

    /// The effects of the operation on this state; `None` if there is nothing to do, or the table does not allow it. For a
    /// restore see [`restore`].
    pub(crate) fn prepare(&self, on: &State, by: Author) -> Option<Prepared> {
        let mut done = Prepared::default();
        let name = format!("t{}", by.transaction);
        match self {
            Self::Create(rows) => {
                done.creates = true;
                done.properties = Some(metadata(by.design).configuration);
                by.add(&mut done.added, &name, by.new_rows(rows));
            }
            Self::Append(rows) => by.add(&mut done.added, &name, by.new_rows(rows)),
            Self::AppendOnce(app, rows) => {
                by.add(&mut done.added, &name, by.new_rows(rows));
                done.app = Some(((*app).to_owned(), on.apps.get(*app).map_or(1, |seen| seen + 1)));
            }
            Self::Delete(at, method) => {
                let found = read_matching(&mut done, on, by, *at);
                change(&mut done, (on, by), found, (&CONDITIONS[*at].1, &|_| None), *method);
            }
            Self::Update(at, method) => {
                let found = read_matching(&mut done, on, by, *at);
                change(&mut done, (on, by), found, (&CONDITIONS[*at].1, &|r| Some(Row { x: r.x + 10, ..r })), *method);
            }
            Self::Merge(p, when_matched, method) => merge(&mut done, (on, by), (*p, *when_matched), *method),
            Self::Count(at, p) => {
                let found = read_matching(&mut done, on, by, *at);
                let count = found.iter().flat_map(|f| &on.files[f]).flatten().filter(|r| CONDITIONS[*at].1(r)).count();
                set_read_files(&mut done, found);
                by.add(&mut done.added, &name, by.new_rows(&[(*p, count as i64)]));
            }
            Self::Overwrite(rows) => {
                done.read = ReadSet::AllRows;
                done.observed = on.rows();
                done.removed = on.files.keys().cloned().collect();
                by.add(&mut done.added, &name, by.new_rows(rows));
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
            Self::Vacuum(name) => done.operation_name = Some(name),
            Self::Restore(_) => return None,
        }
        (done.is_allowed_on(on) && !done.is_empty()).then_some(done)
    }
}

impl Prepared {
    fn is_allowed_on(&self, on: &State) -> bool {
        let append_only = on.properties.get("delta.appendOnly").is_some_and(|v| v == "true");
        (self.removed.is_empty() && self.marked.is_empty()) || self.rearranges || !append_only
    }
}

/// The effects of a restore of `old`; `None` if it is not allowed. The production code compares the files and chooses the
/// metadata.
pub(crate) fn restore(on: &View, old: &View) -> Result<Option<Prepared>> {
    let of = |files: &BTreeMap<String, Add>| {
        let mut logical = LogicalFiles::default();
        files.values().for_each(|add| {
            logical.insert(&add.path, add.deletion_vector.as_ref());
        });
        logical
    };
    let (now, then) = (of(&on.files), of(&old.files));
    let others = |files: &BTreeMap<String, Add>, than: &LogicalFiles| -> Vec<Add> {
        files.values().filter(|add| !than.contains(&add.path, add.deletion_vector.as_ref())).cloned().collect()
    };
    let (protocol, metadata) = restored((&on.protocol, &on.metadata), (&old.protocol, &old.metadata), false)?;
    assert_eq!(protocol, None, "features are only added here");
    let returned = others(&old.files, &now).into_iter();
    let state = &old.contents.state;
    let done = Prepared {
        read: ReadSet::AllFiles,
        observed: on.contents.state.rows(),
        removed: others(&on.files, &then).into_iter().map(|add| add.path).collect(),
        returned: returned.map(|add| (add.path.clone(), (add.clone(), state.files[&add.path].clone()))).collect(),
        restores: Some(old.version),
        properties: Some(metadata.configuration),
        ..Prepared::default()
    };
    Ok(done.is_allowed_on(&on.contents.state).then_some(done))
}

/// The files whose first row has this `p`.
pub(crate) fn files_of(on: &State, p: char) -> BTreeSet<String> {
    let files = on.files.iter().filter(|(_, rows)| rows.iter().flatten().next().is_some_and(|row| row.p == p));
    files.map(|(file, _)| file.clone()).collect()
}

/// Moves the rows of each bin of files to a new file.
fn rearrange(done: &mut Prepared, on: &State, by: Author, bins: &[BTreeSet<String>]) {
    for (n, bin) in bins.iter().enumerate() {
        let rows: Vec<Row> = bin.iter().rev().filter_map(|f| on.files.get(f)).flatten().flatten().copied().collect();
        by.add(&mut done.added, &format!("t{}.{n}", by.transaction), rows);
        done.removed.extend(bin.iter().cloned());
    }
    done.read = ReadSet::Files(done.removed.iter().cloned().collect());
    done.rearranges = true;
}

/// Adds a condition to the read set, and returns the files with matching rows.
fn read_matching(done: &mut Prepared, on: &State, by: Author, condition: usize) -> Vec<String> {
    let holds = CONDITIONS[condition].1;
    let found: Vec<String> =
        on.files.iter().filter(|(_, rows)| rows.iter().flatten().any(holds)).map(|(f, _)| f.clone()).collect();
    let (shape, bound) = &SHAPES[usize::from(by.design.partitioned)];
    let predicate = bound[condition].clone();
    done.read = ReadSet::Predicates(PredicatesRead::new(shape.clone(), predicate, Default::default()));
    done.observed = sorted(on.files.values().flatten().flatten().filter(|r| holds(r)));
    found
}

/// Adds removed files to the read set. In files that stay, only the matching rows count as read.
fn set_read_files(done: &mut Prepared, files: Vec<String>) {
    if let ReadSet::Predicates(read) = &mut done.read {
        read.files = files.into_iter().collect();
    }
}

/// Whether a row changes, and its new value: `None` deletes it.
type RowChange<'c> = (&'c dyn Fn(&Row) -> bool, &'c dyn Fn(Row) -> Option<Row>);

/// Changes rows of files.
fn change(
    done: &mut Prepared,
    (on, by): (&State, Author),
    found: Vec<String>,
    (is_changed, new_value): RowChange<'_>,
    method: ChangeMethod,
) {
    let mut rewritten = Vec::new();
    for (n, file) in found.into_iter().enumerate() {
        let rows = &on.files[&file];
        let is_match = |row: &Option<Row>| row.as_ref().is_some_and(is_changed);
        let places: BTreeSet<usize> = (0..rows.len()).filter(|at| is_match(&rows[*at])).collect();
        if places.is_empty() {
            continue;
        }
        let is_whole_file = places.len() == rows.iter().flatten().count();
        let marks = method == ChangeMethod::Mark && !is_whole_file;
        let new_row = |row: &Row| if is_changed(row) { new_value(*row) } else { Some(*row).filter(|_| !marks) };
        by.add(&mut done.added, &format!("t{}.{n}", by.transaction), rows.iter().flatten().filter_map(new_row));
        if marks {
            done.marked.insert(file, places);
        } else {
            done.removed.insert(file.clone());
            rewritten.push(file);
        }
    }
    set_read_files(done, rewritten);
}

fn merge(
    done: &mut Prepared,
    (on, by): (&State, Author),
    (p, when_matched): (char, WhenMatched),
    method: ChangeMethod,
) {
    let matches = CONDITIONS[MERGE_CONDITION].1;
    let found = read_matching(done, on, by, MERGE_CONDITION);
    let is_changed = |row: &Row| when_matched != WhenMatched::Keep && row.p == p && matches(row);
    let new_value = |row: Row| (when_matched == WhenMatched::Update).then_some(Row { x: row.x + 10, ..row });
    change(done, (on, by), found.clone(), (&is_changed, &new_value), method);
    // The merge depends on matched rows that stay: they prevent an insert.
    let stays = |file: &&String| on.files[*file].iter().flatten().any(|row| matches(row) && !is_changed(row));
    done.unchanged_matches = found.iter().filter(stays).cloned().collect();
    let has = |x: i64| on.files.values().flatten().flatten().any(|row| row.x == x);
    let missing: Vec<(char, i64)> = MERGE_SOURCE.iter().filter(|x| !has(**x)).map(|x| (p, *x)).collect();
    by.add(&mut done.added, &format!("t{}", by.transaction), by.new_rows(&missing));
}
