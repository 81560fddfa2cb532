//! Tables for the documentation: features, properties and conflict rules. The matrix is made by running the checks.

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit, serialize_commit};
use deltic_protocol::action::{Action, Add, CommitInfo, Format, Metadata, PartitionValues, Protocol, Remove};
use deltic_protocol::commit::{
    Actions, AddedFiles, CHECKS, METADATA_ONLY_PROPERTIES, MarkedFile, MarkedFiles, PROPERTIES_A_WINNER_MAY_SET,
    Pending, PredicatesRead, ReadSet, TableState, WinnerRows,
};
use deltic_protocol::deletion_vector::{DeletionVector, Source, parse_inline, source};
use deltic_protocol::error::{Kind, Result};
use deltic_protocol::feature::UNLISTED;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::parse;
use deltic_protocol::property::{IsolationLevel, PROPERTIES};
use deltic_protocol::replay::paths::PathSet;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, StructField, StructType, json};

/// [`UNLISTED`] as a Markdown table.
pub(super) fn unlisted_features() -> String {
    let rows = UNLISTED.iter().map(|(feature, used, does)| format!("| `{feature}` | {used} | {does} |\n"));
    std::iter::once("| Feature | Used when | Read |\n|-|-|-|\n".to_owned()).chain(rows).collect()
}

/// The properties as a Markdown table.
pub(super) fn properties() -> String {
    let mut table = "| Property | Default | |\n|-|-|-|\n".to_owned();
    for property in PROPERTIES {
        table.push_str(&format!("| `{}` | {} | {} |\n", property.name, property.default, property.about));
    }
    table
}

/// The checks in order as a Markdown table, then the allowed changes of metadata.
pub(super) fn checks() -> String {
    let mut text = "| | Check | Refuses when | With | Otherwise |\n|-|-|-|-|-|\n".to_owned();
    for (at, check) in CHECKS.iter().enumerate() {
        let row = [check.name, check.refuses, check.conflict, check.rebases].join(" | ");
        text.push_str(&format!("| {} | {row} |\n", at + 1));
    }
    text.push_str("\nWhere a check refuses less than delta-spark's, this is why that is safe:\n\n");
    for check in CHECKS.iter().filter(|check| !check.argument.is_empty()) {
        text.push_str(&format!("- *{}.* {}\n", check.name, check.argument));
    }
    text.push_str(
        "\nProperties that a winner may set without a conflict:\n\n| Property | To | Where the table has |\n|-|-|-|\n",
    );
    for (key, value, feature) in PROPERTIES_A_WINNER_MAY_SET {
        let value = if value.is_empty() { "any value" } else { value };
        let feature = if feature.is_empty() { String::new() } else { format!("`{feature}`") };
        text.push_str(&format!("| `{key}` | {value} | {feature} |\n"));
    }
    let maintenance: Vec<String> = METADATA_ONLY_PROPERTIES.iter().map(|key| format!("`{key}`")).collect();
    text.push_str(&format!(
        "\nProperties that a winner may set and unset without a conflict: {}.\n",
        maintenance.join(", ")
    ));
    text
}

/// A commit to a table partitioned by `p` with a file in each of `a` and `b`.
struct Operation {
    name: &'static str,
    predicate: Option<&'static str>,
    whole_table: bool,
    files: &'static [&'static str],
    removes: &'static [&'static str],
    adds: &'static [&'static str],
    /// Rows of the file in `a` that it marks as deleted.
    marks: &'static [u64],
    data_change: bool,
    property: Option<&'static str>,
    /// Whether it has a metadata action that changes nothing.
    rewrites_metadata_unchanged: bool,
    feature: bool,
}

const NOTHING: Operation = Operation {
    name: "",
    predicate: None,
    whole_table: false,
    files: &[],
    removes: &[],
    adds: &[],
    marks: &[],
    data_change: true,
    property: None,
    rewrites_metadata_unchanged: false,
    feature: false,
};

const OPERATIONS: &[Operation] = &[
    Operation { name: "append to `a`", adds: &["a"], ..NOTHING },
    Operation {
        name: "update `p = 'a'`",
        predicate: Some("p = 'a'"),
        files: &["a"],
        removes: &["a"],
        adds: &["a"],
        ..NOTHING
    },
    Operation {
        name: "update `p = 'b'`",
        predicate: Some("p = 'b'"),
        files: &["b"],
        removes: &["b"],
        adds: &["b"],
        ..NOTHING
    },
    Operation {
        name: "read `p = 'a'`, append to `b`",
        predicate: Some("p = 'a'"),
        files: &["a"],
        adds: &["b"],
        ..NOTHING
    },
    Operation {
        name: "mark rows 1, 2 of the file in `a`",
        predicate: Some("p = 'a' AND x < 3"),
        marks: &[1, 2],
        ..NOTHING
    },
    Operation { name: "mark row 5 of the file in `a`", predicate: Some("p = 'a' AND x = 5"), marks: &[5], ..NOTHING },
    Operation {
        name: "mark rows 2 to 4 of the file in `a`",
        predicate: Some("p = 'a' AND x > 2"),
        marks: &[2, 3, 4],
        ..NOTHING
    },
    Operation {
        name: "merge: row 5 of the file in `a` matches and stays, a row comes to `b`",
        predicate: Some("p = 'a' AND x = 5"),
        files: &["a"],
        adds: &["b"],
        ..NOTHING
    },
    Operation { name: "optimize `a`", files: &["a"], removes: &["a"], adds: &["a"], data_change: false, ..NOTHING },
    Operation { name: "overwrite", whole_table: true, removes: &["a", "b"], adds: &["a"], ..NOTHING },
    Operation {
        name: "restore a version without the file in `a`",
        whole_table: true,
        removes: &["a"],
        rewrites_metadata_unchanged: true,
        ..NOTHING
    },
    Operation { name: "vacuum begins", ..NOTHING },
    Operation { name: "set `delta.appendOnly`", property: Some("delta.appendOnly"), ..NOTHING },
    Operation { name: "set `delta.checkpointInterval`", property: Some("delta.checkpointInterval"), ..NOTHING },
    Operation { name: "add a feature", feature: true, ..NOTHING },
];

/// For each operation (rows) that lost to each other operation (columns), whether it may follow: at the level Serializable, and
/// where it differs at WriteSerializable, and in a table that tracks rows, and if no row that the winner added matches.
pub(super) fn conflict_matrix() -> Result<String> {
    let names: Vec<&str> = OPERATIONS.iter().map(|o| o.name).collect();
    let mut text = format!("| this commit \\ the winner | {} |\n|-{}|\n", names.join(" | "), "|-".repeat(names.len()));
    for own in OPERATIONS {
        let cells = OPERATIONS.iter().map(|winner| cell(own, winner)).collect::<Result<Vec<_>>>()?;
        text.push_str(&format!("| **{}** | {} |\n", own.name, cells.join(" | ")));
    }
    Ok(text)
}

fn cell(own: &Operation, winner: &Operation) -> Result<String> {
    let usual = Circumstances { isolation: IsolationLevel::Serializable, tracks_rows: false, added_rows_match: true };
    let strict = verdict(own, winner, usual)?;
    let mut notes = Vec::new();
    for (name, other) in [
        ("WriteSerializable", Circumstances { isolation: IsolationLevel::WriteSerializable, ..usual }),
        ("rows tracked", Circumstances { tracks_rows: true, ..usual }),
        ("no added row matches", Circumstances { added_rows_match: false, ..usual }),
    ] {
        let other = verdict(own, winner, other)?;
        if other != strict {
            notes.push(format!("{name}: {other}"));
        }
    }
    Ok(if notes.is_empty() { strict } else { format!("{strict} ({})", notes.join("; ")) })
}

/// What the outcome may depend on besides the operations.
#[derive(Clone, Copy)]
struct Circumstances {
    isolation: IsolationLevel,
    tracks_rows: bool,
    /// Whether the winner's files have a row that this commit would have read, if statistics do not rule it out.
    added_rows_match: bool,
}

fn verdict(own: &Operation, winner: &Operation, circumstances: Circumstances) -> Result<String> {
    let Circumstances { isolation, tracks_rows, added_rows_match } = circumstances;
    let mut pending = own.pending(isolation, tracks_rows)?;
    let winner = winner.committed(tracks_rows)?;
    let mut rows = WinnerRows::default();
    for descriptor in pending.vectors_needed(&winner)? {
        if let Source::Inline(bytes) = source(&descriptor)? {
            rows.vectors.insert(descriptor.unique_id(), parse_inline(&bytes, &descriptor)?);
        }
    }
    if let Some(moved) = pending.moved_rows(&winner)? {
        // The operations here write one file with the rows of one file, in their order.
        let files = moved.from.into_iter().zip(moved.to);
        rows.moved = files.map(|(from, add)| MarkedFile { add, ..from }).collect();
    }
    rows.no_added_row_matches =
        !added_rows_match && matches!(pending.added_files(&winner, &rows)?, AddedFiles::Search(_));
    match pending.check_and_rebase(&winner, &rows, 1) {
        Ok(()) => Ok("✓".to_owned()),
        Err(e) => match e.kind() {
            Kind::Conflict(conflict) => Ok(conflict.to_string()),
            _ => Err(e),
        },
    }
}

impl Operation {
    fn pending(&self, isolation: IsolationLevel, tracks_rows: bool) -> Result<Pending> {
        let schema = StructType::new(vec![
            StructField::new("p", DataType::STRING, true),
            StructField::new("x", DataType::LONG, true),
        ]);
        let metadata = Metadata {
            id: "table".to_owned(),
            name: None,
            description: None,
            format: Format::default(),
            schema_string: json::to_json(&schema),
            partition_columns: vec!["p".to_owned()],
            created_time: None,
            configuration: match tracks_rows {
                true => BTreeMap::from([("delta.enableRowTracking".to_owned(), "true".to_owned())]),
                false => BTreeMap::new(),
            },
        };
        let features = || ["appendOnly", "invariants", "domainMetadata", "rowTracking"].map(str::to_owned).to_vec();
        let protocol = Protocol {
            min_reader_version: 1,
            min_writer_version: if tracks_rows { 7 } else { 2 },
            reader_features: None,
            writer_features: tracks_rows.then(features),
        };
        let partition_columns = metadata.partition_columns.clone();
        let shape = TableShape { schema: schema.into(), partition_columns, mapping: ColumnMapping::None };
        let files: PathSet = self.files.iter().map(|p| path(p, "old")).collect();
        let read = match self.predicate {
            Some(text) => {
                let predicate = parse(text)?.bind(&shape.schema)?;
                ReadSet::Predicates(PredicatesRead::new(shape, predicate, files))
            }
            None if self.whole_table => ReadSet::AllRows,
            None if files.is_empty() => ReadSet::Nothing,
            None => ReadSet::Files(files),
        };
        let actions = Actions::of(self.actions(&protocol, &metadata))?;
        let state = TableState {
            version: 0,
            protocol,
            metadata,
            row_id_watermark: None,
            clustering: Vec::new(),
            timestamp: None,
        };
        let (read_apps, marked) = (BTreeSet::new(), self.marked()?);
        Ok(Pending { state: Some(state), read, read_apps, isolation, actions, marked })
    }

    fn marked(&self) -> Result<MarkedFiles> {
        let mut files = MarkedFiles::default();
        if !self.marks.is_empty() {
            let partition_values = PartitionValues::from([("p".to_owned(), Some("a".to_owned()))]);
            let add = Add { path: path("a", "old"), partition_values, data_change: true, ..Add::default() };
            let rows: DeletionVector = self.marks.iter().copied().collect();
            let vector = Some(rows.to_inline()?);
            files.mark(MarkedFile {
                add,
                physical_rows: 10,
                rows_deleted_before_commit: DeletionVector::default(),
                rows,
                vector,
            });
        }
        Ok(files)
    }

    fn actions(&self, protocol: &Protocol, metadata: &Metadata) -> Vec<Action> {
        let values = |p: &str| PartitionValues::from([("p".to_owned(), Some(p.to_owned()))]);
        let mut actions = Vec::new();
        if self.feature {
            let mut protocol = protocol.clone();
            protocol.min_writer_version = 7;
            let features = ["appendOnly", "invariants", "domainMetadata"].map(str::to_owned).to_vec();
            protocol.writer_features.get_or_insert(features);
            actions.push(Action::Protocol(protocol));
        }
        if let Some(key) = self.property {
            let mut metadata = metadata.clone();
            let value = if key == "delta.appendOnly" { "true" } else { "20" };
            metadata.configuration.insert(key.to_owned(), value.to_owned());
            actions.push(Action::Metadata(metadata));
        }
        if self.rewrites_metadata_unchanged {
            actions.push(Action::Metadata(metadata.clone()));
        }
        actions.extend(self.removes.iter().map(|p| {
            let partition_values = Some(values(p));
            Action::Remove(Remove {
                path: path(p, "old"),
                data_change: self.data_change,
                partition_values,
                ..Remove::default()
            })
        }));
        actions.extend(self.adds.iter().map(|p| {
            let (path, partition_values) = (path(p, "new"), values(p));
            Action::Add(Add { path, partition_values, data_change: self.data_change, ..Add::default() })
        }));
        actions
    }

    fn committed(&self, tracks_rows: bool) -> Result<deltic_protocol::action::json::CommitActions> {
        let pending = self.pending(IsolationLevel::Serializable, tracks_rows)?;
        let info = serde_json::json!({ "isBlindAppend": pending.is_blind_append() });
        let info = info.as_object().cloned().unwrap_or_default();
        let mut lines = serialize_commit(&[Action::CommitInfo(CommitInfo(info))])?;
        lines.extend(serialize_commit(pending.actions.non_file_actions())?);
        lines.extend(pending.actions.files().to_bytes()?);
        for marked in pending.marked.iter() {
            lines.extend(serialize_commit(&marked.actions(0)?)?);
        }
        parse_commit(&lines.into(), Origin::Commit(1), Wanted::All)
    }
}

fn path(partition: &str, name: &str) -> String {
    format!("p={partition}/{name}")
}
