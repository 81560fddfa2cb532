//! Rewrites files: copies the rows that an UPDATE or a DELETE keeps, or all rows, maybe in another order.
//!
//! Copied rows keep their row ids and row commit versions, in the columns that the table's properties name. They also keep the
//! strings of their partition values ([`with_partition_strings`]). They are streamed: memory use is that of a scan and a writer.
//!
//! Proved by `dml::copies_keep_order_and_ids` and `tests/python/test_partition_strings.py`.
//!
//! PROTOCOL.md: "Writer Requirements for Row Tracking", "Partition Value Serialization".

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use deltic_protocol::property::{Properties, RowTracking};
use deltic_protocol::schema::mapping::{ColumnMapping, PHYSICAL_NAME};
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema};
use futures::{Stream, StreamExt, TryStreamExt};

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_ID};
use crate::scan::task::{FileTask, ReadSpec};
use crate::snapshot::Snapshot;
use crate::write::plan::{DataFile, HiddenColumn, HiddenValues, WriteSpec};
use crate::write::writer::{Clock, DataWriter, Limits};
use deltic_store::{Storage, Syncing};

/// Files that were written, and the syncing of these files, after which they survive a power cut.
pub(crate) type Written = (Vec<DataFile>, Syncing);

/// How rows are read and written to new files.
#[derive(Debug, Clone)]
pub(crate) struct Copying {
    pub(crate) read: ReadSpec,
    pub(crate) write: WriteSpec,
    /// The schema for the writer: hidden columns have other names in files than in a scan. At its end are the strings of the
    /// partition values.
    written: SchemaRef,
    /// Limits on the memory of the writer.
    limits: Limits,
    /// The progress in which rows are counted.
    progress: Progress,
}

impl Copying {
    /// Copies rows with the columns of the table, and with their ids if it tracks rows. `read`: all columns of the table.
    ///
    /// # Errors
    /// `Unsupported` if the table has a column named like one that is needed besides its own.
    pub(crate) fn new(
        snapshot: &Snapshot,
        (read, write): (ReadSpec, WriteSpec),
        tracking: Option<RowTracking>,
    ) -> Result<Self> {
        let mut read = ReadSpec { may_lack_row_ids: true, ..read };
        let mut hidden = Vec::new();
        if let Some(tracking) = tracking {
            // The field ids that Iceberg reserves for these columns.
            let names = [
                (ROW_ID, tracking.row_id_column.clone(), 2_147_483_540),
                (ROW_COMMIT_VERSION, tracking.row_commit_version_column.clone(), 2_147_483_539),
            ];
            let is_iceberg = Properties::of(snapshot.metadata()).is_true("delta.enableIcebergCompatV3")?;
            for (name, stored, id) in names {
                refuse_column(&read.schema, name)?;
                read.columns.push(name.to_owned());
                let field_id = is_iceberg.then_some(id);
                hidden.extend(stored.map(|name| HiddenColumn { name, values: HiddenValues::Number, field_id }));
            }
            read.row_tracking = Some(tracking);
        }
        Self::of_specs(snapshot.storage(), read, WriteSpec { hidden_columns: hidden, ..write })
    }

    /// From the specs of a value that [`Copying::new`] made, maybe in another process.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub(crate) fn of_specs(storage: &Storage, read: ReadSpec, write: WriteSpec) -> Result<Self> {
        let visible = read.columns.len() - write.hidden_columns.len();
        let schema = Reader::new(storage.clone(), with_partition_strings(&read, &mut [])?)?.schema();
        let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
        for (field, hidden) in fields.iter_mut().skip(visible).zip(&write.hidden_columns) {
            *field = Arc::new(field.as_ref().clone().with_name(&hidden.name));
        }
        let (limits, progress) = (Limits::default(), Progress::default());
        Ok(Self { read, write, written: Arc::new(Schema::new(fields)), limits, progress })
    }

    /// The same, but written rows are counted in `progress`.
    pub(crate) fn reporting(self, progress: &Progress) -> Self {
        Self { progress: progress.clone(), ..self }
    }

    /// Counts rows that were written in another way.
    pub(crate) fn advance(&self, rows: u64) {
        self.progress.advance(rows);
    }

    /// The same rows, but written in another way and with these limits on the memory of the writer.
    pub(crate) fn to_files(&self, write: WriteSpec, limits: Limits) -> Self {
        Self { write, limits, ..self.clone() }
    }

    /// Writes the rows of `tasks`, in their order.
    pub(crate) async fn copy(&self, storage: &Storage, tasks: Vec<FileTask>, clock: Clock) -> Result<Written> {
        let rows = self.rows(storage, tasks, ReadOptions::default())?;
        self.write(storage, rows, clock).await
    }

    /// The rows of `tasks`, in their order, with the strings of their partition values.
    pub(crate) fn rows(
        &self,
        storage: &Storage,
        mut tasks: Vec<FileTask>,
        options: ReadOptions,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
        let read = with_partition_strings(&self.read, &mut tasks)?;
        Ok(Reader::new(storage.clone(), read)?.read(tasks, options))
    }

    /// Writes rows with the columns of [`Copying::rows`].
    pub(crate) async fn write(
        &self,
        storage: &Storage,
        rows: impl Stream<Item = Result<RecordBatch>>,
        clock: Clock,
    ) -> Result<Written> {
        let writer = DataWriter::new(storage.clone(), &self.write, clock)?.with_limits(self.limits);
        let writer = writer.with_partition_strings();
        let named = |batch: Result<RecordBatch>| {
            Ok(RecordBatch::try_new(Arc::clone(&self.written), batch?.columns().to_vec())?)
        };
        let counted = rows.map(named).inspect_ok(|batch| self.progress.advance(batch.num_rows() as u64));
        writer.write_all_unsynced(counted).await
    }
}

/// Reads also the strings of partition values: after the other columns, one for each partition column, with the string that the
/// log has for the row's file, or NULL if the value is NULL. Sets the strings of `tasks`.
///
/// A file with copied rows gets the same strings, since a value has more than one. The values of two strings may even differ
/// for other clients: only the writer of a timestamp without a time zone knows its zone.
///
/// # Errors
/// `Unsupported` if the table has a column named like one of these.
pub(crate) fn with_partition_strings(read: &ReadSpec, tasks: &mut [FileTask]) -> Result<ReadSpec> {
    let mapping = ColumnMapping::parse(&read.column_mapping)?;
    let (mut schema, mut columns) = (StructType::clone(&read.schema), read.columns.clone());
    for name in &read.partition_columns {
        let column = format!("_metadata.partition_string.{name}");
        refuse_column(&read.schema, &column)?;
        let [key, other_key]: [&str; 2] = match read.schema.field(name) {
            Some(field) => mapping.partition_keys(&read.schema, field)?,
            None => [name, name],
        };
        for task in tasks.iter_mut() {
            let values = &task.partition_values;
            // An empty constant is NULL, as an empty partition value is.
            let string = values.get(key).or_else(|| values.get(other_key)).cloned().flatten().unwrap_or_default();
            task.constants.insert(column.clone(), string);
        }
        let mut field = StructField::new(&column, DataType::STRING, true);
        field.metadata.insert(PHYSICAL_NAME.to_owned(), column.clone().into());
        schema.fields.push(field);
        columns.push(column);
    }
    Ok(ReadSpec { schema: TableSchema::from(schema), columns, ..read.clone() })
}

/// Refuses a table that has a column with this name, which is needed for another column.
pub(crate) fn refuse_column(schema: &StructType, name: &str) -> Result<()> {
    match schema.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)) {
        None => Ok(()),
        Some(taken) => Err(Error::unsupported(
            name,
            format!(
                "rows of a table that has a column `{}` cannot be changed: deltic needs this name for a column of \
                 its own; rename the column",
                taken.name
            ),
        )),
    }
}
