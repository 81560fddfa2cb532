//! The types of values, as in Spark's ANSI mode: common types, types of decimal results, possible casts.

use std::sync::Arc;

use super::ast::ArithmeticOp;
use crate::schema::{ArrayType, DataType, MapType, PrimitiveType as P, StructField, StructType, is_same_name};

/// Most digits of a decimal.
const MAX_PRECISION: u8 = 38;

/// Whole numbers and floats, narrowest first.
fn rank(of: &P) -> Option<usize> {
    [P::Byte, P::Short, P::Integer, P::Long, P::Float, P::Double].iter().position(|p| p == of)
}

/// Whether a type has whole numbers alone.
pub(super) fn is_whole(of: &P) -> bool {
    matches!(of, P::Byte | P::Short | P::Integer | P::Long)
}

/// Whether values of a type are numbers.
pub(super) fn is_number(of: &P) -> bool {
    is_whole(of) || matches!(of, P::Float | P::Double | P::Decimal { .. })
}

/// The decimal that holds every whole number of a type.
pub(super) fn decimal_of(whole: &P) -> Option<P> {
    let precision = match whole {
        P::Byte => 3,
        P::Short => 5,
        P::Integer => 10,
        P::Long => 20,
        P::Decimal { .. } => return Some(whole.clone()),
        _ => return None,
    };
    Some(P::Decimal { precision, scale: 0 })
}

/// The smallest decimal that holds the values of two decimals; if that has more than 38 digits, with fewer after the point.
fn wider_decimal(a: (u8, u8), b: (u8, u8)) -> P {
    let scale = a.1.max(b.1);
    let whole = (a.0 - a.1.min(a.0)).max(b.0 - b.1.min(b.0)).min(MAX_PRECISION);
    let scale = scale.min(MAX_PRECISION - whole);
    P::Decimal { precision: whole + scale, scale }
}

/// The type of the result of two decimals: `p` digits with `s` after the point, and `q` with `t`. If it has more than 38
/// digits, there are fewer digits after the point, down to six.
pub(super) fn decimal_result(op: ArithmeticOp, p: u8, s: u8, q: u8, t: u8) -> P {
    let (p, s, q, t) = (u32::from(p), u32::from(s), u32::from(q), u32::from(t));
    let (precision, scale) = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => ((p - s).max(q - t) + s.max(t) + 1, s.max(t)),
        ArithmeticOp::Multiply => (p + q + 1, s + t),
        ArithmeticOp::Divide => {
            let scale = (s + q + 1).max(6);
            (p - s + t + scale, scale)
        }
        ArithmeticOp::Remainder => ((p - s).min(q - t) + s.max(t), s.max(t)),
        ArithmeticOp::Div | ArithmeticOp::Concat => return P::Long,
    };
    adjusted(precision, scale)
}

/// A decimal with these digits, or with 38 if there would be more.
pub(super) fn adjusted(precision: u32, scale: u32) -> P {
    let (precision, scale) = if precision <= 38 {
        (precision, scale)
    } else {
        let whole = precision - scale;
        (38, 38_u32.saturating_sub(whole).max(scale.min(6)))
    };
    P::Decimal { precision: precision as u8, scale: scale as u8 }
}

/// The type that values of a column's type have in expressions: without the metadata of fields, and anything inside may
/// be NULL. So values of two columns have one type, and one Arrow type, if they have the same parts.
pub(super) fn value_type(of: &DataType) -> DataType {
    let field = |field: &StructField| StructField {
        name: field.name.clone(),
        data_type: value_type(&field.data_type),
        nullable: true,
        metadata: serde_json::Map::new(),
    };
    match of {
        DataType::Struct(inner) => {
            DataType::Struct(Arc::new(StructType::new(inner.fields.iter().map(field).collect())))
        }
        DataType::Array(array) => array_of(value_type(&array.element)),
        DataType::Map(map) => map_of(value_type(&map.key), value_type(&map.value)),
        DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => of.clone(),
    }
}

fn array_of(element: DataType) -> DataType {
    DataType::Array(Arc::new(ArrayType { element, contains_null: true }))
}

fn map_of(key: DataType, value: DataType) -> DataType {
    DataType::Map(Arc::new(MapType { key, value, value_contains_null: true }))
}

/// The common type of two types of values. Arrays and maps have one if their parts have, and structs if their fields have the
/// same names in the same order.
pub(super) fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b {
        return Some(a.clone());
    }
    match (a, b) {
        (DataType::Primitive(P::Void), other) | (other, DataType::Primitive(P::Void)) => Some(other.clone()),
        (DataType::Primitive(p), DataType::Primitive(q)) => common_primitive(p, q).map(DataType::Primitive),
        (DataType::Array(a), DataType::Array(b)) => common(&a.element, &b.element).map(array_of),
        (DataType::Map(a), DataType::Map(b)) => Some(map_of(common(&a.key, &b.key)?, common(&a.value, &b.value)?)),
        (DataType::Struct(a), DataType::Struct(b)) if a.fields.len() == b.fields.len() => {
            let both = |(a, b): (&StructField, &StructField)| {
                let data_type = common(&a.data_type, &b.data_type)?;
                is_same_name(&a.name, &b.name).then(|| StructField { data_type, ..a.clone() })
            };
            let fields = a.fields.iter().zip(&b.fields).map(both).collect::<Option<Vec<_>>>()?;
            Some(DataType::Struct(Arc::new(StructType::new(fields))))
        }
        _ => None,
    }
}

fn common_primitive(p: &P, q: &P) -> Option<P> {
    Some(match (p, q) {
        (P::Void, other) | (other, P::Void) => other.clone(),
        (P::Decimal { precision: p, scale: s }, P::Decimal { precision: q, scale: t }) => {
            wider_decimal((*p, *s), (*q, *t))
        }
        (P::Decimal { .. }, P::Float | P::Double) | (P::Float | P::Double, P::Decimal { .. }) => P::Double,
        (P::Decimal { .. }, whole) | (whole, P::Decimal { .. }) if is_whole(whole) => {
            let (p, q) = (decimal_of(p)?, decimal_of(q)?);
            return common_primitive(&p, &q);
        }
        (P::Date, P::Timestamp) | (P::Timestamp, P::Date) => P::Timestamp,
        (P::Date, P::TimestampNtz) | (P::TimestampNtz, P::Date) => P::TimestampNtz,
        (P::Timestamp, P::TimestampNtz) | (P::TimestampNtz, P::Timestamp) => P::Timestamp,
        (P::String, other) | (other, P::String) => match other {
            whole if is_whole(whole) => P::Long,
            P::Float | P::Double | P::Decimal { .. } => P::Double,
            P::Geometry { .. } | P::Geography { .. } => return None,
            other => other.clone(),
        },
        (p, q) => {
            let (wider, narrower) = if rank(p)? > rank(q)? { (p, q) } else { (q, p) };
            // A float does not hold every integer.
            if *wider == P::Float && is_whole(narrower) { P::Double } else { wider.clone() }
        }
    })
}

/// Whether ANSI SQL casts from one type to another.
pub(super) fn castable(from: &P, to: &P) -> bool {
    let is_moment = |of: &P| matches!(of, P::Date | P::Timestamp | P::TimestampNtz);
    match (from, to) {
        (P::Geometry { .. } | P::Geography { .. }, _) | (_, P::Geometry { .. } | P::Geography { .. }) => false,
        (P::Void, _) | (_, P::String) => true,
        (from, to) if from == to => true,
        (P::String, to) => *to != P::Void,
        (P::Boolean, to) => is_number(to),
        (from, P::Boolean) => is_number(from),
        (from, P::Timestamp) if is_number(from) => true,
        (P::Timestamp, to) if is_number(to) => true,
        (from, to) => (is_number(from) && is_number(to)) || (is_moment(from) && is_moment(to)),
    }
}

/// The primitive type, if it is one.
pub(super) fn primitive(data_type: &DataType) -> Option<&P> {
    data_type.as_primitive()
}
