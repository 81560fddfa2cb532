//! Settings of a store: the first line of the input is a location, each other line is an option `key=value`; `\n`, `\r`
//! and `\0` are these characters.
//!
//! The clients sign requests, which are not sent. Nothing panics, and no error contains a secret.

use std::collections::HashMap;
use std::sync::LazyLock;

use deltic_store::Storage;

/// Options read at most.
const OPTIONS: usize = 8;
/// What a secret has in it.
const MARK: &str = "SECRET";

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let uri = lines.next().unwrap_or_default();
    let unescape = |value: &str| value.replace("\\n", "\n").replace("\\r", "\r").replace("\\0", "\0");
    let mut options: HashMap<String, String> = lines
        .take(OPTIONS)
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), unescape(value)))
        .collect();
    // Not those of whoever runs this.
    for key in ["aws_shared_credentials_file", "aws_config_file"] {
        options.insert(key.to_owned(), "/nowhere".to_owned());
    }
    let is_public = |(key, value): (&String, &String)| key.contains(MARK) || value.contains(MARK) && !is_secret(key);
    let names_mark = uri.contains(MARK) || options.iter().any(is_public);
    let Err(error) = RUNTIME.block_on(Storage::check_settings(uri, &options)) else { return };
    let text = format!("{error} {error:?}");
    assert!(names_mark || !text.contains(MARK), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

/// Whether a value must not be repeated. An endpoint or a region may.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["secret_access_key", "session_token", "account_key", "sas_token", "client_secret", "bearer_token"]
        .iter()
        .any(|end| key.ends_with(end))
}
