//! The newest version as far as the log can be trusted: each of its accounts is read by itself and compared with the others.
//!
//! Invariant: a checkpoint that reads whole is damaged only where a checksum says what the others say and not what it
//! says, and no checksum the other way round; a checksum that counts other files than the log gives way only to a second
//! account of the same version. Proved by `tests/python/test_repair.py`.

use std::future::ready;

use deltic_protocol::check::{
    Account, Files, State, Totals, checksum_differences, file_differences, state_differences,
};
use deltic_protocol::feature;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::name::{LAST_CHECKPOINT, LogName, checkpoint_name, checksum_name};
use deltic_protocol::log::segment::{Checkpoint, LogFile, Segment, checkpoints};
use futures::stream::TryStreamExt;

use super::steps::{CHECKPOINTS, RepairStep, Repaired};
use crate::after_commit::rebuild_checksum;
use crate::check::{Finding, FindingKind, identity, log_findings, state_of};
use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::checkpoint_writer::of_snapshot;
use crate::error::{Error, Kind, Result};
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;
use deltic_store::Storage;

/// The newest version as far as the log can be trusted, without its checksum.
pub(super) struct Sound {
    pub(super) snapshot: Snapshot,
    /// Whether its accounts disagree, and nothing says which is right: then all stay.
    pub(super) is_disputed: bool,
    /// In which checkpoint, and how.
    dispute: Option<(Checkpoint, String)>,
    /// Whether a checkpoint of this very version says the same as the commits.
    is_confirmed: bool,
    /// Checkpoints that were passed over, and why.
    damaged: Vec<(Checkpoint, String)>,
}

/// The state of a version by one source (checkpoint, commits).
struct LogContents {
    state: State,
    files: Files,
    totals: Totals,
}

/// Whether a checkpoint is right.
enum Verdict {
    /// It stays, and whether it was compared.
    Right(bool),
    Damaged(String),
    Disputed(String),
}

impl Sound {
    pub(super) async fn find(storage: &Storage, listing: &[LogFile]) -> Result<Self> {
        let mut listing = listing.to_vec();
        let mut segment = Segment::choose(&listing, None, true)?;
        let version = segment.version;
        let mut damaged: Vec<(Checkpoint, String)> = Vec::new();
        loop {
            segment.checksum = None;
            let found = segment.checkpoint.clone();
            let opened = Snapshot::of_segment(storage, segment.clone()).await;
            let sound = |snapshot: Snapshot, damaged: Vec<(Checkpoint, String)>| Self {
                snapshot,
                is_disputed: false,
                dispute: None,
                is_confirmed: false,
                damaged,
            };
            let Some(checkpoint) = found else { return Ok(sound(opened?, damaged)) };
            listing.retain(|file| !checkpoint.files.iter().any(|gone| gone.file_name == file.file_name));
            match judge(storage, &listing, (&checkpoint, &segment)).await? {
                Verdict::Right(compared) => {
                    let is_confirmed = compared && checkpoint.version == version;
                    return Ok(Self { is_confirmed, ..sound(opened?, damaged) });
                }
                Verdict::Disputed(how) => {
                    // One that cannot be read has the others in its place.
                    let snapshot = match opened {
                        Err(e) if is_damage(&e) => {
                            Snapshot::of_segment(storage, Segment::choose(&listing, Some(version), true)?).await?
                        }
                        opened => opened?,
                    };
                    let dispute = Some((checkpoint, how));
                    return Ok(Self { is_disputed: true, dispute, ..sound(snapshot, damaged) });
                }
                Verdict::Damaged(why) => damaged.push((checkpoint, why)),
            }
            segment = Segment::choose(&listing, Some(version), true)?;
        }
    }

    /// What is to be done to the log.
    pub(super) async fn plan(&self, listing: &[LogFile], done: &mut Repaired) -> Result<()> {
        let version = self.snapshot.version();
        let findings = log_findings(&self.snapshot, listing.to_vec()).await?;
        let paths =
            |checkpoint: &Checkpoint| checkpoint.files.iter().map(|file| log_file_path(&file.file_name)).collect();
        if let Some((checkpoint, how)) = &self.dispute {
            let message = format!("{how}. Nothing is done: restore whichever is wrong, or delete it yourself");
            done.steps.push(RepairStep::new(FindingKind::Checkpoint, message, paths(checkpoint), false));
        }
        for (checkpoint, damage) in &self.damaged {
            let message = format!(
                "the checkpoint of version {} is damaged: {damage}. A new one of version {version} is written, of what else \
                 the log has, and the damaged one is deleted",
                checkpoint.version
            );
            done.push(FindingKind::Checkpoint, message, paths(checkpoint));
        }
        if let Some(message) = self.hint(listing, &findings).await? {
            let message =
                format!("{message}. A checkpoint of version {version} is written, and the hint is to name it");
            done.push(FindingKind::LastCheckpoint, message, vec![log_file_path(LAST_CHECKPOINT)]);
        }
        if let Some((message, mends)) = self.checksum(listing, &findings).await? {
            let paths = vec![log_file_path(&checksum_name(version))];
            done.steps.push(RepairStep::new(FindingKind::Checksum, message, paths, mends));
        }
        for Finding { kind, message, path } in findings {
            if kind == FindingKind::Checkpoint {
                let message = format!("{message}. Nothing is done about it: cleaning the log will take it away");
                done.steps.push(RepairStep::new(kind, message, path.into_iter().collect(), false));
            }
        }
        Ok(())
    }

    /// Does it.
    pub(super) async fn mend(&self, now_ms: i64, done: &mut Repaired) -> Result<()> {
        if done.mends(&CHECKPOINTS) {
            self.checkpoint(now_ms, done).await?;
        }
        if done.mends(&[FindingKind::Checksum]) {
            rebuild_checksum(&self.snapshot).await?;
        }
        Ok(())
    }

    /// Writes a checkpoint of the version, and takes the damaged ones away.
    async fn checkpoint(&self, now_ms: i64, done: &mut Repaired) -> Result<()> {
        let storage = self.snapshot.storage();
        match of_snapshot(&self.snapshot, now_ms).await {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => return done.refuse_kinds(&CHECKPOINTS, Err(e)),
            Err(e) => return Err(e),
        }
        let new = checkpoint_name(self.snapshot.version());
        for file in self.damaged.iter().flat_map(|(checkpoint, _)| &checkpoint.files) {
            if file.file_name != new {
                storage.delete(&log_file_path(&file.file_name)).await?;
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

    /// What is wrong with the checksum of the version, and whether it is written anew.
    async fn checksum(&self, listing: &[LogFile], findings: &[Finding]) -> Result<Option<(String, bool)>> {
        let (version, storage) = (self.snapshot.version(), self.snapshot.storage());
        let anew = |message: String| {
            Some((format!("{message}. All files of version {version} are counted, and a new one is written"), true))
        };
        let name = LogName::Checksum { version };
        if !listing.iter().any(|file| file.name == name) {
            let message = "the version has no checksum, from which readers and the next commit take its counts";
            return Ok(anew(message.to_owned()));
        }
        let Some(wrong) = findings.iter().find(|finding| finding.kind == FindingKind::Checksum) else {
            return Ok(None);
        };
        let message = format!("the checksum of the version is wrong: {}", wrong.message);
        let contents = read(&self.snapshot).await?;
        let counts_differ = match checksum_of(storage, version, &contents).await? {
            None => return Ok(anew(message)),
            Some(checksum) => {
                let totals = &contents.totals;
                let vectors = checksum.num_deletion_vectors_opt.is_some_and(|n| n != totals.deletion_vectors);
                let rows = checksum.num_deleted_records_opt.is_some_and(|n| n != totals.deleted_records);
                (checksum.num_files, checksum.table_size_bytes) != (totals.files, totals.bytes) || vectors || rows
            }
        };
        let own = log_file_path(&checksum_name(version));
        let lists_differ =
            findings.iter().any(|f| f.kind == FindingKind::Checksum && f.path.as_deref() != Some(own.as_str()));
        if self.is_confirmed || !(counts_differ || lists_differ) {
            return Ok(anew(message));
        }
        Ok(Some((
            format!(
                "the checksum of the version and the log disagree about its files: {}. One of them is wrong, and nothing \
                 else says which: a file of the log may have lost some of its actions. Nothing is done; if the log is right, \
                 delete the checksum and repair the table again",
                wrong.message
            ),
            false,
        )))
    }
}

/// What becomes of a checkpoint, by what the log says without it (`listing`) and by checksums.
async fn judge(
    storage: &Storage,
    listing: &[LogFile],
    (checkpoint, segment): (&Checkpoint, &Segment),
) -> Result<Verdict> {
    let at = checkpoint.version;
    match (alone(storage, checkpoint).await, without(storage, listing, at).await) {
        (Ok(_), Ok(None)) => Ok(Verdict::Right(false)),
        // What it stands for is damaged itself.
        (Ok(_), Err(e)) if is_damage(&e) => Ok(Verdict::Right(false)),
        (Ok(says), Ok(Some(others))) => match difference(&says, &others) {
            None => Ok(Verdict::Right(true)),
            Some(difference) => by_checksums(storage, listing, segment, (&says, &others, at, difference)).await,
        },
        (Err(e), Ok(Some(others))) if is_damage(&e) => {
            let read = format!("it cannot be read ({})", e.message());
            let checksum = checksum_of(storage, at, &others).await?;
            Ok(match checksum.and_then(|checksum| disagreement(checksum, &others)) {
                Some(sentence) => Verdict::Disputed(format!(
                    "the checkpoint of version {at} is damaged: {read}; and what else the log has is not what the checksum of \
                     that version says: {sentence}"
                )),
                None => Verdict::Damaged(read),
            })
        }
        (Err(e), _) | (Ok(_), Err(e)) => Err(e),
    }
}

/// Which of a checkpoint and the others is right, by the checksums of its version and of the newest.
async fn by_checksums(
    storage: &Storage,
    listing: &[LogFile],
    segment: &Segment,
    (says, others, at, difference): (&LogContents, &LogContents, u64, String),
) -> Result<Verdict> {
    let (mut for_it, mut for_others) = (Vec::new(), Vec::new());
    let mut ask = async |version: u64, with: &LogContents, without: &LogContents| {
        let agrees = async |contents: &LogContents| {
            let checksum = checksum_of(storage, version, contents).await?;
            Ok::<_, Error>(checksum.is_some_and(|checksum| disagreement(checksum, contents).is_none()))
        };
        match (agrees(with).await?, agrees(without).await?) {
            (true, false) => for_it.push(version),
            (false, true) => for_others.push(version),
            _ => {}
        }
        Ok::<_, Error>(())
    };
    ask(at, says, others).await?;
    if segment.version != at {
        match without(storage, listing, segment.version).await {
            Ok(Some(newest)) => {
                let with = read(&Snapshot::of_segment(storage, segment.clone()).await?).await?;
                ask(segment.version, &with, &newest).await?;
            }
            Ok(None) => {}
            // What cannot be read has no voice; a store that does not answer decides nothing.
            Err(e) if is_damage(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(match (for_it.first(), for_others.first()) {
        (None, Some(_)) => Verdict::Damaged(difference),
        (for_it, for_others) => {
            let witness = |version: Option<&u64>, with: &str| {
                version.map(|version| format!("; the checksum of version {version} agrees with {with}"))
            };
            let evidence = [witness(for_it, "the checkpoint"), witness(for_others, "the older files")];
            let evidence = match evidence.iter().flatten().cloned().collect::<String>() {
                nothing if nothing.is_empty() => "; no checksum says which is right".to_owned(),
                evidence => evidence,
            };
            Verdict::Disputed(format!(
                "the checkpoint of version {at} and the older files of the log disagree: {difference}{evidence}"
            ))
        }
    })
}

/// What a checkpoint says by itself: no other file of the log is looked at.
///
/// # Errors
/// `Corrupt` or `NotFound` if a reader could not do with it alone.
async fn alone(storage: &Storage, checkpoint: &Checkpoint) -> Result<LogContents> {
    let open = OpenCheckpoint::open(storage, checkpoint).await?;
    let (Some(protocol), Some(metadata)) = (open.state().protocol.clone(), open.state().metadata.clone()) else {
        return Err(Error::corrupt("the checkpoint lacks the protocol or the metadata of the table"));
    };
    feature::check_readable(&protocol)?;
    let (txns, mut domains) = (open.state().txns.clone(), open.state().domains.clone());
    domains.retain(|domain| !domain.removed);
    let (mut files, mut totals) = (Files::default(), Totals::new(&[]));
    let mut adds = std::pin::pin!(open.adds(&AddColumns::all()));
    while let Some(batch) = adds.try_next().await? {
        files.take(&batch)?;
        totals.take(&batch)?;
    }
    open.removes().try_for_each(|_| ready(Ok(()))).await?;
    Ok(LogContents { state: State { protocol, metadata, txns, domains }, files, totals })
}

/// What these files of the log say of a version, by the newest checkpoint of them that can be read; none if they do not
/// lead to it.
async fn without(storage: &Storage, listing: &[LogFile], version: u64) -> Result<Option<LogContents>> {
    let mut listing = listing.to_vec();
    loop {
        let Ok(mut segment) = Segment::choose(&listing, Some(version), true) else { return Ok(None) };
        segment.checksum = None;
        if let Some(older) = &segment.checkpoint {
            match alone(storage, older).await {
                Ok(_) => {}
                Err(e) if is_damage(&e) => {
                    listing.retain(|file| !older.files.iter().any(|gone| gone.file_name == file.file_name));
                    continue;
                }
                Err(e) => return Err(e),
            }
        }
        return read(&Snapshot::of_segment(storage, segment).await?).await.map(Some);
    }
}

/// Everything that a version consists of.
async fn read(snapshot: &Snapshot) -> Result<LogContents> {
    let (mut files, mut totals) = (Files::default(), Totals::new(&[]));
    let mut live = std::pin::pin!(snapshot.live_files(&identity()).await?);
    while let Some(batch) = live.try_next().await? {
        files.take(&batch)?;
        totals.take(&batch)?;
    }
    Ok(LogContents { state: state_of(snapshot).await?, files, totals })
}

/// The checksum of a version, if there is one that can be read.
async fn checksum_of(storage: &Storage, version: u64, contents: &LogContents) -> Result<Option<VersionChecksum>> {
    match LogSource::of(storage).read(&checksum_name(version)).await {
        Ok(bytes) => Ok(VersionChecksum::parse_old(&bytes, &contents.state.metadata, &contents.state.protocol).ok()),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// What a checksum says differently.
fn disagreement(mut checksum: VersionChecksum, contents: &LogContents) -> Option<String> {
    // The bins of the sizes are the checksum's own.
    checksum.file_size_histogram = None;
    checksum_differences(&checksum, &contents.state, &contents.totals, None).into_iter().next()
}

/// Whether an error says that something is not as it was written: neither the store's failure nor what is not known.
fn is_damage(error: &Error) -> bool {
    error.is_corrupt() || error.is_not_found()
}

/// How a checkpoint differs from what it stands for.
fn difference(checkpoint: &LogContents, others: &LogContents) -> Option<String> {
    let (here, there) = ("the checkpoint", "the commits");
    let states = state_differences(
        Account { name: here, says: &checkpoint.state },
        Account { name: there, says: &others.state },
    );
    let files =
        file_differences(Account { name: here, says: &checkpoint.files }, Account { name: there, says: &others.files });
    let files = files.into_iter().map(|(path, sentence)| format!("{path}: {sentence}"));
    states.into_iter().chain(files).next()
}
