//! Vacuums during reads and writes. The production code decides which files are kept. The steps around it are modelled, in
//! the order of VACUUM: read, commit VACUUM START, read again, list the log again, list the files, delete.

use std::collections::BTreeSet;
use std::sync::Arc;

use deltic_protocol::action::CommitInfo;
use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::deletion_vector::DeletionVectorPath;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::replay::Replay;
use deltic_protocol::replay::retention::{KeptFile, Retention, is_before_cutoff};
use deltic_table::commit::RetryPolicy;

use crate::Fault;
use crate::client::Client;
use crate::operation::Operation;
use crate::process::{Script, commit};
use crate::store::{Answer, Request, VacuumBasis};
use crate::table::{AddsByPath, State};
use crate::view::{LogCache, Parsed, View};

/// Vacuums twice, at random times.
pub(crate) async fn vacuum(mut client: Client, script: Script, retention_ms: i64) {
    let mut cache = LogCache::default();
    for _ in 0..2 {
        client.pause(2 * retention_ms as usize);
        if vacuum_once(&mut client, &mut cache, &script, retention_ms).await.is_some() {
            client.world().store.count("vacuums that finished");
        }
    }
}

/// One vacuum. `None` if a step failed, which ends it.
async fn vacuum_once(client: &mut Client, cache: &mut LogCache, script: &Script, retention_ms: i64) -> Option<()> {
    let view = cache.read(client, None).await.ok()??;
    let cutoff_ms = client.now_ms() - retention_ms;
    commit_to_history(client, script, &view, "VACUUM START").await?;
    let view = cache.read(client, None).await.ok()??;
    let tail = cached_tail(cache)?;
    let retention = Retention { cutoff_ms, current: current(&tail, cutoff_ms), newest: view.version };
    let mut kept = Kept { files: BTreeSet::new(), fault: client.fault };
    client.must_succeed(|_| kept.add_table(&tail, retention)).ok()?;
    let Answer::List(listing) = client.send(Request::List).await else { panic!("unexpected answer") };
    let listing = listing.ok()?;
    // VACUUM needs a store whose listings do not go back in time. An older listing would hide commits whose tombstones are
    // older than the commits.
    if listing.last().is_none_or(|newest| newest.name.version() < view.version) {
        return None;
    }
    let (mut newest_read, mut next) = (view.version, retention.first_commit());
    for file in listing.into_iter().filter(|file| file.name.version() >= retention.first_commit()) {
        let version = file.name.version();
        // A real vacuum would repeat a listing with a gap.
        if version != next {
            return None;
        }
        next += 1;
        let parsed = match cache.commits.get(&version) {
            Some((_, parsed)) => parsed.clone(),
            None => {
                let lines = client.fetch(version).await.ok()??;
                client.must_succeed(|world| world.parsed(&file, &lines)).ok()?
            }
        };
        newest_read = newest_read.max(version);
        client.must_succeed(|_| kept.add_commit(version, &parsed, retention)).ok()?;
    }
    let Answer::Files(files) = client.send(Request::ListFiles).await else { panic!("unexpected answer") };
    for (path, modified_ms) in files.ok()? {
        let is_expired =
            is_before_cutoff(modified_ms, retention.cutoff_ms) || client.fault == Fault::VacuumIgnoresFileAge;
        if is_expired && !kept.files.contains(&path) {
            client.send(Request::DeleteFile { path, basis: VacuumBasis { cutoff_ms, newest_read } }).await;
        }
    }
    commit_to_history(client, script, &view, "VACUUM END").await
}

/// Commits VACUUM START or VACUUM END.
async fn commit_to_history(client: &mut Client, script: &Script, view: &View, what: &'static str) -> Option<()> {
    let nothing = (&State::default(), &AddsByPath::new());
    let ended = commit(client, script, (Operation::Vacuum(what), None), nothing, Some(view.base())).await;
    ended.committed.map(drop)
}

/// The cached commits of the last read.
fn cached_tail(cache: &LogCache) -> Option<Vec<(LogFile, Arc<Parsed>)>> {
    let tail = &cache.segment.as_ref()?.tail;
    tail.iter().map(|file| cache.commits.get(&file.name.version()).cloned()).collect()
}

/// The version that was current at a time, by in-commit timestamps or else by modification times of the commits. These are
/// adjusted to increase.
fn current(tail: &[(LogFile, Arc<Parsed>)], time_ms: i64) -> Option<u64> {
    let mut last = i64::MIN;
    let mut current = None;
    for (file, parsed) in tail {
        let own = parsed.commit.commit_info.as_ref().and_then(CommitInfo::in_commit_timestamp);
        last = own.unwrap_or(file.modified_ms.max(last.saturating_add(1)));
        if last <= time_ms {
            current = Some(file.name.version());
        }
    }
    current
}

/// The files that the vacuum keeps.
struct Kept {
    files: BTreeSet<String>,
    fault: Fault,
}

impl Kept {
    /// Keeps the live files of a version, and the files of its unexpired tombstones.
    fn add_table(&mut self, tail: &[(LogFile, Arc<Parsed>)], retention: Retention) -> Result<()> {
        let mut replay = Replay::new();
        for (_, parsed) in tail.iter().rev() {
            let commit = &parsed.commit;
            let live = commit.adds.filter(replay.insert(&parsed.adds))?;
            retention.keep_files(&live, &mut |needed| self.add(needed))?;
            let gone = AddBatch::new(Origin::Commit(retention.newest), commit.remove_rows.clone())?;
            let gone = gone.filter(replay.insert(&commit.removes))?;
            if self.fault != Fault::VacuumIgnoresOldVersions && !gone.is_empty() {
                let times =
                    gone.int64("deletionTimestamp").ok_or_else(|| Error::internal("tombstones have no times"))?;
                let after_ms = retention.tombstones_after_ms();
                let is_young = times.iter().map(|time| time.is_some_and(|time| time > after_ms)).collect();
                retention.keep_files(&gone.filter(is_young)?, &mut |needed| self.add(needed))?;
            }
        }
        Ok(())
    }

    fn add_commit(&mut self, version: u64, parsed: &Parsed, retention: Retention) -> Result<()> {
        if self.fault == Fault::VacuumIgnoresOldVersions {
            return Ok(());
        }
        let commit = &parsed.commit;
        let removes = AddBatch::new(Origin::Commit(version), commit.remove_rows.clone())?;
        retention.keep_files_of_commit(version, &commit.adds, &removes, &commit.cdc, &mut |needed| self.add(needed))
    }

    fn add(&mut self, needed: KeptFile<'_>) -> Result<()> {
        match needed {
            KeptFile::Vectors(_) if self.fault == Fault::VacuumIgnoresVectors => {}
            KeptFile::Data(path) => drop(self.files.insert(path.to_owned())),
            KeptFile::Vectors(DeletionVectorPath::Relative(path)) => drop(self.files.insert(path)),
            KeptFile::Vectors(path) => return Err(Error::internal(format!("no vectors are stored at {path:?}"))),
        }
        Ok(())
    }
}
