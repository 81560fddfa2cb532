//! Random tables and predicates. They are derived from a list of numbers, so that proptest can shrink failures.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use deltic_protocol::expression::{Expression, Match, Name, Op};
use deltic_protocol::predicate::{Predicate, parse};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::{to_arrow_fields, to_arrow_schema};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

/// A source of choices. Without numbers left, it always takes the first.
pub(crate) struct Draw {
    numbers: std::vec::IntoIter<u32>,
}

impl Draw {
    pub(crate) fn new(numbers: Vec<u32>) -> Self {
        Self { numbers: numbers.into_iter() }
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.numbers.next().unwrap_or(0) as usize % limit
    }

    /// `true` with a probability of one in `of`.
    pub(crate) fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// A column of a random table; a nested one is field `v` of a struct that may be null.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: Name,
    pub(crate) data_type: PrimitiveType,
}

/// A schema and rows. The values of a null struct are null.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Scalar>>,
}

const SMALL: PrimitiveType = PrimitiveType::Decimal { precision: 4, scale: 2 };
const LARGE: PrimitiveType = PrimitiveType::Decimal { precision: 38, scale: 0 };
const FINE: PrimitiveType = PrimitiveType::Decimal { precision: 38, scale: 38 };

const TYPES: [PrimitiveType; 15] = [
    PrimitiveType::Integer,
    PrimitiveType::String,
    PrimitiveType::Double,
    PrimitiveType::Float,
    PrimitiveType::Boolean,
    PrimitiveType::Byte,
    PrimitiveType::Short,
    PrimitiveType::Long,
    SMALL,
    LARGE,
    FINE,
    PrimitiveType::Binary,
    PrimitiveType::Date,
    PrimitiveType::Timestamp,
    PrimitiveType::TimestampNtz,
];

const DAY: i64 = 86_400_000_000;

/// All types with comparable values.
pub(crate) fn types() -> Vec<PrimitiveType> {
    TYPES.to_vec()
}

/// Values that are close to each other or at the limits of the type, without null.
pub(crate) fn pool(data_type: &PrimitiveType) -> Vec<Scalar> {
    let texts = ["", "a", "ab", "abc", "abcd", "abd", "b", "a%", "a_c", "é", "éa", "\u{7f}", "\u{10ffff}", "zz"];
    let instants = [0, 1, -1, DAY, DAY - 1, -DAY, 18_321 * DAY, i64::MAX, i64::MIN];
    let decimal = |digits: &[i128], precision: u8, scale: u8| {
        digits.iter().map(|value| Scalar::Decimal { value: *value, precision, scale }).collect()
    };
    let most = 10_i128.pow(38) - 1;
    match data_type {
        PrimitiveType::String => texts.map(|text| Scalar::String(text.to_owned())).into(),
        PrimitiveType::Binary => {
            let bytes: [&[u8]; 8] = [&[], &[0], &[0, 0], &[0, 1], &[1], &[255], &[255, 255], &[255, 0]];
            bytes.map(|bytes| Scalar::Binary(bytes.to_vec())).into()
        }
        PrimitiveType::Boolean => vec![Scalar::Boolean(false), Scalar::Boolean(true)],
        PrimitiveType::Byte => [0, 1, -1, 2, 5, i8::MAX, i8::MIN].map(Scalar::Byte).into(),
        PrimitiveType::Short => [0, 1, -1, 2, 5, i16::MAX, i16::MIN].map(Scalar::Short).into(),
        PrimitiveType::Integer => [0, 1, -1, 2, 5, 300, i32::MAX, i32::MIN].map(Scalar::Integer).into(),
        PrimitiveType::Long => [0, 1, -1, 2, 5, 1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN].map(Scalar::Long).into(),
        PrimitiveType::Float => {
            let values = [0.0, -0.0, 1.0, 0.1, 1.5, -2.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE];
            let odd = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            values.into_iter().chain(odd).map(Scalar::Float).collect()
        }
        PrimitiveType::Double => {
            let values = [0.0, -0.0, 1.0, 0.1, 0.1_f32.into(), 1.5, -2.0, 9_007_199_254_740_992.0, f64::MAX, f64::MIN];
            let odd = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            values.into_iter().chain(odd).map(Scalar::Double).collect()
        }
        PrimitiveType::Decimal { precision: 4, .. } => decimal(&[0, 1, -1, 10, 50, 100, 150, -200, 9999, -9999], 4, 2),
        PrimitiveType::Decimal { precision, scale } => decimal(&[0, 1, -1, 2, 5, most, -most], *precision, *scale),
        PrimitiveType::Date => [0, 1, -1, 18_321, i32::MAX, i32::MIN].map(Scalar::Date).into(),
        PrimitiveType::Timestamp => instants.map(Scalar::Timestamp).into(),
        PrimitiveType::TimestampNtz => instants.map(Scalar::TimestampNtz).into(),
        PrimitiveType::Void | PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. } => vec![],
    }
}

/// A value that can be compared with the type, but may have another.
pub(crate) fn literal(draw: &mut Draw, data_type: &PrimitiveType) -> Scalar {
    let numbers = [
        "0",
        "1",
        "-1",
        "2",
        "5",
        "0.1",
        "1.5",
        "-1.5",
        "1e0",
        "1e-1",
        "2.5e0",
        "-1e-40",
        "300",
        "1e10",
        "1e300",
        "99.99",
        "99.991",
        "99.999",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775809",
        "127.5",
        "-128.0000001",
        "FLOAT '0.1'",
        "DOUBLE 'NaN'",
        "DOUBLE 'Infinity'",
        "FLOAT '-Infinity'",
        "0.00000000000000000000000000000000000001",
        "99999999999999999999999999999999999999",
        "1e38",
        "-0e0",
    ];
    let days = [Scalar::Date(0), Scalar::Date(1), Scalar::Date(-1), Scalar::Date(i32::MAX), Scalar::Date(i32::MIN)];
    if draw.once_in(12) {
        return Scalar::Null;
    }
    match data_type {
        PrimitiveType::Boolean | PrimitiveType::String | PrimitiveType::Binary => draw.pick(&pool(data_type)),
        PrimitiveType::Date if draw.once_in(4) => Scalar::String("1970-01-02".to_owned()),
        PrimitiveType::Date if draw.once_in(3) => draw.pick(&pool(&PrimitiveType::Timestamp)),
        PrimitiveType::Date => draw.pick(&pool(data_type)),
        PrimitiveType::Timestamp if draw.once_in(4) => Scalar::String("1970-01-01T01:00:00+01:00".to_owned()),
        PrimitiveType::TimestampNtz if draw.once_in(4) => Scalar::String("1970-01-02 00:00:00".to_owned()),
        PrimitiveType::Timestamp | PrimitiveType::TimestampNtz if draw.once_in(3) => draw.pick(&days),
        PrimitiveType::Timestamp | PrimitiveType::TimestampNtz => draw.pick(&pool(data_type)),
        _ => parse_literal(draw.pick(&numbers)),
    }
}

/// The value of a literal as it is written in a filter.
pub(crate) fn parse_literal(text: &str) -> Scalar {
    match parse(&format!("x = {text}")).unwrap().0 {
        Expression::Compare { right, .. } => match *right {
            Expression::Literal(value) => value,
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

impl Table {
    pub(crate) fn draw(draw: &mut Draw, rows: usize) -> Self {
        let columns: Vec<Column> = (0..draw.below(4) + 1)
            .map(|i| {
                let path = if draw.once_in(4) { vec![format!("c{i}"), "v".to_owned()] } else { vec![format!("c{i}")] };
                Column { name: Name(path), data_type: draw.pick(&TYPES) }
            })
            .collect();
        let rows = (0..rows)
            .map(|_| {
                let value = |column: &Column| {
                    if draw.once_in(5) { Scalar::Null } else { draw.pick(&pool(&column.data_type)) }
                };
                columns.iter().map(value).collect()
            })
            .collect();
        Self { columns, rows }
    }

    pub(crate) fn schema(&self) -> StructType {
        let field = |column: &Column| {
            let data_type = DataType::Primitive(column.data_type.clone());
            match column.name.0.as_slice() {
                [name] => StructField::new(name, data_type, true),
                [name, inner] => {
                    let inner = StructType::new(vec![StructField::new(inner, data_type, true)]);
                    StructField::new(name, DataType::Struct(Arc::new(inner)), true)
                }
                other => panic!("{other:?}"),
            }
        };
        StructType::new(self.columns.iter().map(field).collect())
    }

    /// The rows. For every third null of a nested column, the struct is null and its field has a value.
    pub(crate) fn batch(&self) -> RecordBatch {
        let schema = self.schema();
        let column = |i: usize| -> ArrayRef {
            let column = &self.columns[i];
            let mut values: Vec<Scalar> = self.rows.iter().map(|row| row[i].clone()).collect();
            let DataType::Struct(inner) = &schema.fields[i].data_type else {
                return Scalar::to_column(&values, &column.data_type).unwrap();
            };
            let hidden = |row: usize, value: &Scalar| *value == Scalar::Null && row.is_multiple_of(3);
            let present: Vec<bool> = values.iter().enumerate().map(|(row, value)| !hidden(row, value)).collect();
            for (value, present) in values.iter_mut().zip(&present) {
                if !present {
                    *value = pool(&column.data_type)[0].clone();
                }
            }
            let child = Scalar::to_column(&values, &column.data_type).unwrap();
            Arc::new(StructArray::new(to_arrow_fields(inner), vec![child], Some(NullBuffer::from(present))))
        };
        let columns = (0..self.columns.len()).map(column).collect();
        RecordBatch::try_new(Arc::new(to_arrow_schema(&schema)), columns).unwrap()
    }

    pub(crate) fn predicate(&self, draw: &mut Draw, depth: usize) -> Predicate {
        Predicate(self.condition(draw, depth))
    }

    fn condition(&self, draw: &mut Draw, depth: usize) -> Expression {
        let several = |draw: &mut Draw| (0..draw.below(3) + 2).map(|_| self.condition(draw, depth - 1)).collect();
        match draw.below(if depth == 0 { 8 } else { 12 }) {
            8 => Expression::Not(Box::new(self.condition(draw, depth - 1))),
            9 => Expression::Or(several(draw)),
            10.. => Expression::And(several(draw)),
            leaf => self.leaf(draw, leaf),
        }
    }

    fn leaf(&self, draw: &mut Draw, kind: usize) -> Expression {
        let ops = [Op::Eq, Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::Ne];
        let column = draw.pick(&self.columns);
        let operand = Box::new(Expression::Column(column.name.clone()));
        let data_type = &column.data_type;
        let negated = draw.once_in(3);
        let other = self.columns.iter().rfind(|c| c.data_type == *data_type && c.name != column.name);
        let side = |draw: &mut Draw| {
            Box::new(match other {
                Some(other) if draw.once_in(2) => Expression::Column(other.name.clone()),
                _ => Expression::Literal(literal(draw, data_type)),
            })
        };
        match kind {
            0..=2 => {
                let (left, op, right) = (operand, draw.pick(&ops), side(draw));
                if negated {
                    Expression::Compare { left: right, op, right: left }
                } else {
                    Expression::Compare { left, op, right }
                }
            }
            3 => Expression::NullSafeEqual { left: operand, right: side(draw) },
            4 => Expression::IsNull { operand, negated },
            5 => {
                let list = (0..draw.below(5) + 1).map(|_| Expression::Literal(literal(draw, data_type))).collect();
                Expression::In { operand, list, negated }
            }
            6 => Expression::Between { operand, low: side(draw), high: side(draw), negated },
            _ => match data_type {
                PrimitiveType::String => {
                    let (pattern, escape) = draw.pick(&[
                        ("ab%", None),
                        ("%", None),
                        ("a", None),
                        ("%b%", None),
                        ("_b%", None),
                        ("a%c", None),
                        ("a\\%", None),
                        ("a!_c", Some('!')),
                        ("é%", None),
                        ("_", None),
                        ("", None),
                        ("%c_", None),
                        ("%a%b%c%", None),
                        ("\u{10ffff}%", None),
                    ]);
                    Expression::Like { operand, kind: Match::Like, pattern: pattern.to_owned(), escape, negated }
                }
                PrimitiveType::Boolean if draw.once_in(2) => {
                    Expression::IsTruth { operand, value: draw.once_in(2), negated }
                }
                PrimitiveType::Boolean => *operand,
                _ if draw.once_in(4) => Expression::Literal(Scalar::Null),
                _ => Expression::Compare { left: operand, op: draw.pick(&ops), right: side(draw) },
            },
        }
    }
}
