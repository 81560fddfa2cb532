//! The builder of every commit: it collects the read set, removed and added files, and new metadata.
//!
//! Each step is checked at once, before a file is written. A scan through the transaction includes the rows that it has
//! added and not those that it removed; other readers see neither. The transaction becomes one [`PreparedCommit`], or
//! nothing: files that were written and not committed are not part of the table. Operations add steps here and do not
//! commit in another way.
//!
//! PROTOCOL.md: "Commit Protocol", "Transaction Identifiers", "Domain Metadata", "Change Metadata".

use std::sync::Arc;

use deltic_protocol::action::{Metadata, Protocol};
use deltic_protocol::commit::{Actions, Conflict, PredicatesRead, ReadSet, check_info};
use deltic_protocol::feature;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::{IsolationLevel, Properties};
use deltic_protocol::replay::paths::PathSet;
use serde_json::{Map, Value};

use crate::error::{Error, Kind, Result};
use crate::log::LogSource;
use crate::post_commit::{HandleState, PostCommit};
use crate::scan::plan::ScanPlan;
use crate::scan::task::TaskGroup;
use crate::snapshot::Snapshot;
use crate::write::plan::DataFile;
use deltic_protocol::commit::Committed;
use deltic_store::{Storage, Syncing};

mod added;
mod cached_base;
pub(crate) mod change_files;
mod commit;
mod failures;
mod header;
mod metadata_steps;
mod metrics;
mod options;
mod parts;
mod remove;
mod resume;
mod row_steps;
pub(crate) mod rows;
mod whole_files;
mod write;

pub(crate) use added::FileOrigin;
pub use added::delete_written;
use added::{WrittenPaths, delete_files};
pub use header::TransactionHeader;
use options::Overwrites;
pub use options::{
    CreateMode, HandleCache, Ids, Mode, PartitionOverwrite, SchemaMode, TableDefinition, TransactionOptions,
    WriteOptions,
};
use parts::{BaseVersion, Derived, FileChanges, History, TableChanges, Write};
pub(crate) use rows::SavedMetadata;
pub(crate) use whole_files::{add_again, remove_columns};

/// The number of running syncs of a transaction's files from which on a write waits for its own syncs.
const MAX_PENDING_SYNCS: usize = 64;

/// A transaction before its commit.
#[derive(Debug)]
pub struct Transaction {
    log: LogSource,
    options: TransactionOptions,
    isolation: Option<IsolationLevel>,
    txn_id: String,
    /// The current time in expressions, in milliseconds since the epoch.
    now_ms: Option<i64>,
    base: BaseVersion,
    read: ReadSet,
    write: Write,
    table: TableChanges,
    files: FileChanges,
    history: History,
    derived: Derived,
    /// Set if the transaction has nothing to do: the version that has the application's transaction already, or the version
    /// of the table that a write was to create. No step does anything then.
    already_committed_version: Option<u64>,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum TransactionEnd {
    /// It was committed.
    Committed(Box<Outcome>),
    /// Nothing was left to do in this version: the application's transaction, or a later one, was in the table already, or
    /// there was a table already and the mode was to keep it.
    Replayed(u64),
    /// There was nothing to commit.
    Nothing,
}

/// The result of a commit.
#[derive(Debug)]
pub struct Outcome {
    /// The commit.
    pub committed: Committed,
    /// Counters, as in the commit's `operationMetrics`.
    pub metrics: Map<String, Value>,
    /// The result of the work after the commit.
    pub post_commit: PostCommit,
}

impl Transaction {
    /// Begins a transaction on the table of `log`: on the state after the handle's last commit, which needs no request, or
    /// on the version that the handle has open, which is refreshed.
    ///
    /// # Errors
    /// `NotFound` if there is no table, `Unsupported` if deltic cannot write it, `Invalid` for the options.
    pub async fn begin(
        log: &LogSource,
        cache: HandleCache,
        options: TransactionOptions,
        ids: &dyn Ids,
    ) -> Result<Self> {
        let mut transaction = Self::new(log, options)?;
        (transaction.base.latest, transaction.now_ms) = (cache.latest, cache.now_ms);
        // The newest `txn` action of an application needs the newest version.
        match cache.state.filter(|_| transaction.options.app_id.is_none()) {
            Some(state) => transaction.base.state = Some(state),
            None => {
                let snapshot = newest(log, transaction.base.latest.as_ref()).await?;
                transaction.set_base(HandleState::load(&snapshot).await?, &snapshot);
            }
        }
        transaction.check_writable().map_err(|e| transaction.in_table(e))?;
        transaction.check_already_committed().await?;
        transaction.txn_id = ids.unique();
        Ok(transaction)
    }

    /// A transaction without steps, base and application id.
    fn new(log: &LogSource, options: TransactionOptions) -> Result<Self> {
        let in_table = |e: Error| e.in_table(log.location());
        let isolation = options.isolation.as_deref().map(IsolationLevel::parse).transpose().map_err(in_table)?;
        if options.app_id.is_some() != options.app_version.is_some() {
            return Err(in_table(Error::invalid("app_id and app_version belong together; give both or neither")));
        }
        check_info(&options.commit_info).map_err(in_table)?;
        Ok(Self::empty(log.clone(), options, isolation))
    }

    fn empty(log: LogSource, options: TransactionOptions, isolation: Option<IsolationLevel>) -> Self {
        Self {
            history: History { parameters: options.parameters.clone(), operations: Vec::new() },
            log,
            options,
            isolation,
            txn_id: String::new(),
            now_ms: None,
            base: BaseVersion::default(),
            read: ReadSet::Nothing,
            write: Write::default(),
            table: TableChanges::default(),
            files: FileChanges::default(),
            derived: Derived::default(),
            already_committed_version: None,
        }
    }

    /// Sets the version that it is based on.
    fn set_base(&mut self, state: HandleState, snapshot: &Snapshot) {
        (self.base.state, self.base.snapshot) = (Some(state), Some(snapshot.clone()));
        self.derived = Derived::default();
    }

    /// Checks whether the base has the application's transaction already.
    async fn check_already_committed(&mut self) -> Result<()> {
        let (Some(app_id), Some(app_version), Some(snapshot)) =
            (&self.options.app_id, self.options.app_version, &self.base.snapshot)
        else {
            return Ok(());
        };
        let txns = snapshot.txns().await?;
        let is_done = txns.iter().any(|txn| &txn.app_id == app_id && txn.version >= app_version);
        self.already_committed_version = is_done.then(|| snapshot.version());
        Ok(())
    }

    /// The version of the table in which nothing is left to do, if there is one: then no step does anything.
    pub fn already_committed_version(&self) -> Option<u64> {
        self.already_committed_version
    }

    /// Whether it creates the table.
    pub fn creates(&self) -> bool {
        self.base.state.is_none()
    }

    /// Whether it is based on the state after the handle's last commit, without reading the log.
    pub fn uses_cached_state(&self) -> bool {
        self.base.state.as_ref().is_some_and(HandleState::is_cached)
    }

    /// The version that is read: at the first call, the newest one.
    ///
    /// # Errors
    /// `Conflict` if rows were written for columns that have changed since, `Unsupported` if deltic cannot write the table
    /// any more; `Invalid` if the transaction creates the table.
    pub async fn snapshot(&mut self) -> Result<Snapshot> {
        if let Some(snapshot) = &self.base.snapshot {
            return Ok(snapshot.clone());
        }
        let Some(old) = &self.base.state else {
            return Err(self.in_table(Error::invalid("the transaction creates the table, so there is nothing to read")));
        };
        if self.base.is_resumed {
            // The version of the plan: the commit shows whether the table has changed since.
            let snapshot = Snapshot::open(&self.log, Some(old.state.version)).await?;
            return Ok(self.base.snapshot.insert(snapshot).clone());
        }
        let snapshot = newest(&self.log, self.base.latest.as_ref()).await?;
        let new = HandleState::load(&snapshot).await?;
        let is_untouched =
            self.files.added.is_empty() && self.table.metadata.is_none() && self.table.protocol.is_none();
        let (before, after) = (&old.state, &new.state);
        let is_same = (&before.metadata, &before.protocol) == (&after.metadata, &after.protocol);
        let has_statistics = after.clustering.iter().all(|column| before.clustering.contains(column));
        let may_go_on = is_untouched || (is_same && has_statistics);
        if !may_go_on {
            let conflict = Kind::Conflict(Conflict::MetadataChanged);
            let message = "another writer changed the table's schema or properties since this transaction read them; begin \
                 again";
            return Err(self.in_table(Error::new(conflict, message).at_version(after.version)));
        }
        check_writable(&after.protocol, &after.metadata, snapshot.shape()).map_err(|e| self.in_table(e))?;
        self.set_base(new, &snapshot);
        Ok(snapshot)
    }

    /// The version that is read, with the protocol and the metadata as this transaction has changed them: its files are read
    /// with the columns that the table has after the commit.
    ///
    /// # Errors
    /// As [`Transaction::snapshot`]; `Invalid` if the transaction replaces the table.
    pub async fn snapshot_after(&mut self) -> Result<Snapshot> {
        let snapshot = self.snapshot().await?;
        if self.table.metadata.is_none() && self.table.protocol.is_none() {
            return Ok(snapshot);
        }
        if self.write.overwrites != Overwrites::Nothing {
            let message =
                "this transaction replaces rows and has changed the metadata, so it can only add rows; commit first";
            return Err(self.in_table(Error::invalid(message)));
        }
        if let Some(changed) = &self.derived.snapshot {
            return Ok(changed.clone());
        }
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let changed = snapshot.with_metadata(protocol.clone(), metadata.clone()).await.map_err(|e| self.in_table(e))?;
        Ok(self.derived.snapshot.insert(changed).clone())
    }

    /// The files to read for the rows that make `filter` TRUE, with the changes of this transaction. The scan becomes
    /// part of the read set.
    ///
    /// # Errors
    /// As [`ScanPlan::new`] and [`Transaction::snapshot`].
    pub async fn scan(&mut self, columns: Option<&[String]>, filter: Option<&str>) -> Result<TaskGroup> {
        self.refuse_after_external_files("read rows")?;
        let snapshot = self.snapshot_after().await?;
        let plan = ScanPlan::new(&snapshot, columns, filter).await?;
        let tasks = plan.tasks().await?;
        let files: PathSet = tasks.iter().map(|task| task.path.as_str()).collect();
        let shape = snapshot.shape();
        self.read.extend(match &plan.spec().filter {
            Some(filter) => {
                let predicate = Arc::unwrap_or_clone(filter.bound(&shape.schema)?);
                ReadSet::Predicates(PredicatesRead::new(shape.clone(), predicate, files))
            }
            None => ReadSet::AllRows,
        });
        let tasks = tasks.into_iter().filter_map(|task| self.with_own_deletes(task).transpose());
        let mut tasks = tasks.collect::<Result<Vec<_>>>()?;
        tasks.extend(self.files.added.tasks());
        Ok(TaskGroup { spec: plan.spec().clone(), tasks })
    }

    /// Whether the transaction removes a file of the base.
    fn is_removed(&self, path: &str) -> bool {
        self.write.overwrites == Overwrites::Table || self.files.removed.removes(path)
    }

    /// Adds files that were written by a plan of [`Transaction::plan_write`].
    pub fn append(&mut self, files: Vec<DataFile>) {
        self.files.added.extend(files);
    }

    /// Whether it has added rows.
    pub fn has_added(&self) -> bool {
        !self.files.added.is_empty()
    }

    /// As [`Transaction::append`], for files that may not be synced to disk yet. The commit waits until they are.
    pub fn append_unsynced(&mut self, (files, syncing): (Vec<DataFile>, Syncing)) {
        self.append(files);
        self.files.syncing.extend(syncing);
    }

    /// As [`Transaction::append`], for files that other processes wrote: there may be a million, so each is processed only
    /// once. This comes after steps that read rows or remove files.
    ///
    /// # Errors
    /// Those of `files`.
    pub fn append_each(&mut self, files: impl Iterator<Item = Result<DataFile>>) -> Result<()> {
        self.files.added.extend_each(files)
    }

    /// Adds files of the table again with other members, such as row ids. Only winners that mention the same
    /// files matter, and theirs take precedence. Such a transaction has no other steps.
    pub(crate) fn re_add(&mut self, files: Actions) {
        self.read.extend(ReadSet::Files(PathSet::default()));
        self.set_files(files);
    }

    /// Adds files that existed before the table. They are not deleted if the commit fails. `metrics`:
    /// those of the operation.
    pub(crate) fn add_existing(&mut self, files: Actions, metrics: Map<String, Value>) {
        self.set_files(files);
        self.options.metrics = metrics;
    }

    /// Sets the operation and its parameters.
    pub(crate) fn set_operation(&mut self, operation: &str, parameters: Map<String, Value>) {
        operation.clone_into(&mut self.options.operation);
        self.history.parameters = parameters;
    }

    /// Whether so many syncs of its files are running that a write should wait for its own.
    pub fn should_wait_for_syncs(&self) -> bool {
        self.files.syncing.under_way() >= MAX_PENDING_SYNCS
    }

    /// The storage of the table.
    pub fn storage(&self) -> &Storage {
        self.log.storage()
    }

    /// The protocol and the metadata of the table after the commit.
    fn protocol_and_metadata(&self) -> Result<(&Protocol, &Metadata)> {
        let before = self.base.state.as_ref().map(|base| &base.state);
        let protocol = self.table.protocol.as_ref().or(before.map(|state| &state.protocol));
        let metadata = self.table.metadata.as_ref().or(before.map(|state| &state.metadata));
        protocol.zip(metadata).ok_or_else(|| Error::internal("a transaction has no table and creates none"))
    }

    /// The shape of the table after the commit, computed once.
    pub(crate) fn shape_after(&mut self) -> Result<Arc<TableShape>> {
        if let Some(shape) = &self.derived.shape {
            return Ok(shape.clone());
        }
        let of_base =
            self.base.snapshot.as_ref().filter(|_| self.table.metadata.is_none() && self.table.protocol.is_none());
        let shape = match of_base {
            Some(snapshot) => snapshot.shape().clone(),
            None => {
                let (protocol, metadata) = self.protocol_and_metadata()?;
                let schema = metadata.schema()?;
                let mapping = Properties::of(metadata).column_mapping(protocol, &schema)?;
                TableShape { schema, partition_columns: metadata.partition_columns.clone(), mapping }
            }
        };
        Ok(self.derived.shape.insert(Arc::new(shape)).clone())
    }

    /// Refuses a table that deltic cannot write.
    fn check_writable(&mut self) -> Result<()> {
        let shape = self.shape_after()?;
        let (protocol, metadata) = self.protocol_and_metadata()?;
        check_writable(protocol, metadata, &shape)
    }

    /// The paths of the files that were written.
    fn written_paths(&self) -> WrittenPaths {
        self.files.added.paths().and(self.files.rows.written())
    }

    /// Deletes the files that were written, best effort. No other writer or reader has seen them.
    pub async fn abandon(self) {
        self.written_paths().delete(self.log.storage()).await;
        delete_files(self.log.storage(), self.files.discarded).await;
    }

    fn in_table(&self, error: Error) -> Error {
        error.in_table(self.log.location())
    }
}

fn check_writable(protocol: &Protocol, metadata: &Metadata, shape: &TableShape) -> Result<()> {
    feature::check_writable(protocol, metadata, &shape.schema)
}

async fn newest(log: &LogSource, latest: Option<&Snapshot>) -> Result<Snapshot> {
    match latest {
        Some(latest) => latest.refresh().await,
        None => Snapshot::open(log, None).await,
    }
}
