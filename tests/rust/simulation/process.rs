//! Writers and readers. A writer reads the table, prepares an operation on that version, and runs the real
//! [`transaction::commit`].

use std::collections::BTreeSet;

use deltic_protocol::action::CommitInfo;
use deltic_protocol::commit::{Actions, Conflict, Pending, ReadSet, TableState};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::property::IsolationLevel;
use deltic_protocol::replay::logical::LogicalFiles;
use deltic_table::transaction::{self, Committed, Failed, PreparedCommit, RetryPolicy};
use serde_json::Map;

use crate::Fault;
use crate::client::{Client, MOST_SKEW_MS, World};
use crate::operation::{Operation, files_of, restore};
use crate::referee::{Beginning, Told};
use crate::store::{Answer, Request};
use crate::table::{Author, Design, Known, Prepared, State};
use crate::view::{Memory, View, vector_file};

/// What a writer is to do, and how.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) operations: Vec<Operation>,
    pub(crate) design: Design,
    pub(crate) isolation: Isolation,
}

/// The isolation that writers ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Isolation(pub(crate) IsolationLevel);

impl Isolation {
    /// Who goes back to an older version would undo unseen what others do.
    fn of(self, operation: &Operation) -> IsolationLevel {
        if matches!(operation, Operation::Restore(_)) { IsolationLevel::Serializable } else { self.0 }
    }
}

/// How a transaction ended.
#[derive(Default)]
pub(crate) struct TransactionEnd {
    pub(crate) committed: Option<Committed>,
    conflict: Option<Conflict>,
}

impl TransactionEnd {
    /// Whether others took files, or rows of them.
    fn took_rows(&self) -> bool {
        matches!(self.conflict, Some(Conflict::ConcurrentDeleteRead | Conflict::ConcurrentDeleteDelete))
    }
}

/// Does its operations one after the other.
pub(crate) async fn write(mut client: Client, script: Script) {
    let mut memory = Memory::default();
    let mut last: Option<Committed> = None;
    for operation in &script.operations {
        let append = {
            let mut world = client.world();
            (last.is_some() && world.random.chance(400)).then(|| Operation::append(&mut world.random))
        };
        // Who has just committed appends without looking.
        if let (Some(append), Some(Committed { state, .. })) = (append, last.take()) {
            let nothing = (&State::default(), &Known::new());
            last = commit(&mut client, &script, (append, None), nothing, Some(state)).await.committed;
            continue;
        }
        let Some(view) = memory.look_until_it_works(&client).await else { continue };
        let Some(view) = view else {
            let create = Operation::Create(vec![('a', 1), ('b', 4), ('a', 5)]);
            let nothing = (&State::default(), &Known::new());
            last = commit(&mut client, &script, (create, None), nothing, None).await.committed;
            continue;
        };
        let restored = match operation {
            Operation::Restore(back) => match go_back(&client, &mut memory, &view, *back).await {
                Some(restored) => Some(restored),
                None => continue,
            },
            _ => None,
        };
        let (on, base) = ((&view.seen.state, &view.files), Some(view.base()));
        let ended = commit(&mut client, &script, (operation.clone(), restored), on, base).await;
        let ended = match operation {
            Operation::Compact(None) if ended.took_rows() => {
                compact_the_rest(&mut client, &mut memory, &script, &view, ended).await
            }
            _ => ended,
        };
        last = ended.committed;
    }
}

/// What is to be done to go back so many versions, if that is possible and the store has all files.
async fn go_back(client: &Client, memory: &mut Memory, view: &View, back: u64) -> Option<Prepared> {
    let version = view.version.checked_sub(back)?;
    let old = memory.look(client, Some(version)).await.ok()??;
    let prepared = client.sound(|_| restore(view, &old)).ok()??;
    if client.world().retention_ms.is_some() {
        for (path, (add, _)) in &prepared.returned {
            for path in [Some(path.clone()), add.deletion_vector.as_ref().and_then(vector_file)].into_iter().flatten() {
                match client.ask(Request::Open { path }).await {
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

/// Others took files: the bins that they did not touch are committed, on the version whose files were chosen. As the
/// maintenance of tables does it, whose loop needs a store.
async fn compact_the_rest(
    client: &mut Client,
    memory: &mut Memory,
    script: &Script,
    view: &View,
    mut ended: TransactionEnd,
) -> TransactionEnd {
    let on = &view.seen.state;
    let mut bins = ['a', 'b'].map(|p| files_of(on, p)).to_vec();
    while ended.took_rows() {
        let Some(Some(newest)) = memory.look_until_it_works(client).await else { break };
        let mut live = LogicalFiles::default();
        newest.files.values().for_each(|add| live.insert(&add.path, add.deletion_vector.as_ref()));
        let before = bins.len();
        bins.retain(|bin| {
            bin.iter().all(|path| live.has(path, view.files.get(path).and_then(|add| add.deletion_vector.as_ref())))
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

/// Commits an operation. What going back to an older version does is prepared already.
pub(crate) async fn commit(
    client: &mut Client,
    script: &Script,
    (operation, restored): (Operation, Option<Prepared>),
    (on, files): (&State, &Known),
    base: Option<TableState>,
) -> TransactionEnd {
    let Some((transaction, own_files)) = begin(client, script, (operation, restored), (on, files), base) else {
        return TransactionEnd::default();
    };
    let first = transaction.pending.version();
    let marks = !transaction.pending.marked.is_empty();
    let outcome = transaction::try_commit(transaction, (&*client, &*client), &*client).await;
    // No commit names the files of one that is refused, nor vectors of attempts before the last.
    let mut unnamed = client.world().begun.remove(&client.process).unwrap_or_default();
    match &outcome {
        Ok(_) => drop(unnamed.pop()),
        Err(Failed::NotWritten(_)) => unnamed.extend(own_files),
        Err(Failed::Unknown(_)) => unnamed.clear(),
    }
    let outcome = outcome.map_err(Error::from);
    let (told, what) = match &outcome {
        Ok(committed) => (Told::Committed(committed.version), "commits that were acknowledged"),
        Err(e) if e.message().contains("outcome of the commit is unknown") => {
            (find(client, first).await, "commits of which nobody knew")
        }
        Err(e) => (Told::NotMade, failed(e)),
    };
    let mut world = client.world();
    let (process, born) = (client.process, client.born);
    world.store.say(|| format!("process {process} ends transaction {born}: {told:?} ({what})"));
    world.store.count(what);
    if let Ok(committed) = &outcome
        && committed.attempts > 1
    {
        world.store.count("commits that took several attempts");
        if marks {
            world.store.count("commits that took rows out and took several attempts");
        }
    }
    let is_slow = world
        .retention_ms
        .is_some_and(|retention| world.store.now_ms() - world.referee.began_ms(born) > retention - MOST_SKEW_MS);
    match &outcome {
        Err(e) if e.is_not_found() && is_slow => world.store.count("commits that a vacuum overtook"),
        Err(e) if what.is_empty() => {
            let what = format!("transaction {born}: {e:?}");
            world.referee.object(what);
        }
        _ => {}
    }
    world.referee.told(born, told);
    world.abandon(unnamed);
    if let Ok(committed) = &outcome {
        let World { referee, store, .. } = &mut *world;
        referee.acknowledged(committed, first, store.log.get(&committed.version).map(|(lines, _)| lines));
    }
    let conflict = match outcome.as_ref().err().map(Error::kind) {
        Some(Kind::Conflict(conflict)) => Some(*conflict),
        _ => None,
    };
    TransactionEnd { committed: outcome.ok(), conflict }
}

/// A transaction that is ready to be committed, and its data files; `None` if there is nothing to do.
fn begin(
    client: &mut Client,
    script: &Script,
    (operation, restored): (Operation, Option<Prepared>),
    (on, files): (&State, &Known),
    base: Option<TableState>,
) -> Option<(PreparedCommit, Vec<String>)> {
    let now_ms = client.now_ms();
    let (design, isolation) = (script.design, script.isolation.of(&operation));
    let mut world = client.world();
    let born = world.referee.born();
    let prepared = match restored {
        Some(restored) => restored,
        None => operation.prepare(on, Author { born, design })?,
    };
    let shy = world.random.chance(150);
    let table = base.as_ref().map(|state| (&state.protocol, &state.metadata));
    let actions = prepared.actions(table, files, (design, shy), now_ms);
    let read = match (client.fault, &operation) {
        (Fault::RestoreIsBlind, Operation::Restore(_)) => ReadSet::Nothing,
        (Fault::MatchesAreForgotten, Operation::Merge(..)) => prepared.read.clone(),
        _ => prepared.read_set(),
    };
    let marked = prepared.marked_files(on, files);
    let own = marked.iter().map(|file| (file.add.path.clone(), file.rows.clone())).collect();
    let version = base.as_ref().map(|state| state.version);
    let process = client.process;
    world.store.say(|| format!("process {process} begins transaction {born} on {version:?}: {operation:?}"));
    world.cancelled.remove(&process);
    world.begun.remove(&process);
    let own_files: Vec<String> = prepared.added.keys().cloned().collect();
    own_files.iter().for_each(|path| world.store.keep(path, Vec::new()));
    let (rearranges, name) = (prepared.rearranges, prepared.told.unwrap_or("WRITE"));
    let beginning = Beginning { base: version, isolation, began_ms: world.store.now_ms() };
    world.referee.prepared(operation, prepared, beginning);
    drop(world);
    let actions = Actions::of(actions).unwrap();
    let pending = Pending { state: base, read, read_apps: BTreeSet::new(), isolation, actions, marked };
    (client.born, client.own, client.rearranges) = (born, own, rearranges);
    let transaction = PreparedCommit {
        pending,
        operation: name.to_owned(),
        parameters: Map::new(),
        metrics: Map::new(),
        user_metadata: None,
        info: Map::new(),
        txn_id: txn_id(born),
    };
    Some((transaction, own_files))
}

fn txn_id(born: usize) -> String {
    format!("transaction-{born}")
}

/// Looks for a transaction of which nobody knows, as its error says to do. Another's commit at the version that was
/// tried last says that it was not made.
async fn find(client: &Client, first: u64) -> Told {
    for version in first.. {
        let Ok(Some(lines)) = client.fetch(version).await else { break };
        let file = LogFile::parse(&deltic_protocol::log::name::commit_name(version), lines.len() as u64, 0);
        let parsed = file.and_then(|file| client.world().parsed(&file, &lines).ok());
        let info = parsed.as_ref().and_then(|parsed| parsed.commit.commit_info.as_ref());
        if info.and_then(CommitInfo::txn_id) == Some(txn_id(client.born).as_str()) {
            return Told::Committed(version);
        }
        if client.world().tried[&client.process] == version {
            return Told::NotMade;
        }
    }
    Told::Unknown
}

/// What kind of failure an error is; nothing if it must not happen here.
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

/// Looks at the table a few times, at the newest version or one before. Beside a vacuum it reads all files, some time
/// later.
pub(crate) async fn read(client: Client, looks: usize) {
    let mut memory = Memory::default();
    let mut newest = None;
    for _ in 0..looks {
        let (target, retention_ms) = {
            let mut world = client.world();
            let target = newest
                .filter(|_| world.random.chance(300))
                .map(|newest: u64| world.random.below(newest as usize + 1) as u64);
            (target, world.retention_ms)
        };
        let Ok(Some(view)) = memory.look(&client, target).await else { continue };
        newest = newest.max(Some(view.version));
        client.world().store.count("reads of a version");
        let Some(retention_ms) = retention_ms else { continue };
        client.pause(retention_ms as usize);
        for path in view.stored() {
            let opened = client.ask(Request::Open { path: path.clone() }).await;
            let mut world = client.world();
            let now_ms = world.store.now_ms();
            match opened {
                Answer::Opened(Ok(false)) => {
                    let protected_ms = now_ms + MOST_SKEW_MS - retention_ms;
                    let what = world.referee.missed(view.version, &path, protected_ms);
                    world.store.count(what);
                }
                Answer::Opened(Ok(true)) if world.referee.newest() > Some(view.version) => {
                    world.store.count("files of older versions that were read beside a vacuum");
                }
                _ => {}
            }
        }
    }
}
