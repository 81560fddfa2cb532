//! CAST in ANSI mode: a value that does not fit is an error, or NULL with TRY_CAST.

use std::fmt::Display;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringArray, new_null_array};
use arrow_schema::DataType as ArrowType;

use super::decimal;
use super::rows::{Evaluated, each, unexpected};
use super::text::{
    boolean_of, date_of, decimal_of, double_of, float_of, instant_of, print_date, print_instant, wall_of, whole_of,
};
use crate::scalar::{MICROS_PER_DAY, Scalar};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType as P, with_article};

const MICROS_PER_SECOND: i64 = 1_000_000;
/// The first double that is more microseconds than a timestamp has.
const MICROS_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// The result of one row: a value, or a failure, for which the error names the value and the type.
type Cell<T> = Option<T>;

pub(crate) fn cast(array: &ArrayRef, from: &DataType, to: &DataType, is_try: bool) -> Evaluated {
    if from == to {
        return Ok(array.clone());
    }
    let arrow = to_arrow_type(to);
    if array.data_type() == &ArrowType::Null {
        return Ok(new_null_array(&arrow, array.len()));
    }
    let (Some(source), Some(target)) = (from.as_primitive(), to.as_primitive()) else {
        return Err(unexpected(array).into());
    };
    let cast = Cast { array, source, target, is_try };
    let values: ArrayRef = match target {
        P::Boolean => Arc::new(cast.boolean()?),
        P::Byte => Arc::new(cast.whole::<Int8Type>(i8::MIN.into(), i8::MAX.into(), |v| v as i8)?),
        P::Short => Arc::new(cast.whole::<Int16Type>(i16::MIN.into(), i16::MAX.into(), |v| v as i16)?),
        P::Integer => Arc::new(cast.whole::<Int32Type>(i32::MIN.into(), i32::MAX.into(), |v| v as i32)?),
        P::Long => Arc::new(cast.whole::<Int64Type>(i64::MIN.into(), i64::MAX.into(), |v| v as i64)?),
        P::Float => Arc::new(cast.float()?),
        P::Double => Arc::new(cast.double()?),
        P::Decimal { precision, scale } => {
            Arc::new(cast.decimal(*precision, *scale)?.with_precision_and_scale(*precision, scale.cast_signed())?)
        }
        P::String => Arc::new(cast.text()?),
        P::Binary => Arc::new(cast.bytes()?),
        P::Date => Arc::new(cast.date()?),
        P::Timestamp => Arc::new(cast.instant(instant_of)?.with_timezone("UTC")),
        P::TimestampNtz => Arc::new(cast.instant(wall_of)?),
        P::Void | P::Geometry { .. } | P::Geography { .. } => return Err(unexpected(array).into()),
    };
    Ok(values)
}

struct Cast<'a> {
    array: &'a ArrayRef,
    source: &'a P,
    target: &'a P,
    is_try: bool,
}

impl Cast<'_> {
    /// One value per row; `None` is a failure.
    fn rows<T, A, V>(&self, shown: impl Fn(usize) -> V, mut value: impl FnMut(usize) -> Cell<T>) -> Evaluated<A>
    where
        A: FromIterator<Option<T>>,
        V: Display,
    {
        each(&[self.array], self.array.len(), |row| match value(row) {
            Some(value) => Ok(Some(value)),
            None if self.is_try => Ok(None),
            None => Err(format!("{} cannot be cast to {}", shown(row), self.target)),
        })
    }

    fn primitive<T: ArrowPrimitiveType, O, A: FromIterator<Option<O>>>(
        &self,
        value: impl Fn(T::Native) -> Cell<O>,
    ) -> Evaluated<A> {
        let array = self.array.as_primitive::<T>();
        self.rows(|row| self.shown(row), |row| value(array.value(row)))
    }

    fn texts<O, A: FromIterator<Option<O>>>(&self, value: impl Fn(&str) -> Cell<O>) -> Evaluated<A> {
        let array = self.array.as_string::<i32>();
        self.rows(|row| self.shown(row), |row| value(array.value(row)))
    }

    /// The value of a row, for the error.
    fn shown(&self, row: usize) -> String {
        match Scalar::from_array(self.array, row) {
            Ok(Scalar::String(text)) => {
                let cut: String = text.chars().take(40).collect();
                format!("'{cut}{}'", if cut.len() < text.len() { "…" } else { "" })
            }
            Ok(value) => format!("the {} {value}", self.source),
            Err(_) => with_article(self.source),
        }
    }

    fn is_true<T: ArrowPrimitiveType, A: FromIterator<Option<T::Native>>>(&self, one: T::Native) -> Evaluated<A> {
        let array = self.array.as_boolean();
        self.rows(|row| self.shown(row), |row| Some(if array.value(row) { one } else { T::Native::default() }))
    }

    fn boolean(&self) -> Evaluated<BooleanArray> {
        match self.source {
            P::String => self.texts(boolean_of),
            P::Byte => self.primitive::<Int8Type, _, _>(|v| Some(v != 0)),
            P::Short => self.primitive::<Int16Type, _, _>(|v| Some(v != 0)),
            P::Integer => self.primitive::<Int32Type, _, _>(|v| Some(v != 0)),
            P::Long => self.primitive::<Int64Type, _, _>(|v| Some(v != 0)),
            P::Float => self.primitive::<Float32Type, _, _>(|v| Some(v != 0.0)),
            P::Double => self.primitive::<Float64Type, _, _>(|v| Some(v != 0.0)),
            P::Decimal { .. } => self.primitive::<Decimal128Type, _, _>(|v| Some(v != 0)),
            _ => Err(unexpected(self.array).into()),
        }
    }

    /// A whole number between two limits; `make` takes its low bits.
    fn whole<T: ArrowPrimitiveType>(
        &self,
        least: i128,
        most: i128,
        make: impl Fn(i128) -> T::Native,
    ) -> Evaluated<PrimitiveArray<T>> {
        let fit = |v: i128| (least..=most).contains(&v).then(|| make(v));
        // Beyond 128 bits the cast saturates.
        let float = |v: f64| if v.is_nan() { None } else { fit(v as i128) };
        match self.source {
            P::Boolean => self.is_true::<T, _>(make(1)),
            P::String => self.texts(|text| whole_of(text).and_then(|v| fit(v.into()))),
            P::Byte => self.primitive::<Int8Type, _, _>(|v| fit(v.into())),
            P::Short => self.primitive::<Int16Type, _, _>(|v| fit(v.into())),
            P::Integer => self.primitive::<Int32Type, _, _>(|v| fit(v.into())),
            P::Long => self.primitive::<Int64Type, _, _>(|v| fit(v.into())),
            P::Float => self.primitive::<Float32Type, _, _>(|v| float(v.into())),
            P::Double => self.primitive::<Float64Type, _, _>(float),
            P::Decimal { scale, .. } => {
                let by = 10_i128.pow((*scale).into());
                self.primitive::<Decimal128Type, _, _>(|v| fit(v / by))
            }
            P::Timestamp => {
                self.primitive::<TimestampMicrosecondType, _, _>(|v| fit(v.div_euclid(MICROS_PER_SECOND).into()))
            }
            _ => Err(unexpected(self.array).into()),
        }
    }

    fn float(&self) -> Evaluated<PrimitiveArray<Float32Type>> {
        match self.source {
            P::Boolean => self.is_true::<Float32Type, _>(1.0),
            P::String => self.texts(float_of),
            P::Byte => self.primitive::<Int8Type, _, _>(|v| Some(v.into())),
            P::Short => self.primitive::<Int16Type, _, _>(|v| Some(v.into())),
            P::Integer => self.primitive::<Int32Type, _, _>(|v| Some(v as f32)),
            P::Long => self.primitive::<Int64Type, _, _>(|v| Some(v as f32)),
            P::Double => self.primitive::<Float64Type, _, _>(|v| Some(v as f32)),
            P::Decimal { scale, .. } => {
                self.primitive::<Decimal128Type, _, _>(|v| format!("{v}e-{scale}").parse().ok())
            }
            P::Timestamp => self.primitive::<TimestampMicrosecondType, _, _>(|v| Some((v as f64 / 1e6) as f32)),
            _ => Err(unexpected(self.array).into()),
        }
    }

    fn double(&self) -> Evaluated<PrimitiveArray<Float64Type>> {
        match self.source {
            P::Boolean => self.is_true::<Float64Type, _>(1.0),
            P::String => self.texts(double_of),
            P::Byte => self.primitive::<Int8Type, _, _>(|v| Some(v.into())),
            P::Short => self.primitive::<Int16Type, _, _>(|v| Some(v.into())),
            P::Integer => self.primitive::<Int32Type, _, _>(|v| Some(v.into())),
            P::Long => self.primitive::<Int64Type, _, _>(|v| Some(v as f64)),
            P::Float => self.primitive::<Float32Type, _, _>(|v| Some(v.into())),
            P::Decimal { scale, .. } => {
                self.primitive::<Decimal128Type, _, _>(|v| format!("{v}e-{scale}").parse().ok())
            }
            P::Timestamp => self.primitive::<TimestampMicrosecondType, _, _>(|v| Some(v as f64 / 1e6)),
            _ => Err(unexpected(self.array).into()),
        }
    }

    fn decimal(&self, precision: u8, scale: u8) -> Evaluated<PrimitiveArray<Decimal128Type>> {
        let whole = |v: i64| decimal::rescale(v.into(), 0, precision, scale);
        // Converted from its written digits; NaN and the infinities are NULL.
        let float = |v: f64| match v.is_finite() {
            true => decimal_of(&format!("{v:e}"), precision, scale).map(Some),
            false => Some(None),
        };
        let nested = |values: Vec<Option<Option<i128>>>| values.into_iter().map(Option::flatten).collect();
        match self.source {
            P::Boolean => {
                let array = self.array.as_boolean();
                self.rows(|row| self.shown(row), |row| whole(array.value(row).into()))
            }
            P::String => self.texts(|text| decimal_of(text, precision, scale)),
            P::Byte => self.primitive::<Int8Type, _, _>(|v| whole(v.into())),
            P::Short => self.primitive::<Int16Type, _, _>(|v| whole(v.into())),
            P::Integer => self.primitive::<Int32Type, _, _>(|v| whole(v.into())),
            P::Long => self.primitive::<Int64Type, _, _>(whole),
            P::Float => self.primitive::<Float32Type, _, Vec<_>>(|v| float(v.into())).map(nested),
            P::Double => self.primitive::<Float64Type, _, Vec<_>>(float).map(nested),
            P::Decimal { scale: from, .. } => {
                self.primitive::<Decimal128Type, _, _>(|v| decimal::rescale(v, *from, precision, scale))
            }
            P::Timestamp => {
                self.primitive::<TimestampMicrosecondType, _, _>(|v| decimal::rescale(v.into(), 6, precision, scale))
            }
            _ => Err(unexpected(self.array).into()),
        }
    }

    fn text(&self) -> Evaluated<StringArray> {
        match self.source {
            P::Date => self.primitive::<Date32Type, _, _>(|v| Some(print_date(v))),
            P::Timestamp | P::TimestampNtz => {
                self.primitive::<TimestampMicrosecondType, _, _>(|v| Some(print_instant(v)))
            }
            P::Binary => {
                let array = self.array.as_binary::<i32>();
                self.rows(|_| "bytes that are not UTF-8", |row| String::from_utf8(array.value(row).to_vec()).ok())
            }
            _ => {
                self.rows(|row| self.shown(row), |row| Scalar::from_array(self.array, row).ok().map(|v| v.to_string()))
            }
        }
    }

    fn bytes(&self) -> Evaluated<BinaryArray> {
        self.texts(|text| Some(text.as_bytes().to_vec()))
    }

    fn date(&self) -> Evaluated<PrimitiveArray<Date32Type>> {
        match self.source {
            P::String => self.texts(date_of),
            P::Timestamp | P::TimestampNtz => {
                self.primitive::<TimestampMicrosecondType, _, _>(|v| i32::try_from(v.div_euclid(MICROS_PER_DAY)).ok())
            }
            _ => Err(unexpected(self.array).into()),
        }
    }

    fn instant(&self, parse: impl Fn(&str) -> Option<i64>) -> Evaluated<PrimitiveArray<TimestampMicrosecondType>> {
        // As in Spark: a whole number stops at the last timestamp, a float beyond it is an error.
        let seconds = |v: i64| Some(v.saturating_mul(MICROS_PER_SECOND));
        let float = |v: f64| {
            let micros = v * 1e6;
            (-MICROS_LIMIT..MICROS_LIMIT).contains(&micros).then_some(micros as i64)
        };
        match self.source {
            P::String => self.texts(parse),
            P::Date => self.primitive::<Date32Type, _, _>(|v| i64::from(v).checked_mul(MICROS_PER_DAY)),
            P::Timestamp | P::TimestampNtz => self.primitive::<TimestampMicrosecondType, _, _>(Some),
            P::Byte => self.primitive::<Int8Type, _, _>(|v| seconds(v.into())),
            P::Short => self.primitive::<Int16Type, _, _>(|v| seconds(v.into())),
            P::Integer => self.primitive::<Int32Type, _, _>(|v| seconds(v.into())),
            P::Long => self.primitive::<Int64Type, _, _>(seconds),
            P::Float => self.primitive::<Float32Type, _, _>(|v| float(v.into())),
            P::Double => self.primitive::<Float64Type, _, _>(float),
            P::Decimal { scale, .. } => self.primitive::<Decimal128Type, _, _>(|v| {
                // As in Spark, an overflow of 64 bits wraps around.
                Some(match u32::from(*scale) {
                    scale @ 0..=6 => v.wrapping_mul(10_i128.pow(6 - scale)) as i64,
                    scale => (v / 10_i128.pow(scale - 6)) as i64,
                })
            }),
            _ => Err(unexpected(self.array).into()),
        }
    }
}
