//! Which commit may follow which: what was read, what is written, what won in between.

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::{Action, Add, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn};
use deltic_protocol::conflict::{Conflict, ReadSet, check};
use deltic_protocol::error::{Error, Kind};

const INFO: &str = r#"{"commitInfo":{"operation":"WRITE","isBlindAppend":true}}"#;
const ADD: &str = r#"{"add":{"path":"w","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}"#;
const MOVED: &str = r#"{"add":{"path":"w","partitionValues":{},"size":1,"modificationTime":1,"dataChange":false}}"#;
const UNSAID: &str = r#"{"add":{"path":"w","partitionValues":{},"size":1,"modificationTime":1}}"#;
const REMOVE: &str = r#"{"remove":{"path":"p=a%20b/f","dataChange":true}}"#;
const REMOVE_MOVED: &str = r#"{"remove":{"path":"p=a%20b/f","dataChange":false}}"#;
const CDC: &str = r#"{"cdc":{"path":"c","partitionValues":{},"size":1,"dataChange":false}}"#;
const TXN: &str = r#"{"txn":{"appId":"app","version":5}}"#;
const DOMAIN: &str = r#"{"domainMetadata":{"domain":"d","configuration":"","removed":false}}"#;
const METADATA: &str = r#"{"metaData":{"id":"i","schemaString":"{}"}}"#;
const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;

fn winner(lines: &[&str]) -> CommitActions {
    parse_commit(lines.join("\n").as_bytes(), Origin::Commit(8), Wanted::All).unwrap()
}

fn add() -> Action {
    Action::Add(Add { path: "own".to_owned(), ..Add::default() })
}

fn remove(path: &str) -> Action {
    Action::Remove(Remove { path: path.to_owned(), data_change: true, ..Remove::default() })
}

fn txn(app_id: &str) -> Action {
    Action::Txn(Txn { app_id: app_id.to_owned(), version: 1, last_updated: None })
}

fn domain(name: &str) -> Action {
    Action::DomainMetadata(DomainMetadata { domain: name.to_owned(), configuration: String::new(), removed: false })
}

#[track_caller]
fn judge(read: ReadSet, own: &[Action], lines: &[&str], expected: Result<(), Conflict>) {
    assert_eq!(check(read, own, &winner(lines)), expected, "{read:?} {own:?} after {lines:?}");
}

#[test]
fn a_blind_append_follows_everything_but_a_change_of_the_table() {
    for lines in
        [&[INFO, ADD][..], &[MOVED], &[REMOVE], &[REMOVE_MOVED, MOVED], &[CDC], &[TXN], &[DOMAIN], &[INFO], &[]]
    {
        judge(ReadSet::Nothing, &[add()], lines, Ok(()));
    }
    judge(ReadSet::Nothing, &[add()], &[METADATA], Err(Conflict::MetadataChanged));
    judge(ReadSet::Nothing, &[add()], &[PROTOCOL], Err(Conflict::ProtocolChanged));
    judge(ReadSet::Nothing, &[add()], &[INFO, METADATA, PROTOCOL, ADD], Err(Conflict::ProtocolChanged));
}

#[test]
fn who_read_the_table_follows_no_change_of_its_files() {
    let own = [remove("f"), add()];
    judge(ReadSet::WholeTable, &own, &[INFO, ADD], Err(Conflict::ConcurrentAppend));
    judge(ReadSet::WholeTable, &own, &[UNSAID], Err(Conflict::ConcurrentAppend));
    judge(ReadSet::WholeTable, &own, &[REMOVE], Err(Conflict::ConcurrentDeleteRead));
    judge(ReadSet::WholeTable, &own, &[REMOVE_MOVED, MOVED], Err(Conflict::ConcurrentDeleteRead));
    judge(ReadSet::WholeTable, &own, &[REMOVE, ADD], Err(Conflict::ConcurrentAppend));
    // Files that are only described anew change no row.
    judge(ReadSet::WholeTable, &own, &[MOVED], Ok(()));
    for lines in [&[INFO][..], &[TXN], &[DOMAIN], &[]] {
        judge(ReadSet::WholeTable, &own, lines, Ok(()));
    }
}

#[test]
fn a_file_is_removed_once_however_its_path_is_spelled() {
    for path in ["p=a%20b/f", "p=a b/f", "%70=a%20b/f"] {
        judge(ReadSet::Nothing, &[remove(path)], &[REMOVE], Err(Conflict::ConcurrentDeleteDelete));
    }
    judge(ReadSet::Nothing, &[remove("p=a/f")], &[REMOVE], Ok(()));
    judge(ReadSet::Nothing, &[remove("w")], &[ADD], Ok(()));
}

#[test]
fn applications_and_domains_are_told_apart_by_name() {
    for read in [ReadSet::Nothing, ReadSet::WholeTable] {
        judge(read, &[txn("app")], &[TXN], Err(Conflict::ConcurrentTransaction));
        judge(read, &[txn("other")], &[TXN], Ok(()));
        judge(read, &[domain("d")], &[DOMAIN], Err(Conflict::ConcurrentTransaction));
        judge(read, &[domain("other")], &[DOMAIN], Ok(()));
    }
}

#[test]
fn two_creators_of_one_table_conflict() {
    let protocol =
        Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
    let metadata = Metadata {
        id: "x".to_owned(),
        name: None,
        description: None,
        format: deltic_protocol::action::Format::default(),
        schema_string: "{}".to_owned(),
        partition_columns: Vec::new(),
        created_time: None,
        configuration: std::collections::BTreeMap::new(),
    };
    let own =
        [Action::CommitInfo(CommitInfo::default()), Action::Protocol(protocol), Action::Metadata(metadata), add()];
    judge(ReadSet::Nothing, &own, &[INFO, PROTOCOL, METADATA, ADD], Err(Conflict::ProtocolChanged));
}

#[test]
fn every_reason_explains_itself() {
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
