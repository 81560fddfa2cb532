//! Repair: what a check finds is mended, one thing after the other, and what cannot be is said.
//!
//! First the log: a checkpoint that cannot be read or is not what its commits say, the hint to it, the checksum of the
//! newest version. Then the table: files that are not there leave it, by one commit.
//!
//! Invariants: a file counts as missing only where the store says that it is not there, and any other answer ends the
//! repair; nothing is deleted but a damaged checkpoint that another took the place of. Proved by
//! `tests/python/test_repair.py`.
//!
//! PROTOCOL.md: "Version Checksum File", "Last Checkpoint File", "Checkpoints".

use std::collections::BTreeMap;

use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::check::{Account, Files, State, file_differences, state_differences};
use deltic_protocol::deletion_vector::{self, DeletionVectorPath, Source};
use deltic_protocol::log::name::{LAST_CHECKPOINT, LogName, checkpoint_name, checksum_name};
use deltic_protocol::log::segment::{Checkpoint, LogFile, Segment, checkpoints};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde_json::json;

use crate::after_commit::rebuild_checksum;
use crate::check::{Finding, FindingKind, files_of, identity, log_findings, state_of};
use crate::checkpoint_writer::of_snapshot;
use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::log::{LogSource, log_path};
use crate::snapshot::Snapshot;
use crate::storage::{Storage, decode_path};
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{Ended, Ids, Known, Transaction, TransactionOptions};

/// The operation, as delta-rs calls it.
const OPERATION: &str = "FSCK";

/// Files asked for at once.
const CONCURRENT_HEADS: usize = 64;

/// One thing that is wrong, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairStep {
    /// What it is about: `checkpoint`, `last_checkpoint`, `checksum`, `data_file` or `deletion_vector`.
    pub kind: String,
    /// What is wrong and what is done, for a person.
    pub message: String,
    /// The files, relative to the table or absolute.
    pub paths: Vec<String>,
    /// Whether it is mended, or would be.
    pub mends: bool,
}

/// What a repair did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The version that was looked at.
    pub version: u64,
    /// The version that files left, if one was committed.
    pub committed: Option<u64>,
    /// In the order in which they are taken; empty when all is well.
    pub steps: Vec<RepairStep>,
}

/// Mends the newest version of the table, or says what that would do.
///
/// # Errors
/// `NotFound` if there is no table, `Corrupt` if nothing leads to its newest version, those of the store and of
/// committing. What was mended by then is: running it again goes on from there.
pub async fn repair(
    storage: &Storage,
    dry_run: bool,
    ids: &dyn Ids,
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<Repaired> {
    let repaired = async {
        let listing = LogSource::of(storage).list(0).await?;
        let sound = Sound::find(storage, &listing).await?;
        let mut done = Repaired { version: sound.snapshot.version(), ..Repaired::default() };
        let now_ms = if dry_run { None } else { Some(retry.now_ms()) };
        sound.mend_log(&listing, now_ms, &mut done).await?;
        let missing = Missing::find(&sound.snapshot).await?;
        missing.tell(&mut done);
        if !dry_run && !missing.leaving.is_empty() {
            missing.leave(storage, ids, (committer, retry), &mut done).await?;
        }
        Ok(done)
    };
    repaired.await.map_err(|e: Error| e.in_table(storage.location()))
}

/// The newest version as far as the log can be trusted, without its checksum.
struct Sound {
    snapshot: Snapshot,
    /// Checkpoints that were passed over, and why.
    damaged: Vec<(Checkpoint, String)>,
}

impl Sound {
    async fn find(storage: &Storage, listing: &[LogFile]) -> Result<Self> {
        let mut listing = listing.to_vec();
        let mut segment = Segment::choose(&listing, None, true)?;
        let version = segment.version;
        let mut damaged: Vec<(Checkpoint, String)> = Vec::new();
        loop {
            segment.checksum = None;
            let checkpoint = segment.checkpoint.clone();
            let opened = Snapshot::of_segment(storage, segment).await;
            let Some(checkpoint) = checkpoint else { return Ok(Self { snapshot: opened?, damaged }) };
            listing.retain(|file| !checkpoint.files.iter().any(|gone| gone.file_name == file.file_name));
            let without = |version| Segment::choose(&listing, Some(version), true).ok();
            let others = match without(checkpoint.version) {
                Some(others) => read(storage, Segment { checksum: None, ..others }).await.map(Some),
                None => Ok(None),
            };
            let alone = read(storage, alone(&checkpoint)).await;
            let damage = match (alone, others) {
                (Ok(_), Ok(None)) => None,
                (Ok(says), Ok(Some(others))) => difference(&says, &others),
                // What it stands for is damaged itself.
                (Ok(_), Err(e)) if is_damage(&e) => None,
                (Err(e), Ok(Some(_))) if is_damage(&e) => Some(format!("it cannot be read ({})", e.message())),
                (Err(e), _) | (Ok(_), Err(e)) => return Err(e),
            };
            let Some(damage) = damage else { return Ok(Self { snapshot: opened?, damaged }) };
            segment = match without(version) {
                Some(older) => older,
                None => Segment::choose(&listing, Some(version), true)?,
            };
            damaged.push((checkpoint, damage));
        }
    }

    /// Mends checkpoints, hint and checksum, if there is a time to do it at.
    async fn mend_log(&self, listing: &[LogFile], now_ms: Option<i64>, done: &mut Repaired) -> Result<()> {
        let version = self.snapshot.version();
        let findings = log_findings(&self.snapshot, listing.to_vec()).await?;
        for (checkpoint, damage) in &self.damaged {
            let message = format!(
                "the checkpoint of version {} is damaged: {damage}. A new one of version {version} is written, of what else \
                 the log has, and the damaged one is deleted",
                checkpoint.version
            );
            let paths = checkpoint.files.iter().map(|file| log_path(&file.file_name)).collect();
            done.push(FindingKind::Checkpoint, message, paths);
        }
        let hint = self.hint(listing, &findings).await?;
        if let Some(message) = hint {
            let message =
                format!("{message}. A checkpoint of version {version} is written, and the hint is to name it");
            done.push(FindingKind::LastCheckpoint, message, vec![log_path(LAST_CHECKPOINT)]);
        }
        if !done.steps.is_empty()
            && let Some(now_ms) = now_ms
        {
            self.checkpoint(now_ms, done).await?;
        }
        if let Some(message) = self.checksum(listing, &findings) {
            let message = format!("{message}. All files of version {version} are counted, and a new one is written");
            done.push(FindingKind::Checksum, message, vec![log_path(&checksum_name(version))]);
            if now_ms.is_some() {
                rebuild_checksum(&self.snapshot).await?;
            }
        }
        for Finding { kind, message, path } in findings {
            if kind == FindingKind::Checkpoint {
                let message = format!("{message}. Nothing is done about it: cleaning the log will take it away");
                done.steps.push(RepairStep::new(kind, message, path.into_iter().collect(), false));
            }
        }
        Ok(())
    }

    /// Writes a checkpoint of the version, and takes the damaged ones away.
    async fn checkpoint(&self, now_ms: i64, done: &mut Repaired) -> Result<()> {
        let storage = self.snapshot.storage();
        match of_snapshot(&self.snapshot, now_ms).await {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => {
                for step in &mut done.steps {
                    step.mends = false;
                    step.message = format!("{}. That cannot be done: {}", step.message, e.message());
                }
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        let new = checkpoint_name(self.snapshot.version());
        for file in self.damaged.iter().flat_map(|(checkpoint, _)| &checkpoint.files) {
            if file.file_name != new {
                storage.delete(&log_path(&file.file_name)).await?;
            }
        }
        Ok(())
    }

    /// What is wrong with the hint to the newest checkpoint.
    async fn hint(&self, listing: &[LogFile], findings: &[Finding]) -> Result<Option<String>> {
        if let Some(finding) = findings.iter().find(|finding| finding.kind == FindingKind::LastCheckpoint) {
            return Ok(Some(format!("`_last_checkpoint` is wrong: {}", finding.message)));
        }
        let Some(newest) = checkpoints(listing).last_key_value().map(|(version, _)| *version) else { return Ok(None) };
        match LogSource::of(self.snapshot.storage()).read(LAST_CHECKPOINT).await {
            Ok(_) => Ok(None),
            Err(e) if e.is_not_found() => Ok(Some(format!(
                "`_last_checkpoint` is not there, so that readers list the whole log to find the checkpoint of version \
                 {newest}"
            ))),
            Err(e) => Err(e),
        }
    }

    /// What is wrong with the checksum of the version.
    fn checksum(&self, listing: &[LogFile], findings: &[Finding]) -> Option<String> {
        let name = LogName::Checksum { version: self.snapshot.version() };
        if !listing.iter().any(|file| file.name == name) {
            return Some(
                "the version has no checksum, from which readers and the next commit take its counts".to_owned(),
            );
        }
        let wrong = findings.iter().find(|finding| finding.kind == FindingKind::Checksum);
        wrong.map(|finding| format!("the checksum of the version is wrong: {}", finding.message))
    }
}

impl Repaired {
    fn push(&mut self, kind: FindingKind, message: String, paths: Vec<String>) {
        self.steps.push(RepairStep::new(kind, message, paths, true));
    }
}

impl RepairStep {
    fn new(kind: FindingKind, message: String, paths: Vec<String>, mends: bool) -> Self {
        Self { kind: kind.name().to_owned(), message, paths, mends }
    }
}

/// A checkpoint, and nothing else.
fn alone(checkpoint: &Checkpoint) -> Segment {
    Segment {
        version: checkpoint.version,
        checkpoint: Some(checkpoint.clone()),
        tail: Vec::new(),
        checksum: None,
        commits: Vec::new(),
    }
}

/// Everything that a version consists of.
async fn read(storage: &Storage, segment: Segment) -> Result<(State, Files)> {
    let snapshot = Snapshot::of_segment(storage, segment).await?;
    Ok((state_of(&snapshot).await?, files_of(&snapshot).await?))
}

/// Whether an error says that something is not as it was written: neither the store's failure nor what is not known.
fn is_damage(error: &Error) -> bool {
    error.is_corrupt() || error.is_not_found()
}

/// How a checkpoint differs from what it stands for.
fn difference(checkpoint: &(State, Files), others: &(State, Files)) -> Option<String> {
    let (here, there) = ("the checkpoint", "the commits");
    let states =
        state_differences(Account { name: here, says: &checkpoint.0 }, Account { name: there, says: &others.0 });
    let files = file_differences(Account { name: here, says: &checkpoint.1 }, Account { name: there, says: &others.1 });
    let files = files.into_iter().map(|(path, sentence)| format!("{path}: {sentence}"));
    states.into_iter().chain(files).next()
}

/// Files that the table names and the store does not have.
#[derive(Debug, Default)]
struct Missing {
    /// Data files that are not there.
    data: Vec<String>,
    /// Data files that have another size than the log says, and what is wrong.
    changed: Vec<(String, String)>,
    /// Files of deletion vectors that are not there or too short, what is wrong, and the data files that need them.
    vectors: Vec<(String, String, Vec<String>)>,
    /// Data files that leave the table.
    leaving: Vec<String>,
}

impl Missing {
    async fn find(snapshot: &Snapshot) -> Result<Self> {
        let storage = snapshot.storage();
        let mut missing = Self::default();
        // What is needed of a file of deletion vectors, and by which data files.
        let mut vectors: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
        let mut live = std::pin::pin!(snapshot.live_files(&identity()).await?);
        while let Some(adds) = live.try_next().await? {
            let mut asked = Vec::with_capacity(adds.len());
            for row in 0..adds.len() {
                let path = adds.path().value(row).to_owned();
                let size = adds.size().map(|sizes| sizes.value(row)).and_then(|size| u64::try_from(size).ok());
                if let Some((vector, end)) = needed_vector(&adds, row).map_err(|e| e.in_file(&path))? {
                    let (length, users) = vectors.entry(vector).or_default();
                    *length = end.max(*length);
                    users.push(path.clone());
                }
                asked.push((path, size));
            }
            let ask = |(path, size): (String, Option<u64>)| async move {
                let found = size_of(storage, &decode_path(&path)?).await.map_err(|e| e.in_file(&path))?;
                Ok::<_, Error>((path, size, found))
            };
            let mut answers = stream::iter(asked).map(ask).buffered(CONCURRENT_HEADS);
            while let Some((path, size, found)) = answers.try_next().await? {
                match (found, size) {
                    (None, _) => missing.data.push(path),
                    (Some(found), Some(size)) if found != size => {
                        missing.changed.push((path, format!("it has {found} bytes, and the log says {size}")));
                    }
                    (Some(_), _) => {}
                }
            }
        }
        for (path, (length, users)) in vectors {
            let wrong = match size_of(storage, &path).await.map_err(|e| e.in_file(&path))? {
                None => "is not there".to_owned(),
                Some(found) if found < length => format!("has {found} bytes, and the log's vectors need {length}"),
                Some(_) => continue,
            };
            missing.vectors.push((path, wrong, users));
        }
        missing.leaving.clone_from(&missing.data);
        missing.leaving.extend(missing.vectors.iter().flat_map(|(_, _, users)| users.iter().cloned()));
        missing.leaving.sort();
        missing.leaving.dedup();
        Ok(missing)
    }

    fn tell(&self, done: &mut Repaired) {
        if !self.data.is_empty() {
            let message = format!(
                "{} data files are not there. They leave the table, whose rows in them are lost; to keep them, restore the \
                 files instead",
                self.data.len()
            );
            done.push(FindingKind::DataFile, message, self.data.clone());
        }
        for (path, wrong) in &self.changed {
            let message = format!(
                "the data file is another than the one that was written: {wrong}. Nothing is done about it, for nobody knows \
                 which of its rows are right; restore the file, or remove it from the table"
            );
            done.steps.push(RepairStep::new(FindingKind::DataFile, message, vec![path.clone()], false));
        }
        for (path, wrong, users) in &self.vectors {
            let message = format!(
                "the file of deletion vectors {wrong}, so that nobody knows which rows of {} data files are deleted. These \
                 data files leave the table with all their rows, and stay where they are until a vacuum; to keep the rows, \
                 restore the file instead",
                users.len()
            );
            let paths = std::iter::once(path.clone()).chain(users.iter().cloned()).collect();
            done.push(FindingKind::DeletionVector, message, paths);
        }
    }

    /// Takes the files out of the table, by one commit.
    async fn leave(
        &self,
        storage: &Storage,
        ids: &dyn Ids,
        (committer, retry): (&dyn Committer, &dyn RetryPolicy),
        done: &mut Repaired,
    ) -> Result<()> {
        let metrics = [("dry_run", json!("false")), ("files_removed", json!(self.leaving.len().to_string()))];
        let options = TransactionOptions {
            operation: OPERATION.to_owned(),
            metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..TransactionOptions::default()
        };
        let known = Known { now_ms: Some(retry.now_ms()), ..Known::default() };
        let mut transaction = Transaction::begin(storage, known, options, ids).await?;
        match transaction.remove_paths(&self.leaving, retry.now_ms()).await {
            Ok(_) => {}
            // The table is append-only, or another writer has removed one.
            Err(e) if matches!(e.kind(), Kind::Invalid) => {
                let is_ours =
                    |step: &&mut RepairStep| step.mends && (step.kind == "data_file" || step.kind == "deletion_vector");
                for step in done.steps.iter_mut().filter(is_ours) {
                    step.mends = false;
                    step.message = format!("{}. That cannot be done: {}", step.message, e.message());
                }
                transaction.abandon().await;
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        if let Ended::Committed(outcome) = Box::pin(transaction.commit(committer, retry)).await? {
            done.committed = Some(outcome.committed.version);
        }
        Ok(())
    }
}

/// The size of a file, none if it is not there.
async fn size_of(storage: &Storage, path: &str) -> Result<Option<u64>> {
    match storage.head(path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// The file that the deletion vector of a row is in, and up to which byte.
fn needed_vector(adds: &AddBatch, row: usize) -> Result<Option<(String, u64)>> {
    let Some(descriptor) = adds.deletion_vector(row)? else { return Ok(None) };
    Ok(match deletion_vector::source(&descriptor)? {
        Source::Inline(_) => None,
        Source::File { path: DeletionVectorPath::Relative(path), offset, length } => {
            Some((path, offset.saturating_add(length)))
        }
        Source::File { path: DeletionVectorPath::Absolute(uri), offset, length } => {
            Some((decode_path(&uri)?, offset.saturating_add(length)))
        }
    })
}
