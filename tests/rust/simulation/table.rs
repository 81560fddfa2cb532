//! Tiny tables, row by row, and the operations on them: what a commit was to do, told without any action of a log.
//!
//! An operation can be done again on any state. That is the referee: what stands in the log at a version must leave the
//! rows that doing its operation on the version before leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use deltic_protocol::action::{Action, Add, DomainMetadata, Metadata, PartitionValues, Protocol, Remove, Txn};
use deltic_protocol::commit::{MarkedFile, MarkedFiles, PredicatesRead, ReadSet};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::{BoundPredicate, parse};
use deltic_protocol::property::Properties;
use serde_json::json;

use crate::random::Random;

/// `p` and `x`, and the transaction that first wrote the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) p: char,
    pub(crate) x: i64,
    pub(crate) born: usize,
}

/// The rows of each file in their places, `None` where one is gone.
pub(crate) type Files = BTreeMap<String, Vec<Option<Row>>>;

/// Files that stay, and the places of the rows that go.
type Marked = BTreeMap<String, BTreeSet<usize>>;

/// A predicate's text and what it says of a row.
type Condition = (&'static str, fn(&Row) -> bool);

const CONDITIONS: &[Condition] = &[
    ("p = 'a'", |r| r.p == 'a'),
    ("p = 'b'", |r| r.p == 'b'),
    ("x = 2", |r| r.x == 2),
    ("x > 3", |r| r.x > 3),
    ("p = 'a' AND x < 3", |r| r.p == 'a' && r.x < 3),
    ("x IN (1, 5) OR p = 'b' AND x = 0", |r| r.x == 1 || r.x == 5 || r.p == 'b' && r.x == 0),
];

/// How a simulation's table is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Design {
    pub(crate) partitioned: bool,
    /// Whether rows are tracked and commits carry times.
    pub(crate) featured: bool,
}

/// Columns and conditions of a partitioned table, and of one that is not.
static SHAPES: LazyLock<[(TableShape, Vec<BoundPredicate>); 2]> = LazyLock::new(|| {
    [false, true].map(|partitioned| {
        let metadata = metadata(Design { partitioned, featured: false });
        let shape = TableShape {
            schema: metadata.schema().unwrap(),
            mapping: Properties::of(&metadata).column_mapping_mode().unwrap(),
            partition_columns: metadata.partition_columns,
        };
        let conditions = CONDITIONS.iter().map(|(text, _)| parse(text).unwrap().bind(&shape.schema).unwrap()).collect();
        (shape, conditions)
    })
});

fn metadata(design: Design) -> Metadata {
    let field = |name: &str, of: &str| json!({"name": name, "type": of, "nullable": true, "metadata": {}});
    let schema = json!({"type": "struct", "fields": [field("p", "string"), field("x", "long")]});
    let partitions: &[&str] = if design.partitioned { &["p"] } else { &[] };
    let configuration = match design.featured {
        true => json!({"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version"}),
        false => json!({}),
    };
    let metadata = json!({"id": "t", "schemaString": schema.to_string(), "partitionColumns": partitions,
        "configuration": configuration});
    serde_json::from_value(metadata).unwrap()
}

fn protocol(design: Design) -> Protocol {
    let mut features = vec!["appendOnly", "invariants", "domainMetadata"];
    features.extend(if design.featured { &["inCommitTimestamp", "rowTracking"][..] } else { &[] });
    let protocol = json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features});
    serde_json::from_value(protocol).unwrap()
}

/// A version of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) files: Files,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) features: BTreeSet<String>,
    pub(crate) apps: BTreeMap<String, i64>,
    pub(crate) domains: BTreeMap<String, String>,
}

impl State {
    pub(crate) fn rows(&self) -> Vec<(char, i64)> {
        sorted(self.files.values().flatten().flatten())
    }

    /// Without the rows that some transactions wrote; what is left of them on the right.
    pub(crate) fn without(&self, born: &BTreeSet<usize>) -> (Self, Vec<(char, i64)>) {
        let mut rest = self.clone();
        rest.files.values_mut().for_each(|rows| rows.retain(|row| row.is_none_or(|r| !born.contains(&r.born))));
        rest.files.retain(|_, rows| rows.iter().any(Option::is_some));
        let left = sorted(self.files.values().flatten().flatten().filter(|r| born.contains(&r.born)));
        (rest, left)
    }
}

fn sorted<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(char, i64)> {
    let mut rows: Vec<_> = rows.map(|r| (r.p, r.x)).collect();
    rows.sort_unstable();
    rows
}

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// The table is made, with a few rows.
    Create(Vec<(char, i64)>),
    /// Rows come.
    Append(Vec<(char, i64)>),
    /// Rows come, and an application moves on by one.
    AppendOnce(&'static str, Vec<(char, i64)>),
    /// Rows that match go; the others of their files are written anew.
    Delete(usize),
    /// `x` of rows that match grows by ten.
    Update(usize),
    /// Rows that match go, marked in their files.
    Mark(usize),
    /// The same, and they come again with `x` grown by ten.
    Move(usize),
    /// A row with `x` the number of rows that match comes.
    Count(usize, char),
    /// All rows go and others come.
    Overwrite(Vec<(char, i64)>),
    /// Files become one; no row changes.
    Optimize(char),
    /// One file goes, whatever is in it.
    Drop(usize),
    /// A property is set.
    Set(&'static str, &'static str),
    /// A feature is added.
    AddFeature(&'static str),
    /// The number in a metadata domain grows by one.
    Advance(&'static str),
}

/// What a transaction has read and does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    pub(crate) read: ReadSet,
    /// The rows that it went by.
    pub(crate) observed: Vec<(char, i64)>,
    pub(crate) removed: BTreeSet<String>,
    pub(crate) added: Files,
    pub(crate) marked: Marked,
    pub(crate) rearranges: bool,
    properties: Option<BTreeMap<String, String>>,
    feature: Option<String>,
    app: Option<(String, i64)>,
    domain: Option<(String, String)>,
    creates: bool,
}

/// Who prepares: the number of the transaction, by which new files are named, and the table's design.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author {
    pub(crate) born: usize,
    pub(crate) design: Design,
}

impl Author {
    fn add(self, files: &mut Files, name: &str, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            let name = if self.design.partitioned { format!("{name}-{}", row.p) } else { name.to_owned() };
            files.entry(name).or_default().push(Some(row));
        }
    }

    fn fresh(self, rows: &[(char, i64)]) -> impl Iterator<Item = Row> {
        rows.iter().map(move |&(p, x)| Row { p, x, born: self.born })
    }
}

impl Operation {
    pub(crate) fn random(random: &mut Random) -> Self {
        let rows = |random: &mut Random| -> Vec<(char, i64)> {
            let count = 1 + random.below(2);
            (0..count).map(|_| (random.pick(&['a', 'b']), random.below(6) as i64)).collect()
        };
        let condition = random.below(CONDITIONS.len());
        match random.below(25) {
            20..23 => Self::Mark(condition),
            23..25 => Self::Move(condition),
            0..4 => Self::Append(rows(random)),
            4 => Self::AppendOnce(random.pick(&["etl", "cdc"]), rows(random)),
            5..7 => Self::Delete(condition),
            7..10 => Self::Update(condition),
            10..12 => Self::Count(condition, random.pick(&['a', 'b'])),
            12 => Self::Overwrite(rows(random)),
            13..16 => Self::Optimize(random.pick(&['a', 'b'])),
            16 => Self::Drop(random.below(4)),
            17 => {
                let (key, value) = random.pick(&[
                    ("delta.appendOnly", "true"),
                    ("delta.checkpointInterval", "20"),
                    ("delta.logRetentionDuration", "interval 9 days"),
                    ("team", "blue"),
                ]);
                Self::Set(key, value)
            }
            18 => Self::AddFeature(random.pick(&["vacuumProtocolCheck", "deletionVectors"])),
            _ => Self::Advance(random.pick(&["one", "two"])),
        }
    }

    pub(crate) fn append(random: &mut Random) -> Self {
        Self::Append(vec![(random.pick(&['a', 'b']), random.below(6) as i64)])
    }

    /// What the operation does to this state; `None` if there is nothing to do, or the table does not allow it.
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
            Self::Mark(at) => mark(&mut done, on, by, *at, &|_| None),
            Self::Move(at) => mark(&mut done, on, by, *at, &|r| Some(Row { x: r.x + 10, ..r })),
            Self::Delete(at) => rewrite(&mut done, on, by, *at, &|_| None),
            Self::Update(at) => rewrite(&mut done, on, by, *at, &|r| Some(Row { x: r.x + 10, ..r })),
            Self::Count(at, p) => {
                let found = look(&mut done, on, by, *at);
                let count = found.iter().flat_map(|f| &on.files[f]).flatten().filter(|r| CONDITIONS[*at].1(r)).count();
                by.add(&mut done.added, &name, by.fresh(&[(*p, count as i64)]));
            }
            Self::Overwrite(rows) => {
                done.read = ReadSet::WholeTable;
                done.observed = on.rows();
                done.removed = on.files.keys().cloned().collect();
                by.add(&mut done.added, &name, by.fresh(rows));
            }
            Self::Optimize(p) => {
                let files =
                    on.files.iter().filter(|(_, rows)| rows.iter().flatten().next().is_some_and(|row| row.p == *p));
                done.removed = files.map(|(file, _)| file.clone()).collect();
                done.read = ReadSet::Files(done.removed.iter().cloned().collect());
                let rows: Vec<Row> = done.removed.iter().flat_map(|f| on.files[f].clone()).flatten().collect();
                by.add(&mut done.added, &name, rows);
                done.rearranges = true;
            }
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
        }
        let append_only = on.properties.get("delta.appendOnly").is_some_and(|v| v == "true");
        let is_allowed = (done.removed.is_empty() && done.marked.is_empty()) || done.rearranges || !append_only;
        (is_allowed && !done.says_nothing()).then_some(done)
    }
}

/// Reads by a condition; the files that hold matching rows.
fn look(done: &mut Prepared, on: &State, by: Author, condition: usize) -> Vec<String> {
    let holds = CONDITIONS[condition].1;
    let found: Vec<String> =
        on.files.iter().filter(|(_, rows)| rows.iter().flatten().any(holds)).map(|(f, _)| f.clone()).collect();
    let (shape, bound) = &SHAPES[usize::from(by.design.partitioned)];
    let (predicates, files) = (vec![bound[condition].clone()], found.iter().cloned().collect());
    done.read = ReadSet::Predicates(PredicatesRead { shape: shape.clone(), predicates, files });
    done.observed = sorted(on.files.values().flatten().flatten().filter(|r| holds(r)));
    found
}

/// Marks rows that match, and writes what comes in their place. A file with no other row goes.
fn mark(done: &mut Prepared, on: &State, by: Author, condition: usize, again: &dyn Fn(Row) -> Option<Row>) {
    let mut gone = Vec::new();
    for (n, file) in look(done, on, by, condition).into_iter().enumerate() {
        let rows = &on.files[&file];
        let matches = |row: &Option<Row>| row.as_ref().is_some_and(CONDITIONS[condition].1);
        let places: BTreeSet<usize> = (0..rows.len()).filter(|at| matches(&rows[*at])).collect();
        by.add(&mut done.added, &format!("t{}.{n}", by.born), places.iter().filter_map(|at| again(rows[*at]?)));
        if places.len() == rows.iter().flatten().count() {
            done.removed.insert(file.clone());
            gone.push(file);
        } else {
            done.marked.insert(file, places);
        }
    }
    // Files that stay are read row by row.
    if let ReadSet::Predicates(read) = &mut done.read {
        read.files = gone.into_iter().collect();
    }
}

fn rewrite(done: &mut Prepared, on: &State, by: Author, condition: usize, change: &dyn Fn(Row) -> Option<Row>) {
    for (n, file) in look(done, on, by, condition).into_iter().enumerate() {
        let anew = |row: &Row| if CONDITIONS[condition].1(row) { change(*row) } else { Some(*row) };
        let rows: Vec<Row> = on.files[&file].iter().flatten().filter_map(anew).collect();
        by.add(&mut done.added, &format!("t{}.{n}", by.born), rows);
        done.removed.insert(file);
    }
}

impl Prepared {
    fn says_nothing(&self) -> bool {
        let Self { removed, added, marked, properties, feature, app, domain, .. } = self;
        let nothing_else = properties.is_none() && feature.is_none() && app.is_none() && domain.is_none();
        removed.is_empty() && added.is_empty() && marked.is_empty() && nothing_else
    }

    /// Whether it read no row and takes none away, so that others may pass it under WriteSerializable.
    pub(crate) fn is_blind(&self) -> bool {
        self.read.is_nothing() && self.removed.is_empty() && self.marked.is_empty()
    }

    pub(crate) fn changes_metadata(&self) -> bool {
        self.properties.is_some()
    }

    /// The state after it. That the files it removes are there is checked by the caller.
    pub(crate) fn apply(&self, on: &State, design: Design) -> State {
        let mut after = on.clone();
        after.files.retain(|file, _| !self.removed.contains(file));
        after.files.extend(self.added.clone());
        for (file, places) in &self.marked {
            let Some(rows) = after.files.get_mut(file) else { continue };
            for at in places {
                rows.get_mut(*at).and_then(Option::take);
            }
        }
        after.properties = self.properties.clone().unwrap_or(after.properties);
        if self.creates {
            after.features = protocol(design).writer_features.unwrap_or_default().into_iter().collect();
        }
        after.features.extend(self.feature.clone());
        after.apps.extend(self.app.clone());
        after.domains.extend(self.domain.clone());
        after
    }

    /// The actions, on a table that has this protocol and metadata. `shy` leaves bounds out of the statistics.
    pub(crate) fn actions(
        &self,
        on: Option<(&Protocol, &Metadata)>,
        files: &Known,
        design: Design,
        shy: bool,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.creates || self.feature.is_some() {
            let mut protocol = on.map_or_else(|| protocol(design), |(protocol, _)| protocol.clone());
            protocol.writer_features.get_or_insert_default().extend(self.feature.clone());
            if self.feature.is_some() {
                protocol.min_reader_version = 3;
                protocol.reader_features.get_or_insert_default().extend(self.feature.clone());
            }
            actions.push(Action::Protocol(protocol));
        }
        if let Some(properties) = &self.properties {
            let metadata = on.map_or_else(|| metadata(design), |(_, metadata)| metadata.clone());
            actions.push(Action::Metadata(Metadata { configuration: properties.clone(), ..metadata }));
        }
        if let Some((app_id, version)) = self.app.clone() {
            actions.push(Action::Txn(Txn { app_id, version, last_updated: None }));
        }
        if let Some((domain, configuration)) = self.domain.clone() {
            actions.push(Action::DomainMetadata(DomainMetadata { domain, configuration, removed: false }));
        }
        let data_change = !self.rearranges;
        actions.extend(self.removed.iter().map(|path| {
            let known = files.get(path).cloned().unwrap_or_default();
            let (deletion_vector, base_row_id) = (known.deletion_vector, known.base_row_id);
            let default_row_commit_version = known.default_row_commit_version;
            let path = path.clone();
            Action::Remove(Remove {
                path,
                data_change,
                deletion_vector,
                base_row_id,
                default_row_commit_version,
                ..Remove::default()
            })
        }));
        actions.extend(self.added.iter().map(|(path, rows)| {
            let rows: Vec<Row> = rows.iter().flatten().copied().collect();
            let partition_values = match design.partitioned {
                true => PartitionValues::from([("p".to_owned(), Some(rows[0].p.to_string()))]),
                false => PartitionValues::new(),
            };
            let stats = Some(statistics(&rows, design, shy));
            Action::Add(Add { path: path.clone(), partition_values, data_change, stats, ..Add::default() })
        }));
        actions
    }

    /// The files that stay and lose rows, on a table that has these rows and says so of its files.
    pub(crate) fn marked_files(&self, on: &State, files: &Known) -> MarkedFiles {
        let mut marked = MarkedFiles::default();
        for (path, places) in &self.marked {
            let rows = &on.files[path];
            let before = (0..).zip(rows).filter(|(_, row)| row.is_none()).map(|(at, _)| at).collect();
            let gone = places.iter().map(|at| *at as u64).collect();
            let add = Add { size: 1, ..files[path].clone() };
            marked.mark(MarkedFile { add, stored: rows.len() as u64, before, rows: gone, vector: None });
        }
        marked
    }
}

/// What the log says of files.
pub(crate) type Known = BTreeMap<String, Add>;

fn statistics(rows: &[Row], design: Design, shy: bool) -> String {
    let mut stats = json!({"numRecords": rows.len()});
    if !shy {
        let (least, most) = (rows.iter().map(|r| r.x).min(), rows.iter().map(|r| r.x).max());
        (stats["minValues"], stats["maxValues"]) = (json!({"x": least}), json!({"x": most}));
        stats["nullCount"] = json!({"x": 0});
        if !design.partitioned {
            stats["minValues"]["p"] = json!(rows.iter().map(|r| r.p).min());
            stats["maxValues"]["p"] = json!(rows.iter().map(|r| r.p).max());
            stats["nullCount"]["p"] = json!(0);
        }
    }
    stats.to_string()
}
