//! Exact evaluation of a bound predicate over a batch of rows, column by column, in three-valued logic.
//!
//! Agrees with a row-at-a-time interpreter of the typed predicate (`predicate::properties::evaluate_is_exact`).

use std::sync::Arc;

use arrow_arith::boolean::not;
use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, NullBuffer};

use super::bound::BoundPredicate;
use crate::error::{Error, Result};
use crate::expression::{Evaluated, Op, Values, compare_columns, compare_value, connected, evaluate_rows, on_rows};

/// Which rows a filter keeps: those where the condition is TRUE, not those where it is NULL.
pub fn keep(condition: &BooleanArray) -> BooleanArray {
    match condition.nulls() {
        Some(valid) => BooleanArray::new(condition.values() & valid.inner(), None),
        None => condition.clone(),
    }
}

impl BoundPredicate {
    /// The condition's value for every row: TRUE, FALSE or NULL.
    ///
    /// Columns are found by name, in any order, in the Arrow types of [`to_arrow_type`].
    ///
    /// # Errors
    /// `Internal` if the batch lacks a column of the predicate or has it in another type; `Invalid` where an expression has an
    /// error in SQL, naming the row.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        self.values(batch).map_err(|error| error.into_error(0))
    }

    /// Whether its value may be an error for some row.
    fn may_fail(&self) -> bool {
        match self {
            Self::And(terms) | Self::Or(terms) => terms.iter().any(Self::may_fail),
            Self::Not(inner) => inner.may_fail(),
            Self::Expression(expression) => expression.may_fail(),
            _ => false,
        }
    }

    /// The values in the rows where they are needed; in other rows they are null or any value.
    fn on(&self, needed: &BooleanBuffer, batch: &RecordBatch) -> Evaluated {
        if !self.may_fail() || needed.count_set_bits() == needed.len() {
            return Ok(Arc::new(self.values(batch)?));
        }
        let columns = self.columns();
        let names: Vec<&str> = columns.iter().filter_map(|c| c.path.first()).map(String::as_str).collect();
        on_rows(batch, &names, needed, |batch| Ok(Arc::new(self.values(batch)?)))
    }

    fn values(&self, batch: &RecordBatch) -> Evaluated<BooleanArray> {
        let rows = batch.num_rows();
        Ok(match self {
            Self::Constant(Some(value)) => BooleanArray::new(constant(*value, rows), None),
            Self::Constant(None) => BooleanArray::new_null(rows),
            Self::And(terms) => connected(terms, true, rows, |term, needed| term.on(needed, batch))?,
            Self::Or(terms) => connected(terms, false, rows, |term, needed| term.on(needed, batch))?,
            Self::Not(inner) => not(&inner.values(batch)?)?,
            Self::IsNull(column) => {
                let Values { nulls, .. } = Values::find(batch, column)?;
                BooleanArray::new(nulls.map_or_else(|| constant(false, rows), |valid| !valid.inner()), None)
            }
            Self::IsNotNull(column) => {
                let Values { nulls, .. } = Values::find(batch, column)?;
                BooleanArray::new(nulls.map_or_else(|| constant(true, rows), |valid| valid.inner().clone()), None)
            }
            Self::Fixed { column, value } => {
                BooleanArray::new(constant(*value, rows), Values::find(batch, column)?.nulls)
            }
            Self::Compare { column, op, value } => {
                let Values { array, nulls } = Values::find(batch, column)?;
                BooleanArray::new(compare_value(&array, *op, value, column.primitive()?)?, nulls)
            }
            Self::CompareColumns { left, op, right } => {
                let (left, right) = (Values::find(batch, left)?, Values::find(batch, right)?);
                let values = compare_columns(&left.array, *op, &right.array)?;
                BooleanArray::new(values, NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref()))
            }
            Self::Range { column, low, low_included, high, high_included } => {
                let Values { array, nulls } = Values::find(batch, column)?;
                let of = column.primitive()?;
                let above = compare_value(&array, if *low_included { Op::Ge } else { Op::Gt }, low, of)?;
                let below = compare_value(&array, if *high_included { Op::Le } else { Op::Lt }, high, of)?;
                BooleanArray::new(&above & &below, nulls)
            }
            Self::In { column, values } => {
                let Values { array, nulls } = Values::find(batch, column)?;
                BooleanArray::new(values.contains(&array)?, nulls)
            }
            Self::Expression(expression) => {
                let values = evaluate_rows(expression, batch, None)?;
                values.as_boolean_opt().cloned().ok_or_else(|| Error::internal("a condition is not boolean"))?
            }
            Self::Like { column, pattern } => {
                let Values { array, nulls } = Values::find(batch, column)?;
                let texts = array.as_string_opt::<i32>().ok_or_else(|| Error::internal("LIKE over another type"))?;
                BooleanArray::new(pattern.matches_all(texts)?.into_parts().0, nulls)
            }
        })
    }
}

fn constant(value: bool, rows: usize) -> BooleanBuffer {
    if value { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) }
}
