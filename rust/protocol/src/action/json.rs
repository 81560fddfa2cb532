//! Actions as lines of JSON: reading a commit, writing one.
//!
//! A commit is read in one pass; of lines that the caller does not want only the first key is read. Unknown actions
//! and members are ignored, and null means absent. A line that is not a JSON object, or whose members have
//! impossible types, is [`Kind::Corrupt`](crate::error::Kind::Corrupt) with its number.
//!
//! Writing and reading back gives the same actions (`tests/rust/protocol/action.rs`).
//!
//! PROTOCOL.md: "Delta Log Entries", "Actions".

use arrow_array::RecordBatch;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::batch::{AddBatch, KeyBatch, Origin};
use super::columns::{AddBuilder, NO_REMOVES, RemoveBuilder};
use super::file_line::{FileLine, place_in};
use super::scan::{Kind, Scratch, file_action};
use super::{Action, Cdc, CheckpointMetadata, CommitInfo, DomainMetadata, Metadata, Protocol, Sidecar, Txn};
use crate::error::{Error, Result};

/// Which actions to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All but file actions: protocol, metadata, transactions, domains, commit info, sidecars.
    NoFiles,
    /// Everything.
    All,
}

/// What one commit (or compacted range, or JSON checkpoint) says.
#[derive(Debug)]
pub struct CommitActions {
    /// Whether these are the reconciled actions of several commits. The caller sets it, who knows the file's name.
    pub is_compacted: bool,
    /// Files that join.
    pub adds: AddBatch,
    /// Files that leave.
    pub removes: KeyBatch,
    /// The removes as rows, for checkpoints and vacuum: with the members that checkpoints keep of tombstones.
    pub remove_rows: RecordBatch,
    /// Change data files.
    pub cdc: Vec<Cdc>,
    /// The last protocol action.
    pub protocol: Option<Protocol>,
    /// The last metadata action.
    pub metadata: Option<Metadata>,
    /// Application transactions.
    pub txns: Vec<Txn>,
    /// Metadata domains.
    pub domains: Vec<DomainMetadata>,
    /// The first commit info.
    pub commit_info: Option<CommitInfo>,
    /// Sidecars of a V2 checkpoint.
    pub sidecars: Vec<Sidecar>,
    /// Version of a V2 checkpoint.
    pub checkpoint_metadata: Option<CheckpointMetadata>,
}

/// Commits whose file actions share columns: most commits are small, and columns of their own would cost more than their
/// contents.
#[derive(Debug)]
pub struct CommitBatch {
    /// In the order in which they were read, each without its file actions.
    pub commits: Vec<CommitActions>,
    /// Added files, commit after commit.
    pub adds: AddBatch,
    /// Removed files, commit after commit.
    pub removes: KeyBatch,
    /// The other members of the removes that are kept, beside their keys.
    pub remove_rows: RecordBatch,
    /// For each commit, how many rows of the adds and of the removes there are up to its end.
    pub ends: Vec<(usize, usize)>,
}

/// Reads commits into one [`CommitBatch`].
#[derive(Default)]
pub struct CommitBatchReader {
    adds: AddBuilder,
    removes: RemoveBuilder,
    commits: Vec<CommitActions>,
    ends: Vec<(usize, usize)>,
    bytes: usize,
}

impl CommitBatchReader {
    /// With room for `commits` commits as large as the first.
    pub fn new(commits: usize, first: &[u8]) -> Self {
        let lines = memchr::memchr_iter(b'\n', first).count();
        Self { adds: AddBuilder::new(lines.saturating_mul(commits)), ..Self::default() }
    }

    /// Reads all lines of the next commit.
    ///
    /// # Errors
    /// Those of [`parse_commit`], for all commits together. What was read is of no use then.
    pub fn read(&mut self, bytes: &Bytes, origin: Origin, is_compacted: bool) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        check_size(self.bytes)?;
        let rest = read_lines(bytes, Wanted::All, &mut self.adds, &mut self.removes)?;
        let (adds, removes) = (AddBatch::none(origin), NO_REMOVES.clone());
        self.commits.push(CommitActions { is_compacted, ..rest.with(adds, removes)? });
        self.ends.push((self.adds.len(), self.removes.len()));
        Ok(())
    }

    /// The commits that were read; `None` if there was none.
    pub fn finish(self) -> Result<Option<CommitBatch>> {
        let Self { adds, removes, commits, ends, .. } = self;
        let Some(first) = commits.first() else { return Ok(None) };
        let (adds, remove_rows) = (AddBatch::new(first.adds.origin, adds.finish()?)?, removes.finish()?);
        Ok(Some(CommitBatch { removes: KeyBatch::new(&remove_rows)?, commits, adds, remove_rows, ends }))
    }
}

/// Reads the lines of a commit.
///
/// # Errors
/// `Corrupt`, with the line's number, if a line is not an action, and if there is none; `Unsupported` if there is more
/// than columns can hold.
pub fn parse_commit(bytes: &Bytes, origin: Origin, wanted: Wanted) -> Result<CommitActions> {
    let (mut adds, mut removes) = (AddBuilder::default(), RemoveBuilder::default());
    let rest = read_lines(bytes, wanted, &mut adds, &mut removes)?;
    rest.with(AddBatch::new(origin, adds.finish()?)?, removes.finish()?)
}

/// Refuses more bytes than columns can hold.
fn check_size(bytes: usize) -> Result<()> {
    let too_large = || Error::unsupported("JSON beyond 2 GiB", "a JSON file of the log is larger than 2 GiB");
    i32::try_from(bytes).map(|_| ()).map_err(|_| too_large())
}

fn read_lines(bytes: &Bytes, wanted: Wanted, adds: &mut AddBuilder, removes: &mut RemoveBuilder) -> Result<Rest> {
    if wanted == Wanted::All {
        check_size(bytes.len())?;
    }
    if bytes.trim_ascii().is_empty() {
        // A writer that died before its first byte: what the commit was to do is unknown.
        return Err(Error::corrupt("the commit is empty; restore it, or remove it if it was never acknowledged"));
    }
    adds.begin(bytes);
    let mut rest = Rest::default();
    let mut scratch = Scratch::default();
    // Once for all lines: most commits have nothing but UTF-8.
    let text = (wanted == Wanted::All).then(|| simdutf8::basic::from_utf8(bytes).ok()).flatten();
    for (index, line) in lines(bytes).enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || (wanted == Wanted::NoFiles && is_file_action(line)) {
            continue;
        }
        let corrupt = || Error::corrupt(format!("line {} of the commit is not a readable action", index + 1));
        if let Some((kind, action)) =
            text.and_then(|text| text.get(place_in(bytes, line)?)).and_then(|line| file_action(line, &mut scratch))
        {
            match kind {
                Kind::Add => adds.append(&action),
                Kind::Remove => removes.append(&action),
            }
            scratch.take_back(action);
            continue;
        }
        // Serde would take an array for the members in their order.
        if !line.starts_with(b"{") {
            return Err(corrupt());
        }
        let mut line: Line<'_> = serde_json::from_slice(line).map_err(|e| corrupt().caused_by(e))?;
        match wanted {
            Wanted::NoFiles => line.cdc = None,
            Wanted::All => {
                line.add.iter().for_each(|add| adds.append(add));
                line.remove.iter().for_each(|remove| removes.append(remove));
            }
        }
        rest.take(line).map_err(|name| {
            let message = format!(
                "line {} is a second `{name}` action that differs from the first; a file of the log has one",
                index + 1
            );
            Error::corrupt(message)
        })?;
    }
    Ok(rest)
}

pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Some writers begin a file with a byte order mark, and other readers pass over it.
    let mut rest = Some(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    std::iter::from_fn(move || {
        let here = rest?;
        let end = memchr::memchr(b'\n', here);
        rest = end.and_then(|end| here.get(end + 1..));
        here.get(..end.unwrap_or(here.len()))
    })
}

/// By the first key alone, unless it is null; a line holds one action.
pub(super) fn is_file_action(line: &[u8]) -> bool {
    [&b"{\"add\":{"[..], b"{\"remove\":{", b"{\"cdc\":{"].iter().any(|prefix| line.starts_with(prefix))
}

/// One line, borrowing its strings from the commit's bytes where they hold no escapes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow, default)]
    add: Option<FileLine<'a>>,
    #[serde(borrow, default)]
    remove: Option<FileLine<'a>>,
    #[serde(default)]
    cdc: Option<Cdc>,
    #[serde(default)]
    protocol: Option<Protocol>,
    #[serde(default)]
    meta_data: Option<Metadata>,
    #[serde(default)]
    txn: Option<Txn>,
    #[serde(default)]
    domain_metadata: Option<DomainMetadata>,
    #[serde(default)]
    commit_info: Option<Map<String, Value>>,
    #[serde(default)]
    sidecar: Option<Sidecar>,
    #[serde(default)]
    checkpoint_metadata: Option<CheckpointMetadata>,
}

#[derive(Default)]
struct Rest {
    cdc: Vec<Cdc>,
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    txns: Vec<Txn>,
    domains: Vec<DomainMetadata>,
    commit_info: Option<CommitInfo>,
    sidecars: Vec<Sidecar>,
    checkpoint_metadata: Option<CheckpointMetadata>,
}

impl Rest {
    /// With the files.
    fn with(self, adds: AddBatch, remove_rows: RecordBatch) -> Result<CommitActions> {
        Ok(CommitActions {
            is_compacted: false,
            adds,
            removes: KeyBatch::new(&remove_rows)?,
            remove_rows,
            cdc: self.cdc,
            protocol: self.protocol,
            metadata: self.metadata,
            txns: self.txns,
            domains: self.domains,
            commit_info: self.commit_info,
            sidecars: self.sidecars,
            checkpoint_metadata: self.checkpoint_metadata,
        })
    }

    /// Keeps what the line says; the name of its action if only one such may be there and it is another.
    fn take(&mut self, line: Line<'_>) -> std::result::Result<(), &'static str> {
        self.cdc.extend(line.cdc);
        self.txns.extend(line.txn);
        self.domains.extend(line.domain_metadata);
        self.sidecars.extend(line.sidecar);
        self.commit_info = self.commit_info.take().or(line.commit_info.map(CommitInfo));
        only(&mut self.protocol, line.protocol).ok_or("protocol")?;
        only(&mut self.metadata, line.meta_data).ok_or("metaData")?;
        only(&mut self.checkpoint_metadata, line.checkpoint_metadata).ok_or("checkpointMetadata")
    }
}

/// Keeps a value where there was none; `None` if there was another.
fn only<T: PartialEq>(kept: &mut Option<T>, found: Option<T>) -> Option<()> {
    match (&kept, found) {
        (_, None) => {}
        (None, found) => *kept = found,
        (Some(kept), Some(found)) => return (*kept == found).then_some(()),
    }
    Some(())
}

/// Serialises actions as the lines of a commit.
///
/// # Errors
/// `Internal` if an action cannot be serialised (cannot happen).
pub fn serialize_commit(actions: &[Action]) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for action in actions {
        serialize_action(action, &mut lines)?;
    }
    Ok(lines)
}

/// Serialises one action as the last line.
pub fn serialize_action(action: &Action, lines: &mut Vec<u8>) -> Result<()> {
    let broken = |e: serde_json::Error| Error::internal("an action cannot be serialised as JSON").caused_by(e);
    let serialized = match action {
        Action::CommitInfo(a) => serialize_named("commitInfo", &a.0, lines),
        Action::Protocol(a) => serialize_named("protocol", a, lines),
        Action::Metadata(a) => serialize_named("metaData", a, lines),
        Action::Txn(a) => serialize_named("txn", a, lines),
        Action::DomainMetadata(a) => serialize_named("domainMetadata", a, lines),
        Action::Add(a) => serialize_named("add", a, lines),
        Action::Remove(a) => serialize_named("remove", a, lines),
        Action::Cdc(a) => serialize_named("cdc", a, lines),
    };
    serialized.map_err(broken)
}

/// The line of one action, straight from its members: there may be a million.
fn serialize_named(name: &str, members: &impl Serialize, lines: &mut Vec<u8>) -> serde_json::Result<()> {
    lines.extend_from_slice(b"{\"");
    lines.extend_from_slice(name.as_bytes());
    lines.extend_from_slice(b"\":");
    serde_json::to_writer(&mut *lines, members)?;
    lines.extend_from_slice(b"}\n");
    Ok(())
}
