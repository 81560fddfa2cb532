//! `+ - * / % div` of numbers of one type, and of decimals.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, Int64Array, PrimitiveArray};
use arrow_schema::DataType as ArrowType;

use super::decimal::{self, DecimalValue};
use super::rows::{Evaluated, each, unexpected};
use crate::error::Error;
use crate::expression::ast::ArithmeticOp as Op;
use crate::schema::{DataType, PrimitiveType};

pub(crate) fn compute(left: &ArrayRef, op: Op, right: &ArrayRef, result_type: &DataType) -> Evaluated {
    Ok(match (left.data_type(), right.data_type()) {
        (ArrowType::Int8, ArrowType::Int8) => Arc::new(whole::<Int8Type>(left, op, right)?),
        (ArrowType::Int16, ArrowType::Int16) => Arc::new(whole::<Int16Type>(left, op, right)?),
        (ArrowType::Int32, ArrowType::Int32) => Arc::new(whole::<Int32Type>(left, op, right)?),
        (ArrowType::Int64, ArrowType::Int64) => Arc::new(whole::<Int64Type>(left, op, right)?),
        (ArrowType::Float32, ArrowType::Float32) => Arc::new(float::<Float32Type>(left, op, right)?),
        (ArrowType::Float64, ArrowType::Float64) => Arc::new(float::<Float64Type>(left, op, right)?),
        (ArrowType::Decimal128(_, s), ArrowType::Decimal128(_, t)) => {
            decimals(left, s.cast_unsigned(), op, right, t.cast_unsigned(), result_type)?
        }
        _ => return Err(unexpected(left).into()),
    })
}

fn whole<T: ArrowPrimitiveType>(left: &ArrayRef, op: Op, right: &ArrayRef) -> Evaluated<PrimitiveArray<T>>
where
    T::Native: ArrowNativeTypeOp,
{
    let (l, r) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    each(&[left, right], left.len(), |row| {
        let (a, b) = (l.value(row), r.value(row));
        let divides = matches!(op, Op::Divide | Op::Div | Op::Remainder);
        if divides && b.is_zero() {
            return Err("division by zero".to_owned());
        }
        let value = match op {
            Op::Add => a.add_checked(b),
            Op::Subtract => a.sub_checked(b),
            Op::Multiply => a.mul_checked(b),
            Op::Divide | Op::Div => a.div_checked(b),
            Op::Remainder => Ok(a.mod_wrapping(b)),
            Op::Concat => return Err("numbers are not strings".to_owned()),
        };
        value.map(Some).map_err(|_| format!("{a:?} {} {b:?} is beyond the range of its type", op.symbol()))
    })
}

fn float<T: ArrowPrimitiveType>(left: &ArrayRef, op: Op, right: &ArrayRef) -> Evaluated<PrimitiveArray<T>>
where
    T::Native: ArrowNativeTypeOp
        + std::ops::Add<Output = T::Native>
        + std::ops::Sub<Output = T::Native>
        + std::ops::Mul<Output = T::Native>
        + std::ops::Div<Output = T::Native>
        + std::ops::Rem<Output = T::Native>,
{
    let (l, r) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    let zero = T::Native::default();
    each(&[left, right], left.len(), |row| {
        let (a, b) = (l.value(row), r.value(row));
        let divides = matches!(op, Op::Divide | Op::Remainder);
        #[allow(clippy::float_cmp, reason = "both zeros are zero")]
        if divides && b == zero {
            return Err("division by zero".to_owned());
        }
        match op {
            Op::Add => Ok(Some(a + b)),
            Op::Subtract => Ok(Some(a - b)),
            Op::Multiply => Ok(Some(a * b)),
            Op::Divide => Ok(Some(a / b)),
            Op::Remainder => Ok(Some(a % b)),
            Op::Div | Op::Concat => Err("`div` takes whole numbers".to_owned()),
        }
    })
}

fn decimals(left: &ArrayRef, s: u8, op: Op, right: &ArrayRef, t: u8, result_type: &DataType) -> Evaluated {
    let to = result_type.as_primitive().ok_or_else(|| Error::internal("decimals give a nested type"))?;
    let (l, r) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let compute = |row: usize| {
        let left = DecimalValue { unscaled: l.value(row), scale: s };
        let right = DecimalValue { unscaled: r.value(row), scale: t };
        decimal::compute(left, op, right, to).map_err(str::to_owned)
    };
    match to {
        PrimitiveType::Decimal { precision, scale } => {
            let digits: PrimitiveArray<Decimal128Type> =
                each(&[left, right], left.len(), |row| compute(row).map(Some))?;
            Ok(Arc::new(digits.with_precision_and_scale(*precision, scale.cast_signed())?))
        }
        _ => {
            let whole: Int64Array = each(&[left, right], left.len(), |row| {
                i64::try_from(compute(row)?).map(Some).map_err(|_| "the quotient is beyond a long".to_owned())
            })?;
            Ok(Arc::new(whole))
        }
    }
}
