//! The shared state, and the client of each process. Each request of its [`Committer`] goes through the simulated store,
//! and its clock is the virtual one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::lines::Lines;
use deltic_protocol::action::{Add, DeletionVectorDescriptor};
use deltic_protocol::commit::{AddedRows, MarkedFile, MovedRows};
use deltic_protocol::deletion_vector::{
    DeletionVector, DeletionVectorPath, Source, encode_path, parse_file_region, parse_inline, relative_path, source,
    to_file_bytes,
};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::log::segment::LogFile;
use deltic_store::{Put, Syncing};
use deltic_table::commit::{DeletionVectorStore, RetryPolicy};
use deltic_table::committers::{Committer, OtherLogFile};
use deltic_table::log::parse_file;
use futures::future::BoxFuture;

use crate::Fault;
use crate::random::Random;
use crate::referee::Referee;
use crate::store::{Answer, Request, Store};
use crate::table::{CONDITIONS, Row, SHAPES};
use crate::view::Parsed;

/// Limit of the difference between a process's clock and the right time, in milliseconds.
pub(crate) const MAX_SKEW_MS: i64 = 30;

/// The state that all processes share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) referee: Referee,
    pub(crate) random: Random,
    /// Versions that each process has read or written.
    known: BTreeMap<usize, BTreeSet<u64>>,
    /// The version that each process tried to put last.
    pub(crate) last_attempt: BTreeMap<usize, u64>,
    /// When the backoff of each process ends.
    not_before: BTreeMap<usize, u64>,
    /// Processes whose commit is cancelled.
    pub(crate) cancelled: BTreeSet<usize>,
    /// Cache of parsed commits, by version and bytes.
    parsed: Vec<(u64, Bytes, Arc<Parsed>)>,
    /// All deletion vectors ever stored, by id.
    vectors: BTreeMap<String, DeletionVector>,
    /// The data file of each deletion vector, by the vector's id.
    marked: BTreeMap<String, String>,
    /// The deletion vector files that the current transaction of each process has stored.
    pub(crate) new_vector_files: BTreeMap<usize, Vec<String>>,
    vector_file_count: u64,
    /// The retention, if the simulation has a vacuum.
    pub(crate) retention_ms: Option<i64>,
}

impl World {
    pub(crate) fn new(store: Store, referee: Referee, random: Random) -> Self {
        Self {
            store,
            referee,
            random,
            known: BTreeMap::new(),
            last_attempt: BTreeMap::new(),
            not_before: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            parsed: Vec::new(),
            vectors: BTreeMap::new(),
            marked: BTreeMap::new(),
            new_vector_files: BTreeMap::new(),
            vector_file_count: 0,
            retention_ms: None,
        }
    }

    /// A deletion vector, even if its file is deleted.
    pub(crate) fn vector(&self, descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
        match source(descriptor)? {
            Source::Inline(bytes) => parse_inline(&bytes, descriptor),
            Source::File { .. } => {
                let known = self.vectors.get(&descriptor.unique_id()).cloned();
                known.ok_or_else(|| Error::internal("this deletion vector was never stored"))
            }
        }
    }

    /// Reports deletion vectors of a new version that do not delete the rows that they should.
    pub(crate) fn check_vectors(&mut self, version: u64, lines: &Bytes) {
        let adds = match parse_commit(lines, Origin::Commit(version), Wanted::All) {
            Ok(commit) => commit.adds,
            Err(e) => return self.referee.report(format!("version {version}: {e}")),
        };
        for row in 0..adds.len() {
            let vector = adds.deletion_vector(row).and_then(|found| found.map(|found| self.vector(&found)).transpose());
            let path = adds.path().value(row);
            match (vector, self.referee.deleted_rows(version, path)) {
                (Ok(Some(vector)), Some(expected)) if vector != expected => self.referee.report(format!(
                    "version {version} deletes the rows {:?} of {path}, but should delete {:?}",
                    vector.iter().collect::<Vec<_>>(),
                    expected.iter().collect::<Vec<_>>()
                )),
                (Err(e), _) => self.referee.report(format!("version {version}: {e}")),
                (Ok(_), _) => {}
            }
        }
    }

    /// Reads a deletion vector from the store.
    fn stored_vector(&self, descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
        match source(descriptor)? {
            Source::Inline(bytes) => parse_inline(&bytes, descriptor),
            Source::File { path: DeletionVectorPath::Relative(path), offset, length } => {
                let file = self.store.files.get(&path).ok_or_else(|| Error::not_found("the file does not exist"))?;
                let region = file.bytes.get(offset as usize..(offset + length) as usize).unwrap_or_default();
                parse_file_region(region, descriptor)
            }
            Source::File { path, .. } => Err(Error::internal(format!("no vectors are stored at {path:?}"))),
        }
    }

    /// Stores deletion vectors in one file.
    fn store_vectors(&mut self, process: usize, vectors: &[DeletionVector]) -> Result<Vec<DeletionVectorDescriptor>> {
        let (bytes, places) = to_file_bytes(vectors)?;
        self.vector_file_count += 1;
        let encoded = encode_path("", &u128::from(self.vector_file_count).to_be_bytes());
        let path = relative_path(&encoded)?;
        self.store.put_file(&path, bytes);
        self.new_vector_files.entry(process).or_default().push(path);
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

    /// The rows of a file that are not deleted, as a commit adds it.
    fn live_rows(&self, add: &Add) -> Result<Vec<Row>> {
        if !self.store.files.contains_key(&add.path) {
            return Err(Error::not_found("there is no such file"));
        }
        let files = self.referee.rows_of(std::iter::once(add.path.clone())).map_err(Error::internal)?;
        let deleted = match &add.deletion_vector {
            Some(descriptor) => self.stored_vector(descriptor)?,
            None => DeletionVector::default(),
        };
        let rows = (0_u64..).zip(files.into_values().next().unwrap_or_default());
        Ok(rows.filter(|(at, _)| !deleted.contains(*at)).filter_map(|(_, row)| row).collect())
    }

    /// A file with a row that makes one of the predicates TRUE.
    fn search_added(&self, added: &AddedRows) -> Result<Option<String>> {
        let bound = |at: usize| SHAPES.iter().map(move |(_, bound)| &bound[at]);
        let searched: Vec<_> = added.searches.iter().flat_map(|search| &search.predicates).collect();
        let is_searched = |at: &usize| bound(*at).any(|bound| searched.contains(&bound));
        let conditions: Vec<usize> = (0..CONDITIONS.len()).filter(is_searched).collect();
        assert_eq!(conditions.len(), searched.len());
        for add in &added.files {
            if self.live_rows(add)?.iter().any(|row| conditions.iter().any(|at| CONDITIONS[*at].1(row))) {
                return Ok(Some(add.path.clone()));
            }
        }
        Ok(None)
    }

    /// The files to which winners moved rows, by row id; `None` if not every row is found exactly once.
    fn find_moved(&self, moved: &MovedRows) -> Result<Option<Vec<MarkedFile>>> {
        let rows_of = |add: &Add| -> Result<Vec<Option<Row>>> {
            if !self.store.files.contains_key(&add.path) {
                return Err(Error::not_found("there is no such file"));
            }
            let files = self.referee.rows_of(std::iter::once(add.path.clone())).map_err(Error::internal)?;
            Ok(files.into_values().next().unwrap_or_default())
        };
        let mut ids = BTreeSet::new();
        for file in &moved.from {
            let rows = rows_of(&file.add)?;
            ids.extend(file.rows.iter().filter_map(|at| rows[at as usize]).map(|row| row.id()));
        }
        let mut files = Vec::new();
        for add in &moved.to {
            let rows = rows_of(add)?;
            let rows_deleted_before_commit = match &add.deletion_vector {
                Some(descriptor) => self.stored_vector(descriptor)?,
                None => DeletionVector::default(),
            };
            let is_wanted = |row: &Option<Row>| row.is_some_and(|row| ids.contains(&row.id()));
            let found =
                (0_u64..).zip(&rows).filter(|(at, row)| is_wanted(row) && !rows_deleted_before_commit.contains(*at));
            let wanted = found.map(|(at, _)| at).collect();
            let physical_rows = rows.len() as u64;
            files.push(MarkedFile {
                add: add.clone(),
                physical_rows,
                rows_deleted_before_commit,
                rows: wanted,
                vector: None,
            });
        }
        files.retain(|file| !file.rows.is_empty());
        // No row is in two files.
        let found: u64 = files.iter().map(|file| file.rows.cardinality()).sum();
        Ok((found == ids.len() as u64).then_some(files))
    }

    /// Deletes files that no commit names.
    pub(crate) fn roll_back(&mut self, paths: impl IntoIterator<Item = String>) {
        for path in paths {
            self.store.files.remove(&path);
            self.referee.file_rolled_back(&path);
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

/// A process's connection to the store, its clock and its retry policy.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) process: usize,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) fault: Fault,
    /// Error of its clock, in milliseconds.
    pub(crate) skew: i64,
    pub(crate) max_attempts: u32,
    /// The current transaction.
    pub(crate) transaction: usize,
    /// The rows that the current transaction marks as deleted, by file.
    pub(crate) marked_rows: BTreeMap<String, DeletionVector>,
    /// Whether the current transaction only rearranges rows.
    pub(crate) rearranges: bool,
    /// Whether deletion vectors are stored in files, and not inline.
    pub(crate) vector_files: bool,
}

impl Client {
    /// A client without fault or clock skew that makes one attempt per commit.
    pub(crate) fn new(process: usize, world: Arc<Mutex<World>>, vector_files: bool) -> Self {
        Self {
            process,
            world,
            fault: Fault::None,
            skew: 0,
            max_attempts: 1,
            transaction: 0,
            marked_rows: BTreeMap::new(),
            rearranges: false,
            vector_files,
        }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) async fn send(&self, request: Request) -> Answer {
        let answer = {
            let mut world = self.world();
            let not_before = world.not_before.get(&self.process).copied().unwrap_or_default();
            world.store.send(self.process, request, not_before)
        };
        answer.await.unwrap()
    }

    /// Delays the next request by up to `ms` milliseconds.
    pub(crate) fn pause(&self, ms: usize) {
        let mut world = self.world();
        let until = world.store.now + world.random.below(ms.max(1)) as u64;
        world.not_before.insert(self.process, until);
    }

    /// Reports an error of `read` as a violation: it must not fail, whatever the store does.
    pub(crate) fn must_succeed<T>(&self, read: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut world = self.world();
        let result = read(&mut world);
        if let Err(e) = &result {
            let what = format!("process {} cannot read the table: {e}", self.process);
            world.referee.report(what);
        }
        result
    }

    /// Reads a version, unaffected by the process's fault.
    pub(crate) async fn fetch(&self, version: u64) -> Result<Option<Bytes>> {
        let Answer::Read(found) = self.send(Request::Read { version }).await else { panic!("unexpected answer") };
        let found = found?;
        if found.is_some() {
            self.world().known.entry(self.process).or_default().insert(version);
        }
        Ok(found)
    }
}

impl Committer for Client {
    fn commit(&self, version: u64, lines: Lines, _files: Syncing) -> BoxFuture<'_, Result<Put>> {
        let lines = Bytes::from(lines.pieces().map(|piece| piece.unwrap()).collect::<Vec<_>>().concat());
        Box::pin(async move {
            {
                let mut world = self.world();
                world.last_attempt.insert(self.process, version);
                let known = world.known.get(&self.process);
                if version.checked_sub(1).is_some_and(|below| known.is_none_or(|known| !known.contains(&below))) {
                    world
                        .referee
                        .report(format!("process {} tries {version} before reading the version below", self.process));
                }
            }
            let request = Request::Put { version, transaction: self.transaction, lines };
            let Answer::Put(put) = self.send(request).await else { panic!("unexpected answer") };
            if let Ok(Put::Created) = put {
                self.world().known.entry(self.process).or_default().insert(version);
            }
            match (self.fault, put) {
                (Fault::CommitIsDeleted, Ok(Put::Created)) => {
                    self.send(Request::DeleteCommit { version }).await;
                    Err(Error::storage(true, "the commit was deleted"))
                }
                (Fault::UnknownIsCreated, Ok(Put::Unknown(_))) => Ok(Put::Created),
                (Fault::UnknownIsFailed, Ok(Put::Unknown(lost))) => Err(lost),
                (_, put) => put,
            }
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            let Some(lines) = self.fetch(version).await? else { return Ok(None) };
            if self.fault == Fault::VectorOverlapIsIgnored {
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

    /// The work after a commit is not simulated.
    fn put_other<'a>(&'a self, _name: &'a str, _file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        Box::pin(std::future::ready(Err(Error::internal("only commits are put"))))
    }

    /// Commits are durable at once.
    fn make_durable(&self, _version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The log is never cleaned up.
    fn log_continues_past(&self, _version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

impl DeletionVectorStore for Client {
    fn read(&self, descriptor: DeletionVectorDescriptor) -> BoxFuture<'_, Result<DeletionVector>> {
        let mut world = self.world();
        world.store.count("deletion vectors that were read");
        let vector = world.stored_vector(&descriptor);
        Box::pin(std::future::ready(vector.map(|vector| match self.fault {
            // Leaves out the overlap, so that the commit loop does not see it.
            Fault::VectorOverlapIsIgnored => {
                let path = world.marked.get(&descriptor.unique_id());
                path.and_then(|path| self.marked_rows.get(path)).map_or(vector.clone(), |own| vector.minus(own))
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

    fn find_moved(&self, moved: Arc<MovedRows>) -> BoxFuture<'_, Result<Option<Vec<MarkedFile>>>> {
        let mut world = self.world();
        world.store.count("searches for moved rows");
        let found = match self.fault {
            Fault::MovedRowsKeepPositions => {
                Ok(Some(vec![MarkedFile { add: moved.to[0].clone(), ..moved.from[0].clone() }]))
            }
            _ => world.find_moved(&moved),
        };
        Box::pin(std::future::ready(found))
    }

    fn search_added(&self, added: Arc<AddedRows>) -> BoxFuture<'_, Result<Option<String>>> {
        let mut world = self.world();
        world.store.count("searches of added files");
        Box::pin(std::future::ready(match self.fault {
            Fault::AddedRowsAreNotSearched => Ok(None),
            _ => world.search_added(&added),
        }))
    }
}

impl RetryPolicy for Client {
    fn now_ms(&self) -> i64 {
        self.world().store.now_ms() + self.skew
    }

    /// The store does the wait, since it has the clock: it delays the next request of this process.
    fn back_off(&self, attempts: u32) -> Option<Duration> {
        let mut world = self.world();
        let wait = world.random.below(10 << attempts.min(8)) as u64;
        let until = world.store.now + wait;
        world.not_before.insert(self.process, until);
        (attempts < self.max_attempts).then_some(Duration::ZERO)
    }

    fn is_cancelled(&self) -> bool {
        self.world().cancelled.contains(&self.process)
    }
}
