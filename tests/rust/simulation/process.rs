//! Writers and readers. A writer reads the table, prepares an operation on that version, and runs the real
//! [`deltic_table::commit::commit`].

use std::collections::BTreeSet;

use deltic_protocol::action::CommitInfo;
use deltic_protocol::commit::{Actions, Committed, Conflict, Failed, Pending, PreparedCommit, ReadSet, TableState};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::property::IsolationLevel;
use deltic_protocol::replay::logical::LogicalFiles;
use deltic_table::commit::{RetryPolicy, try_commit};
use serde_json::Map;

use crate::Fault;
use crate::client::{Client, MAX_SKEW_MS, World};
use crate::operation::{Operation, files_of, restore};
use crate::referee::{Outcome, TransactionStart};
use crate::store::{Answer, Request};
use crate::table::{AddsByPath, Author, Design, Prepared, State};
use crate::view::{LogCache, View, vector_file};
use deltic_store::Syncing;

/// The operations of a writer, and their settings.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) operations: Vec<Operation>,
    pub(crate) design: Design,
    pub(crate) isolation: Isolation,
}

/// The isolation level of the writers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Isolation(pub(crate) IsolationLevel);

impl Isolation {
    /// A restore is always serializable: it would undo concurrent commits.
    fn of(self, operation: &Operation) -> IsolationLevel {
        if matches!(operation, Operation::Restore(_)) { IsolationLevel::Serializable } else { self.0 }
    }
}

#[derive(Default)]
pub(crate) struct TransactionResult {
    pub(crate) committed: Option<Committed>,
    conflict: Option<Conflict>,
}

impl TransactionResult {
    /// Whether winners removed files that it needs, or deleted rows of them.
    fn lost_rows_or_files(&self) -> bool {
        matches!(self.conflict, Some(Conflict::ConcurrentDeleteRead | Conflict::ConcurrentDeleteDelete))
    }
}

/// Runs the operations of a writer.
pub(crate) async fn write(mut client: Client, script: Script) {
    let mut cache = LogCache::default();
    let mut last: Option<Committed> = None;
    for operation in &script.operations {
        let append = {
            let mut world = client.world();
            (last.is_some() && world.random.chance(400)).then(|| Operation::append(&mut world.random))
        };
        // After a commit, an append may use the handle state and read nothing.
        if let (Some(append), Some(Committed { state, .. })) = (append, last.take()) {
            let nothing = (&State::default(), &AddsByPath::new());
            last = commit(&mut client, &script, (append, None), nothing, Some(state)).await.committed;
            continue;
        }
        let Some(view) = cache.read_with_retries(&client).await else { continue };
        let Some(view) = view else {
            let create = Operation::Create(vec![('a', 1), ('b', 4), ('a', 5)]);
            let nothing = (&State::default(), &AddsByPath::new());
            last = commit(&mut client, &script, (create, None), nothing, None).await.committed;
            continue;
        };
        let restored = match operation {
            Operation::Restore(back) => match prepare_restore(&client, &mut cache, &view, *back).await {
                Some(restored) => Some(restored),
                None => continue,
            },
            _ => None,
        };
        let (on, base) = ((&view.contents.state, &view.files), Some(view.base()));
        let ended = commit(&mut client, &script, (operation.clone(), restored), on, base).await;
        let ended = match operation {
            Operation::Compact(None) if ended.lost_rows_or_files() => {
                compact_untouched_bins(&mut client, &mut cache, &script, &view, ended).await
            }
            _ => ended,
        };
        last = ended.committed;
    }
}

/// Prepares a restore of an older version, if it is allowed and the store has all files.
async fn prepare_restore(client: &Client, cache: &mut LogCache, view: &View, back: u64) -> Option<Prepared> {
    let version = view.version.checked_sub(back)?;
    let old = cache.read(client, Some(version)).await.ok()??;
    let prepared = client.must_succeed(|_| restore(view, &old)).ok()??;
    if client.world().retention_ms.is_some() {
        for (path, (add, _)) in &prepared.returned {
            for path in [Some(path.clone()), add.deletion_vector.as_ref().and_then(vector_file)].into_iter().flatten() {
                match client.send(Request::Open { path }).await {
                    Answer::Opened(Ok(true)) => {}
                    Answer::Opened(Ok(false)) => {
                        client.world().store.count("restores that a missing file stopped");
                        return None;
                    }
                    _ => return None,
                }
            }
        }
    }
    Some(prepared)
}

/// Commits the bins that winners did not touch, on the version whose files were chosen. It models the loop of OPTIMIZE,
/// which needs a real store.
async fn compact_untouched_bins(
    client: &mut Client,
    cache: &mut LogCache,
    script: &Script,
    view: &View,
    mut ended: TransactionResult,
) -> TransactionResult {
    let on = &view.contents.state;
    let mut bins = ['a', 'b'].map(|p| files_of(on, p)).to_vec();
    while ended.lost_rows_or_files() {
        let Some(Some(newest)) = cache.read_with_retries(client).await else { break };
        let mut live = LogicalFiles::default();
        newest.files.values().for_each(|add| {
            live.insert(&add.path, add.deletion_vector.as_ref());
        });
        let before = bins.len();
        bins.retain(|bin| {
            bin.iter()
                .all(|path| live.contains(path, view.files.get(path).and_then(|add| add.deletion_vector.as_ref())))
        });
        if bins.len() == before || bins.iter().all(BTreeSet::is_empty) {
            break;
        }
        client.world().store.count("compactions that left files out");
        let rest = (Operation::Compact(Some(bins.clone())), None);
        ended = commit(client, script, rest, (on, &view.files), Some(view.base())).await;
    }
    ended
}

/// Commits an operation. A restore is prepared already.
pub(crate) async fn commit(
    client: &mut Client,
    script: &Script,
    (operation, restored): (Operation, Option<Prepared>),
    (on, files): (&State, &AddsByPath),
    base: Option<TableState>,
) -> TransactionResult {
    let Some((prepared_commit, own_files)) = begin(client, script, (operation, restored), (on, files), base) else {
        return TransactionResult::default();
    };
    let first = prepared_commit.pending.version();
    let has_marks = !prepared_commit.pending.marked.is_empty();
    let result = try_commit(prepared_commit, &*client, &*client, &mut Syncing::default(), &*client).await;
    // No commit names the data files of a failed commit, nor the deletion vectors of any attempt but the last.
    let mut unnamed = client.world().new_vector_files.remove(&client.process).unwrap_or_default();
    match &result {
        Ok(_) => drop(unnamed.pop()),
        Err(Failed::NotWritten(_)) => unnamed.extend(own_files),
        Err(Failed::Unknown(_)) => unnamed.clear(),
    }
    let result = result.map_err(Error::from);
    let (outcome, what) = match &result {
        Ok(committed) => (Outcome::Committed(committed.version), "commits that were acknowledged"),
        Err(e) if e.message().contains("outcome of the commit is unknown") => {
            (find_commit(client, first).await, "commits with an unknown outcome")
        }
        Err(e) => (Outcome::NotCommitted, failed(e)),
    };
    let mut world = client.world();
    let (process, transaction) = (client.process, client.transaction);
    world.store.record(|| format!("process {process} ends transaction {transaction}: {outcome:?} ({what})"));
    world.store.count(what);
    if let Ok(committed) = &result
        && committed.attempts > 1
    {
        world.store.count("commits that took several attempts");
        if has_marks {
            world.store.count("commits with deletion vectors that took several attempts");
        }
    }
    let is_slow = world
        .retention_ms
        .is_some_and(|retention| world.store.now_ms() - world.referee.began_ms(transaction) > retention - MAX_SKEW_MS);
    match &result {
        Err(e) if e.is_not_found() && is_slow => world.store.count("commits that a vacuum overtook"),
        Err(e) if what.is_empty() => {
            let what = format!("transaction {transaction}: {e:?}");
            world.referee.report(what);
        }
        _ => {}
    }
    world.referee.finish(transaction, outcome);
    world.roll_back(unnamed);
    if let Ok(committed) = &result {
        let World { referee, store, .. } = &mut *world;
        referee.check_acknowledged(committed, first, store.log.get(&committed.version).map(|(lines, _)| lines));
    }
    let conflict = match result.as_ref().err().map(Error::kind) {
        Some(Kind::Conflict(conflict)) => Some(*conflict),
        _ => None,
    };
    TransactionResult { committed: result.ok(), conflict }
}

/// Prepares a commit and writes its data files; `None` if there is nothing to do.
fn begin(
    client: &mut Client,
    script: &Script,
    (operation, restored): (Operation, Option<Prepared>),
    (on, files): (&State, &AddsByPath),
    base: Option<TableState>,
) -> Option<(PreparedCommit, Vec<String>)> {
    let now_ms = client.now_ms();
    let (design, isolation) = (script.design, script.isolation.of(&operation));
    let mut world = client.world();
    let transaction = world.referee.next_transaction();
    let prepared = match restored {
        Some(restored) => restored,
        None => operation.prepare(on, Author { transaction, design })?,
    };
    let omit_bounds = world.random.chance(150);
    let table = base.as_ref().map(|state| (&state.protocol, &state.metadata));
    let actions = prepared.actions(table, files, (design, omit_bounds), now_ms);
    let read = match (client.fault, &operation) {
        (Fault::RestoreReadsNothing, Operation::Restore(_)) => ReadSet::Nothing,
        (Fault::MergeOmitsMatchedFiles, Operation::Merge(..)) => prepared.read.clone(),
        _ => prepared.read_set(),
    };
    let marked = prepared.marked_files(on, files);
    let marked_rows = marked.iter().map(|file| (file.add.path.clone(), file.rows.clone())).collect();
    let version = base.as_ref().map(|state| state.version);
    let process = client.process;
    world.store.record(|| format!("process {process} begins transaction {transaction} on {version:?}: {operation:?}"));
    world.cancelled.remove(&process);
    world.new_vector_files.remove(&process);
    let own_files: Vec<String> = prepared.added.keys().cloned().collect();
    own_files.iter().for_each(|path| world.store.put_file(path, Vec::new()));
    let (rearranges, name) = (prepared.rearranges, prepared.operation_name.unwrap_or("WRITE"));
    let start = TransactionStart { base: version, isolation, began_ms: world.store.now_ms() };
    world.referee.begin(operation, prepared, start);
    drop(world);
    let actions = Actions::of(actions).unwrap();
    let pending = Pending { state: base, read, read_apps: BTreeSet::new(), isolation, actions, marked };
    (client.transaction, client.marked_rows, client.rearranges) = (transaction, marked_rows, rearranges);
    let prepared_commit = PreparedCommit {
        pending,
        operation: name.to_owned(),
        parameters: Map::new(),
        metrics: Map::new(),
        user_metadata: None,
        info: Map::new(),
        txn_id: txn_id(transaction),
    };
    Some((prepared_commit, own_files))
}

fn txn_id(transaction: usize) -> String {
    format!("transaction-{transaction}")
}

/// Searches the log for a transaction with an unknown outcome, as the error advises. It did not land if another commit has
/// the version that it tried last.
async fn find_commit(client: &Client, first: u64) -> Outcome {
    for version in first.. {
        let Ok(Some(lines)) = client.fetch(version).await else { break };
        let file = LogFile::parse(&deltic_protocol::log::name::commit_name(version), lines.len() as u64, 0);
        let parsed = file.and_then(|file| client.world().parsed(&file, &lines).ok());
        let info = parsed.as_ref().and_then(|parsed| parsed.commit.commit_info.as_ref());
        if info.and_then(CommitInfo::txn_id) == Some(txn_id(client.transaction).as_str()) {
            return Outcome::Committed(version);
        }
        if client.world().last_attempt[&client.process] == version {
            return Outcome::NotCommitted;
        }
    }
    Outcome::Unknown
}

/// The count of an error; empty if the error must not occur.
fn failed(error: &Error) -> &'static str {
    use deltic_protocol::commit::Conflict;
    match error.kind() {
        Kind::Conflict(Conflict::ConcurrentAppend) => "conflicts: ConcurrentAppend",
        Kind::Conflict(Conflict::ConcurrentDeleteRead) => "conflicts: ConcurrentDeleteRead",
        Kind::Conflict(Conflict::ConcurrentDeleteDelete) => "conflicts: ConcurrentDeleteDelete",
        Kind::Conflict(Conflict::MetadataChanged) => "conflicts: MetadataChanged",
        Kind::Conflict(Conflict::ProtocolChanged) => "conflicts: ProtocolChanged",
        Kind::Conflict(Conflict::ConcurrentTransaction) => "conflicts: ConcurrentTransaction",
        Kind::Storage { .. } | Kind::Interrupted => "commits that were given up",
        _ => "",
    }
}

/// Reads the newest or an older version of the table a few times. If there is a vacuum, opens all files of the version
/// after a delay.
pub(crate) async fn read(client: Client, reads: usize) {
    let mut cache = LogCache::default();
    let mut newest = None;
    for _ in 0..reads {
        let (target, retention_ms) = {
            let mut world = client.world();
            let target = newest
                .filter(|_| world.random.chance(300))
                .map(|newest: u64| world.random.below(newest as usize + 1) as u64);
            (target, world.retention_ms)
        };
        let Ok(Some(view)) = cache.read(&client, target).await else { continue };
        newest = newest.max(Some(view.version));
        client.world().store.count("reads of a version");
        let Some(retention_ms) = retention_ms else { continue };
        client.pause(retention_ms as usize);
        for path in view.stored() {
            let opened = client.send(Request::Open { path: path.clone() }).await;
            let mut world = client.world();
            let now_ms = world.store.now_ms();
            match opened {
                Answer::Opened(Ok(false)) => {
                    let protected_ms = now_ms + MAX_SKEW_MS - retention_ms;
                    let what = world.referee.file_missing(view.version, &path, protected_ms);
                    world.store.count(what);
                }
                Answer::Opened(Ok(true)) if world.referee.newest() > Some(view.version) => {
                    world.store.count("files of older versions that were read during a vacuum");
                }
                _ => {}
            }
        }
    }
}
