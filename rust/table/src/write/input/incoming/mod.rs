//! Checks that batches which another library made are valid by Arrow's format.
//!
//! The writer uses offsets, keys and views without checks, and relies on strings being UTF-8. So each batch is
//! checked once, in one pass over its offsets, keys, views, null bitmaps and the bytes of its strings; other values are not
//! read. The cost depends on the size of slices: values outside of a slice are neither checked nor kept, because
//! kernels would process them.
//!
//! Proved by `incoming::invalid_arrays_are_refused_by_column` and the fuzz target `arrow_data`.

mod broken;
mod strings;

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};

use broken::{Broken, Checked, broken, bytes, check_offsets};

use deltic_protocol::schema::arrow::table_type_name;

use crate::error::{Error, Result};

/// Makes a batch of `rows`, an array of structs. `schema` has the fields of the structs.
///
/// # Errors
/// `Invalid`, naming the column, if the rows violate Arrow's format, or if a row itself is null.
pub fn checked_batch(rows: &ArrayData, schema: &SchemaRef) -> Result<RecordBatch> {
    let DataType::Struct(fields) = rows.data_type() else {
        return Err(Error::invalid(format!(
            "expected rows with named columns, got {}",
            table_type_name(rows.data_type())
        )));
    };
    for field in fields {
        check_type(field.data_type()).map_err(|found| found.inside(field.name()))?;
    }
    for (field, column) in fields.iter().zip(rows.child_data()) {
        column.validate().map_err(|error| Broken::from(error).inside(field.name()))?;
    }
    rows.validate().map_err(Broken::from)?;
    let rows = checked(rows)?;
    if rows.null_count() > 0 {
        let reason = format!("{} rows are themselves null, which a table cannot have; drop them", rows.null_count());
        return Err(Error::invalid(format!("the Arrow data is not valid: {reason}")));
    }
    let rows = StructArray::from(rows);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), rows.into_parts().1, &options);
    Ok(batch.map_err(Broken::from)?)
}

/// Refuses types that a schema can have but no array.
fn check_type(data_type: &DataType) -> Checked {
    let inner = |field: &FieldRef| check_type(field.data_type()).map_err(|found| found.inside(field.name()));
    match data_type {
        DataType::FixedSizeBinary(size) if *size < 0 => broken(format!("{data_type} has a negative size")),
        DataType::FixedSizeList(_, size) if *size < 0 => broken(format!("{data_type} has a negative size")),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => fields.iter().try_for_each(inner),
            other => broken(format!("the entries of a map are a struct of two fields, not {other}")),
        },
        DataType::Struct(fields) => fields.iter().try_for_each(inner),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => inner(field),
        DataType::Union(fields, _) => match fields.iter().any(|(id, _)| id < 0) {
            true => broken("a type id of the union is negative"),
            false => fields.iter().try_for_each(|(_, field)| inner(field)),
        },
        DataType::Dictionary(key, value) => match key.is_integer() {
            true => check_type(value),
            false => broken(format!("the keys of a dictionary are integers, not {key}")),
        },
        DataType::RunEndEncoded(ends, values) => match ends.data_type() {
            DataType::Int16 | DataType::Int32 | DataType::Int64 => inner(values),
            other => broken(format!("run ends are int16, int32 or int64, not {other}")),
        },
        _ => Ok(()),
    }
}

/// The same values, checked, without those outside of the slice. The structure was validated before.
fn checked(data: &ArrayData) -> Checked<ArrayData> {
    check_null_count(data)?;
    match data.data_type() {
        DataType::Utf8 => strings::checked::<i32>(data),
        DataType::LargeUtf8 => strings::checked::<i64>(data),
        DataType::Binary => check_offsets::<i32>(data, bytes(data)).map(|_| data.clone()),
        DataType::LargeBinary => check_offsets::<i64>(data, bytes(data)).map(|_| data.clone()),
        DataType::Utf8View => strings::checked_views(data, true),
        DataType::BinaryView => strings::checked_views(data, false),
        DataType::List(field) | DataType::Map(field, _) => list::<i32>(data, field),
        DataType::LargeList(field) => list::<i64>(data, field),
        DataType::FixedSizeList(field, size) => {
            let size = size.as_usize();
            let child = window(child(data, 0)?, data.offset() * size, data.len() * size)?;
            let mask = data.nulls().map(|nulls| nulls.expand(size));
            let child = inner(&child, field, "element", mask.as_ref())?;
            rebuilt(data, vec![], vec![child])
        }
        DataType::Struct(fields) => {
            let mut children = Vec::with_capacity(fields.len());
            for (at, field) in fields.iter().enumerate() {
                let column = window(child(data, at)?, data.offset(), data.len());
                let column = column.map_err(|found| found.inside(field.name()))?;
                children.push(inner(&column, field, field.name(), data.nulls())?);
            }
            rebuilt(data, vec![], children)
        }
        DataType::Dictionary(..)
        | DataType::RunEndEncoded(..)
        | DataType::Union(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => {
            data.validate_values()?;
            let children: Checked<Vec<ArrayData>> = data.child_data().iter().map(checked).collect();
            let builder = data.clone().into_builder().child_data(children?);
            Ok(builder.build()?)
        }
        _ => Ok(data.clone()),
    }
}

/// Checks a column or an element: if its field is not nullable, it may be null only where its parent is null.
fn inner(data: &ArrayData, field: &Field, name: &str, mask: Option<&NullBuffer>) -> Checked<ArrayData> {
    let nulls = data.nulls().filter(|_| !field.is_nullable());
    let stray = nulls.and_then(|nulls| {
        let is_hidden = |row: usize| mask.is_some_and(|mask| mask.is_null(row));
        (0..nulls.len()).find(|row| nulls.is_null(*row) && !is_hidden(*row))
    });
    let found = match stray {
        Some(row) => {
            broken(format!("it is declared as not nullable, but row {row} of the batch is null: non-nullable"))
        }
        None => checked(data),
    };
    found.map_err(|found| found.inside(name))
}

/// A list, or a map: its offsets, and the elements between the first and the last.
fn list<O: ArrowNativeType>(data: &ArrayData, field: &Field) -> Checked<ArrayData> {
    let elements = child(data, 0)?;
    let offsets = check_offsets::<O>(data, elements.len())?;
    let (start, end) = (first(offsets), offsets.last().map_or(0, |last| last.as_usize()));
    let within = window(elements, start, end - start)?;
    let is_map = matches!(data.data_type(), DataType::Map(..));
    let within = match is_map {
        true => entries(&within)?,
        false => inner(&within, field, "element", None)?,
    };
    let moved: Buffer = match offsets {
        [] => std::iter::once(O::default()).collect(),
        _ if start == 0 => data.buffers()[0].slice_with_length(data.offset() * size_of::<O>(), size_of_val(offsets)),
        _ => offsets.iter().map(|offset| O::usize_as(offset.as_usize() - start)).collect(),
    };
    rebuilt(data, vec![moved], vec![within])
}

/// Checks the entries of maps: entries and keys are never null, even if their fields are nullable.
fn entries(data: &ArrayData) -> Checked<ArrayData> {
    if data.null_count() > 0 {
        return broken("an entry of a map is null");
    }
    let keys = child(data, 0)?;
    let keys = window(keys, data.offset(), data.len())?;
    if keys.null_count() > 0 {
        return broken("a key of a map is null");
    }
    checked(data)
}

fn rebuilt(data: &ArrayData, buffers: Vec<Buffer>, children: Vec<ArrayData>) -> Checked<ArrayData> {
    let builder = ArrayData::builder(data.data_type().clone()).len(data.len()).nulls(data.nulls().cloned());
    Ok(builder.buffers(buffers).child_data(children).build()?)
}

fn child(data: &ArrayData, at: usize) -> Checked<&ArrayData> {
    match data.child_data().get(at) {
        Some(child) => Ok(child),
        None => broken("an array has fewer children than its type"),
    }
}

fn window(data: &ArrayData, start: usize, length: usize) -> Checked<ArrayData> {
    match start.checked_add(length).is_some_and(|end| end <= data.len()) {
        true => Ok(data.slice(start, length)),
        false => broken(format!("it has {} values, and {length} from the {start}th are needed", data.len())),
    }
}

fn check_null_count(data: &ArrayData) -> Checked {
    let Some(nulls) = data.nulls() else { return Ok(()) };
    let counted = nulls.len() - nulls.inner().count_set_bits();
    match counted == nulls.null_count() {
        true => Ok(()),
        false => broken(format!("it declares {} nulls and has {counted}", nulls.null_count())),
    }
}

fn first<O: ArrowNativeType>(offsets: &[O]) -> usize {
    offsets.first().map_or(0, |first| first.as_usize())
}
