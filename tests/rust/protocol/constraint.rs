//! Constraints, generated columns, defaults and lengths of strings.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int32Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray, StructArray};
use deltic_protocol::constraint::{ColumnDefault, Constraint, GeneratedColumn, Rules, Source, check_constraints};
use deltic_protocol::error::Kind;
use deltic_protocol::expression::{Assignment, Context, Conversion, parse_expression};
use deltic_protocol::property::Properties;
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_protocol::schema::{ArrayType, DataType, PrimitiveType, StructField, StructType};
use serde_json::{Value, json};

fn with(name: &str, data_type: DataType, metadata: &[(&str, &str)]) -> StructField {
    let mut field = StructField::new(name, data_type, true);
    field.metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    field
}

fn plain(name: &str, data_type: DataType) -> StructField {
    with(name, data_type, &[])
}

fn inner() -> StructType {
    StructType::new(vec![plain("x", DataType::INTEGER)])
}

fn schema() -> StructType {
    StructType::new(vec![
        plain("a", DataType::INTEGER),
        plain("s", DataType::STRING),
        plain("p", DataType::Struct(Arc::new(inner()))),
    ])
}

fn rows() -> RecordBatch {
    let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(4)]));
    let fields = to_arrow_schema(&inner()).fields;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), Some(7), None, Some(-1)])),
        Arc::new(StringArray::from(vec![Some("a"), None, Some("it's"), Some("d")])),
        Arc::new(StructArray::new(fields, vec![x], None)),
    ];
    RecordBatch::try_new(Arc::new(to_arrow_schema(&schema())), columns).unwrap()
}

const LATER: Context = Context { now: Some(0), first_row: 100 };

#[test]
fn only_true_passes() {
    for (sql, expected) in [
        ("a > -5 OR a IS NULL", None),
        ("TRUE", None),
        ("a > 0", Some("row 102 (the first is 0) of the data: a = NULL")),
        ("coalesce(a, 1) > 0", Some("row 103 (the first is 0) of the data: a = -1")),
        ("P.X < 4 and s <> 'x'", Some("row 101 (the first is 0) of the data: p.x = 2, s = NULL")),
        ("length(s) < 4 OR s IS NULL", Some("row 102 (the first is 0) of the data: s = 'it's'")),
        ("NULL", Some("row 100 (the first is 0) of the data")),
        ("FALSE", Some("row 100 (the first is 0) of the data")),
        ("current_timestamp() > TIMESTAMP '2000-01-01'", Some("row 100 (the first is 0) of the data")),
    ] {
        let constraint = Constraint::parse("mine", sql, &schema()).unwrap();
        assert_eq!(constraint.sql(), sql);
        assert!(constraint.check(&rows().slice(0, 0), LATER).is_ok(), "{sql}: no rows");
        match (constraint.check(&rows(), LATER), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => {
                assert_eq!(*error.kind(), Kind::Invalid);
                let message = format!("the CHECK constraint `mine` ({sql}) is violated by {expected}");
                assert_eq!(error.message(), message);
            }
            (checked, _) => panic!("{sql}: {checked:?}"),
        }
    }
    let failing = Constraint::parse("mine", "10 / (a - 7) > -100 OR a IS NULL", &schema()).unwrap();
    let error = failing.check(&rows(), LATER).unwrap_err();
    assert!(error.message().starts_with("the CHECK constraint `mine` (10 / (a - 7)"), "{error}");
    assert!(error.message().contains("row 101: division by zero"), "{error}");
}

#[test]
fn invalid_constraints_are_refused_by_name() {
    for (sql, expected) in [
        ("b > 0", "(b > 0): there is no column `b`"),
        ("a +", "(a +): expression, character 4: expected a column or a value"),
        ("a + 1", "(a + 1) is not a condition but a value of type integer"),
        ("s > p", "these types cannot be compared: string and struct"),
    ] {
        let error = Constraint::parse("mine", sql, &schema()).unwrap_err();
        assert_eq!(*error.kind(), Kind::Invalid, "{error}");
        assert!(error.message().starts_with("the CHECK constraint `mine` ("), "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
    let error = Constraint::parse("mine", "frobnicate(a) > 0", &schema()).unwrap_err();
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function frobnicate".to_owned()] });
    assert_eq!(
        error.message(),
        "the CHECK constraint `mine` (frobnicate(a) > 0): there is no function frobnicate; deltic cannot write the table; in \
         Spark, deltic.spark.write, update and merge let Spark evaluate this"
    );
}

#[test]
fn constraints_are_found_in_properties_and_columns() {
    let properties: BTreeMap<String, String> = [
        ("delta.constraints.a_small", "a < 5 OR a IS NULL"),
        ("DELTA.CONSTRAINTS.b", "a > -9 OR a IS NULL"),
        ("delta.appendOnly", "false"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    let checks = check_constraints(Properties::new(&properties));
    assert_eq!(checks.keys().collect::<Vec<_>>(), ["a_small", "b"]);
    let rules = Rules::of(&schema(), &checks, None).unwrap();
    let error = rules.check(&rows(), &[], Context::default()).unwrap_err();
    assert!(error.message().contains("`a_small` (a < 5 OR a IS NULL) is violated by row 1 "), "{error}");

    let invariant = json!({"expression": {"expression": "p.x < 2"}}).to_string();
    let nested = StructType::new(vec![with("x", DataType::INTEGER, &[("delta.invariants", &invariant)])]);
    let of = |data_type: DataType| {
        StructType::new(vec![plain("a", DataType::INTEGER), plain("s", DataType::STRING), plain("p", data_type)])
    };
    let rules = Rules::of(&of(DataType::Struct(Arc::new(nested.clone()))), &BTreeMap::new(), None).unwrap();
    assert_eq!(rules.columns(), [2]);
    let error = rules.check(&rows(), &[], Context::default()).unwrap_err();
    assert_eq!(
        error.message(),
        "the invariant of column `p.x` (p.x < 2) is violated by row 1 (the first is 0) of the data: p.x = 2"
    );
    let list = ArrayType { element: DataType::Struct(Arc::new(nested)), contains_null: true };
    let error = Rules::of(&of(DataType::Array(Arc::new(list))), &BTreeMap::new(), None).unwrap_err();
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["invariants".to_owned()] });
    assert!(error.message().contains("`p.x`"), "{error}");
    let broken = StructType::new(vec![with("a", DataType::INTEGER, &[("delta.invariants", "{}")])]);
    assert_eq!(*Rules::of(&broken, &BTreeMap::new(), None).unwrap_err().kind(), Kind::Corrupt);
}

fn generated(sql: &str, data_type: DataType) -> Result<GeneratedColumn, deltic_protocol::error::Error> {
    let field = with("g", data_type, &[("delta.generationExpression", sql)]);
    let mut fields = schema().fields;
    fields.push(with("other", DataType::INTEGER, &[("delta.generationExpression", "a")]));
    fields.push(field.clone());
    GeneratedColumn::parse(&field, sql, &StructType::new(fields))
}

#[test]
fn generated_columns_are_computed_and_compared() {
    let column = generated("a * 2", DataType::LONG).unwrap();
    let values = column.values(&rows(), LATER).unwrap();
    assert_eq!(values.data_type(), &arrow_schema::DataType::Int64);
    assert_eq!(
        values.as_primitive::<arrow_array::types::Int64Type>().iter().collect::<Vec<_>>(),
        [Some(2), Some(14), None, Some(-2)]
    );
    for (sql, data_type, expected) in [
        ("other + 1", DataType::INTEGER, "depends on `other`, which is generated, too"),
        ("g + 1", DataType::INTEGER, "depends on `g`, which is generated, too"),
        ("current_date()", DataType::DATE, "does not always give the same value for the same row"),
        ("s", DataType::INTEGER, "of type string cannot be stored in the column `g` of type integer"),
        ("nothing", DataType::INTEGER, "there is no column `nothing`"),
    ] {
        let error = generated(sql, data_type).unwrap_err();
        assert_eq!(*error.kind(), Kind::Invalid);
        assert!(error.message().starts_with("the expression of the generated column `g` ("), "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
    let error = generated("frobnicate(a)", DataType::INTEGER).unwrap_err();
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function frobnicate".to_owned()] });
    let error = generated("a div 0", DataType::LONG).unwrap().values(&rows(), LATER).unwrap_err();
    assert!(error.message().contains("row 100: division by zero"), "{error}");
    let error = generated("a * 100", DataType::Primitive(PrimitiveType::Byte)).unwrap().values(&rows(), LATER);
    assert!(error.unwrap_err().message().contains("row 101: the integer 700 cannot be cast to byte"));
}

#[test]
fn given_values_of_generated_columns_must_match() {
    let mut fields = vec![with("a", DataType::LONG, &[("delta.generationExpression", "length(s)")])];
    fields.extend(schema().fields.into_iter().skip(1));
    let rules = Rules::of(&StructType::new(fields), &BTreeMap::new(), None).unwrap();
    assert_eq!([0, 1, 2].map(|at| rules.source(at)), [Source::Generated, Source::Given, Source::Given]);
    let a: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![Some(1), None, Some(4), Some(2)]));
    let mut columns = rows().columns().to_vec();
    columns[0] = a;
    let names = ["a", "s", "p"];
    let given = RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap();
    assert!(rules.check(&given.slice(0, 3), &[], LATER).is_ok(), "null is null");
    assert!(rules.check(&given, &[0], LATER).is_ok(), "computed");
    let error = rules.check(&given, &[], LATER).unwrap_err();
    assert_eq!(
        error.message(),
        "row 103 (the first is 0) has another value than the expression of the generated column `a` (length(s)) gives: \
         a = 2, s = 'd'; leave the column out, and it is computed"
    );
}

#[test]
fn defaults_are_values_of_their_columns() {
    let of = |sql: &str, data_type: DataType| {
        let default = ColumnDefault::parse(&plain("d", data_type), sql)?;
        default.value(Some(86_400_000_000 + 1))?.repeated(2)
    };
    assert_eq!(of("1 + 1", DataType::INTEGER).unwrap().as_primitive::<Int32Type>().values(), &[2, 2]);
    assert_eq!(of("current_date()", DataType::DATE).unwrap().as_primitive::<Date32Type>().values(), &[1, 1]);
    let now = of("current_timestamp()", DataType::TIMESTAMP).unwrap();
    assert_eq!(now.as_primitive::<TimestampMicrosecondType>().values(), &[86_400_000_001, 86_400_000_001]);
    assert_eq!(of("\"it's\"", DataType::STRING).unwrap().as_string::<i32>().value(1), "it's");
    assert_eq!(of("NULL", DataType::Struct(Arc::new(inner()))).unwrap().null_count(), 2);
    for (sql, data_type, expected) in [
        ("a", DataType::INTEGER, "depends on `a`"),
        ("1000", DataType::Primitive(PrimitiveType::Byte), "cannot be cast to byte"),
        ("'x'", DataType::INTEGER, "of type string cannot be stored in the column `d` of type integer"),
        ("1.5", DataType::INTEGER, "1.5 has digits that the column `d` of type integer does not hold"),
    ] {
        let error = of(sql, data_type).unwrap_err();
        assert_eq!(*error.kind(), Kind::Invalid);
        assert!(error.message().starts_with(&format!("the default of the column `d` ({sql})")), "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
    let error = of("uuid()", DataType::STRING).unwrap_err();
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function uuid".to_owned()] });
    let untimed = ColumnDefault::parse(&plain("d", DataType::DATE), "current_date()").unwrap().value(None);
    assert!(untimed.unwrap_err().message().contains("the current time is not known"));
}

#[test]
fn an_unused_default_is_not_evaluated() {
    let fields = vec![with("d", DataType::STRING, &[("CURRENT_DEFAULT", "uuid()")]), plain("a", DataType::LONG)];
    let rules = Rules::of(&StructType::new(fields), &BTreeMap::new(), Some(0)).unwrap();
    assert_eq!([0, 1].map(|at| rules.source(at)), [Source::Default, Source::Given]);
    let error = rules.default_values(0, 3).unwrap_err();
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function uuid".to_owned()] });
}

/// Compares what a column stores of expressions' values: a value, or an error that begins as expected.
fn check_stored(cases: &[(&str, &DataType, &str)], conversion: Conversion) {
    for (sql, to, expected) in cases {
        let bound = parse_expression(sql).unwrap().bind(&schema()).unwrap();
        let context = Context { now: None, first_row: 7 };
        let stored = Assignment::new(bound, "c", to, conversion).and_then(|assigned| {
            assert_eq!(assigned.data_type(), *to);
            assigned.values(&rows().slice(0, 1), context)
        });
        let stored = match stored {
            Ok(values) if values.is_null(0) => "NULL".to_owned(),
            Ok(values) => deltic_protocol::scalar::Scalar::from_array(&values, 0).unwrap().to_string(),
            Err(error) => {
                assert_eq!(*error.kind(), Kind::Invalid, "{error}");
                format!("error: {}", error.message())
            }
        };
        let is_expected =
            if expected.starts_with("error: ") { stored.starts_with(expected) } else { stored == *expected };
        assert!(is_expected, "{sql}: {stored}");
    }
}

#[test]
fn values_of_the_table_are_stored_only_where_they_fit() {
    let p = |primitive| DataType::Primitive(primitive);
    let (byte, float) = (p(PrimitiveType::Byte), p(PrimitiveType::Float));
    let decimal = p(PrimitiveType::Decimal { precision: 4, scale: 2 });
    let cases = [
        ("a", &DataType::LONG, "1"),
        ("a", &DataType::STRING, "1"),
        ("NULL", &DataType::DATE, "NULL"),
        ("a * 2e0", &DataType::INTEGER, "2"),
        ("0.1", &float, "0.1"),
        ("1e300", &float, "Infinity"),
        ("a / 4", &decimal, "0.25"),
        ("9223372036854775807", &DataType::DOUBLE, "9.223372036854776E18"),
        ("TIMESTAMP '2024-02-29 12:00:00'", &DataType::DATE, "2024-02-29"),
        ("a / 8", &decimal, "error: row 7: 0.125 has digits that the column `c` of type decimal(4,2) does not hold"),
        ("1.5", &DataType::INTEGER, "error: row 7: 1.5 has digits that the column `c`"),
        ("DOUBLE 'NaN'", &DataType::LONG, "error: row 7: the double NaN cannot be cast to long"),
        ("DOUBLE 'NaN'", &decimal, "error: row 7: NaN has digits that the column `c`"),
        ("a + 127", &byte, "error: row 7: the integer 128 cannot be cast to byte, which the column `c` is"),
        ("a * 100", &decimal, "error: row 7: the integer 100 cannot be cast to decimal(4,2)"),
        ("'1'", &DataType::INTEGER, "error: `'1'` of type string cannot be stored in the column `c` of type integer"),
        ("TRUE", &DataType::INTEGER, "error: `TRUE` of type boolean cannot be stored in the column `c`"),
        ("a", &DataType::DATE, "error: `a` of type integer cannot be stored in the column `c` of type date"),
        ("p", &DataType::STRING, "error: `p` of type struct"),
    ];
    check_stored(&cases, Conversion::Exact);
}

/// The results of the same assignments in delta-spark: `tests/interop/test_update.py`.
#[test]
fn assigned_values_are_stored_as_a_cast_converts_them() {
    let p = |primitive| DataType::Primitive(primitive);
    let (byte, bytes) = (p(PrimitiveType::Byte), p(PrimitiveType::Binary));
    let decimal = p(PrimitiveType::Decimal { precision: 4, scale: 2 });
    let cases = [
        ("a / 8", &decimal, "0.13"),
        ("a * -0.125", &decimal, "-0.13"),
        ("1.7", &DataType::INTEGER, "1"),
        ("-2.7e0", &DataType::LONG, "-2"),
        ("' 7 '", &DataType::INTEGER, "7"),
        ("'0.125'", &decimal, "0.13"),
        ("TRUE", &DataType::INTEGER, "1"),
        ("'2024-02-29'", &DataType::DATE, "2024-02-29"),
        ("'2024-02-29 10:00:00'", &DataType::TIMESTAMP, "2024-02-29T10:00:00.000000Z"),
        ("'yes'", &DataType::BOOLEAN, "true"),
        ("a", &DataType::TIMESTAMP, "1970-01-01T00:00:01.000000Z"),
        ("TIMESTAMP '1970-01-01 00:00:01.5'", &DataType::LONG, "1"),
        ("a + 127", &byte, "error: row 7: the integer 128 cannot be cast to byte, which the column `c` is"),
        ("a * 100", &decimal, "error: row 7: the integer 100 cannot be cast to decimal(4,2)"),
        ("DOUBLE 'NaN'", &DataType::LONG, "error: row 7: the double NaN cannot be cast to long"),
        (
            "DOUBLE '-Infinity'",
            &decimal,
            "error: row 7: -Infinity cannot be cast to decimal(4,2), which the column `c` is",
        ),
        ("'7.5'", &DataType::INTEGER, "error: row 7: '7.5' cannot be cast to integer, which the column `c` is"),
        ("'2024-13-01'", &DataType::DATE, "error: row 7: '2024-13-01' cannot be cast to date, which the column `c` is"),
        ("a", &DataType::DATE, "error: `a` of type integer cannot be stored in the column `c` of type date"),
        ("a", &bytes, "error: `a` of type integer cannot be stored in the column `c` of type binary"),
        ("p", &DataType::STRING, "error: `p` of type struct"),
    ];
    check_stored(&cases, Conversion::Cast);
}
