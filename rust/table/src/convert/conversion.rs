//! The steps of a conversion, from listing files to the commit.

use std::collections::BTreeMap;

use deltic_protocol::action::{Action, Add};
use deltic_protocol::commit::{Actions, Conflict};
use deltic_protocol::property::Properties;
use deltic_protocol::schema::assign::{Names, assign};
use deltic_protocol::schema::evolve::merge;
use deltic_protocol::schema::{StructType, TableSchema};
use deltic_protocol::stats::collect::IndexedColumns;
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::{Map, json};

use super::columns::check_same_types;
use super::existing::{Existing, ExistingFiles, ForeignTable, of_folder, of_foreign};
use super::footers::{Footer, Footers, Settings};
use super::iceberg::check_unchanged;
use crate::commit::{RetryPolicy, nothing_committed, unless_cancelled};
use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::log::LogSource;
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{
    CreateMode, HandleCache, Ids, Outcome, TableDefinition, Transaction, TransactionEnd,
};

/// Footers that are read at the same time.
pub(super) const CONCURRENT_FOOTERS: usize = 64;

/// Options of a conversion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConvertOptions {
    /// The partition columns, whose values are in the names of folders such as `day=2013-01-01`, in the order of the folders.
    #[serde(skip)]
    pub partition_schema: StructType,
    /// Whether the bounds and null counts of the footers become statistics; the number of rows always does.
    pub collect_statistics: bool,
    /// Properties of the table.
    pub properties: BTreeMap<String, String>,
    /// Name of the table.
    pub name: Option<String>,
    /// Description of the table.
    pub description: Option<String>,
    /// The table of another format that is converted: its metadata names the files, and the directory is not listed.
    pub foreign: Option<ForeignTable>,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// Result of a conversion, or of its dry run.
#[derive(Debug, Default)]
pub struct Converted {
    /// The commit; none after a dry run.
    pub outcome: Option<Box<Outcome>>,
    /// Files that are part of the table.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The table's columns: first those of the files, then the partition columns of the directories.
    pub schema: StructType,
}

/// Makes a table of the Parquet files where `log` is to be.
///
/// # Errors
/// `TableExists` if there is a table already; `Invalid` for files that are not Parquet, that are not in folders of the
/// partition columns, or whose columns no table can have or do not fit those of other files; `NotFound` if there is no file;
/// `Unsupported` for files of another format's table whose columns are not those of that table; `Invalid` if that table was
/// written meanwhile; `Interrupted`.
pub async fn convert(
    log: &LogSource,
    options: ConvertOptions,
    ids: &dyn Ids,
    committer: &dyn Committer,
    retry: &dyn RetryPolicy,
) -> Result<Converted> {
    let read = async {
        let mut conversion = Conversion::begin(log, options, ids).await?;
        conversion.read_footers().await?;
        Ok::<_, Error>(conversion)
    };
    let conversion = unless_cancelled(read, retry, nothing_committed).await.map_err(|e| e.in_table(log.location()))?;
    conversion.commit(ids, committer, retry).await
}

/// A conversion under way.
pub(super) struct Conversion {
    pub(super) log: LogSource,
    options: ConvertOptions,
    pub(super) files: ExistingFiles,
    pub(super) footers: Footers,
    found: Converted,
    adds: Actions,
}

impl Conversion {
    pub(super) async fn begin(log: &LogSource, mut options: ConvertOptions, ids: &dyn Ids) -> Result<Self> {
        let in_table = |e: Error| e.in_table(log.location());
        check_properties(&mut options).map_err(in_table)?;
        if Snapshot::find(log).await?.is_some() {
            return Err(in_table(Error::table_exists()));
        }
        let started = async {
            let indexed = IndexedColumns::of(Properties::new(&options.properties))?;
            let indexed = options.collect_statistics.then_some(indexed);
            let mut found = Converted::default();
            let Some(foreign) = &mut options.foreign else {
                let settings = Settings::of_folders(&options.partition_schema, indexed);
                let files = of_folder(log.storage(), &options.partition_schema)?;
                return Ok((files, settings, found));
            };
            // Physical names that no file has: if a file lacks a field id, Spark looks for the name, and might find that of
            // a dropped column.
            let mut unique = || ids.unique();
            let (schema, largest) = assign(&foreign.schema, foreign.largest_id, Names::Unique(&mut unique))?;
            foreign.schema = TableSchema::from(schema.clone());
            foreign.largest_id = largest;
            options.properties.insert(MAPPING.to_owned(), "id".to_owned());
            let settings = Settings::of_foreign(&schema, &foreign.partition_by, indexed);
            found.schema = schema;
            Ok((of_foreign(log.storage(), foreign).await?, settings, found))
        };
        let (files, settings, found) = started.await.map_err(in_table)?;
        let (footers, adds) = (Footers::with(log.storage(), settings), Actions::new());
        Ok(Self { log: log.clone(), options, files, footers, found, adds })
    }

    /// Looks at every file.
    async fn read_footers(&mut self) -> Result<()> {
        let files = std::mem::replace(&mut self.files, Box::pin(futures::stream::empty()));
        let (footers, location) = (self.footers.clone(), self.log.location().to_owned());
        let read = files.map_ok(|file| async {
            let footer = footers.read(&file).await?;
            Ok((file, footer))
        });
        let mut read = std::pin::pin!(read.try_buffered(CONCURRENT_FOOTERS));
        let progress = Progress::begin("CONVERT", Unit::Files, None);
        while let Some((file, footer)) = read.try_next().await.map_err(|e| e.in_table(&location))? {
            self.take(file, footer)?;
            progress.advance(1);
        }
        Ok(())
    }

    /// Adds a file.
    pub(super) fn take(&mut self, file: Existing, footer: Footer) -> Result<()> {
        let Footer { rows, schema, stats } = footer;
        if let Some(schema) = schema {
            let placed = |e: Error| e.in_file(file.path.clone()).in_table(self.log.location());
            if let Some(merged) = take_columns(&self.found.schema, &schema).map_err(placed)? {
                self.found.schema = merged;
            }
        }
        self.found.files += 1;
        self.found.rows = self.found.rows.saturating_add(rows);
        self.found.bytes = self.found.bytes.saturating_add(file.size);
        self.adds.push(Action::Add(Add {
            path: file.add_path,
            partition_values: file.partition_values,
            size: i64::try_from(file.size).unwrap_or(i64::MAX),
            modification_time: file.modified_ms,
            data_change: true,
            stats: Some(stats),
            tags: None,
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        }))
    }

    /// Creates the table, unless nothing is to be written.
    pub(super) async fn commit(
        self,
        ids: &dyn Ids,
        committer: &dyn Committer,
        retry: &dyn RetryPolicy,
    ) -> Result<Converted> {
        let Self { log, options, mut found, adds, .. } = self;
        if options.foreign.is_none() {
            if found.files == 0 {
                let message = "there is no Parquet file in the folder, so that there is nothing to convert";
                return Err(Error::not_found(message).in_table(log.location()));
            }
            found.schema.fields.extend(options.partition_schema.fields.iter().cloned());
        }
        let mut transaction = begin(&log, &options, &found, ids, retry.now_ms()).await?;
        if let Some(foreign) = &options.foreign {
            check_unchanged(log.storage(), &foreign.metadata_files).await?;
        }
        if options.dry_run {
            return Ok(found);
        }
        let converted_files = ("numConvertedFiles".to_owned(), json!(found.files.to_string()));
        transaction.add_existing(adds, Map::from_iter([converted_files]));
        let is_there_now = |error: Error| match error.kind() {
            Kind::Conflict(Conflict::ProtocolChanged) => {
                Error::table_exists().in_table(log.location()).caused_by(error)
            }
            _ => error,
        };
        match transaction.commit(committer, retry).await.map_err(is_there_now)? {
            TransactionEnd::Committed(outcome) => found.outcome = Some(outcome),
            TransactionEnd::Replayed(_) | TransactionEnd::Nothing => {
                return Err(Error::internal("a conversion committed nothing"));
            }
        }
        Ok(found)
    }
}

/// The property of the column mapping mode.
const MAPPING: &str = "delta.columnMapping.mode";

/// Properties that make demands on data files, which existing files may not meet.
const ASKS_OF_FILES: [&str; 4] =
    [MAPPING, "delta.constraints.", "delta.enableIceberg", "delta.enableMaterializePartitionColumns"];

fn check_properties(options: &mut ConvertOptions) -> Result<()> {
    if options.foreign.is_some() {
        let others = |(key, value): &(&String, &String)| {
            key.eq_ignore_ascii_case("delta.columnMapping.maxColumnId")
                || key.eq_ignore_ascii_case(MAPPING) && !value.trim().eq_ignore_ascii_case("id")
        };
        if let Some((key, value)) = options.properties.iter().find(others) {
            return Err(Error::invalid(format!(
                "the property `{key}` is `{value}`, but columns are found in these files by field ids: {MAPPING} is \
                 `id`; leave the property out"
            )));
        }
        options.properties.retain(|key, _| !key.eq_ignore_ascii_case(MAPPING));
    }
    let asks = |(key, value): &(&String, &String)| {
        let is_off = ["none", "false"].iter().any(|off| value.trim().eq_ignore_ascii_case(off));
        let key = key.to_ascii_lowercase();
        !is_off && ASKS_OF_FILES.iter().any(|asks| key.starts_with(&asks.to_ascii_lowercase()))
    };
    match options.properties.iter().find(asks) {
        Some((key, _)) => Err(Error::invalid(format!(
            "the property `{key}` makes demands on data files, which the existing files may not meet; convert first, \
             and set it afterwards"
        ))),
        None => Ok(()),
    }
}

/// The columns of the files so far, with the new columns of this file. `None` if it has no new ones.
fn take_columns(merged: &StructType, file: &StructType) -> Result<Option<StructType>> {
    if merged == file {
        return Ok(None);
    }
    let merged = merge(merged, file, false);
    check_same_types(&merged, file)?;
    Ok(Some(merged))
}

/// The transaction that creates the table.
async fn begin(
    log: &LogSource,
    options: &ConvertOptions,
    found: &Converted,
    ids: &dyn Ids,
    now_ms: i64,
) -> Result<Transaction> {
    let (format, partition_by) = match &options.foreign {
        Some(foreign) => (foreign.format.as_str(), foreign.partition_by.clone()),
        None => ("parquet", options.partition_schema.fields.iter().map(|field| field.name.clone()).collect()),
    };
    let definition = TableDefinition {
        schema: found.schema.clone(),
        partition_by: partition_by.clone(),
        properties: options.properties.clone(),
        name: options.name.clone(),
        description: options.description.clone(),
        largest_column_id: options.foreign.as_ref().map(|foreign| foreign.largest_id),
        ..TableDefinition::default()
    };
    let parameters: Map<_, _> = [
        ("numFiles", json!(found.files.to_string())),
        ("partitionedBy", json!(json!(partition_by).to_string())),
        ("collectStats", json!(options.collect_statistics.to_string())),
        ("sourceFormat", json!(format)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let cache = HandleCache::default();
    let mut transaction = Transaction::create(log, cache, definition, CreateMode::Error, ids, now_ms).await?;
    transaction.set_operation("CONVERT", parameters);
    Ok(transaction)
}
