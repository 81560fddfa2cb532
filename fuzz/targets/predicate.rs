//! Predicates and expressions: parsing and printing, binding to a schema with columns of every type, evaluation,
//! skipping.
//!
//! NOT must negate the value of each row, and no file may be skipped, or taken as a whole, contrary to its rows.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StructArray};
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::expression::{Context, Expression, evaluate_at, parse_expression};
use deltic_protocol::predicate::{Column, Predicate, parse};
use deltic_protocol::prune::{Bounds, always, keep};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::{to_arrow_fields, to_arrow_schema, to_arrow_type};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

const COLUMNS: [(&str, PrimitiveType, [&str; 6]); 14] = [
    ("b", PrimitiveType::Byte, ["-128", "0", "1", "127", "", "1"]),
    ("s", PrimitiveType::Short, ["-32768", "0", "1", "32767", "", "1"]),
    ("i", PrimitiveType::Integer, ["-2147483648", "0", "1", "2147483647", "", "1"]),
    ("l", PrimitiveType::Long, ["-9223372036854775808", "0", "1", "9223372036854775807", "", "1"]),
    ("f", PrimitiveType::Float, ["-inf", "-0.0", "0.1", "NaN", "", "inf"]),
    ("d", PrimitiveType::Double, ["-1.7976931348623157e308", "0.0", "0.1", "NaN", "", "5e-324"]),
    ("n", PrimitiveType::Decimal { precision: 5, scale: 2 }, ["-999.99", "0", "0.01", "999.99", "", "1"]),
    (
        "m",
        PrimitiveType::Decimal { precision: 38, scale: 0 },
        ["-9", "0", "1", "99999999999999999999999999999", "", "1"],
    ),
    ("t", PrimitiveType::String, ["a", "ab", "abc", "é%_\\", "", "abd"]),
    ("x", PrimitiveType::Binary, ["a", "ab", "abc", "é%_\\", "", "abd"]),
    ("y", PrimitiveType::Boolean, ["true", "false", "true", "true", "", "false"]),
    ("e", PrimitiveType::Date, ["0001-01-01", "1970-01-01", "2024-02-29", "9999-12-31", "", "2024-02-29"]),
    (
        "z",
        PrimitiveType::Timestamp,
        [
            "0001-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
            "2024-02-29T12:00:00.000001Z",
            "9999-12-31T23:59:59Z",
            "",
            "2024-02-29T12:00:00Z",
        ],
    ),
    (
        "w",
        PrimitiveType::TimestampNtz,
        [
            "0001-01-01 00:00:00",
            "1970-01-01 00:00:00",
            "2024-02-29 12:00:00.000001",
            "9999-12-31 23:59:59",
            "",
            "2024-02-29 12:00:00",
        ],
    ),
];
const ROWS: usize = 6;

/// The columns at the top, and once more inside of the struct `o`.
static SCHEMA: LazyLock<StructType> = LazyLock::new(|| {
    let field = |name: &str, data_type| StructField::new(name, data_type, true);
    let mut fields: Vec<_> = COLUMNS.iter().map(|(name, of, _)| field(name, DataType::Primitive(of.clone()))).collect();
    fields.push(field("o", DataType::Struct(Arc::new(StructType::new(fields.clone())))));
    StructType::new(fields)
});

static BATCH: LazyLock<RecordBatch> = LazyLock::new(|| {
    let mut columns: Vec<ArrayRef> =
        COLUMNS.iter().map(|(_, of, _)| of).zip(&*VALUES).map(|(of, v)| Scalar::to_column(v, of).unwrap()).collect();
    let DataType::Struct(inner) = &SCHEMA.fields[COLUMNS.len()].data_type else { panic!("no struct") };
    columns.push(Arc::new(StructArray::new(to_arrow_fields(inner), columns.clone(), None)));
    RecordBatch::try_new(Arc::new(to_arrow_schema(&SCHEMA)), columns).unwrap()
});

static VALUES: LazyLock<Vec<Vec<Scalar>>> = LazyLock::new(|| {
    let value = |text: &&str, of: &PrimitiveType| match *text {
        "" => Scalar::Null,
        text => Scalar::parse(text, of).unwrap(),
    };
    COLUMNS.iter().map(|(_, of, texts)| texts.iter().map(|text| value(text, of)).collect()).collect()
});

/// Whether a text is refused for what it says, an unknown function with them.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::Invalid | Kind::Unsupported { .. })
}

/// The same text as an expression of a table's metadata: round trip, and a value of its type or an error for each row.
fn expression(text: &str) {
    let expression = match parse_expression(text) {
        Ok(expression) => expression,
        Err(error) => return assert_eq!(*error.kind(), Kind::Invalid, "{error}"),
    };
    let printed = expression.to_string();
    assert_eq!(format!("{:?}", parse_expression(&printed).unwrap()), format!("{expression:?}"));
    let bound = match expression.bind(&SCHEMA) {
        Ok(bound) => bound,
        Err(error) => return assert!(is_refusal(&error), "{error}"),
    };
    match evaluate_at(&bound, &BATCH, Context { now: Some(0), first_row: 0 }) {
        Ok(values) => assert_eq!((values.len(), values.data_type()), (ROWS, &to_arrow_type(bound.data_type()))),
        Err(error) => assert_eq!(*error.kind(), Kind::Invalid, "{error}"),
    }
}

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    expression(text);
    let predicate = match parse(text) {
        Ok(predicate) => predicate,
        Err(error) => return assert_eq!(*error.kind(), Kind::Invalid, "{error}"),
    };
    let printed = predicate.to_string();
    // Compared in debug form, in which NaN equals itself.
    assert_eq!(format!("{:?}", parse(&printed).unwrap()), format!("{predicate:?}"));

    let bound = match predicate.bind(&SCHEMA) {
        Ok(bound) => bound,
        Err(error) => return assert!(is_refusal(&error), "{error}"),
    };
    // Rows may have an error, as in SQL.
    let condition = match bound.evaluate(&BATCH) {
        Ok(condition) => condition,
        Err(error) => return assert_eq!(*error.kind(), Kind::Invalid, "{error}"),
    };
    match Predicate(Expression::Not(Box::new(predicate.0))).bind(&SCHEMA).unwrap().evaluate(&BATCH) {
        Ok(opposite) => {
            let opposite: Vec<Option<bool>> = opposite.iter().map(|value| value.map(|value| !value)).collect();
            assert_eq!(opposite, condition.iter().collect::<Vec<_>>());
        }
        Err(error) => assert_eq!(*error.kind(), Kind::Invalid, "{error}"),
    }

    for containers in [
        vec![0..1, 1..2, 2..3, 3..4, 4..5, 5..6],
        vec![0..3, 3..6],
        std::iter::once(0..ROWS).collect(),
        vec![1..3, 4..4],
    ] {
        for is_exact in [true, false] {
            let known = Known { containers: containers.clone(), is_exact };
            let (kept, certain) = (keep(&bound, &known).unwrap(), always(&bound, &known).unwrap());
            for (container, rows) in containers.iter().enumerate() {
                let is_true = |row: usize| condition.iter().nth(row).flatten() == Some(true);
                assert!(kept.value(container) || !rows.clone().any(is_true), "dropped {rows:?} of {printed}");
                assert!(!certain.value(container) || rows.clone().all(is_true), "took {rows:?} whole for {printed}");
            }
        }
    }
}

/// What is known of ranges of the rows.
struct Known {
    containers: Vec<Range<usize>>,
    /// Else texts are shortened and NaN does not count.
    is_exact: bool,
}

impl Known {
    fn bound(&self, column: &Column, wanted: Ordering) -> Result<Option<ArrayRef>> {
        let name = column.path.last().unwrap();
        let index = COLUMNS.iter().position(|(column, ..)| column == name).unwrap();
        let counts = |value: &&Scalar| **value != Scalar::Null && (self.is_exact || !value.is_nan());
        let of_rows = |rows: &Range<usize>| {
            let values = VALUES[index][rows.clone()].iter().filter(counts);
            let best = values.reduce(|a, b| if b.compare(a) == Some(wanted) { b } else { a });
            self.shortened(best.cloned().unwrap_or(Scalar::Null))
        };
        let bounds: Vec<Scalar> = self.containers.iter().map(of_rows).collect();
        Scalar::to_column(&bounds, column.primitive()?).map(Some)
    }

    fn shortened(&self, value: Scalar) -> Scalar {
        match value {
            Scalar::String(text) if !self.is_exact => Scalar::String(text.chars().take(2).collect()),
            Scalar::Binary(bytes) if !self.is_exact => Scalar::Binary(bytes.into_iter().take(2).collect()),
            other => other,
        }
    }
}

impl Bounds for Known {
    fn containers(&self) -> usize {
        self.containers.len()
    }

    fn min(&self, column: &Column) -> Result<Option<ArrayRef>> {
        self.bound(column, Ordering::Less)
    }

    fn max(&self, column: &Column) -> Result<Option<ArrayRef>> {
        self.bound(column, Ordering::Greater)
    }

    fn null_count(&self, column: &Column) -> Result<Option<Int64Array>> {
        let Some(index) = COLUMNS.iter().position(|(name, ..)| Some(*name) == column.path.last().map(String::as_str))
        else {
            return Ok(None);
        };
        let nulls = |rows: &Range<usize>| VALUES[index][rows.clone()].iter().filter(|v| **v == Scalar::Null).count();
        Ok(Some(self.containers.iter().map(|rows| Some(nulls(rows) as i64)).collect()))
    }

    fn row_count(&self) -> Result<Option<Int64Array>> {
        Ok(Some(self.containers.iter().map(|rows| Some(rows.len() as i64)).collect()))
    }

    fn is_exact(&self, _column: &Column) -> bool {
        self.is_exact
    }
}
