//! Rows of a row group, some at a time. The parquet crate decodes them, except for the long strings of `add`, whose pages
//! are decoded directly into memory that is reused.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StructArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, FieldRef, Schema};
use deltic_pages::decode::{self, Failure, StringViews};
use deltic_pages::pool::Pool;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};

use super::action_file::{ActionFile, DecodeOptions, FetchedChunks, unreadable};
use crate::error::{Error, Result, corrupt_parquet};

/// Rows of a row group, decoded when they are asked for: all rows, or a selection.
pub(crate) struct RowGroupBatches {
    reader: ParquetRecordBatchReader,
    /// Members of `add` that are decoded directly.
    string_columns: Vec<(String, StringViews)>,
    /// Whether all rows were asked for.
    is_whole: bool,
    left: usize,
    path: String,
}

impl ActionFile {
    /// Decodes the wanted leaves of a row group.
    pub(crate) async fn read(
        self: &Arc<Self>,
        group: usize,
        wanted: &(dyn Fn(&[String]) -> bool + Send + Sync),
    ) -> Result<Vec<RecordBatch>> {
        self.read_rows(group, None, wanted).await
    }

    /// Decodes the wanted leaves of a row group, at least in the rows that have a value in one of `keys`, which are wanted
    /// leaves.
    pub(crate) async fn read_defined(
        self: &Arc<Self>,
        group: usize,
        keys: Vec<usize>,
        wanted: &(dyn Fn(&[String]) -> bool + Send + Sync),
    ) -> Result<Vec<RecordBatch>> {
        self.read_rows(group, Some(keys), wanted).await
    }

    async fn read_rows(
        self: &Arc<Self>,
        group: usize,
        keys: Option<Vec<usize>>,
        wanted: &(dyn Fn(&[String]) -> bool + Send + Sync),
    ) -> Result<Vec<RecordBatch>> {
        let fetched = self.fetch(group, wanted).await?;
        self.blocking(move |file| {
            let rows = match keys {
                Some(keys) => file.rows_with(&fetched, &keys)?,
                None => None,
            };
            let rows = rows.map(|rows| RowSelection::from_filters(&[BooleanArray::new(rows, None)]));
            RowGroupBatches::new(file, fetched, DecodeOptions { rows, ..DecodeOptions::default() }, None)?.collect()
        })
        .await
    }

    /// The wanted leaves of a row group, decoded some rows and some bytes at a time, with long strings of `add` as views.
    pub(crate) async fn read_views(
        self: &Arc<Self>,
        group: usize,
        batch_rows: usize,
        batch_bytes: usize,
        pool: &Arc<Pool>,
        wanted: &(dyn Fn(&[String]) -> bool + Send + Sync),
    ) -> Result<RowGroupBatches> {
        let fetched = self.fetch(group, wanted).await?;
        let options =
            DecodeOptions { views: true, rows: None, batch_rows: Some(batch_rows), batch_bytes: Some(batch_bytes) };
        let pool = pool.clone();
        self.blocking(move |file| RowGroupBatches::new(file, fetched, options, Some(&pool))).await
    }

    /// The rows that have a value in one of the leaves, if that is cheap to find out.
    fn rows_with(&self, fetched: &FetchedChunks, keys: &[usize]) -> Result<Option<BooleanBuffer>> {
        let mut rows = BooleanBuffer::new_unset(self.rows(fetched.group()));
        for key in keys {
            let chunk = self.chunk(fetched, *key)?;
            match decode::defined(chunk, chunk.max_definition) {
                Ok(there) => rows = &rows | &there,
                Err(Failure::Unsupported) => return Ok(None),
                Err(stop) => return Err(unreadable(stop, self.path())),
            }
        }
        Ok(Some(rows))
    }
}

impl RowGroupBatches {
    /// The rows of fetched column chunks. With a pool, long strings of `add` are views into its memory, if possible.
    pub(super) fn new(
        file: &ActionFile,
        fetched: FetchedChunks,
        options: DecodeOptions,
        pool: Option<&Arc<Pool>>,
    ) -> Result<Self> {
        let (left, path, is_whole) = (file.rows(fetched.group()), file.path().to_owned(), options.rows.is_none());
        let mut general_leaves = fetched.leaves().to_vec();
        let mut string_columns = Vec::new();
        for leaf in fetched.leaves() {
            let Some((pool, member)) = pool.zip(file.string_member(*leaf)) else { continue };
            // The remaining members of `add` show which rows have one.
            if general_leaves.iter().filter(|other| file.is_below(**other, "add")).count() < 2 {
                continue;
            }
            let (chunk, bytes) = (file.chunk(&fetched, *leaf)?, fetched.bytes(*leaf)?);
            match StringViews::new(chunk, bytes, pool) {
                Ok(views) => {
                    string_columns.push((member.to_owned(), views));
                    general_leaves.retain(|other| other != leaf);
                }
                Err(Failure::Unsupported) => {}
                Err(stop) => return Err(unreadable(stop, &path)),
            }
        }
        Ok(Self {
            reader: file.decode_leaves(fetched, options, &general_leaves)?,
            string_columns,
            is_whole,
            left,
            path,
        })
    }

    /// Rows with the members of `add` that are decoded directly.
    fn with_string_columns(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(at) = batch.schema_ref().fields().iter().position(|field| field.name() == "add") else {
            return Ok(batch);
        };
        if self.string_columns.is_empty() {
            return Ok(batch);
        }
        let (schema, mut columns, rows) = batch.into_parts();
        let add = columns.get(at).and_then(|add| add.as_struct_opt());
        let add = add.ok_or_else(|| Error::corrupt("`add` is not a struct").in_file(&self.path))?;
        let (members, mut arrays, nulls) = add.clone().into_parts();
        let mut members: Vec<FieldRef> = members.iter().cloned().collect();
        for (name, views) in &mut self.string_columns {
            let strings = views.take(rows).map_err(|stop| unreadable(stop, &self.path))?;
            members.push(Arc::new(Field::new(name.as_str(), DataType::Utf8View, true)));
            arrays.push(Arc::new(strings) as ArrayRef);
        }
        let add = StructArray::try_new(members.into(), arrays, nulls)?;
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        if let Some((field, column)) = fields.get_mut(at).zip(columns.get_mut(at)) {
            *field = Arc::new(field.as_ref().clone().with_data_type(add.data_type().clone()));
            *column = Arc::new(add);
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }
}

impl Iterator for RowGroupBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(batch) = self.reader.next() else {
            // The reader reports no error if pages end early.
            let missing = std::mem::take(&mut self.left);
            let message = format!("a row group has {missing} rows fewer than the footer states");
            return (self.is_whole && missing > 0).then(|| Err(Error::corrupt(message).in_file(&self.path)));
        };
        let batch = batch.map_err(|e| corrupt_parquet(&self.path, e.into()));
        let within = |batch: RecordBatch| {
            self.left = self.left.checked_sub(batch.num_rows()).ok_or_else(|| {
                Error::corrupt("a row group has more rows than the footer states").in_file(&self.path)
            })?;
            self.with_string_columns(batch)
        };
        Some(batch.and_then(within))
    }
}
