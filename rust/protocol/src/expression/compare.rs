//! Comparing whole columns, with a value or with each other, in the order Spark has: floats count NaN as equal to
//! itself and greater than everything, and -0.0 as equal to 0.0; text and bytes compare by their bytes.
//!
//! Rows that are null have an arbitrary bit in the result; callers know which those are.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, Datum, Scalar as ArrowScalar};
use arrow_buffer::BooleanBuffer;
use arrow_ord::cmp;
use arrow_schema::DataType as ArrowType;

use super::ast::Op;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// `array op value` for every row. The value is not null and has the column's type, in which the array is.
pub(crate) fn compare_value(array: &ArrayRef, op: Op, value: &Scalar, of: &PrimitiveType) -> Result<BooleanBuffer> {
    match (array.data_type(), value) {
        (ArrowType::Float32, Scalar::Float(value)) => Ok(floats::<Float32Type>(array, op, *value)),
        (ArrowType::Float64, Scalar::Double(value)) => Ok(floats::<Float64Type>(array, op, *value)),
        _ => kernel(array, op, &ArrowScalar::new(value.to_array(of, 1)?)),
    }
}

/// `left op right` for every row. Both have the same Arrow type.
pub(crate) fn compare_columns(left: &ArrayRef, op: Op, right: &ArrayRef) -> Result<BooleanBuffer> {
    match (left.data_type(), right.data_type()) {
        (ArrowType::Float32, ArrowType::Float32) => Ok(float_columns::<Float32Type>(left, op, right)),
        (ArrowType::Float64, ArrowType::Float64) => Ok(float_columns::<Float64Type>(left, op, right)),
        _ => kernel(left, op, right),
    }
}

fn kernel(left: &dyn Datum, op: Op, right: &dyn Datum) -> Result<BooleanBuffer> {
    let result = match op {
        Op::Eq => cmp::eq(left, right),
        Op::Ne => cmp::neq(left, right),
        Op::Lt => cmp::lt(left, right),
        Op::Le => cmp::lt_eq(left, right),
        Op::Gt => cmp::gt(left, right),
        Op::Ge => cmp::gt_eq(left, right),
    }?;
    Ok(result.into_parts().0)
}

/// The operations on floats that comparisons need.
pub(crate) trait Real: Copy + PartialOrd {
    fn nan(self) -> bool;

    fn less(self, other: Self) -> bool {
        self < other || (other.nan() && !self.nan())
    }

    fn same(self, other: Self) -> bool {
        self == other || (self.nan() && other.nan())
    }
}

impl Real for f32 {
    fn nan(self) -> bool {
        self.is_nan()
    }
}

impl Real for f64 {
    fn nan(self) -> bool {
        self.is_nan()
    }
}

fn floats<T>(array: &ArrayRef, op: Op, v: T::Native) -> BooleanBuffer
where
    T: ArrowPrimitiveType,
    T::Native: Real,
{
    fn collect<R: Real>(rows: &[R], test: impl Fn(R) -> bool) -> BooleanBuffer {
        rows.iter().map(|x| test(*x)).collect()
    }
    let rows: &[T::Native] = array.as_primitive::<T>().values();
    match op {
        Op::Eq => collect(rows, |x| x.same(v)),
        Op::Ne => collect(rows, |x| !x.same(v)),
        Op::Lt => collect(rows, |x| x.less(v)),
        Op::Le => collect(rows, |x| !v.less(x)),
        Op::Gt => collect(rows, |x| v.less(x)),
        Op::Ge => collect(rows, |x| !x.less(v)),
    }
}

fn float_columns<T>(left: &ArrayRef, op: Op, right: &ArrayRef) -> BooleanBuffer
where
    T: ArrowPrimitiveType,
    T::Native: Real,
{
    fn collect<R: Real>(left: &[R], right: &[R], test: impl Fn(R, R) -> bool) -> BooleanBuffer {
        left.iter().zip(right).map(|(x, y)| test(*x, *y)).collect()
    }
    let (l, r): (&[T::Native], &[T::Native]) = (left.as_primitive::<T>().values(), right.as_primitive::<T>().values());
    match op {
        Op::Eq => collect(l, r, |x, y| x.same(y)),
        Op::Ne => collect(l, r, |x, y| !x.same(y)),
        Op::Lt => collect(l, r, |x, y| x.less(y)),
        Op::Le => collect(l, r, |x, y| !y.less(x)),
        Op::Gt => collect(l, r, |x, y| y.less(x)),
        Op::Ge => collect(l, r, |x, y| !x.less(y)),
    }
}
