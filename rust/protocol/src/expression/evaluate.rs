//! Evaluates bound expressions on batches, column by column, with Spark's semantics in ANSI mode and UTC.
//!
//! Parts that SQL does not need are not evaluated: the terms of AND after a FALSE, the branches of CASE not taken. If such
//! a part may fail, it is evaluated only on the rows that need it. Errors name the row and the expression.

use std::sync::Arc;

use arrow_arith::boolean::{and_kleene, not, or_kleene};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType as ArrowType;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take;
use arrow_select::zip::zip;

use super::ast::{ArithmeticOp, Op};
use super::bound::{BoundExpression, Node, Typed};
use super::column::Values;
use super::external;
use super::functions::{Arguments, Definition};
use super::kernel::{self, Evaluated, EvaluationError, compare, nested, unexpected};
use crate::error::{Error, Result};
use crate::scalar::{MICROS_PER_DAY, Scalar};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType};

/// What the values depend on, besides the rows of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Context {
    /// The current time in microseconds since the epoch, if expressions may ask for it.
    pub now: Option<i64>,
    /// How many rows came before the batch, for the row numbers in errors.
    pub first_row: u64,
}

/// The expression's value for every row, in the Arrow type of its type.
///
/// Columns are found by name, in any order, in the Arrow types of their types.
///
/// # Errors
/// `Invalid` where SQL in ANSI mode has an error (overflow, division by zero, a cast that fails), naming the row, counted
/// from 0 in the batch, and the expression; also if it needs the current time. `Internal` if the batch lacks a column or
/// has it in another type.
pub fn evaluate(expression: &BoundExpression, batch: &RecordBatch) -> Result<ArrayRef> {
    evaluate_at(expression, batch, Context::default())
}

/// As [`evaluate`], at a time and after other rows.
///
/// # Errors
/// As for [`evaluate`].
pub fn evaluate_at(expression: &BoundExpression, batch: &RecordBatch, context: Context) -> Result<ArrayRef> {
    let values = evaluate_rows(expression, batch, context.now);
    values.map_err(|error| error.into_error(context.first_row))
}

/// As [`evaluate_at`], with an error that has the row separately.
pub(crate) fn evaluate_rows(expression: &BoundExpression, batch: &RecordBatch, now: Option<i64>) -> Evaluated {
    part(&expression.root, &Rows { batch, now }).map_err(|error| match error {
        EvaluationError::Row(row, message) => EvaluationError::Row(row, format!("{message}, in `{}`", expression.text)),
        EvaluationError::Call(message) => EvaluationError::Call(format!("{message}, in `{}`", expression.text)),
        other => other,
    })
}

/// The rows that a part is evaluated on.
struct Rows<'a> {
    batch: &'a RecordBatch,
    now: Option<i64>,
}

impl Rows<'_> {
    fn len(&self) -> usize {
        self.batch.num_rows()
    }
}

fn part(typed: &Typed, rows: &Rows<'_>) -> Evaluated {
    Ok(match &*typed.node {
        Node::Literal(value) => literal(value, &typed.data_type, rows.len())?,
        Node::Column(column) => {
            let Values { array, nulls } = Values::find(rows.batch, column)?;
            with_nulls(&nested::of_type(array, &typed.data_type)?, nulls)?
        }
        Node::Now => now(&typed.data_type, rows)?,
        Node::Arithmetic { left, op, right } => arithmetic(left, *op, right, typed, rows)?,
        Node::Cast { operand, is_try } => {
            nested::cast(&part(operand, rows)?, &operand.data_type, &typed.data_type, *is_try)?
        }
        Node::Case { branches, otherwise } => case(branches, otherwise, rows)?,
        Node::Coalesce(parts) => coalesce(parts, typed, rows)?,
        Node::Call { function, arguments } => call(function, arguments, typed, rows)?,
        Node::External { name, arguments } => {
            let mut values = Vec::with_capacity(arguments.len());
            for argument in arguments {
                values.push((part(argument, rows)?, argument.as_literal().is_some()));
            }
            external::evaluate(name, values, rows.len(), &typed.data_type)?
        }
        Node::And(_)
        | Node::Or(_)
        | Node::Not(_)
        | Node::IsNull(_)
        | Node::Compare { .. }
        | Node::NullSafeEqual { .. }
        | Node::In { .. }
        | Node::InSet { .. }
        | Node::Like { .. }
        | Node::Regular { .. } => Arc::new(condition(typed, rows)?),
    })
}

/// The values of a condition.
fn condition(typed: &Typed, rows: &Rows<'_>) -> Evaluated<BooleanArray> {
    let count = rows.len();
    Ok(match &*typed.node {
        Node::And(terms) => connected(terms, true, count, |term, needed| on(term, rows, needed))?,
        Node::Or(terms) => connected(terms, false, count, |term, needed| on(term, rows, needed))?,
        Node::Not(inner) => not(boolean(&part(inner, rows)?)?)?,
        Node::IsNull(inner) => {
            let nulls = match &*inner.node {
                Node::Column(column) => Values::find(rows.batch, column)?.nulls,
                _ => part(inner, rows)?.logical_nulls(),
            };
            BooleanArray::new(nulls.map_or_else(|| BooleanBuffer::new_unset(count), |n| !n.inner()), None)
        }
        Node::Compare { left, op, right } => {
            let left = part(left, rows)?;
            compare(&left, *op, &on(right, rows, &present(&left))?)?
        }
        Node::NullSafeEqual { left, right } => {
            let (left, right) = (part(left, rows)?, part(right, rows)?);
            let equal = compare(&left, Op::Eq, &right)?;
            let (l, r) = (present(&left), present(&right));
            let both = &(&l & &r) & equal.values();
            BooleanArray::new(&both | &(&!&l & &!&r), None)
        }
        Node::In { operand, list } => {
            let operand = part(operand, rows)?;
            let mut any = BooleanArray::new(BooleanBuffer::new_unset(count), None);
            let not_null = present(&operand);
            for item in list {
                let matched = any.nulls().map_or_else(|| any.values().clone(), |nulls| any.values() & nulls.inner());
                let item = on(item, rows, &(&not_null & &!&matched))?;
                any = or_kleene(&any, &compare(&operand, Op::Eq, &item)?)?;
            }
            any
        }
        Node::InSet { operand, values, has_null } => {
            let operand = part(operand, rows)?;
            let found = values.contains(&operand)?;
            let not_null = operand.nulls().map_or_else(|| BooleanBuffer::new_set(count), |n| n.inner().clone());
            let not_null = if *has_null { &not_null & &found } else { not_null };
            BooleanArray::new(found, Some(NullBuffer::new(not_null)))
        }
        Node::Like { operand, pattern } => {
            let texts = part(operand, rows)?;
            pattern.matches_all(texts.as_string_opt::<i32>().ok_or_else(|| unexpected(&texts))?)?
        }
        Node::Regular { operand, pattern } => {
            let texts = part(operand, rows)?;
            let texts = texts.as_string_opt::<i32>().ok_or_else(|| unexpected(&texts))?;
            BooleanArray::from_unary(texts, |text| pattern.matches(text))
        }
        _ => return Err(Error::internal("a value stands for a condition").into()),
    })
}

fn now(data_type: &DataType, rows: &Rows<'_>) -> Evaluated {
    let Some(now) = rows.now else {
        return Err(Error::invalid("the current time is not known here; write a date or a timestamp").into());
    };
    let value = match data_type {
        DataType::Primitive(PrimitiveType::Date) => {
            let day = i32::try_from(now.div_euclid(MICROS_PER_DAY));
            Scalar::Date(day.map_err(|_| Error::internal("the current date is out of range"))?)
        }
        _ => Scalar::Timestamp(now),
    };
    Ok(literal(&value, data_type, rows.len())?)
}

fn arithmetic(left: &Typed, op: ArithmeticOp, right: &Typed, whole: &Typed, rows: &Rows<'_>) -> Evaluated {
    let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Div | ArithmeticOp::Remainder);
    if divides && left.as_literal() == Some(&Scalar::Null) {
        return Ok(literal(&Scalar::Null, &whole.data_type, rows.len())?);
    }
    let (left, right) = if divides {
        let right = divisor(right, rows)?;
        (on(left, rows, &present(&right))?, right)
    } else {
        let left = part(left, rows)?;
        let right = on(right, rows, &present(&left))?;
        (left, right)
    };
    kernel::compute(&left, op, &right, &whole.data_type)
}

/// As in Spark, a divisor is computed before the dividend, and may not be zero even in rows where the dividend is null.
fn divisor(part_of: &Typed, rows: &Rows<'_>) -> Evaluated {
    let values = part(part_of, rows)?;
    match kernel::first_zero(&values) {
        Some(row) => Err(EvaluationError::Row(row, "division by zero".to_owned())),
        None => Ok(values),
    }
}

fn coalesce(parts: &[Typed], whole: &Typed, rows: &Rows<'_>) -> Evaluated {
    let mut parts = parts.iter();
    let mut first = match parts.next() {
        Some(first) => part(first, rows)?,
        None => literal(&Scalar::Null, &whole.data_type, rows.len())?,
    };
    for next in parts {
        let Some(nulls) = first.logical_nulls().filter(|nulls| nulls.null_count() > 0) else { break };
        let missing = !nulls.inner();
        let next = on(next, rows, &missing)?;
        first = zip(&BooleanArray::new(missing, None), &next, &first)?;
    }
    Ok(first)
}

fn call(function: &Definition, arguments: &[Typed], whole: &Typed, rows: &Rows<'_>) -> Evaluated {
    // The arguments after a null are not computed. A function with any number of arguments may need them all.
    let mut arrays = Vec::with_capacity(arguments.len());
    let mut needed = BooleanBuffer::new_set(rows.len());
    let compute = |argument: &Typed| {
        let array = on(argument, rows, &needed)?;
        if !function.repeats {
            needed = &needed & &present(&array);
        }
        arrays.push(array);
        Ok::<(), EvaluationError>(())
    };
    match arguments {
        [dividend, by] if function.divides() && dividend.as_literal() != Some(&Scalar::Null) => {
            let by = divisor(by, rows)?;
            arrays = vec![on(dividend, rows, &present(&by))?, by];
        }
        _ => arguments.iter().try_for_each(compute)?,
    }
    let Some(result_type) = whole.data_type.as_primitive() else {
        return Err(Error::internal("a function gives a nested type").into());
    };
    (function.run)(&Arguments { arrays, rows: rows.len(), result_type })
}

/// Where an array is not null.
fn present(array: &ArrayRef) -> BooleanBuffer {
    array.logical_nulls().map_or_else(|| BooleanBuffer::new_set(array.len()), |nulls| nulls.inner().clone())
}

fn literal(value: &Scalar, data_type: &DataType, rows: usize) -> Result<ArrayRef> {
    let bytes = match value {
        Scalar::String(text) => text.len(),
        Scalar::Binary(bytes) => bytes.len(),
        _ => 0,
    };
    kernel::bounded(bytes.saturating_mul(rows)).map_err(Error::invalid)?;
    match data_type.as_primitive() {
        Some(primitive) => value.to_array(primitive, rows),
        None => Ok(new_null_array(&to_arrow_type(data_type), rows)),
    }
}

/// The array with more nulls: those of the structs around it.
fn with_nulls(array: &ArrayRef, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    match nulls {
        Some(nulls) if array.data_type() != &ArrowType::Null && array.null_count() != nulls.null_count() => {
            let valid = BooleanArray::new(nulls.inner().clone(), None);
            Ok(zip(&valid, array, &arrow_array::Scalar::new(new_null_array(array.data_type(), 1)))?)
        }
        _ => Ok(array.clone()),
    }
}

fn boolean(array: &ArrayRef) -> Result<&BooleanArray> {
    array.as_boolean_opt().ok_or_else(|| unexpected(array))
}

/// AND, or OR, of the values of each term in the rows where it is needed: those that the terms before it do not decide.
pub(crate) fn connected<'t, T>(
    terms: &'t [T],
    is_and: bool,
    count: usize,
    values: impl Fn(&'t T, &BooleanBuffer) -> Evaluated,
) -> Evaluated<BooleanArray> {
    let start = if is_and { BooleanBuffer::new_set(count) } else { BooleanBuffer::new_unset(count) };
    let mut sum = BooleanArray::new(start, None);
    for term in terms {
        let decided = match sum.nulls() {
            Some(not_null) if is_and => &!sum.values() & not_null.inner(),
            Some(not_null) => sum.values() & not_null.inner(),
            None if is_and => !sum.values(),
            None => sum.values().clone(),
        };
        if count > 0 && decided.count_set_bits() == count {
            break;
        }
        let term = values(term, &!&decided)?;
        let term = boolean(&term)?;
        sum = if is_and { and_kleene(&sum, term)? } else { or_kleene(&sum, term)? };
    }
    Ok(sum)
}

/// A part's values in the rows where they are needed; in other rows they are null or any value.
fn on(typed: &Typed, rows: &Rows<'_>, needed: &BooleanBuffer) -> Evaluated {
    let wanted = needed.count_set_bits();
    if wanted == rows.len() || !typed.may_fail() {
        return part(typed, rows);
    }
    if wanted == 0 {
        return Ok(new_null_array(&to_arrow_type(&typed.data_type), rows.len()));
    }
    let mut columns: Vec<&str> = Vec::new();
    typed.visit(&mut |part| {
        if let Node::Column(column) = &*part.node {
            columns.extend(column.path.first().map(String::as_str));
        }
    });
    on_rows(rows.batch, &columns, needed, |batch| part(typed, &Rows { batch, now: rows.now }))
}

/// The values that `values` returns for the needed rows, at the positions of these rows, with nulls in all other rows.
pub(crate) fn on_rows(
    batch: &RecordBatch,
    names: &[&str],
    needed: &BooleanBuffer,
    values: impl FnOnce(&RecordBatch) -> Evaluated,
) -> Evaluated {
    let mut columns: Vec<usize> = names.iter().filter_map(|name| batch.schema_ref().index_of(name).ok()).collect();
    columns.sort_unstable();
    columns.dedup();
    let batch = filter_record_batch(&batch.project(&columns)?, &BooleanArray::new(needed.clone(), None))?;
    let values = values(&batch).map_err(|error| match error {
        EvaluationError::Row(row, message) => {
            EvaluationError::Row(needed.set_indices().nth(row).unwrap_or(row), message)
        }
        other => other,
    })?;
    let mut taken = 0_u32;
    let places: UInt32Array = needed
        .iter()
        .map(|is_needed| {
            is_needed.then(|| {
                taken += 1;
                taken - 1
            })
        })
        .collect();
    Ok(take(&values, &places, None)?)
}

fn case(branches: &[(Typed, Typed)], otherwise: &Typed, rows: &Rows<'_>) -> Evaluated {
    let mut left = BooleanBuffer::new_set(rows.len());
    let mut result: Option<ArrayRef> = None;
    let mut choose = |values: &Typed, chosen: BooleanBuffer| -> Evaluated<()> {
        if result.is_some() && chosen.count_set_bits() == 0 {
            return Ok(());
        }
        let values = on(values, rows, &chosen)?;
        result = Some(match result.take() {
            Some(others) if others.data_type() != &ArrowType::Null => {
                zip(&BooleanArray::new(chosen, None), &values, &others)?
            }
            _ => values,
        });
        Ok(())
    };
    for (when, then) in branches {
        let condition = on(when, rows, &left)?;
        let condition = boolean(&condition)?;
        let holds = match condition.nulls() {
            Some(not_null) => condition.values() & not_null.inner(),
            None => condition.values().clone(),
        };
        let taken = &holds & &left;
        left = &left & &!&taken;
        choose(then, taken)?;
    }
    choose(otherwise, left)?;
    result.ok_or_else(|| Error::internal("CASE without a value").into())
}
