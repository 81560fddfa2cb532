//! Foreign paths in a log: no request is sent unless the caller allows it, and then without the credentials of the table.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::super::sample::{Sample, add, add_with, metadata, parquet, protocol};
use super::*;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::read::{ReadOptions, Reader};
use futures::StreamExt;

/// A web server without files that records its requests.
#[derive(Clone)]
struct Recorder {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let recorder = Self { address: listener.local_addr().unwrap().to_string(), heads: Arc::default() };
        let heads = recorder.heads.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> =
                    lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                heads.lock().unwrap().push(head.join("\n"));
                let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer);
            }
        });
        recorder
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unsupported { .. }) && error.message().contains("allow_foreign_paths")
}

#[tokio::test]
async fn foreign_paths_get_no_request() {
    let recorder = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(1000);
    let azure = azure(&bucket, ACCOUNT_KEY);
    let tables = [
        open(folder.path().to_str().unwrap()),
        memory(),
        Storage::open("s3://bucket/t", &bucket.options()).unwrap(),
        Storage::open("az://container/t", &azure).unwrap(),
        open(&format!("http://{}/bucket/t", bucket.endpoint.strip_prefix("http://").unwrap())),
    ];
    for path in [
        format!("http://{}/latest/meta-data/", recorder.address),
        format!("https://{}/x", recorder.address),
        "s3://other/x".to_owned(),
        "gs://other/x".to_owned(),
        "az://other/x".to_owned(),
        "abfss://container@other.dfs.core.windows.net/x".to_owned(),
        "memory://other/x".to_owned(),
    ] {
        let path = decode_path(&path).unwrap();
        for table in &tables {
            let range = 0..1;
            for error in [
                table.get(&path).await.unwrap_err(),
                table.get_all(&[path.clone(), path.clone()]).await.unwrap_err(),
                table.get_ranges(&path, std::slice::from_ref(&range)).await.unwrap_err(),
                table.get_suffix(&path, 8).await.unwrap_err(),
                table.head(&path).await.unwrap_err(),
                table.put(&path, Bytes::new()).await.unwrap_err(),
                table.put_if_absent(&path, Bytes::new()).await.unwrap_err(),
                table.create_file(&path).await.unwrap_err(),
                table.delete(&path).await.unwrap_err(),
                table.list_from(&path, "").await.unwrap_err(),
            ] {
                assert!(is_refused(&error), "{table:?} {path}: {error}");
                assert_eq!(error.path(), Some(path.as_str()));
            }
        }
    }
    assert_eq!(recorder.heads(), [""; 0]);
    let requests: usize = ["GET", "HEAD", "PUT", "POST", "DELETE", "LIST"].map(|m| bucket.requests(m, "")).iter().sum();
    assert_eq!(requests, 0);
    // Local files are refused too, except for local tables.
    for table in &tables[1..] {
        let error = table.get("file:///etc/passwd").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{table:?}: {error}");
    }
    let file = folder.path().join("x");
    std::fs::write(&file, "mine").unwrap();
    let path = format!("file://{}", file.display());
    assert_eq!(tables[0].get(&path).await.unwrap(), "mine");
}

#[tokio::test]
async fn allowed_paths_are_read_without_credentials() {
    let recorder = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    let path = format!("http://{}/x", recorder.address);
    let mut given = Bucket::start(1000).options();
    given.insert("aws_session_token".into(), "sessiontoken".into());
    given.insert("azure_storage_token".into(), "bearer".into());
    given.insert("google_bearer_token".into(), "bearer".into());
    given.insert("allow_foreign_paths".into(), "True".into());
    given.remove("aws_allow_http");
    for uri in [folder.path().to_str().unwrap(), "s3://bucket/t"] {
        let before = recorder.heads().len();
        let error = Storage::open(uri, &given).unwrap().get(&path).await.unwrap_err();
        assert!(error.to_string().contains("allow_http"), "{error}");
        assert_eq!(recorder.heads().len(), before);
        let mut given = given.clone();
        given.insert("allow_http".into(), "true".into());
        let error = Storage::open(uri, &given).unwrap().get(&path).await.unwrap_err();
        assert!(error.is_not_found(), "{error}");
        assert_eq!(recorder.heads().len(), before + 1);
    }
    for head in recorder.heads() {
        let head = head.to_ascii_lowercase();
        for word in ["authorization", "x-amz", "x-ms", "x-goog", "sessiontoken", "bearer", "cookie"] {
            assert!(!head.contains(word), "{head}");
        }
    }
}

#[tokio::test]
async fn one_container_has_several_names() {
    let bucket = Bucket::start(1000);
    let storage = Storage::open("az://bucket/t", &azure(&bucket, ACCOUNT_KEY)).unwrap();
    storage.put("x", Bytes::from_static(b"here")).await.unwrap();
    for path in [
        "az://bucket/t/x",
        "abfss://bucket@account.dfs.core.windows.net/t/x",
        "https://account.blob.core.windows.net/bucket/t/x",
    ] {
        assert_eq!(storage.get(path).await.unwrap(), "here", "{path}");
    }
    for path in [
        "abfss://bucket@account2.dfs.core.windows.net/t/x",
        "abfss://bucket2@account.dfs.core.windows.net/t/x",
        "abfss://bucket@account.dfs.fabric.microsoft.com/t/x",
        "https://account.dfs.fabric.microsoft.com/bucket/t/x",
    ] {
        assert!(is_refused(&storage.get(path).await.unwrap_err()), "{path}");
    }
    let bucket = Bucket::start(1000);
    let storage = Storage::open("s3a://bucket/t", &bucket.options()).unwrap();
    storage.put("x", Bytes::from_static(b"here")).await.unwrap();
    for path in ["s3://bucket/t/x", "s3a://bucket/t/x", "/t/x"] {
        assert_eq!(storage.get(path).await.unwrap(), "here", "{path}");
    }
}

#[tokio::test]
async fn a_table_is_refused_by_the_file_it_names() {
    let recorder = Recorder::start();
    let there = format!("http://{}/x", recorder.address);
    let data = parquet(&[add("a")]);
    let vector = json!({"size": data.len(), "deletionVector": {
        "storageType": "p", "pathOrInlineDv": there, "offset": 1, "sizeInBytes": 34, "cardinality": 1,
    }, "stats": "{\"numRecords\":1}"});
    let plain = [protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))];
    let with_vectors = [
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}}),
        metadata(&[("x", "long")], &[], json!({"delta.enableDeletionVectors": "true"})),
    ];
    for (state, file) in [(plain, add(&there)), (with_vectors, add_with("f.parquet", vector))] {
        let sample = Sample::new();
        sample.commit(0, &state);
        sample.commit(1, &[file]);
        sample.put("../f.parquet", &data);
        let error = rows(&sample).await.unwrap_err();
        assert!(is_refused(&error), "{error}");
        assert!(error.to_string().contains(&recorder.address), "{error}");
    }
    // Files of a checkpoint.
    let sample = Sample::new();
    let state = [
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}}),
        metadata(&[("x", "long")], &[], json!({})),
    ];
    sample.commit(0, &state);
    let top = [
        json!({"checkpointMetadata": {"version": 0}}),
        state[0].clone(),
        state[1].clone(),
        json!({"sidecar": {"path": there, "sizeInBytes": 9000, "modificationTime": 1}}),
    ];
    sample.put(
        "00000000000000000000.checkpoint.5d8fd9e5-0f4c-4a6c-9d0d-2f0b9a1d6a11.json",
        top.map(|action| action.to_string()).join("\n"),
    );
    let error = rows(&sample).await.unwrap_err();
    assert!(is_refused(&error), "{error}");
    assert_eq!(recorder.heads(), [""; 0]);
}

async fn rows(sample: &Sample) -> Result<usize, Error> {
    let snapshot = sample.open().await?;
    let plan = ScanPlan::new(&snapshot, None, None).await?;
    let reader = Reader::new(snapshot.storage().clone(), plan.spec().clone())?;
    let batches: Vec<_> = reader.read(plan.tasks().await?, ReadOptions::default()).collect().await;
    batches.into_iter().map(|batch| Ok(batch?.num_rows())).sum()
}

#[tokio::test]
async fn a_signature_in_a_path_of_a_log_stays_out_of_messages() {
    let folder = tempfile::tempdir().unwrap();
    let (allow, once) = (("allow_foreign_paths", "true"), ("max_retries", "0"));
    for options in [vec![allow, once], vec![allow, once, ("allow_http", "true")]] {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let table = Storage::open(folder.path().to_str().unwrap(), &options).unwrap();
        for query in ["sig=sEcReT&se=2030", "X-Amz-Signature=sEcReT", "token=sEcReT"] {
            // No server listens there.
            let path = decode_path(&format!("http://127.0.0.1:1/x.parquet?{query}")).unwrap();
            let error = table.get(&path).await.unwrap_err();
            let message = format!("{error} {error:?}");
            assert!(!message.contains("sEcReT"), "{message}");
        }
    }
}
