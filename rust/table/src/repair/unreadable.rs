//! Versions at the end of a log that nobody can read, because a commit is missing or damaged and no later checkpoint replaces it.
//!
//! Their files are moved to a folder of the log that no reader looks into. The newest version that can be read is then the newest
//! one of the table.
//!
//! Invariants: a version that can be read keeps its files; a moved file is deleted only after it was copied. While the files are
//! moved, no reader sees another version: they are deleted from the newest to the oldest. Proved by
//! `tests/python/test_repair_log.py`.

use std::collections::BTreeSet;

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::log::name::{LOG_DIR, LogName, commit_name};
use deltic_protocol::log::segment::{LogFile, checkpoints};

use super::log_repair::{LogRepair, is_damage};
use super::steps::Repaired;
use crate::check::FindingKind;
use crate::error::{Error, Result};
use crate::log::{LogSource, log_file_path};
use deltic_store::Storage;

/// The folder of the log for files of versions that cannot be read.
const FOLDER: &str = "_unreadable";

/// The files of versions that cannot be read.
pub(super) struct UnreadableVersions {
    /// The newest version that can be read.
    newest_readable: u64,
    /// The files, ascending by version.
    files: Vec<LogFile>,
    /// Why the version after it cannot be read.
    why: String,
}

impl UnreadableVersions {
    /// The versions of `listing` after the newest one that can be read, and the repair of the log up to that one.
    ///
    /// # Errors
    /// `damage` if no version can be read; those of the store.
    pub(super) async fn find(storage: &Storage, listing: &[LogFile], damage: Error) -> Result<(Self, LogRepair)> {
        let bases = checkpoints(listing).into_keys().rev().map(Some).chain([None]);
        for base in bases {
            let (end, why) = readable_from(storage, listing, base).await?;
            let Some(newest_readable) = end else { continue };
            let is_readable = |file: &&LogFile| file.name.version() <= newest_readable;
            let readable: Vec<LogFile> = listing.iter().filter(is_readable).cloned().collect();
            match LogRepair::find(storage, &readable).await {
                Ok(log) => {
                    let mut files: Vec<LogFile> = listing.iter().filter(|file| !is_readable(file)).cloned().collect();
                    files.sort_by(|a, b| (a.name.version(), &a.file_name).cmp(&(b.name.version(), &b.file_name)));
                    return Ok((Self { newest_readable, files, why }, log));
                }
                Err(e) if is_damage(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Err(damage)
    }

    /// The part of a listing that stays.
    pub(super) fn readable(&self, listing: &[LogFile]) -> Vec<LogFile> {
        listing.iter().filter(|file| file.name.version() <= self.newest_readable).cloned().collect()
    }

    /// Adds the step that moves the files.
    pub(super) fn report(&self, storage: &Storage, done: &mut Repaired) -> Result<()> {
        let last = self.files.last().map_or(self.newest_readable, |file| file.name.version());
        let first = self.newest_readable.saturating_add(1);
        let message = format!(
            "{}, so that versions {first} to {last} cannot be read. If you have a copy of the file, restore it instead. The log \
             files of these versions are moved to `{LOG_DIR}/{FOLDER}`, and version {} is the newest one then",
            self.why, self.newest_readable
        );
        let paths = self.files.iter().map(|file| log_file_path(&file.file_name)).collect();
        done.push(FindingKind::Commit, message, paths);
        if storage.lock_table()?.is_some() {
            let why = "the table commits through DynamoDB, which would still have these versions";
            done.refuse_kinds(&[FindingKind::Commit], Err(Error::invalid(why)))?;
        }
        Ok(())
    }

    /// Moves the files.
    pub(super) async fn set_aside(&self, storage: &Storage) -> Result<()> {
        let aside = |file: &LogFile| format!("{LOG_DIR}/{FOLDER}/{}", file.file_name);
        for file in &self.files {
            storage.copy_from(storage, &log_file_path(&file.file_name), &aside(file), file.size).await?;
        }
        for file in self.files.iter().rev() {
            storage.delete(&log_file_path(&file.file_name)).await?;
        }
        Ok(())
    }
}

/// The last version that the commits after a checkpoint (or from version 0 on) reach without a gap, and why the next one cannot be
/// read; `None` if they reach none.
async fn readable_from(
    storage: &Storage,
    listing: &[LogFile],
    checkpoint: Option<u64>,
) -> Result<(Option<u64>, String)> {
    let commits = listing.iter().filter(|file| matches!(file.name, LogName::Commit { .. }));
    let commits: BTreeSet<u64> = commits.map(|file| file.name.version()).collect();
    let (source, mut reached) = (LogSource::of(storage), checkpoint);
    loop {
        let version = reached.map_or(0, |reached| reached.saturating_add(1));
        if !commits.contains(&version) {
            return Ok((reached, format!("the commit of version {version} is missing")));
        }
        let parsed = match source.read_commit(version).await {
            Ok(Some(lines)) => parse_commit(&lines, Origin::Commit(version), Wanted::All).map(drop),
            Ok(None) => Err(Error::not_found("the file is gone")),
            Err(e) => Err(e),
        };
        match parsed {
            Ok(()) => reached = Some(version),
            Err(e) if is_damage(&e) => {
                let why =
                    format!("the commit of version {version} (`{}`) is damaged: {}", commit_name(version), e.message());
                return Ok((reached, why));
            }
            Err(e) => return Err(e),
        }
    }
}
