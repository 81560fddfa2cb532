//! A write in three steps: plan it, write files anywhere, commit them once.
//!
//! The driver makes a [`WriteJob`], which travels to executors; they return [`DataFile`]s; the driver commits those of the
//! attempts that succeeded. A step that is run twice leaves files that nobody refers to, never rows twice.
//!
//! PROTOCOL.md: "Commit Protocol", "Table Properties".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use deltic_protocol::action::{Action, Add, Metadata, Protocol, Remove, Txn};
use deltic_protocol::conflict::ReadSet;
use deltic_protocol::feature;
use deltic_protocol::property::{Properties, stored};
use deltic_protocol::schema::arrow::from_arrow_schema;
use deltic_protocol::schema::{DataType, StructType, json};
use deltic_protocol::stats::collect::IndexedColumns;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::checkpoint;
use crate::checkpoint::read::AddColumns;
use crate::commit::LogCommitter;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::{Storage, decode_path};
use crate::transaction::{Committed, Pace, Transaction};
use crate::write::conform::Conformer;
use crate::write::spec::{Compression, DataFile, WriteSpec};

/// Layout of the byte form; another one is refused.
const FORM: u32 = 1;

/// Commits between checkpoints of a table whose property cannot be read.
const CHECKPOINT_INTERVAL: u64 = 10;

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
    base: Option<u64>,
    created: Option<(Protocol, Metadata)>,
    spec: WriteSpec,
    options: WriteOptions,
    txn_id: String,
    /// Commits between checkpoints.
    checkpoint_interval: u64,
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
    /// `Invalid` if there is a table and the mode forbids it, or the partitioning is another, or the table is append-only
    /// and the mode is not; `Unsupported` if the table asks writers for something that deltic does not do.
    pub async fn plan(
        storage: &Storage,
        schema: &Schema,
        mode: Mode,
        partition_by: Option<&[String]>,
        options: WriteOptions,
        (ids, pace): (&dyn Ids, &dyn Pace),
    ) -> Result<Self> {
        let in_table = |e: Error| e.in_table(storage.location());
        if options.app_id.is_some() != options.app_version.is_some() {
            return Err(in_table(Error::invalid("app_id and app_version belong together; give both or neither")));
        }
        let (base, created, metadata) = match Snapshot::open(storage, None).await {
            Ok(_) if mode == Mode::Error => {
                return Err(in_table(Error::invalid(
                    "there is a table already; append to it, or choose another place",
                )));
            }
            Ok(snapshot) => {
                check_existing(&snapshot, mode, partition_by, &options).map_err(in_table)?;
                let shape = snapshot.shape();
                let conformer = Conformer::new(&shape.schema, shape.mapping).map_err(in_table)?;
                // No row yet, but what can be said of the columns is said before any file is written.
                conformer.conform(&RecordBatch::new_empty(Arc::new(schema.clone()))).map_err(in_table)?;
                (Some(snapshot.version()), None, snapshot.metadata().clone())
            }
            Err(e) if e.is_not_found() => {
                let table = NewTable {
                    schema: from_arrow_schema(schema).map_err(in_table)?,
                    partition_by: partition_by.unwrap_or_default().to_vec(),
                    properties: options.properties.clone(),
                    name: options.name.clone(),
                    description: options.description.clone(),
                };
                let (protocol, metadata) = table.actions(ids, pace).map_err(in_table)?;
                (None, Some((protocol, metadata.clone())), metadata)
            }
            Err(e) => return Err(e),
        };
        let spec = write_spec(&metadata, &options).map_err(in_table)?;
        let location = storage.location().to_owned();
        // A property that only checkpoints depend on must not stop the write.
        let checkpoint_interval = Properties::of(&metadata).checkpoint_interval().unwrap_or(CHECKPOINT_INTERVAL);
        let txn_id = ids.unique();
        Ok(Self { form: FORM, location, mode, base, created, spec, options, txn_id, checkpoint_interval })
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

    /// Commits written files. A checkpoint follows when one is due; its failure is reported in the metrics.
    ///
    /// If the application's write is in the table already, nothing is committed, with no attempt, and the files are
    /// removed. A job that was committed can be committed again and gives the same version.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; `Conflict` also if two writers create the table at once.
    pub async fn commit(&self, storage: &Storage, files: Vec<DataFile>, pace: &dyn Pace) -> Result<WriteOutcome> {
        let in_table = |e: Error| e.in_table(storage.location());
        if let Some(version) = self.committed_before(storage).await? {
            self.abort(storage, files).await;
            return Ok(WriteOutcome { version, attempts: 0, num_added_files: 0, metrics: Map::new() });
        }
        let rows: u64 = files.iter().map(|f| f.rows).sum();
        let bytes: i64 = files.iter().map(|f| f.add.size).sum();
        let adds: Vec<Add> = files.into_iter().map(|f| f.add).collect();
        let num_added_files = adds.len() as u64;
        let mut metrics = Map::new();
        metrics.insert("numFiles".to_owned(), json!(num_added_files.to_string()));
        metrics.insert("numOutputRows".to_owned(), json!(rows.to_string()));
        metrics.insert("numOutputBytes".to_owned(), json!(bytes.to_string()));

        let mut actions = Vec::with_capacity(adds.len() + 3);
        if let Some((protocol, metadata)) = &self.created {
            actions.push(Action::Protocol(protocol.clone()));
            actions.push(Action::Metadata(metadata.clone()));
        }
        if let (Some(app_id), Some(version)) = (&self.options.app_id, self.options.app_version) {
            actions.push(Action::Txn(Txn { app_id: app_id.clone(), version, last_updated: Some(pace.now_ms()) }));
        }
        let mut read = ReadSet::Nothing;
        if let (Mode::Overwrite, Some(base)) = (self.mode, self.base) {
            read = ReadSet::WholeTable;
            let removes = remove_all(storage, base, pace.now_ms()).await?;
            metrics.insert("numRemovedFiles".to_owned(), json!(removes.len().to_string()));
            actions.extend(removes.into_iter().map(Action::Remove));
        }
        actions.extend(adds.into_iter().map(Action::Add));

        let transaction = Transaction {
            base: self.base,
            read,
            actions,
            operation: if self.created.is_some() { "CREATE TABLE AS SELECT" } else { "WRITE" }.to_owned(),
            parameters: self.parameters(),
            metrics: metrics.clone(),
            user_metadata: self.options.user_metadata.clone(),
            txn_id: self.txn_id.clone(),
        };
        let Committed { version, attempts } =
            transaction.commit(&LogCommitter::new(storage.clone()), pace).await.map_err(in_table)?;
        let interval = self.checkpoint_interval;
        if let Some(error) = checkpoint::write::when_due(storage, version, interval, pace.now_ms()).await {
            metrics.insert("checkpointError".to_owned(), json!(error.to_string()));
        }
        Ok(WriteOutcome { version, attempts, num_added_files, metrics })
    }

    /// The version that the job was planned on, if the application's write (or a later one) is in it.
    async fn committed_before(&self, storage: &Storage) -> Result<Option<u64>> {
        let (Some(app_id), Some(version), Some(base)) = (&self.options.app_id, self.options.app_version, self.base)
        else {
            return Ok(None);
        };
        let txns = Snapshot::open(storage, Some(base)).await?.txns().await?;
        Ok(txns.iter().any(|t| &t.app_id == app_id && t.version >= version).then_some(base))
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
    snapshot: &Snapshot,
    mode: Mode,
    partition_by: Option<&[String]>,
    options: &WriteOptions,
) -> Result<()> {
    let shape = snapshot.shape();
    feature::check_writable(snapshot.protocol(), snapshot.metadata(), &shape.schema)?;
    if mode == Mode::Overwrite && Properties::of(snapshot.metadata()).append_only()? {
        return Err(Error::invalid("the table is append-only (`delta.appendOnly`), so its rows cannot be replaced"));
    }
    // In the schema's spelling, which new tables get as well.
    let is_same = |columns: &&[String]| {
        let spelled = columns.iter().map(|name| shape.schema.field(name).map_or(name, |field| &field.name));
        spelled.eq(&shape.partition_columns)
    };
    if let Some(columns) = partition_by.filter(|columns| !is_same(columns)) {
        return Err(Error::invalid(format!(
            "the table is partitioned by [{}], not by [{}]; leave partition_by out, or write to another table",
            shape.partition_columns.join(", "),
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

fn write_spec(metadata: &Metadata, options: &WriteOptions) -> Result<WriteSpec> {
    let properties = Properties::of(metadata);
    let mut spec = WriteSpec::new(metadata.schema_string.clone(), metadata.partition_columns.clone());
    if let Some(mode) = properties.get("delta.columnMapping.mode") {
        spec.column_mapping = mode.to_owned();
    }
    spec.indexed_columns = IndexedColumns::of(properties)?;
    spec.string_prefix_length = properties.string_prefix_length()?;
    spec.compression = match &options.compression {
        Some(codec) => Compression::parse(codec)?,
        None => match properties.get("delta.parquet.compression.codec") {
            Some(codec) => Compression::parse(codec)?,
            None => Compression::default(),
        },
    };
    if let Some(size) = options.target_file_size.or(properties.target_file_size()?) {
        spec.target_file_size = size;
    }
    Ok(spec)
}

/// Removes for every live file of `version`.
async fn remove_all(storage: &Storage, version: u64, now_ms: i64) -> Result<Vec<Remove>> {
    let snapshot = Snapshot::open(storage, Some(version)).await?;
    let columns = AddColumns {
        members: vec!["path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion"],
        ..AddColumns::default()
    };
    let mut removes = Vec::new();
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    while let Some(adds) = live.try_next().await? {
        for row in 0..adds.len() {
            let add = adds.add(row)?;
            removes.push(Remove {
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
            });
        }
    }
    Ok(removes)
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
    /// `Invalid` if the schema cannot be a table's or there is a table already.
    pub async fn create(self, storage: &Storage, (ids, pace): (&dyn Ids, &dyn Pace)) -> Result<u64> {
        let in_table = |e: Error| e.in_table(storage.location());
        let exists = || Error::invalid("there is a table already; append to it, or choose another place");
        match Snapshot::open(storage, None).await {
            Ok(_) => return Err(in_table(exists())),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
        let partition_by = json!(json!(self.partition_by).to_string());
        let properties = json!(json!(self.properties).to_string());
        let description = json!(self.description);
        let (protocol, metadata) = self.actions(ids, pace).map_err(in_table)?;
        let parameters = [
            ("isManaged", json!("false")),
            ("description", description),
            ("partitionBy", partition_by),
            ("properties", properties),
        ];
        let transaction = Transaction {
            base: None,
            read: ReadSet::Nothing,
            actions: vec![Action::Protocol(protocol), Action::Metadata(metadata)],
            operation: "CREATE TABLE".to_owned(),
            parameters: parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            metrics: Map::new(),
            user_metadata: None,
            txn_id: ids.unique(),
        };
        let committed = transaction.commit(&LogCommitter::new(storage.clone()), pace).await.map_err(in_table)?;
        Ok(committed.version)
    }

    fn actions(mut self, ids: &dyn Ids, pace: &dyn Pace) -> Result<(Protocol, Metadata)> {
        check_schema(&self.schema)?;
        check_partitioning(&self.schema, &mut self.partition_by)?;
        if Properties::new(&self.properties).change_data_feed()?
            && let Some(field) = self.schema.fields.iter().find(|f| is_change_column(&f.name))
        {
            return Err(Error::invalid(format!(
                "the column name `{}` is taken where changes are recorded (`delta.enableChangeDataFeed`); rename it",
                field.name
            )));
        }
        let protocol = feature::protocol_for(&self.schema, &self.properties)?;
        let metadata = Metadata {
            id: ids.unique(),
            name: self.name,
            description: self.description,
            format: Default::default(),
            schema_string: json::print(&self.schema),
            partition_columns: self.partition_by,
            created_time: Some(pace.now_ms()),
            configuration: stored(&self.properties),
        };
        Ok((protocol, metadata))
    }
}

/// Columns that a change feed has beside the table's own.
fn is_change_column(name: &str) -> bool {
    ["_change_type", "_commit_version", "_commit_timestamp"].iter().any(|taken| name.eq_ignore_ascii_case(taken))
}

fn check_schema(schema: &StructType) -> Result<()> {
    if schema.fields.is_empty() {
        return Err(Error::invalid("a table needs at least one column"));
    }
    check_names(schema, "")
}

/// Names at any depth. Schemas nest no deeper than they can be written (`schema::json::MAX_DEPTH`).
fn check_names(schema: &StructType, above: &str) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for field in &schema.fields {
        let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
        if !seen.insert(field.name.to_lowercase()) {
            return Err(Error::invalid(format!("the column `{path}` is there twice; names differ by more than case")));
        }
        if field.name.is_empty() {
            return Err(Error::invalid(format!("a column has no name (`{path}`); give it one")));
        }
        if let Some(bad) = field.name.chars().find(|c| " ,;{}()\n\t=".contains(*c)) {
            return Err(Error::invalid(format!(
                "the column name `{path}` has the character {bad:?}, which Delta allows only with column mapping; \
                 rename it"
            )));
        }
        check_names_inside(&field.data_type, &path)?;
    }
    Ok(())
}

fn check_names_inside(data_type: &DataType, path: &str) -> Result<()> {
    match data_type {
        DataType::Struct(inner) => check_names(inner, path),
        DataType::Array(array) => check_names_inside(&array.element, path),
        DataType::Map(map) => {
            check_names_inside(&map.key, path)?;
            check_names_inside(&map.value, path)
        }
        DataType::Primitive(_) | DataType::Variant => Ok(()),
    }
}

/// Partition columns are given the schema's spelling.
fn check_partitioning(schema: &StructType, partition_by: &mut [String]) -> Result<()> {
    let mut chosen = std::collections::HashSet::new();
    for name in partition_by.iter_mut() {
        let Some(field) = schema.field(name) else {
            return Err(Error::invalid(format!("the partition column `{name}` is not in the schema")));
        };
        if field.data_type.as_primitive().is_none() {
            return Err(Error::invalid(format!(
                "the column `{name}` has the type {}; a table is partitioned by columns without children",
                field.data_type
            )));
        }
        if !chosen.insert(field.name.clone()) {
            return Err(Error::invalid(format!("the partition column `{name}` is there twice")));
        }
        name.clone_from(&field.name);
    }
    if chosen.len() == schema.fields.len() {
        return Err(Error::invalid("every column is a partition column; leave at least one for the data files"));
    }
    Ok(())
}
