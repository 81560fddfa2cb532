//! Converts values from the type of a column in a file to its type in the table.
//!
//! [`LeafCast::choose`] decides from the two types whether and how; a [`Conversion`] does it, and rebases values that
//! the file has in the hybrid calendar. Allowed are types that files of an older schema may have (type widening)
//! and types that other writers use for the same table type (units of timestamps, unannotated strings). A value that does
//! not fit is an error, never another value.
//!
//! PROTOCOL.md: "Type Widening", "Primitive Types".

use std::sync::Arc;

use arrow_arith::arity::{try_unary, unary};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, TimestampMicrosecondArray, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType as ArrowType, TimeUnit};
use deltic_protocol::schema::PrimitiveType;

use crate::footer::calendar::{Calendars, Hybrid};

/// How the values of one leaf of a file are converted.
#[derive(Debug)]
pub(crate) struct Conversion {
    cast: LeafCast,
    /// The calendar of the file's values, if it is the hybrid one.
    pub(super) calendar: Option<Arc<Hybrid>>,
}

impl Conversion {
    /// How `file`, the type of leaf number `leaf`, is converted to `table`; `None` if that is not allowed.
    pub(crate) fn choose(file: &ArrowType, table: &PrimitiveType, leaf: usize, calendars: &Calendars) -> Option<Self> {
        let cast = LeafCast::choose(file, table)?;
        Some(Self { cast, calendar: calendars.of_leaf(leaf, file, table) })
    }

    /// The conversion of a column that has only nulls.
    pub(crate) fn of_nulls() -> Self {
        Self { cast: LeafCast::Null, calendar: None }
    }

    /// Whether the order of values is kept, so that bounds can be converted like values. The clocks of a time zone may
    /// run backwards, so rebasing timestamps does not keep it.
    pub(crate) fn keeps_order(&self) -> bool {
        self.cast.keeps_order() && (self.calendar.is_none() || self.cast != LeafCast::Timestamp)
    }

    /// The values of `array` in the type `target`, the Arrow form of the table type given to [`Conversion::choose`].
    pub(crate) fn apply(&self, array: &ArrayRef, target: &ArrowType) -> Result<ArrayRef, ArrowError> {
        let Some(calendar) = &self.calendar else { return self.cast.apply(array, target) };
        if let Some(days) = array.as_primitive_opt::<Date32Type>() {
            return self.cast.apply(&(Arc::new(calendar.rebase_dates(days)?) as ArrayRef), target);
        }
        retag(calendar.rebase_timestamps(&to_micros(array)?)?, target)
    }
}

/// How the values of a leaf are cast, apart from the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeafCast {
    /// No cast is needed.
    Same,
    /// The column has only nulls.
    Null,
    /// By Arrow's cast, which fails on a value that does not fit. Order is kept.
    Widen,
    /// By Arrow's cast, to a type that has another order or that may not have room for the value.
    Reinterpret,
    /// Timestamps of any unit and zone to microseconds.
    Timestamp,
    /// Days to microseconds.
    Date,
}

const MICROS_PER_DAY: i64 = 86_400_000_000;

impl LeafCast {
    /// How `file` is cast to `table`; `None` if that is not allowed.
    fn choose(file: &ArrowType, table: &PrimitiveType) -> Option<Self> {
        use ArrowType as A;
        use PrimitiveType as P;
        let file = match file {
            A::Dictionary(_, value) => value.as_ref(),
            other => other,
        };
        if *file == A::Null {
            return Some(Self::Null);
        }
        Some(match (table, file) {
            (P::Boolean, A::Boolean)
            | (P::Byte, A::Int8)
            | (P::Short, A::Int16)
            | (P::Integer, A::Int32)
            | (P::Long, A::Int64)
            | (P::Float, A::Float32)
            | (P::Double, A::Float64)
            | (P::Date, A::Date32)
            | (P::String, A::Utf8)
            | (P::Binary | P::Geometry { .. } | P::Geography { .. }, A::Binary) => Self::Same,
            (P::Short, A::Int8 | A::UInt8)
            | (P::Integer, A::Int8 | A::Int16 | A::UInt8 | A::UInt16)
            | (P::Long, A::Int8 | A::Int16 | A::Int32 | A::UInt8 | A::UInt16 | A::UInt32)
            | (P::Float, A::Float16)
            | (P::Double, A::Float16 | A::Float32 | A::Int8 | A::Int16 | A::Int32 | A::UInt8 | A::UInt16)
            | (P::String, A::LargeUtf8 | A::Utf8View)
            | (
                P::Binary | P::Geometry { .. } | P::Geography { .. },
                A::LargeBinary | A::BinaryView | A::FixedSizeBinary(_) | A::Utf8 | A::LargeUtf8 | A::Utf8View,
            ) => Self::Widen,
            // In Parquet these are all INT32 or INT64; the annotation that distinguishes them may be missing.
            (P::Byte, A::Int16 | A::Int32)
            | (P::Short, A::Int32)
            | (P::Integer, A::UInt32)
            | (P::Long, A::UInt64)
            | (P::String, A::Binary | A::LargeBinary | A::BinaryView) => Self::Reinterpret,
            (P::Decimal { precision, scale }, file) => return Self::to_decimal(file, *precision, *scale),
            (P::Timestamp | P::TimestampNtz, A::Timestamp(..)) => Self::Timestamp,
            (P::TimestampNtz, A::Date32) => Self::Date,
            _ => return None,
        })
    }

    /// The type must have room for the digits before and after the point.
    fn to_decimal(file: &ArrowType, precision: u8, scale: u8) -> Option<Self> {
        let whole = precision.checked_sub(scale)?;
        let room = match file {
            ArrowType::Decimal32(p, s) | ArrowType::Decimal64(p, s) | ArrowType::Decimal128(p, s) => {
                let s = u8::try_from(*s).ok()?;
                if (*p, s) == (precision, scale) && matches!(file, ArrowType::Decimal128(..)) {
                    return Some(Self::Same);
                }
                s <= scale && p.checked_sub(s)? <= whole
            }
            ArrowType::Int8 | ArrowType::UInt8 => whole >= 3,
            ArrowType::Int16 | ArrowType::UInt16 => whole >= 5,
            ArrowType::Int32 => whole >= 10,
            ArrowType::Int64 => whole >= 19,
            _ => false,
        };
        room.then_some(Self::Widen)
    }

    /// Whether the order of values is kept, so that bounds can be cast like values.
    fn keeps_order(self) -> bool {
        match self {
            Self::Same | Self::Widen | Self::Timestamp | Self::Date => true,
            Self::Null | Self::Reinterpret => false,
        }
    }

    fn apply(self, array: &ArrayRef, target: &ArrowType) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Same if array.data_type() == target => Ok(Arc::clone(array)),
            Self::Null => Ok(new_null_array(target, array.len())),
            Self::Same | Self::Widen | Self::Reinterpret => {
                cast_with_options(array, target, &CastOptions { safe: false, ..CastOptions::default() })
            }
            Self::Timestamp => retag(to_micros(array)?, target),
            Self::Date => {
                let micros: TimestampMicrosecondArray = try_unary(array.as_primitive::<Date32Type>(), |days| {
                    i64::from(days).checked_mul(MICROS_PER_DAY).ok_or_else(|| too_far("date"))
                })?;
                retag(micros, target)
            }
        }
    }
}

fn too_far(what: &str) -> ArrowError {
    ArrowError::ArithmeticOverflow(format!("a {what} is too far from 1970 for microseconds"))
}

fn to_micros(array: &ArrayRef) -> Result<TimestampMicrosecondArray, ArrowError> {
    let scaled = |factor: i64| move |v: i64| v.checked_mul(factor).ok_or_else(|| too_far("timestamp"));
    match array.data_type() {
        ArrowType::Timestamp(TimeUnit::Second, _) => {
            try_unary(array.as_primitive::<TimestampSecondType>(), scaled(1_000_000))
        }
        ArrowType::Timestamp(TimeUnit::Millisecond, _) => {
            try_unary(array.as_primitive::<TimestampMillisecondType>(), scaled(1_000))
        }
        // Rounded down, also before 1970.
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => {
            Ok(unary(array.as_primitive::<TimestampNanosecondType>(), |v| v.div_euclid(1_000)))
        }
        _ => match array.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(micros) => Ok(micros.clone()),
            None => Err(ArrowError::CastError(format!("{} is not a timestamp", array.data_type()))),
        },
    }
}

fn retag(micros: TimestampMicrosecondArray, target: &ArrowType) -> Result<ArrayRef, ArrowError> {
    match target {
        ArrowType::Timestamp(TimeUnit::Microsecond, zone) => Ok(Arc::new(micros.with_timezone_opt(zone.clone()))),
        other => Err(ArrowError::CastError(format!("{other} is not in microseconds"))),
    }
}
