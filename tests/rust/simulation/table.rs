//! The model of a small table: its rows, and the effects of the operations of [`operation`](crate::operation) on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use deltic_protocol::action::{Action, Add, DomainMetadata, Metadata, PartitionValues, Protocol, Remove, Txn};
use deltic_protocol::commit::{MarkedFile, MarkedFiles, ReadSet};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::{BoundPredicate, parse};
use deltic_protocol::property::Properties;
use serde_json::json;

/// Columns `p` and `x`, and the row's identity, which updates keep: the transaction that inserted it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) p: char,
    pub(crate) x: i64,
    pub(crate) transaction: usize,
    pub(crate) n: usize,
}

impl Row {
    pub(crate) fn id(&self) -> (usize, usize) {
        (self.transaction, self.n)
    }
}

/// The rows of each file by position, `None` if deleted.
pub(crate) type Files = BTreeMap<String, Vec<Option<Row>>>;

/// The positions of the rows that a transaction marks as deleted, by file.
pub(crate) type Marked = BTreeMap<String, BTreeSet<usize>>;

/// A predicate as SQL and as a function of a row.
type Condition = (&'static str, fn(&Row) -> bool);

pub(crate) const CONDITIONS: &[Condition] = &[
    ("p = 'a'", |r| r.p == 'a'),
    ("p = 'b'", |r| r.p == 'b'),
    ("x = 2", |r| r.x == 2),
    ("x > 3", |r| r.x > 3),
    ("p = 'a' AND x < 3", |r| r.p == 'a' && r.x < 3),
    ("x IN (1, 5) OR p = 'b' AND x = 0", |r| r.x == 1 || r.x == 5 || r.p == 'b' && r.x == 0),
    ("x IN (2, 4)", |r| MERGE_SOURCE.contains(&r.x)),
];

/// The values of `x` in the source of a merge.
pub(crate) const MERGE_SOURCE: [i64; 2] = [2, 4];

/// The index in [`CONDITIONS`] of the condition that they match.
pub(crate) const MERGE_CONDITION: usize = 6;

/// Settings of a simulation's table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Design {
    pub(crate) partitioned: bool,
    /// Row tracking and in-commit timestamps.
    pub(crate) row_tracking: bool,
    /// Whether deletion vectors are stored in files, and not inline.
    pub(crate) vector_files: bool,
}

/// Columns and bound conditions of an unpartitioned and of a partitioned table.
pub(crate) static SHAPES: LazyLock<[(TableShape, Vec<BoundPredicate>); 2]> = LazyLock::new(|| {
    [false, true].map(|partitioned| {
        let metadata = metadata(Design { partitioned, row_tracking: false, vector_files: false });
        let shape = TableShape {
            schema: metadata.schema().unwrap(),
            mapping: Properties::of(&metadata).column_mapping_mode().unwrap(),
            partition_columns: metadata.partition_columns,
        };
        let conditions = CONDITIONS.iter().map(|(text, _)| parse(text).unwrap().bind(&shape.schema).unwrap()).collect();
        (shape, conditions)
    })
});

pub(crate) fn metadata(design: Design) -> Metadata {
    let field = |name: &str, of: &str| json!({"name": name, "type": of, "nullable": true, "metadata": {}});
    let schema = json!({"type": "struct", "fields": [field("p", "string"), field("x", "long")]});
    let partitions: &[&str] = if design.partitioned { &["p"] } else { &[] };
    let configuration = match design.row_tracking {
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
    features.extend(if design.row_tracking { &["inCommitTimestamp", "rowTracking"][..] } else { &[] });
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
    pub(crate) fn rows(&self) -> Vec<Row> {
        sorted(self.files.values().flatten().flatten())
    }

    /// The state without the rows that some transactions inserted, and these rows.
    pub(crate) fn without(&self, transactions: &BTreeSet<usize>) -> (Self, Vec<Row>) {
        let mut rest = self.clone();
        rest.files
            .values_mut()
            .for_each(|rows| rows.retain(|row| row.is_none_or(|r| !transactions.contains(&r.transaction))));
        rest.files.retain(|_, rows| rows.iter().any(Option::is_some));
        let removed = sorted(self.files.values().flatten().flatten().filter(|r| transactions.contains(&r.transaction)));
        (rest, removed)
    }
}

pub(crate) fn sorted<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.copied().collect();
    rows.sort_unstable();
    rows
}

/// The read set and the effects of a transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    pub(crate) read: ReadSet,
    /// The rows that the operation read and depends on.
    pub(crate) observed: Vec<Row>,
    pub(crate) removed: BTreeSet<String>,
    pub(crate) added: Files,
    pub(crate) marked: Marked,
    /// Files with rows that a merge matched and leaves unchanged.
    pub(crate) unchanged_matches: BTreeSet<String>,
    /// Files that a restore adds again.
    pub(crate) returned: BTreeMap<String, (Add, Vec<Option<Row>>)>,
    /// The version that is restored.
    pub(crate) restores: Option<u64>,
    pub(crate) rearranges: bool,
    /// The operation of the commit, for VACUUM.
    pub(crate) operation_name: Option<&'static str>,
    pub(crate) properties: Option<BTreeMap<String, String>>,
    pub(crate) feature: Option<String>,
    pub(crate) app: Option<(String, i64)>,
    pub(crate) domain: Option<(String, String)>,
    pub(crate) creates: bool,
}

/// The transaction that prepares an operation. Its id is part of the names of its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author {
    pub(crate) transaction: usize,
    pub(crate) design: Design,
}

impl Author {
    pub(crate) fn add(self, files: &mut Files, name: &str, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            let name = if self.design.partitioned { format!("{name}-{}", row.p) } else { name.to_owned() };
            files.entry(name).or_default().push(Some(row));
        }
    }

    pub(crate) fn new_rows(self, rows: &[(char, i64)]) -> impl Iterator<Item = Row> {
        rows.iter().enumerate().map(move |(n, &(p, x))| Row { p, x, transaction: self.transaction, n })
    }
}

impl Prepared {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { removed, added, marked, returned, operation_name, properties, feature, app, domain, .. } = self;
        let no_files = removed.is_empty() && added.is_empty() && marked.is_empty() && returned.is_empty();
        let nothing_else = properties.is_none() && feature.is_none() && app.is_none() && domain.is_none();
        no_files && nothing_else && operation_name.is_none()
    }

    /// The read set for the conflict check.
    pub(crate) fn read_set(&self) -> ReadSet {
        let mut read = self.read.clone();
        if !self.unchanged_matches.is_empty() {
            read.extend(ReadSet::Files(self.unchanged_matches.iter().cloned().collect()));
        }
        read
    }

    /// Whether it is a blind append, which under WriteSerializable may count as made later.
    pub(crate) fn is_blind(&self) -> bool {
        self.read.is_nothing() && self.removed.is_empty() && self.marked.is_empty()
    }

    pub(crate) fn changes_metadata(&self) -> bool {
        self.properties.is_some()
    }

    /// The same effects where winners have moved rows that it marks: the rows are marked in the files that have them now.
    /// `rows` has the original files. Only for tables with row tracking.
    pub(crate) fn follow_moved_rows(&self, on: &State, rows: &Files) -> Self {
        let places = |id: (usize, usize)| {
            let is_same = move |row: &Option<Row>| row.is_some_and(|row| row.id() == id);
            on.files.iter().find_map(|(file, rows)| Some((file.clone(), rows.iter().position(is_same)?)))
        };
        let mut marked = Marked::new();
        for (file, at) in self.marked.iter().flat_map(|(file, places)| places.iter().map(move |at| (file, *at))) {
            let moved = match on.files.contains_key(file) {
                true => None,
                false => rows.get(file).and_then(|rows| rows[at]).and_then(|row| places(row.id())),
            };
            let (file, at) = moved.unwrap_or_else(|| (file.clone(), at));
            marked.entry(file).or_default().insert(at);
        }
        Self { marked, ..self.clone() }
    }

    /// The state after the transaction. The caller checks that the files it removes exist.
    pub(crate) fn apply(&self, on: &State, design: Design) -> State {
        let mut after = on.clone();
        after.files.retain(|file, _| !self.removed.contains(file));
        after.files.extend(self.added.clone());
        after.files.extend(self.returned.iter().map(|(file, (_, rows))| (file.clone(), rows.clone())));
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

    /// The actions of the commit, on a table with this protocol and metadata. `omit_bounds` leaves minimum and maximum values
    /// out of the statistics.
    pub(crate) fn actions(
        &self,
        on: Option<(&Protocol, &Metadata)>,
        files: &AddsByPath,
        (design, omit_bounds): (Design, bool),
        now_ms: i64,
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
            let known = Add { path: path.clone(), ..files.get(path).cloned().unwrap_or_default() };
            Action::Remove(Remove { data_change, ..known.removed(now_ms) })
        }));
        actions.extend(self.returned.values().map(|(add, _)| Action::Add(Add { data_change, ..add.clone() })));
        actions.extend(self.added.iter().map(|(path, rows)| {
            let rows: Vec<Row> = rows.iter().flatten().copied().collect();
            let partition_values = match design.partitioned {
                true => PartitionValues::from([("p".to_owned(), Some(rows[0].p.to_string()))]),
                false => PartitionValues::new(),
            };
            let stats = Some(statistics(&rows, design, omit_bounds));
            Action::Add(Add { path: path.clone(), partition_values, data_change, stats, ..Add::default() })
        }));
        actions
    }

    /// The marked files of the commit.
    pub(crate) fn marked_files(&self, on: &State, files: &AddsByPath) -> MarkedFiles {
        let mut marked = MarkedFiles::default();
        for (path, places) in &self.marked {
            let rows = &on.files[path];
            let before = (0..).zip(rows).filter(|(_, row)| row.is_none()).map(|(at, _)| at).collect();
            let gone = places.iter().map(|at| *at as u64).collect();
            let add = Add { size: 1, ..files[path].clone() };
            marked.mark(MarkedFile {
                add,
                physical_rows: rows.len() as u64,
                rows_deleted_before_commit: before,
                rows: gone,
                vector: None,
            });
        }
        marked
    }
}

/// The `add` actions of the log.
pub(crate) type AddsByPath = BTreeMap<String, Add>;

fn statistics(rows: &[Row], design: Design, omit_bounds: bool) -> String {
    let mut stats = json!({"numRecords": rows.len()});
    if !omit_bounds {
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
