//! Settings of a store: which are refused, when, and the names in the errors.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;

const KEYS: [(&str, &str); 2] = [("aws_access_key_id", "id"), ("aws_secret_access_key", "SECRETKEY")];

/// Opens a store with these settings, without a request.
async fn check_settings(uri: &str, given: &[(&str, &str)]) -> Result<(), Error> {
    let mut options: HashMap<String, String> =
        given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for key in ["aws_shared_credentials_file", "aws_config_file"] {
        options.entry(key.to_owned()).or_insert("/nowhere".to_owned());
    }
    Storage::check_settings(uri, &options).await
}

#[tokio::test]
async fn settings_are_checked() {
    let long = "x".repeat(20_000);
    for (uri, key, value, why) in [
        ("s3://b/t", "aws_endpoint", "SECRET:9000", "http:// or https://"),
        ("s3://b/t", "aws_endpoint", "SECRET", "http:// or https://"),
        ("s3://b/t", "aws_endpoint", "ftp://SECRET", "http:// or https://"),
        ("s3://b/t", "aws_endpoint", "https:SECRET", "http:// or https://"),
        ("s3://b/t", "aws_endpoint", "https://SECRET name", "http:// or https://"),
        ("s3://b/t", "aws_endpoint", "https://user:SECRET@host", "options of their own"),
        ("s3://b/t", "aws_endpoint", "https://host?SECRET", "without '?'"),
        ("s3://b/t", "aws_endpoint_url_s3", "SECRET", "http:// or https://"),
        ("s3://b/t", "aws_metadata_endpoint", "SECRET", "http:// or https://"),
        ("s3://b/t", "aws_metadata_endpoint", "http://SECRET\"/", "has a host with other characters"),
        ("s3://b/t", "aws_region", "eu\nSECRET", "control character"),
        ("s3://b/t", "aws_region", "eu.SECRET/", "letters"),
        ("s3://b/t", "aws_region", "xn--a", "letters"),
        ("s3://b/t", "aws_access_key_id", "SECRET\nx", "control character"),
        ("s3://b/t", "aws_secret_access_key", "SECRET\r\nx", "control character"),
        ("s3://b/t", "aws_session_token", "SECRET\u{7f}x", "control character"),
        ("s3://b/t", "aws_session_token", "SECRETé", "not ASCII"),
        ("s3://b/t", "aws_session_token", long.as_str(), "too long"),
        ("s3://b/t", "aws_allow_http", "SECRET", "'true' or 'false'"),
        ("s3://b/t", "aws_skip_signature", "2", "'true' or 'false'"),
        ("s3://b/t", "aws_container_credentials_relative_uri", "@SECRET", "begins with '/'"),
        ("s3://b/t", "timeout", "SECRET", "a duration"),
        ("s3://b/t", "timeout", "30", "a duration"),
        ("s3://b/t", "connect_timeout", "0s", "longer than nothing"),
        ("s3://b/t", "read_timeout", "2d", "at most a day"),
        ("s3://b/t", "http2_keep_alive_interval", "99999999999999999d", "at most a day"),
        ("s3://b/t", "http2_max_frame_size", "1", "out of range"),
        ("s3://b/t", "pool_max_idle_per_host", "-1", "whole number"),
        ("s3://b/t", "max_retries", "many", "whole number"),
        ("s3://b/t", "backoff_config.base", "1", "from 1.1"),
        ("s3://b/t", "allow_foreign_paths", "SECRET", "'true' or 'false'"),
        ("az://c/t", "azure_storage_account_name", "SECRET/x", "letters"),
        ("az://c/t", "azure_storage_endpoint", "data:SECRET", "http:// or https://"),
        ("az://c/t", "azure_storage_sas_token", "sig=SECRET\nx", "control character"),
        ("az://c/t", "azure_storage_token", "SECRET\nx", "control character"),
        ("az://c/t", "azure_tenant_id", "SECRET/x", "letters"),
        ("az://c/t", "azure_federated_token_file", "/dev/zero", "the path of a file"),
        ("gs://b/t", "google_bearer_token", "SECRET\nx", "control character"),
        ("gs://b/t", "google_base_url", "SECRET", "http:// or https://"),
        ("gs://b/t", "google_service_account", "/dev/zero", "the path of a file"),
        ("http://h/t", "user_agent", "SECRET\nx", "control character"),
    ] {
        let mut given = KEYS.to_vec();
        given.retain(|(name, _)| *name != key);
        given.extend([("azure_storage_account_name", "account"), ("azure_storage_account_key", "a2V5")]);
        given.retain(|(name, _)| *name != key);
        given.push((key, value));
        let error = check_settings(uri, &given).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), &Kind::Invalid, "{key}: {text}");
        assert!(text.contains(key) && text.contains(why), "{key}: {text}");
        assert!(!text.contains("SECRET") && !text.contains("xxxx"), "{text}");
    }
    let account = r#"{"gcs_base_url": "localhost", "disable_oauth": true, "client_email": "", "private_key": "SECRET",
        "private_key_id": ""}"#;
    let error = check_settings("gs://b/t", &[("google_service_account_key", account)]).await.unwrap_err();
    assert!(error.message().contains("gcs_base_url") && !format!("{error:?}").contains("SECRET"), "{error}");
    let pauses = [("backoff_config.init_backoff", "10s"), ("backoff_config.max_backoff", "1s")];
    let error = check_settings("s3://b/t", &pauses).await.unwrap_err();
    assert!(error.message().contains("max_backoff"), "{error}");
    for uri in ["s3://xn--a/t", "s3://b%20c/t", "gs://b,c/t"] {
        assert_eq!(check_settings(uri, &KEYS).await.unwrap_err().kind(), &Kind::Invalid, "{uri}");
    }
}

#[tokio::test]
async fn blanks_are_trimmed_and_empty_settings_are_absent() {
    let fine = [
        ("aws_access_key_id", " id\n"),
        ("aws_secret_access_key", "SECRETKEY\r\n"),
        ("aws_session_token", ""),
        ("aws_endpoint", " "),
        ("aws_region", "eu-north-1\n"),
        ("AWS_Allow_HTTP", " Yes "),
        ("timeout", "1m 30s"),
        ("retry_timeout", "2 minutes"),
        ("backoff_config.init_backoff", "50ms"),
        ("max_retries", "0"),
    ];
    check_settings("s3://b/t", &fine).await.unwrap();
    // Values are used without the blanks.
    let bucket = Bucket::start(1000);
    let given = bucket.options().into_iter().map(|(key, value)| (key, format!("\t{value}\n"))).collect();
    let storage = Storage::open("s3://bucket/t", &given).unwrap();
    storage.put("x", Bytes::new()).await.unwrap();
    assert!(storage.get("x").await.unwrap().is_empty());
}

#[tokio::test]
async fn retries_are_limited_by_the_setting() {
    let bucket = Bucket::start(1000);
    for (count, requests) in [("0", 1), ("2", 3)] {
        let mut given = bucket.options();
        given.insert("max_retries".into(), count.into());
        given.insert("backoff_config.init_backoff".into(), "1ms".into());
        given.insert("backoff_config.max_backoff".into(), "2ms".into());
        let key = format!("!503-{count}");
        let error = Storage::open("s3://bucket/t", &given).unwrap().get(&key).await.unwrap_err();
        assert!(is_storage(&error, true), "{error}");
        assert_eq!(bucket.requests("GET", &key), requests);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_metadata_service_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        listener.incoming().for_each(|stream| open.push(stream));
    });
    let s3 = options([
        ("aws_metadata_endpoint", &address),
        ("aws_shared_credentials_file", "/nowhere"),
        ("aws_config_file", "/nowhere"),
    ]);
    let azure = options([("azure_storage_account_name", "account"), ("azure_msi_endpoint", &address)]);
    for (uri, given, option) in [("s3://bucket/t", s3, "aws_profile"), ("az://c/t", azure, "azure_storage_account_key")]
    {
        let started = Instant::now();
        let error = Storage::open(uri, &given).unwrap().list_from("_delta_log", "").await.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        assert!(is_storage(&error, false), "{error}");
        let text = error.message();
        assert!(text.contains("no credentials found") && text.contains("looked at") && text.contains(option), "{text}");
        assert!(!text.contains("list"), "{text}");
    }
}

#[tokio::test]
async fn a_profile_signs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let head = request_head(async |address| {
        let keys = "[work]\naws_access_key_id = WORKID\naws_secret_access_key = SECRETKEY\naws_session_token = TOKEN\n";
        let config = format!("[profile work]\nregion = eu-west-7\nendpoint_url = http://{address}\n");
        let given = options([
            ("aws_profile", "work"),
            ("aws_shared_credentials_file", &file("credentials", keys)),
            ("aws_config_file", &file("config", &config)),
            ("aws_allow_http", "true"),
        ]);
        Storage::open("s3://bucket/t", &given).unwrap().get("x").await.unwrap_err();
    });
    let head = head.await.to_ascii_lowercase();
    assert!(head.contains("credential=workid/") && head.contains("/eu-west-7/s3/"), "{head}");
    assert!(head.contains("x-amz-security-token: token"), "{head}");

    // Given keys are used with the region of the default profile.
    let head = request_head(async |address| {
        let endpoint = format!("http://{address}");
        let given = options([
            ("aws_shared_credentials_file", &file("credentials", "[default]\naws_access_key_id = HALF\n")),
            ("aws_config_file", &file("config", "[default]\nregion = eu-west-8\nendpoint_url = http://nobody:1\n")),
            ("aws_endpoint", &endpoint),
            ("aws_allow_http", "true"),
            KEYS[0],
            KEYS[1],
        ]);
        Storage::open("s3://bucket/t", &given).unwrap().get("x").await.unwrap_err();
    });
    assert!(head.await.to_ascii_lowercase().contains("/us-east-1/s3/"), "a profile with half of its keys is used");
    let head = request_head(async |address| {
        let endpoint = format!("http://{address}");
        let given = options([
            ("aws_shared_credentials_file", &file("credentials", "")),
            ("aws_config_file", &file("config", "[default]\nregion = eu-west-8\nendpoint_url = http://nobody:1\n")),
            ("aws_endpoint", &endpoint),
            ("aws_allow_http", "true"),
            KEYS[0],
            KEYS[1],
        ]);
        Storage::open("s3://bucket/t", &given).unwrap().get("x").await.unwrap_err();
    });
    assert!(head.await.to_ascii_lowercase().contains("/eu-west-8/s3/"));

    let config = file("config", "[profile work]\nregion = x\n");
    let error = check_settings("s3://bucket/t", &[("aws_profile", "home"), ("aws_config_file", config.as_str())])
        .await
        .unwrap_err();
    assert!(error.message().contains("'home'") && error.message().contains("work"), "{error}");
    let config = file("config", "[profile home]\nsso_session = corp\nregion = x\n");
    let error = check_settings("s3://bucket/t", &[("aws_profile", "home"), ("aws_config_file", config.as_str())])
        .await
        .unwrap_err();
    assert!(error.message().contains("sso_session") && error.message().contains("export-credentials"), "{error}");
    // Given keys make those of the profile unnecessary.
    let given = [("aws_profile", "home"), ("aws_config_file", config.as_str()), KEYS[0], KEYS[1]];
    check_settings("s3://bucket/t", &given).await.unwrap();
}

#[test]
fn options_of_other_clients() {
    for (key, answer) in [
        ("allow_unsafe_rename", "never commits by a rename"),
        ("DYNAMO_LOCK_TABLE_NAME", "deltic.s3.dynamodb.table"),
        ("key", "aws_access_key_id"),
        ("secret", "aws_secret_access_key"),
        ("anon", "aws_skip_signature"),
        ("connection_string", "azure_storage_account_name"),
        ("client_kwargs", "aws_endpoint"),
        ("assume_role", "aws sts assume-role"),
    ] {
        let error = Storage::open("s3://b/t", &options([(key, "SECRET")])).unwrap_err();
        assert!(error.message().contains(answer) && !error.to_string().contains("SECRET"), "{error}");
    }
    let fine = options([
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
        ("max_retries", "5"),
        ("timeout", "30s"),
        ("allow_http", "true"),
        ("aws_conditional_put", "etag"),
        ("copy_if_not_exists", "header: cf-copy-destination-if-none-match: *"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "a"),
        ("google_service_account_path", "/nowhere"),
    ]);
    Storage::open("s3://b/t", &fine).unwrap();
    // DynamoDB commits, with the names of delta-rs.
    let dynamodb = options([
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb"),
        ("DELTA_DYNAMO_TABLE_NAME", "locks"),
        ("AWS_REGION_DYNAMODB", "eu-north-1"),
    ]);
    Storage::open("s3://b/t", &dynamodb).unwrap();
    // Only similar names are suggested.
    for (key, absent) in [("max_parallel", "aws_region"), ("foo", "proxy_url"), ("partition_by", "did you mean")] {
        let error = Storage::open("s3://b/t", &options([(key, "x")])).unwrap_err();
        assert!(!error.message().contains(absent), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_failures() {
    for status in ["400", "403", "418", "500"] {
        let message = refused(status, &[b'y'; 4096], true);
        let message = tokio::time::timeout(Duration::from_secs(20), message).await.unwrap();
        assert!(message.len() < 8000, "{status}: {}", message.len());
    }
    let page = b"no\x1b[31m \r\n way <!DOCTYPE html><html><body>SECRET</body></html>";
    let message = refused("403", page, false).await;
    assert!(!message.contains("SECRET") && !message.contains('\u{1b}') && !message.contains("\\u{1b}"), "{message}");
    assert!(message.contains("a page of HTML"), "{message}");
    let json = br#"{"error": "no", "access_token": "SECRET1", "client_secret":"SECRET2", "accountKey" : 1}"#;
    let message = refused("403", json, false).await;
    assert!(!message.contains("SECRET"), "{message}");
}

/// The errors of a server that answers each request with this status and body, which may be endless.
async fn refused(status: &'static str, body: &'static [u8], endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n").as_bytes());
            let _ = stream.write_all(body);
            while endless && stream.write_all(body).is_ok() {}
        }
    });
    let given = options([
        ("aws_endpoint", endpoint.as_str()),
        ("aws_allow_http", "true"),
        ("max_retries", "0"),
        KEYS[0],
        KEYS[1],
    ]);
    let storage = Storage::open("s3://bucket/t", &given).unwrap();
    let errors = [
        storage.get("x").await.unwrap_err(),
        storage.put("x", Bytes::new()).await.unwrap_err(),
        match storage.put_if_absent("_delta_log/x", Bytes::new()).await {
            Err(error) | Ok(Put::Unknown(error)) => error,
            other => panic!("{other:?}"),
        },
    ];
    errors.map(|error| format!("{error} {error:?}")).join(" ")
}
