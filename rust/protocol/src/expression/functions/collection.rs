//! Functions of arrays and maps. Values are compared as by `=`: NaN equals NaN, and -0.0 equals 0.0.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Int32Array, Int64Array, UInt32Array};
use arrow_select::take::take;

use super::signature::{Arguments, Definition, ResultType, Slot};
use crate::error::Result;
use crate::expression::ast::Op;
use crate::expression::kernel::{Evaluated, compare, unexpected};
use crate::schema::PrimitiveType as P;

const fn define(
    name: &'static str,
    slots: &'static [Slot],
    result_type: ResultType,
    run: fn(&Arguments<'_>) -> Evaluated,
) -> Definition {
    Definition { name, least: slots.len(), slots, repeats: false, result_type, run }
}

pub(super) static FUNCTIONS: &[Definition] = &[
    define("size", &[Slot::Collection], ResultType::Fixed(P::Integer), size),
    define("array_size", &[Slot::Array], ResultType::Fixed(P::Integer), size),
    define("array_contains", &[Slot::Array, Slot::Element], ResultType::Fixed(P::Boolean), contains),
    define("array_position", &[Slot::Array, Slot::Element], ResultType::Fixed(P::Long), position),
    define("map_contains_key", &[Slot::Map, Slot::Key], ResultType::Fixed(P::Boolean), contains),
    define("element_at", &[Slot::Collection, Slot::Key], ResultType::Element, |a| element_at(a, false)),
    define("try_element_at", &[Slot::Collection, Slot::Key], ResultType::Element, |a| element_at(a, true)),
    define("get", &[Slot::Array, Slot::Int], ResultType::Element, get),
];

/// The elements of arrays, or the entries of maps.
struct Elements<'a> {
    offsets: &'a [i32],
    /// The elements, or the keys.
    searched: &'a ArrayRef,
    /// The elements, or the values.
    values: &'a ArrayRef,
}

impl<'a> Elements<'a> {
    fn of(arguments: &'a Arguments<'_>) -> Result<Self> {
        let array = arguments.array(0)?;
        if let Some(list) = array.as_list_opt::<i32>() {
            return Ok(Self { offsets: list.offsets(), searched: list.values(), values: list.values() });
        }
        let map = array.as_map_opt().ok_or_else(|| unexpected(array))?;
        Ok(Self { offsets: map.offsets(), searched: map.keys(), values: map.values() })
    }

    /// Where a row's elements begin and end.
    fn range(&self, row: usize) -> (usize, usize) {
        let at = |row: usize| self.offsets.get(row).and_then(|at| usize::try_from(*at).ok()).unwrap_or_default();
        (at(row), at(row + 1))
    }

    fn count(&self, row: usize) -> usize {
        let (from, to) = self.range(row);
        to.saturating_sub(from)
    }

    /// Which elements equal their row's value.
    fn equal_to(&self, wanted: &ArrayRef) -> Result<BooleanArray> {
        let mut rows = vec![None; self.searched.len()];
        for row in 0..wanted.len() {
            let (from, to) = self.range(row);
            if let Some(elements) = rows.get_mut(from..to) {
                elements.fill(u32::try_from(row).ok());
            }
        }
        compare(self.searched, Op::Eq, &take(wanted, &UInt32Array::from(rows), None)?)
    }

    /// The first of a row's elements that is equal.
    fn first(&self, equal: &BooleanArray, row: usize) -> Option<usize> {
        let (from, to) = self.range(row);
        (from..to).find(|at| equal.is_valid(*at) && equal.value(*at))
    }

    fn take(&self, places: Vec<Option<usize>>) -> Evaluated {
        let places: UInt32Array = places.into_iter().map(|at| at.and_then(|at| u32::try_from(at).ok())).collect();
        Ok(take(self.values, &places, None)?)
    }
}

fn size(arguments: &Arguments<'_>) -> Evaluated {
    let elements = Elements::of(arguments)?;
    Ok(Arc::new(arguments.each::<_, Int32Array>(|row| Ok(i32::try_from(elements.count(row)).ok()))?))
}

/// NULL where it is not found, and may be one of the nulls.
fn contains(arguments: &Arguments<'_>) -> Evaluated {
    let elements = Elements::of(arguments)?;
    let equal = elements.equal_to(arguments.array(1)?)?;
    let found = |row: usize| {
        let (from, to) = elements.range(row);
        match elements.first(&equal, row) {
            Some(_) => Some(true),
            None => (from..to).all(|at| elements.searched.is_valid(at)).then_some(false),
        }
    };
    Ok(Arc::new(arguments.each::<_, BooleanArray>(|row| Ok(found(row)))?))
}

/// From 1; 0 where it is not found.
fn position(arguments: &Arguments<'_>) -> Evaluated {
    let elements = Elements::of(arguments)?;
    let equal = elements.equal_to(arguments.array(1)?)?;
    let place = |row: usize| elements.first(&equal, row).map_or(0, |at| at + 1 - elements.range(row).0);
    Ok(Arc::new(arguments.each::<_, Int64Array>(|row| Ok(i64::try_from(place(row)).ok()))?))
}

/// The element at a position, from 1, or from the end if negative; the value of a key, NULL if there is none.
fn element_at(arguments: &Arguments<'_>, is_try: bool) -> Evaluated {
    let elements = Elements::of(arguments)?;
    if arguments.array(0)?.as_map_opt().is_some() {
        let equal = elements.equal_to(arguments.array(1)?)?;
        return elements.take(arguments.each(|row| Ok(elements.first(&equal, row)))?);
    }
    let positions = arguments.int(1)?;
    let places: Vec<Option<usize>> = arguments.each(|row| {
        let (position, count) = (positions.value(row), elements.count(row));
        let distance = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
        let (from, to) = elements.range(row);
        match position {
            0 => Err("elements are counted from 1".to_owned()),
            _ if distance > count && is_try => Ok(None),
            _ if distance > count => Err(format!("there is no element {position} among {count}")),
            1.. => Ok(Some(from + distance - 1)),
            _ => Ok(Some(to - distance)),
        }
    })?;
    elements.take(places)
}

/// The element at a position, from 0; NULL where there is none.
fn get(arguments: &Arguments<'_>) -> Evaluated {
    let (elements, positions) = (Elements::of(arguments)?, arguments.int(1)?);
    let place = |row: usize| {
        let at = usize::try_from(positions.value(row)).ok().filter(|at| *at < elements.count(row))?;
        Some(elements.range(row).0 + at)
    };
    elements.take(arguments.each(|row| Ok(place(row)))?)
}
