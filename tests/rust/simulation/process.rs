//! Writers and readers. A writer looks at the table, prepares an operation on what it saw, and runs the real
//! [`transaction::commit`]; its [`Committer`] sends every request through the simulated store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::lines::Lines;
use deltic_protocol::action::{CommitInfo, DeletionVectorDescriptor};
use deltic_protocol::commit::{Actions, Conflict, Pending, ReadSet, TableState};
use deltic_protocol::deletion_vector::{
    DeletionVector, DeletionVectorPath, Source, encode_path, parse_file_region, parse_inline, relative_path, source,
    to_file_bytes,
};
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::property::IsolationLevel;
use deltic_protocol::replay::logical::LogicalFiles;
use deltic_store::Put;
use deltic_table::committers::Committer;
use deltic_table::log::parse_file;
use deltic_table::transaction::{self, Committed, Failed, PreparedCommit, RetryPolicy, VectorFiles};
use futures::future::BoxFuture;
use serde_json::Map;

use crate::Fault;
use crate::operation::{Operation, files_of, restore};
use crate::random::Random;
use crate::referee::{Beginning, Referee, Told};
use crate::store::{Answer, Request, Store};
use crate::table::{Author, Design, Known, Prepared, State};
use crate::view::{Memory, Parsed, View, vector_file};

/// How far a clock may be from the right time, in milliseconds.
pub(crate) const MOST_SKEW_MS: i64 = 30;

/// All that processes share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) referee: Referee,
    pub(crate) random: Random,
    /// Versions that each process has read or made.
    known: BTreeMap<usize, BTreeSet<u64>>,
    /// The version that each process tried last.
    tried: BTreeMap<usize, u64>,
    /// Before when a process sends nothing: it backs off.
    waits: BTreeMap<usize, u64>,
    /// Processes that want no further attempt.
    pub(crate) cancelled: BTreeSet<usize>,
    /// Commits by where their bytes are; reading is a function of the bytes.
    parsed: Vec<(u64, Bytes, Arc<Parsed>)>,
    /// Vectors by their ids, whether their files are still there or not.
    vectors: BTreeMap<String, DeletionVector>,
    /// The data files that vectors are of, by the vectors' ids.
    marked: BTreeMap<String, String>,
    /// The files of vectors that the transaction of each process has stored.
    begun: BTreeMap<usize, Vec<String>>,
    /// Files of vectors so far.
    vector_files: u64,
    /// Milliseconds for which a vacuum keeps files, where there is one.
    pub(crate) retention_ms: Option<i64>,
}

impl World {
    pub(crate) fn new(store: Store, referee: Referee, random: Random) -> Self {
        Self {
            store,
            referee,
            random,
            known: BTreeMap::new(),
            tried: BTreeMap::new(),
            waits: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            parsed: Vec::new(),
            vectors: BTreeMap::new(),
            marked: BTreeMap::new(),
            begun: BTreeMap::new(),
            vector_files: 0,
            retention_ms: None,
        }
    }

    /// A vector as it is, whether its file is still there or not.
    pub(crate) fn vector(&self, descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
        match source(descriptor)? {
            Source::Inline(bytes) => parse_inline(&bytes, descriptor),
            Source::File { .. } => {
                let known = self.vectors.get(&descriptor.unique_id()).cloned();
                known.ok_or_else(|| Error::internal("nobody stored this deletion vector"))
            }
        }
    }

    /// A vector as who reads it in the store finds it.
    fn stored_vector(&self, descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
        match source(descriptor)? {
            Source::Inline(bytes) => parse_inline(&bytes, descriptor),
            Source::File { path: DeletionVectorPath::Relative(path), offset, length } => {
                let file = self.store.files.get(&path).ok_or_else(|| Error::not_found("there is no such file"))?;
                let region = file.bytes.get(offset as usize..(offset + length) as usize).unwrap_or_default();
                parse_file_region(region, descriptor)
            }
            Source::File { path, .. } => Err(Error::internal(format!("nobody stores vectors at {path:?}"))),
        }
    }

    /// Stores vectors in a file of the table.
    fn store_vectors(&mut self, process: usize, vectors: &[DeletionVector]) -> Result<Vec<DeletionVectorDescriptor>> {
        let (bytes, places) = to_file_bytes(vectors)?;
        self.vector_files += 1;
        let encoded = encode_path("", &u128::from(self.vector_files).to_be_bytes());
        let path = relative_path(&encoded)?;
        self.store.keep(&path, bytes);
        self.begun.entry(process).or_default().push(path);
        let mut descriptors = Vec::new();
        for (vector, place) in vectors.iter().zip(places) {
            let descriptor = DeletionVectorDescriptor {
                storage_type: "u".to_owned(),
                path_or_inline_dv: encoded.clone(),
                offset: Some(place.offset),
                size_in_bytes: place.size_in_bytes,
                cardinality: vector.cardinality() as i64,
            };
            self.vectors.insert(descriptor.unique_id(), vector.clone());
            descriptors.push(descriptor);
        }
        Ok(descriptors)
    }

    /// A process deletes files that no commit names.
    fn abandon(&mut self, paths: impl IntoIterator<Item = String>) {
        for path in paths {
            self.store.files.remove(&path);
            self.referee.abandoned(&path);
        }
    }

    pub(crate) fn parsed(&mut self, file: &LogFile, lines: &Bytes) -> Result<Arc<Parsed>> {
        let version = file.name.version();
        if let Some((_, _, parsed)) = self.parsed.iter().find(|(at, known, _)| *at == version && known == lines) {
            return Ok(parsed.clone());
        }
        let commit = parse_file(file, lines, Wanted::All)?;
        let parsed = Arc::new(Parsed { adds: commit.adds.keys()?, commit });
        self.parsed.push((version, lines.clone(), parsed.clone()));
        Ok(parsed)
    }
}

/// A process's way to the store, its clock and its patience.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) process: usize,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) fault: Fault,
    /// How far its clock is from the right time.
    pub(crate) skew: i64,
    /// Attempts at a commit before it gives up.
    pub(crate) attempts: u32,
    /// The transaction that it is at.
    pub(crate) born: usize,
    /// The rows that it takes out of files that stay.
    pub(crate) own: BTreeMap<String, DeletionVector>,
    /// Whether that transaction changes no row.
    pub(crate) rearranges: bool,
    /// Whether it stores vectors in files of their own.
    pub(crate) vector_files: bool,
}

impl Client {
    /// One without fault, whose clock is right, and that tries once.
    pub(crate) fn new(process: usize, world: Arc<Mutex<World>>, vector_files: bool) -> Self {
        Self {
            process,
            world,
            fault: Fault::None,
            skew: 0,
            attempts: 1,
            born: 0,
            own: BTreeMap::new(),
            rearranges: false,
            vector_files,
        }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) async fn ask(&self, request: Request) -> Answer {
        let answer = {
            let mut world = self.world();
            let not_before = world.waits.get(&self.process).copied().unwrap_or_default();
            world.store.send(self.process, request, not_before)
        };
        answer.await.unwrap()
    }

    /// Lets so much time pass before anything else.
    pub(crate) fn pause(&self, ms: usize) {
        let mut world = self.world();
        let until = world.store.now + world.random.below(ms.max(1)) as u64;
        world.waits.insert(self.process, until);
    }

    /// What must not fail, however the store behaves.
    pub(crate) fn sound<T>(&self, read: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut world = self.world();
        let result = read(&mut world);
        if let Err(e) = &result {
            let what = format!("process {} cannot read the table: {e}", self.process);
            world.referee.object(what);
        }
        result
    }

    /// Reads a version as it is, whatever is wrong with the writer.
    pub(crate) async fn fetch(&self, version: u64) -> Result<Option<Bytes>> {
        let Answer::Read(found) = self.ask(Request::Read { version }).await else { panic!("not what was asked") };
        let found = found?;
        if found.is_some() {
            self.world().known.entry(self.process).or_default().insert(version);
        }
        Ok(found)
    }
}

impl Committer for Client {
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>> {
        let lines = Bytes::from(lines.pieces().map(|piece| piece.unwrap()).collect::<Vec<_>>().concat());
        Box::pin(async move {
            {
                let mut world = self.world();
                world.tried.insert(self.process, version);
                let known = world.known.get(&self.process);
                if version.checked_sub(1).is_some_and(|below| known.is_none_or(|known| !known.contains(&below))) {
                    world.referee.object(format!("process {} tries {version} before reading", self.process));
                }
            }
            let request = Request::Put { version, born: self.born, lines };
            let Answer::Put(put) = self.ask(request).await else { panic!("not what was asked") };
            if let Ok(Put::Created) = put {
                self.world().known.entry(self.process).or_default().insert(version);
            }
            match (self.fault, put) {
                (Fault::CommitIsTakenBack, Ok(Put::Created)) => {
                    self.ask(Request::Delete { version }).await;
                    Err(Error::storage(true, "the commit was taken back"))
                }
                (Fault::UnknownIsCreated, Ok(Put::Unknown(_))) => Ok(Put::Created),
                (Fault::UnknownIsRefused, Ok(Put::Unknown(lost))) => Err(lost),
                (_, put) => put,
            }
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            let Some(lines) = self.fetch(version).await? else { return Ok(None) };
            if self.fault == Fault::VectorsAreUnited {
                let adds = parse_commit(&lines, Origin::Commit(version), Wanted::All)?.adds;
                for row in 0..adds.len() {
                    if let Some(vector) = adds.deletion_vector(row)? {
                        self.world().marked.insert(vector.unique_id(), adds.path().value(row).to_owned());
                    }
                }
            }
            Ok(Some(self.fault.distorted(lines, self.rearranges)))
        })
    }

    /// What the store shows is there to stay.
    fn settle(&self, _version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Nobody cleans the log.
    fn is_passed(&self, _version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

impl VectorFiles for Client {
    fn read(&self, descriptor: DeletionVectorDescriptor) -> BoxFuture<'_, Result<DeletionVector>> {
        let mut world = self.world();
        world.store.count("vectors that were read");
        let vector = world.stored_vector(&descriptor);
        Box::pin(std::future::ready(vector.map(|vector| match self.fault {
            // Whoever unites without a look sees no row that is in both.
            Fault::VectorsAreUnited => {
                let path = world.marked.get(&descriptor.unique_id());
                path.and_then(|path| self.own.get(path)).map_or(vector.clone(), |own| vector.minus(own))
            }
            _ => vector,
        })))
    }

    fn store(&self, vectors: Vec<DeletionVector>) -> BoxFuture<'_, Result<Vec<DeletionVectorDescriptor>>> {
        Box::pin(std::future::ready(match self.vector_files {
            true => self.world().store_vectors(self.process, &vectors),
            false => vectors.iter().map(DeletionVector::to_inline).collect(),
        }))
    }
}

impl RetryPolicy for Client {
    fn now_ms(&self) -> i64 {
        self.world().store.now_ms() + self.skew
    }

    /// The wait itself happens in the store, where time is: no request of this process arrives before.
    fn back_off(&self, attempts: u32) -> Option<Duration> {
        let mut world = self.world();
        let wait = world.random.below(10 << attempts.min(8)) as u64;
        let until = world.store.now + wait;
        world.waits.insert(self.process, until);
        (attempts < self.attempts).then_some(Duration::ZERO)
    }

    fn is_cancelled(&self) -> bool {
        self.world().cancelled.contains(&self.process)
    }
}

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
pub(crate) struct Ended {
    pub(crate) committed: Option<Committed>,
    conflict: Option<Conflict>,
}

impl Ended {
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
    mut ended: Ended,
) -> Ended {
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
) -> Ended {
    let Some((transaction, own_files)) = begin(client, script, (operation, restored), (on, files), base) else {
        return Ended::default();
    };
    let first = transaction.pending.version();
    let marks = !transaction.pending.marked.is_empty();
    let outcome = transaction::try_commit(transaction, (&*client, &*client), &*client).await;
    // No commit names the files of one that is refused, nor vectors of attempts before the last.
    let mut unnamed = client.world().begun.remove(&client.process).unwrap_or_default();
    match &outcome {
        Ok(_) => drop(unnamed.pop()),
        Err(Failed::Certainly(_)) => unnamed.extend(own_files),
        Err(Failed::Perhaps(_)) => unnamed.clear(),
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
    let is_slow = world.retention_ms.is_some_and(|retention| {
        world.store.now_ms() - world.referee.began_ms(born) > retention - MOST_SKEW_MS
    });
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
    Ended { committed: outcome.ok(), conflict }
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
        Kind::Storage { .. } => "commits that were given up",
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
