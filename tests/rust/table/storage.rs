//! The contract of `Storage`, tested with every backend that can run here.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use deltic_protocol::log::name::commit_name;
use deltic_store::{Body, Put, Storage, conformance, decode_path};
use deltic_table::error::{Error, Kind};
use deltic_table::log::{LogSource, log_file_path};
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;

mod absolute;
mod bucket;
mod copying;
mod dynamodb;
mod foreign;
mod lock_table;
mod redirects;
mod servers;
mod settings;

use bucket::Bucket;

fn open(uri: &str) -> Storage {
    Storage::open(uri, &HashMap::new()).unwrap()
}

fn options<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn memory() -> Storage {
    open(&format!("memory://{}/a table", uuid::Uuid::new_v4()))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn list(storage: &Storage, dir: &str, start_at: &str) -> Vec<String> {
    storage.list_from(dir, start_at).await.unwrap().into_iter().map(|meta| meta.path).collect()
}

fn is_storage(error: &Error, retryable: bool) -> bool {
    *error.kind() == Kind::Storage { retryable }
}

/// The contract that all backends share.
async fn conforms(storage: &Storage) {
    conformance::check(storage, "").await;
    counting(storage).await;
}

async fn counting(storage: &Storage) {
    storage.put("c/a", Bytes::from(vec![0; 1000])).await.unwrap();
    let before = storage.counts();
    storage.clone().put("c/b", Bytes::from(vec![0; 3])).await.unwrap();
    storage.put_if_absent("c/b", Bytes::from(vec![0; 4])).await.unwrap();
    storage.list_from("c", "a").await.unwrap();
    storage.get("c/a").await.unwrap();
    storage.get_ranges("c/a", &[0..10, 20..30]).await.unwrap();
    storage.head("c/a").await.unwrap();
    storage.delete("c/b").await.unwrap();
    let counts = storage.counts().since(&before);
    assert_eq!((counts.lists, counts.gets, counts.heads, counts.puts, counts.deletes), (1, 2, 1, 2, 1));
    assert_eq!((counts.bytes_read, counts.bytes_written), (1030, 7));
}

/// Options of a Google client for the scripted server.
fn google(bucket: &Bucket) -> HashMap<String, String> {
    let account = format!(
        r#"{{"gcs_base_url": "{}", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}}"#,
        bucket.endpoint
    );
    options([("google_service_account_key", &account), ("allow_http", "true")])
}

fn azure(bucket: &Bucket, credential: (&str, &str)) -> HashMap<String, String> {
    let server = [("azure_storage_endpoint", bucket.endpoint.as_str()), ("azure_allow_http", "true")];
    options([server[0], server[1], ("azure_storage_account_name", "account"), credential])
}

const ACCOUNT_KEY: (&str, &str) = ("azure_storage_account_key", "bm90IGEga2V5IG9mIGFueW9uZQ==");

#[tokio::test]
async fn local_disk_conforms() {
    for durability in ["full", "none"] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a %20 table=ü");
        let options = options([("deltic.durability", durability)]);
        conforms(&Storage::open(root.to_str().unwrap(), &options).unwrap()).await;
        assert_eq!(names(&root.join("w/gone")), [""; 0], "an unfinished file is left");
        assert_eq!(names(&root.join("w/deep")), ["b"], "a temporary file is left");
        assert_eq!(names(folder.path()), ["a %20 table=ü"]);
    }
}

#[tokio::test]
async fn memory_conforms() {
    conforms(&memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_conforms() {
    for page in [1000, 2] {
        let bucket = Bucket::start(page);
        let mut given = bucket.options();
        given.extend((page == 2).then(|| ("aws_disable_bulk_delete".to_owned(), "true".to_owned())));
        let storage = Storage::open("s3a://bucket/some%20tables/t%25", &given).unwrap();
        conformance::check(&storage, "").await;
        if page == 1000 {
            counting(&storage).await;
        } else {
            listing_in_ranges(&storage).await;
        }
        assert!(bucket.keys().iter().all(|key| key.starts_with("some tables/t%/")), "{:?}", bucket.keys());
    }
}

/// A listing of several pages is divided into ranges by folders, which are listed concurrently.
async fn listing_in_ranges(storage: &Storage) {
    let before = storage.counts();
    let paged: Vec<_> = storage.list_recursive("tree").try_collect().await.unwrap();
    let between = storage.counts();
    let in_ranges: Vec<_> = storage.list_in_ranges("tree").try_collect().await.unwrap();
    assert_eq!(in_ranges.len(), paged.len());
    let lists = [between.since(&before).lists, storage.counts().since(&between).lists];
    assert_eq!(lists[0], paged.len().div_ceil(2) as u64);
    // Two pages to see that there are more, one for the folders, and one or two for each of the 14 folders.
    assert!(lists[1] > 2 + 14, "{lists:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gcs_conforms() {
    let bucket = Bucket::start(1000);
    conforms(&Storage::open("gs://bucket/some%20tables/t%25", &google(&bucket)).unwrap()).await;
    assert!(bucket.keys().iter().all(|key| key.starts_with("some tables/t%/")), "{:?}", bucket.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_conforms() {
    for page in [1000, 2] {
        let bucket = Bucket::start(page);
        let storage = Storage::open("az://bucket/some%20tables/t%25", &azure(&bucket, ACCOUNT_KEY)).unwrap();
        conformance::check(&storage, "\\").await;
        assert!(bucket.keys().iter().all(|key| key.starts_with("some tables/t%/")), "{:?}", bucket.keys());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_deletion_has_an_outcome() {
    let bucket = Bucket::start(1000);
    let mut single = bucket.options();
    single.insert("aws_disable_bulk_delete".into(), "true".into());
    for (uri, given, requests) in [
        ("s3://bucket/t", bucket.options(), 3),
        ("az://bucket/t", azure(&bucket, ACCOUNT_KEY), 8),
        ("gs://bucket/t", google(&bucket), 2003),
        ("s3://bucket/t", single, 2003),
    ] {
        let storage = Storage::open(uri, &given).unwrap();
        for i in 0..2000 {
            bucket.put_object(&format!("t/{i}"), b"x");
        }
        let mut paths: Vec<String> = (0..2000).map(|i| i.to_string()).collect();
        paths.insert(7, "!403".into());
        paths.insert(1500, "!404".into());
        paths.insert(1501, "a\nb".into());
        paths.push("gone".into());
        let outcomes = storage.delete_many(&paths).await;
        assert_eq!(outcomes.len(), paths.len());
        for (path, outcome) in paths.iter().zip(outcomes) {
            match (path.as_str(), outcome) {
                ("!403", Err(error)) => {
                    assert!(is_storage(&error, false), "{uri}: {error}");
                    assert!(error.to_string().contains("check the credentials"), "{uri}: {error}");
                    assert_eq!(error.path(), Some("!403"));
                }
                ("a\nb", Err(error)) => assert_eq!(error.kind(), &Kind::Corrupt, "{uri}: {error}"),
                (path, outcome) => assert!(outcome.is_ok() && path != "!403", "{uri}: {path}: {outcome:?}"),
            }
        }
        assert_eq!(bucket.keys(), [""; 0], "{uri}");
        assert_eq!(storage.counts().deletes, requests, "{uri}");
    }

    // Without a server all paths have the same outcome.
    let mut no_server = bucket.options();
    no_server.insert("aws_endpoint".into(), "http://127.0.0.1:1".into());
    no_server.insert("max_retries".into(), "0".into());
    let no_server = Storage::open("s3://bucket/t", &no_server).unwrap();
    for outcome in no_server.delete_many(&["a".to_owned(), "b".to_owned()]).await {
        let error = outcome.unwrap_err();
        assert!(is_storage(&error, true) && error.to_string().contains("no connection"), "{error}");
    }
}

#[tokio::test]
async fn links_to_folders_are_not_followed() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    std::fs::write(outside.path().join("secret"), "theirs").unwrap();
    std::fs::create_dir_all(at("p/deep")).unwrap();
    std::fs::write(at("p/deep/file"), "mine").unwrap();
    std::fs::write(at(".tmp-unfinished"), "").unwrap();
    std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    symlink(outside.path(), at("out")).unwrap();
    symlink(folder.path(), at("p/around")).unwrap();
    symlink(at("loop"), at("loop")).unwrap();
    symlink(at("nothing"), at("dangling")).unwrap();
    symlink(at("p/deep/file"), at("link")).unwrap();
    let storage = open(folder.path().to_str().unwrap());
    let mut listed: Vec<_> = storage.list_recursive("").try_collect().await.unwrap();
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    let listed: Vec<_> = listed.iter().map(|meta| (meta.path.as_str(), meta.size)).collect();
    assert_eq!(listed, [(".tmp-unfinished", 0), ("link", 4), ("p/deep/file", 4)]);
    assert_eq!(storage.counts().lists, 3, "one listing per folder");

    // A link is deleted, but not its target.
    let paths = ["link", "out", "p"].map(str::to_owned);
    let outcomes = storage.delete_many(&paths).await;
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok() && outcomes[2].is_err(), "{outcomes:?}");
    assert!(at("p/deep/file").exists() && outside.path().join("secret").exists());
}

#[tokio::test]
async fn a_large_tree_is_listed_incrementally() {
    let folder = tempfile::tempdir().unwrap();
    for part in 0..30 {
        std::fs::create_dir(folder.path().join(part.to_string())).unwrap();
        for file in 0..100 {
            std::fs::write(folder.path().join(format!("{part}/{file}")), "").unwrap();
        }
    }
    let storage = open(folder.path().to_str().unwrap());
    let mut listing = storage.list_recursive("");
    listing.next().await.unwrap().unwrap();
    let lists = storage.counts().lists;
    assert!(lists < 20, "{lists} folders were read before the first file");
    assert_eq!(listing.count().await, 2999);
    assert_eq!(storage.counts().lists, 31);
}

#[tokio::test(flavor = "multi_thread")]
async fn races_have_one_winner() {
    let folder = tempfile::tempdir().unwrap();
    conformance::check_races(&open(folder.path().to_str().unwrap())).await;
    assert_eq!(names(&folder.path().join("_delta_log")).len(), 3, "a temporary file is left");
    conformance::check_races(&memory()).await;
    let bucket = Bucket::start(1000);
    conformance::check_races(&Storage::open("s3://bucket", &bucket.options()).unwrap()).await;
    conformance::check_races(&Storage::open("gs://bucket/t", &google(&bucket)).unwrap()).await;
}

#[test]
fn locations() {
    let here = std::env::current_dir().unwrap().to_str().unwrap().to_owned();
    let cases = [
        ("/data/t", "/data/t"),
        ("/data//t/./x/../", "/data/t"),
        ("/a%20b", "/a%20b"),
        ("/", "/"),
        ("/../..", "/"),
        ("t", &format!("{here}/t")),
        ("~/t", &format!("{here}/~/t")),
        ("./a:b", &format!("{here}/a:b")),
        ("a:b", &format!("{here}/a:b")),
        ("file:///data/a%20b/", "/data/a b"),
        ("file:/data/t", "/data/t"),
        ("FILE://localhost/data/t", "/data/t"),
        ("memory://x", "memory://x"),
        ("memory://x/a%20b/", "memory://x/a%20b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://Bucket_1/a b/c%25/", "s3a://Bucket_1/a%20b/c%25"),
        ("s3://bucket/a/../b", "s3://bucket/b"),
        ("s3://bucket/größe=1", "s3://bucket/gr%C3%B6%C3%9Fe=1"),
        ("gs://bucket/t", "gs://bucket/t"),
        ("az://container/t", "az://container/t"),
        ("adl://container/t", "adl://container/t"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/t"),
        ("https://account.blob.core.windows.net/c/t/u?sv=1&sig=SECRET", "https://account.blob.core.windows.net/c/t/u"),
        // An escaped slash is a slash.
        ("https://account.blob.core.windows.net/c/t%2Fu", "https://account.blob.core.windows.net/c/t/u"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/t", "https://s3.eu-west-1.amazonaws.com/bucket/t"),
        ("https://bucket.s3.eu-west-1.amazonaws.com/t", "https://bucket.s3.eu-west-1.amazonaws.com/t"),
        ("http://host:8080/dav/t/", "http://host:8080/dav/t"),
        ("http://[::1]:8080/t", "http://[::1]:8080/t"),
        ("http://127.0.0.1/t", "http://127.0.0.1/t"),
        ("http://größe.example.com/t", "http://xn--gre-6ka8i.example.com/t"),
        ("file:///data/%2A/t", "file:///data/%2A/t"),
        ("s3://bucket/a%2Ab", "s3://bucket/a%2Ab"),
    ];
    for (uri, expected) in cases {
        let storage = open(uri);
        assert_eq!(storage.location(), expected, "{uri}");
        assert_eq!(open(expected).location(), expected, "{uri}");
        assert_eq!(format!("{storage:?}"), format!("Storage({expected:?})"));
    }
    for uri in [
        "",
        "  ",
        "s3://",
        "s3:///key",
        "memory://",
        "memory:/x",
        "memory://x/../y",
        "file://host/x",
        "file://x",
        "s3://bucket/a//b",
        "s3://bucket/%ff",
        "s3://bucket/t?SECRET=1",
        "s3://bucket/t#SECRET",
        "s3://user:SECRET@bucket/t",
        "abfss://c:SECRET@account.dfs.core.windows.net/t",
        "https://host/t?token=SECRET",
        "http://user:SECRET@host:8080/dav/t",
        "https://SECRET@host/t",
        "http://%2A",
        "http://%2A/t",
        "http://host%2A.example.com/t",
        "http://a%27b/t",
        "https://host%2C/t",
        "abfss://c@account%2A.dfs.core.windows.net/t",
        "az://container%2A/t",
        "/data/*/t",
        "s3://bucket/t/*",
        "C:\\data\\t",
        "c:/data/t",
        "\\\\server\\share\\t",
    ] {
        let error = Storage::open(uri, &HashMap::new()).unwrap_err();
        assert!(matches!(error.kind(), Kind::Invalid | Kind::Corrupt), "{uri}: {error}");
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error}");
    }
    for (uri, advice) in [
        ("hdfs://namenode/t", "mount"),
        ("dbfs:/t", "abfss://"),
        ("uc://a.b.c", "by location"),
        ("wasbs://c@a.blob.core.windows.net/t", "abfss://container"),
        ("ftp://host/t", "use a path"),
    ] {
        let error = Storage::open(uri, &HashMap::new()).unwrap_err();
        assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{uri}: {error}");
        assert!(error.message().contains(advice), "{uri}: {error}");
    }
}

#[test]
fn decoding() {
    for (log_file_path, expected) in [
        ("part-0.parquet", "part-0.parquet"),
        ("p=a%20b/x%3Ay.parquet", "p=a b/x:y.parquet"),
        ("p=a%2520b/x", "p=a%20b/x"),
        ("a+b", "a+b"),
        ("100%/%zz", "100%/%zz"),
        ("%E6%97%A5", "日"),
        ("/x/a%20b", "/x/a b"),
        ("file:///x/a%20b", "file:///x/a b"),
        ("file:/x/a%20b", "file:/x/a b"),
        ("S3://bucket/a%2520b", "s3://bucket/a%20b"),
        ("abfss://c@a.dfs.core.windows.net/%3F", "abfss://c@a.dfs.core.windows.net/?"),
        ("s3://bucket", "s3://bucket"),
        ("%2Fetc/passwd", ".//etc/passwd"),
        ("s3%3A//bucket/x", "./s3://bucket/x"),
        ("time%3A/x", "./time:/x"),
    ] {
        assert_eq!(decode_path(log_file_path).unwrap(), expected, "{log_file_path}");
    }
    for log_file_path in ["", "%ff", "s3://bucket/%ff"] {
        assert_eq!(decode_path(log_file_path).unwrap_err().kind(), &Kind::Corrupt, "{log_file_path}");
    }
}

#[tokio::test]
async fn references() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, theirs) = (ours.path().to_str().unwrap(), theirs.path().to_str().unwrap());
    let allowed = options([("allow_foreign_paths", "true")]);
    let local = Storage::open(ours, &allowed).unwrap();
    open(theirs).put("a%20b c", Bytes::from_static(b"theirs")).await.unwrap();
    for path in [format!("{theirs}/a%20b c"), format!("file://{theirs}/a%20b c"), format!("file:{theirs}/a%20b c")] {
        assert_eq!(local.get(&path).await.unwrap(), "theirs", "{path}");
    }
    let name = uuid::Uuid::new_v4();
    let foreign = open(&format!("memory://{name}/clone"));
    foreign.put("a%20b #c", Bytes::from_static(b"foreign")).await.unwrap();
    let path = format!("memory://{name}/clone/a%20b #c");
    assert_eq!(local.get(&path).await.unwrap(), "foreign");
    assert_eq!(foreign.get(&path).await.unwrap(), "foreign");
    assert_eq!(foreign.get("/clone/a%20b #c").await.unwrap(), "foreign");
    assert_eq!(local.counts().gets, 4, "reads of foreign paths count too");
    assert_eq!(local.get(&format!("memory://{name}")).await.unwrap_err().kind(), &Kind::Corrupt);

    // A path that only looks absolute is relative.
    local.put(&decode_path("%2Fetc/x").unwrap(), Bytes::new()).await.unwrap();
    assert_eq!(names(&Path::new(ours).join("etc")), ["x"]);

    let remote = Storage::open("s3://bucket/t", &allowed).unwrap();
    for path in ["file:///etc/passwd", "file:/etc/passwd", "hdfs://host/x"] {
        let error = remote.get(path).await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{path}: {error}");
    }
    for path in ["a//b", "a\nb", "s3://bucket/t?\u{0}", "file://host/x", "s3://u:SECRET@bucket/x", "s3://bucket"] {
        let error = remote.get(path).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Corrupt, "{path}: {error}");
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    assert_eq!(local.get("a\0b").await.unwrap_err().kind(), &Kind::Corrupt);
}

#[test]
fn misspelled_options_are_refused() {
    for (key, hint) in [
        ("aws_acces_key_id", "aws_access_key_id"),
        ("AZURE_STORAGE_ACOUNT_NAME", "azure_storage_account_name"),
        ("google_service_acount", "google_service_account"),
        ("durability", "deltic.durability"),
        ("deltic.s3.logstore", "deltic.s3.log_store"),
        ("x", "docs/storage.md"),
    ] {
        let error = Storage::open("/t", &options([(key, "SECRET")])).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        assert!(error.to_string().contains(hint), "{error}");
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    let fine = options([("AWS_Region", "x"), ("azure_client_id", "x"), ("GOOGLE_BUCKET", "x"), ("timeout", "1s")]);
    Storage::open("/t", &fine).unwrap();
    let error = Storage::open("/t", &options([("deltic.durability", "some")])).unwrap_err();
    assert!(error.to_string().contains("'full' or 'none'"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_listing_finds_a_missed_commit() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    let path = |version: u64| log_file_path(&commit_name(version));
    for version in 0..4 {
        storage.put(&path(version), Bytes::from_static(b"{}")).await.unwrap();
    }
    let versions = async || {
        let listed = LogSource::of(&storage).list(0).await.unwrap();
        listed.iter().map(|file| file.name.version()).collect::<Vec<_>>()
    };
    for (missed, expected, lists) in [(1, &[0, 1, 2, 3][..], 2), (2, &[0, 1, 2, 3], 2), (3, &[0, 1, 2], 1)] {
        let before = bucket.requests("LIST", "");
        bucket.omit_from_listing(&format!("t/{}", path(missed)));
        assert_eq!(versions().await, expected);
        assert_eq!(bucket.requests("LIST", "") - before, lists, "version {missed} was missed");
    }
    storage.delete(&path(1)).await.unwrap();
    assert_eq!(versions().await, [0, 2, 3], "a deleted commit stays missing");
}

/// A body of twelve chunks.
fn large(piece: &Bytes) -> Body {
    Body::of(12 * piece.len() as u64, pieces(piece, 12))
}

fn pieces(piece: &Bytes, count: usize) -> impl Iterator<Item = Result<Bytes, Error>> + Send + use<> {
    std::iter::repeat_n(piece.clone(), count).map(Ok)
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_of_large_conditional_puts() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    let piece = Bytes::from(vec![7u8; 3 << 20]);
    assert!(matches!(storage.put_if_absent("a", large(&piece)).await, Ok(Put::Created)));
    assert_eq!(bucket.requests("PUT", "t/a"), 1, "it is put by a copy");

    for (number, (status, done)) in [(500, true), (503, false), (409, false), (404, true)].into_iter().enumerate() {
        bucket.complete_with(Some((status, done)));
        let key = format!("b{number}");
        let put = storage.put_if_absent(&key, large(&piece)).await;
        assert!(matches!(put, Ok(Put::Unknown(_))), "{status}: {put:?}");
        assert_eq!(bucket.keys().contains(&format!("t/{key}")), done);
        assert_eq!(bucket.requests("POST", &format!("t/{key}")), 2, "begun and completed once");
    }
    bucket.complete_with(Some((403, false)));
    let error = storage.put_if_absent("c", large(&piece)).await.unwrap_err();
    assert!(is_storage(&error, false), "{error}");
    bucket.complete_with(None);
    assert!(!bucket.keys().iter().any(|key| key.contains(".tmp")), "{:?}", bucket.keys());
    let racers: Vec<_> = (0..4_u8)
        .map(|racer| {
            let storage = storage.clone();
            tokio::spawn(async move { storage.put_if_absent("d", large(&Bytes::from(vec![racer; 3 << 20]))).await })
        })
        .collect();
    let mut created = 0;
    for racer in racers {
        created += usize::from(matches!(racer.await.unwrap().unwrap(), Put::Created));
    }
    assert_eq!(created, 1);

    // With Google the copy is one request.
    let storage = Storage::open("gs://bucket/t", &google(&bucket)).unwrap();
    for expected in ["Created", "Exists"] {
        assert_eq!(format!("{:?}", storage.put_if_absent("g", large(&piece)).await.unwrap()), expected);
    }
    assert_eq!(bucket.requests("PUT", "t/g"), 2);
    assert!(!bucket.keys().iter().any(|key| key.contains(".tmp")), "{:?}", bucket.keys());

    // For a server that cannot copy conditionally, the file is sent in one request.
    let other = Bucket::start(1000);
    other.complete_with(Some((501, false)));
    let storage = Storage::open("s3://bucket/t", &other.options()).unwrap();
    assert!(matches!(storage.put_if_absent("a", large(&piece)).await, Ok(Put::Created)));
    assert!(matches!(storage.put_if_absent("a", large(&piece)).await, Ok(Put::Exists)));
    assert_eq!(other.requests("PUT", "t/a"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_conditional_puts_to_azure() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("az://bucket/t", &azure(&bucket, ACCOUNT_KEY)).unwrap();
    let piece = Bytes::from(vec![7u8; 3 << 20]);
    let sent = |key: &str| ["PUT", "block", "blocklist"].map(|what| bucket.requests(what, &format!("t/{key}")));
    let numbered: Vec<_> = (0..12_u8).map(|i| Bytes::from(vec![i; 3 << 20])).collect();
    for expected in ["Created", "Exists"] {
        let body = Body::of(36 << 20, numbered.clone().into_iter().map(Ok));
        assert_eq!(format!("{:?}", storage.put_if_absent("a", body).await.unwrap()), expected);
    }
    assert_eq!(sent("a"), [0, 8, 2]);
    assert!(bucket.object("t/a") == numbered.concat(), "the blocks are out of order");
    assert_eq!(sent(".tmp/"), [1, 2, 1], "the condition is probed once");

    for (number, (status, done)) in [(500, true), (503, false), (408, false), (0, true)].into_iter().enumerate() {
        bucket.complete_with(Some((status, done)));
        let key = format!("b{number}");
        let put = storage.put_if_absent(&key, large(&piece)).await;
        assert!(matches!(put, Ok(Put::Unknown(_))), "{status}: {put:?}");
        assert_eq!(bucket.keys().contains(&format!("t/{key}")), done);
        assert_eq!(sent(&key), [0, 4, 1], "a block list is sent once");
    }
    bucket.complete_with(Some((403, false)));
    let error = storage.put_if_absent("c", large(&piece)).await.unwrap_err();
    assert!(is_storage(&error, false), "{error}");
    bucket.complete_with(None);

    // Failed blocks are sent again.
    bucket.refuse_next(2);
    assert!(matches!(storage.put_if_absent("d", large(&piece)).await, Ok(Put::Created)));
    assert_eq!(sent("d"), [0, 6, 1]);

    assert_eq!(bucket.listed().1.get("if-none-match").map(String::as_str), Some("*"));
    // With uncommitted blocks of another program, whose ids are shorter, the file is sent in one request.
    bucket.put_uncommitted_block("t/e", "AAAA");
    assert!(matches!(storage.put_if_absent("e", large(&piece)).await, Ok(Put::Created)));
    assert_eq!(sent("e"), [1, 1, 0]);
    assert_eq!(bucket.object("t/e").len(), 36 << 20);

    // Another writer of the file discards our blocks. Servers report that in two ways; or the file is deleted again.
    let overtaken = async |key: &'static str, and_deleted: bool| {
        let (bucket, last) = (bucket.clone(), piece.clone());
        let last = std::iter::once_with(move || {
            bucket.put_object(&format!("t/{key}"), b"theirs");
            if and_deleted {
                bucket.delete(&format!("t/{key}"));
            }
            Ok(last)
        });
        storage.put_if_absent(key, Body::of(36 << 20, pieces(&piece, 11).chain(last))).await.unwrap()
    };
    assert!(matches!(overtaken("f", false).await, Put::Exists));
    assert!(matches!(overtaken("g", true).await, Put::Unknown(_)));
    assert_eq!((sent("g"), bucket.requests("HEAD", "t/")), ([0, 4, 1], 1));
    bucket.check_blocks_first();
    assert!(matches!(overtaken("h", false).await, Put::Exists));
    assert_eq!((sent("h"), bucket.requests("HEAD", "t/")), ([0, 4, 1], 2));
    assert_eq!((bucket.object("t/f"), bucket.object("t/h")), (b"theirs".to_vec(), b"theirs".to_vec()));
    assert!(!bucket.keys().iter().any(|key| key.contains(".tmp")), "{:?}", bucket.keys());
    conformance::check_races(&storage).await;

    // If a server ignores the condition on a block list, or uncommitted blocks block the name, the file is sent in one
    // request.
    let (unconditional, blocking) = (Bucket::without_conditions(), Bucket::start(1000));
    blocking.block_names_with_uncommitted_blocks();
    for (other, lists) in [(unconditional, 1), (blocking, 0)] {
        let storage = Storage::open("az://bucket/t", &azure(&other, ACCOUNT_KEY)).unwrap();
        assert!(matches!(storage.put_if_absent("a", large(&piece)).await, Ok(Put::Created)));
        assert_eq!(["PUT", "block", "blocklist"].map(|what| other.requests(what, "t/a")), [1, 0, 0]);
        assert_eq!(other.requests("blocklist", "t/.tmp/"), lists);
        assert!(!other.keys().iter().any(|key| key.contains(".tmp")), "{:?}", other.keys());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn block_lists_are_authorized_with_all_credentials() {
    let bucket = Bucket::start(1000);
    let piece = Bytes::from(vec![7u8; 3 << 20]);
    let signature = ("azure_storage_sas_token", "sv=2020-01-01&sig=SECRETSIGNATURE%3D");
    let none = ("azure_skip_signature", "true");
    for (key, credential) in
        [("key", ACCOUNT_KEY), ("token", ("azure_storage_token", "SECRETTOKEN")), ("sas", signature), ("none", none)]
    {
        let storage = Storage::open("az://bucket/t", &azure(&bucket, credential)).unwrap();
        assert!(matches!(storage.put_if_absent(key, large(&piece)).await, Ok(Put::Created)), "{key}");
        assert_eq!(bucket.requests("blocklist", &format!("t/{key}")), 1);
        let (query, headers) = bucket.listed();
        assert_eq!(headers.get("if-none-match").map(String::as_str), Some("*"));
        let authorization = headers.get("authorization").map(String::as_str);
        match key {
            "key" => assert!(authorization.unwrap().starts_with("SharedKey account:"), "{authorization:?}"),
            "token" => assert_eq!(authorization, Some("Bearer SECRETTOKEN")),
            _ => assert_eq!(authorization, None),
        }
        assert_eq!(query.get("sig").map(String::as_str), (key == "sas").then_some("SECRETSIGNATURE="));

        bucket.complete_with(Some((403, false)));
        let error = storage.put_if_absent("refused", large(&piece)).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("Asked happened") && !text.contains("SECRET"), "{text}");
        bucket.complete_with(None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditional_put_outcomes() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    let data = || Bytes::from_static(b"{}");

    assert!(matches!(storage.put_if_absent("a", data()).await, Ok(Put::Created)));
    assert!(matches!(storage.put_if_absent("a", data()).await, Ok(Put::Exists)));

    for (key, retryable) in [("!500", true), ("!503", true), ("!408", true), ("!lost", true), ("!409", true)] {
        match storage.put_if_absent(key, data()).await {
            Ok(Put::Unknown(error)) => assert!(is_storage(&error, retryable), "{key}: {error}"),
            other => panic!("{key}: {other:?}"),
        }
        assert_eq!(bucket.requests("PUT", key), 1, "{key}: a conditional put is sent once");
    }
    assert!(bucket.keys().contains(&"t/!lost".to_owned()), "the put did not land");

    for (key, retryable) in [("!400", false), ("!401", false), ("!403", false), ("!429", true)] {
        let error = storage.put_if_absent(key, data()).await.unwrap_err();
        assert!(is_storage(&error, retryable), "{key}: {error}");
    }
    let error = storage.put_if_absent("!404", data()).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");

    let mut disabled = bucket.options();
    disabled.insert("aws_conditional_put".into(), "disabled".into());
    let disabled = Storage::open("s3://bucket/t", &disabled).unwrap();
    for error in [
        storage.put_if_absent("!501", data()).await.unwrap_err(),
        disabled.put_if_absent("b", data()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), &Kind::Unsupported { features: vec!["conditional put".into()] }, "{error}");
    }

    // Without a server nothing was sent.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut no_server = bucket.options();
    no_server.insert("aws_endpoint".into(), format!("http://{}", listener.local_addr().unwrap()));
    drop(listener);
    let no_server = Storage::open("s3://bucket/t", &no_server).unwrap();
    let error = no_server.put_if_absent("a", data()).await.unwrap_err();
    assert!(is_storage(&error, true), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3://bucket/t", &bucket.options()).unwrap();
    for (error, advice) in [
        (storage.get("!403").await.unwrap_err(), "check the credentials"),
        (storage.get("!401").await.unwrap_err(), "check the credentials"),
        (storage.get("!400").await.unwrap_err(), "check the storage options"),
        (storage.put("!403", Bytes::new()).await.unwrap_err(), "check the credentials"),
        (storage.delete("!403").await.unwrap_err(), "check the credentials"),
        (storage.list_from("!403", "").await.unwrap_err(), "check the credentials"),
    ] {
        assert!(is_storage(&error, false), "{error}");
        assert!(error.to_string().contains(advice), "{error}");
    }
    let mut http = bucket.options();
    http.remove("aws_allow_http");
    let error = Storage::open("s3://bucket/t", &http).unwrap().get("x").await.unwrap_err();
    assert!(error.kind() == &Kind::Invalid && error.to_string().contains("aws_allow_http"), "{error}");
}

/// The head of the one request that `send` sends to an empty server.
async fn request_head(send: impl AsyncFnOnce(String)) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap());
        }
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        String::from_utf8(head).unwrap()
    };
    tokio::join!(server, send(address)).0
}

#[tokio::test]
async fn secrets_of_a_url_become_options() {
    let (location, found) = Storage::split_secrets("s3://bucket/t/", options([("aws_region", "here")])).unwrap();
    assert_eq!((location.as_str(), found), ("s3://bucket/t", options([("aws_region", "here")])));

    let old = options([("AZURE_STORAGE_SAS_KEY", "sig=OLD"), ("azure_allow_http", "true")]);
    let uri = "https://account.blob.core.windows.net/c/t?sv=1&sig=SECRET";
    let (location, mut found) = Storage::split_secrets(uri, old).unwrap();
    assert_eq!(location, "https://account.blob.core.windows.net/c/t");
    assert_eq!(found, options([("azure_storage_sas_token", "sv=1&sig=SECRET"), ("azure_allow_http", "true")]));
    let head = request_head(async |address| {
        found.insert("azure_storage_endpoint".to_owned(), format!("http://{address}"));
        Storage::open(&location, &found).unwrap().get("x").await.unwrap_err();
    });
    assert!(head.await.contains("sig=SECRET"));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_stay_out_of_texts() {
    // A server whose errors repeat the request with its credentials.
    let bucket = Bucket::start(1000);
    let at = bucket.endpoint.replace("http://", "http://user:SECRETPASSWORD@");
    let allowed = [("allow_foreign_paths", "true"), ("allow_http", "true")];
    let http = open(&format!("{}/bucket/t", bucket.endpoint));
    let s3 = Storage::open(
        "s3://bucket/t",
        &bucket.options().into_iter().chain(options([("aws_session_token", "SECRETTOKEN"), allowed[0]])).collect(),
    )
    .unwrap();
    let azure = Storage::open(
        "https://account.blob.core.windows.net/bucket/t?sv=2020&sig=SECRETSIGNATURE%2B",
        &options([("azure_storage_endpoint", &bucket.endpoint), ("azure_allow_http", "true"), allowed[0]]),
    )
    .unwrap();
    let broken = Storage::open(
        "az://container/t",
        &options([
            ("azure_storage_account_name", "a"),
            ("azure_storage_account_key", "SECRETKEY: not base64"),
            allowed[0],
            allowed[1],
        ]),
    )
    .unwrap();
    let mut texts = vec![format!("{http:?} {s3:?} {azure:?} {broken:?}")];
    for storage in [&http, &s3, &azure, &broken] {
        for result in [
            storage.get("!403").await.map(drop),
            storage.put_if_absent("!400", Bytes::new()).await.map(drop),
            storage.get(&format!("{at}/bucket/!403")).await.map(drop),
            storage.get(&format!("{}/bucket/!403", bucket.endpoint)).await.map(drop),
            storage.get(&format!("{at}/bucket/!403?sig=SECRETSIGNATURE//")).await.map(drop),
        ] {
            let error = result.unwrap_err();
            texts.push(format!("{error} {error:?}"));
        }
    }
    assert!(texts.iter().filter(|text| text.contains("Asked happened")).count() >= 7, "{texts:#?}");
    for text in texts {
        assert!(!text.contains("SECRET") && !text.contains("verysecret"), "{text}");
    }
}

#[tokio::test]
async fn sizes_of_old_files_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // A link to itself has no size.
    std::os::unix::fs::symlink(at("01.json"), at("01.json")).unwrap();
    std::os::unix::fs::symlink(at("nothing"), at("03.json")).unwrap();
    std::fs::write(at("02.json"), "x").unwrap();
    std::os::unix::fs::symlink(at("02.json"), at("04.json")).unwrap();
    let storage = open(folder.path().to_str().unwrap());
    assert_eq!(list(&storage, "", "02").await, ["02.json", "04.json"]);
    storage.list_from("", "").await.unwrap_err();
    assert_eq!(storage.counts().lists, 2);
}

#[tokio::test]
async fn local_oddities() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path().to_str().unwrap());
    storage.put("file", Bytes::new()).await.unwrap();
    storage.put("folder/x", Bytes::new()).await.unwrap();
    // Devices, folders, and files in the place of folders.
    for path in ["/dev/zero", "file:///dev/null", "folder", "file/x"] {
        assert!(storage.get(path).await.unwrap_err().is_not_found(), "{path}");
        assert!(storage.head(path).await.unwrap_err().is_not_found(), "{path}");
        assert!(storage.get_suffix(path, 8).await.unwrap_err().is_not_found(), "{path}");
    }
    assert!(list(&storage, "file", "").await.is_empty());
    let too_long = "x".repeat(300);
    for error in [
        storage.put("file/x", Bytes::new()).await.unwrap_err(),
        storage.put("folder", Bytes::new()).await.unwrap_err(),
        storage.put_if_absent("file/x", Bytes::new()).await.unwrap_err(),
        storage.put_if_absent(&too_long, Bytes::new()).await.unwrap_err(),
        storage.create_file("file/x").await.unwrap().finish().await.unwrap_err(),
    ] {
        assert!(is_storage(&error, false), "{error}");
    }
    assert!(matches!(storage.put_if_absent("folder", Bytes::new()).await, Ok(Put::Exists)));
    assert_eq!(names(folder.path()), ["file", "folder"], "a temporary file is left");
}

#[tokio::test]
async fn unwritable_folders_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    if std::fs::write(folder.path().join("probe"), "").is_ok() {
        return; // The superuser may write anywhere.
    }
    let storage = open(folder.path().to_str().unwrap());
    for error in [
        storage.put("x", Bytes::new()).await.unwrap_err(),
        storage.put_if_absent("_delta_log/x", Bytes::new()).await.unwrap_err(),
        storage.create_file("x").await.unwrap_err(),
    ] {
        assert!(is_storage(&error, false), "{error}");
        assert!(error.message().contains(&format!("write in the folder {}", folder.path().display())), "{error}");
    }
}

proptest! {
    /// Any ranges, overlapping too, are returned in order, with at most one request per range.
    #[test]
    fn ranges_come_back_as_asked(ranges in prop::collection::vec((0u64..400_000, 0u64..90_000), 0..12)) {
        let data: Vec<u8> = (0..500_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for storage in [open(folder.path().to_str().unwrap()), memory()] {
            runtime.block_on(async {
                storage.put("x", data.clone().into()).await.unwrap();
                let read = storage.get_ranges("x", &ranges).await.unwrap();
                assert_eq!(read.len(), ranges.len());
                for (range, bytes) in ranges.iter().zip(read) {
                    assert_eq!(bytes, &data[range.start as usize..range.end as usize]);
                }
                assert!(storage.counts().gets <= ranges.len() as u64);
            });
        }
    }
}
