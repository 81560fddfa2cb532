//! The source of a merge.
//!
//! Its rows have a table's types and are numbered in order. They are Arrow arrays, in memory or in a file that is mapped into
//! memory; gathering rows reads only what it needs.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, NullArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::interleave::interleave;
use deltic_protocol::schema::arrow::{
    cast_strictly, check_extensions, from_rows_schema, to_arrow_type, to_source_schema,
};
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

use super::row_sizes::{RowSizes, fitting};
use crate::error::{Error, Result};
use crate::write::conform::Conformer;
use crate::write::pieces::pieces;
use crate::write::writer::{DEFAULT_MEMORY, check_memory_limit};

/// Converts the rows of a source to a table's types, batch by batch, so that they can be stored before they are merged.
#[derive(Debug)]
pub struct SourceConformer {
    columns: StructType,
    schema: SchemaRef,
    conformer: Option<Conformer>,
    /// Positions of the columns whose type is not NULL: a table has no such type.
    typed: Vec<usize>,
    memory_limit: u64,
    /// How many rows have been converted.
    rows: u64,
}

impl SourceConformer {
    /// `rows`: their schema. `memory_limit`: how many bytes of them may be in memory; [`DEFAULT_MEMORY`] unless given.
    ///
    /// # Errors
    /// `Invalid` for columns that no table has, and a limit below [`LEAST_MEMORY`](crate::write::writer::LEAST_MEMORY).
    pub fn new(rows: &SchemaRef, memory_limit: Option<u64>) -> Result<Self> {
        check_memory_limit(memory_limit)?;
        check_extensions(rows)?;
        let typed: Vec<usize> = (0..rows.fields().len()).filter(|at| !rows.field(*at).data_type().is_null()).collect();
        let stored = from_rows_schema(&rows.project(&typed)?)?;
        let conformer = match stored.fields.is_empty() {
            true => None,
            false => Some(Conformer::new(&stored, ColumnMapping::None)?),
        };
        let mut stored = stored.fields.into_iter();
        let void = |field: &FieldRef| StructField::new(field.name(), DataType::Primitive(PrimitiveType::Void), true);
        let of = |field: &FieldRef| if field.data_type().is_null() { Some(void(field)) } else { stored.next() };
        let columns = StructType::new(rows.fields().iter().filter_map(of).collect());
        let schema = Arc::new(to_source_schema(&columns));
        let memory_limit = memory_limit.unwrap_or(DEFAULT_MEMORY as u64);
        Ok(Self { columns, schema, conformer, typed, memory_limit, rows: 0 })
    }

    /// The Arrow schema of converted rows. Converting those again changes and copies nothing.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many bytes of rows may be in memory.
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// The rows of the next batch, converted and cut into pieces of about a quarter of the memory limit, at most 16 MiB.
    ///
    /// # Errors
    /// `Invalid`, naming the column and the row, for a value that no table can have.
    pub fn conform(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut conformed = Vec::new();
        for piece in pieces(batch, self.memory_limit) {
            let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
            let columns = self.columns_of(&piece)?;
            conformed.push(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?);
            self.rows = self.rows.saturating_add(piece.num_rows() as u64);
        }
        Ok(conformed)
    }

    fn columns_of(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let given = batch.project(&self.typed)?;
        let conformed = self.conformer.as_ref().map(|conformer| conformer.conform_from(&given, self.rows)).transpose();
        let conformed = conformed.map_err(|e| Error::new(e.kind().clone(), format!("the source: {}", e.message())))?;
        let mut stored = conformed.iter().flat_map(RecordBatch::columns);
        let mut columns = Vec::with_capacity(self.columns.fields.len());
        for field in &self.columns.fields {
            columns.push(match is_void(&field.data_type) {
                true => Arc::new(NullArray::new(batch.num_rows())) as ArrayRef,
                false => {
                    let column = stored.next().ok_or_else(|| Error::internal("the source lost a column"))?;
                    cast_strictly(column, &to_arrow_type(&field.data_type))?
                }
            });
        }
        Ok(columns)
    }
}

/// Rows that are merged into a table.
#[derive(Debug)]
pub(super) struct Source {
    /// Its columns.
    pub(super) schema: StructType,
    /// The same in Arrow.
    fields: Fields,
    batches: Vec<Vec<ArrayRef>>,
    /// The number of the first row of each batch, and at the end the number of all rows.
    starts: Vec<u32>,
    /// The sizes of the rows of each batch.
    sizes: Vec<RowSizes>,
}

impl Source {
    /// # Errors
    /// `Invalid` for columns and values that no table has, and for more rows than are merged at once.
    pub(super) fn new(rows: &SchemaRef, batches: &[RecordBatch]) -> Result<Self> {
        let mut conformer = SourceConformer::new(rows, None)?;
        let (mut columns, mut starts, mut sizes) = (Vec::with_capacity(batches.len()), vec![0], Vec::new());
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            for piece in conformer.conform(batch)? {
                sizes.push(RowSizes::of(piece.columns(), piece.num_rows()));
                let next = starts.last().map_or(0, |start: &u32| u64::from(*start)) + piece.num_rows() as u64;
                let next = u32::try_from(next).ok().filter(|next| *next < u32::MAX);
                starts.push(next.ok_or_else(|| {
                    Error::invalid(format!("the source has more than {} rows; merge it in parts", u32::MAX - 1))
                })?);
                columns.push(piece.columns().to_vec());
            }
        }
        let schema = conformer.columns;
        let arrow = |field: &StructField| Field::new(&field.name, to_arrow_type(&field.data_type), true);
        let fields: Fields = schema.fields.iter().map(arrow).collect();
        Ok(Self { schema, fields, batches: columns, starts, sizes })
    }

    /// The size of the largest row.
    pub(super) fn largest_row(&self) -> usize {
        self.sizes.iter().map(RowSizes::largest).max().unwrap_or_default()
    }

    /// The size of a row, or of a larger one.
    pub(super) fn row_size(&self, row: u32) -> usize {
        let (batch, at) = self.place(row);
        self.sizes.get(batch).map_or(0, |sizes| sizes.get(at))
    }

    /// How many of the first of some rows are gathered together: at least one, if there is any.
    pub(super) fn fitting(&self, rows: &[u32]) -> usize {
        fitting(rows.iter().map(|row| self.row_size(*row)))
    }

    /// Some rows, as many at a time as are gathered together.
    pub(super) fn chunks<'a>(&'a self, mut rows: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
        std::iter::from_fn(move || {
            let (some, rest) = rows.split_at_checked(self.fitting(rows)).filter(|(some, _)| !some.is_empty())?;
            rows = rest;
            Some(some)
        })
    }

    /// The batch of a row, and its position there.
    fn place(&self, row: u32) -> (usize, usize) {
        let batch = self.starts.partition_point(|start| *start <= row).saturating_sub(1);
        let start = self.starts.get(batch).copied().unwrap_or_default();
        (batch, row.saturating_sub(start) as usize)
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.starts.last().map_or(0, |count| *count as usize)
    }

    /// Some rows, with the columns at some positions, as a struct.
    pub(super) fn gather(&self, rows: &[u32], columns: &[usize]) -> Result<ArrayRef> {
        let places: Vec<(usize, usize)> = rows.iter().map(|row| self.place(*row)).collect();
        let (mut fields, mut gathered) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
        for at in columns {
            let parts: Vec<&dyn Array> =
                self.batches.iter().filter_map(|batch| batch.get(*at)).map(AsRef::as_ref).collect();
            let field = self.fields.get(*at).ok_or_else(|| Error::internal("the source lacks a column"))?;
            gathered.push(match parts.is_empty() {
                true => arrow_array::new_empty_array(field.data_type()),
                false => interleave(&parts, &places)?,
            });
            fields.push(Arc::clone(field));
        }
        Ok(Arc::new(StructArray::try_new_with_length(fields.into(), gathered, None, rows.len())?))
    }
}

/// Rows of one side or of both as a batch: a struct column for each side, under its alias.
pub(super) fn batch_of_sides(parts: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
    let schema = Schema::new(parts.iter().map(field).collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), parts.into_iter().map(|(_, array)| array).collect())?)
}

fn is_void(data_type: &DataType) -> bool {
    *data_type == DataType::Primitive(PrimitiveType::Void)
}
