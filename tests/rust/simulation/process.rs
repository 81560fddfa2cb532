//! Writers and readers. A writer looks at the table, prepares an operation on what it saw, and runs the real
//! [`transaction::commit`]; its [`Committer`] sends every request through the simulated store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::batch::{KeyBatch, Origin};
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::lines::Lines;
use deltic_protocol::action::{CommitInfo, DeletionVectorDescriptor, Metadata, Protocol};
use deltic_protocol::commit::{Actions, Pending, ROW_TRACKING_DOMAIN, TableState, watermark};
use deltic_protocol::deletion_vector::{DeletionVector, Source, parse_inline, source};
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::feature;
use deltic_protocol::log::segment::{LogFile, Segment};
use deltic_protocol::property::IsolationLevel;
use deltic_protocol::replay::Replay;
use deltic_store::Put;
use deltic_table::committers::Committer;
use deltic_table::log::parse_file;
use deltic_table::transaction::{self, Committed, PreparedCommit, RetryPolicy, VectorFiles};
use futures::future::BoxFuture;
use serde_json::Map;

use crate::Fault;
use crate::random::Random;
use crate::referee::{Referee, Seen, Told};
use crate::store::{Answer, Request, Store};
use crate::table::{Author, Design, Known, Operation, State};

/// Looks at the table before a process gives up on it.
const LOOKS: usize = 12;

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
    /// The files of vectors, by the vectors' ids.
    vectors: BTreeMap<String, String>,
}

/// A commit as a reader needs it.
#[derive(Debug)]
struct Parsed {
    commit: CommitActions,
    adds: KeyBatch,
}

impl World {
    pub(crate) fn new(store: Store, referee: Referee, random: Random) -> Self {
        let (known, tried, waits) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            store,
            referee,
            random,
            known,
            tried,
            waits,
            cancelled: BTreeSet::new(),
            parsed: Vec::new(),
            vectors: BTreeMap::new(),
        }
    }

    fn parsed(&mut self, file: &LogFile, lines: &Bytes) -> Result<Arc<Parsed>> {
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
}

impl Client {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    async fn ask(&self, request: Request) -> Answer {
        let answer = {
            let mut world = self.world();
            let not_before = world.waits.get(&self.process).copied().unwrap_or_default();
            world.store.send(self.process, request, not_before)
        };
        answer.await.unwrap()
    }

    /// What must not fail, however the store behaves.
    fn sound<T>(&self, read: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut world = self.world();
        let result = read(&mut world);
        if let Err(e) = &result {
            let what = format!("process {} cannot read the table: {e}", self.process);
            world.referee.object(what);
        }
        result
    }

    /// Reads a version as it is, whatever is wrong with the writer.
    async fn fetch(&self, version: u64) -> Result<Option<Bytes>> {
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
                        self.world().vectors.insert(vector.unique_id(), adds.path().value(row).to_owned());
                    }
                }
            }
            Ok(Some(self.fault.distorted(lines)))
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

/// Vectors stand in the log here.
impl VectorFiles for Client {
    fn read(&self, descriptor: DeletionVectorDescriptor) -> BoxFuture<'_, Result<DeletionVector>> {
        let vector = inline(&descriptor);
        self.world().store.count("vectors that were read");
        Box::pin(std::future::ready(vector.map(|vector| match self.fault {
            // Whoever unites without a look sees no row that is in both.
            Fault::VectorsAreUnited => {
                let world = self.world();
                let path = world.vectors.get(&descriptor.unique_id());
                path.and_then(|path| self.own.get(path)).map_or(vector.clone(), |own| vector.minus(own))
            }
            _ => vector,
        })))
    }

    fn store(&self, vectors: Vec<DeletionVector>) -> BoxFuture<'_, Result<Vec<DeletionVectorDescriptor>>> {
        Box::pin(std::future::ready(vectors.iter().map(DeletionVector::to_inline).collect()))
    }
}

impl RetryPolicy for Client {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000 + self.world().store.now as i64 + self.skew
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

/// What a look at the table gave.
#[derive(Debug)]
struct View {
    version: u64,
    protocol: Protocol,
    metadata: Metadata,
    seen: Seen,
    /// What the log says of the files.
    files: Known,
}

/// What a process remembers of the log, as a handle on a table does.
#[derive(Debug, Default)]
struct Memory {
    segment: Option<Segment>,
    commits: BTreeMap<u64, (LogFile, Arc<Parsed>)>,
}

impl Memory {
    /// Looks at the table: lists the log, chooses what defines a version, and replays it. `None` if there is no table.
    async fn look(&mut self, client: &Client, target: Option<u64>) -> Result<Option<View>> {
        let Answer::List(listing) = client.ask(Request::List).await else { panic!("not what was asked") };
        let listing = listing?;
        let known = self.segment.as_ref().filter(|_| target.is_none());
        let segment = match known.and_then(|known| known.extended(&listing)) {
            Some(segment) => segment,
            None => match Segment::choose(&listing, target, true) {
                Ok(segment) => segment,
                Err(e) if e.is_not_found() => return Ok(None),
                Err(e) => return Err(e),
            },
        };
        for file in &segment.tail {
            let version = file.name.version();
            if self.commits.get(&version).is_some_and(|(known, _)| known == file) {
                continue;
            }
            let lines = client.fetch(version).await?.ok_or_else(|| Error::not_found("a commit vanished"))?;
            let parsed = client.sound(|world| world.parsed(file, &lines))?;
            self.commits.insert(version, (file.clone(), parsed));
        }
        let tail: Vec<&Parsed> = segment.tail.iter().map(|f| self.commits[&f.name.version()].1.as_ref()).collect();
        let view = client.sound(|world| view(&tail, segment.version, &world.referee))?;
        client.world().referee.saw(view.version, &view.seen);
        if target.is_none() {
            self.segment = Some(segment);
        }
        Ok(Some(view))
    }

    /// The same, until it works.
    async fn look_until_it_works(&mut self, client: &Client) -> Option<Option<View>> {
        for _ in 0..LOOKS {
            if let Ok(view) = self.look(client, None).await {
                return Some(view);
            }
        }
        None
    }
}

/// The table that these commits, oldest first, leave.
fn view(commits: &[&Parsed], version: u64, referee: &Referee) -> Result<View> {
    let (mut protocol, mut metadata, mut files) = (None, None, Known::new());
    let (mut replay, mut state, mut highest) = (Replay::new(), State::default(), None);
    for parsed in commits.iter().rev() {
        let commit = &parsed.commit;
        let newest = replay.remember(&parsed.adds);
        for row in newest.set_indices() {
            let add = commit.adds.add(row)?;
            if files.insert(add.path.clone(), add).is_some() {
                return Err(Error::corrupt("a file is there twice, with different deletion vectors"));
            }
        }
        replay.remember(&commit.removes);
        protocol = protocol.or_else(|| commit.protocol.clone());
        metadata = metadata.or_else(|| commit.metadata.clone());
        for txn in &commit.txns {
            state.apps.entry(txn.app_id.clone()).or_insert(txn.version);
        }
        for domain in &commit.domains {
            match domain.domain.as_str() {
                ROW_TRACKING_DOMAIN => highest = highest.or(Some(watermark(&domain.configuration)?)),
                name => drop(state.domains.entry(name.to_owned()).or_insert_with(|| domain.configuration.clone())),
            }
        }
    }
    let missing = || Error::corrupt("the log has neither protocol nor metadata");
    let (protocol, metadata) = (protocol.ok_or_else(missing)?, metadata.ok_or_else(missing)?);
    state.features = feature::supported(&protocol);
    state.properties = metadata.configuration.clone();
    state.files = referee.rows_of(files.keys().cloned()).map_err(Error::internal)?;
    for (path, add) in &files {
        let rows = state.files.get_mut(path).into_iter().flatten();
        let gone = add.deletion_vector.as_ref().map(inline).transpose()?.unwrap_or_default();
        (0..).zip(rows).filter(|(at, _)| gone.contains(*at)).for_each(|(_, row)| *row = None);
    }
    let info = commits.last().and_then(|parsed| parsed.commit.commit_info.as_ref());
    let time = info.and_then(CommitInfo::in_commit_timestamp);
    Ok(View { version, protocol, metadata, seen: Seen { state, watermark: highest, time }, files })
}

/// The vector of a descriptor that holds it, as all do here.
fn inline(descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
    match source(descriptor)? {
        Source::Inline(bytes) => parse_inline(&bytes, descriptor),
        Source::File { .. } => Err(Error::internal("there are no files of vectors here")),
    }
}

/// What a writer is to do, and how.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) operations: Vec<Operation>,
    pub(crate) design: Design,
    pub(crate) isolation: IsolationLevel,
}

/// Does its operations one after the other.
pub(crate) async fn write(mut client: Client, script: Script) {
    let mut memory = Memory::default();
    let mut last: Option<Committed> = None;
    for operation in script.operations {
        let append = {
            let mut world = client.world();
            (last.is_some() && world.random.chance(400)).then(|| Operation::append(&mut world.random))
        };
        // Who has just committed appends without looking.
        if let (Some(append), Some(Committed { state, .. })) = (append, last.take()) {
            let nothing = (State::default(), Known::new());
            last = commit(&mut client, (&script.design, script.isolation), append, nothing, Some(state)).await;
            continue;
        }
        let Some(view) = memory.look_until_it_works(&client).await else { continue };
        let (operation, on, base) = match view {
            None => (Operation::Create(vec![('a', 1), ('b', 4), ('a', 5)]), (State::default(), Known::new()), None),
            Some(View { version, protocol, metadata, seen, files }) => {
                let (row_id_watermark, timestamp) = (seen.watermark, seen.time);
                let base = TableState { version, protocol, metadata, row_id_watermark, clustering: vec![], timestamp };
                (operation, (seen.state, files), Some(base))
            }
        };
        last = commit(&mut client, (&script.design, script.isolation), operation, on, base).await;
    }
}

async fn commit(
    client: &mut Client,
    (design, isolation): (&Design, IsolationLevel),
    operation: Operation,
    (on, files): (State, Known),
    base: Option<TableState>,
) -> Option<Committed> {
    let transaction = {
        let mut world = client.world();
        let born = world.referee.born();
        let prepared = operation.prepare(&on, Author { born, design: *design })?;
        let shy = world.random.chance(150);
        let table = base.as_ref().map(|state| (&state.protocol, &state.metadata));
        let (actions, read) = (prepared.actions(table, &files, *design, shy), prepared.read.clone());
        let marked = prepared.marked_files(&on, &files);
        let own = marked.iter().map(|file| (file.add.path.clone(), file.rows.clone())).collect();
        let version = base.as_ref().map(|state| state.version);
        let process = client.process;
        world.store.say(|| format!("process {process} begins transaction {born} on {version:?}: {operation:?}"));
        world.cancelled.remove(&process);
        world.referee.prepared(operation, prepared, version);
        let pending = Pending {
            state: base,
            read,
            read_apps: BTreeSet::new(),
            isolation,
            actions: Actions::of(actions).unwrap(),
            marked,
        };
        drop(world);
        (client.born, client.own) = (born, own);
        PreparedCommit {
            pending,
            operation: "WRITE".to_owned(),
            parameters: Map::new(),
            metrics: Map::new(),
            user_metadata: None,
            info: Map::new(),
            txn_id: txn_id(born),
        }
    };
    let first = transaction.pending.version();
    let marks = !transaction.pending.marked.is_empty();
    let outcome = transaction::try_commit(transaction, (client, client), client).await.map_err(Error::from);
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
    if what.is_empty() {
        world.referee.object(format!("transaction {born}: {:?}", outcome.as_ref().err()));
    }
    world.referee.told(born, told);
    if let Ok(committed) = &outcome {
        let World { referee, store, .. } = &mut *world;
        referee.acknowledged(committed, first, store.log.get(&committed.version).map(|(lines, _)| lines));
    }
    outcome.ok()
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

/// Looks at the table a few times, at the newest version or one before.
pub(crate) async fn read(client: Client, looks: usize) {
    let mut memory = Memory::default();
    let mut newest = None;
    for _ in 0..looks {
        let target = {
            let mut world = client.world();
            newest
                .filter(|_| world.random.chance(300))
                .map(|newest: u64| world.random.below(newest as usize + 1) as u64)
        };
        if let Ok(Some(view)) = memory.look(&client, target).await {
            newest = newest.max(Some(view.version));
            client.world().store.count("reads of a version");
        }
    }
}
