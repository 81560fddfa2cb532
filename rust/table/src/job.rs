//! A write in three steps: plan it, write files anywhere, commit them once.
//!
//! The driver makes a [`WriteJob`], which travels to executors; they return [`DataFile`]s; the driver commits those of the
//! attempts that succeeded. A step that is run twice leaves files that nobody refers to, never rows twice.
//!
//! PROTOCOL.md: "Commit Protocol", "Table Properties".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use deltic_protocol::action::{Action, Add, Metadata, Protocol, Remove, Txn};
use deltic_protocol::commit::{Actions, Pending, ReadSet, TableState};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::{IsolationLevel, Properties, stored};
use deltic_protocol::schema::arrow::{check_extensions, from_rows_schema};
use deltic_protocol::schema::{StructType, json};
use deltic_protocol::stats::collect::IndexedColumns;
use deltic_protocol::{feature, validation};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::after_commit::{AfterCommit, check_base, verify_base};
use crate::checkpoint::read::AddColumns;
use crate::committers::{CommitFile, for_table};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::{Storage, decode_path};
use crate::transaction::{PreparedCommit, RetryPolicy, commit, log_committed, log_conflict, state_of};
use crate::write::conform::Conformer;
use crate::write::spec::{Compression, DataFile, WriteSpec};

/// Layout of the byte form; another one is refused.
const FORM: u32 = 5;

/// What happens to the rows that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They stay.
    Append,
    /// The new rows take their place.
    Overwrite,
    /// There must be no table yet.
    Error,
}

/// What a caller may choose; the rest follows from the table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteOptions {
    /// Properties of a new table.
    pub properties: BTreeMap<String, String>,
    /// Name of a new table.
    pub name: Option<String>,
    /// Description of a new table.
    pub description: Option<String>,
    /// Bytes at which a data file is closed and another begun.
    pub target_file_size: Option<u64>,
    /// Parquet codec.
    pub compression: Option<String>,
    /// Free text for the commit info.
    pub user_metadata: Option<String>,
    /// The application's id, for writes that must happen once.
    pub app_id: Option<String>,
    /// The application's own version of this write.
    pub app_version: Option<i64>,
}

/// A planned write: plain data with a versioned byte form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteJob {
    form: u32,
    /// Where the table is.
    pub location: String,
    mode: Mode,
    base: Option<TableState>,
    /// The file of the base's commit: when the job is committed, the table may be another.
    base_file: Option<CommitFile>,
    created: Option<(Protocol, Metadata)>,
    spec: WriteSpec,
    options: WriteOptions,
    txn_id: String,
}

/// What a committed write did.
#[derive(Debug, Clone, Serialize)]
pub struct WriteOutcome {
    /// Version of the commit.
    pub version: u64,
    /// How many puts it took.
    pub attempts: u32,
    /// Files that joined the table.
    pub num_added_files: u64,
    /// Counters, as in the commit's `operationMetrics`.
    pub metrics: Map<String, Value>,
}

/// What identifies a new table and a new transaction; passed in, since neither may come from hidden randomness.
pub trait Ids: Send + Sync {
    /// A new unique id.
    fn unique(&self) -> String;
}

impl WriteJob {
    /// Plans a write of rows with `schema` into the table at `storage`, which is created if it is not there.
    ///
    /// # Errors
    /// `TableExists` if there is a table and the mode forbids it; `Invalid` if the partitioning is another, or the table is
    /// append-only and the mode is not; `Unsupported` if the table asks writers for something that deltic does not do.
    pub async fn plan(
        storage: &Storage,
        schema: &Schema,
        mode: Mode,
        partition_by: Option<&[String]>,
        options: WriteOptions,
        (ids, retry): (&dyn Ids, &dyn RetryPolicy),
    ) -> Result<Self> {
        let in_table = |e: Error| e.in_table(storage.location());
        if options.app_id.is_some() != options.app_version.is_some() {
            return Err(in_table(Error::invalid("app_id and app_version belong together; give both or neither")));
        }
        match Snapshot::find(storage).await? {
            Some(_) if mode == Mode::Error => Err(in_table(Error::table_exists())),
            Some(snapshot) => {
                let state = state_of(&snapshot).await?;
                check_existing(&state, mode, partition_by, &options).map_err(in_table)?;
                check_columns(&state, schema).map_err(in_table)?;
                let spec = write_spec((&state.protocol, &state.metadata), &options).map_err(in_table)?;
                let file = snapshot.segment().latest_commit().map(CommitFile::listed);
                Ok(Self::new(storage, mode, Some((state, file)), None, spec, (options, ids)))
            }
            None => {
                let table = NewTable {
                    schema: from_rows_schema(schema).map_err(in_table)?,
                    partition_by: partition_by.unwrap_or_default().to_vec(),
                    properties: options.properties.clone(),
                    name: options.name.clone(),
                    description: options.description.clone(),
                };
                let new_schema = table.schema.clone();
                let (protocol, metadata) = table.actions(ids, retry).map_err(in_table)?;
                // Some tables can be created and not filled.
                feature::check_writable(&protocol, &metadata, &new_schema).map_err(in_table)?;
                let spec = write_spec((&protocol, &metadata), &options).map_err(in_table)?;
                Ok(Self::new(storage, mode, None, Some((protocol, metadata)), spec, (options, ids)))
            }
        }
    }

    fn new(
        storage: &Storage,
        mode: Mode,
        base: Option<(TableState, Option<CommitFile>)>,
        created: Option<(Protocol, Metadata)>,
        spec: WriteSpec,
        (options, ids): (WriteOptions, &dyn Ids),
    ) -> Self {
        let (location, txn_id) = (storage.location().to_owned(), ids.unique());
        let (base, file) = base.unzip();
        let base_file = file.flatten();
        Self { form: FORM, location, mode, base, base_file, created, spec, options, txn_id }
    }

    /// The byte form.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::internal("a write job cannot be printed").caused_by(e))
    }

    /// Reads the byte form.
    ///
    /// # Errors
    /// `Invalid` if the bytes are of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let foreign =
            || Error::invalid("these bytes are no write job of this release of deltic; use the same everywhere");
        let job: Self = serde_json::from_slice(bytes).map_err(|e| foreign().caused_by(e))?;
        if job.form == FORM { Ok(job) } else { Err(foreign()) }
    }

    /// How to write the files.
    pub fn spec(&self) -> &WriteSpec {
        &self.spec
    }

    /// Commits written files. A checksum follows, and a checkpoint when one is due; a failure of that is reported in the
    /// metrics.
    ///
    /// If the application's write is in the table already, nothing is committed, with no attempt, and the files are
    /// removed. A job that was committed can be committed again and gives the same version.
    ///
    /// # Errors
    /// As [`commit`](crate::transaction::commit); `Conflict` also if two writers create the table at once, or if it is not the one that the
    /// job was planned for.
    pub async fn commit(
        &self,
        storage: &Storage,
        files: Vec<DataFile>,
        retry: &dyn RetryPolicy,
    ) -> Result<WriteOutcome> {
        self.commit_each(storage, files.into_iter().map(Ok), retry).await
    }

    /// As [`WriteJob::commit`], of files that are looked at one by one: there may be a million.
    ///
    /// # Errors
    /// As [`WriteJob::commit`], and those of `files`.
    pub async fn commit_each(
        &self,
        storage: &Storage,
        files: impl Iterator<Item = Result<DataFile>>,
        retry: &dyn RetryPolicy,
    ) -> Result<WriteOutcome> {
        let in_table = |e: Error| e.in_table(storage.location());
        if let Some(version) = self.committed_before(storage).await? {
            self.abort(storage, files.collect::<Result<_>>()?).await;
            return Ok(WriteOutcome { version, attempts: 0, num_added_files: 0, metrics: Map::new() });
        }
        let mut metrics = Map::new();
        let mut actions = Actions::new();
        if let Some((protocol, metadata)) = &self.created {
            actions.push(Action::Protocol(protocol.clone()))?;
            actions.push(Action::Metadata(metadata.clone()))?;
        }
        if let (Some(app_id), Some(version)) = (&self.options.app_id, self.options.app_version) {
            actions.push(Action::Txn(Txn { app_id: app_id.clone(), version, last_updated: Some(retry.now_ms()) }))?;
        }
        let mut read = ReadSet::Nothing;
        if let (Mode::Overwrite, Some(base)) = (self.mode, &self.base) {
            read = ReadSet::WholeTable;
            remove_all(storage, base.version, &mut actions, retry.now_ms()).await?;
            metrics.insert("numRemovedFiles".to_owned(), json!(actions.num_removed().to_string()));
        }
        let (mut num_added_files, mut rows, mut bytes) = (0_u64, 0_u64, 0_i64);
        for file in files {
            let file = file?;
            num_added_files += 1;
            rows = rows.saturating_add(file.rows);
            bytes = bytes.saturating_add(file.add.size);
            actions.push(Action::Add(file.add))?;
        }
        metrics.insert("numFiles".to_owned(), json!(num_added_files.to_string()));
        metrics.insert("numOutputRows".to_owned(), json!(rows.to_string()));
        metrics.insert("numOutputBytes".to_owned(), json!(bytes.to_string()));

        let isolation = match &self.base {
            Some(base) => Properties::of(&base.metadata).isolation_level().map_err(in_table)?,
            None => IsolationLevel::default(),
        };
        let pending = Pending { state: self.base.clone(), read, read_apps: BTreeSet::new(), isolation, actions };
        let transaction = PreparedCommit {
            pending,
            operation: if self.created.is_some() { "CREATE TABLE AS SELECT" } else { "WRITE" }.to_owned(),
            parameters: self.parameters(),
            metrics: metrics.clone(),
            user_metadata: self.options.user_metadata.clone(),
            txn_id: self.txn_id.clone(),
        };
        let committer = for_table(storage);
        if let Some(base) = &self.base {
            check_base(committer.as_ref(), (base, self.base_file)).await.map_err(|failed| in_table(failed.into()))?;
        }
        let committed =
            commit(transaction, committer.as_ref(), retry).await.map_err(in_table).inspect_err(log_conflict)?;
        log_committed(&committed, storage.location());
        let (version, attempts) = (committed.version, committed.attempts);
        let verified = async {
            match &self.base {
                Some(base) => verify_base(committer.as_ref(), &committed, (base, self.base_file)).await,
                None => Ok(()),
            }
        };
        let after = AfterCommit::run_if(storage, &committed, (None, verified), retry.now_ms()).await;
        let AfterCommit { failed, .. } = after.map_err(|failed| in_table(failed.into()))?;
        metrics.extend(failed.into_iter().map(|(what, error)| (what.to_owned(), json!(error.to_string()))));
        Ok(WriteOutcome { version, attempts, num_added_files, metrics })
    }

    /// The version that the job was planned on, if the application's write (or a later one) is in it.
    async fn committed_before(&self, storage: &Storage) -> Result<Option<u64>> {
        let (Some(app_id), Some(version), Some(base)) = (&self.options.app_id, self.options.app_version, &self.base)
        else {
            return Ok(None);
        };
        let txns = Snapshot::open(storage, Some(base.version)).await?.txns().await?;
        Ok(txns.iter().any(|t| &t.app_id == app_id && t.version >= version).then_some(base.version))
    }

    /// Removes written files that will not be committed, as far as the store lets it.
    pub async fn abort(&self, storage: &Storage, files: Vec<DataFile>) {
        for file in files {
            if let Ok(path) = decode_path(&file.add.path) {
                // Best effort: a file that stays is an orphan that vacuum finds.
                let _deleted = storage.delete(&path).await;
            }
        }
    }

    fn parameters(&self) -> Map<String, Value> {
        let mode = match self.mode {
            Mode::Append => "Append",
            Mode::Overwrite => "Overwrite",
            Mode::Error => "ErrorIfExists",
        };
        let mut parameters = Map::new();
        parameters.insert("mode".to_owned(), json!(mode));
        // The members of operationParameters are texts, and this one is JSON inside its text, as Spark writes it.
        parameters.insert("partitionBy".to_owned(), json!(json!(self.spec.partition_columns).to_string()));
        parameters
    }
}

fn check_existing(
    state: &TableState,
    mode: Mode,
    partition_by: Option<&[String]>,
    options: &WriteOptions,
) -> Result<()> {
    let schema = state.metadata.schema()?;
    let partitions = &state.metadata.partition_columns;
    feature::check_writable(&state.protocol, &state.metadata, &schema)?;
    if mode == Mode::Overwrite && Properties::of(&state.metadata).append_only()? {
        return Err(Error::invalid("the table is append-only (`delta.appendOnly`), so its rows cannot be replaced"));
    }
    // In the schema's spelling, which new tables get as well.
    let is_same = |columns: &&[String]| {
        let spelled = columns.iter().map(|name| schema.field(name).map_or(name, |field| &field.name));
        spelled.eq(partitions)
    };
    if let Some(columns) = partition_by.filter(|columns| !is_same(columns)) {
        return Err(Error::invalid(format!(
            "the table is partitioned by [{}], not by [{}]; leave partition_by out, or write to another table",
            partitions.join(", "),
            columns.join(", ")
        )));
    }
    if !options.properties.is_empty() || options.name.is_some() || options.description.is_some() {
        return Err(Error::invalid(
            "properties, name and description are for a new table, and there is one already; leave them out",
        ));
    }
    Ok(())
}

/// No row yet, but what can be said of the columns is said before any file is written.
pub(crate) fn check_columns(state: &TableState, rows: &Schema) -> Result<()> {
    check_extensions(rows)?;
    let schema = state.metadata.schema()?;
    let mapping = Properties::of(&state.metadata).column_mapping(&state.protocol, &schema)?;
    let shape = TableShape { schema, partition_columns: state.metadata.partition_columns.clone(), mapping };
    let conformer = Conformer::new(&shape.schema, shape.mapping)?.with_partition_columns(&shape.partition_columns);
    conformer.conform(&RecordBatch::new_empty(Arc::new(rows.clone()))).map(drop)
}

/// How files are written for a table with this protocol and metadata.
///
/// # Errors
/// `Invalid` for an option, `Corrupt` for a property that cannot be read.
pub fn write_spec((protocol, metadata): (&Protocol, &Metadata), options: &WriteOptions) -> Result<WriteSpec> {
    let properties = Properties::of(metadata);
    let mut spec = WriteSpec::new(metadata.schema_string.clone(), metadata.partition_columns.clone());
    let mapping = properties.column_mapping(protocol, &metadata.schema()?)?;
    mapping.as_str().clone_into(&mut spec.column_mapping);
    spec.indexed_columns = IndexedColumns::of(properties)?;
    spec.string_prefix_length = properties.string_prefix_length()?;
    spec.compression = match &options.compression {
        Some(codec) => Compression::parse(codec)?,
        None => match properties.get("delta.parquet.compression.codec") {
            Some(codec) => Compression::parse(codec)?,
            None => Compression::default(),
        },
    };
    spec.page_version = properties.page_version()?;
    spec.random_prefix_length = properties.random_prefix_length()?;
    if let Some(size) = options.target_file_size.or(properties.target_file_size()?) {
        spec.target_file_size = size;
    }
    Ok(spec)
}

/// Says that every live file of `version` goes.
async fn remove_all(storage: &Storage, version: u64, actions: &mut Actions, now_ms: i64) -> Result<()> {
    let snapshot = Snapshot::open(storage, Some(version)).await?;
    let columns = AddColumns {
        members: vec!["path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion"],
        ..AddColumns::default()
    };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    while let Some(adds) = live.try_next().await? {
        for row in 0..adds.len() {
            actions.push(Action::Remove(remove_of(adds.add(row)?, now_ms)))?;
        }
    }
    Ok(())
}

/// Takes a file out of the table.
pub(crate) fn remove_of(add: Add, now_ms: i64) -> Remove {
    Remove {
        path: add.path,
        deletion_timestamp: Some(now_ms),
        data_change: true,
        extended_file_metadata: Some(true),
        partition_values: Some(add.partition_values),
        size: Some(add.size),
        deletion_vector: add.deletion_vector,
        base_row_id: add.base_row_id,
        default_row_commit_version: add.default_row_commit_version,
        ..Remove::default()
    }
}

/// A table to be.
#[derive(Debug, Clone)]
pub struct NewTable {
    /// Its schema.
    pub schema: StructType,
    /// Columns of it, in order.
    pub partition_by: Vec<String>,
    /// Table properties.
    pub properties: BTreeMap<String, String>,
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
}

impl NewTable {
    /// Creates the empty table.
    ///
    /// # Errors
    /// `Invalid` if the schema cannot be a table's; `TableExists` if there is a table already.
    pub async fn create(self, storage: &Storage, (ids, retry): (&dyn Ids, &dyn RetryPolicy)) -> Result<u64> {
        let in_table = |e: Error| e.in_table(storage.location());
        if Snapshot::find(storage).await?.is_some() {
            return Err(in_table(Error::table_exists()));
        }
        let partition_by = json!(json!(self.partition_by).to_string());
        let properties = json!(json!(self.properties).to_string());
        let description = json!(self.description);
        let (protocol, metadata) = self.actions(ids, retry).map_err(in_table)?;
        let parameters = [
            ("isManaged", json!("false")),
            ("description", description),
            ("partitionBy", partition_by),
            ("properties", properties),
        ];
        let transaction = PreparedCommit {
            pending: Pending {
                state: None,
                read: ReadSet::Nothing,
                read_apps: BTreeSet::new(),
                isolation: IsolationLevel::default(),
                actions: Actions::of([Action::Protocol(protocol), Action::Metadata(metadata)])?,
            },
            operation: "CREATE TABLE".to_owned(),
            parameters: parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            metrics: Map::new(),
            user_metadata: None,
            txn_id: ids.unique(),
        };
        let committed = commit(transaction, for_table(storage).as_ref(), retry).await.map_err(in_table)?;
        // Best effort: the table is there with or without a checksum.
        let _after = AfterCommit::run(storage, &committed, None, retry.now_ms()).await;
        Ok(committed.version)
    }

    fn actions(mut self, ids: &dyn Ids, retry: &dyn RetryPolicy) -> Result<(Protocol, Metadata)> {
        let protocol = feature::protocol_for(&self.schema, &self.properties)?;
        let mut configuration = stored(&self.properties);
        validation::check_new(&self.schema, &mut self.partition_by, &configuration)?;
        name_row_tracking_columns(&mut configuration, ids)?;
        let metadata = Metadata {
            id: ids.unique(),
            name: self.name,
            description: self.description,
            format: Default::default(),
            schema_string: json::print(&self.schema),
            partition_columns: self.partition_by,
            created_time: Some(retry.now_ms()),
            configuration,
        };
        Ok((protocol, metadata))
    }
}

/// Where row tracking is enabled, rewritten files keep ids in columns whose names no other column has.
pub(crate) fn name_row_tracking_columns(configuration: &mut BTreeMap<String, String>, ids: &dyn Ids) -> Result<()> {
    if Properties::new(configuration).is_true("delta.enableRowTracking")? {
        for (key, prefix) in [
            ("delta.rowTracking.materializedRowIdColumnName", "_row-id-col-"),
            ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-commit-version-col-"),
        ] {
            configuration.entry(key.to_owned()).or_insert_with(|| format!("{prefix}{}", ids.unique()));
        }
    }
    Ok(())
}
