//! A handle of a table: its location, the newest version that was opened, and the state after its last commit.
//!
//! This cached state saves the next operation requests to the store. It is invalidated when a transaction fails, when the
//! newest version turns out to be another, and after a minute.
//!
//! PROTOCOL.md: "Delta Table Specification".

mod compaction;
mod due;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::Schema;
use deltic_protocol::commit::Conflict;
use serde_json::{Map, Value};

use crate::backfill::{self, Enabled};
use crate::checkpoint_writer;
use crate::cleanup;
use crate::commit::{CommitContext, RetryPolicy};
use crate::committers::{Committer, for_table};
use crate::convert::{self, ConvertOptions, Converted};
use crate::copies::{self, CloneOptions, ClonePlan, RestoreOptions, RestoreTo, Restored};
use crate::drop_feature;
use crate::error::{Error, Kind, Result};
use crate::history;
use crate::log::LogSource;
use crate::maintenance::{self, OptimizeOptions, Optimized, VacuumOptions, Vacuumed};
use crate::post_commit::{self, HandleState};
use crate::purge::{self, PurgeOptions, Purged};
use crate::repair::{self, Repaired};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{
    CreateMode, HandleCache, Ids, Outcome, TableDefinition, Transaction, TransactionEnd, TransactionHeader,
    TransactionOptions, WriteOptions,
};
use crate::write::writer::Clock;
use deltic_store::Storage;

/// How long the next transaction may use the state after a commit without reading the log. The longer, the more often the
/// commit shows that it is outdated.
const FRESH_MS: i64 = 60_000;

/// A handle of a table. Making one needs no I/O; clones share the cached state.
#[derive(Clone)]
pub struct Table {
    log: LogSource,
    committer: Arc<dyn Committer>,
    settings: Arc<Settings>,
    cached: Arc<Mutex<CachedState>>,
}

/// How it was opened.
#[derive(Default)]
struct Settings {
    /// The store's options, with those that were in the location; they may be secret.
    storage_options: Option<HashMap<String, String>>,
    cache_bytes: Option<usize>,
}

/// What a handle keeps of its table.
#[derive(Debug, Default)]
struct CachedState {
    /// The newest version that was opened; it is refreshed rather than opened again.
    latest: Option<Snapshot>,
    /// The state after the last commit, and its time.
    state: Option<(HandleState, i64)>,
    /// How many files may be added before small files are counted again.
    compaction_budget: due::CompactionBudget,
}

/// Which version of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The newest.
    Newest,
    /// The version with this number.
    Version(u64),
    /// The newest version at this time, in milliseconds since the epoch.
    Time(i64),
}

impl Table {
    /// The table at `uri`. At most `cache_bytes` bytes of its log are kept in memory.
    ///
    /// # Errors
    /// `Invalid` for an invalid location or an unknown option, `Unsupported` for a scheme without a store.
    pub fn open(
        uri: &str,
        storage_options: Option<HashMap<String, String>>,
        cache_bytes: Option<usize>,
    ) -> Result<Self> {
        let is_given = storage_options.is_some();
        let (location, options) = Storage::split_secrets(uri, storage_options.unwrap_or_default())?;
        let storage = Storage::open(&location, &options)?;
        let storage_options = (is_given || !options.is_empty()).then_some(options);
        let (log, settings) = (LogSource::of(&storage), Settings { storage_options, cache_bytes });
        Ok(Self { committer: for_table(&log), log, settings: Arc::new(settings), cached: Arc::default() })
    }

    /// The table with another committer than its options choose, and without the cached state of this handle.
    #[must_use]
    pub fn with_committer(self, committer: Arc<dyn Committer>) -> Self {
        Self { committer, cached: Arc::default(), ..self }
    }

    /// Its log.
    pub fn log(&self) -> &LogSource {
        &self.log
    }

    /// Its storage.
    pub fn storage(&self) -> &Storage {
        self.log.storage()
    }

    /// The store's options, including those that were in the location: with these the same table can be opened again.
    pub fn storage_options(&self) -> Option<&HashMap<String, String>> {
        self.settings.storage_options.as_ref()
    }

    /// How many bytes of its log are kept in memory, if the caller has chosen.
    pub fn cache_bytes(&self) -> Option<usize> {
        self.settings.cache_bytes
    }

    /// Whether there is a table: a log with a version.
    ///
    /// # Errors
    /// Those of reading the log.
    pub async fn exists(&self) -> Result<bool> {
        match self.log.segment(None).await {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Opens a version. For the newest one, only newer commits are read.
    ///
    /// # Errors
    /// Those of [`Snapshot::open`].
    pub async fn snapshot(&self, at: At) -> Result<Snapshot> {
        let latest = self.locked(|cached| cached.latest.clone());
        let opened = match (at, latest) {
            (At::Time(time), Some(latest)) => latest.at(history::version_at(&self.log, time).await?).await?,
            (At::Time(time), None) => history::snapshot_at(&self.log, time).await?,
            (At::Version(version), Some(latest)) => latest.at(version).await?,
            (At::Newest, Some(latest)) => latest.refresh().await?,
            (At::Version(version), None) => Snapshot::open(&self.log, Some(version)).await?,
            (At::Newest, None) => Snapshot::open(&self.log, None).await?,
        };
        if let Some(bytes) = self.cache_bytes() {
            opened.limit_cache(bytes);
        }
        if at == At::Newest {
            self.locked(|cached| {
                cached.latest = Some(opened.clone());
                // Other writers have committed since, or there is a new table.
                cached.state.take_if(|(state, _)| state.state.version != opened.version());
            });
        }
        Ok(opened)
    }

    /// Whether the next transaction can use the state after the last commit.
    pub fn has_cached_state(&self) -> bool {
        self.locked(|cached| cached.state.is_some())
    }

    /// Begins a transaction on the cached state, if there is one.
    ///
    /// # Errors
    /// As [`Transaction::begin`].
    pub async fn begin(&self, options: TransactionOptions, ids: &dyn Ids, now_ms: i64) -> Result<Transaction> {
        Transaction::begin(&self.log, self.cached_state(now_ms), options, ids).await
    }

    /// Begins a write of rows, into a new table if there is none.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub async fn write(
        &self,
        schema: &Schema,
        options: &WriteOptions,
        ids: &dyn Ids,
        now_ms: i64,
    ) -> Result<Transaction> {
        Transaction::write(&self.log, self.cached_state(now_ms), schema, options, ids, now_ms).await
    }

    /// Continues a write that another process began.
    ///
    /// # Errors
    /// As [`Transaction::resume`].
    pub fn resume(&self, header: TransactionHeader) -> Result<Transaction> {
        Transaction::resume(&self.log, header)
    }

    /// Creates the empty table, or replaces an existing one, by the mode. If several processes create it at once, one
    /// succeeds, and for the others the table exists already.
    ///
    /// # Errors
    /// As [`Transaction::create`] and [`Table::commit`].
    pub async fn create(
        &self,
        definition: TableDefinition,
        mode: CreateMode,
        ids: &dyn Ids,
        retry: &dyn RetryPolicy,
    ) -> Result<TransactionEnd> {
        loop {
            let now_ms = retry.now_ms();
            let cached = self.cached_state(now_ms);
            let transaction = Transaction::create(&self.log, cached, definition.clone(), mode, ids, now_ms).await?;
            let creates = transaction.creates();
            match (self.commit_alone(transaction, retry).await, mode) {
                (Ok(ended), _) => return Ok(ended),
                (Err(error), _) if !creates || !was_created_by_another(&error) => return Err(error),
                // The table exists now.
                (Err(_), CreateMode::Ignore | CreateMode::CreateOrReplace) => {}
                (Err(error), CreateMode::Error | CreateMode::Replace) => {
                    return Err(Error::table_exists().in_table(self.log.location()).caused_by(error));
                }
            }
        }
    }

    /// Makes a table of the existing Parquet files.
    ///
    /// # Errors
    /// As [`convert::convert`].
    pub async fn convert(&self, options: ConvertOptions, ids: &dyn Ids, retry: &dyn RetryPolicy) -> Result<Converted> {
        let committer = self.committer_for_operation();
        convert::convert(&self.log, options, ids, committer.as_ref(), retry).await
    }

    /// Commits a transaction on this table, and compacts small files afterwards, if the table's properties ask for that.
    /// The state after the commit is cached; if it fails, the cache is invalidated.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn commit(
        &self,
        transaction: Transaction,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) -> Result<TransactionEnd> {
        let mut ended = self.commit_alone(transaction, retry).await?;
        if let TransactionEnd::Committed(outcome) = &mut ended {
            Box::pin(self.compact_after(outcome, ids, clock, retry)).await;
        }
        Ok(ended)
    }

    async fn commit_alone(&self, transaction: Transaction, retry: &dyn RetryPolicy) -> Result<TransactionEnd> {
        if transaction.storage().location() != self.log.location() {
            return Err(
                Error::internal("a transaction of another table was to be committed").in_table(self.log.location())
            );
        }
        let ended = transaction.commit(self.committer.as_ref(), retry).await;
        match &ended {
            Ok(TransactionEnd::Committed(outcome)) => {
                let state = (outcome.post_commit.handle_state.clone(), retry.now_ms());
                self.locked(|cached| cached.state = Some(state));
            }
            Ok(TransactionEnd::Replayed(_) | TransactionEnd::Nothing) => {}
            Err(_) => self.invalidate(),
        }
        ended
    }

    /// Ends a transaction without a commit. The cached state is invalidated, since it may be outdated.
    pub async fn abandon(&self, transaction: Transaction) {
        self.invalidate();
        transaction.abandon().await;
    }

    /// Enables row tracking.
    ///
    /// # Errors
    /// As [`backfill::enable_row_tracking`].
    pub async fn enable_row_tracking(&self, ids: &dyn Ids, retry: &dyn RetryPolicy) -> Result<Enabled> {
        backfill::enable_row_tracking(&self.log, self.committer_for_operation().as_ref(), ids, retry).await
    }

    /// Rewrites files in a better layout.
    ///
    /// # Errors
    /// As [`maintenance::optimize`].
    pub async fn optimize(
        &self,
        options: &OptimizeOptions,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) -> Result<Optimized> {
        let (committer, latest) = self.start_operation();
        let context = CommitContext { committer: committer.as_ref(), retry };
        maintenance::optimize(&self.log, latest, options, ids, clock, context).await
    }

    /// The committer for an operation that commits by itself. The state after the last commit is no longer used.
    pub fn committer_for_operation(&self) -> Arc<dyn Committer> {
        self.invalidate();
        self.committer.clone()
    }

    /// The committer, and the newest version that was opened, for an operation that commits by itself.
    fn start_operation(&self) -> (Arc<dyn Committer>, Option<Snapshot>) {
        (self.committer_for_operation(), self.locked(|cached| cached.latest.clone()))
    }

    /// What [`Table::optimize`] would do.
    ///
    /// # Errors
    /// As [`maintenance::plan_optimize`].
    pub async fn plan_optimize(&self, options: &OptimizeOptions, ids: &dyn Ids, clock: Clock) -> Result<Optimized> {
        let latest = self.locked(|cached| cached.latest.clone());
        maintenance::plan_optimize(&self.log, latest, options, ids, clock).await
    }

    /// Rewrites live files without deleted rows and dropped columns, and deletes rows by rewriting their files.
    ///
    /// # Errors
    /// As [`purge::purge`].
    pub async fn purge(
        &self,
        options: &PurgeOptions,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) -> Result<Purged> {
        let (committer, latest) = self.start_operation();
        let context = CommitContext { committer: committer.as_ref(), retry };
        purge::purge(&self.log, latest, options, ids, clock, context).await
    }

    /// What [`Table::purge`] would do.
    ///
    /// # Errors
    /// As [`purge::plan_purge`].
    pub async fn plan_purge(&self, options: &PurgeOptions, ids: &dyn Ids, clock: Clock) -> Result<Purged> {
        let latest = self.locked(|cached| cached.latest.clone());
        purge::plan_purge(&self.log, latest, options, ids, clock).await
    }

    /// Drops a feature from the protocol.
    ///
    /// # Errors
    /// As [`drop_feature::drop_feature`].
    pub async fn drop_feature(
        &self,
        name: &str,
        truncates_history: bool,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) -> Result<Box<Outcome>> {
        let committer = self.committer_for_operation();
        let context = CommitContext { committer: committer.as_ref(), retry };
        drop_feature::drop_feature(&self.log, name, truncates_history, ids, clock, context).await
    }

    /// Deletes files that no version within the retention needs.
    ///
    /// # Errors
    /// As [`maintenance::vacuum`].
    pub async fn vacuum(&self, options: VacuumOptions, ids: &dyn Ids, retry: &dyn RetryPolicy) -> Result<Vacuumed> {
        let committer = self.committer_for_operation();
        let context = CommitContext { committer: committer.as_ref(), retry };
        maintenance::vacuum(&self.log, options, ids, context).await
    }

    /// Makes the table equal to an older version.
    ///
    /// # Errors
    /// As [`copies::restore`].
    pub async fn restore(
        &self,
        to: &RestoreTo,
        options: RestoreOptions,
        ids: &dyn Ids,
        retry: &dyn RetryPolicy,
    ) -> Result<Restored> {
        let (committer, latest) = self.start_operation();
        let context = CommitContext { committer: committer.as_ref(), retry };
        copies::restore(&self.log, latest, to, options, ids, context).await
    }

    /// Makes the table at `target` equal to a version of this one.
    ///
    /// # Errors
    /// As [`copies::clone`].
    pub async fn clone_to(
        &self,
        target: &Self,
        at: At,
        options: CloneOptions,
        ids: &dyn Ids,
        retry: &dyn RetryPolicy,
    ) -> Result<TransactionEnd> {
        let committer = target.committer_for_operation();
        let (source, options) = self.source_of_clone(at, options).await?;
        copies::clone(&source, &target.log, options, committer.as_ref(), ids, retry).await
    }

    /// What [`Table::clone_to`] would do.
    ///
    /// # Errors
    /// As [`copies::plan_clone`].
    pub async fn plan_clone_to(
        &self,
        target: &Self,
        at: At,
        options: CloneOptions,
        ids: &dyn Ids,
        retry: &dyn RetryPolicy,
    ) -> Result<ClonePlan> {
        let (source, options) = self.source_of_clone(at, options).await?;
        copies::plan_clone(&source, &target.log, options, ids, retry).await
    }

    /// The version to clone. Files of an older version may be gone.
    async fn source_of_clone(&self, at: At, options: CloneOptions) -> Result<(Snapshot, CloneOptions)> {
        let options = CloneOptions { checks_files: !matches!(at, At::Newest), ..options };
        Ok((self.snapshot(at).await?, options))
    }

    /// Repairs what a check finds, or reports what that would do.
    ///
    /// # Errors
    /// As [`repair::repair`].
    pub async fn repair(&self, dry_run: bool, ids: &dyn Ids, retry: &dyn RetryPolicy) -> Result<Repaired> {
        repair::repair(&self.log, dry_run, ids, self.committer_for_operation().as_ref(), retry).await
    }

    /// Moves the versions after `version` out of the log, if they cannot be read, or reports what that would do.
    ///
    /// # Errors
    /// As [`repair::recover`].
    pub async fn recover(
        &self,
        version: u64,
        dry_run: bool,
        ids: &dyn Ids,
        retry: &dyn RetryPolicy,
    ) -> Result<Repaired> {
        self.invalidate();
        repair::recover(&self.log, version, dry_run, ids, retry).await
    }

    /// The newest commits, at most `limit`.
    ///
    /// # Errors
    /// As [`history::history`].
    pub async fn history(&self, limit: Option<usize>) -> Result<Vec<Map<String, Value>>> {
        history::history(&self.log, limit).await
    }

    /// Writes a checkpoint of the newest version. Returns that version.
    ///
    /// # Errors
    /// As [`checkpoint_writer::checkpoint`].
    pub async fn checkpoint(&self, now_ms: i64) -> Result<u64> {
        checkpoint_writer::checkpoint(&self.log, now_ms).await
    }

    /// Deletes log files that have expired. Returns how many.
    ///
    /// # Errors
    /// As [`cleanup::clean_log`].
    pub async fn clean_log(&self, now_ms: i64) -> Result<u64> {
        cleanup::clean_log(&self.log, now_ms).await
    }

    /// Writes a log compaction of the commits from `start` to `end`. Returns the name of its file.
    ///
    /// # Errors
    /// As [`crate::compaction::compact_log`].
    pub async fn compact_log(&self, start: Option<u64>, end: Option<u64>) -> Result<String> {
        crate::compaction::compact_log(&self.log, self.committer.as_ref(), start, end).await
    }

    /// Writes the checksum of the newest version, unless it has one. Returns that version.
    ///
    /// # Errors
    /// As [`post_commit::write_checksum`].
    pub async fn write_checksum(&self) -> Result<u64> {
        post_commit::write_checksum(&Snapshot::open(&self.log, None).await?, self.committer.as_ref()).await
    }

    /// The state after the last commit is no longer used, since it may be outdated.
    fn invalidate(&self) {
        self.locked(|cached| cached.state = None);
    }

    /// What a transaction that starts now may use.
    fn cached_state(&self, now_ms: i64) -> HandleCache {
        self.locked(|cached| {
            let is_fresh = |since: i64| (0..FRESH_MS).contains(&now_ms.saturating_sub(since));
            let state = cached.state.as_ref().filter(|(_, since)| is_fresh(*since)).map(|(state, _)| state.clone());
            HandleCache { state, latest: cached.latest.clone(), now_ms: Some(now_ms) }
        })
    }

    fn locked<T>(&self, look: impl FnOnce(&mut CachedState) -> T) -> T {
        look(&mut self.cached.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a commit failed to create a table because it exists already.
fn was_created_by_another(error: &Error) -> bool {
    matches!(error.kind(), Kind::Conflict(Conflict::ProtocolChanged))
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("location", &self.log.location()).finish_non_exhaustive()
    }
}
