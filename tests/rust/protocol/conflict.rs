//! Conflict rules: text cases, and an oracle that executes the commits row by row.

mod oracle;

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::{
    Action, Add, CommitInfo, DomainMetadata, Metadata, PartitionValues, Protocol, Remove, Txn,
};
use deltic_protocol::commit::{
    Actions, AddedFiles, Attempt, CHECKS, Conflict, MarkedFile, Pending, PredicatesRead, ReadSet, Search,
    SerializedCommit, TableState, WinnerRows, num_records, watermark,
};
use deltic_protocol::deletion_vector::{DeletionVector, Source, parse_inline, source};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::parse;
use deltic_protocol::property::{IsolationLevel, Properties};
use deltic_protocol::replay::paths::PathSet;
use serde_json::{Value, json};

use super::docs_tables;
use super::predicate::check_cases;

pub(super) fn parsed(lines: &str, version: u64) -> CommitActions {
    parse_commit(&lines.to_owned().into(), Origin::Commit(version), Wanted::All).unwrap()
}

/// Actions from the lines of a commit.
fn actions(lines: &str) -> Vec<Action> {
    lines.lines().map(action).collect()
}

fn action(line: &str) -> Action {
    let value: Value = serde_json::from_str(line).unwrap();
    let (key, member) = value.as_object().unwrap().iter().next().unwrap();
    let of = member.clone();
    match key.as_str() {
        "commitInfo" => Action::CommitInfo(CommitInfo(of.as_object().unwrap().clone())),
        "protocol" => Action::Protocol(serde_json::from_value(of).unwrap()),
        "metaData" => Action::Metadata(serde_json::from_value(of).unwrap()),
        "txn" => Action::Txn(serde_json::from_value(of).unwrap()),
        "domainMetadata" => Action::DomainMetadata(serde_json::from_value(of).unwrap()),
        "add" => Action::Add(serde_json::from_value(of).unwrap()),
        "remove" => Action::Remove(serde_json::from_value(of).unwrap()),
        other => panic!("{other}"),
    }
}

/// A table partitioned by the string column `p`, with the long columns `x` and `y`.
pub(super) fn metadata() -> Metadata {
    let field =
        |name: &str, data_type: &str| json!({"name": name, "type": data_type, "nullable": true, "metadata": {}});
    let fields = [field("p", "string"), field("x", "long"), field("y", "long")];
    let schema = json!({"type": "struct", "fields": fields});
    serde_json::from_value(json!({"id": "t", "schemaString": schema.to_string(), "partitionColumns": ["p"]})).unwrap()
}

pub(super) fn state(protocol: &str) -> TableState {
    let (versions, features) = protocol.split_once(' ').unwrap_or((protocol, ""));
    let (reader, writer) = versions.split_once(',').unwrap();
    let list = |least: i32, version: i32| {
        (version == least).then(|| features.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let (reader, writer): (i32, i32) = (reader.parse().unwrap(), writer.parse().unwrap());
    let protocol = Protocol {
        min_reader_version: reader,
        min_writer_version: writer,
        reader_features: list(3, reader),
        writer_features: list(7, writer),
    };
    TableState {
        version: 4,
        protocol,
        metadata: metadata(),
        row_id_watermark: None,
        clustering: vec![],
        timestamp: Some(100),
    }
}

pub(super) fn shape() -> TableShape {
    let metadata = metadata();
    TableShape {
        schema: metadata.schema().unwrap(),
        partition_columns: metadata.partition_columns.clone(),
        mapping: Properties::of(&metadata).column_mapping_mode().unwrap(),
    }
}

pub(super) fn predicates(predicates: &[&str], files: &[&str]) -> ReadSet {
    let shape = shape();
    let predicates = predicates.iter().map(|p| parse(p).unwrap().bind(&shape.schema).unwrap()).collect();
    ReadSet::Predicates(PredicatesRead { searches: vec![Search { shape, predicates }], files: paths(files) })
}

fn paths(files: &[&str]) -> PathSet {
    files.iter().copied().collect()
}

/// A file action: `add path [p=…] [x=low..high] [rows=…] [without=rows] [id=…] [moved] [no-dataChange]`. `p` defaults to `a`.
/// `moved` sets `dataChange` to `false`; `no-dataChange` leaves it out.
fn file_line(words: &[&str]) -> Value {
    let mut members = json!({"path": words[1], "partitionValues": {"p": "a"}, "size": 1, "dataChange": true});
    let is_add = words[0] == "add";
    if is_add {
        members["modificationTime"] = json!(1);
    }
    for word in &words[2..] {
        match word.split_once('=') {
            Some(("p", value)) => members["partitionValues"] = json!({"p": value}),
            Some(("x", range)) => {
                let (low, high) = range.split_once("..").unwrap();
                let (low, high): (i64, i64) = (low.parse().unwrap(), high.parse().unwrap());
                let stats = json!({"numRecords": 5, "minValues": {"x": low}, "maxValues": {"x": high},
                    "nullCount": {"x": 0}});
                members["stats"] = json!(stats.to_string());
            }
            Some(("rows", rows)) => members["stats"] = json!(format!("{{\"numRecords\":{rows}}}")),
            Some(("without", rows)) => {
                let vector = vector(rows).to_inline().unwrap();
                members["deletionVector"] = serde_json::to_value(vector).unwrap();
            }
            Some(("id", id)) => members["baseRowId"] = json!(id.parse::<i64>().unwrap()),
            None if *word == "moved" => members["dataChange"] = json!(false),
            None if *word == "no-dataChange" => drop(members.as_object_mut().unwrap().remove("dataChange")),
            other => panic!("{other:?}"),
        }
    }
    json!({ words[0]: members })
}

/// Parses rows in the form `1.4.7`.
fn vector(rows: &str) -> DeletionVector {
    rows.split('.').map(|row| row.parse().unwrap()).collect()
}

/// `path rows [had=rows]`: rows to delete in a file of ten rows, of which those after `had` are deleted already.
fn marked(rest: &str) -> MarkedFile {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let before = words.get(2).map_or_else(DeletionVector::default, |had| vector(had.strip_prefix("had=").unwrap()));
    let partition_values = PartitionValues::from([("p".to_owned(), Some("a".to_owned()))]);
    let add = Add { path: words[0].to_owned(), partition_values, size: 1, ..Add::default() };
    let rows = vector(words[1]);
    MarkedFile {
        add,
        physical_rows: 10,
        vector: Some(before.union(&rows).to_inline().unwrap()),
        rows_deleted_before_commit: before,
        rows,
    }
}

/// The deletion vectors that the conflict check of a winner needs. All are inline.
pub(super) fn vectors(pending: &Pending, winner: &CommitActions) -> WinnerRows {
    let mut known = WinnerRows::default();
    for descriptor in pending.vectors_needed(winner).unwrap() {
        let Source::Inline(bytes) = source(&descriptor).unwrap() else { panic!("{descriptor:?}") };
        known.vectors.insert(descriptor.unique_id(), parse_inline(&bytes, &descriptor).unwrap());
    }
    known
}

/// An action in short form, or as JSON.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["add" | "remove", ..] => file_line(&words).to_string(),
        ["txn", app] => json!({"txn": {"appId": app, "version": 1}}).to_string(),
        ["domain", name, rest @ ..] => {
            json!({"domainMetadata": {"domain": name, "configuration": rest.join(" "), "removed": false}}).to_string()
        }
        ["blind"] => json!({"commitInfo": {"isBlindAppend": true}}).to_string(),
        ["operation", rest @ ..] => json!({"commitInfo": {"operation": rest.join(" ")}}).to_string(),
        ["time", ms] => json!({"commitInfo": {"inCommitTimestamp": ms.parse::<i64>().unwrap()}}).to_string(),
        ["protocol", versions, features @ ..] => {
            let protocol = state(&format!("{versions} {}", features.join(" "))).protocol;
            json!({ "protocol": protocol }).to_string()
        }
        ["set", settings @ ..] => {
            let mut metadata = metadata();
            for (key, value) in settings.iter().map(|s| s.split_once('=').unwrap()) {
                match key {
                    "name" => metadata.name = Some(value.to_owned()),
                    "id" => metadata.id = value.to_owned(),
                    "partitionColumns" => metadata.partition_columns = vec![value.to_owned()],
                    "column" => {
                        let mut schema: Value = serde_json::from_str(&metadata.schema_string).unwrap();
                        let column = json!({"name": value, "type": "long", "nullable": true, "metadata": {}});
                        schema["fields"].as_array_mut().unwrap().push(column);
                        metadata.schema_string = schema.to_string();
                    }
                    "physical" => {
                        let mut schema: Value = serde_json::from_str(&metadata.schema_string).unwrap();
                        for (id, field) in schema["fields"].as_array_mut().unwrap().iter_mut().enumerate() {
                            let name = field["name"].clone();
                            field["metadata"] = json!({"delta.columnMapping.id": id + 1,
                                "delta.columnMapping.physicalName": name});
                        }
                        metadata.schema_string = schema.to_string();
                    }
                    "identity" => {
                        let mut schema: Value = serde_json::from_str(&metadata.schema_string).unwrap();
                        let (column, mark) = value.split_once(':').unwrap();
                        let mut fields = schema["fields"].as_array_mut().unwrap().iter_mut();
                        fields.find(|field| field["name"] == column).unwrap()["metadata"] = json!({
                            "delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": false,
                            "delta.identity.highWaterMark": mark.parse::<i64>().unwrap()});
                        metadata.schema_string = schema.to_string();
                    }
                    _ => drop(metadata.configuration.insert(key.to_owned(), value.to_owned())),
                }
            }
            json!({ "metaData": metadata }).to_string()
        }
        _ => text.to_owned(),
    }
}

/// Runs a case of `base`, `isolation`, `read`, `files`, `app`, `own`, `winner` and other lines. `then` begins another winner,
/// `mark` gives rows to delete by deletion vector, and `found` the rows that a winner moved; with `no match` the rows that winners
/// added are searched in vain. Returns the version and what the commit contains, or the conflict. `unstored` follows the rows of a deletion vector that must be stored again.
fn run_case(input: &str) -> String {
    let mut pending = Pending {
        state: Some(state("1,2")),
        read: ReadSet::Nothing,
        read_apps: Default::default(),
        isolation: IsolationLevel::Serializable,
        actions: Actions::new(),
        marked: Default::default(),
    };
    let (mut asked, mut files, mut winners) = (Vec::new(), Vec::new(), vec![String::new()]);
    let (mut whole, mut moved, mut no_match) = (None, Vec::new(), false);
    for text in input.lines() {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "base" => pending.state = Some(state(rest)),
            "creates" => pending.state = None,
            "has" => {
                let Action::Metadata(metadata) = action(&line(&format!("set {rest}"))) else { panic!() };
                pending.state.as_mut().unwrap().metadata = metadata;
            }
            "watermark" => pending.state.as_mut().unwrap().row_id_watermark = Some(rest.parse().unwrap()),
            "isolation" => pending.isolation = IsolationLevel::parse(rest).unwrap(),
            "read" if rest == "all" => whole = Some(ReadSet::AllRows),
            "read" if rest == "every file" => whole = Some(ReadSet::AllFiles),
            "read" => asked.push(rest),
            "files" => files.extend(rest.split_whitespace()),
            "app" => drop(pending.read_apps.insert(rest.to_owned())),
            "mark" => pending.marked.mark(marked(rest)),
            "no" if rest == "match" => no_match = true,
            "found" => moved.push(MarkedFile { vector: None, ..marked(rest) }),
            "own" => pending.actions.append(Actions::of(actions(&line(rest))).unwrap()).unwrap(),
            "winner" => {
                let current = winners.last_mut().unwrap();
                current.push_str(&line(rest));
                current.push('\n');
            }
            "then" => winners.push(format!("{}\n", line(rest))),
            other => panic!("{other}"),
        }
    }
    pending.read = match (whole, asked.is_empty(), files.is_empty()) {
        (Some(whole), ..) => whole,
        (_, true, true) => ReadSet::Nothing,
        (_, true, false) => ReadSet::Files(paths(&files)),
        _ => predicates(&asked, &files),
    };
    let first = pending.version();
    for (at, lines) in winners.iter().filter(|w| !w.is_empty()).enumerate() {
        let winner = parsed(lines, 5 + at as u64);
        let mut rows = vectors(&pending, &winner);
        if pending.moved_rows(&winner).unwrap().is_some() {
            rows.moved.append(&mut moved);
        }
        rows.no_added_row_matches = match pending.added_files(&winner, &rows).unwrap() {
            AddedFiles::Irrelevant => true,
            AddedFiles::ByStatistics => false,
            AddedFiles::Search(_) => no_match,
        };
        if let Err(error) = pending.check_and_rebase(&winner, &rows, 5 + at as u64) {
            let kind = match error.kind() {
                Kind::Conflict(conflict) => conflict.to_string(),
                Kind::Unsupported { features } => format!("Unsupported {}", features.join(" ")),
                other => format!("{other:?}"),
            };
            let detail = error.message().rsplit_once(" (").map_or("", |(_, detail)| detail.trim_end_matches(')'));
            return format!("{kind}: {detail}").trim_end_matches([':', ' ']).to_owned();
        }
    }
    let mut outcome = format!("version {}", pending.version());
    for marked in pending.marked.iter() {
        let gone: Vec<String> = marked.all_deleted().iter().map(|row| row.to_string()).collect();
        let stored = if marked.vector.is_some() { "" } else { " unstored" };
        outcome += &format!(", {} without {}{stored}", marked.add.path, gone.join("."));
    }
    pending.marked.retain(|_| false);
    let mut attempt = Attempt::new(&pending, first, 50).unwrap();
    let SerializedCommit { lines, non_file_lines } = match attempt.serialize(CommitInfo::default(), &pending, 50) {
        Ok(commit) => commit,
        Err(error) => return format!("{:?}: {}", error.kind(), error.message()),
    };
    assert_eq!(lines.non_file_lines().unwrap(), non_file_lines);
    if let Some(time) = attempt.in_commit_timestamp {
        outcome += &format!(", time {time}");
    }
    for text in String::from_utf8(lines.to_bytes().unwrap()).unwrap().lines() {
        let value: Value = serde_json::from_str(text).unwrap();
        if let Some(add) = value.get("add")
            && add.get("baseRowId").is_some()
        {
            outcome +=
                &format!(", {} {}@{}", add["path"].as_str().unwrap(), add["baseRowId"], add["defaultRowCommitVersion"]);
        }
        if let Some(remove) = value.get("remove")
            && remove.get("baseRowId").is_some()
        {
            outcome += &format!(", -{} {}", remove["path"].as_str().unwrap(), remove["baseRowId"]);
        }
        if let Some(domain) = value.get("domainMetadata").filter(|d| d["domain"] == "delta.rowTracking") {
            outcome += &format!(", watermark {}", watermark(domain["configuration"].as_str().unwrap()).unwrap());
        }
        if let Some(since) = value["metaData"]["configuration"].get("delta.inCommitTimestampEnablementVersion") {
            let at = &value["metaData"]["configuration"]["delta.inCommitTimestampEnablementTimestamp"];
            outcome += &format!(", since {} {}", since.as_str().unwrap(), at.as_str().unwrap());
        }
        if let Some(schema) = value["metaData"]["schemaString"].as_str().filter(|s| s.contains("tableVersion")) {
            let at: Vec<&str> = schema.split("\"tableVersion\":").skip(1).collect();
            let at: Vec<&str> = at.iter().map(|s| s.split(['}', ',']).next().unwrap()).collect();
            outcome += &format!(", types {}", at.join(" "));
        }
    }
    outcome
}

#[test]
fn cases() {
    check_cases("conflict", run_case);
}

#[test]
fn the_checks_have_the_order_of_the_reference() {
    let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    let expected = [
        "protocol",
        "metadata",
        "domain metadata",
        "application transactions",
        "row-tracking backfill",
        "row ids",
        "rows of one file",
        "added files",
        "removed files, read",
        "removed files, removed",
        "in-commit timestamp",
        "duplicate actions",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_commit_has_at_most_one_action_of_a_logical_file() {
    let pending = |actions: Vec<Action>| Pending {
        state: Some(state("1,2")),
        read: ReadSet::Nothing,
        read_apps: Default::default(),
        isolation: IsolationLevel::Serializable,
        actions: Actions::of(actions).unwrap(),
        marked: Default::default(),
    };
    let add = |path: &str| Action::Add(Add { path: path.to_owned(), ..Add::default() });
    let remove = |path: &str| Action::Remove(Remove { path: path.to_owned(), ..Remove::default() });
    assert!(pending(vec![add("a b"), remove("a%20b"), add("c")]).check_duplicates().is_ok());
    assert!(pending(vec![add("a b"), add("a%20b")]).check_duplicates().is_err());
    assert!(pending(vec![remove("x"), remove("x")]).check_duplicates().is_err());
}

#[test]
fn read_sets_are_merged() {
    let mut read = ReadSet::Nothing;
    read.extend(ReadSet::Files(paths(&["a"])));
    read.extend(predicates(&["x = 1"], &["b"]));
    read.extend(ReadSet::Nothing);
    read.extend(predicates(&["x = 2"], &["c"]));
    let ReadSet::Predicates(sum) = &read else { panic!("{read:?}") };
    assert_eq!(sum.files, paths(&["a", "b", "c"]));
    assert_eq!(sum.searches.iter().map(|search| search.predicates.len()).collect::<Vec<_>>(), [2]);
    // The predicates of another schema are kept beside it.
    let ReadSet::Predicates(mut other) = predicates(&["x = 3"], &[]) else { panic!() };
    other.searches[0].shape.partition_columns.push("y".to_owned());
    read.extend(ReadSet::Predicates(other));
    let ReadSet::Predicates(sum) = &read else { panic!("{read:?}") };
    assert_eq!(sum.searches.iter().map(|search| search.predicates.len()).collect::<Vec<_>>(), [2, 1]);
    read.extend(ReadSet::AllRows);
    read.extend(ReadSet::Files(paths(&["a"])));
    assert!(matches!(read, ReadSet::AllRows));
}

#[test]
fn row_counts_from_statistics() {
    let cases = [("{\"numRecords\":3}", Some(3)), ("{\"numRecords\":-3}", None), ("{}", None), ("x", None)];
    cases.iter().for_each(|(stats, rows)| assert_eq!(num_records(stats), *rows, "{stats}"));
}

#[test]
fn isolation_levels_are_spelled_in_many_ways() {
    for text in
        ["WriteSerializable", "writeSerializable", "WRITE_SERIALIZABLE", " write serializable ", "write-serializable"]
    {
        assert_eq!(IsolationLevel::parse(text).unwrap(), IsolationLevel::WriteSerializable, "{text}");
    }
    assert_eq!(IsolationLevel::parse("snapshotIsolation").unwrap(), IsolationLevel::SnapshotIsolation);
    assert_eq!(IsolationLevel::parse("ReadCommitted").unwrap_err().kind(), &Kind::Invalid);
}

#[test]
fn all_conflicts_have_an_explanation() {
    let all = [
        (Conflict::ConcurrentAppend, "ConcurrentAppend"),
        (Conflict::ConcurrentDeleteRead, "ConcurrentDeleteRead"),
        (Conflict::ConcurrentDeleteDelete, "ConcurrentDeleteDelete"),
        (Conflict::MetadataChanged, "MetadataChanged"),
        (Conflict::ProtocolChanged, "ProtocolChanged"),
        (Conflict::ConcurrentTransaction, "ConcurrentTransaction"),
    ];
    for (conflict, name) in all {
        assert_eq!(conflict.to_string(), name);
        assert!(conflict.explanation().contains("another"), "{name}");
        assert_eq!(Error::new(Kind::Conflict(conflict), "x").kind(), &Kind::Conflict(conflict));
    }
}

#[test]
fn the_documentation_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commit-protocol.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut expected = page.clone();
    for (block, table) in [("matrix", docs_tables::conflict_matrix().unwrap()), ("checks", docs_tables::checks())] {
        let (before, rest) = expected.split_once(&format!("<!-- {block}: generated -->\n")).unwrap();
        let (_, after) = rest.split_once(&format!("<!-- {block}: end -->")).unwrap();
        expected = format!("{before}<!-- {block}: generated -->\n{table}<!-- {block}: end -->{after}");
    }
    if std::env::var_os("DELTIC_UPDATE_DOCS").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        assert!(page == expected, "docs/commit-protocol.md is out of date; run `make docs`");
    }
}

#[test]
fn transactions_and_domains_of_winners_are_checked() {
    let txn = Txn { app_id: "app".to_owned(), version: 1, last_updated: None };
    let domain = DomainMetadata { domain: "d".to_owned(), configuration: String::new(), removed: true };
    let lines = "{\"txn\":{\"appId\":\"other\",\"version\":1}}";
    let mut pending = Pending {
        state: Some(state("1,2")),
        read: ReadSet::AllRows,
        read_apps: ["mine".to_owned()].into(),
        isolation: IsolationLevel::Serializable,
        actions: Actions::of([Action::Txn(txn), Action::DomainMetadata(domain)]).unwrap(),
        marked: Default::default(),
    };
    pending.check_and_rebase(&parsed(lines, 5), &WinnerRows::default(), 5).unwrap();
    assert_eq!(pending.version(), 6);
}
