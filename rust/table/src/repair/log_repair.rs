//! Repairs the log: compares each checkpoint with the state by the rest of the log, and with checksums.
//!
//! Invariants: a checkpoint that can be read counts as damaged only if a checksum agrees with the rest of the log and no
//! checksum agrees with the checkpoint. A checksum whose file counts differ from the log is replaced only if two sources, a
//! checkpoint and the commits, give the same state of its version. Proved by `tests/python/test_repair.py`.

use std::future::ready;

use deltic_protocol::check::{
    Files, State, Totals, VersionRecord, checksum_differences, file_differences, state_differences,
};
use deltic_protocol::feature;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::name::{LAST_CHECKPOINT, LogName, checkpoint_name, checksum_name};
use deltic_protocol::log::segment::{Checkpoint, LogFile, Segment, checkpoints};
use futures::stream::TryStreamExt;

use super::steps::{CHECKPOINTS, RepairStep, Repaired};
use crate::check::{Finding, FindingKind, identity, log_findings, state_of};
use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::checkpoint_writer::of_snapshot;
use crate::error::{Error, Kind, Result};
use crate::log::{LogSource, log_file_path};
use crate::post_commit::rebuild_checksum;
use crate::snapshot::Snapshot;

/// The newest version, read without its checksum and without damaged checkpoints.
pub(super) struct LogRepair {
    pub(super) snapshot: Snapshot,
    /// Whether a checkpoint and the commits disagree, and no checksum decides which is right. Nothing is changed then.
    pub(super) is_disputed: bool,
    /// The disputed checkpoint, and how it differs.
    dispute: Option<(Checkpoint, String)>,
    /// Whether a checkpoint of the newest version has the same state as the commits.
    is_confirmed: bool,
    /// Damaged checkpoints, and what is wrong with them.
    damaged: Vec<(Checkpoint, String)>,
}

/// The state of a version by one source: a checkpoint, or the commits.
pub(super) struct LogContents {
    state: State,
    files: Files,
    totals: Totals,
}

/// A checkpoint and the rest of the log that give different states of its version.
struct Disagreement<'a> {
    version: u64,
    checkpoint: &'a LogContents,
    rest: &'a LogContents,
    difference: String,
}

/// Whether a checkpoint is right.
enum Verdict {
    /// Nothing contradicts the checkpoint. The flag: whether it was compared with the commits.
    Right(bool),
    Damaged(String),
    Disputed(String),
}

impl LogRepair {
    pub(super) async fn find(log: &LogSource, listing: &[LogFile]) -> Result<Self> {
        let mut listing = listing.to_vec();
        let mut segment = Segment::choose(&listing, None, true)?;
        let version = segment.version;
        let mut damaged: Vec<(Checkpoint, String)> = Vec::new();
        loop {
            segment.checksum = None;
            let checkpoint = segment.checkpoint.clone();
            let opened = Snapshot::load_segment(log, segment.clone()).await;
            let undisputed = |snapshot: Snapshot, damaged: Vec<(Checkpoint, String)>| Self {
                snapshot,
                is_disputed: false,
                dispute: None,
                is_confirmed: false,
                damaged,
            };
            let Some(checkpoint) = checkpoint else { return Ok(undisputed(opened?, damaged)) };
            listing.retain(|file| !checkpoint.files.iter().any(|gone| gone.file_name == file.file_name));
            match judge(log, &listing, &checkpoint, &segment).await? {
                Verdict::Right(compared) => {
                    let is_confirmed = compared && checkpoint.version == version;
                    return Ok(Self { is_confirmed, ..undisputed(opened?, damaged) });
                }
                Verdict::Disputed(how) => {
                    // If the disputed checkpoint cannot be read, the rest of the log gives the snapshot.
                    let snapshot = match opened {
                        Err(e) if is_damage(&e) => {
                            Snapshot::load_segment(log, Segment::choose(&listing, Some(version), true)?).await?
                        }
                        opened => opened?,
                    };
                    let dispute = Some((checkpoint, how));
                    return Ok(Self { is_disputed: true, dispute, ..undisputed(snapshot, damaged) });
                }
                Verdict::Damaged(why) => damaged.push((checkpoint, why)),
            }
            segment = Segment::choose(&listing, Some(version), true)?;
        }
    }

    /// Adds the steps that repair the log.
    pub(super) async fn plan(&self, listing: &[LogFile], done: &mut Repaired) -> Result<()> {
        let version = self.snapshot.version();
        let findings = log_findings(&self.snapshot, listing.to_vec()).await?;
        let paths =
            |checkpoint: &Checkpoint| checkpoint.files.iter().map(|file| log_file_path(&file.file_name)).collect();
        if let Some((checkpoint, how)) = &self.dispute {
            let message = format!("{how}. Nothing is done: restore the one that is wrong, or delete it yourself");
            done.steps.push(RepairStep::new(FindingKind::Checkpoint, message, paths(checkpoint), false));
        }
        for (checkpoint, damage) in &self.damaged {
            let message = format!(
                "the checkpoint of version {} is damaged: {damage}. A new one of version {version} is written from the rest \
                 of the log, and the damaged one is deleted",
                checkpoint.version
            );
            done.push(FindingKind::Checkpoint, message, paths(checkpoint));
        }
        if let Some(message) = self.last_checkpoint_fault(listing, &findings).await? {
            let message = format!(
                "{message}. A checkpoint of version {version} is written, and `_last_checkpoint` names it then"
            );
            done.push(FindingKind::LastCheckpoint, message, vec![log_file_path(LAST_CHECKPOINT)]);
        }
        if let Some((message, mends)) = self.checksum_fault(listing, &findings).await? {
            let paths = vec![log_file_path(&checksum_name(version))];
            done.steps.push(RepairStep::new(FindingKind::Checksum, message, paths, mends));
        }
        for Finding { kind, message, path } in findings {
            if kind == FindingKind::Checkpoint {
                let message = format!("{message}. Nothing is done about it: log cleanup will delete it");
                done.steps.push(RepairStep::new(kind, message, path.into_iter().collect(), false));
            }
        }
        Ok(())
    }

    /// Carries out the steps that [`LogRepair::plan`] added.
    pub(super) async fn mend(&self, now_ms: i64, done: &mut Repaired) -> Result<()> {
        if done.mends(&CHECKPOINTS) {
            self.replace_checkpoints(now_ms, done).await?;
        }
        if done.mends(&[FindingKind::Checksum]) {
            rebuild_checksum(&self.snapshot).await?;
        }
        Ok(())
    }

    /// Writes a checkpoint of the version, and deletes the damaged ones.
    async fn replace_checkpoints(&self, now_ms: i64, done: &mut Repaired) -> Result<()> {
        let storage = self.snapshot.storage();
        let written = match of_snapshot(&self.snapshot, now_ms).await {
            Ok(written) => written,
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => return done.refuse_kinds(&CHECKPOINTS, Err(e)),
            Err(e) => return Err(e),
        };
        let new = checkpoint_name(self.snapshot.version());
        for file in self.damaged.iter().flat_map(|(checkpoint, _)| &checkpoint.files) {
            if !written.is_classic || file.file_name != new {
                storage.delete(&log_file_path(&file.file_name)).await?;
            }
        }
        Ok(())
    }

    /// What is wrong with `_last_checkpoint`, if anything.
    async fn last_checkpoint_fault(&self, listing: &[LogFile], findings: &[Finding]) -> Result<Option<String>> {
        if let Some(finding) = findings.iter().find(|finding| finding.kind == FindingKind::LastCheckpoint) {
            return Ok(Some(format!("`_last_checkpoint` is wrong: {}", finding.message)));
        }
        let Some(newest) = checkpoints(listing).last_key_value().map(|(version, _)| *version) else { return Ok(None) };
        match self.snapshot.log().read(LAST_CHECKPOINT).await {
            Ok(_) => Ok(None),
            Err(e) if e.is_not_found() => Ok(Some(format!(
                "`_last_checkpoint` is not there, so that readers list the whole log to find the checkpoint of version \
                 {newest}"
            ))),
            Err(e) => Err(e),
        }
    }

    /// What is wrong with the checksum of the version, if anything, and whether the repair rewrites it.
    async fn checksum_fault(&self, listing: &[LogFile], findings: &[Finding]) -> Result<Option<(String, bool)>> {
        let version = self.snapshot.version();
        let rewritten = |message: String| {
            Some((format!("{message}. All files of version {version} are counted, and a new one is written"), true))
        };
        let name = LogName::Checksum { version };
        if !listing.iter().any(|file| file.name == name) {
            let message = "the version has no checksum, from which readers and the next commit take its counts";
            return Ok(rewritten(message.to_owned()));
        }
        let Some(wrong) = findings.iter().find(|finding| finding.kind == FindingKind::Checksum) else {
            return Ok(None);
        };
        let message = format!("the checksum of the version is wrong: {}", wrong.message);
        let contents = contents_of(&self.snapshot).await?;
        let log = self.snapshot.log();
        let counts_differ = match checksum_of(log, version, &contents).await? {
            None => return Ok(rewritten(message)),
            Some(checksum) => {
                let totals = &contents.totals;
                let vectors = checksum.num_deletion_vectors_opt.is_some_and(|n| n != totals.deletion_vectors);
                let rows = checksum.num_deleted_records_opt.is_some_and(|n| n != totals.deleted_records);
                (checksum.num_files, checksum.table_size_bytes) != (totals.files, totals.bytes) || vectors || rows
            }
        };
        let checksum_path = log_file_path(&checksum_name(version));
        let lists_differ = findings
            .iter()
            .any(|f| f.kind == FindingKind::Checksum && f.path.as_deref() != Some(checksum_path.as_str()));
        if self.is_confirmed || !(counts_differ || lists_differ) {
            return Ok(rewritten(message));
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

/// Judges a checkpoint by the state that the rest of the log (`listing`) gives and by checksums.
async fn judge(log: &LogSource, listing: &[LogFile], checkpoint: &Checkpoint, segment: &Segment) -> Result<Verdict> {
    let at = checkpoint.version;
    match (contents_of_checkpoint(log, checkpoint).await, contents_of_rest(log, listing, at).await) {
        (Ok(_), Ok(None)) => Ok(Verdict::Right(false)),
        // The rest of the log is damaged, so that there is nothing to compare with.
        (Ok(_), Err(e)) if is_damage(&e) => Ok(Verdict::Right(false)),
        (Ok(contents), Ok(Some(rest))) => match difference(&contents, &rest) {
            None => Ok(Verdict::Right(true)),
            Some(difference) => {
                let found = Disagreement { version: at, checkpoint: &contents, rest: &rest, difference };
                by_checksums(log, listing, segment, found).await
            }
        },
        (Err(e), Ok(Some(rest))) if is_damage(&e) => {
            let damage = format!("it cannot be read ({})", e.message());
            let checksum = checksum_of(log, at, &rest).await?;
            Ok(match checksum.and_then(|checksum| disagreement(checksum, &rest)) {
                Some(sentence) => Verdict::Disputed(format!(
                    "the checkpoint of version {at} is damaged: {damage}. The rest of the log disagrees with the checksum of \
                     that version: {sentence}"
                )),
                None => Verdict::Damaged(damage),
            })
        }
        (Err(e), _) | (Ok(_), Err(e)) => Err(e),
    }
}

/// Decides between a checkpoint and the rest of the log, by the checksums of its version and of the newest version.
async fn by_checksums(
    log: &LogSource,
    listing: &[LogFile],
    segment: &Segment,
    Disagreement { version: at, checkpoint, rest, difference }: Disagreement<'_>,
) -> Result<Verdict> {
    let (mut for_checkpoint, mut for_rest) = (Vec::new(), Vec::new());
    let mut compare = async |version: u64, with: &LogContents, without: &LogContents| {
        let agrees = async |contents: &LogContents| {
            let checksum = checksum_of(log, version, contents).await?;
            Ok::<_, Error>(checksum.is_some_and(|checksum| disagreement(checksum, contents).is_none()))
        };
        match (agrees(with).await?, agrees(without).await?) {
            (true, false) => for_checkpoint.push(version),
            (false, true) => for_rest.push(version),
            _ => {}
        }
        Ok::<_, Error>(())
    };
    compare(at, checkpoint, rest).await?;
    if segment.version != at {
        match contents_of_rest(log, listing, segment.version).await {
            Ok(Some(newest)) => {
                let with = contents_of(&Snapshot::load_segment(log, segment.clone()).await?).await?;
                compare(segment.version, &with, &newest).await?;
            }
            Ok(None) => {}
            // Contents that cannot be read are not compared. An error of the store ends the repair.
            Err(e) if is_damage(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(match (for_checkpoint.first(), for_rest.first()) {
        (None, Some(_)) => Verdict::Damaged(difference),
        (for_checkpoint, for_rest) => {
            let witness = |version: Option<&u64>, with: &str| {
                version.map(|version| format!("; the checksum of version {version} agrees with {with}"))
            };
            let evidence = [witness(for_checkpoint, "the checkpoint"), witness(for_rest, "the older files")];
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

/// Reads a checkpoint alone, without any other file of the log.
///
/// # Errors
/// `Corrupt` or `NotFound` if the checkpoint is incomplete.
pub(super) async fn contents_of_checkpoint(log: &LogSource, checkpoint: &Checkpoint) -> Result<LogContents> {
    let open = OpenCheckpoint::open(log, checkpoint).await?;
    let (Some(protocol), Some(metadata)) =
        (open.non_file_actions().protocol.clone(), open.non_file_actions().metadata.clone())
    else {
        return Err(Error::corrupt("the checkpoint lacks the protocol or the metadata of the table"));
    };
    feature::check_readable(&protocol)?;
    let (txns, mut domains) = (open.non_file_actions().txns.clone(), open.non_file_actions().domains.clone());
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

/// Reads a version from these files of the log, beginning with the newest readable checkpoint among them. `None` if commits
/// are missing.
async fn contents_of_rest(log: &LogSource, listing: &[LogFile], version: u64) -> Result<Option<LogContents>> {
    let mut listing = listing.to_vec();
    loop {
        let Ok(mut segment) = Segment::choose(&listing, Some(version), true) else { return Ok(None) };
        segment.checksum = None;
        if let Some(older) = &segment.checkpoint {
            match contents_of_checkpoint(log, older).await {
                Ok(_) => {}
                Err(e) if is_damage(&e) => {
                    listing.retain(|file| !older.files.iter().any(|gone| gone.file_name == file.file_name));
                    continue;
                }
                Err(e) => return Err(e),
            }
        }
        return contents_of(&Snapshot::load_segment(log, segment).await?).await.map(Some);
    }
}

/// Reads all contents of a version.
pub(super) async fn contents_of(snapshot: &Snapshot) -> Result<LogContents> {
    let (mut files, mut totals) = (Files::default(), Totals::new(&[]));
    let mut live = std::pin::pin!(snapshot.live_files(&identity()).await?);
    while let Some(batch) = live.try_next().await? {
        files.take(&batch)?;
        totals.take(&batch)?;
    }
    Ok(LogContents { state: state_of(snapshot).await?, files, totals })
}

/// The checksum of a version, if it exists and can be parsed.
async fn checksum_of(log: &LogSource, version: u64, contents: &LogContents) -> Result<Option<VersionChecksum>> {
    match log.read(&checksum_name(version)).await {
        Ok(bytes) => Ok(VersionChecksum::parse_old(&bytes, &contents.state.metadata, &contents.state.protocol).ok()),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// The first difference between a checksum and contents.
fn disagreement(mut checksum: VersionChecksum, contents: &LogContents) -> Option<String> {
    // Writers choose the bins of the histogram differently.
    checksum.file_size_histogram = None;
    checksum_differences(&checksum, &contents.state, &contents.totals, None).into_iter().next()
}

/// Whether an error means a damaged or missing file: not a failure of the store, and not an unsupported feature.
pub(super) fn is_damage(error: &Error) -> bool {
    error.is_corrupt() || error.is_not_found()
}

/// The first difference between a checkpoint and the rest of the log.
fn difference(checkpoint: &LogContents, rest: &LogContents) -> Option<String> {
    let (checkpoint_name, commits_name) = ("the checkpoint", "the commits");
    let states = state_differences(
        VersionRecord { name: checkpoint_name, content: &checkpoint.state },
        VersionRecord { name: commits_name, content: &rest.state },
    );
    let files = file_differences(
        VersionRecord { name: checkpoint_name, content: &checkpoint.files },
        VersionRecord { name: commits_name, content: &rest.files },
    );
    let files = files.into_iter().map(|(path, sentence)| format!("{path}: {sentence}"));
    states.into_iter().chain(files).next()
}
