//! Commits through DynamoDB: races, and completing the commit of a crashed writer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::log::name::checksum_name;
use deltic_store::{Put, Storage};
use deltic_store::{Syncing, conformance};
use deltic_table::commit::{CommitContext, RetryPolicy};
use deltic_table::committers::{DynamoDbCommitter, OtherLogFile, for_table};
use deltic_table::error::{Kind, Result};
use deltic_table::log::{LogSource, log_file_path};
use deltic_table::maintenance::{DistributedVacuum, SweepTask, VacuumOptions};
use deltic_table::transaction::builder::Ids;
use serde_json::json;

use super::bucket::Bucket;
use super::lock_table::{Fault, LockTable};
use super::{google, is_storage};
use crate::sample::{lines, metadata, protocol};

const TABLE: &str = "s3a://bucket/a table";

struct Stores {
    bucket: Bucket,
    locks: LockTable,
    storage: Storage,
}

/// A bucket that always overwrites, with a lock table.
fn stores() -> Stores {
    let (bucket, locks) = (Bucket::without_conditions(), LockTable::start());
    let storage = Storage::open("s3a://bucket/a%20table", &locks.options(bucket.options())).unwrap();
    Stores { bucket, locks, storage }
}

fn name(version: u64) -> String {
    format!("{version:020}.json")
}

fn path(version: u64) -> String {
    format!("_delta_log/{}", name(version))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Stores {
    fn committer(&self) -> DynamoDbCommitter {
        DynamoDbCommitter::of(&LogSource::of(&self.storage)).unwrap()
    }

    async fn commit(&self, version: u64, text: &'static str) -> Result<Put> {
        self.committer().put_if_absent(&name(version), Bytes::from_static(text.as_bytes())).await
    }

    async fn read(&self, version: u64) -> Result<Bytes> {
        LogSource::of(&self.storage).read(&name(version)).await
    }

    async fn list(&self, version: u64) -> Result<Vec<String>> {
        let found = LogSource::of(&self.storage).list(version).await?;
        Ok(found.into_iter().map(|file| log_file_path(&file.file_name)).collect())
    }

    /// The state that a writer leaves that crashed right after it claimed `version`.
    async fn claimed(&self, version: u64, text: impl Into<Bytes>) {
        let temp = format!(".tmp/{}.0d1f", name(version));
        self.storage.put(&format!("_delta_log/{temp}"), text.into()).await.unwrap();
        self.locks.insert(TABLE, &name(version), &temp, false, None);
    }

    fn is_complete(&self, version: u64) -> bool {
        self.locks.item(TABLE, &name(version)).unwrap()["complete"]["S"] == "true"
    }

    fn keys(&self) -> Vec<String> {
        let keys = self.bucket.keys().into_iter();
        keys.map(|key| key.strip_prefix("a table/_delta_log/").unwrap().to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_an_item_and_a_file() {
    let stores = stores();
    assert!(matches!(stores.commit(0, "zero").await, Ok(Put::Created)));
    assert!(matches!(stores.commit(0, "other").await, Ok(Put::Exists)));
    assert!(matches!(stores.commit(1, "one").await, Ok(Put::Created)));
    assert_eq!(stores.read(0).await.unwrap(), "zero");
    assert_eq!(stores.keys(), [name(0), name(1)], "a temporary file is left");
    let item = stores.locks.item(TABLE, &name(1)).unwrap();
    assert_eq!(item["complete"]["S"], "true");
    let temp = item["tempPath"]["S"].as_str().unwrap();
    assert!(temp.starts_with(&format!(".tmp/{}.", name(1))), "{temp}");
    let expires: u64 = item["expireTime"]["N"].as_str().unwrap().parse().unwrap();
    assert!((now() + 86_000..=now() + 86_400).contains(&expires), "{expires}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_races_have_one_winner() {
    races(&stores().storage).await;
}

/// Many writers put one version. One of them commits, and its bytes stay.
pub(super) async fn races(storage: &Storage) {
    for version in 0..3 {
        let tasks: Vec<_> = (0..32u8)
            .map(|i| {
                let committer = DynamoDbCommitter::of(&LogSource::of(storage)).unwrap();
                // Some are so large that stores with conditional puts would get them in parts.
                let text = Bytes::from(vec![i; if i % 8 == 0 { 36 << 20 } else { 100 }]);
                tokio::spawn(async move { (i, committer.put_if_absent(&name(version), text).await.unwrap()) })
            })
            .collect();
        let winner = conformance::winner(tasks).await;
        let text = LogSource::of(storage).read(&name(version)).await.unwrap();
        assert!(text.iter().all(|byte| *byte == winner), "{winner}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_uses_the_dynamodb_committer() {
    let stores = stores();
    let (committer, lines) = (for_table(&LogSource::of(&stores.storage)), Lines::of(b"{\"commitInfo\":{}}").unwrap());
    assert!(matches!(committer.commit(0, lines.clone(), Syncing::default()).await, Ok(Put::Created)));
    assert!(stores.is_complete(0));
    stores.claimed(1, "one").await;
    assert_eq!(committer.read(1).await.unwrap().unwrap(), "one");
    assert!(committer.read(2).await.unwrap().is_none());
    assert!(matches!(committer.commit(1, lines.clone(), Syncing::default()).await, Ok(Put::Exists)));
    // Without the committer, commits cannot be put: the bucket would overwrite.
    let error = stores.storage.put_if_absent(&path(2), Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Internal, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_client_completes_a_claimed_commit() {
    let listing = stores();
    listing.commit(0, "zero").await.unwrap();
    listing.claimed(1, "one").await;
    assert_eq!(listing.list(0).await.unwrap(), [path(0), path(1)]);

    let reading = stores();
    reading.commit(0, "zero").await.unwrap();
    reading.claimed(1, "one").await;
    assert_eq!(reading.read(1).await.unwrap(), "one");
    assert!(reading.read(2).await.unwrap_err().is_not_found());

    let following = stores();
    following.commit(0, "zero").await.unwrap();
    following.claimed(1, "one").await;
    assert!(matches!(following.commit(2, "two").await, Ok(Put::Created)));
    assert_eq!(following.read(2).await.unwrap(), "two");

    let late = stores();
    late.commit(0, "zero").await.unwrap();
    late.claimed(1, "one").await;
    assert!(matches!(late.commit(1, "mine").await, Ok(Put::Exists)));

    for stores in [listing, reading, following, late] {
        assert!(stores.is_complete(1));
        assert_eq!(stores.read(1).await.unwrap(), "one");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_commit_is_only_marked_complete() {
    let stores = stores();
    stores.claimed(0, "zero").await;
    stores.storage.put(&path(0), Bytes::from_static(b"zero")).await.unwrap();
    let puts = stores.bucket.requests("PUT", &name(0));
    assert_eq!(stores.list(0).await.unwrap(), [path(0)]);
    assert!(stores.is_complete(0));
    assert_eq!(stores.bucket.requests("PUT", &name(0)), puts, "the file is written again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_counts_even_if_it_is_not_marked_complete() {
    let stores = stores();
    stores.commit(0, "zero").await.unwrap();
    // The claim succeeds, but its completion fails.
    stores.locks.fail("PutItem", &[Fault::Lost]);
    stores.locks.fail("GetItem", &[]);
    assert!(matches!(stores.commit(1, "one").await, Ok(Put::Created)), "a claim with a lost answer succeeds");
    stores.claimed(2, "two").await;
    stores.locks.fail("PutItem", &[Fault::Refused(500, "InternalServerError"); 5]);
    assert!(stores.list(0).await.is_err());
    assert!(!stores.is_complete(2));
    assert_eq!(stores.list(1).await.unwrap(), [path(1), path(2)]);
    assert!(stores.is_complete(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_of_claims() {
    let stores = stores();
    stores.locks.fail("PutItem", &[Fault::Dropped]);
    match stores.commit(0, "zero").await {
        Ok(Put::Unknown(error)) => assert!(is_storage(&error, true), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stores.locks.requests("PutItem"), 1, "a claim is sent once");
    for (status, code) in [(500, "InternalServerError"), (408, "RequestTimeout"), (403, "")] {
        stores.locks.fail("PutItem", &[Fault::Refused(status, code)]);
        assert!(matches!(stores.commit(0, "zero").await, Ok(Put::Unknown(_))), "{status}");
    }
    for (status, code, retryable) in [
        (400, "ProvisionedThroughputExceededException", true),
        (400, "ThrottlingException", true),
        (400, "AccessDeniedException", false),
        (400, "UnrecognizedClientException", false),
    ] {
        stores.locks.fail("PutItem", &[Fault::Refused(status, code)]);
        let error = stores.commit(0, "zero").await.unwrap_err();
        assert!(is_storage(&error, retryable) && error.to_string().contains(code), "{error}");
        assert!(!format!("{error} {error:?}").contains("verysecret"), "{error:?}");
    }
    // Reads are retried.
    stores.locks.fail("GetItem", &[Fault::Refused(400, "ThrottlingException"), Fault::Dropped]);
    stores.locks.fail("Query", &[Fault::Refused(503, "ServiceUnavailable")]);
    assert!(matches!(stores.commit(1, "one").await, Ok(Put::Created)));
    assert!(stores.read(0).await.unwrap_err().is_not_found());
    assert!(matches!(stores.commit(0, "zero").await, Ok(Put::Created)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_claim_succeeds() {
    let stores = stores();
    stores.locks.fail("PutItem", &[Fault::Repeated]);
    assert!(matches!(stores.commit(0, "zero").await, Ok(Put::Created)));
    assert!(stores.is_complete(0));
    assert_eq!(stores.keys(), [name(0)]);
    // If the owner is unknown, the temporary file stays for readers that find the claim.
    stores.locks.fail("PutItem", &[Fault::Repeated]);
    let refused = [Fault::Refused(400, "AccessDeniedException")];
    stores.locks.fail("GetItem", &refused);
    assert!(matches!(stores.commit(1, "one").await, Ok(Put::Unknown(_))));
    assert_eq!(stores.read(1).await.unwrap(), "one");
    assert!(stores.is_complete(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn inconsistent_lock_tables_are_refused() {
    // Another writer spells the location of the table differently.
    let stores = stores();
    stores.locks.insert("s3://bucket/a table", &name(7), ".tmp/x", true, Some(now() + 100));
    let error = stores.commit(0, "zero").await.unwrap_err();
    assert!(*error.kind() == Kind::Invalid && error.to_string().contains("s3://bucket/a table"), "{error}");
    stores.locks.insert("s3://bucket/a table", &name(7), ".tmp/x", true, Some(now() - 100));
    assert!(matches!(stores.commit(0, "zero").await, Ok(Put::Created)), "an expired item is ignored");

    // The table was deleted, but not its items.
    stores.storage.delete(&path(0)).await.unwrap();
    let error = stores.commit(0, "zero").await.unwrap_err();
    assert!(is_storage(&error, false) && error.to_string().contains(TABLE), "{error}");

    // A checksum was deleted, but not its item: it can be written again.
    let (checksum, hint) = (checksum_name(0), || OtherLogFile::Hint(Bytes::from_static(b"{}")));
    let committer = for_table(&LogSource::of(&stores.storage));
    assert!(matches!(committer.put_other(&checksum, hint()).await, Ok(Put::Created)));
    stores.storage.delete(&log_file_path(&checksum)).await.unwrap();
    assert!(matches!(committer.put_other(&checksum, hint()).await, Ok(Put::Created)));
    assert!(matches!(committer.put_other(&checksum, hint()).await, Ok(Put::Exists)));

    // The temporary file of a claimed commit is missing.
    stores.locks.insert(TABLE, &name(1), ".tmp/gone", false, None);
    assert_eq!(stores.list(0).await.unwrap_err().kind(), &Kind::Corrupt);
    stores.locks.insert(TABLE, &name(1), "../../outside", false, None);
    assert_eq!(stores.list(0).await.unwrap_err().kind(), &Kind::Corrupt);
    stores.locks.insert(TABLE, "up/down", ".tmp/x", false, None);
    assert_eq!(stores.list(0).await.unwrap_err().kind(), &Kind::Corrupt);

    let open = |uri: &str, key: &str, value: &str| {
        let mut options = stores.locks.options(stores.bucket.options());
        options.insert(key.into(), value.into());
        Storage::open(uri, &options)
    };
    let elsewhere = open("s3://bucket/t", "deltic.s3.dynamodb.table", "nothing").unwrap();
    let elsewhere = DynamoDbCommitter::of(&LogSource::of(&elsewhere)).unwrap();
    let error = elsewhere.put_if_absent(&name(0), Bytes::new()).await.unwrap_err();
    assert!(is_storage(&error, false) && error.to_string().contains("deltic.s3.dynamodb.table"), "{error}");
    for (uri, key, value) in [
        ("s3://bucket/t", "deltic.s3.log_store", "redis"),
        ("s3://bucket/t", "deltic.s3.log_store", "conditional"),
        ("s3://bucket/t", "deltic.s3.dynamodb.tabel", "x"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/t", "deltic.s3.dynamodb.table", "x"),
    ] {
        assert_eq!(open(uri, key, value).unwrap_err().kind(), &Kind::Invalid, "{key} = {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_conditions_is_detected() {
    let bucket = Bucket::without_conditions();
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    let error = storage.put_if_absent(&path(0), Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unsupported { features: vec!["conditional put".into()] }, "{error}");
    assert!(error.to_string().contains("deltic.s3.log_store"), "{error}");
    assert!(bucket.keys().is_empty(), "{:?}", bucket.keys());

    let bucket = Bucket::without_conditions();
    let storage = Storage::open("gs://bucket/t", &google(&bucket)).unwrap();
    let error = storage.put_if_absent(&path(0), Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unsupported { features: vec!["conditional put".into()] }, "{error}");
    assert!(bucket.keys().is_empty(), "{:?}", bucket.keys());

    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    for version in 0..3 {
        assert!(matches!(storage.put_if_absent(&path(version), Bytes::new()).await, Ok(Put::Created)));
    }
    assert_eq!(bucket.requests("PUT", "probe"), 2, "the server is probed once");
    assert_eq!(bucket.keys().len(), 3, "{:?}", bucket.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_retried() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    bucket.refuse_next(2);
    assert!(matches!(storage.put_if_absent(&path(0), Bytes::new()).await, Ok(Put::Created)));
    assert_eq!((bucket.requests("PUT", "probe"), bucket.requests("PUT", &path(0))), (4, 1));
    assert_eq!(bucket.keys(), [format!("t/{}", path(0))]);
}

/// Unique ids, a clock some years after the files of the bucket, and no second attempt.
struct Later;

impl Ids for Later {
    fn unique(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }
}

impl RetryPolicy for Later {
    fn now_ms(&self) -> i64 {
        1_900_000_000_000
    }

    fn back_off(&self, _attempts: u32) -> Option<Duration> {
        None
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vacuum_task_finds_a_start_commit_that_is_only_claimed() {
    let stores = stores();
    let created = lines(&[protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
    let committer = stores.committer();
    assert!(matches!(committer.put_if_absent(&name(0), Bytes::from(created)).await, Ok(Put::Created)));
    stores.storage.put("unreferenced", Bytes::from_static(b"rows")).await.unwrap();
    let options = VacuumOptions { retention_ms: Some(0), force: true, ..VacuumOptions::default() };
    let context = CommitContext { committer: &committer, retry: &Later };
    let mut vacuum = DistributedVacuum::begin(&LogSource::of(&stores.storage), options, &Later, context).await.unwrap();
    // The copy to the name of the commit has failed.
    let start = stores.read(1).await.unwrap();
    stores.storage.delete(&path(1)).await.unwrap();
    stores.claimed(1, start).await;

    loop {
        let tasks = vacuum.next_tasks(1).await.unwrap();
        let [task] = &tasks[..] else { break };
        let result = SweepTask::from_bytes(task).unwrap().carry_out(stores.storage.clone()).await.unwrap();
        vacuum.take(&[result]).unwrap();
    }
    assert_eq!(vacuum.end(&Later, context).await.unwrap().files_deleted, 1);
    assert!(stores.is_complete(1));
}
