//! What the bounds of a column prove about a comparison, for all containers at once.
//!
//! Each function answers "may there be a value such that…". For unknown bounds the answer is yes. The greatest string counts
//! as a prefix of the actual one, so any string that begins with it may exist. NaN is greater than every float and need not
//! be included in bounds, so a greatest float limits only conditions that exclude NaN. For exact bounds neither rule
//! is needed.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Scalar as ArrowScalar, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_ord::ord::{DynComparator, make_comparator};
use arrow_schema::{DataType as ArrowType, SortOptions};
use arrow_string::like::starts_with;

use crate::error::{Error, Result};
use crate::predicate::{Column, Op, Pattern, ValueSet, compare_columns, compare_value, partition_point};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// One column in N containers.
#[derive(Clone)]
pub(super) struct ColumnBounds {
    /// The containers in which it may have a value.
    pub(super) may_have_value: BooleanBuffer,
    /// The containers in which it may have a null.
    pub(super) may_have_null: BooleanBuffer,
    /// Least values, null where unknown.
    pub(super) min: Option<ArrayRef>,
    /// Greatest values, null where unknown.
    pub(super) max: Option<ArrayRef>,
    /// Whether the bounds are exact: not shortened, and with NaN included.
    pub(super) is_exact: bool,
    /// Whether the bounds were asked for.
    pub(super) bounded: bool,
}

impl ColumnBounds {
    /// A column whose bounds were not asked for.
    pub(super) fn unbounded(may_have_value: BooleanBuffer, may_have_null: BooleanBuffer) -> Self {
        Self { may_have_value, may_have_null, min: None, max: None, is_exact: false, bounded: false }
    }

    /// May a row be null (or, with false, not null)?
    pub(super) fn may_be_null(&self, is_null: bool) -> BooleanBuffer {
        if is_null { self.may_have_null.clone() } else { self.may_have_value.clone() }
    }

    /// May there be a value with `it op value`?
    pub(super) fn may(&self, column: &Column, op: Op, value: &Scalar) -> Result<BooleanBuffer> {
        match op {
            Op::Lt | Op::Le => self.known_or(&self.min, |min| compare_value(min, op, value, column.primitive()?)),
            Op::Gt | Op::Ge if self.nan_may_be_hidden(column) => Ok(self.all()),
            Op::Gt | Op::Ge => self.may_exceed(column, op, value),
            Op::Eq => Ok(&self.may(column, Op::Le, value)? & &self.may_between(column, Op::Ge, value, value)?),
            Op::Ne => Ok(!&self.is_constant(column, value)?),
        }
    }

    /// May a value that is at most `high` be `above` (`>` or `>=`) `low`? Unless `high` is NaN, the value is not NaN.
    pub(super) fn may_between(&self, column: &Column, above: Op, low: &Scalar, high: &Scalar) -> Result<BooleanBuffer> {
        if high.is_nan() { self.may(column, above, low) } else { self.may_exceed(column, above, low) }
    }

    /// May a value that is not NaN be greater than `value`, or as great?
    fn may_exceed(&self, column: &Column, op: Op, value: &Scalar) -> Result<BooleanBuffer> {
        let of = column.primitive()?;
        self.known_or(&self.max, |max| {
            let greater = compare_value(max, op, value, of)?;
            if !self.may_be_shortened(column) {
                return Ok(greater);
            }
            let begins = starts_with(&ArrowScalar::new(value.to_array(of, 1)?), max)?;
            Ok(&greater | begins.values())
        })
    }

    /// The containers in which every value is known to be `value`.
    fn is_constant(&self, column: &Column, value: &Scalar) -> Result<BooleanBuffer> {
        let (Some(min), Some(max), true) = (&self.min, &self.max, self.is_decisive(column)) else {
            return Ok(self.none());
        };
        let of = column.primitive()?;
        let same = &compare_value(min, Op::Eq, value, of)? & &compare_value(max, Op::Eq, value, of)?;
        Ok(and_valid(same, &[min, max]))
    }

    /// May values of two columns of one type, `self` and `other`, satisfy the comparison?
    pub(super) fn may_compare(
        &self,
        column: &Column,
        op: Op,
        other: &Self,
        other_column: &Column,
    ) -> Result<BooleanBuffer> {
        match op {
            Op::Gt | Op::Ge => other.may_compare(other_column, op.flip(), self, column),
            Op::Lt | Op::Le => {
                let (Some(min), Some(max), false) = (&self.min, &other.max, other.nan_may_be_hidden(other_column))
                else {
                    return Ok(self.all());
                };
                let mut less = compare_columns(min, op, max)?;
                if other.may_be_shortened(other_column) {
                    less = &less | starts_with(min, max)?.values();
                }
                Ok(or_unknown(less, &[min, max]))
            }
            Op::Eq => {
                let at_most = self.may_compare(column, Op::Le, other, other_column)?;
                Ok(&at_most & &self.may_compare(column, Op::Ge, other, other_column)?)
            }
            Op::Ne => {
                let bounds = (&self.min, &self.max, &other.min, &other.max);
                let (Some(a), Some(b), Some(c), Some(d)) = bounds else { return Ok(self.all()) };
                if !self.is_decisive(column) || !other.is_decisive(other_column) {
                    return Ok(self.all());
                }
                let same = &compare_columns(a, Op::Eq, b)? & &compare_columns(c, Op::Eq, d)?;
                let same = &same & &compare_columns(a, Op::Eq, c)?;
                Ok(!&and_valid(same, &[a, b, c, d]))
            }
        }
    }

    /// May a value be one of the set?
    pub(super) fn may_be_in(&self, column: &Column, values: &ValueSet) -> Result<BooleanBuffer> {
        let set = values.values();
        let has_nan = !set.is_empty() && Scalar::from_array(set, set.len() - 1)?.is_nan();
        if has_nan && self.nan_may_be_hidden(column) {
            return Ok(self.all());
        }
        let (min, max) = (ToBound::new(set, self.min.as_ref())?, ToBound::new(set, self.max.as_ref())?);
        let begins = self.begins_with_max(column, set)?;
        Ok(BooleanBuffer::collect_bool(self.may_have_value.len(), |container| {
            least_above(&min, container).is_some_and(|i| {
                max.compare(i, container).is_none_or(std::cmp::Ordering::is_le) || begins(i, container)
            })
        }))
    }

    /// May a value be none of the set?
    pub(super) fn may_be_outside(&self, column: &Column, values: &ValueSet) -> Result<BooleanBuffer> {
        if !self.is_decisive(column) {
            return Ok(self.all());
        }
        let set = values.values();
        let (min, max) = (ToBound::new(set, self.min.as_ref())?, ToBound::new(set, self.max.as_ref())?);
        Ok(BooleanBuffer::collect_bool(self.may_have_value.len(), |container| {
            let is = |bound: &ToBound, i| bound.compare(i, container).is_some_and(std::cmp::Ordering::is_eq);
            !least_above(&min, container).is_some_and(|i| is(&min, i) && is(&max, i))
        }))
    }

    /// Whether value `i` of the set begins with the greatest value of a container, and that may be shortened.
    fn begins_with_max<'a>(
        &'a self,
        column: &Column,
        set: &'a ArrayRef,
    ) -> Result<Box<dyn Fn(usize, usize) -> bool + 'a>> {
        let Some(max) = self.max.as_ref().filter(|_| self.may_be_shortened(column)) else {
            return Ok(Box::new(|_, _| false));
        };
        Ok(match set.data_type() {
            ArrowType::Utf8 => {
                let (set, max) = (set.as_string::<i32>(), max.as_string::<i32>());
                Box::new(|i, container| set.value(i).starts_with(max.value(container)))
            }
            ArrowType::Binary => {
                let (set, max) = (set.as_binary::<i32>(), max.as_binary::<i32>());
                Box::new(|i, container| set.value(i).starts_with(max.value(container)))
            }
            other => return Err(Error::internal(format!("bounds of type {other} are used as strings"))),
        })
    }

    /// May a string match the pattern?
    pub(super) fn may_match(&self, column: &Column, pattern: &Pattern) -> Result<BooleanBuffer> {
        let prefix = Scalar::String(pattern.prefix().to_owned());
        let datum = ArrowScalar::new(StringArray::from_iter_values([pattern.prefix()]));
        // The strings that begin with the prefix are those from the prefix itself up to its last extension.
        let from = self.known_or(&self.min, |min| {
            let up_to = compare_value(min, Op::Le, &prefix, column.primitive()?)?;
            Ok(&up_to | starts_with(min, &datum)?.values())
        })?;
        let matching = &from & &self.may_exceed(column, Op::Ge, &prefix)?;
        Ok(match self.single_matches(pattern)? {
            Some((single, matches)) => &matching & &(&!&single | &matches),
            None => matching,
        })
    }

    /// May a string not match the pattern?
    pub(super) fn may_mismatch(&self, pattern: &Pattern) -> Result<BooleanBuffer> {
        let (Some(min), Some(max)) = (&self.min, &self.max) else { return Ok(self.all()) };
        let mut other = self.all();
        if pattern.is_prefix() {
            let datum = ArrowScalar::new(StringArray::from_iter_values([pattern.prefix()]));
            let within = starts_with(min, &datum)?.values() & starts_with(max, &datum)?.values();
            other = !&and_valid(within, &[min, max]);
        }
        Ok(match self.single_matches(pattern)? {
            Some((single, matches)) => &other & &!&(&single & &matches),
            None => other,
        })
    }

    /// The containers with a single string, and those whose least string matches; `None` if this cannot be known.
    fn single_matches(&self, pattern: &Pattern) -> Result<Option<(BooleanBuffer, BooleanBuffer)>> {
        let (Some(min), Some(max), true) = (&self.min, &self.max, self.is_exact) else { return Ok(None) };
        let single = and_valid(compare_columns(min, Op::Eq, max)?, &[min, max]);
        Ok(Some((single, pattern.matches_all(min.as_string::<i32>())?.into_parts().0)))
    }

    /// Whether there may be a NaN that the bounds do not include.
    fn nan_may_be_hidden(&self, column: &Column) -> bool {
        !self.is_exact && matches!(column.primitive(), Ok(PrimitiveType::Float | PrimitiveType::Double))
    }

    /// Whether the greatest value may be only the beginning of it.
    fn may_be_shortened(&self, column: &Column) -> bool {
        !self.is_exact && matches!(column.primitive(), Ok(PrimitiveType::String | PrimitiveType::Binary))
    }

    /// Whether equal bounds prove that there is one value only.
    fn is_decisive(&self, column: &Column) -> bool {
        !self.nan_may_be_hidden(column) && !self.may_be_shortened(column)
    }

    pub(super) fn all(&self) -> BooleanBuffer {
        BooleanBuffer::new_set(self.may_have_value.len())
    }

    pub(super) fn none(&self) -> BooleanBuffer {
        BooleanBuffer::new_unset(self.may_have_value.len())
    }

    /// The result of `test` where the bound is known, and yes elsewhere.
    fn known_or(
        &self,
        bound: &Option<ArrayRef>,
        test: impl FnOnce(&ArrayRef) -> Result<BooleanBuffer>,
    ) -> Result<BooleanBuffer> {
        match bound {
            Some(bound) => Ok(or_unknown(test(bound)?, &[bound])),
            None => Ok(self.all()),
        }
    }
}

/// How the values of a set compare to one bound of each container.
struct ToBound<'a> {
    bound: Option<(&'a ArrayRef, DynComparator)>,
    values: usize,
}

impl<'a> ToBound<'a> {
    fn new(set: &ArrayRef, bound: Option<&'a ArrayRef>) -> Result<Self> {
        let order =
            |bound: &'a ArrayRef| make_comparator(set, bound, SortOptions::default()).map(|order| (bound, order));
        Ok(Self { bound: bound.map(order).transpose()?, values: set.len() })
    }

    /// How the set's value `i` compares with the bound, if that is known.
    fn compare(&self, i: usize, container: usize) -> Option<std::cmp::Ordering> {
        let (_, order) = self.bound.as_ref().filter(|(bound, _)| bound.is_valid(container))?;
        Some(order(i, container))
    }
}

/// The least value of a set that is not below the container. It decides, since all later values are greater.
fn least_above(min: &ToBound<'_>, container: usize) -> Option<usize> {
    let below = |i| min.compare(i, container).is_some_and(std::cmp::Ordering::is_lt);
    Some(partition_point(min.values, below)).filter(|i| *i < min.values)
}

fn valid(bounds: &[&ArrayRef]) -> Option<NullBuffer> {
    bounds.iter().fold(None, |sum, bound| NullBuffer::union(sum.as_ref(), bound.nulls()))
}

fn or_unknown(answer: BooleanBuffer, bounds: &[&ArrayRef]) -> BooleanBuffer {
    match valid(bounds) {
        Some(valid) => &answer | &!valid.inner(),
        None => answer,
    }
}

fn and_valid(answer: BooleanBuffer, bounds: &[&ArrayRef]) -> BooleanBuffer {
    match valid(bounds) {
        Some(valid) => &answer & valid.inner(),
        None => answer,
    }
}
