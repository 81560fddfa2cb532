//! Commits to a store that answers wrongly, loses answers and lets other writers win.
//!
//! [`Faulty`] answers puts by a script and records the requests. On each put it checks that the version below was read
//! before.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::lines::Lines;
use deltic_protocol::action::{Action, Add, Remove, Txn};
use deltic_protocol::commit::{Actions, Pending, ReadSet, TableState};
use deltic_protocol::commit::{Committed, ENGINE_INFO, Failed, PreparedCommit};
use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_protocol::log::name::commit_name;
use deltic_protocol::property::IsolationLevel;
use deltic_store::{Put, Storage, Syncing};
use deltic_table::commit::{NoDeletionVectors, RetryPolicy, commit, try_commit};
use deltic_table::committers::{Committer, LogCommitter, MemoryCommitter, OtherLogFile};
use deltic_table::log::{LogSource, log_file_path};
use futures::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Map, json};

/// How a put ends.
#[derive(Debug, Clone)]
enum Answer {
    Correct,
    /// Another writer commits these lines first.
    After(&'static str),
    /// The put succeeds, and the answer is lost.
    LandsUnanswered,
    /// The put and its answer are lost.
    Lost,
    /// The put succeeds during the next request, and the answer is lost.
    LandsLater,
    /// The put is sent twice: the first succeeds, and the answer is that of the second.
    Repeated,
    /// The store answers that nothing was written.
    Fails,
}

#[derive(Debug, Default)]
struct State {
    versions: BTreeMap<u64, Bytes>,
    answers: VecDeque<Answer>,
    failing_reads: BTreeSet<usize>,
    reads: usize,
    late: Option<(u64, Bytes)>,
    calls: Vec<String>,
    /// Whether making a version durable fails.
    fails_durability: bool,
    seen: BTreeSet<u64>,
}

impl State {
    fn put(&mut self, version: u64, lines: Bytes) -> Put {
        match self.versions.entry(version) {
            std::collections::btree_map::Entry::Occupied(_) => Put::Exists,
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(lines);
                Put::Created
            }
        }
    }

    fn land_late_put(&mut self) {
        if let Some((version, lines)) = self.late.take() {
            self.put(version, lines);
        }
    }
}

#[derive(Debug)]
struct Faulty {
    first: u64,
    state: Mutex<State>,
}

impl Faulty {
    /// A log that ends with version 4, so that 5 is the next.
    fn new(answers: &[Answer]) -> Self {
        let state = State { answers: answers.iter().cloned().collect(), ..State::default() };
        Self { first: 5, state: Mutex::new(state) }
    }

    fn calls(&self) -> String {
        self.state.lock().unwrap().calls.join(" ")
    }
}

fn lost() -> Error {
    Error::storage(true, "the connection was reset")
}

impl Committer for Faulty {
    fn commit(&self, version: u64, lines: Lines, _files: Syncing) -> BoxFuture<'_, Result<Put>> {
        let lines = Bytes::from(lines.to_bytes().unwrap());
        Box::pin(async move {
            let mut state = self.state.lock().unwrap();
            state.calls.push(format!("put{version}"));
            assert!(
                version == self.first || state.seen.contains(&(version - 1)),
                "{version} is put before {} was read",
                version - 1
            );
            state.land_late_put();
            Ok(match state.answers.pop_front().unwrap_or(Answer::Correct) {
                Answer::Correct => state.put(version, lines),
                Answer::After(winner) => {
                    state.put(version, Bytes::from_static(winner.as_bytes()));
                    state.put(version, lines)
                }
                Answer::LandsUnanswered => {
                    state.put(version, lines);
                    Put::Unknown(lost())
                }
                Answer::Lost => Put::Unknown(lost()),
                Answer::LandsLater => {
                    state.late = Some((version, lines));
                    Put::Unknown(lost())
                }
                Answer::Repeated => {
                    state.put(version, lines.clone());
                    state.put(version, lines)
                }
                Answer::Fails => return Err(Error::storage(false, "no permission")),
            })
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap();
            state.calls.push(format!("read{version}"));
            state.reads += 1;
            if state.failing_reads.contains(&state.reads) {
                return Err(Error::storage(true, "no connection"));
            }
            let found = state.versions.get(&version).cloned();
            if found.is_some() {
                state.seen.insert(version);
            }
            Ok(found)
        })
    }

    fn put_other<'a>(&'a self, _name: &'a str, _file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async { Err(Error::internal("only commits are put")) })
    }

    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap();
            state.calls.push(format!("durable{version}"));
            if state.fails_durability { Err(Error::storage(true, "the disk failed")) } else { Ok(()) }
        })
    }

    fn log_continues_past(&self, _version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { unreachable!("a young base is not verified") })
    }
}

/// A fixed clock, and this many attempts.
struct Attempts(u32);

impl RetryPolicy for Attempts {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        (attempts < self.0).then_some(Duration::ZERO)
    }
}

/// A table with the long column `x`, at a version.
fn state(version: u64) -> TableState {
    let schema = r#"{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}"#;
    let metadata = serde_json::from_value(json!({"id": "t", "schemaString": schema})).unwrap();
    let protocol = serde_json::from_value(json!({"minReaderVersion": 1, "minWriterVersion": 2})).unwrap();
    TableState {
        version,
        protocol,
        metadata,
        row_id_watermark: None,
        clustering: vec![],
        timestamp: Some(1_700_000_000_000),
    }
}

fn pending(version: u64, actions: Vec<Action>) -> Pending {
    Pending {
        state: Some(state(version)),
        read: ReadSet::Nothing,
        read_apps: BTreeSet::new(),
        isolation: IsolationLevel::Serializable,
        actions: Actions::of(actions).unwrap(),
        marked: Default::default(),
    }
}

fn append(txn_id: &str) -> PreparedCommit {
    let add = Action::Add(Add { path: format!("{txn_id}.parquet"), data_change: true, ..Add::default() });
    PreparedCommit {
        pending: pending(4, vec![add]),
        operation: "WRITE".to_owned(),
        parameters: Map::new(),
        metrics: Map::new(),
        user_metadata: None,
        info: Map::new(),
        txn_id: txn_id.to_owned(),
    }
}

fn text(committed: &Committed) -> Bytes {
    committed.lines.to_bytes().unwrap().into()
}

fn parsed(lines: &Bytes) -> CommitActions {
    parse_commit(lines, Origin::Commit(0), Wanted::All).unwrap()
}

const APPEND: &str = r#"{"commitInfo":{"txnId":"rival"}}
{"add":{"path":"w","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}"#;
const REMOVE: &str = r#"{"remove":{"path":"w","dataChange":true}}"#;
const METADATA: &str = r#"{"metaData":{"id":"i","schemaString":"{}"}}"#;
const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":1}}"#;
const TXN: &str = r#"{"txn":{"appId":"app","version":1}}"#;

/// Commits an append. Returns its result, the requests, and the log.
async fn run(answers: &[Answer], attempts: u32) -> (Result<Committed>, String, BTreeMap<u64, Bytes>) {
    let store = Faulty::new(answers);
    let outcome = commit(append("mine"), &store, &Attempts(attempts)).await;
    let calls = store.calls();
    (outcome, calls, store.state.into_inner().unwrap().versions)
}

#[track_caller]
fn check(found: &(Result<Committed>, String, BTreeMap<u64, Bytes>), version: u64, attempts: u32, calls: &str) {
    let (outcome, requests, versions) = found;
    let committed = outcome.as_ref().unwrap();
    assert_eq!((committed.version, committed.attempts, requests.as_str()), (version, attempts, calls));
    assert_eq!((text(committed), committed.state.version), (versions[&version].clone(), version));
    assert_eq!(committed.follows_base, version == 5);
    assert_eq!(parsed(&versions[&version]).commit_info.unwrap().txn_id(), Some("mine"));
    let mine = versions.values().filter(|lines| parsed(lines).commit_info.is_some_and(|i| i.txn_id() == Some("mine")));
    assert_eq!(mine.count(), 1, "committed once");
}

#[tokio::test]
async fn without_a_race_one_put_is_sent() {
    check(&run(&[], 1).await, 5, 1, "put5");
}

#[tokio::test]
async fn after_a_lost_race_winners_are_read_and_the_next_version_is_tried() {
    check(&run(&[Answer::After(APPEND)], 9).await, 6, 2, "put5 read5 read6 put6");
    let calls = "put5 read5 read6 put6 read6 read7 put7";
    check(&run(&[Answer::After(APPEND), Answer::After(REMOVE)], 9).await, 7, 3, calls);
    let store = Faulty::new(&[]);
    for version in 5..8 {
        store.state.lock().unwrap().put(version, Bytes::from_static(APPEND.as_bytes()));
    }
    let committed = commit(append("mine"), &store, &Attempts(2)).await.unwrap();
    assert_eq!((committed.version, committed.attempts), (8, 2));
    assert_eq!(store.calls(), "put5 read5 read6 read7 read8 put8");
}

#[tokio::test]
async fn a_commit_with_a_lost_answer_is_recognized() {
    check(&run(&[Answer::LandsUnanswered], 1).await, 5, 1, "put5 read5 durable5");
    check(
        &run(&[Answer::After(APPEND), Answer::LandsUnanswered], 9).await,
        6,
        2,
        "put5 read5 read6 put6 read6 durable6",
    );
    check(&run(&[Answer::Repeated], 1).await, 5, 1, "put5 read5 durable5");
    // It was not in the log yet when the log was read.
    check(&run(&[Answer::LandsLater], 9).await, 5, 2, "put5 read5 put5 read5 durable5");
}

#[tokio::test]
async fn a_commit_that_is_not_durable_is_not_acknowledged() {
    let store = Faulty::new(&[Answer::LandsUnanswered]);
    store.state.lock().unwrap().fails_durability = true;
    let error = commit(append("mine"), &store, &Attempts(9)).await.unwrap_err();
    assert!(error.message().contains("outcome of the commit is unknown"), "{error}");
    assert_eq!(store.calls(), "put5 read5 durable5");
}

#[tokio::test]
async fn the_largest_version() {
    let mut transaction = append("mine");
    transaction.pending = pending(i64::MAX as u64, Vec::new());
    let store = Faulty { first: i64::MAX as u64 + 1, ..Faulty::new(&[]) };
    assert_eq!(commit(transaction, &store, &Attempts(9)).await.unwrap_err().kind(), &Kind::Corrupt);
    assert_eq!(store.calls(), "");
}

/// Commits a transaction that was prepared on version 4 a year ago. The log now has these versions.
async fn late(versions: &[u64]) -> (Result<Committed>, Storage) {
    let storage = Storage::open(&format!("memory://late-{}", versions.len()), &HashMap::new()).unwrap();
    for version in versions {
        storage.put(&log_file_path(&commit_name(*version)), Bytes::from_static(APPEND.as_bytes())).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut transaction = append("mine");
    transaction.pending.state.as_mut().unwrap().timestamp = Some(1_670_000_000_000);
    (commit(transaction, &LogCommitter::new(LogSource::of(&storage)), &Attempts(9)).await, storage)
}

#[tokio::test]
async fn a_cleaned_up_version_is_not_free() {
    let (outcome, storage) = late(&[8, 9]).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), Kind::Storage { retryable: false }), "{error:?}");
    assert!(error.message().contains("Start again from the newest version"), "{error}");
    assert!(storage.get(&log_file_path(&commit_name(5))).await.unwrap_err().is_not_found());
    // Logs without later commits were not cleaned up past the version.
    assert_eq!(late(&[4]).await.0.unwrap().version, 5);
    assert_eq!(late(&[]).await.0.unwrap().version, 5);
}

/// Cleans up the log just before a put: version 4 is deleted, and the log continues at 8.
struct CleanedBeforePut(LogCommitter, Storage);

impl Committer for CleanedBeforePut {
    fn commit(&self, version: u64, lines: Lines, files: Syncing) -> BoxFuture<'_, Result<Put>> {
        Box::pin(async move {
            self.1.delete(&log_file_path(&commit_name(4))).await?;
            self.1.put(&log_file_path(&commit_name(8)), Bytes::from_static(APPEND.as_bytes())).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.commit(version, lines, files).await
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.0.read(version)
    }

    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        self.0.put_other(name, file)
    }

    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>> {
        self.0.make_durable(version)
    }

    fn log_continues_past(&self, version: u64) -> BoxFuture<'_, Result<bool>> {
        self.0.log_continues_past(version)
    }
}

#[tokio::test]
async fn a_commit_after_log_cleanup_stays_and_is_not_acknowledged() {
    let storage = Storage::open("memory://cleaned-before-put", &HashMap::new()).unwrap();
    storage.put(&log_file_path(&commit_name(4)), Bytes::from_static(APPEND.as_bytes())).await.unwrap();
    let committer = CleanedBeforePut(LogCommitter::new(LogSource::of(&storage)), storage.clone());
    let mut transaction = append("mine");
    transaction.pending.state.as_mut().unwrap().timestamp = Some(1_670_000_000_000);
    let failed = try_commit(transaction, &committer, &NoDeletionVectors, &mut Syncing::default(), &Attempts(9))
        .await
        .unwrap_err();
    let Failed::Unknown(error) = failed else { panic!("{failed:?}") };
    assert!(matches!(error.kind(), Kind::Storage { retryable: false }), "{error:?}");
    assert_eq!(error.version(), Some(5));
    assert!(error.message().contains("it is in the log at version 5, but log cleanup has deleted"), "{error}");
    assert!(storage.get(&log_file_path(&commit_name(5))).await.is_ok());
}

#[tokio::test]
async fn a_lost_put_is_sent_again_to_the_same_version() {
    check(&run(&[Answer::Lost], 9).await, 5, 2, "put5 read5 put5");
    check(
        &run(&[Answer::Lost, Answer::Lost, Answer::After(APPEND)], 9).await,
        6,
        4,
        "put5 read5 put5 read5 put5 read5 read6 put6",
    );
}

#[tokio::test]
async fn conflicting_winners_are_errors() {
    for (winner, expected) in [(METADATA, Conflict::MetadataChanged), (PROTOCOL, Conflict::ProtocolChanged)] {
        let (outcome, calls, _) = run(&[Answer::After(winner)], 9).await;
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.version(), calls.as_str()), (&Kind::Conflict(expected), Some(5), "put5 read5"));
        assert!(error.message().starts_with(&expected.to_string()), "{error}");
        // The same with a second winner, after a put that may have succeeded.
        let (outcome, ..) = run(&[Answer::Lost, Answer::After(APPEND), Answer::After(winner)], 9).await;
        assert_eq!(outcome.unwrap_err().kind(), &Kind::Conflict(expected));
    }
    let judge = async |read, action, winner| {
        let mut transaction = append("mine");
        transaction.pending = Pending { read, ..pending(4, vec![action]) };
        let outcome = commit(transaction, &Faulty::new(&[Answer::After(winner)]), &Attempts(9)).await;
        outcome.map_err(|e| e.kind().clone()).map(|c| c.version)
    };
    let remove = || Action::Remove(Remove { path: "w".to_owned(), data_change: true, ..Remove::default() });
    let txn = |app_id: &str| Action::Txn(Txn { app_id: app_id.to_owned(), version: 2, last_updated: None });
    let conflict = |conflict| Err(Kind::Conflict(conflict));
    use ReadSet::{AllRows, Nothing};
    assert_eq!(judge(AllRows, remove(), APPEND).await, conflict(Conflict::ConcurrentAppend));
    assert_eq!(judge(AllRows, remove(), REMOVE).await, conflict(Conflict::ConcurrentDeleteRead));
    assert_eq!(judge(Nothing, remove(), REMOVE).await, conflict(Conflict::ConcurrentDeleteDelete));
    assert_eq!(judge(Nothing, txn("app"), TXN).await, conflict(Conflict::ConcurrentTransaction));
    assert_eq!(judge(Nothing, txn("other"), TXN).await, Ok(6));
}

#[track_caller]
fn unknown(error: &Error) {
    // Not retryable, for callers that only check the kind.
    assert_eq!(*error.kind(), Kind::Storage { retryable: false }, "{error}");
    assert!(error.message().contains("unknown") && error.message().contains("txnId mine"), "{error}");
    assert!(std::error::Error::source(error).is_some(), "{error}");
}

#[tokio::test]
async fn the_error_says_whether_the_outcome_is_known() {
    let (outcome, ..) = run(&[Answer::After(APPEND), Answer::After(APPEND)], 2).await;
    let error = outcome.unwrap_err();
    assert_eq!(*error.kind(), Kind::Storage { retryable: true });
    assert!(error.message().contains("committed first; nothing was committed (attempts: 2)"), "{error}");

    unknown(&run(&[Answer::Lost], 1).await.0.unwrap_err());
    // After an error of a later put the outcome of the first is still unknown.
    unknown(&run(&[Answer::Lost, Answer::Fails], 9).await.0.unwrap_err());
    // If another commit has the version, the outcome is known.
    let (outcome, ..) = run(&[Answer::Lost, Answer::After(APPEND)], 2).await;
    assert!(outcome.unwrap_err().message().contains("nothing was committed"));
    let (outcome, ..) = run(&[Answer::Lost, Answer::After(APPEND), Answer::Fails], 9).await;
    assert_eq!(outcome.unwrap_err().message(), "no permission");
    let (outcome, calls, _) = run(&[Answer::Fails], 9).await;
    assert_eq!((outcome.unwrap_err().message(), calls.as_str()), ("no permission", "put5"));
}

#[tokio::test]
async fn after_a_failed_read_a_lost_put_is_unknown() {
    let failing = async |answers: &[Answer], read: usize| {
        let store = Faulty::new(answers);
        store.state.lock().unwrap().failing_reads.insert(read);
        commit(append("mine"), &store, &Attempts(9)).await.unwrap_err()
    };
    unknown(&failing(&[Answer::LandsUnanswered], 1).await);
    unknown(&failing(&[Answer::Lost, Answer::LandsUnanswered], 2).await);
    unknown(&failing(&[Answer::Lost, Answer::After(APPEND)], 2).await);
    // The winner was read, so the lost put cannot land any more.
    assert_eq!(failing(&[Answer::Lost, Answer::After(APPEND)], 3).await.message(), "no connection");
    // An existing version may be our own: a proxy may have sent the put twice.
    unknown(&failing(&[Answer::After(APPEND)], 1).await);
    unknown(&failing(&[Answer::Repeated], 1).await);
}

#[tokio::test]
async fn an_unreadable_winner_is_corrupt_with_its_path() {
    for torn in ["{\"commitInfo\":", ""] {
        let error = run(&[Answer::After(torn)], 9).await.0.unwrap_err();
        assert_eq!((error.kind(), error.version()), (&Kind::Corrupt, Some(5)));
        assert_eq!(error.path(), Some("_delta_log/00000000000000000005.json"));
    }
}

#[tokio::test]
async fn the_type_of_a_failure_has_its_certainty() {
    let check = async |answers: &[Answer], failing_read: usize, attempts: u32, certain: bool| {
        let store = Faulty::new(answers);
        store.state.lock().unwrap().failing_reads.insert(failing_read);
        let failed =
            try_commit(append("mine"), &store, &NoDeletionVectors, &mut Syncing::default(), &Attempts(attempts))
                .await
                .unwrap_err();
        assert_eq!(matches!(failed, Failed::NotWritten(_)), certain, "{answers:?}: {failed:?}");
    };
    check(&[Answer::Fails], 0, 9, true).await;
    check(&[Answer::After(APPEND)], 0, 1, true).await;
    check(&[Answer::After(METADATA)], 0, 9, true).await;
    check(&[Answer::Lost, Answer::After(PROTOCOL)], 0, 9, true).await;
    check(&[Answer::After(APPEND)], 2, 9, true).await;
    check(&[Answer::Lost], 0, 1, false).await;
    check(&[Answer::LandsUnanswered], 1, 9, false).await;
    check(&[Answer::Lost, Answer::Fails], 0, 9, false).await;
    // The version cannot be read, and may be our own.
    check(&[Answer::After("{\"commitInfo\":")], 0, 9, false).await;
}

#[tokio::test]
async fn members_of_the_commit_info() {
    let store = MemoryCommitter::default();
    let mut transaction = append("mine");
    transaction.parameters.insert("mode".to_owned(), json!("Append"));
    transaction.metrics.insert("numFiles".to_owned(), json!("1"));
    transaction.user_metadata = Some("note".to_owned());
    commit(transaction, &store, &Attempts(1)).await.unwrap();
    let lines = store.versions()[&5].clone();
    assert!(lines.starts_with(b"{\"commitInfo\":"), "it comes first");
    let info = |lines: &Bytes| serde_json::Value::Object(parsed(lines).commit_info.unwrap().0);
    assert_eq!(
        info(&lines),
        json!({"timestamp": 1_700_000_000_000_i64, "operation": "WRITE", "operationParameters": {"mode": "Append"},
            "readVersion": 4, "isolationLevel": "Serializable", "isBlindAppend": true,
            "operationMetrics": {"numFiles": "1"}, "engineInfo": ENGINE_INFO, "userMetadata": "note", "txnId": "mine"})
    );
    let blind = async |transaction: PreparedCommit| {
        let store = MemoryCommitter::default();
        commit(transaction, &store, &Attempts(1)).await.unwrap();
        parsed(store.versions().values().next().unwrap()).commit_info.unwrap().is_blind_append()
    };
    let remove = Action::Remove(Remove { path: "w".to_owned(), ..Remove::default() });
    let with = |pending| PreparedCommit { pending, ..append("x") };
    let own = append("x").pending;
    assert!(blind(with(own.clone())).await);
    assert!(!blind(with(Pending { read: ReadSet::AllRows, ..own.clone() })).await);
    assert!(!blind(with(Pending { actions: Actions::of([remove]).unwrap(), ..own })).await);
}

#[tokio::test]
async fn a_cancelled_commit_reports_that_nothing_was_committed() {
    /// Cancelled after this many checks.
    struct Cancelled(std::sync::atomic::AtomicU32);
    impl RetryPolicy for Cancelled {
        fn now_ms(&self) -> i64 {
            1
        }
        fn back_off(&self, _: u32) -> Option<Duration> {
            Some(Duration::from_secs(3600))
        }
        fn is_cancelled(&self) -> bool {
            let order = std::sync::atomic::Ordering::Relaxed;
            self.0.fetch_update(order, order, |checks| checks.checked_sub(1)).is_err()
        }
    }
    let cancelled = |checks| Cancelled(std::sync::atomic::AtomicU32::new(checks));
    let store = Faulty::new(&[]);
    let error = commit(append("mine"), &store, &cancelled(0)).await.unwrap_err();
    assert_eq!((error.message(), store.calls().as_str()), ("interrupted: nothing was committed (attempts: 0)", ""));
    // A wait of an hour ends at once.
    for (answer, words) in
        [(Answer::After(APPEND), "nothing was committed"), (Answer::Lost, "outcome of the commit is unknown")]
    {
        let store = Faulty::new(&[answer]);
        let retry = Arc::new(cancelled(u32::MAX));
        let (task, own) = (retry.clone(), Arc::new(store));
        let commit = tokio::spawn(async move { commit(append("mine"), own.as_ref(), task.as_ref()).await });
        tokio::time::sleep(Duration::from_millis(30)).await;
        retry.0.store(0, std::sync::atomic::Ordering::Relaxed);
        let error = commit.await.unwrap().unwrap_err();
        assert!(error.message().contains(words), "{error}");
    }
}

#[tokio::test]
async fn row_ids_and_times_continue_after_the_winners() {
    let mut tracked = append("mine");
    let base = tracked.pending.state.as_mut().unwrap();
    base.protocol.min_writer_version = 7;
    base.protocol.writer_features =
        Some(["rowTracking", "domainMetadata", "inCommitTimestamp"].map(str::to_owned).to_vec());
    let configuration = &mut base.metadata.configuration;
    configuration.insert("delta.enableInCommitTimestamps".to_owned(), "true".to_owned());
    configuration.insert("delta.enableRowTracking".to_owned(), "true".to_owned());
    base.row_id_watermark = Some(9);
    base.timestamp = Some(1_700_000_000_005);
    let stats = Some("{\"numRecords\":4}".to_owned());
    let add = Add { path: "f".to_owned(), data_change: true, stats, ..Add::default() };
    tracked.pending.actions = Actions::of([Action::Add(add)]).unwrap();
    let winner = r#"{"commitInfo":{"inCommitTimestamp":1700000000500}}
{"add":{"path":"w","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"baseRowId":10}}
{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"rowIdHighWaterMark\":29}","removed":false}}"#;
    for (answers, version, time, first) in
        [(vec![], 5, 1_700_000_000_006, 10), (vec![Answer::After(winner)], 6, 1_700_000_000_501, 30)]
    {
        let store = Faulty::new(&answers);
        let committed = commit(tracked.clone(), &store, &Attempts(9)).await.unwrap();
        let actions = parsed(&text(&committed));
        let info = actions.commit_info.unwrap();
        assert_eq!((committed.version, info.in_commit_timestamp()), (version, Some(time)));
        assert_eq!(info.0["tags"], json!({"delta.rowTracking.preserved": "true"}));
        let number = |name: &str| actions.adds.int64(name).unwrap().value(0);
        assert_eq!((number("baseRowId"), number("defaultRowCommitVersion")), (first, version.cast_signed()));
        assert_eq!(actions.domains[0].configuration, format!("{{\"rowIdHighWaterMark\":{}}}", first + 3));
        assert_eq!((committed.state.row_id_watermark, committed.state.timestamp), (Some(first + 3), Some(time)));
    }
}

#[tokio::test]
async fn many_missed_commits_are_read_together() {
    let store = Faulty::new(&[]);
    for version in 5..45 {
        store.state.lock().unwrap().put(version, Bytes::from_static(APPEND.as_bytes()));
    }
    let committed = commit(append("mine"), &store, &Attempts(2)).await.unwrap();
    assert_eq!((committed.version, committed.attempts), (45, 2));
    // Each commit once, and a few missing ones.
    let reads = store.state.lock().unwrap().reads;
    assert!((41..=56).contains(&reads), "{reads}");
}

/// Commits `appends` times from each of `writers` tasks, and returns the versions.
async fn compete(store: Arc<dyn Committer>, writers: usize, appends: usize) -> BTreeSet<u64> {
    let created = store.commit(0, Lines::of(APPEND.as_bytes()).unwrap(), Syncing::default()).await.unwrap();
    assert!(matches!(created, Put::Created));
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut versions = Vec::new();
                let mut base = 0;
                for n in 0..appends {
                    let mut transaction = append(&format!("{writer}-{n}"));
                    transaction.pending.state = Some(state(base));
                    let committed = commit(transaction, store.as_ref(), &Attempts(10_000)).await.unwrap();
                    base = committed.version;
                    versions.push(committed.version);
                }
                assert!(versions.is_sorted());
                versions
            })
        })
        .collect();
    let mut all = BTreeSet::new();
    for task in tasks {
        for version in task.await.unwrap() {
            assert!(all.insert(version), "version {version} was acknowledged twice");
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_commit_once_in_memory() {
    let store = Arc::new(MemoryCommitter::default());
    let versions = compete(store.clone(), 8, 25).await;
    assert_eq!(versions, (1..=200).collect());
    let ids: BTreeSet<String> = store.versions().values().map(|l| parsed(l).adds.path().value(0).to_owned()).collect();
    assert_eq!((store.versions().len(), ids.len()), (201, 201));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_commit_once_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = HashMap::from([("deltic.durability".to_owned(), "none".to_owned())]);
    let storage = Storage::open(dir.path().to_str().unwrap(), &options).unwrap();
    let versions = compete(Arc::new(LogCommitter::new(LogSource::of(&storage))), 6, 10).await;
    assert_eq!(versions, (1..=60).collect());
    let log = LogSource::of(&storage).list(0).await.unwrap();
    assert_eq!(log.len(), 61);
    let mut ids = BTreeSet::new();
    for file in &log {
        let lines = storage.get(&log_file_path(&file.file_name)).await.unwrap();
        assert!(ids.insert(parsed(&lines).adds.path().value(0).to_owned()), "{} has a commit again", file.file_name);
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        3 => Just(Answer::Correct),
        2 => Just(Answer::After(APPEND)),
        1 => Just(Answer::After(REMOVE)),
        2 => Just(Answer::LandsUnanswered),
        2 => Just(Answer::Lost),
        2 => Just(Answer::LandsLater),
        1 => Just(Answer::Repeated),
        1 => Just(Answer::Fails),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn with_any_faults_a_commit_lands_once_or_not_or_is_unknown(
        answers in proptest::collection::vec(answer(), 0..8),
        failing_reads in proptest::collection::btree_set(1..12_usize, 0..2),
        attempts in 1..8_u32,
    ) {
        let store = Faulty::new(&answers);
        store.state.lock().unwrap().failing_reads = failing_reads;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let outcome = runtime.block_on(try_commit(append("mine"), &store, &NoDeletionVectors, &mut Syncing::default(), &Attempts(attempts)));
        let mut state = store.state.into_inner().unwrap();
        // The pending put succeeds after the writer got its result.
        state.land_late_put();
        let is_mine = |lines: &&Bytes| parsed(lines).commit_info.is_some_and(|i| i.txn_id() == Some("mine"));
        let mine = state.versions.values().filter(is_mine).count();
        match &outcome {
            Ok(committed) => {
                prop_assert_eq!(mine, 1);
                prop_assert!(state.versions.get(&committed.version).as_ref().is_some_and(is_mine));
            }
            Err(Failed::Unknown(e)) => prop_assert!(mine <= 1 && e.message().contains("unknown"), "{}", e),
            Err(Failed::NotWritten(e)) => prop_assert_eq!(mine, 0, "{}", e),
        }
        // Versions have no gap.
        let versions: Vec<u64> = state.versions.keys().copied().collect();
        prop_assert_eq!(versions, (5..5 + state.versions.len() as u64).collect::<Vec<_>>());
        // Nothing is read before the first put.
        prop_assert!(state.calls[0] == "put5", "{:?}", state.calls);
    }
}
