//! A folder of Parquet files becomes a table: its first commit names the files where they are, and moves none.
//!
//! The footers are read, many at a time; of each file stay the line of the commit and the columns that no file before had.
//! A column has one type in all files, or it is refused: no reader is asked to convert. Statistics are those of the footers.
//! Floating-point columns have no bounds, since those of Parquet leave NaN out.
//!
//! Proved by `tests/python/test_convert.py`, and by `tests/interop/test_convert.py` beside delta-spark.
//!
//! PROTOCOL.md: "Delta Table Specification", "Add File and Remove File", "Partition Value Serialization".

use std::collections::BTreeMap;

use deltic_protocol::action::{Action, Add};
use deltic_protocol::commit::Actions;
use deltic_protocol::log::name::LOG_DIR;
use deltic_protocol::property::Properties;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::evolve::merge;
use deltic_protocol::stats::collect::IndexedColumns;
use futures::{TryStreamExt, future};
use serde::Deserialize;
use serde_json::{Map, json};

use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::storage::{FileMeta, Storage};
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{CreateMode, Ended, Ids, Known, Outcome, TableDefinition, Transaction};
use crate::write::layout::log_path;

mod columns;
mod folders;
mod footers;

use columns::check_same_types;
use folders::Folders;
use footers::{Footer, Footers};

/// Footers that are read at the same time.
const CONCURRENT_FOOTERS: usize = 64;

/// What a conversion is to do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConvertOptions {
    /// The columns that folders such as `day=2013-01-01` have the values of, in the order of the folders.
    #[serde(skip)]
    pub partition_schema: StructType,
    /// Whether the bounds and null counts of the footers become statistics; the number of rows does anyway.
    pub collect_statistics: bool,
    /// Properties of the table.
    pub properties: BTreeMap<String, String>,
    /// Name of the table.
    pub name: Option<String>,
    /// Description of the table.
    pub description: Option<String>,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// What a conversion did, or would do.
#[derive(Debug, Default)]
pub struct Converted {
    /// The commit; none of a dry run.
    pub outcome: Option<Box<Outcome>>,
    /// Files that are part of the table.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The table's columns: those of the files, and then those of the folders.
    pub schema: StructType,
}

/// Makes a table of the Parquet files at `storage`.
///
/// # Errors
/// `TableExists` if there is a table already; `Invalid` for files that are no Parquet, that are not in folders of the
/// partition columns, or whose columns no table can have, or not with those of other files; `NotFound` if there is no file.
pub async fn convert(
    storage: &Storage,
    options: ConvertOptions,
    ids: &dyn Ids,
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<Converted> {
    let in_table = |e: Error| e.in_table(storage.location());
    check_properties(&options.properties).map_err(in_table)?;
    if Snapshot::find(storage).await?.is_some() {
        return Err(in_table(Error::table_exists()));
    }
    let (mut converted, files) = find(storage, &options).await.map_err(in_table)?;
    let mut transaction = begin(storage, &options, &converted, (ids, retry.now_ms())).await?;
    if options.dry_run {
        return Ok(converted);
    }
    let converted_files = ("numConvertedFiles".to_owned(), json!(converted.files.to_string()));
    transaction.add_existing(files, Map::from_iter([converted_files]));
    match transaction.commit(committer, retry).await? {
        Ended::Committed(outcome) => converted.outcome = Some(outcome),
        Ended::Replayed(_) | Ended::Nothing => return Err(Error::internal("a conversion committed nothing")),
    }
    Ok(converted)
}

/// Properties that ask of files what these may not have.
const ASKS_OF_FILES: [&str; 4] = [
    "delta.columnMapping.mode",
    "delta.constraints.",
    "delta.enableIceberg",
    "delta.enableMaterializePartitionColumns",
];

fn check_properties(properties: &BTreeMap<String, String>) -> Result<()> {
    let asks = |(key, value): &(&String, &String)| {
        let is_off = ["none", "false"].iter().any(|off| value.trim().eq_ignore_ascii_case(off));
        let key = key.to_ascii_lowercase();
        !is_off && ASKS_OF_FILES.iter().any(|asks| key.starts_with(&asks.to_ascii_lowercase()))
    };
    match properties.iter().find(asks) {
        Some((key, _)) => Err(Error::invalid(format!(
            "the property `{key}` asks something of data files, which those that are there may not fulfil; convert \
             first, and set it then"
        ))),
        None => Ok(()),
    }
}

/// Looks at every file; what they have in common, and the lines that add them.
async fn find(storage: &Storage, options: &ConvertOptions) -> Result<(Converted, Actions)> {
    let folders = Folders::of(&options.partition_schema)?;
    let indexed = IndexedColumns::of(Properties::new(&options.properties))?;
    let footers = Footers::new(storage, &options.partition_schema, options.collect_statistics.then_some(indexed));
    let wanted = |file: FileMeta| {
        let judged = check_foreign(&file.path).map(|()| folders.may_hold_data(&file.path).then_some(file));
        future::ready(judged)
    };
    let files = storage.list_everything("").try_filter_map(wanted);
    let read = files.map_ok(|file| async {
        let described = async {
            let values = folders.values(&file.path)?;
            Ok((values, footers.read(&file).await?))
        };
        let (values, footer) = described.await.map_err(|e: Error| e.in_file(file.path.clone()))?;
        Ok((file, values, footer))
    });
    let mut read = std::pin::pin!(read.try_buffered(CONCURRENT_FOOTERS));
    let (mut found, mut adds) = (Converted::default(), Actions::new());
    let progress = Progress::begin("CONVERT", Unit::Files, None);
    while let Some((file, partition_values, footer)) = read.try_next().await? {
        take(&mut found, &footer).map_err(|e| e.in_file(file.path.clone()))?;
        found.bytes = found.bytes.saturating_add(file.size);
        progress.advance(1);
        adds.push(Action::Add(Add {
            path: log_path(&file.path),
            partition_values,
            size: i64::try_from(file.size).unwrap_or(i64::MAX),
            modification_time: file.modified_ms,
            data_change: true,
            stats: Some(footer.stats),
            tags: None,
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        }))?;
    }
    if found.files == 0 {
        return Err(Error::not_found("there is no Parquet file in the folder, so that there is nothing to convert"));
    }
    found.schema.fields.extend(options.partition_schema.fields.iter().cloned());
    Ok((found, adds))
}

/// Counts a file, and takes in the columns that no file before it had.
fn take(found: &mut Converted, footer: &Footer) -> Result<()> {
    found.files += 1;
    found.rows = found.rows.saturating_add(footer.rows);
    if found.schema != footer.schema {
        let merged = merge(&found.schema, &footer.schema, false);
        check_same_types(&merged, &footer.schema)?;
        found.schema = merged;
    }
    Ok(())
}

/// Refuses files of which something else says which are live, and names that a log cannot have.
fn check_foreign(path: &str) -> Result<()> {
    let below = path.split_once(&format!("/{LOG_DIR}/")).map(|(folder, _)| folder);
    if let Some(folder) = below {
        return Err(Error::invalid(format!(
            "the folder `{folder}` is a Delta table of its own; convert folders beside it"
        )));
    }
    let is_iceberg = path.starts_with("metadata/") && path.ends_with(".metadata.json");
    let kind = match path.split('/').next() {
        _ if is_iceberg => "an Iceberg table",
        Some(".hoodie") => "a Hudi table",
        Some("_spark_metadata") => "what a stream of Spark wrote",
        Some(first) if first.contains(':') => {
            let message = format!("`{first}` has a colon, so that in a log it would be a place elsewhere; rename it");
            return Err(Error::invalid(message));
        }
        _ => return Ok(()),
    };
    Err(Error::unsupported(
        format!("conversion of {kind}"),
        format!(
            "the folder is {kind}, whose own metadata says which files are live; read it with what wrote it, and write \
             the rows with `deltic.write`"
        ),
    ))
}

/// The transaction that creates the table.
async fn begin(
    storage: &Storage,
    options: &ConvertOptions,
    found: &Converted,
    (ids, now_ms): (&dyn Ids, i64),
) -> Result<Transaction> {
    let partition_by: Vec<String> = options.partition_schema.fields.iter().map(|field| field.name.clone()).collect();
    let definition = TableDefinition {
        schema: found.schema.clone(),
        partition_by: partition_by.clone(),
        properties: options.properties.clone(),
        name: options.name.clone(),
        description: options.description.clone(),
        ..TableDefinition::default()
    };
    let parameters: Map<_, _> = [
        ("numFiles", json!(found.files.to_string())),
        ("partitionedBy", json!(json!(partition_by).to_string())),
        ("collectStats", json!(options.collect_statistics.to_string())),
        ("sourceFormat", json!("parquet")),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let created = (definition, CreateMode::Error);
    let mut transaction = Transaction::create(storage, Known::default(), created, (ids, now_ms)).await?;
    transaction.set_operation("CONVERT", parameters);
    Ok(transaction)
}
