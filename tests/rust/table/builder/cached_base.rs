//! The handle state after the table was recreated or changed.

use deltic_protocol::commit::Committed;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::name::commit_name;
use deltic_store::{Storage, Syncing};
use deltic_table::committers::{CommitFile, LogCommitter, OtherLogFile};
use deltic_table::log::LogSource;

use super::*;

const COLUMNS: &[(&str, &str)] = &[("p", "string"), ("x", "long")];

/// Metadata of another table.
fn other_table(columns: &[(&str, &str)], configuration: Value) -> Value {
    let mut metadata = metadata(columns, &["p"], configuration);
    metadata["metaData"]["id"] = json!("another");
    metadata
}

/// Replaces the log by these commits.
fn replace_log(sample: &Sample, commits: &[Vec<Value>]) {
    let folder = sample.log("");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::create_dir_all(folder.join("_sidecars")).unwrap();
    commits.iter().zip(0..).for_each(|(actions, version)| sample.commit(version, actions));
}

fn in_c(path: &str) -> Value {
    add_with(path, json!({"partitionValues": {"p": "c"}}))
}

/// The files of the log, without the folder of sidecars.
fn log_files(sample: &Sample) -> Vec<String> {
    let entries = std::fs::read_dir(sample.log("")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "_sidecars");
    names.sort();
    names
}

/// Commits one file with a handle state.
async fn add_one(sample: &Sample, base: HandleState, path: &str) -> Result<Committed> {
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(Some(base)), TransactionOptions::default(), &World).await.unwrap();
    std::fs::write(sample.log(&format!("../{path}")), b"rows").unwrap();
    transaction.append(vec![file(path)]);
    let outcome = commit(transaction).await?.unwrap();
    assert!(outcome.post_commit.failed.is_empty(), "{:?}", outcome.post_commit.failed);
    Ok(outcome.committed)
}

/// The paths of the newest version.
async fn paths(sample: &Sample) -> Vec<String> {
    live(&sample.open().await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn the_base_is_checked_before_and_after_the_put() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    written_ms_after(&sample, base.state.version, 100);
    let before = sample.storage.counts();
    append(&sample, Some(base), "c2").await;
    let counts = sample.storage.counts().since(&before);
    assert_eq!((counts.puts, counts.heads, counts.lists, counts.gets, counts.deletes), (2, 2, 0, 0, 0));
}

/// Sets the modification time of a commit to so many milliseconds after now.
fn written_ms_after(sample: &Sample, version: u64, after_ms: u64) {
    let file = std::fs::File::options().append(true).open(sample.log(&commit_name(version))).unwrap();
    let now = u64::try_from(World.now_ms()).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_millis(now + after_ms)).unwrap();
}

#[tokio::test]
async fn a_wrong_clock_costs_a_listing_but_no_error() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    written_ms_after(&sample, base.state.version, 10_000);
    let before = sample.storage.counts();
    let committed = add_one(&sample, base, "c2").await.unwrap();
    assert_eq!((committed.version, committed.attempts), (2, 1));
    assert!(sample.storage.counts().since(&before).lists > 0);
}

#[tokio::test]
async fn a_commit_goes_to_the_recreated_table() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    let base = append(&sample, Some(base), "c2").await;
    let create = vec![protocol(1, 2), other_table(COLUMNS, json!({"delta.appendOnly": "true"}))];
    // The new table has fewer, as many, or more versions.
    for versions in [1, 2, 3, 4, 6] {
        let mut commits = vec![create.clone()];
        commits.extend((1..versions).map(|version| vec![in_c(&format!("n{version}"))]));
        replace_log(&sample, &commits);
        let committed = add_one(&sample, base.clone(), "c3").await.unwrap();
        assert_eq!(committed.version, versions);
        let mut expected: Vec<String> = (1..versions).map(|version| format!("n{version}")).collect();
        expected.insert(0, "c3".to_owned());
        assert_eq!(paths(&sample).await, expected);
        let mut names: Vec<String> = (0..=versions).map(commit_name).collect();
        names.extend(checksum(&sample, versions).map(|_| checksum_name(versions)));
        names.sort();
        assert_eq!(log_files(&sample), names);
    }
}

#[tokio::test]
async fn rows_that_do_not_fit_the_recreated_table_are_refused() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    let number = other_table(&[("p", "string"), ("x", "string")], json!({}));
    let names = other_table(COLUMNS, json!({"delta.dataSkippingStatsColumns": "p"}));
    for create in [number, names] {
        for versions in [1, 2, 3] {
            let mut commits = vec![vec![protocol(1, 2), create.clone()]];
            commits.extend((1..versions).map(|version| vec![in_c(&format!("n{version}"))]));
            replace_log(&sample, &commits);
            let before = log_files(&sample);
            let error = add_one(&sample, base.clone(), "c2").await.unwrap_err();
            assert_eq!(error.kind(), &Kind::Conflict(Conflict::MetadataChanged), "{error}");
            assert!(error.message().contains("begin again"), "{error}");
            assert_eq!(log_files(&sample), before);
            assert!(!sample.log("../c2").exists());
        }
    }
    replace_log(&sample, &[]);
    let error = add_one(&sample, base, "c2").await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(log_files(&sample), Vec::<String>::new());
    assert!(!sample.log("../c2").exists());
}

#[tokio::test]
async fn log_cleanup_does_not_count_as_another_table() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    let last = append(&sample, Some(base.clone()), "c2").await.state.version;
    deltic_table::checkpoint_writer::checkpoint(&sample.log, 1).await.unwrap();
    (0..last).for_each(|version| sample.delete(&commit_name(version)));
    let committed = add_one(&sample, base, "c3").await.unwrap();
    assert_eq!((committed.version, committed.attempts), (3, 2));
    assert!(paths(&sample).await.contains(&"c3".to_owned()));
}

#[tokio::test]
async fn appends_follow_added_columns() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    let wider = |more: &[(&str, &str)]| metadata(&[COLUMNS, more].concat(), &["p"], json!({"mine": "1"}));
    sample.commit(2, &[wider(&[("y", "long")])]);
    let committed = add_one(&sample, base.clone(), "c2").await.unwrap();
    assert_eq!((committed.version, committed.attempts), (3, 1));
    // Not if a new column is required, or a column was renamed.
    let mut required = wider(&[("y", "long")]);
    let mut schema: Value = serde_json::from_str(required["metaData"]["schemaString"].as_str().unwrap()).unwrap();
    schema["fields"][2]["nullable"] = json!(false);
    required["metaData"]["schemaString"] = json!(schema.to_string());
    let renamed = metadata(&[("p", "string"), ("z", "long")], &["p"], json!({}));
    for (version, change) in [(4, required), (5, renamed)] {
        sample.commit(version, &[change]);
        let error = add_one(&sample, base.clone(), "c3").await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Conflict(Conflict::MetadataChanged), "{error}");
    }
    // A transaction that does more than append is not prepared again.
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(Some(base)), TransactionOptions::default(), &World).await.unwrap();
    transaction.append(vec![file("c4")]);
    transaction.set_domain("app", Some("1")).unwrap();
    sample.commit(6, &[wider(&[("y", "long")])]);
    assert_eq!(commit(transaction).await.unwrap_err().kind(), &Kind::Conflict(Conflict::MetadataChanged));
}

#[tokio::test]
async fn the_handle_state_causes_no_refusal() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    let unset = MetadataChange { unset: vec!["mine".to_owned()], ..MetadataChange::default() };
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(Some(base)), TransactionOptions::default(), &World).await.unwrap();
    assert!(transaction.take_step(|transaction| transaction.set_metadata(unset.clone(), &World)).await.is_err());
    sample.commit(2, &[metadata(COLUMNS, &["p"], json!({"mine": "1"}))]);
    // The transaction has read the table, and does not read it again.
    assert!(transaction.take_step(|transaction| transaction.set_metadata(unset.clone(), &World)).await.is_err());
    let base = {
        let known = append(&sample, None, "c2").await;
        sample.commit(4, &[metadata(COLUMNS, &["p"], json!({"mine": "1", "yours": "2"}))]);
        known
    };
    let yours = MetadataChange { unset: vec!["yours".to_owned()], ..MetadataChange::default() };
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(Some(base)), TransactionOptions::default(), &World).await.unwrap();
    transaction.take_step(|transaction| transaction.set_metadata(yours.clone(), &World)).await.unwrap();
    assert_eq!(commit(transaction).await.unwrap().unwrap().committed.version, 5);
}

#[tokio::test]
async fn a_transaction_does_not_commit_to_a_recreated_table() {
    for versions in [0, 1, 2, 3] {
        let sample = sample();
        append(&sample, None, "c1").await;
        let mut transaction =
            Transaction::begin(&sample.log, HandleCache::default(), TransactionOptions::default(), &World)
                .await
                .unwrap();
        std::fs::write(sample.log("../c2"), b"rows").unwrap();
        transaction.append(vec![file("c2")]);
        let create = vec![protocol(1, 2), other_table(COLUMNS, json!({}))];
        let adds = (1..versions).map(|version| vec![in_c(&format!("n{version}"))]);
        let commits: Vec<Vec<Value>> = std::iter::once(create).chain(adds).take(versions).collect();
        replace_log(&sample, &commits);
        let before = log_files(&sample);
        let error = commit(transaction).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Conflict(Conflict::MetadataChanged), "{versions}: {error}");
        assert_eq!(log_files(&sample), before, "{versions}");
        assert!(!sample.log("../c2").exists(), "{versions}");
    }
}

/// Records for each put whether it was given syncs to wait for; before the first, another writer commits `winner`.
struct Recorder {
    log: LogCommitter,
    had_syncs: Mutex<Vec<bool>>,
    winner: Mutex<Option<String>>,
}

impl Committer for Recorder {
    fn commit(&self, version: u64, lines: Lines, syncing: Syncing) -> BoxFuture<'_, Result<Put>> {
        self.had_syncs.lock().unwrap().push(!syncing.is_empty());
        let winner = self.winner.lock().unwrap().take();
        Box::pin(async move {
            if let Some(winner) = winner {
                self.log.commit(version, Lines::of(winner.as_bytes())?, Syncing::default()).await?;
            }
            self.log.commit(version, lines, syncing).await
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.log.read(version)
    }

    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        self.log.put_other(name, file)
    }

    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>> {
        self.log.make_durable(version)
    }

    fn log_continues_past(&self, version: u64) -> BoxFuture<'_, Result<bool>> {
        self.log.log_continues_past(version)
    }

    fn is_same_table<'a>(
        &'a self,
        base: &'a TableState,
        file: CommitFile,
        versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        self.log.is_same_table(base, file, versions)
    }
}

/// The syncs of data files go with the first put, also if the transaction was prepared again before it.
#[tokio::test]
async fn the_first_put_waits_for_the_files_of_the_commit() {
    let winner = || Some(super::super::sample::lines(&[json!({"commitInfo": {}}), in_c("other")]));
    let cases = [(None, false, vec![true]), (winner(), false, vec![true, false]), (None, true, vec![true])];
    for (winner, is_recreated, had_syncs) in cases {
        let sample = sample();
        let base = append(&sample, None, "c1").await;
        if is_recreated {
            replace_log(&sample, &[vec![protocol(1, 2), other_table(COLUMNS, json!({}))]]);
        }
        let begun = Transaction::begin(&sample.log, handle_with(Some(base)), TransactionOptions::default(), &World);
        let mut transaction = begun.await.unwrap();
        let mut writer = sample.storage.create_file("c2").await.unwrap();
        writer.write(Bytes::from_static(b"rows")).await.unwrap();
        let (_, syncing) = writer.finish_unsynced(true).await.unwrap();
        transaction.append_unsynced((vec![file("c2")], syncing));
        let log = LogCommitter::new(sample.log.clone());
        let committer = Recorder { log, had_syncs: Mutex::default(), winner: Mutex::new(winner) };
        transaction.commit(&committer, &World).await.unwrap();
        assert_eq!(*committer.had_syncs.lock().unwrap(), had_syncs);
        assert!(paths(&sample).await.contains(&"c2".to_owned()));
    }
}

/// Recreates the table between the check and the put.
struct RecreatedBeforePut<'a>(LogCommitter, &'a Sample);

impl Committer for RecreatedBeforePut<'_> {
    fn commit(&self, version: u64, lines: Lines, files: Syncing) -> BoxFuture<'_, Result<Put>> {
        replace_log(self.1, &[vec![protocol(1, 2), other_table(COLUMNS, json!({}))]]);
        self.0.commit(version, lines, files)
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

    fn is_same_table<'a>(
        &'a self,
        base: &'a TableState,
        file: CommitFile,
        versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        self.0.is_same_table(base, file, versions)
    }
}

#[tokio::test]
async fn a_commit_in_a_recreated_table_stays_and_is_not_acknowledged() {
    for is_cached in [true, false] {
        let sample = sample();
        let known = Some(append(&sample, None, "c1").await).filter(|_| is_cached);
        let begun = Transaction::begin(&sample.log, handle_with(known), TransactionOptions::default(), &World).await;
        let mut transaction = begun.unwrap();
        std::fs::write(sample.log("../c2"), b"rows").unwrap();
        transaction.append(vec![file("c2")]);
        let committer = RecreatedBeforePut(LogCommitter::new(sample.log.clone()), &sample);
        let error = transaction.commit(&committer, &World).await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Storage { retryable: false }), "{error:?}");
        assert_eq!(error.version(), Some(2));
        let expected = "it is in the log at version 2, but the table was deleted or created again";
        assert!(error.message().contains(expected), "{error}");
        // Other writers may have committed on it, so the commit and its files stay. It gets no checksum, which could be wrong.
        assert_eq!(log_files(&sample), [commit_name(0), commit_name(2)]);
        assert!(sample.log("../c2").exists());
    }
}

#[tokio::test]
async fn object_stores_are_checked_alike() {
    let storage = Storage::open("memory://cached", &HashMap::new()).unwrap();
    let path = |version: u64| format!("_delta_log/{}", commit_name(version));
    let create = |metadata: Value| format!("{}\n{metadata}\n", protocol(1, 2)).into();
    let log = LogSource::of(&storage);
    let begin = |base| Transaction::begin(&log, handle_with(base), TransactionOptions::default(), &World);
    storage.put(&path(0), create(metadata(COLUMNS, &["p"], json!({})))).await.unwrap();
    let mut base = None;
    for name in ["c1", "c2"] {
        let before = storage.counts();
        let mut transaction = begin(base).await.unwrap();
        transaction.append(vec![file(name)]);
        base = Some(commit(transaction).await.unwrap().unwrap().post_commit.handle_state);
        assert_eq!(storage.counts().since(&before).heads, 2);
    }
    for file in storage.list_from("_delta_log", "").await.unwrap() {
        storage.delete(&file.path).await.unwrap();
    }
    let mut transaction = begin(base.clone()).await.unwrap();
    transaction.append(vec![file("c3")]);
    assert!(commit(transaction).await.unwrap_err().is_not_found());
    assert_eq!(storage.list_from("_delta_log", "").await.unwrap(), []);
    storage.put(&path(0), create(other_table(COLUMNS, json!({})))).await.unwrap();
    let mut transaction = begin(base).await.unwrap();
    transaction.append(vec![file("c3")]);
    assert_eq!(commit(transaction).await.unwrap().unwrap().committed.version, 1);
    assert_eq!(live(&Snapshot::open(&LogSource::of(&storage), None).await.unwrap()).await.unwrap(), ["c3"]);
}
