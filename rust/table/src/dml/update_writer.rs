//! Rewrites files with some rows updated.
//!
//! The file and the position of each row decide whether it is updated. Other rows are copied unchanged, in their
//! order. Partition values that are not assigned keep their strings. Memory holds one batch (or the part that is updated at a
//! time), before and after the update.
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
use arrow_select::nullif::nullif;
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::row_update::RowUpdate;
use deltic_protocol::schema::mapping::PHYSICAL_NAME;
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use crate::error::{Error, Result};
use crate::rewrite::{Copying, Written, refuse_column, with_partition_strings};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_INDEX};
use crate::scan::task::{FileTask, ReadSpec};
use crate::transaction::builder::change_files::{Change as ChangeType, change_files_spec};
use crate::write::char_lengths::CharLengths;
use crate::write::plan::WriteSpec;
use crate::write::writer::{Clock, DataWriter};
use deltic_store::Storage;

/// Name of the column with the number of the file.
const FILE_NUMBER: &str = "_metadata.file_number";

/// The most bytes of constants in the rows that are made at a time.
const CONSTANT_BYTES: usize = 16 << 20;

/// How many rows are made at a time, if each has this many bytes of constants.
pub(super) fn rows_of_constants(bytes: usize) -> usize {
    (CONSTANT_BYTES / bytes.max(1)).max(1)
}

/// Computes updated rows.
pub(super) trait RowUpdater: Debug + Send + Sync {
    /// Indexes of the columns that may change.
    fn updated_columns(&self) -> Vec<usize>;

    /// Which of the rows at `places` get a new value in a column that may change.
    fn assigned(&self, column: usize, places: &[(&str, u64)]) -> BooleanBuffer;

    /// How many rows are updated at a time: the new rows may be much larger.
    fn rows_at_once(&self) -> usize;

    /// The rows after the update, with the columns of the table. `places`: the file and the position of each row.
    fn update(&self, old: &RecordBatch, places: &[(&str, u64)]) -> Result<RecordBatch>;
}

impl RowUpdater for RowUpdate {
    fn updated_columns(&self) -> Vec<usize> {
        Self::changes(self).collect()
    }

    fn assigned(&self, _column: usize, places: &[(&str, u64)]) -> BooleanBuffer {
        BooleanBuffer::new_set(places.len())
    }

    fn rows_at_once(&self) -> usize {
        rows_of_constants(self.constant_bytes())
    }

    fn update(&self, old: &RecordBatch, places: &[(&str, u64)]) -> Result<RecordBatch> {
        let number = |row: usize| places.get(row).map_or(0, |(_, position)| *position);
        self.apply(old, old, &number)
    }
}

/// Writes files with updated rows.
#[derive(Debug, Clone)]
pub(super) struct UpdateWriter {
    updater: Arc<dyn RowUpdater>,
    /// The same update for files of which only some columns are read (`copied_columns`); only UPDATE has it.
    narrow: Option<NarrowUpdate>,
}

/// An UPDATE on the columns that it needs.
#[derive(Debug, Clone)]
pub(super) struct NarrowUpdate {
    /// Computes the new rows, from and with the needed columns alone.
    pub(super) update: Arc<RowUpdate>,
    /// Logical names of the needed columns, in the order of the table.
    pub(super) needed: Vec<String>,
    /// Logical names of those that may change.
    pub(super) changed: Vec<String>,
}

/// A file to read, some of whose rows are updated.
#[derive(Debug, Clone)]
pub(super) struct UpdateTask {
    /// How the rows to write are read.
    pub(super) task: FileTask,
    /// Positions of the rows to update; none if all are.
    pub(super) updated_rows: Option<DeletionVector>,
    /// The statistics of the file in the log.
    pub(super) stats: Option<String>,
}

/// Updates the rows of a stream over several files.
#[derive(Debug)]
struct UpdatePass {
    writer: UpdateWriter,
    /// The path of each file, and which of its rows are updated (none if all are).
    files: Vec<(String, Option<DeletionVector>)>,
    /// How many columns of the table are read.
    width: usize,
    /// The lengths of these columns.
    lengths: CharLengths,
    /// Positions of the partition columns, if they are read.
    partition_columns: Vec<Option<usize>>,
}

/// A batch, and its updated rows separately.
struct SplitBatch {
    /// Which rows are updated.
    is_updated: BooleanBuffer,
    /// All rows, without the columns of the position and the file number.
    rows: RecordBatch,
    /// The updated rows, before and after, with the columns of the table.
    old: RecordBatch,
    new: RecordBatch,
    /// The strings of their partition values, before and after. Those of assigned values are NULL.
    old_strings: Vec<ArrayRef>,
    new_strings: Vec<ArrayRef>,
}

impl UpdateWriter {
    pub(super) fn new(updater: Arc<dyn RowUpdater>) -> Self {
        Self { updater, narrow: None }
    }

    /// With the same update on the columns that it needs.
    pub(super) fn with_narrow(self, narrow: NarrowUpdate) -> Self {
        Self { narrow: Some(narrow), ..self }
    }

    /// The same update on the columns that it needs, if these are known.
    pub(super) fn narrow(&self) -> Option<&NarrowUpdate> {
        self.narrow.as_ref()
    }

    /// Writes the rows of files in their order, some of them updated.
    pub(super) async fn copy(
        &self,
        storage: &Storage,
        copying: &Copying,
        tasks: Vec<UpdateTask>,
        clock: Clock,
    ) -> Result<Written> {
        let rows = self.updated_rows(storage, (&copying.read, tasks), ReadOptions::default())?;
        copying.write(storage, rows, clock).await
    }

    /// The rows of files in their order, some of them updated.
    pub(super) fn updated_rows(
        &self,
        storage: &Storage,
        (read, tasks): (&ReadSpec, Vec<UpdateTask>),
        options: ReadOptions,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
        let (pass, mut reads) = self.pass(read, tasks)?;
        let read = with_partition_strings(read, &mut reads)?;
        let reader = Reader::new(storage.clone(), with_file_number(&read)?)?;
        let pieces = pass.pieces(reader.read(reads, options));
        Ok(pieces.map(move |batch| pass.updated(&batch?)))
    }

    /// Writes change files with the updated rows, each before and after the update.
    pub(super) async fn record(
        &self,
        storage: &Storage,
        (read, write): (&ReadSpec, WriteSpec),
        tasks: Vec<UpdateTask>,
    ) -> Result<Written> {
        // A `cdc` action has no time.
        let no_clock: Clock = || 0;
        let (pass, mut reads) = self.pass(read, tasks)?;
        let read = with_partition_strings(read, &mut reads)?;
        let reader = Reader::new(storage.clone(), with_file_number(&read)?)?;
        let mut fields = Reader::new(storage.clone(), read)?.schema().fields().to_vec();
        let write = change_files_spec(write);
        let kind = write.hidden_columns.first().ok_or_else(|| Error::internal("change files say what changed"))?;
        fields.insert(pass.width, Arc::new(arrow_schema::Field::new(&kind.name, arrow_schema::DataType::Utf8, false)));
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let writer = DataWriter::new(storage.clone(), &write, no_clock)?.with_partition_strings();
        let pieces = pass.pieces(reader.read(reads, ReadOptions::default()));
        let both = pieces.map(move |batch| pass.change_rows(&batch?, &schema));
        writer.write_all_unsynced(both.map_ok(|both| stream::iter(both.map(Ok))).try_flatten()).await
    }

    /// The pass over the files of `tasks`, and how their rows are read.
    fn pass(&self, read: &ReadSpec, tasks: Vec<UpdateTask>) -> Result<(UpdatePass, Vec<FileTask>)> {
        let (mut files, mut reads) = (Vec::with_capacity(tasks.len()), Vec::with_capacity(tasks.len()));
        for UpdateTask { task, updated_rows, .. } in tasks {
            files.push((task.path.clone(), updated_rows));
            reads.push(task);
        }
        let reads = numbered(reads);
        let columns = read.schema.by_name();
        let columns = read.columns.iter().filter_map(|name| columns.field(name)).cloned().collect();
        let columns = StructType::new(columns);
        let (width, lengths) = (columns.fields.len(), CharLengths::of(&columns)?);
        let position = |name: &String| read.columns.iter().position(|column| column == name);
        let partition_columns = read.partition_columns.iter().map(position).collect();
        Ok((UpdatePass { writer: self.clone(), files, width, lengths, partition_columns }, reads))
    }
}

/// The same files, with their numbers.
pub(super) fn numbered(mut files: Vec<FileTask>) -> Vec<FileTask> {
    for (number, file) in files.iter_mut().enumerate() {
        file.constants.insert(FILE_NUMBER.to_owned(), number.to_string());
    }
    files
}

/// Adds the position of each row and the number of its file to what is read.
pub(super) fn with_file_number(read: &ReadSpec) -> Result<ReadSpec> {
    refuse_column(&read.schema, FILE_NUMBER)?;
    let mut schema = StructType::clone(&read.schema);
    let mut field = StructField::new(FILE_NUMBER, DataType::LONG, false);
    field.metadata.insert(PHYSICAL_NAME.to_owned(), FILE_NUMBER.into());
    schema.fields.push(field);
    let mut columns = read.columns.clone();
    columns.extend([ROW_INDEX.to_owned(), FILE_NUMBER.to_owned()]);
    Ok(ReadSpec { schema: TableSchema::from(schema), columns, ..read.clone() })
}

impl UpdatePass {
    /// The same rows in smaller batches, of as many rows as are updated at a time.
    fn pieces<S: Stream<Item = Result<RecordBatch>> + Send + 'static>(
        &self,
        batches: S,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + use<S> {
        let at_once = self.writer.updater.rows_at_once().max(1);
        let pieces = move |batch: RecordBatch| {
            let starts = (0..batch.num_rows()).step_by(at_once);
            stream::iter(starts.map(move |start| Ok(batch.slice(start, at_once.min(batch.num_rows() - start)))))
        };
        batches.map_ok(pieces).try_flatten()
    }

    /// Computes the updated rows of a batch.
    fn split(&self, batch: &RecordBatch) -> Result<SplitBatch> {
        let (positions, numbers) = (numbers(batch, ROW_INDEX)?.values(), numbers(batch, FILE_NUMBER)?.values());
        let unknown = || Error::internal("rows of a file that was not asked for were read");
        let mut is_updated = BooleanBufferBuilder::new(batch.num_rows());
        let mut places = Vec::new();
        for number in numbers.chunk_by(PartialEq::eq) {
            let file = number.first().and_then(|number| self.files.get(usize::try_from(*number).ok()?));
            let (path, updated) = file.ok_or_else(unknown)?;
            let positions = positions.get(is_updated.len()..is_updated.len() + number.len()).ok_or_else(unknown)?;
            let positions = positions.iter().map(|position| position.cast_unsigned());
            let Some(updated) = updated else {
                is_updated.append_n(number.len(), true);
                places.extend(positions.map(|position| (path.as_str(), position)));
                continue;
            };
            // Rows come in the order of the file.
            let first = positions.clone().next().unwrap_or_default();
            let mut updated = updated.iter_from(first).peekable();
            positions.for_each(|position| {
                while updated.next_if(|row| *row < position).is_some() {}
                let is_next = updated.peek() == Some(&position);
                is_updated.append(is_next);
                places.extend(is_next.then_some((path.as_str(), position)));
            });
        }
        let is_updated = is_updated.finish();
        let rows = batch.project(&(0..batch.num_columns().saturating_sub(2)).collect::<Vec<_>>())?;
        let mask = BooleanArray::new(is_updated.clone(), None);
        let first_string = rows.num_columns().saturating_sub(self.partition_columns.len());
        let columns = (0..self.width).chain(first_string..rows.num_columns()).collect::<Vec<_>>();
        let with_strings = filter_record_batch(&rows.project(&columns)?, &mask)?;
        let old = with_strings.project(&(0..self.width).collect::<Vec<_>>())?;
        let old_strings = with_strings.columns().get(self.width..).unwrap_or_default().to_vec();
        let new = match places.first() {
            None => old.clone(),
            Some((path, _)) => self.writer.updater.update(&old, &places).map_err(|e| e.in_file(*path))?,
        };
        self.check_lengths(&new, &places)?;
        let new_strings = self.new_strings(&old_strings, &places)?;
        Ok(SplitBatch { is_updated, rows, old, new, old_strings, new_strings })
    }

    /// The strings of the partition values of updated rows, which are NULL for assigned values.
    fn new_strings(&self, old: &[ArrayRef], places: &[(&str, u64)]) -> Result<Vec<ArrayRef>> {
        let (updater, changes) = (&self.writer.updater, self.writer.updater.updated_columns());
        let mut new = Vec::with_capacity(old.len());
        for (old, column) in old.iter().zip(&self.partition_columns) {
            new.push(match column.filter(|at| changes.contains(at)) {
                Some(at) => nullif(old, &BooleanArray::new(updater.assigned(at, places), None))?,
                None => Arc::clone(old),
            });
        }
        Ok(new)
    }

    /// Refuses updated rows with strings that are too long. Other rows may have them: not every writer checks lengths.
    fn check_lengths(&self, new: &RecordBatch, places: &[(&str, u64)]) -> Result<()> {
        let Err(error) = self.lengths.check(new, 0) else { return Ok(()) };
        // Checked again one by one, so that the message has the position of the row.
        for (row, (path, position)) in places.iter().enumerate() {
            self.lengths.check(&new.slice(row, 1), *position).map_err(|e| e.in_file(*path))?;
        }
        Err(error)
    }

    /// All rows, some of them updated. The row commit version of an updated row is NULL: the commit determines it.
    fn updated(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let SplitBatch { is_updated, rows, new, new_strings, .. } = self.split(batch)?;
        let changed = new.num_rows();
        if changed == 0 {
            return Ok(rows);
        }
        let mut places = Vec::with_capacity(rows.num_rows());
        let mut taken = 0;
        for (row, is_updated) in is_updated.iter().enumerate() {
            places.push(if is_updated { (1, taken) } else { (0, row) });
            taken += usize::from(is_updated);
        }
        let mixed = |old: &ArrayRef, new: &ArrayRef| match changed == rows.num_rows() {
            true => Ok(Arc::clone(new)),
            false => interleave(&[old, new], &places),
        };
        let mut columns = rows.columns().to_vec();
        for at in self.writer.updater.updated_columns() {
            if let (Some(column), Some(new)) = (columns.get_mut(at), new.columns().get(at)) {
                *column = mixed(column, new)?;
            }
        }
        for (column, field) in columns.iter_mut().zip(rows.schema_ref().fields()).skip(self.width) {
            if field.name() == ROW_COMMIT_VERSION {
                *column = mixed(column, &new_null_array(field.data_type(), changed))?;
            }
        }
        let first_string = columns.len().saturating_sub(new_strings.len());
        for (column, new) in columns.iter_mut().skip(first_string).zip(&new_strings) {
            *column = mixed(column, new)?;
        }
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }

    /// The updated rows before and after, each with its change type.
    fn change_rows(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<[RecordBatch; 2]> {
        let SplitBatch { old, new, old_strings, new_strings, .. } = self.split(batch)?;
        let with = |rows: RecordBatch, strings: Vec<ArrayRef>, kind: ChangeType| {
            let mut columns = rows.columns().to_vec();
            columns.push(Arc::new(StringArray::from_iter_values(vec![kind.as_str(); rows.num_rows()])));
            columns.extend(strings);
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            Ok::<_, Error>(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
        };
        Ok([with(old, old_strings, ChangeType::Preimage)?, with(new, new_strings, ChangeType::Postimage)?])
    }
}

/// A column of numbers without NULLs.
fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let column = column.filter(|column| column.null_count() == 0);
    column.ok_or_else(|| Error::internal(format!("the column {name} was not read")))
}
