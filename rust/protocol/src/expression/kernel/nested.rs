//! Nested values: in the Arrow type that expressions give them, cast, and stored in another nested type. Fields are paired
//! by name, whatever their case, in any order.
//!
//! [`fits`] refuses types of which one has a field that the other lacks.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, MapArray, StructArray, UInt32Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::DataType as ArrowType;
use arrow_select::nullif::nullif;
use arrow_select::take::take;

use super::cast::cast as cast_plain;
use super::rows::{Evaluated, EvaluationError, unexpected};
use crate::error::{Error, Result};
use crate::schema::arrow::{cast_strictly, to_arrow_type};
use crate::schema::{DataType, StructType};

/// A function that converts values that are not nested.
pub(crate) type Store<'a> = &'a dyn Fn(&ArrayRef, &DataType, &DataType) -> Evaluated;

/// Whether nested values of one type can be stored as another; `inside` decides for the types inside. A struct must have a
/// value for every field of the other, since missing values would be lost.
pub(crate) fn fits(from: &DataType, to: &DataType, inside: &dyn Fn(&DataType, &DataType) -> bool) -> bool {
    match (from, to) {
        (DataType::Struct(from), DataType::Struct(to)) => {
            let has_place = from.fields.iter().all(|field| to.index_of(&field.name).is_some());
            has_place
                && to.fields.iter().all(|field| {
                    from.field(&field.name).is_some_and(|given| inside(&given.data_type, &field.data_type))
                })
        }
        (DataType::Array(from), DataType::Array(to)) => inside(&from.element, &to.element),
        (DataType::Map(from), DataType::Map(to)) => inside(&from.key, &to.key) && inside(&from.value, &to.value),
        _ => false,
    }
}

/// Values of a column as values of `data_type`, whose Arrow types differ in metadata and nullability of inner fields at most.
pub(crate) fn of_type(values: ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    match data_type {
        DataType::Primitive(_) | DataType::Foreign(_) => Ok(values),
        DataType::Struct(_) | DataType::Array(_) | DataType::Map(_) | DataType::Variant => {
            let arrow = to_arrow_type(data_type);
            if *values.data_type() == arrow { Ok(values) } else { cast_strictly(&values, &arrow) }
        }
    }
}

/// CAST of any values, nested ones part by part.
pub(crate) fn cast(values: &ArrayRef, from: &DataType, to: &DataType, is_try: bool) -> Evaluated {
    match from == to || from.as_primitive().is_some() {
        true => cast_plain(values, from, to, is_try),
        false => stored(values, from, to, &|values, from, to| cast(values, from, to, is_try)),
    }
}

/// Nested values converted to another type, in its Arrow form.
pub(crate) fn stored(values: &ArrayRef, from: &DataType, to: &DataType, store: Store<'_>) -> Evaluated {
    match (from, to, to_arrow_type(to)) {
        (DataType::Struct(from), DataType::Struct(to), ArrowType::Struct(fields)) => {
            let given = values.as_struct_opt().ok_or_else(|| unexpected(values))?;
            let mut columns = Vec::with_capacity(fields.len());
            for field in &to.fields {
                let (column, data_type) = child(from, given, &field.name).ok_or_else(|| unexpected(values))?;
                // Values inside a NULL struct count as NULL.
                let column = match given.nulls() {
                    Some(nulls) => nullif(column, &BooleanArray::new(!nulls.inner(), None)).map_err(Error::from)?,
                    None => Arc::clone(column),
                };
                let column = store(&column, data_type, &field.data_type)?;
                if !field.nullable {
                    check_present(&column, given, &field.name)?;
                }
                columns.push(column);
            }
            Ok(Arc::new(StructArray::try_new_with_length(fields, columns, given.nulls().cloned(), given.len())?))
        }
        (DataType::Array(from), DataType::Array(to), ArrowType::List(field)) => {
            let given = values.as_list_opt::<i32>().ok_or_else(|| unexpected(values))?;
            let visible = Visible::of(given.values().len(), given.offsets(), given.nulls());
            let offsets = visible.offsets;
            let elements = of_places(given.values(), visible.places.as_ref())?;
            let elements = store(&elements, &from.element, &to.element).map_err(|e| in_rows(e, &offsets))?;
            if !to.contains_null {
                check_elements(&elements, &offsets, "an element")?;
            }
            Ok(Arc::new(ListArray::try_new(field, offsets, elements, given.nulls().cloned())?))
        }
        (DataType::Map(from), DataType::Map(to), ArrowType::Map(field, ordered)) => {
            let given = values.as_map_opt().ok_or_else(|| unexpected(values))?;
            let visible = Visible::of(given.values().len(), given.offsets(), given.nulls());
            let (offsets, places) = (visible.offsets, visible.places.as_ref());
            let (keys, items) = (of_places(given.keys(), places)?, of_places(given.values(), places)?);
            let keys = store(&keys, &from.key, &to.key).map_err(|e| in_rows(e, &offsets))?;
            let items = store(&items, &from.value, &to.value).map_err(|e| in_rows(e, &offsets))?;
            if !to.value_contains_null {
                check_elements(&items, &offsets, "a value of a map")?;
            }
            let ArrowType::Struct(fields) = field.data_type() else { return Err(unexpected(values).into()) };
            let entries = StructArray::try_new(fields.clone(), vec![keys, items], None)?;
            Ok(Arc::new(MapArray::try_new(field, offsets, entries, given.nulls().cloned(), ordered)?))
        }
        _ => Err(Error::internal("nested values are to be stored in a type that has no place for them").into()),
    }
}

/// The elements that belong to a row: others, such as those of a NULL array, cannot be an error.
struct Visible {
    offsets: OffsetBuffer<i32>,
    /// Positions of these elements; `None` if they are all.
    places: Option<UInt32Array>,
}

impl Visible {
    /// Of `count` elements.
    fn of(count: usize, offsets: &OffsetBuffer<i32>, nulls: Option<&NullBuffer>) -> Self {
        let covers = offsets.first() == 0 && at(offsets.last()) == count;
        if covers && nulls.is_none_or(|nulls| nulls.null_count() == 0) {
            return Self { offsets: offsets.clone(), places: None };
        }
        let mut places = Vec::new();
        let mut lengths = Vec::with_capacity(offsets.len().saturating_sub(1));
        for (row, pair) in offsets.windows(2).enumerate() {
            let (from, to) = match pair {
                [from, to] if nulls.is_none_or(|nulls| nulls.is_valid(row)) => (at(*from), at(*to)),
                _ => (0, 0),
            };
            places.extend((from..to).map(|place| place as u32));
            lengths.push(to - from);
        }
        Self { offsets: OffsetBuffer::from_lengths(lengths), places: Some(places.into()) }
    }
}

fn of_places(values: &ArrayRef, places: Option<&UInt32Array>) -> Result<ArrayRef> {
    match places {
        Some(places) => Ok(take(values, places, None)?),
        None => Ok(Arc::clone(values)),
    }
}

fn at(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or_default()
}

fn child<'a>(from: &'a StructType, given: &'a StructArray, name: &str) -> Option<(&'a ArrayRef, &'a DataType)> {
    let field = from.field(name)?;
    Some((given.column_by_name(&field.name)?, &field.data_type))
}

/// Refuses NULL in a field that must have a value, unless its struct is NULL.
fn check_present(column: &ArrayRef, parent: &StructArray, name: &str) -> Result<(), EvaluationError> {
    let nulls = column.logical_nulls();
    match (0..column.len()).find(|row| nulls.as_ref().is_some_and(|n| n.is_null(*row)) && parent.is_valid(*row)) {
        None => Ok(()),
        Some(row) => Err(EvaluationError::Row(row, format!("the field `{name}` is not nullable, and would be NULL"))),
    }
}

/// Refuses NULL among elements that must have values.
fn check_elements(elements: &ArrayRef, offsets: &OffsetBuffer<i32>, what: &str) -> Result<(), EvaluationError> {
    let Some(nulls) = elements.logical_nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(()) };
    for (row, pair) in offsets.windows(2).enumerate() {
        if let [from, to] = pair
            && (at(*from)..at(*to)).any(|element| nulls.is_null(element))
        {
            return Err(EvaluationError::Row(row, format!("{what} would be NULL, which the column does not allow")));
        }
    }
    Ok(())
}

/// Replaces the index of an element in an error by the row that has the element.
fn in_rows(error: EvaluationError, offsets: &OffsetBuffer<i32>) -> EvaluationError {
    match error {
        EvaluationError::Row(element, message) => {
            let begun = offsets.partition_point(|offset| usize::try_from(*offset).is_ok_and(|at| at <= element));
            EvaluationError::Row(begun.saturating_sub(1), message)
        }
        other => other,
    }
}
