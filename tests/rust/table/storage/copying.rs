//! Copies of files: by the store itself if it can, otherwise through the client.

use bytes::Bytes;
use deltic_store::Storage;
use deltic_table::error::Kind;

use super::bucket::{Bucket, Copying};
use super::{ACCOUNT_KEY, azure, google, is_storage, names, open, options};

/// More than the client reads in one request.
const SIZE: usize = 9 * 1024 * 1024;
const COPIED: u64 = SIZE as u64;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7 % 251) as u8).collect()
}

/// Two tables of each kind of store, on this server.
fn stores(bucket: &Bucket) -> [(Storage, Storage); 3] {
    [("s3://bucket", bucket.options()), ("gs://bucket", google(bucket)), ("az://bucket", azure(bucket, ACCOUNT_KEY))]
        .map(|(base, given)| {
            let table = |name: &str| Storage::open(&format!("{base}/{name}"), &given).unwrap();
            (table("from"), table("to"))
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_copy_files_themselves() {
    let bucket = Bucket::start(1000);
    bucket.put_object("from/a b%20ü.parquet", &content());
    for (from, to) in stores(&bucket) {
        to.copy_from(&from, "a b%20ü.parquet", "p=1/c ä%.parquet", COPIED).await.unwrap();
        assert!(bucket.object("to/p=1/c ä%.parquet") == content());
        let (read, counts) = (from.counts(), to.counts());
        assert_eq!((read.gets, read.bytes_read, read.heads), (0, 0, 0), "{from:?}");
        assert_eq!((counts.puts, counts.bytes_written, counts.heads), (1, 0, 1), "a copy, and a HEAD: {to:?}");
        assert_eq!((bucket.requests("COPY", "to/p=1/"), bucket.requests("GET", "")), (1, 0), "{to:?}");
        bucket.delete("to/p=1/c ä%.parquet");
        bucket.forget_requests();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_copies_go_through_the_client() {
    let bucket = Bucket::start(1000);
    bucket.put_object("from/a", &content());
    let refused = [400, 403, 405, 409, 412, 500, 501, 503].map(Copying::Refused);
    for copying in refused.into_iter().chain([Copying::Lost]) {
        bucket.copy_with(copying);
        for (from, to) in stores(&bucket) {
            to.copy_from(&from, "a", "b", COPIED).await.unwrap();
            assert!(bucket.object("to/b") == content(), "{copying:?}: {to:?}");
            assert_eq!((from.counts().bytes_read, to.counts().bytes_written), (COPIED, COPIED), "{copying:?}: {to:?}");
            assert_eq!(bucket.requests("COPY", "to/b"), 1, "the copy is not retried: {copying:?}: {to:?}");
            bucket.delete("to/b");
            bucket.forget_requests();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_between_stores_go_through_the_client() {
    let (bucket, other) = (Bucket::start(1000), Bucket::start(1000));
    bucket.put_object("from/a", b"1234");
    let mut with_other_key = bucket.options();
    with_other_key.insert("AWS_ACCESS_KEY_ID".into(), "AKIAIOSFODNN7OTHERS1".into());
    let from = Storage::open("s3://bucket/from", &bucket.options()).unwrap();
    for given in [with_other_key, other.options()] {
        let to = Storage::open("s3://bucket/to", &given).unwrap();
        to.copy_from(&from, "a", "b", 4).await.unwrap();
        assert_eq!(to.get("b").await.unwrap(), "1234");
        assert_eq!(bucket.requests("COPY", "") + other.requests("COPY", ""), 0);
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path().to_str().unwrap());
    disk.copy_from(&from, "a", "b", 4).await.unwrap();
    assert_eq!(disk.get("b").await.unwrap(), "1234");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_wrong_size_is_corrupt() {
    let bucket = Bucket::start(1000);
    bucket.put_object("from/a", b"1234");
    for (copying, size, found) in [(Copying::Nothing, 4, 0), (Copying::Whole, 3, 4), (Copying::Whole, 5, 4)] {
        bucket.copy_with(copying);
        for (from, to) in stores(&bucket) {
            // In Azure an empty copy may still be in progress.
            if found == 0 && to.location().starts_with("az:") {
                continue;
            }
            let error = to.copy_from(&from, "a", "b", size).await.unwrap_err();
            assert_eq!(*error.kind(), Kind::Corrupt, "{error}");
            let message =
                format!("the copy that the store made of `from/a` has {found} bytes, and the file should have {size}");
            assert!(error.to_string().contains(&message), "{error}");
            assert_eq!(bucket.keys(), ["from/a"], "the wrong copy is left");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_copies_of_azure_are_awaited() {
    let bucket = Bucket::start(1000);
    bucket.put_object("from/a", b"1234");
    bucket.copy_with(Copying::Late(2));
    let [.., (from, to)] = stores(&bucket);
    to.copy_from(&from, "a", "b", 4).await.unwrap();
    assert_eq!((bucket.object("to/b").as_slice(), to.counts().heads), (&b"1234"[..], 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_not_copied() {
    let bucket = Bucket::start(1000);
    for (from, to) in stores(&bucket) {
        assert!(to.copy_from(&from, "a", "b", 4).await.unwrap_err().is_not_found(), "{to:?}");
    }
    bucket.copy_with(Copying::Refused(503));
    bucket.put_object("from/!503", b"1234");
    let mut once = bucket.options();
    once.insert("max_retries".into(), "0".into());
    let table = Storage::open("s3://bucket/from", &once).unwrap();
    let error = table.copy_from(&table, "!503", "b", 4).await.unwrap_err();
    assert!(is_storage(&error, true), "{error}");
    assert_eq!(bucket.keys(), ["from/!503"]);
}

#[tokio::test]
async fn disks_copy_files_themselves() {
    for durability in ["full", "none"] {
        let folder = tempfile::tempdir().unwrap();
        let given = options([("deltic.durability", durability)]);
        let table = |name: &str| Storage::open(folder.path().join(name).to_str().unwrap(), &given).unwrap();
        let (from, to) = (table("from"), table("to"));
        from.put("a", Bytes::from(content())).await.unwrap();
        for size in [COPIED, 5, 0] {
            to.copy_from(&from, "a", "p/b", size).await.unwrap();
            assert!(to.get("p/b").await.unwrap() == content()[..size as usize]);
        }
        assert_eq!((from.counts().gets, from.counts().bytes_read), (3, 0), "the bytes are read by the client");

        let error = to.copy_from(&from, "a", "p/b", COPIED + 1).await.unwrap_err();
        assert_eq!(*error.kind(), Kind::Corrupt, "{error}");
        assert!(to.copy_from(&from, "gone", "p/b", 1).await.unwrap_err().is_not_found());
        assert_eq!(to.get("p/b").await.unwrap(), "", "the old file was changed");
        assert_eq!(names(&folder.path().join("to/p")), ["b"], "a temporary file is left");
    }
}
