//! Reads log files to find those that are torn. PROTOCOL.md: "Delta Log Entries".

use std::collections::BTreeMap;

use bytes::Bytes;
use deltic_protocol::action::Protocol;
use deltic_protocol::action::json::Wanted;
use deltic_protocol::commit::Conflict;
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::LogFile;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::de::IgnoredAny;

use crate::error::{Error, Kind, Result};
use crate::log::{LogSource, log_file_path, parse_file};
use crate::parallel::try_compute;

/// Files that are read at once.
const CONCURRENT_GETS: usize = 8;

/// What a commit or a compaction is found to be.
pub(super) struct Content {
    pub(super) file: LogFile,
    /// Why it is torn, if it is.
    pub(super) torn: Option<String>,
    /// Whether it has no action.
    pub(super) is_empty: bool,
    /// Its protocol action, if it has one.
    pub(super) protocol: Option<Protocol>,
}

/// Reads all these commits and compactions.
///
/// # Errors
/// Those of the store; also if a file has disappeared.
pub(super) async fn read(log: &LogSource, files: Vec<LogFile>) -> Result<Vec<Content>> {
    let one = |file: LogFile| {
        let log = log.clone();
        async move {
            let path = log_file_path(&file.file_name);
            let bytes = log.read(&file.file_name).await.map_err(|e| match e.is_not_found() {
                true => changed(None).in_file(path).caused_by(e),
                false => e,
            })?;
            let failed = |e| Error::internal("reading a commit failed").caused_by(e);
            try_compute(move || Ok(content(file, &bytes)), failed).await
        }
    };
    stream::iter(files).map(one).buffered(CONCURRENT_GETS).try_collect().await
}

fn content(file: LogFile, bytes: &Bytes) -> Content {
    let torn = tear(bytes);
    let protocol = match torn {
        Some(_) => None,
        None => parse_file(&file, bytes, Wanted::NoFiles).ok().and_then(|actions| actions.protocol),
    };
    Content { file, torn, protocol, is_empty: bytes.trim_ascii().is_empty() }
}

/// Why the bytes are no lines of JSON objects, if they are not. A line that is an object but no action is not torn: another
/// client may understand it.
fn tear(bytes: &[u8]) -> Option<String> {
    if bytes.trim_ascii().is_empty() {
        return Some(format!("has {} bytes and no action", bytes.len()));
    }
    if std::str::from_utf8(bytes).is_err() {
        return Some("is not text in UTF-8".to_owned());
    }
    let is_torn = |line: &[u8]| {
        let line = line.trim_ascii();
        !line.is_empty() && serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(line).is_err()
    };
    let at = bytes.split(|byte| *byte == b'\n').position(is_torn)?;
    Some(format!("is damaged: line {} is not a JSON object", at.saturating_add(1)))
}

/// Whether a file of the log is a commit.
pub(super) fn is_commit(file: &LogFile) -> bool {
    matches!(file.name, LogName::Commit { .. })
}

/// The error for a log that another process changes. `folder`: where files were moved to.
pub(super) fn changed(folder: Option<&str>) -> Error {
    let moved = folder.map(|folder| format!(" Files that were moved are in `{folder}`.")).unwrap_or_default();
    let message = format!(
        "the log changed while it was repaired.{moved} Stop all writers of the table, and call the repair again"
    );
    Error::new(Kind::Conflict(Conflict::ConcurrentAppend), message)
}
