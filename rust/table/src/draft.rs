//! A transaction while it is put together: what was read, what goes, what comes, what is set.
//!
//! Everything is checked when it is said, before a file is written. A scan sees the draft's own rows and not what it
//! removed; nobody else sees either. It ends as a [`PreparedCommit`], once, or as nothing: files that were written and not
//! committed are no part of the table.
//!
//! PROTOCOL.md: "Commit Protocol", "Transaction Identifiers", "Domain Metadata", "Change Metadata".

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow_schema::Schema;
use deltic_protocol::action::{Action, DomainMetadata, Metadata, Protocol, Txn};
use deltic_protocol::commit::{Actions, Conflict, Pending, PredicatesRead, ReadSet, TableState};
use deltic_protocol::predicate::parse;
use deltic_protocol::property::{IsolationLevel, Properties, check_settable, check_unset, is_instruction, stored};
use deltic_protocol::replay::canonical_path;
use deltic_protocol::replay::paths::PathSet;
use deltic_protocol::schema::{StructType, json};
use deltic_protocol::{feature, validation};
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::after_commit::{AfterCommit, HandleState, check_base, verify_base};
use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::job::{Ids, WriteOptions, name_row_tracking_columns, remove_of, write_spec};
use crate::scan::plan::ScanPlan;
use crate::scan::task::{FileTask, TaskGroup};
use crate::snapshot::Snapshot;
use crate::storage::{Storage, Syncing, decode_path};
use crate::transaction::{Committed, Failed, PreparedCommit, RetryPolicy, log_committed, log_conflict, try_commit};
use crate::write::spec::{DataFile, WriteSpec};

mod remembered;
mod whole_files;

use remembered::is_outdated;
use whole_files::{batch_of, covered, remove_columns};

/// What a caller says of a transaction when it begins.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DraftOptions {
    /// Name of the operation.
    pub operation: String,
    /// The isolation, instead of the table's.
    pub isolation: Option<String>,
    /// Free text for the commit info.
    pub user_metadata: Option<String>,
    /// The application's id, for transactions that must happen once.
    pub app_id: Option<String>,
    /// The application's own version of this transaction.
    pub app_version: Option<i64>,
    /// Whether to commit even if there is nothing to say.
    pub commit_empty: bool,
}

/// New names for a table's metadata; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct MetadataChange {
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
    /// The schema, whole.
    pub schema: Option<StructType>,
    /// Properties to set.
    pub properties: BTreeMap<String, String>,
    /// Properties to take away.
    pub unset: Vec<String>,
}

/// A transaction that is being put together.
#[derive(Debug)]
pub struct Draft {
    storage: Storage,
    options: DraftOptions,
    isolation: Option<IsolationLevel>,
    base: HandleState,
    snapshot: Option<Snapshot>,
    /// A version that was open already, to be refreshed rather than opened anew.
    latest: Option<Snapshot>,
    read: ReadSet,
    removed: Actions,
    added: Vec<DataFile>,
    /// Until when the files that were added might be lost in a power cut.
    syncing: Syncing,
    /// Files that were written and removed again.
    discarded: Vec<String>,
    metadata: Option<Metadata>,
    protocol: Option<Protocol>,
    domains: BTreeMap<String, DomainMetadata>,
    txn_id: String,
    /// Whether every live file of the base has row ids.
    has_ids: bool,
}

/// How a draft ended.
#[derive(Debug)]
pub struct Outcome {
    /// The commit.
    pub committed: Committed,
    /// Counters, as in the commit's `operationMetrics`.
    pub metrics: Map<String, Value>,
    /// What followed it.
    pub after: AfterCommit,
}

impl Draft {
    /// Begins a transaction on what a handle knows: of its last commit, which spares asking, or of the version it has
    /// open, which is refreshed.
    ///
    /// # Errors
    /// `NotFound` if there is no table, `Unsupported` if deltic cannot write it, `Invalid` for the options.
    pub async fn begin(
        storage: &Storage,
        (known, latest): (Option<HandleState>, Option<Snapshot>),
        options: DraftOptions,
        ids: &dyn Ids,
    ) -> Result<Self> {
        let in_table = |e: Error| e.in_table(storage.location());
        let isolation = options.isolation.as_deref().map(IsolationLevel::parse).transpose().map_err(in_table)?;
        if options.app_id.is_some() != options.app_version.is_some() {
            return Err(in_table(Error::invalid("app_id and app_version belong together; give both or neither")));
        }
        // An application's progress is in the newest version only.
        let known = known.filter(|_| options.app_id.is_none());
        let (base, snapshot) = match known {
            Some(base) => (base, None),
            None => {
                let snapshot = newest(storage, latest.as_ref()).await?;
                (HandleState::of(&snapshot).await?, Some(snapshot))
            }
        };
        check_writable(&base.state).map_err(in_table)?;
        Ok(Self {
            storage: storage.clone(),
            txn_id: ids.unique(),
            options,
            isolation,
            base,
            snapshot,
            latest,
            read: ReadSet::Nothing,
            removed: Actions::new(),
            added: Vec::new(),
            syncing: Syncing::default(),
            discarded: Vec::new(),
            metadata: None,
            protocol: None,
            domains: BTreeMap::new(),
            has_ids: false,
        })
    }

    /// Says that every live file of the version that is read has row ids, and that those to come will.
    pub(crate) fn every_file_has_ids(&mut self) {
        self.has_ids = true;
    }

    /// The version whose commit by the same application holds what this transaction would do again, or a later one.
    pub async fn replayed(&mut self) -> Result<Option<u64>> {
        let (Some(app_id), Some(app_version)) = (self.options.app_id.clone(), self.options.app_version) else {
            return Ok(None);
        };
        let snapshot = self.snapshot().await?;
        let txns = snapshot.txns().await?;
        let done = txns.iter().any(|t| t.app_id == app_id && t.version >= app_version);
        Ok(done.then(|| snapshot.version()))
    }

    /// The version that is read. Asked for late, it is the newest one.
    ///
    /// # Errors
    /// `Conflict` if rows were written for columns that are others by now, `Unsupported` if deltic cannot write the table
    /// any more.
    pub async fn snapshot(&mut self) -> Result<Snapshot> {
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        let snapshot = newest(&self.storage, self.latest.as_ref()).await?;
        let base = HandleState::of(&snapshot).await?;
        let untouched = self.added.is_empty() && self.metadata.is_none() && self.protocol.is_none();
        let (old, new) = (&self.base.state, &base.state);
        if !untouched && (&old.metadata, &old.protocol) != (&new.metadata, &new.protocol) {
            let conflict = Kind::Conflict(Conflict::MetadataChanged);
            let message =
                "another writer changed the table's schema or properties since this handle looked; begin again";
            return Err(Error::new(conflict, message).at_version(new.version).in_table(self.storage.location()));
        }
        check_writable(new).map_err(|e| self.placed(e))?;
        self.base = base;
        self.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// The files to read for the rows that make `filter` TRUE, as this transaction sees the table. What is read becomes
    /// part of the read set.
    pub async fn scan(&mut self, columns: Option<&[String]>, filter: Option<&str>) -> Result<TaskGroup> {
        self.refuse_after_metadata("read rows")?;
        let snapshot = self.snapshot().await?;
        let plan = ScanPlan::new(&snapshot, columns, filter).await?;
        let mut tasks = plan.tasks().await?;
        let files = tasks.iter().map(|task| task.path.as_str()).collect();
        self.read.extend(match filter {
            Some(filter) => self.predicates_read(&snapshot, filter, files)?,
            None => ReadSet::WholeTable,
        });
        tasks.retain(|task| !self.removed.removes(&task.path));
        tasks.extend(self.added.iter().map(own_task));
        Ok(TaskGroup { spec: plan.spec().clone(), tasks })
    }

    fn predicates_read(&self, snapshot: &Snapshot, filter: &str, files: PathSet) -> Result<ReadSet> {
        let predicate = parse(filter)?.bind(&snapshot.shape().schema).map_err(|e| self.placed(e))?;
        Ok(ReadSet::Predicates(PredicatesRead { shape: snapshot.shape().clone(), predicates: vec![predicate], files }))
    }

    /// How to write files of rows with `schema`, which is checked against the table's.
    pub fn write_spec(&self, schema: &Schema) -> Result<WriteSpec> {
        let state = self.state_after();
        crate::job::check_columns(&state, schema).map_err(|e| self.placed(e))?;
        write_spec((&state.protocol, &state.metadata), &WriteOptions::default()).map_err(|e| self.placed(e))
    }

    /// Adds files that were written by [`Draft::write_spec`].
    pub fn append(&mut self, files: Vec<DataFile>) {
        self.added.extend(files);
    }

    /// Whether it has rows of its own.
    pub fn has_added(&self) -> bool {
        !self.added.is_empty()
    }

    /// As [`Draft::append`], of files that may still be on their way to the disk. The commit waits for them.
    pub fn append_soon(&mut self, (files, syncing): (Vec<DataFile>, Syncing)) {
        self.append(files);
        self.syncing.extend(syncing);
    }

    /// What there is to wait for before a commit may name the files, for a committer that does so while it works.
    pub fn take_syncing(&mut self) -> Syncing {
        std::mem::take(&mut self.syncing)
    }

    /// Where the data files go.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Removes files by the paths that the log has for them.
    ///
    /// # Errors
    /// `Invalid` if one of them is not in the table as this transaction sees it.
    pub async fn remove_paths(&mut self, paths: &[String], now_ms: i64) -> Result<u64> {
        let snapshot = self.removable().await?;
        let mut wanted: HashSet<String> = paths.iter().map(|path| canonical_path(path).into_owned()).collect();
        let own: HashSet<String> = self.added.iter().map(|file| canonical_path(&file.add.path).into_owned()).collect();
        let own: HashSet<String> = own.into_iter().filter(|path| wanted.remove(path)).collect();
        let (mut found, mut files) = (Actions::new(), PathSet::default());
        if !wanted.is_empty() {
            let mut live = std::pin::pin!(snapshot.live_files(&remove_columns(Vec::new())).await?);
            while let Some(adds) = live.try_next().await? {
                for (row, path) in adds.path().iter().enumerate() {
                    let path = path.unwrap_or_default();
                    if !self.removed.removes(path) && wanted.remove(canonical_path(path).as_ref()) {
                        found.push(Action::Remove(remove_of(adds.add(row)?, now_ms)))?;
                        files.insert(path);
                    }
                }
            }
        }
        if let Some(path) = wanted.into_iter().min() {
            return Err(self.placed(Error::invalid("the file is not in the table").in_file(path)));
        }
        let removed = found.num_removed() as u64;
        self.read.extend(ReadSet::Files(files));
        self.removed.append(found)?;
        self.discard(|file| own.contains(canonical_path(&file.add.path).as_ref()));
        Ok(removed + own.len() as u64)
    }

    /// Removes the rows that make `filter` TRUE, which must fill whole files.
    ///
    /// # Errors
    /// `Invalid`, naming it, if a file may hold other rows too.
    pub async fn remove_where(&mut self, filter: &str, now_ms: i64) -> Result<u64> {
        let snapshot = self.removable().await?;
        let shape = snapshot.shape().clone();
        let predicate = parse(filter)?.bind(&shape.schema).map_err(|e| self.placed(e))?;
        let mut leaves = Vec::new();
        for column in predicate.columns() {
            leaves.extend(shape.leaf(&column.path)?.map(|leaf| leaf.path));
        }
        let (mut found, mut files) = (Actions::new(), PathSet::default());
        let mut live = std::pin::pin!(snapshot.live_files(&remove_columns(leaves)).await?);
        while let Some(adds) = live.try_next().await? {
            let is_gone = |path: &str| self.removed.removes(path);
            for row in covered(&adds, &shape, &predicate, is_gone).map_err(|e| self.placed(e))? {
                let path = adds.path().value(row);
                if !self.removed.removes(path) {
                    found.push(Action::Remove(remove_of(adds.add(row)?, now_ms)))?;
                }
                files.insert(path);
            }
        }
        let mut dropped = HashSet::new();
        if !self.added.is_empty() {
            let own = batch_of(self.added.iter().map(|file| file.add.clone()))?;
            let rows = covered(&own, &shape, &predicate, |_| false).map_err(|e| self.placed(e))?;
            dropped.extend(rows.into_iter().map(|row| own.path().value(row).to_owned()));
        }
        self.discard(|file| dropped.contains(&file.add.path));
        let removed = (found.num_removed() + dropped.len()) as u64;
        let read = PredicatesRead { shape, predicates: vec![predicate], files };
        self.read.extend(ReadSet::Predicates(read));
        self.removed.append(found)?;
        Ok(removed)
    }

    /// Takes own files out again.
    fn discard(&mut self, mut goes: impl FnMut(&DataFile) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.added).into_iter().partition(|file| goes(file));
        self.added = kept;
        let gone: Vec<DataFile> = gone;
        self.discarded.extend(gone.into_iter().map(|file| file.add.path));
    }

    /// The version to remove files from. Whether it lets go of any is asked of the one that is read, which may be newer
    /// than what was known.
    async fn removable(&mut self) -> Result<Snapshot> {
        self.refuse_after_metadata("remove files")?;
        let snapshot = self.snapshot().await?;
        if Properties::of(&self.base.state.metadata).append_only()? {
            let message = "the table is append-only (`delta.appendOnly`), so its rows cannot be removed";
            return Err(self.placed(Error::invalid(message)));
        }
        Ok(snapshot)
    }

    /// Columns are resolved by the metadata of the snapshot, so who changes it reads first.
    fn refuse_after_metadata(&self, what: &str) -> Result<()> {
        match &self.metadata {
            None => Ok(()),
            Some(_) => {
                let message = format!("the metadata was changed in this transaction already; {what} before that");
                Err(self.placed(Error::invalid(message)))
            }
        }
    }

    /// Changes the table's metadata, adding to the protocol what new properties need.
    ///
    /// # Errors
    /// `Invalid` if no table may have such metadata or go to it from what it has, if the metadata was changed in this
    /// transaction already, or if rows were written under the old one.
    pub fn set_metadata(&mut self, change: MetadataChange, ids: &dyn Ids) -> Result<()> {
        let place = |e: Error| e.in_table(self.storage.location());
        if self.metadata.is_some() {
            return Err(place(Error::invalid("the metadata was changed in this transaction already; change it once")));
        }
        if !self.added.is_empty() {
            return Err(place(Error::invalid(
                "rows were written under the old metadata in this transaction; change the metadata before that",
            )));
        }
        let before = &self.base.state.metadata;
        check_settable(&change.properties).map_err(place)?;
        let mut after = before.clone();
        after.name = change.name.or(after.name);
        after.description = change.description.or(after.description);
        if let Some(schema) = &change.schema {
            let known = before.schema().map_err(place)?;
            after.schema_string = json::print(&validation::with_column_metadata(&known, schema));
        }
        for key in &change.unset {
            check_unset(key).map_err(place)?;
            if is_instruction(key) || after.configuration.remove(key).is_none() {
                return Err(place(Error::invalid(format!("the property `{key}` is not set, so it cannot be unset"))));
            }
        }
        after.configuration.extend(stored(&change.properties));
        name_row_tracking_columns(&mut after.configuration, ids).map_err(place)?;
        validation::check_change(before, &after).map_err(place)?;
        let enables = Properties::of(&after).is_true("delta.enableRowTracking")?
            && !Properties::of(before).is_true("delta.enableRowTracking")?;
        if enables && !self.has_ids {
            let message = "row tracking is enabled on a table by giving ids to the files that it has, which takes several \
                           commits: call `Table.enable_row_tracking`";
            return Err(place(Error::invalid(message)));
        }
        let schema = after.schema().map_err(place)?;
        let protocol = self.protocol_with(&schema, &change.properties).map_err(place)?;
        let effective = protocol.as_ref().unwrap_or(&self.base.state.protocol);
        feature::check_writable(effective, &after, &schema).map_err(place)?;
        self.protocol = protocol.or(self.protocol.take());
        self.metadata = Some(after);
        Ok(())
    }

    fn protocol_with(&self, schema: &StructType, properties: &BTreeMap<String, String>) -> Result<Option<Protocol>> {
        feature::upgraded(self.protocol.as_ref().unwrap_or(&self.base.state.protocol), schema, properties)
    }

    /// Adds a feature to the table's protocol.
    ///
    /// # Errors
    /// `Invalid` if there is no such feature or the table has not the ones that it needs, `Unsupported` if deltic does not
    /// follow it, or could not write the table with it.
    pub fn add_feature(&mut self, name: &str) -> Result<()> {
        let properties = BTreeMap::from([(format!("delta.feature.{name}"), "supported".to_owned())]);
        let mut after = self.state_after();
        let schema = after.metadata.schema().map_err(|e| self.placed(e))?;
        let Some(upgraded) = self.protocol_with(&schema, &properties).map_err(|e| self.placed(e))? else {
            return Ok(());
        };
        after.protocol = upgraded;
        check_writable(&after).map_err(|e| self.placed(e))?;
        self.protocol = Some(after.protocol);
        Ok(())
    }

    /// Sets the configuration of a metadata domain, or removes the domain.
    ///
    /// # Errors
    /// `Invalid` for a domain that only writers set, and if the table does not have the feature `domainMetadata`.
    pub fn set_domain(&mut self, domain: &str, configuration: Option<&str>) -> Result<()> {
        if domain.is_empty() || domain.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("delta.")) {
            let message =
                format!("the metadata domain `{domain}` cannot be set: names that begin with `delta.` are taken");
            return Err(self.placed(Error::invalid(message)));
        }
        if !feature::supported(&self.state_after().protocol).contains("domainMetadata") {
            let message = "the table does not have the feature `domainMetadata`; add it first (`add_feature`)";
            return Err(self.placed(Error::invalid(message)));
        }
        let (name, removed) = (domain.to_owned(), configuration.is_none());
        let configuration = configuration.unwrap_or_default().to_owned();
        self.domains.insert(name.clone(), DomainMetadata { domain: name, configuration, removed });
        Ok(())
    }

    /// The table as it will be, as far as metadata and protocol go.
    fn state_after(&self) -> TableState {
        let mut state = self.base.state.clone();
        state.metadata = self.metadata.clone().unwrap_or(state.metadata);
        state.protocol = self.protocol.clone().unwrap_or(state.protocol);
        state
    }

    /// Commits, unless there is nothing to say and nobody asked for an empty commit. Rows that were only added to what a
    /// handle remembered are committed to the table as it is, if the files fit that.
    ///
    /// # Errors
    /// As [`commit`](crate::transaction::commit); `Conflict` also if the table is not the one that was remembered.
    pub async fn commit(self, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Option<Outcome>> {
        let (storage, discarded) = (self.storage.clone(), self.discarded.clone());
        let own: Vec<String> = self.added.iter().map(|file| file.add.path.clone()).collect();
        remove_files(&storage, discarded).await;
        let again = self.again();
        let mut ended = self.commit_once(committer, retry).await;
        let is_outdated = ended.as_ref().is_err_and(is_outdated);
        if let Some(again) = again.filter(|_| is_outdated) {
            ended = match again.on_newest().await {
                Ok(Some(draft)) => draft.commit_once(committer, retry).await,
                Ok(None) => ended,
                Err(error) => Err(Failed::Certainly(error)),
            };
        }
        match ended {
            Ok(outcome) => Ok(outcome),
            Err(failed) => {
                // Otherwise a commit may name them that has landed unheard, or will.
                if matches!(failed, Failed::Certainly(_)) {
                    remove_files(&storage, own).await;
                }
                Err(Error::from(failed).in_table(storage.location())).inspect_err(log_conflict)
            }
        }
    }

    /// The commit, and what follows it.
    async fn commit_once(self, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Option<Outcome>, Failed> {
        let (storage, known) = (self.storage.clone(), self.base.clone());
        let Some((committed, metrics)) = self.try_commit(committer, retry).await? else { return Ok(None) };
        let verified = verify_base(committer, &committed, (&known.state, known.commit_file()));
        let after = AfterCommit::run_if(&storage, &committed, (Some(&known), verified), retry.now_ms()).await?;
        log_committed(&committed, storage.location());
        Ok(Some(Outcome { committed, metrics, after }))
    }

    /// The commit and its counters.
    async fn try_commit(
        mut self,
        committer: &dyn Committer,
        retry: &dyn RetryPolicy,
    ) -> Result<Option<(Committed, Map<String, Value>)>, Failed> {
        let (syncing, base) = (self.take_syncing(), self.base.clone());
        let prepared = syncing.wait().await.and_then(|()| self.finish(retry.now_ms()));
        let Some(transaction) = prepared.map_err(Failed::Certainly)? else { return Ok(None) };
        check_base(committer, (&base.state, base.commit_file())).await?;
        let metrics = transaction.metrics.clone();
        Ok(Some((try_commit(transaction, committer, retry).await?, metrics)))
    }

    /// The transaction, if there is anything to say. Metadata may have moved on since the draft began only where the
    /// conflict rules let it.
    fn finish(self, now_ms: i64) -> Result<Option<PreparedCommit>> {
        let says_nothing = self.added.is_empty()
            && self.removed.is_empty()
            && self.metadata.is_none()
            && self.protocol.is_none()
            && self.domains.is_empty();
        if says_nothing && self.options.app_id.is_none() && !self.options.commit_empty {
            return Ok(None);
        }
        let isolation = match self.isolation {
            Some(isolation) => isolation,
            None => Properties::of(&self.base.state.metadata).isolation_level().map_err(|e| self.placed(e))?,
        };
        let mut metrics = Map::new();
        let mut count = |name: &str, value: u64| drop(metrics.insert(name.to_owned(), json!(value.to_string())));
        count("numFiles", self.added.len() as u64);
        count("numOutputRows", self.added.iter().map(|f| f.rows).sum());
        count("numOutputBytes", self.added.iter().filter_map(|f| u64::try_from(f.add.size).ok()).sum());
        count("numRemovedFiles", self.removed.num_removed() as u64);
        let mut others = Vec::new();
        others.extend(self.protocol.map(Action::Protocol));
        others.extend(self.metadata.map(Action::Metadata));
        if let (Some(app_id), Some(version)) = (&self.options.app_id, self.options.app_version) {
            let txn = Txn { app_id: app_id.clone(), version, last_updated: Some(now_ms) };
            others.push(Action::Txn(txn));
        }
        others.extend(self.domains.into_values().map(Action::DomainMetadata));
        let mut actions = self.removed;
        let added = self.added.into_iter().map(|file| Action::Add(file.add));
        others.into_iter().chain(added).try_for_each(|action| actions.push(action))?;
        let pending =
            Pending { state: Some(self.base.state), read: self.read, read_apps: BTreeSet::new(), isolation, actions };
        Ok(Some(PreparedCommit {
            pending,
            operation: self.options.operation,
            parameters: Map::new(),
            metrics,
            user_metadata: self.options.user_metadata,
            txn_id: self.txn_id,
        }))
    }

    /// Removes the files that were written, as far as the store lets it. Nobody else has seen them.
    pub async fn abandon(self) {
        let own = self.added.into_iter().map(|file| file.add.path);
        remove_files(&self.storage, own.chain(self.discarded).collect()).await;
    }

    fn placed(&self, error: Error) -> Error {
        error.in_table(self.storage.location())
    }
}

/// Refuses a table that deltic cannot write.
fn check_writable(state: &TableState) -> Result<()> {
    feature::check_writable(&state.protocol, &state.metadata, &state.metadata.schema()?)
}

async fn newest(storage: &Storage, latest: Option<&Snapshot>) -> Result<Snapshot> {
    match latest {
        Some(known) => known.refresh().await,
        None => Snapshot::open(storage, None).await,
    }
}

/// Removes data files that no commit names, as far as the store lets it.
async fn remove_files(storage: &Storage, paths: Vec<String>) {
    for path in paths {
        if let Ok(path) = decode_path(&path) {
            // Best effort: a file that stays is an orphan that vacuum finds.
            let _deleted = storage.delete(&path).await;
        }
    }
}

fn own_task(file: &DataFile) -> FileTask {
    let add = &file.add;
    FileTask {
        path: add.path.clone(),
        size: u64::try_from(add.size).unwrap_or_default(),
        partition_values: add.partition_values.clone(),
        deletion_vector: add.deletion_vector.clone(),
        base_row_id: add.base_row_id,
        default_row_commit_version: add.default_row_commit_version,
        ..FileTask::default()
    }
}
