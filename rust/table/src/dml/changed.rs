//! Streams of rows of which some are changed.
//!
//! Rows come with their position and their file's number, which say whether they are among those to be changed. What is not
//! is passed on as it is, in the order of the rows. Memory holds a batch, as it was and as it is then.
//!
//! Proved by `dml::updates_keep_order_and_ids`.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave;
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::row_update::RowUpdate;
use deltic_protocol::schema::mapping::PHYSICAL_NAME;
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema};
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::{Error, Result};
use crate::rewrite::{Copying, Written, refuse_column};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_INDEX};
use crate::scan::task::{FileTask, ReadSpec};
use crate::transaction::builder::change_files::{Change, change_files_spec};
use crate::write::plan::WriteSpec;
use crate::write::writer::{Clock, DataWriter};
use deltic_store::Storage;

/// Name of the column with the number of the file.
const FILE_NUMBER: &str = "_metadata.file_number";

/// Says what rows become.
pub(super) trait Become: Debug + Send + Sync {
    /// Positions of the columns that may change.
    fn changes(&self) -> Vec<usize>;

    /// Rows with the columns of the table as they are then. `places`: the file and the position of each.
    fn changed(&self, old: &RecordBatch, places: &[(&str, u64)]) -> Result<RecordBatch>;
}

impl Become for RowUpdate {
    fn changes(&self) -> Vec<usize> {
        Self::changes(self).collect()
    }

    fn changed(&self, old: &RecordBatch, places: &[(&str, u64)]) -> Result<RecordBatch> {
        let number = |row: usize| places.get(row).map_or(0, |(_, position)| *position);
        self.apply((old, old), &number)
    }
}

/// What rows become.
#[derive(Debug, Clone)]
pub(super) struct Updating {
    rows: Arc<dyn Become>,
}

/// A file with rows that are changed.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// What reads those that are passed on.
    pub(super) task: FileTask,
    /// Those that are changed; none if all are.
    pub(super) rows: Option<DeletionVector>,
}

/// One pass over files.
#[derive(Debug)]
struct Pass {
    updating: Updating,
    /// Where they are, and which rows are changed.
    files: Vec<(String, Option<DeletionVector>)>,
    /// Columns of the table.
    width: usize,
}

/// A batch, taken apart.
struct Split {
    /// Which rows are changed.
    is_changed: BooleanBuffer,
    /// All rows, without position and number of the file.
    rows: RecordBatch,
    /// Those that are changed, before and after, with the columns of the table.
    old: RecordBatch,
    new: RecordBatch,
}

impl Updating {
    pub(super) fn new(rows: Arc<dyn Become>) -> Self {
        Self { rows }
    }

    /// Writes the rows of files, some of them changed, in their order.
    pub(super) async fn copy(
        &self,
        storage: &Storage,
        copying: &Copying,
        parts: Vec<Part>,
        clock: Clock,
    ) -> Result<Written> {
        let (pass, tasks) = self.pass(&copying.read, parts);
        let reader = Reader::new(storage.clone(), numbered(&copying.read)?)?;
        let rows = reader.read(tasks, ReadOptions::default()).map(move |batch| pass.updated(&batch?));
        copying.write(storage, rows, clock).await
    }

    /// Writes what becomes of the changed rows for the change data feed: each before and after.
    pub(super) async fn record(
        &self,
        storage: &Storage,
        (read, write): (&ReadSpec, WriteSpec),
        parts: Vec<Part>,
    ) -> Result<Written> {
        // The log does not say when a change file was written.
        let no_clock: Clock = || 0;
        let (pass, tasks) = self.pass(read, parts);
        let reader = Reader::new(storage.clone(), numbered(read)?)?;
        let mut fields = Reader::new(storage.clone(), read.clone())?.schema().fields().to_vec();
        let write = change_files_spec(write);
        let kind = write.hidden_columns.first().ok_or_else(|| Error::internal("change files say what changed"))?;
        fields.push(Arc::new(arrow_schema::Field::new(&kind.name, arrow_schema::DataType::Utf8, false)));
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let writer = DataWriter::new(storage.clone(), &write, no_clock)?;
        let both = reader.read(tasks, ReadOptions::default()).map(move |batch| pass.changes(&batch?, &schema));
        writer.write_all_soon(both.map_ok(|both| stream::iter(both.map(Ok))).try_flatten()).await
    }

    fn pass(&self, read: &ReadSpec, parts: Vec<Part>) -> (Pass, Vec<FileTask>) {
        let (mut files, mut tasks) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for (number, Part { mut task, rows }) in parts.into_iter().enumerate() {
            task.constants.insert(FILE_NUMBER.to_owned(), number.to_string());
            files.push((task.path.clone(), rows));
            tasks.push(task);
        }
        (Pass { updating: self.clone(), files, width: read.schema.fields.len() }, tasks)
    }
}

/// How rows are read with their positions and the numbers of their files.
fn numbered(read: &ReadSpec) -> Result<ReadSpec> {
    refuse_column(&read.schema, FILE_NUMBER)?;
    let mut schema = StructType::clone(&read.schema);
    let mut field = StructField::new(FILE_NUMBER, DataType::LONG, false);
    field.metadata.insert(PHYSICAL_NAME.to_owned(), FILE_NUMBER.into());
    schema.fields.push(field);
    let mut columns = read.columns.clone();
    columns.extend([ROW_INDEX.to_owned(), FILE_NUMBER.to_owned()]);
    Ok(ReadSpec { schema: TableSchema::from(schema), columns, ..read.clone() })
}

impl Pass {
    fn split(&self, batch: &RecordBatch) -> Result<Split> {
        let (positions, numbers) = (numbers(batch, ROW_INDEX)?, numbers(batch, FILE_NUMBER)?);
        let unknown = || Error::internal("rows of a file that was not asked for were read");
        let file = |row: usize| usize::try_from(numbers.value(row)).ok().and_then(|at| self.files.get(at));
        let position = |row: usize| positions.value(row).cast_unsigned();
        let mut is_changed = BooleanBufferBuilder::new(batch.num_rows());
        let mut places = Vec::new();
        for row in 0..batch.num_rows() {
            let (path, rows) = file(row).ok_or_else(unknown)?;
            let changes = rows.as_ref().is_none_or(|rows| rows.contains(position(row)));
            is_changed.append(changes);
            if changes {
                places.push((path.as_str(), position(row)));
            }
        }
        let is_changed = is_changed.finish();
        let rows = batch.project(&(0..batch.num_columns().saturating_sub(2)).collect::<Vec<_>>())?;
        let mask = BooleanArray::new(is_changed.clone(), None);
        let old = filter_record_batch(&rows.project(&(0..self.width).collect::<Vec<_>>())?, &mask)?;
        let new = match places.first() {
            None => old.clone(),
            Some((path, _)) => self.updating.rows.changed(&old, &places).map_err(|e| e.in_file(*path))?,
        };
        Ok(Split { is_changed, rows, old, new })
    }

    /// All rows, those that are changed as they are then. In which version those were changed is not known yet.
    fn updated(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let Split { is_changed, rows, new, .. } = self.split(batch)?;
        let changed = new.num_rows();
        if changed == 0 {
            return Ok(rows);
        }
        let mut places = Vec::with_capacity(rows.num_rows());
        let mut taken = 0;
        for (row, is_changed) in is_changed.iter().enumerate() {
            places.push(if is_changed { (1, taken) } else { (0, row) });
            taken += usize::from(is_changed);
        }
        let mixed = |old: &ArrayRef, new: &ArrayRef| match changed == rows.num_rows() {
            true => Ok(Arc::clone(new)),
            false => interleave(&[old, new], &places),
        };
        let mut columns = rows.columns().to_vec();
        for at in self.updating.rows.changes() {
            if let (Some(column), Some(new)) = (columns.get_mut(at), new.columns().get(at)) {
                *column = mixed(column, new)?;
            }
        }
        for (column, field) in columns.iter_mut().zip(rows.schema_ref().fields()).skip(self.width) {
            if field.name() == ROW_COMMIT_VERSION {
                *column = mixed(column, &new_null_array(field.data_type(), changed))?;
            }
        }
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }

    /// The rows that are changed, before and after, each with what it is.
    fn changes(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<[RecordBatch; 2]> {
        let Split { old, new, .. } = self.split(batch)?;
        let with = |rows: RecordBatch, kind: Change| {
            let mut columns = rows.columns().to_vec();
            columns.push(Arc::new(StringArray::from_iter_values(vec![kind.as_str(); rows.num_rows()])));
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            Ok::<_, Error>(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
        };
        Ok([with(old, Change::Preimage)?, with(new, Change::Postimage)?])
    }
}

fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let column = column.filter(|column| column.null_count() == 0);
    column.ok_or_else(|| Error::internal(format!("the column {name} was not read")))
}
