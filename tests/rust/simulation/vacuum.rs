//! Vacuums together with readers and writers. The real code of vacuums decides which files are kept; the steps (read,
//! write VACUUM START, read again, list the log once more, list the files, delete) are in the order of a real vacuum.

use std::collections::BTreeSet;
use std::sync::Arc;

use deltic_protocol::action::CommitInfo;
use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::deletion_vector::DeletionVectorPath;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::replay::Replay;
use deltic_protocol::replay::retention::{Needed, Retention};
use deltic_table::transaction::RetryPolicy;

use crate::Fault;
use crate::client::Client;
use crate::operation::Operation;
use crate::process::{Script, commit};
use crate::store::{Answer, GoesBy, Request};
use crate::table::{Known, State};
use crate::view::{Memory, Parsed, View};

/// Vacuums twice, whenever.
pub(crate) async fn vacuum(mut client: Client, script: Script, retention_ms: i64) {
    let mut memory = Memory::default();
    for _ in 0..2 {
        client.pause(2 * retention_ms as usize);
        if sweep(&mut client, &mut memory, &script, retention_ms).await.is_some() {
            client.world().store.count("vacuums that came to their end");
        }
    }
}

/// One vacuum. Whatever fails ends it.
async fn sweep(client: &mut Client, memory: &mut Memory, script: &Script, retention_ms: i64) -> Option<()> {
    let view = memory.look(client, None).await.ok()??;
    let cutoff_ms = client.now_ms() - retention_ms;
    tell(client, script, &view, "VACUUM START").await?;
    let view = memory.look(client, None).await.ok()??;
    let tail = tail(memory)?;
    let retention = Retention { cutoff_ms, current: current(&tail, cutoff_ms), newest: view.version };
    let mut kept = Kept { files: BTreeSet::new(), fault: client.fault };
    client.sound(|_| kept.add_table(&tail, retention)).ok()?;
    let Answer::List(listing) = client.ask(Request::List).await else { panic!("not what was asked") };
    let listing = listing.ok()?;
    // A listing that is older than the one before is none of a store that vacuums are made for: it would hide which files
    // were removed by commits whose tombstones are older than they are.
    if listing.last().is_none_or(|newest| newest.name.version() < view.version) {
        return None;
    }
    let (mut seen, mut next) = (view.version, retention.first_commit());
    for file in listing.into_iter().filter(|file| file.name.version() >= retention.first_commit()) {
        let version = file.name.version();
        // A listing with a hole is made again by who really lists.
        if version != next {
            return None;
        }
        next += 1;
        let parsed = match memory.commits.get(&version) {
            Some((_, parsed)) => parsed.clone(),
            None => {
                let lines = client.fetch(version).await.ok()??;
                client.sound(|world| world.parsed(&file, &lines)).ok()?
            }
        };
        seen = seen.max(version);
        client.sound(|_| kept.add_commit(version, &parsed, retention)).ok()?;
    }
    let Answer::Files(files) = client.ask(Request::ListFiles).await else { panic!("not what was asked") };
    for (path, modified_ms) in files.ok()? {
        let is_expired = retention.is_expired(modified_ms) || client.fault == Fault::VacuumForgetsWriters;
        if is_expired && !kept.files.contains(&path) {
            client.ask(Request::Discard { path, goes_by: GoesBy { cutoff_ms, seen } }).await;
        }
    }
    tell(client, script, &view, "VACUUM END").await
}

/// Tells the history of it.
async fn tell(client: &mut Client, script: &Script, view: &View, what: &'static str) -> Option<()> {
    let nothing = (&State::default(), &Known::new());
    let ended = commit(client, script, (Operation::Vacuum(what), None), nothing, Some(view.base())).await;
    ended.committed.map(drop)
}

/// The commits of the last look.
fn tail(memory: &Memory) -> Option<Vec<(LogFile, Arc<Parsed>)>> {
    let tail = &memory.segment.as_ref()?.tail;
    tail.iter().map(|file| memory.commits.get(&file.name.version()).cloned()).collect()
}

/// The version that was current at a time: its commit's own, or that of its file, each later than the one before.
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

/// Files that stay.
struct Kept {
    files: BTreeSet<String>,
    fault: Fault,
}

impl Kept {
    /// The live files of a version, and its young tombstones.
    fn add_table(&mut self, tail: &[(LogFile, Arc<Parsed>)], retention: Retention) -> Result<()> {
        let mut replay = Replay::new();
        for (_, parsed) in tail.iter().rev() {
            let commit = &parsed.commit;
            let live = commit.adds.filter(replay.remember(&parsed.adds))?;
            retention.files(&live, &mut |needed| self.add(needed))?;
            let gone = AddBatch::new(Origin::Commit(retention.newest), commit.remove_rows.clone())?;
            let gone = gone.filter(replay.remember(&commit.removes))?;
            if self.fault != Fault::VacuumForgetsVersions && !gone.is_empty() {
                let times =
                    gone.int64("deletionTimestamp").ok_or_else(|| Error::internal("tombstones have no times"))?;
                let after_ms = retention.tombstones_after_ms();
                let is_young = times.iter().map(|time| time.is_some_and(|time| time > after_ms)).collect();
                retention.files(&gone.filter(is_young)?, &mut |needed| self.add(needed))?;
            }
        }
        Ok(())
    }

    fn add_commit(&mut self, version: u64, parsed: &Parsed, retention: Retention) -> Result<()> {
        if self.fault == Fault::VacuumForgetsVersions {
            return Ok(());
        }
        let commit = &parsed.commit;
        let removes = AddBatch::new(Origin::Commit(version), commit.remove_rows.clone())?;
        retention.commit(version, (&commit.adds, &removes), &commit.cdc, &mut |needed| self.add(needed))
    }

    fn add(&mut self, needed: Needed<'_>) -> Result<()> {
        match needed {
            Needed::Vectors(_) if self.fault == Fault::VacuumForgetsVectors => {}
            Needed::Data(path) => drop(self.files.insert(path.to_owned())),
            Needed::Vectors(DeletionVectorPath::Relative(path)) => drop(self.files.insert(path)),
            Needed::Vectors(path) => return Err(Error::internal(format!("nobody stores vectors at {path:?}"))),
        }
        Ok(())
    }
}
