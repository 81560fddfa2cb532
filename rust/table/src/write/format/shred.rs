//! Shreds the variants of a file.
//!
//! Variants are shredded if they are columns or in structs; in arrays and maps they are not.
//!
//! Invariant: every value is read as it was written, except that a number may have another numeric type with the same
//! value, and a nanosecond timestamp of whole microseconds may become one of microseconds. Proved by
//! `tests/python/test_shredding.py` and, with delta-spark, `tests/interop/test_shredding.py`.
//!
//! PROTOCOL.md: "Variant Shredding"; the layout is Parquet's "VariantShredding.md".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType as ArrowType, Field, FieldRef, Fields, Schema, SchemaRef};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::{DataType, StructType};
use parquet_variant_compute::{VariantArray, shred_variant};

use super::infer::Sample;

/// Bytes of typed columns that are made at a time, and the least bytes of a value in one.
const AT_ONCE: usize = 8 * 1024 * 1024;
const VALUE: usize = 64;

/// The most typed columns of a file.
const MOST_COLUMNS: usize = 1000;

/// How a column is written.
#[derive(Debug)]
enum ColumnPlan {
    Unchanged,
    /// A variant that is shredded to this type.
    Shredded(ArrowType),
    /// A struct with variants in it.
    Struct(Vec<ColumnPlan>),
}

/// How the variants of one file are shredded.
#[derive(Debug)]
pub(super) struct Shredding {
    /// The columns of the file.
    pub(super) arrow: SchemaRef,
    plans: Vec<ColumnPlan>,
    /// How many rows are shredded at a time.
    pub(super) rows_at_once: usize,
}

impl Shredding {
    /// Infers the typed columns from the first of these rows, which have the columns of `arrow`. `None` if no variant is
    /// shredded.
    ///
    /// # Errors
    /// Those of [`Shredding::shred`].
    pub(super) fn infer(arrow: &Schema, schema: &StructType, batches: &[RecordBatch]) -> Result<Option<Self>> {
        let mut columns = 0;
        let mut plans = Vec::with_capacity(arrow.fields().len());
        for (at, field) in arrow.fields().iter().enumerate() {
            let arrays = || batches.iter().map(|batch| Arc::clone(batch.column(at))).collect();
            plans.push(match schema.fields.iter().find(|column| column.name == *field.name()) {
                Some(column) if has_variants(&column.data_type) => {
                    infer_column(&column.data_type, field, arrays(), &mut columns).map_err(failed)?
                }
                _ => ColumnPlan::Unchanged,
            });
        }
        if columns == 0 {
            return Ok(None);
        }
        let fields = shredded_fields(arrow.fields(), &plans).map_err(failed)?;
        let arrow = Arc::new(Schema::new_with_metadata(fields, arrow.metadata().clone()));
        Ok(Some(Self { arrow, plans, rows_at_once: (AT_ONCE / VALUE / columns).max(1) }))
    }

    /// The rows with shredded variants, in the file's schema.
    ///
    /// # Errors
    /// `Invalid` for a variant that cannot be shredded: an object with two fields of the same name.
    pub(super) fn shred(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let columns = rows.columns().iter().zip(self.arrow.fields()).zip(&self.plans);
        let columns = columns.map(|((column, field), plan)| shredded(column, field, plan)).collect::<Result<_, _>>();
        Ok(RecordBatch::try_new(Arc::clone(&self.arrow), columns.map_err(failed)?)?)
    }
}

/// Whether the type is a variant, or a struct with one in it.
pub(super) fn has_variants(data_type: &DataType) -> bool {
    match data_type {
        DataType::Variant => true,
        DataType::Struct(inner) => inner.fields.iter().any(|field| has_variants(&field.data_type)),
        _ => false,
    }
}

fn infer_column(
    data_type: &DataType,
    field: &Field,
    arrays: Vec<ArrayRef>,
    columns: &mut usize,
) -> Result<ColumnPlan, ArrowError> {
    match (data_type, field.data_type()) {
        (DataType::Variant, ArrowType::Struct(_)) => {
            let Some((typed, count)) = sample(&arrays)?.shredded_as(MOST_COLUMNS - *columns) else {
                return Ok(ColumnPlan::Unchanged);
            };
            *columns += count;
            Ok(ColumnPlan::Shredded(typed))
        }
        (DataType::Struct(inner), ArrowType::Struct(fields)) => {
            let mut plans = Vec::with_capacity(fields.len());
            for (at, field) in fields.iter().enumerate() {
                let column = inner.fields.iter().find(|column| column.name == *field.name());
                let Some(column) = column.filter(|column| has_variants(&column.data_type)) else {
                    plans.push(ColumnPlan::Unchanged);
                    continue;
                };
                let inner = |array: &ArrayRef| {
                    let array = array.as_struct_opt()?;
                    let nulls = array.nulls();
                    masked(array.columns().get(at)?, nulls)
                };
                plans.push(infer_column(&column.data_type, field, arrays.iter().filter_map(inner).collect(), columns)?);
            }
            Ok(ColumnPlan::Struct(plans))
        }
        _ => Ok(ColumnPlan::Unchanged),
    }
}

/// A variant or struct that is null where the struct around it is.
fn masked(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Option<ArrayRef> {
    let array = array.as_struct_opt()?;
    let (fields, columns, own) = array.clone().into_parts();
    let nulls = NullBuffer::union(own.as_ref(), nulls);
    Some(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, array.len()).ok()?))
}

fn sample(arrays: &[ArrayRef]) -> Result<Sample, ArrowError> {
    let mut sample = Sample::new();
    for array in arrays {
        let variants = VariantArray::try_new(array)?;
        let bytes = |row| match variants.value_column().as_binary_opt::<i32>() {
            Some(values) => values.value_length(row).unsigned_abs() as usize,
            None => 0,
        };
        for row in (0..variants.len()).filter(|row| variants.is_valid(*row)) {
            if sample.is_full() {
                return Ok(sample);
            }
            sample.add(&variants.try_value(row)?, bytes(row));
        }
    }
    Ok(sample)
}

fn shredded_fields(fields: &Fields, plans: &[ColumnPlan]) -> Result<Fields, ArrowError> {
    let field = |(field, plan): (&FieldRef, &ColumnPlan)| {
        let data_type = match (plan, field.data_type()) {
            (ColumnPlan::Shredded(typed), ArrowType::Struct(_)) => {
                let none = arrow_array::new_empty_array(field.data_type());
                shred_variant(&VariantArray::try_new(&none)?, typed)?.data_type().clone()
            }
            (ColumnPlan::Struct(plans), ArrowType::Struct(inner)) => ArrowType::Struct(shredded_fields(inner, plans)?),
            _ => return Ok(Arc::clone(field)),
        };
        Ok(Arc::new(field.as_ref().clone().with_data_type(data_type)))
    };
    fields.iter().zip(plans).map(field).collect()
}

fn shredded(array: &ArrayRef, field: &Field, plan: &ColumnPlan) -> Result<ArrayRef, ArrowError> {
    match (plan, field.data_type()) {
        (ColumnPlan::Shredded(typed), _) => {
            Ok(Arc::new(shred_variant(&VariantArray::try_new(array)?, typed)?.into_inner()))
        }
        (ColumnPlan::Struct(plans), ArrowType::Struct(fields)) => {
            let Some(outer) = array.as_struct_opt() else { return Ok(Arc::clone(array)) };
            let column = |((array, field), plan): ((&ArrayRef, &FieldRef), &ColumnPlan)| {
                let inner = match plan {
                    ColumnPlan::Unchanged => None,
                    ColumnPlan::Shredded(_) | ColumnPlan::Struct(_) => masked(array, outer.nulls()),
                };
                shredded(inner.as_ref().unwrap_or(array), field, plan)
            };
            let columns = outer.columns().iter().zip(fields).zip(plans).map(column).collect::<Result<_, _>>()?;
            let (fields, nulls) = (fields.clone(), outer.nulls().cloned());
            Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, outer.len())?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn failed(error: ArrowError) -> Error {
    Error::invalid("a variant cannot be shredded: an object has two fields of a name, or its bytes are damaged")
        .caused_by(error)
}
