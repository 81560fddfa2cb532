//! Redirects are followed within a server, and to other servers only if no credentials are sent.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::*;

/// A server that answers by path, and records the heads of its requests.
struct Server {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = heads.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 8192];
                let read = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().unwrap().push(head);
                let _ = stream.write_all(answer(&path).as_bytes());
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 307 X\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn found() -> String {
    "HTTP/1.1 200 OK\r\nlast-modified: Thu, 26 Nov 2026 10:00:00 GMT\r\netag: \"e\"\r\ncontent-length: 4\r\n\
     connection: close\r\n\r\nhere"
        .to_owned()
}

fn with_keys(server: &Server) -> HashMap<String, String> {
    options([
        ("aws_endpoint", &format!("http://{}", server.address)),
        ("aws_allow_http", "true"),
        ("aws_access_key_id", "id"),
        ("aws_secret_access_key", "SECRETKEY"),
        ("aws_session_token", "SECRETTOKEN"),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn with_credentials_redirects_to_other_servers_are_refused() {
    let other = Server::start(|_| found());
    let elsewhere = format!("http://{}/private?token=SECRETQUERY", other.address);
    let server = Server::start(move |_| moved(&elsewhere));
    let s3 = Storage::open("s3://bucket/t", &with_keys(&server)).unwrap();
    let azure = options([
        ("azure_storage_account_name", "account"),
        ("azure_storage_sas_token", "sv=1&sig=SECRETSIG"),
        ("azure_storage_endpoint", &format!("http://{}", server.address)),
        ("azure_allow_http", "true"),
    ]);
    let azure = Storage::open("az://c/t", &azure).unwrap();
    for storage in [&s3, &azure] {
        let put = match storage.put_if_absent("_delta_log/x", Bytes::new()).await {
            Err(error) | Ok(Put::Unknown(error)) => error,
            other => panic!("{other:?}"),
        };
        for error in [
            storage.get("x").await.unwrap_err(),
            storage.put("x", Bytes::new()).await.unwrap_err(),
            storage.delete("x").await.unwrap_err(),
            storage.list_from("", "").await.unwrap_err(),
            put,
        ] {
            let message = error.to_string();
            assert!(is_storage(&error, false), "{error:?}");
            assert!(message.contains("redirects to another server are not followed"), "{message}");
            assert!(!format!("{message} {error:?}").contains("SECRET"), "{error:?}");
        }
    }
    assert_eq!(other.heads(), Vec::<String>::new());
    assert!(server.heads().len() >= 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_within_a_server_are_followed_but_not_in_circles() {
    let server = Server::start(|path| match path {
        "/bucket/t/x" => moved("/bucket/t/there"),
        "/bucket/t/circle" => moved("/bucket/t/circle"),
        _ => found(),
    });
    let storage = Storage::open("s3://bucket/t", &with_keys(&server)).unwrap();
    assert_eq!(&storage.get("x").await.unwrap()[..], b"here");
    let error = storage.get("circle").await.unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");
    assert!(server.heads().len() < 100, "{}", server.heads().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_of_public_servers_are_followed_without_referrer() {
    let other = Server::start(|_| found());
    let elsewhere = format!("http://{}/there", other.address);
    let server = Server::start(move |_| moved(&elsewhere));
    let storage = open(&format!("http://{}/t", server.address));
    assert_eq!(&storage.get("x").await.unwrap()[..], b"here");
    let heads = other.heads();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with("GET /there ") && !heads[0].to_lowercase().contains("referer"), "{}", heads[0]);
}
