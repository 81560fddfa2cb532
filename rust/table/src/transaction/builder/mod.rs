//! The builder of every commit: the read set, removed and added files, new metadata.
//!
//! Each step is checked when it is made, before a file is written. A scan through the transaction sees its own rows and not
//! what it removed; no other reader sees either. It becomes a [`PreparedCommit`] once, or nothing: files that were written and not
//! committed are no part of the table. An operation adds steps here, never a commit of its own.
//!
//! PROTOCOL.md: "Commit Protocol", "Transaction Identifiers", "Domain Metadata", "Change Metadata".

use std::collections::BTreeMap;
use std::sync::Arc;

use deltic_protocol::action::{DomainMetadata, Metadata, Protocol};
use deltic_protocol::commit::{Actions, Conflict, PredicatesRead, ReadSet, check_info};
use deltic_protocol::feature;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::{IsolationLevel, Properties};
use deltic_protocol::replay::paths::PathSet;
use serde_json::{Map, Value};

use crate::after_commit::{AfterCommit, HandleState};
use crate::error::{Error, Kind, Result};
use crate::scan::plan::ScanPlan;
use crate::scan::task::TaskGroup;
use crate::snapshot::Snapshot;
use crate::transaction::Committed;
use crate::write::options::FileOptions;
use crate::write::plan::DataFile;
use deltic_store::{Storage, Syncing};

mod added;
pub(crate) mod change_files;
mod commit;
mod failures;
mod header;
mod metadata_steps;
mod metrics;
mod options;
mod remembered;
mod remove;
mod resume;
mod row_steps;
pub(crate) mod rows;
mod whole_files;
mod write;

pub(crate) use added::FileOrigin;
pub use added::delete_written;
pub(crate) use added::task_of;
use added::{Added, Names, delete_files};
pub use header::TransactionHeader;
pub use options::{
    CreateMode, HandleCache, Ids, Mode, PartitionOverwrite, SchemaMode, TableDefinition, TransactionOptions,
    WriteOptions,
};
use options::{Overwrites, Planned};
pub(crate) use rows::{RowChanges, SavedMetadata};
pub(crate) use whole_files::{add_again, remove_columns};

/// A transaction that is being put together.
#[derive(Debug)]
pub struct Transaction {
    storage: Storage,
    options: TransactionOptions,
    isolation: Option<IsolationLevel>,
    /// The table that it builds on; none where it creates one.
    base: Option<HandleState>,
    snapshot: Option<Snapshot>,
    /// A version that was open already, to be refreshed rather than opened anew.
    latest: Option<Snapshot>,
    /// A version that makes this needless, because it has the application's transaction already, or because there is a table:
    /// no step does anything then.
    replayed: Option<u64>,
    /// What a write does where there is a table.
    mode: Mode,
    /// Whether another process began it, which may have committed it already: see [`TransactionHeader`].
    is_resumed: bool,
    read: ReadSet,
    /// Which files of the base go besides those that are removed.
    overwrites: Overwrites,
    /// The condition of the rows that are deleted before any is added, until they are (`replace_where`).
    delete_first: Option<String>,
    /// The condition that added rows must make TRUE.
    replace_where: Option<String>,
    /// Whether the rows that it adds are those that it removes, in other files.
    rearrange_only: bool,
    /// The metrics of OPTIMIZE, where that made the files. They stay after a conflict, to be committed once more.
    rearranged: Option<Map<String, Value>>,
    removed: Actions,
    /// Files that exist and are added or removed as they are, and no others.
    set_files: Option<Actions>,
    added: Added,
    /// What is done to rows of files that stay.
    rows: RowChanges,
    /// Whether nothing is left to be written for the commit.
    is_complete: bool,
    /// Until when the files that were added might be lost in a power cut.
    syncing: Syncing,
    /// Files that were written and removed again.
    discarded: Vec<String>,
    metadata: Option<Metadata>,
    protocol: Option<Protocol>,
    /// The schema and partitioning after the commit, computed on first use.
    shape: Option<Arc<TableShape>>,
    domains: BTreeMap<String, DomainMetadata>,
    /// Physical paths of the clustering columns, if they were set.
    clustering: Option<Vec<Vec<String>>>,
    parameters: Map<String, Value>,
    /// The operation and the parameters of each step that has its own, for the history.
    operations: Vec<(&'static str, Map<String, Value>)>,
    files: FileOptions,
    /// The write plan of a schema, computed on first use.
    planned: Option<Planned>,
    /// Whether it is a write of rows, of which there may be none.
    writes: bool,
    txn_id: String,
    /// Whether every live file of the base has row ids.
    has_ids: bool,
    /// The current time of its rows, in milliseconds since the epoch.
    now_ms: Option<i64>,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum TransactionEnd {
    /// It was committed.
    Committed(Box<Outcome>),
    /// It was needless, as of this version: the application's transaction, or a later one, was in the table already, or there
    /// was a table and only a new one was to be filled.
    Replayed(u64),
    /// There was nothing to commit.
    Nothing,
}

/// What a commit did.
#[derive(Debug)]
pub struct Outcome {
    /// The commit.
    pub committed: Committed,
    /// Counters, as in the commit's `operationMetrics`.
    pub metrics: Map<String, Value>,
    /// What followed it.
    pub after: AfterCommit,
}

impl Transaction {
    /// Begins a transaction on the table at `storage`: on what a handle knows of its last commit, which spares asking, or
    /// on the version that it has open, which is refreshed.
    ///
    /// # Errors
    /// `NotFound` if there is no table, `Unsupported` if deltic cannot write it, `Invalid` for the options.
    pub async fn begin(
        storage: &Storage,
        known: HandleCache,
        options: TransactionOptions,
        ids: &dyn Ids,
    ) -> Result<Self> {
        let mut begun = Self::new(storage, options)?;
        (begun.latest, begun.now_ms) = (known.latest, known.now_ms);
        // An application's progress is in the newest version only.
        match known.state.filter(|_| begun.options.app_id.is_none()) {
            Some(state) => begun.base = Some(state),
            None => {
                let snapshot = newest(storage, begun.latest.as_ref()).await?;
                begun.build_on(HandleState::of(&snapshot).await?, &snapshot);
            }
        }
        begun.check_writable().map_err(|e| begun.in_table(e))?;
        begun.find_replayed().await?;
        begun.txn_id = ids.unique();
        Ok(begun)
    }

    /// One that does nothing yet, builds on nothing, and has no id.
    fn new(storage: &Storage, options: TransactionOptions) -> Result<Self> {
        let in_table = |e: Error| e.in_table(storage.location());
        let isolation = options.isolation.as_deref().map(IsolationLevel::parse).transpose().map_err(in_table)?;
        if options.app_id.is_some() != options.app_version.is_some() {
            return Err(in_table(Error::invalid("app_id and app_version belong together; give both or neither")));
        }
        check_info(&options.commit_info).map_err(in_table)?;
        Ok(Self::empty(storage.clone(), options, isolation))
    }

    fn empty(storage: Storage, options: TransactionOptions, isolation: Option<IsolationLevel>) -> Self {
        Self {
            parameters: options.parameters.clone(),
            storage,
            options,
            isolation,
            base: None,
            snapshot: None,
            latest: None,
            replayed: None,
            mode: Mode::Append,
            is_resumed: false,
            read: ReadSet::Nothing,
            overwrites: Overwrites::default(),
            delete_first: None,
            replace_where: None,
            rearrange_only: false,
            rearranged: None,
            removed: Actions::new(),
            set_files: None,
            added: Added::default(),
            rows: RowChanges::default(),
            is_complete: false,
            syncing: Syncing::default(),
            discarded: Vec::new(),
            metadata: None,
            protocol: None,
            shape: None,
            domains: BTreeMap::new(),
            clustering: None,
            operations: Vec::new(),
            files: FileOptions::default(),
            planned: None,
            writes: false,
            txn_id: String::new(),
            has_ids: false,
            now_ms: None,
        }
    }

    /// Builds on a version from now on.
    fn build_on(&mut self, state: HandleState, snapshot: &Snapshot) {
        (self.base, self.snapshot) = (Some(state), Some(snapshot.clone()));
        (self.shape, self.planned) = (None, None);
    }

    /// Looks whether the version that is built on has the application's transaction already.
    async fn find_replayed(&mut self) -> Result<()> {
        let (Some(app_id), Some(app_version), Some(snapshot)) =
            (&self.options.app_id, self.options.app_version, &self.snapshot)
        else {
            return Ok(());
        };
        let txns = snapshot.txns().await?;
        let is_done = txns.iter().any(|txn| &txn.app_id == app_id && txn.version >= app_version);
        self.replayed = is_done.then(|| snapshot.version());
        Ok(())
    }

    /// The version that makes this needless, if one does: then no step does anything.
    pub fn replayed(&self) -> Option<u64> {
        self.replayed
    }

    /// Whether there is no table before it.
    pub fn creates(&self) -> bool {
        self.base.is_none()
    }

    /// Whether it is based on what a handle remembers of its last commit, without a look at the log.
    pub fn is_on_remembered(&self) -> bool {
        self.base.as_ref().is_some_and(HandleState::is_remembered)
    }

    /// The version that is read. Asked for late, it is the newest one.
    ///
    /// # Errors
    /// `Conflict` if rows were written for columns that are others by now, `Unsupported` if deltic cannot write the table
    /// any more; `Invalid` if the table is created only now.
    pub async fn snapshot(&mut self) -> Result<Snapshot> {
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        let Some(old) = &self.base else {
            return Err(self.in_table(Error::invalid("the transaction creates the table, so there is nothing to read")));
        };
        if self.is_resumed {
            // The version that was planned on: whether the table has moved on shows when it is committed.
            let snapshot = Snapshot::open(&self.storage, Some(old.state.version)).await?;
            return Ok(self.snapshot.insert(snapshot).clone());
        }
        let snapshot = newest(&self.storage, self.latest.as_ref()).await?;
        let new = HandleState::of(&snapshot).await?;
        let is_untouched = self.added.is_empty() && self.metadata.is_none() && self.protocol.is_none();
        let (before, after) = (&old.state, &new.state);
        let is_same = (&before.metadata, &before.protocol) == (&after.metadata, &after.protocol);
        let has_statistics = after.clustering.iter().all(|column| before.clustering.contains(column));
        if !is_untouched && !(is_same && has_statistics) {
            let conflict = Kind::Conflict(Conflict::MetadataChanged);
            let message =
                "another writer changed the table's schema or properties since this handle looked; begin again";
            return Err(self.in_table(Error::new(conflict, message).at_version(after.version)));
        }
        check_writable((&after.protocol, &after.metadata), snapshot.shape()).map_err(|e| self.in_table(e))?;
        self.build_on(new, &snapshot);
        Ok(snapshot)
    }

    /// The files to read for the rows that make `filter` TRUE, as this transaction sees the table. What is read becomes
    /// part of the read set.
    ///
    /// # Errors
    /// As [`ScanPlan::new`] and [`Transaction::snapshot`]; `Invalid` after a change of the metadata.
    pub async fn scan(&mut self, columns: Option<&[String]>, filter: Option<&str>) -> Result<TaskGroup> {
        self.refuse_after_metadata("read rows")?;
        self.refuse_after_files_of_others("read rows")?;
        let snapshot = self.snapshot().await?;
        let plan = ScanPlan::new(&snapshot, columns, filter).await?;
        let tasks = plan.tasks().await?;
        let files: PathSet = tasks.iter().map(|task| task.path.as_str()).collect();
        let shape = snapshot.shape();
        self.read.extend(match &plan.spec().filter {
            Some(filter) => {
                let predicates = vec![Arc::unwrap_or_clone(filter.bound(&shape.schema)?)];
                ReadSet::Predicates(PredicatesRead { shape: shape.clone(), predicates, files })
            }
            None => ReadSet::WholeTable,
        });
        let tasks = tasks.into_iter().filter_map(|task| self.with_own_deletes(task).transpose());
        let mut tasks = tasks.collect::<Result<Vec<_>>>()?;
        tasks.extend(self.added.tasks());
        Ok(TaskGroup { spec: plan.spec().clone(), tasks })
    }

    /// Whether the transaction removes a file of the base.
    fn is_removed(&self, path: &str) -> bool {
        self.overwrites == Overwrites::Table || self.removed.removes(path)
    }

    /// Adds files that were written as [`Transaction::plan_write`] says.
    pub fn append(&mut self, files: Vec<DataFile>) {
        self.added.extend(files);
    }

    /// Whether it has rows of its own.
    pub fn has_added(&self) -> bool {
        !self.added.is_empty()
    }

    /// As [`Transaction::append`], for files that may not be synced to disk yet. The commit waits until they are.
    pub fn append_unsynced(&mut self, (files, syncing): (Vec<DataFile>, Syncing)) {
        self.append(files);
        self.syncing.extend(syncing);
    }

    /// As [`Transaction::append`], of files that other processes wrote: there may be a million, so that each is looked at
    /// once. Rows are read and files are removed before that.
    ///
    /// # Errors
    /// Those of `files`.
    pub fn append_each(&mut self, files: impl Iterator<Item = Result<DataFile>>) -> Result<()> {
        self.added.extend_each(files)
    }

    /// Adds files again that the table has, such as with ids that they lacked. A winner matters only by the files that both
    /// mention, of which it knows better. A transaction that does so does nothing else.
    pub(crate) fn re_add(&mut self, files: Actions) {
        self.read.extend(ReadSet::Files(PathSet::default()));
        self.set_files(files);
    }

    /// Adds files that were there before the table. They stay where they are whatever becomes of the commit. `metrics`:
    /// what it counts.
    pub(crate) fn add_existing(&mut self, files: Actions, metrics: Map<String, Value>) {
        self.set_files(files);
        self.options.metrics = metrics;
    }

    /// Names the operation, and gives it its parameters.
    pub(crate) fn set_operation(&mut self, operation: &str, parameters: Map<String, Value>) {
        operation.clone_into(&mut self.options.operation);
        self.parameters = parameters;
    }

    /// What there is to wait for before a commit may name the files, for a committer that does so while it works.
    pub fn take_syncing(&mut self) -> Syncing {
        std::mem::take(&mut self.syncing)
    }

    /// Where the data files go.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The protocol and the metadata of the table as it will be.
    fn after(&self) -> Result<(&Protocol, &Metadata)> {
        let before = self.base.as_ref().map(|base| &base.state);
        let protocol = self.protocol.as_ref().or(before.map(|state| &state.protocol));
        let metadata = self.metadata.as_ref().or(before.map(|state| &state.metadata));
        protocol.zip(metadata).ok_or_else(|| Error::internal("a transaction has no table and creates none"))
    }

    /// Its columns, parsed once.
    pub(crate) fn shape_after(&mut self) -> Result<Arc<TableShape>> {
        if let Some(shape) = &self.shape {
            return Ok(shape.clone());
        }
        let of_base = self.snapshot.as_ref().filter(|_| self.metadata.is_none() && self.protocol.is_none());
        let shape = match of_base {
            Some(snapshot) => snapshot.shape().clone(),
            None => {
                let (protocol, metadata) = self.after()?;
                let schema = metadata.schema()?;
                let mapping = Properties::of(metadata).column_mapping(protocol, &schema)?;
                TableShape { schema, partition_columns: metadata.partition_columns.clone(), mapping }
            }
        };
        Ok(self.shape.insert(Arc::new(shape)).clone())
    }

    /// Refuses a table that deltic cannot write.
    fn check_writable(&mut self) -> Result<()> {
        let shape = self.shape_after()?;
        check_writable(self.after()?, &shape)
    }

    /// The files that were written.
    fn names(&self) -> Names {
        self.added.names().and(self.rows.written())
    }

    /// Deletes the files that were written, as far as the store lets it. No other writer or reader has seen them.
    pub async fn abandon(self) {
        self.names().delete(&self.storage).await;
        delete_files(&self.storage, self.discarded).await;
    }

    fn in_table(&self, error: Error) -> Error {
        error.in_table(self.storage.location())
    }
}

fn check_writable((protocol, metadata): (&Protocol, &Metadata), shape: &TableShape) -> Result<()> {
    feature::check_writable(protocol, metadata, &shape.schema)
}

async fn newest(storage: &Storage, latest: Option<&Snapshot>) -> Result<Snapshot> {
    match latest {
        Some(known) => known.refresh().await,
        None => Snapshot::open(storage, None).await,
    }
}
