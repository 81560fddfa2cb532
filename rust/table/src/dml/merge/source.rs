//! The source of a merge, in memory.
//!
//! Its rows are in the types of a table's, and are called by one number each, in their order.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, NullArray, RecordBatch, StructArray};
use arrow_schema::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::interleave::interleave;
use deltic_protocol::schema::arrow::{cast_strictly, check_extensions, from_rows_schema, to_arrow_type};
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

use crate::error::{Error, Result};
use crate::write::conform::Conformer;

/// Rows that are merged into a table.
#[derive(Debug)]
pub(super) struct Source {
    /// Its columns.
    pub(super) schema: StructType,
    /// The same in Arrow.
    fields: Fields,
    batches: Vec<Vec<ArrayRef>>,
    /// The number of the first row of each batch, and of all rows.
    starts: Vec<u32>,
}

impl Source {
    /// # Errors
    /// `Invalid` for columns and values that no table has, and for more rows than are merged at once.
    pub(super) fn new(rows: &SchemaRef, batches: &[RecordBatch]) -> Result<Self> {
        check_extensions(rows)?;
        // Columns of NULL alone are of no type that a table has.
        let typed: Vec<usize> = (0..rows.fields().len()).filter(|at| !rows.field(*at).data_type().is_null()).collect();
        let stored = from_rows_schema(&rows.project(&typed)?)?;
        let conformer = match stored.fields.is_empty() {
            true => None,
            false => Some(Conformer::new(&stored, ColumnMapping::None)?),
        };
        let mut stored = stored.fields.into_iter();
        let void = |field: &FieldRef| StructField::new(field.name(), DataType::Primitive(PrimitiveType::Void), true);
        let of = |field: &FieldRef| if field.data_type().is_null() { Some(void(field)) } else { stored.next() };
        let schema = StructType::new(rows.fields().iter().filter_map(of).collect());
        let (mut columns, mut starts, mut count) = (Vec::with_capacity(batches.len()), vec![0], 0_u64);
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            columns.push(columns_of(&schema, conformer.as_ref(), (batch, &typed), count)?);
            count = count.saturating_add(batch.num_rows() as u64);
            let next = u32::try_from(count).ok().filter(|next| *next < u32::MAX);
            starts.push(next.ok_or_else(|| {
                Error::invalid(format!("the source has more than {} rows; merge it in parts", u32::MAX - 1))
            })?);
        }
        let arrow = |field: &StructField| Field::new(&field.name, to_arrow_type(&field.data_type), true);
        let fields: Fields = schema.fields.iter().map(arrow).collect();
        Ok(Self { schema, fields, batches: columns, starts })
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.starts.last().map_or(0, |count| *count as usize)
    }

    /// Some rows, with the columns at some positions, as a struct.
    pub(super) fn gather(&self, rows: &[u32], columns: &[usize]) -> Result<ArrayRef> {
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            let batch = self.starts.partition_point(|start| start <= row).saturating_sub(1);
            let start = self.starts.get(batch).copied().unwrap_or_default();
            places.push((batch, row.saturating_sub(start) as usize));
        }
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

/// Rows of one side or of both, under the names of the sides.
pub(super) fn sides(parts: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
    let schema = Schema::new(parts.iter().map(field).collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), parts.into_iter().map(|(_, array)| array).collect())?)
}

fn is_void(data_type: &DataType) -> bool {
    *data_type == DataType::Primitive(PrimitiveType::Void)
}

fn columns_of(
    schema: &StructType,
    conformer: Option<&Conformer>,
    (batch, typed): (&RecordBatch, &[usize]),
    first: u64,
) -> Result<Vec<ArrayRef>> {
    let given = batch.project(typed)?;
    let conformed = conformer.map(|conformer| conformer.conform_from(&given, first)).transpose();
    let conformed = conformed.map_err(|e| Error::new(e.kind().clone(), format!("the source: {}", e.message())))?;
    let mut stored = conformed.iter().flat_map(RecordBatch::columns);
    let mut columns = Vec::with_capacity(schema.fields.len());
    for field in &schema.fields {
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
