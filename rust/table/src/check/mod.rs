//! Checks a version: compares everything that repeats facts about it with the replayed log.
//!
//! These are the checksum beside the commit, the hint to the newest checkpoint, the checkpoint against the commits before it,
//! and, if asked for, the sizes of data files. A difference is a [`Finding`]; an error is a log that cannot
//! be read or a store that fails.
//!
//! Invariant: nothing is written, and no data file is opened; files cost one HEAD each, a bounded number at once.
//! Proved by `tests/python/test_log.py`.
//!
//! PROTOCOL.md: "Version Checksum File", "Last Checkpoint File Schema", "Checkpoints".

use std::collections::BTreeMap;

use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::json::Wanted;
use deltic_protocol::check::{Files, State, Totals, VersionRecord, checksum_differences, file_differences};
use deltic_protocol::deletion_vector::{self, Source};
use deltic_protocol::log::crc::{VersionChecksum, all_files};
use deltic_protocol::log::name::{LogName, checksum_name};
use deltic_protocol::log::segment::{LogFile, Segment};
use deltic_protocol::replay::canonical_path;
use deltic_protocol::replay::paths::Fingerprints;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result, vanished};
use crate::log::{LogSource, log_file_path, parse_file};
use crate::snapshot::Snapshot;
use crate::vector_file::VectorFile;
use deltic_store::{FileMeta, decode_path};

mod checkpoints;

/// Files asked for at once.
const CONCURRENT_HEADS: usize = 64;
/// Most findings of one kind; further ones are only counted.
const MAX_FINDINGS_OF_KIND: usize = 100;

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The version's checksum.
    Checksum,
    /// `_last_checkpoint`.
    LastCheckpoint,
    /// A checkpoint.
    Checkpoint,
    /// A live data file.
    DataFile,
    /// The deletion vector of a live data file.
    DeletionVector,
    /// Commits that are missing or torn; only a repair finds them.
    Log,
}

impl FindingKind {
    /// Its name, as Python has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::LastCheckpoint => "last_checkpoint",
            Self::Checkpoint => "checkpoint",
            Self::DataFile => "data_file",
            Self::DeletionVector => "deletion_vector",
            Self::Log => "log",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// What differs, for a person.
    pub message: String,
    /// The file, relative to the table or absolute.
    pub path: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The version.
    pub version: u64,
    /// In the order of their kinds; empty if there is no difference.
    pub findings: Vec<Finding>,
}

/// Checks `version`, or the newest one; its data files too if `files`.
///
/// # Errors
/// Those of [`Snapshot::open`], and `Storage` if the store fails. Differences are none.
pub async fn check(log: &LogSource, version: Option<u64>, files: bool) -> Result<Check> {
    let in_table = |e: Error| e.in_table(log.location());
    let listing = log.list(0).await.map_err(in_table)?;
    let mut segment = Segment::choose(&listing, version, true).map_err(in_table)?;
    let version = segment.version;
    // The state is to come from the log alone.
    segment.checksum = None;
    let snapshot = Snapshot::load_segment(log, segment).await?;
    let mut checker = Checker { log, listing, snapshot, findings: Findings::default() };
    let checked = async {
        checker.live_files(files).await?;
        checker.hint().await?;
        checker.incomplete();
        checker.checkpoint().await
    };
    checked.await.map_err(|e| in_table(vanished(e)).at_version(version))?;
    Ok(Check { version, findings: checker.findings.finish() })
}

/// The differences of a version from its checksum, the hint, and checkpoints.
///
/// # Errors
/// Those of reading the log.
pub(crate) async fn log_findings(snapshot: &Snapshot, listing: Vec<LogFile>) -> Result<Vec<Finding>> {
    let (log, snapshot) = (snapshot.log(), snapshot.clone());
    let mut checker = Checker { log, listing, snapshot, findings: Findings::default() };
    checker.live_files(false).await?;
    checker.hint().await?;
    checker.incomplete();
    Ok(checker.findings.finish())
}

struct Checker<'a> {
    log: &'a LogSource,
    listing: Vec<LogFile>,
    snapshot: Snapshot,
    findings: Findings,
}

impl Checker<'_> {
    /// Compares the checksum with the live files and the other state, and the files with the store.
    async fn live_files(&mut self, ask_store: bool) -> Result<()> {
        let checksum = self.checksum().await?;
        let bins = checksum.as_ref().and_then(|(c, _)| c.file_size_histogram.as_ref());
        let mut totals = Totals::new(bins.map_or(&[], |histogram| &histogram.sorted_bin_boundaries));
        let listed = checksum.as_ref().and_then(|(_, bytes)| self.listed_files(bytes));
        let mut live = Files::default();
        let (mut vectors, mut named) = (BTreeMap::new(), Fingerprints::default());
        if checksum.is_some() || ask_store || self.snapshot.segment().checkpoint.is_some() {
            let mut batches = Box::pin(self.snapshot.live_files(&identity()).await?);
            while let Some(batch) = batches.try_next().await? {
                totals.take(&batch)?;
                self.doubled(&batch, &mut named)?;
                if listed.is_some() {
                    live.take(&batch)?;
                }
                if ask_store {
                    self.data_files(&batch).await?;
                    self.vectors(&batch, &mut vectors)?;
                }
            }
        }
        if let Some((checksum, _)) = &checksum {
            let commit = match self.snapshot.segment().latest_commit() {
                Some(file) => {
                    let bytes = self.log.read(&file.file_name).await?;
                    parse_file(file, &bytes, Wanted::NoFiles)?.commit_info
                }
                None => None,
            };
            let state = state_of(&self.snapshot).await?;
            for sentence in checksum_differences(checksum, &state, &totals, commit.as_ref()) {
                self.about_checksum(sentence);
            }
        }
        if let Some(listed) = &listed {
            let listed = VersionRecord { name: "allFiles of the checksum", content: listed };
            for (path, sentence) in file_differences(listed, VersionRecord { name: "the log", content: &live }) {
                self.findings.add(FindingKind::Checksum, sentence, Some(path));
            }
        }
        self.vector_files(vectors).await
    }

    /// Finds files that a checkpoint names twice. (In commits the newest action counts.)
    fn doubled(&mut self, files: &AddBatch, named: &mut Fingerprints) -> Result<()> {
        for row in 0..files.len() {
            let path = files.path().value(row);
            let vector = files.deletion_vector(row)?.map(|vector| vector.unique_id());
            if !named.insert(&(canonical_path(path).as_ref(), vector)) {
                let message = "the checkpoint names the file twice, so its rows are read twice".to_owned();
                self.findings.add(FindingKind::Checkpoint, message, Some(path.to_owned()));
            }
        }
        Ok(())
    }

    /// The checksum of this version itself, and its bytes.
    async fn checksum(&mut self) -> Result<Option<(VersionChecksum, bytes::Bytes)>> {
        let name = LogName::Checksum { version: self.snapshot.version() };
        let Some(file) = self.listing.iter().find(|file| file.name == name) else { return Ok(None) };
        let bytes = self.log.read(&file.file_name).await?;
        match VersionChecksum::parse_old(&bytes, self.snapshot.metadata(), self.snapshot.protocol()) {
            Ok(checksum) => Ok(Some((checksum, bytes))),
            Err(e) => {
                self.about_checksum(e.to_string());
                Ok(None)
            }
        }
    }

    fn listed_files(&mut self, bytes: &[u8]) -> Option<Files> {
        match all_files(bytes) {
            Ok(listed) => listed.map(|listed| {
                let mut files = Files::default();
                files.take_list(&listed);
                files
            }),
            Err(e) => {
                self.about_checksum(e.to_string());
                None
            }
        }
    }

    fn about_checksum(&mut self, message: String) {
        let path = log_file_path(&checksum_name(self.snapshot.version()));
        self.findings.add(FindingKind::Checksum, message, Some(path));
    }

    /// Checks whether the data files exist, with their sizes.
    async fn data_files(&mut self, files: &AddBatch) -> Result<()> {
        let (storage, sizes) = (self.log.storage(), files.size());
        let ask = |row: usize| {
            let path = files.path().value(row).to_owned();
            let size = sizes.map(|sizes| sizes.value(row)).and_then(|size| u64::try_from(size).ok());
            async move {
                let found = match decode_path(&path) {
                    Ok(literal) => storage.head(&literal).await,
                    Err(e) => Err(e),
                };
                (path, size, found)
            }
        };
        let mut answers = stream::iter(0..files.len()).map(ask).buffered(CONCURRENT_HEADS);
        let mut found = Vec::new();
        while let Some((path, size, answer)) = answers.next().await {
            match difference(answer)? {
                Ok(actual) if Some(actual) == size => {}
                Ok(actual) => {
                    let expected = size.map_or("an impossible number of".to_owned(), |size| size.to_string());
                    found.push((format!("the file has {actual} bytes, the log says {expected}"), path));
                }
                Err(message) => found.push((message, path)),
            }
        }
        for (message, path) in found {
            self.findings.add(FindingKind::DataFile, message, Some(path));
        }
        Ok(())
    }

    /// Checks inline deletion vectors, and collects how long the files of the others must be.
    fn vectors(&mut self, files: &AddBatch, needed: &mut BTreeMap<String, u64>) -> Result<()> {
        for row in 0..files.len() {
            let Some(descriptor) = files.deletion_vector(row)? else { continue };
            let source = deletion_vector::source(&descriptor).and_then(|source| match source {
                Source::Inline(bytes) => deletion_vector::parse_inline(&bytes, &descriptor).map(|_| None),
                Source::File { .. } => VectorFile::of(&descriptor),
            });
            match source {
                Ok(Some(VectorFile { path, end })) => {
                    let length = needed.entry(path).or_default();
                    *length = end.max(*length);
                }
                Ok(None) => {}
                Err(e) => {
                    let path = files.path().value(row).to_owned();
                    self.findings.add(FindingKind::DeletionVector, e.to_string(), Some(path));
                }
            }
        }
        Ok(())
    }

    /// Checks whether the files of deletion vectors exist and are long enough.
    async fn vector_files(&mut self, needed: BTreeMap<String, u64>) -> Result<()> {
        let storage = self.log.storage();
        let ask = |(path, end): (String, u64)| async move {
            let found = storage.head(&path).await;
            (path, end, found)
        };
        let answers: Vec<_> = stream::iter(needed).map(ask).buffered(CONCURRENT_HEADS).collect().await;
        for (path, end, answer) in answers {
            match difference(answer)? {
                Ok(actual) if actual >= end => {}
                Ok(actual) => {
                    let message = format!("the file has {actual} bytes, the log's deletion vectors need {end}");
                    self.findings.add(FindingKind::DeletionVector, message, Some(path));
                }
                Err(message) => self.findings.add(FindingKind::DeletionVector, message, Some(path)),
            }
        }
        Ok(())
    }
}

/// A file's size, or how it is missing; a store that fails is an error.
fn difference(answer: Result<FileMeta>) -> Result<std::result::Result<u64, String>> {
    match answer {
        Ok(meta) => Ok(Ok(meta.size)),
        Err(e) if e.is_not_found() => Ok(Err("the file is not there".to_owned())),
        Err(e) if matches!(e.kind(), Kind::Storage { .. } | Kind::Internal) => Err(e),
        Err(e) => Ok(Err(e.message().to_owned())),
    }
}

pub(crate) fn identity() -> AddColumns {
    AddColumns { members: vec!["path", "size", "deletionVector"], ..AddColumns::default() }
}

pub(crate) async fn state_of(snapshot: &Snapshot) -> Result<State> {
    Ok(State {
        protocol: snapshot.protocol().clone(),
        metadata: snapshot.metadata().clone(),
        txns: snapshot.txns().await?,
        domains: snapshot.domains().await?,
    })
}

async fn files_of(snapshot: &Snapshot) -> Result<Files> {
    let mut files = Files::default();
    let mut batches = Box::pin(snapshot.live_files(&identity()).await?);
    while let Some(batch) = batches.try_next().await? {
        files.take(&batch)?;
    }
    Ok(files)
}

/// Findings by kind, as many as a person would read.
#[derive(Default)]
struct Findings(BTreeMap<FindingKind, (Vec<Finding>, usize)>);

impl Findings {
    fn add(&mut self, kind: FindingKind, message: String, path: Option<String>) {
        let (kept, more) = self.0.entry(kind).or_default();
        if kept.len() < MAX_FINDINGS_OF_KIND {
            kept.push(Finding { kind, message, path });
        } else {
            *more += 1;
        }
    }

    fn finish(self) -> Vec<Finding> {
        let mut all = Vec::new();
        for (kind, (kept, more)) in self.0 {
            all.extend(kept);
            if more > 0 {
                all.push(Finding { kind, message: format!("{more} more findings of this kind"), path: None });
            }
        }
        all
    }
}
