//! The steps of the commit loop for given answers. The simulation and the model check test its results.

use bytes::Bytes;
use deltic_protocol::action::{Action, Add, Format, Metadata, Protocol};
use deltic_protocol::commit::state::PutAnswer;
use deltic_protocol::commit::{
    Actions, CommitLoop, Conflict, Failed, MarkedFile, MarkedFiles, Pending, PredicatesRead, PreparedCommit, ReadSet,
    Step, TableState,
};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::parse;
use deltic_protocol::property::IsolationLevel;
use deltic_protocol::schema::json as schema_json;
use deltic_protocol::schema::mapping::ColumnMapping;
use serde_json::{Map, json};

/// When the base version was committed. The loop runs one millisecond later, or much later.
const NOW: i64 = 1_700_000_000_000;

const SCHEMA: &str = r#"{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}"#;

const OTHER: &str = "{\"commitInfo\":{\"txnId\":\"other\",\"isBlindAppend\":true}}\n{\"add\":{\"path\":\"o\",\"partitionValues\":{},\
                     \"size\":1,\"modificationTime\":1,\"dataChange\":true}}\n";
const METADATA: &str = "{\"metaData\":{\"id\":\"t\",\"format\":{\"provider\":\"parquet\",\"options\":{}},\"schemaString\":\
                        \"{\\\"type\\\":\\\"struct\\\",\\\"fields\\\":[]}\",\"partitionColumns\":[],\"configuration\":{}}}\n";

fn append(base: u64) -> CommitLoop {
    let add = Action::Add(Add { path: "f".to_owned(), size: 7, data_change: true, ..Add::default() });
    with(base, vec![add], MarkedFiles::default())
}

/// A commit that deletes the second of the ten rows of `f` by a deletion vector.
fn marks(base: u64) -> CommitLoop {
    let mut marked = MarkedFiles::default();
    let add = Add { path: "f".to_owned(), size: 7, ..Add::default() };
    let (before, rows) = (DeletionVector::default(), [1].into_iter().collect());
    marked.mark(MarkedFile { add, physical_rows: 10, rows_deleted_before_commit: before, rows, vector: None });
    with(base, Vec::new(), marked)
}

/// A commit that deletes the second of ten rows of each of two files, in a table that tracks rows.
fn marks_tracked_rows(base: u64) -> CommitLoop {
    let mut marked = MarkedFiles::default();
    for path in ["f", "g"] {
        let add = Add { path: path.to_owned(), size: 7, base_row_id: Some(0), ..Add::default() };
        let (before, rows) = (DeletionVector::default(), [1].into_iter().collect());
        marked.mark(MarkedFile { add, physical_rows: 10, rows_deleted_before_commit: before, rows, vector: None });
    }
    with_rows(base, Vec::new(), marked, true)
}

/// A commit that has read the rows with `x = 1`.
fn reads(base: u64) -> CommitLoop {
    let schema = schema_json::parse(SCHEMA).unwrap();
    let shape = TableShape { schema: schema.into(), partition_columns: vec![], mapping: ColumnMapping::None };
    let predicate = parse("x = 1").unwrap().bind(&shape.schema).unwrap();
    let files = ["read"].into_iter().collect();
    let add = Action::Add(Add { path: "f".to_owned(), size: 7, data_change: true, ..Add::default() });
    commit_loop(
        base,
        vec![add],
        MarkedFiles::default(),
        false,
        ReadSet::Predicates(PredicatesRead::new(shape, predicate, files)),
    )
}

fn with(base: u64, actions: Vec<Action>, marked: MarkedFiles) -> CommitLoop {
    with_rows(base, actions, marked, false)
}

fn with_rows(base: u64, actions: Vec<Action>, marked: MarkedFiles, tracks_rows: bool) -> CommitLoop {
    commit_loop(base, actions, marked, tracks_rows, ReadSet::Nothing)
}

fn commit_loop(base: u64, actions: Vec<Action>, marked: MarkedFiles, tracks_rows: bool, read: ReadSet) -> CommitLoop {
    let mut metadata = Metadata {
        id: "t".to_owned(),
        name: None,
        description: None,
        format: Format::default(),
        schema_string: SCHEMA.to_owned(),
        partition_columns: Vec::new(),
        created_time: None,
        configuration: Default::default(),
    };
    let mut protocol =
        Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
    if tracks_rows {
        let features = ["appendOnly", "invariants", "domainMetadata", "rowTracking"].map(str::to_owned);
        (protocol.min_writer_version, protocol.writer_features) = (7, Some(features.to_vec()));
        metadata.configuration.insert("delta.enableRowTracking".to_owned(), "true".to_owned());
    }
    let state = TableState {
        version: base,
        protocol,
        metadata,
        row_id_watermark: None,
        clustering: vec![],
        timestamp: Some(NOW),
    };
    let pending = Pending {
        state: Some(state),
        read,
        read_apps: Default::default(),
        isolation: IsolationLevel::Serializable,
        actions: Actions::of(actions).unwrap(),
        marked,
    };
    let prepared = PreparedCommit {
        pending,
        operation: "WRITE".to_owned(),
        parameters: Map::new(),
        metrics: Map::new(),
        user_metadata: None,
        info: Map::new(),
        txn_id: "mine".to_owned(),
    };
    CommitLoop::new(prepared).unwrap()
}

fn lost() -> Error {
    Error::storage(true, "the answer was lost")
}

/// A step in short form.
fn short_form(step: &Step) -> String {
    match step {
        Step::CheckBaseBeforePut { base, version } => format!("check {base} {version}"),
        Step::Put { version, .. } => format!("put {version}"),
        Step::StoreVectors { vectors } => format!("store {}", vectors.len()),
        Step::ReadVectors { descriptors } => format!("vectors {}", descriptors.len()),
        Step::FindMovedRows { moved } => format!("find rows of {} files in {}", moved.from.len(), moved.to.len()),
        Step::SearchAddedRows { added } => format!("search {} files", added.files.len()),
        Step::Wait { attempts } => format!("wait {attempts}"),
        Step::ReadFrom { version, count } => format!("read {version}+{count}"),
        Step::MakeDurable { version } => format!("make {version} durable"),
        Step::CheckBaseAfterPut { base, version } => format!("verify {base} {version}"),
        Step::Done(committed) => format!("done {} in {}", committed.version, committed.attempts),
        Step::Failed(Failed::NotWritten(error)) => format!("failed: {}", error.message()),
        Step::Failed(Failed::Unknown(error)) => format!("unknown: {}", error.message()),
    }
}

#[track_caller]
fn expect_step(commit_loop: &mut CommitLoop, expected: &str) -> Step {
    let step = commit_loop.next(NOW + 1);
    assert!(short_form(&step).starts_with(expected), "{}, not {expected}", short_form(&step));
    step
}

fn bytes(text: &'static str) -> Result<Option<Bytes>, Error> {
    Ok(Some(Bytes::from_static(text.as_bytes())))
}

#[test]
fn a_free_version_takes_one_put() {
    let mut commit_loop = append(4);
    let Step::Put { lines, .. } = expect_step(&mut commit_loop, "put 5") else { panic!("no put") };
    assert!(String::from_utf8(lines.to_bytes().unwrap()).unwrap().contains("\"txnId\":\"mine\""));
    commit_loop.put_answered(PutAnswer::Created);
    let Step::Done(committed) = expect_step(&mut commit_loop, "done 5 in 1") else { panic!("not done") };
    assert!(committed.follows_base && committed.state.version == 5 && committed.num_added == 1);
}

#[test]
fn winners_are_read_after_the_wait_and_before_the_next_put() {
    let mut commit_loop = append(4);
    expect_step(&mut commit_loop, "put 5");
    commit_loop.put_answered(PutAnswer::Exists);
    expect_step(&mut commit_loop, "wait 1");
    commit_loop.waited(true);
    expect_step(&mut commit_loop, "read 5+1");
    assert!(commit_loop.read(bytes(OTHER)), "the next version is read too");
    expect_step(&mut commit_loop, "read 6+1");
    assert!(commit_loop.read(bytes(OTHER)));
    expect_step(&mut commit_loop, "read 7+2");
    assert!(!commit_loop.read(Ok(None)));
    expect_step(&mut commit_loop, "put 7");
    commit_loop.put_answered(PutAnswer::Created);
    let Step::Done(committed) = expect_step(&mut commit_loop, "done 7 in 2") else { panic!("not done") };
    assert!(!committed.follows_base);
}

#[test]
fn a_commit_is_recognized_by_its_id_and_made_durable() {
    for answer in [PutAnswer::Exists, PutAnswer::Unknown(lost())] {
        let mut commit_loop = append(4);
        let Step::Put { lines, .. } = expect_step(&mut commit_loop, "put 5") else { panic!("no put") };
        commit_loop.put_answered(answer);
        expect_step(&mut commit_loop, "wait 1");
        // Even without another attempt the log is searched for the commit.
        commit_loop.waited(false);
        expect_step(&mut commit_loop, "read 5");
        assert!(!commit_loop.read(Ok(Some(lines.to_bytes().unwrap().into()))));
        expect_step(&mut commit_loop, "make 5 durable");
        commit_loop.made_durable(Ok(()));
        expect_step(&mut commit_loop, "done 5 in 1");
    }
}

#[test]
fn a_failure_is_certain_only_if_no_put_can_have_landed() {
    let until_read = |answer: PutAnswer<Error>, another: bool| {
        let mut commit_loop = append(4);
        expect_step(&mut commit_loop, "put 5");
        commit_loop.put_answered(answer);
        expect_step(&mut commit_loop, "wait 1");
        commit_loop.waited(another);
        expect_step(&mut commit_loop, "read 5");
        commit_loop
    };
    let mut refused = append(4);
    expect_step(&mut refused, "put 5");
    refused.put_answered(PutAnswer::Refused(Error::storage(false, "no permission")));
    expect_step(&mut refused, "failed: no permission");

    let mut conflict = until_read(PutAnswer::Unknown(lost()), true);
    conflict.read(bytes(METADATA));
    expect_step(&mut conflict, "failed: MetadataChanged");

    let mut unread = until_read(PutAnswer::Exists, true);
    unread.read(Err(lost()));
    expect_step(&mut unread, "unknown: the outcome of the commit is unknown");

    let mut not_there = until_read(PutAnswer::Unknown(lost()), false);
    not_there.read(Ok(None));
    expect_step(&mut not_there, "unknown: the outcome of the commit is unknown");

    // Another commit has the version, so the put cannot land any more.
    let mut given_up = until_read(PutAnswer::Unknown(lost()), false);
    given_up.read(bytes(OTHER));
    given_up.read(Ok(None));
    expect_step(&mut given_up, "failed: other writers committed first");
    let mut later = until_read(PutAnswer::Unknown(lost()), true);
    later.read(bytes(OTHER));
    later.read(Err(lost()));
    expect_step(&mut later, "failed: the answer was lost");

    let mut cancelled = until_read(PutAnswer::Unknown(lost()), true);
    cancelled.cancel();
    cancelled.read(bytes(OTHER));
    cancelled.read(Ok(None));
    expect_step(&mut cancelled, "failed: interrupted: nothing was committed");
}

#[test]
fn an_old_base_is_verified_before_and_after_the_put() {
    let later = NOW + 40 * 24 * 60 * 60 * 1000;
    let mut commit_loop = append(4);
    assert_eq!(short_form(&commit_loop.next(later)), "check 4 5");
    commit_loop.base_checked_before_put(Ok(true));
    let Step::Failed(Failed::NotWritten(error)) = commit_loop.next(later) else { panic!("not failed") };
    assert_eq!((error.kind(), error.version()), (&Kind::Storage { retryable: false }, Some(5)));

    for (verified, expected) in [
        (Ok(false), "done 5 in 1"),
        (Ok(true), "unknown: the outcome of the commit is unknown: it is in the log at version 5"),
        (Err(lost()), "unknown: the outcome of the commit is unknown"),
    ] {
        let mut commit_loop = append(4);
        commit_loop.next(later);
        commit_loop.base_checked_before_put(Ok(false));
        assert_eq!(short_form(&commit_loop.next(later)), "put 5");
        commit_loop.put_answered(PutAnswer::Created);
        assert_eq!(short_form(&commit_loop.next(later)), "verify 4 5");
        commit_loop.base_checked_after_put(verified);
        let step = short_form(&commit_loop.next(later));
        assert!(step.starts_with(expected), "{step}");
    }
}

#[test]
fn nothing_is_put_after_the_largest_version() {
    let mut commit_loop = append(i64::MAX as u64);
    expect_step(&mut commit_loop, "failed: the log has reached the largest possible version");
}

#[test]
fn changed_vectors_are_stored_before_each_put() {
    let stored = |rows: &[u64]| Ok(vec![rows.iter().copied().collect::<DeletionVector>().to_inline().unwrap()]);
    let winner = |rows: &[u64]| {
        let vector = rows.iter().copied().collect::<DeletionVector>().to_inline().unwrap();
        let add = json!({"add": {"path": "f", "partitionValues": {}, "size": 7, "modificationTime": 1, "dataChange": true,
            "deletionVector": vector}});
        let lines = format!("{}\n{add}\n", json!({"remove": {"path": "f", "dataChange": true}}));
        (Ok(Some(Bytes::from(lines))), rows.iter().copied().collect::<DeletionVector>())
    };
    let mut commit_loop = marks(4);
    expect_step(&mut commit_loop, "store 1");
    commit_loop.vectors_stored(stored(&[1]));
    expect_step(&mut commit_loop, "put 5");
    commit_loop.put_answered(PutAnswer::Exists);
    commit_loop.waited(true);
    expect_step(&mut commit_loop, "read 5+1");
    let (lines, vector) = winner(&[3]);
    // The next version is read after the conflict check of this one.
    assert!(!commit_loop.read(lines));
    expect_step(&mut commit_loop, "vectors 1");
    commit_loop.vectors_read(Ok(vec![vector]));
    expect_step(&mut commit_loop, "read 6+1");
    assert!(!commit_loop.read(Ok(None)));
    let Step::StoreVectors { vectors } = expect_step(&mut commit_loop, "store 1") else { panic!("no vectors") };
    assert_eq!(vectors[0].iter().collect::<Vec<_>>(), [1, 3]);
    commit_loop.vectors_stored(stored(&[1, 3]));
    let Step::Put { lines, .. } = expect_step(&mut commit_loop, "put 6") else { panic!("no put") };
    let lines = String::from_utf8(lines.to_bytes().unwrap()).unwrap();
    assert!(lines.contains("\"cardinality\":2") && lines.contains("\"cardinality\":1"), "{lines}");
    commit_loop.put_answered(PutAnswer::Created);
    expect_step(&mut commit_loop, "done 6 in 2");

    // If a vector cannot be stored or read, the commit fails: nothing was put, or another commit has the version.
    let mut commit_loop = marks(4);
    expect_step(&mut commit_loop, "store 1");
    commit_loop.vectors_stored(Err(lost()));
    expect_step(&mut commit_loop, "failed: the answer was lost");
    let mut commit_loop = marks(4);
    commit_loop.next(NOW + 1);
    commit_loop.vectors_stored(stored(&[1]));
    commit_loop.next(NOW + 1);
    commit_loop.put_answered(PutAnswer::Unknown(lost()));
    commit_loop.waited(true);
    let (lines, _) = winner(&[3]);
    commit_loop.read(lines);
    expect_step(&mut commit_loop, "vectors 1");
    commit_loop.vectors_read(Err(lost()));
    expect_step(&mut commit_loop, "failed: the answer was lost");
}

/// A commit that lost version 5 to one that marks a row of `f` and moves the rows of `g` to `h`.
fn lost_to_a_move() -> CommitLoop {
    let vector = |rows: &[u64]| rows.iter().copied().collect::<DeletionVector>().to_inline().unwrap();
    let file = |path: &str, data_change: bool| {
        json!({"path": path, "partitionValues": {}, "size": 7, "modificationTime": 1,
        "dataChange": data_change, "baseRowId": 0, "defaultRowCommitVersion": 1})
    };
    let mut marked = file("f", true);
    marked["deletionVector"] = json!(vector(&[3]));
    let lines = [
        json!({"remove": {"path": "f", "dataChange": true}}),
        json!({ "add": marked }),
        json!({"remove": {"path": "g", "dataChange": false}}),
        json!({ "add": file("h", false) }),
    ];
    let mut commit_loop = marks_tracked_rows(4);
    expect_step(&mut commit_loop, "store 2");
    commit_loop.vectors_stored(Ok(vec![vector(&[1]), vector(&[1])]));
    expect_step(&mut commit_loop, "put 5");
    commit_loop.put_answered(PutAnswer::Unknown(lost()));
    commit_loop.waited(true);
    expect_step(&mut commit_loop, "read 5+1");
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert!(!commit_loop.read(Ok(Some(Bytes::from(lines)))));
    expect_step(&mut commit_loop, "vectors 1");
    commit_loop.vectors_read(Ok(vec![[3].into_iter().collect()]));
    commit_loop
}

fn found_in(path: &str, rows: &[u64]) -> MarkedFile {
    let add = Add { path: path.to_owned(), size: 7, base_row_id: Some(0), ..Add::default() };
    let (rows_deleted_before_commit, rows) = (DeletionVector::default(), rows.iter().copied().collect());
    MarkedFile {
        add: Add { default_row_commit_version: Some(1), ..add },
        physical_rows: 20,
        rows_deleted_before_commit,
        rows,
        vector: None,
    }
}

/// A commit that lost version 5 to one with these actions and a file of any rows.
fn lost_to_added_rows(actions: &str) -> CommitLoop {
    let mut commit_loop = reads(4);
    expect_step(&mut commit_loop, "put 5");
    commit_loop.put_answered(PutAnswer::Exists);
    commit_loop.waited(true);
    expect_step(&mut commit_loop, "read 5+1");
    let lines = format!("{actions}{}", OTHER.replace("\"isBlindAppend\":true", "\"isBlindAppend\":false"));
    assert!(!commit_loop.read(Ok(Some(Bytes::from(lines)))));
    commit_loop
}

#[test]
fn added_files_are_searched() {
    let mut commit_loop = lost_to_added_rows("");
    expect_step(&mut commit_loop, "search 1 files");
    commit_loop.added_rows_searched(Ok(None));
    expect_step(&mut commit_loop, "read 6+1");
    assert!(!commit_loop.read(Ok(None)));
    expect_step(&mut commit_loop, "put 6");
    for found in [Ok(Some("o".to_owned())), Err(Error::corrupt("no footer")), Err(Error::not_found("gone"))] {
        let mut commit_loop = lost_to_added_rows("");
        commit_loop.added_rows_searched(found);
        expect_step(&mut commit_loop, "failed: ConcurrentAppend");
    }
    let mut commit_loop = lost_to_added_rows("");
    commit_loop.added_rows_searched(Err(lost()));
    expect_step(&mut commit_loop, "failed: the answer was lost");
}

#[test]
fn added_files_are_not_searched_if_the_winner_conflicts_anyway() {
    let removes = json!({"remove": {"path": "read", "dataChange": true}});
    expect_step(&mut lost_to_added_rows(&format!("{removes}\n")), "failed: ConcurrentAppend");
    expect_step(&mut lost_to_added_rows(METADATA), "failed: MetadataChanged");
}

#[test]
fn moved_rows_are_found_before_the_next_version_is_read() {
    let mut commit_loop = lost_to_a_move();
    expect_step(&mut commit_loop, "find rows of 1 files in 1");
    commit_loop.moved_rows_found(Ok(Some(vec![found_in("h", &[12])])));
    expect_step(&mut commit_loop, "read 6+1");
    assert!(!commit_loop.read(Ok(None)));
    let Step::StoreVectors { vectors } = expect_step(&mut commit_loop, "store 2") else { panic!("no vectors") };
    let rows: Vec<Vec<u64>> = vectors.iter().map(|vector| vector.iter().collect()).collect();
    assert_eq!(rows, [vec![1, 3], vec![12]]);
    commit_loop.vectors_stored(Ok(vectors.iter().map(|vector| vector.to_inline().unwrap()).collect()));
    let Step::Put { lines, .. } = expect_step(&mut commit_loop, "put 6") else { panic!("no put") };
    let lines = String::from_utf8(lines.to_bytes().unwrap()).unwrap();
    assert!(lines.contains("\"path\":\"h\"") && !lines.contains("\"path\":\"g\""), "{lines}");
    commit_loop.put_answered(PutAnswer::Created);
    expect_step(&mut commit_loop, "done 6 in 2");
}

#[test]
fn moved_rows_that_are_not_found_are_a_conflict() {
    let corrupt = || Error::corrupt("no row ids");
    for found in [Ok(None), Ok(Some(vec![found_in("h", &[])])), Err(corrupt()), Err(Error::not_found("gone"))] {
        let mut commit_loop = lost_to_a_move();
        expect_step(&mut commit_loop, "find");
        commit_loop.moved_rows_found(found);
        // The put of version 5 was lost for certain, since the version is another's.
        let Step::Failed(Failed::NotWritten(error)) = expect_step(&mut commit_loop, "failed: ConcurrentDeleteDelete")
        else {
            panic!("not refused")
        };
        assert_eq!((error.kind(), error.version()), (&Kind::Conflict(Conflict::ConcurrentDeleteDelete), Some(5)));
    }
    for error in [lost(), Error::interrupted("interrupted: nothing was committed")] {
        let mut commit_loop = lost_to_a_move();
        let message = format!("failed: {}", error.message());
        commit_loop.moved_rows_found(Err(error));
        expect_step(&mut commit_loop, &message);
    }
}
