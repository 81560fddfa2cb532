//! Expressions: parsing and printing, types, values, errors, and conversion of conditions to predicates.

mod generate;
mod properties;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::Schema;
use deltic_protocol::error::Kind;
use deltic_protocol::expression::{Context, Expression, Name, evaluate, evaluate_at, parse_expression};
use deltic_protocol::predicate::{BoundPredicate, parse};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::{from_arrow_schema, to_arrow_schema};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

use super::predicate::{check_cases, compact};

fn one_row() -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).unwrap()
}

fn shown(array: &ArrayRef, row: usize) -> String {
    if array.data_type() == &arrow_schema::DataType::Null {
        return "NULL".to_owned();
    }
    match Scalar::from_array(array, row).unwrap() {
        Scalar::Binary(bytes) => format!("X'{}'", bytes.iter().map(|b| format!("{b:02X}")).collect::<String>()),
        Scalar::Timestamp(v) => Scalar::TimestampNtz(v).to_string(),
        other => other.to_string(),
    }
}

/// Type and value of each expression, or its error. `tests/spark/test_expressions.py` runs the same cases in Spark.
#[test]
fn value_cases() {
    check_cases("expression_values", |text| {
        let bound = match parse_expression(text).and_then(|parsed| {
            let printed = parsed.to_string();
            assert_eq!(format!("{:?}", parse_expression(&printed).unwrap()), format!("{parsed:?}"), "{printed}");
            parsed.bind(&StructType::default())
        }) {
            Ok(bound) => bound,
            Err(error) => return format!("error: {}", error.message().lines().next().unwrap_or_default()),
        };
        match evaluate(&bound, &one_row()) {
            Ok(values) => format!("{} {}", bound.data_type(), shown(&values, 0)),
            Err(error) => {
                assert_eq!(*error.kind(), Kind::Invalid, "{error}");
                format!("error: {error}")
            }
        }
    });
}

#[test]
fn strings_too_long_to_compare() {
    let distance = |a: usize, b: usize| {
        let text = format!("levenshtein('{}', '{}')", "ä".repeat(a), "b".repeat(b));
        let bound = parse_expression(&text)?.bind(&StructType::default())?;
        Ok::<_, deltic_protocol::error::Error>(shown(&evaluate(&bound, &one_row())?, 0))
    };
    assert_eq!(distance(0, 40_000).unwrap(), "40000");
    assert_eq!(distance(2, 3000).unwrap(), "3000");
    let error = distance(33_000, 33_001).unwrap_err();
    assert_eq!(*error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("levenshtein of two strings of 33000 and 33001 characters"), "{error}");
}

fn schema() -> StructType {
    let p = |primitive| DataType::Primitive(primitive);
    let field = |name: &str, data_type| StructField::new(name, data_type, true);
    StructType::new(vec![
        field("i", DataType::INTEGER),
        field("l", DataType::LONG),
        field("d", DataType::DOUBLE),
        field("m", p(PrimitiveType::Decimal { precision: 10, scale: 2 })),
        field("s", DataType::STRING),
        field("flag", DataType::BOOLEAN),
        field("day", DataType::DATE),
        field("at", DataType::TIMESTAMP),
        field("wall", p(PrimitiveType::TimestampNtz)),
        field("p", DataType::Struct(Arc::new(StructType::new(vec![field("x", DataType::LONG)])))),
    ])
}

/// The predicates that conditions on expressions are bound to.
#[test]
fn condition_cases() {
    let schema = schema();
    check_cases("expression_conditions", |text| {
        match parse(text).and_then(|predicate| {
            let printed = predicate.to_string();
            assert_eq!(format!("{:?}", parse(&printed)?), format!("{predicate:?}"), "{printed}");
            predicate.bind(&schema)
        }) {
            Ok(bound) => compact(&bound),
            Err(error) => format!("error: {}", error.message()),
        }
    });
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> (RecordBatch, StructType) {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap();
    let schema = from_arrow_schema(&batch.schema()).unwrap();
    (batch, schema)
}

fn ints(values: Vec<Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

#[test]
fn errors_name_the_row_and_the_expression() {
    let (batch, schema) = batch(vec![("a", ints(vec![Some(1), None, Some(0)]))]);
    let bound = parse_expression("10 % a + 1").unwrap().bind(&schema).unwrap();
    let error = evaluate(&bound, &batch).unwrap_err();
    assert_eq!(error.to_string(), "row 2: division by zero, in `10 % a + 1`");
    let filter = parse("a IS NULL OR 10 % a = 1").unwrap().bind(&schema).unwrap();
    assert_eq!(filter.evaluate(&batch).unwrap_err().to_string(), "row 2: division by zero, in `10 % a = 1`");
}

#[test]
fn skipped_expressions_cause_no_errors() {
    let (batch, schema) = batch(vec![("a", ints(vec![Some(0), Some(2), None, Some(0)]))]);
    for (text, expected) in [
        ("a <> 0 AND 10 / a > 1", ["false", "true", "NULL", "false"]),
        ("a = 0 OR 10 / a > 1", ["true", "true", "NULL", "true"]),
        ("CASE WHEN a = 0 THEN -1 ELSE 10 div a END", ["-1", "5", "NULL", "-1"]),
        ("if(a = 0, NULL, 10 % a)", ["NULL", "0", "NULL", "NULL"]),
        ("coalesce(a, 1 div 0)", ["0", "2", "error", ""]),
        ("coalesce(nullif(a, 0), 7)", ["7", "2", "7", "7"]),
        ("a IN (1, 1 div a)", ["error", "", "", ""]),
    ] {
        let bound = parse_expression(text).unwrap().bind(&schema).unwrap();
        match evaluate(&bound, &batch) {
            Ok(values) => assert_eq!((0..4).map(|row| shown(&values, row)).collect::<Vec<_>>(), expected, "{text}"),
            Err(error) => assert!(
                expected.contains(&"error") && error.to_string().contains("division by zero"),
                "{text}: {error}"
            ),
        }
    }
    for text in ["a <> 0 AND 10 / a > 1", "NOT (a = 0 OR 10 / a <= 1)"] {
        let bound = parse(text).unwrap().bind(&schema).unwrap();
        assert_eq!(super::predicate::letters(&bound.evaluate(&batch).unwrap()), "F T N F", "{text}");
    }
}

#[test]
fn the_current_time_is_an_input() {
    let (batch, schema) = batch(vec![("a", ints(vec![Some(0)]))]);
    let noon = 19_000 * 86_400_000_000 + 12 * 3_600_000_000;
    for (text, expected) in
        [("current_date()", "2022-01-08"), ("CURRENT_TIMESTAMP", "2022-01-08 12:00:00.000000"), ("year(now())", "2022")]
    {
        let parsed = parse_expression(text).unwrap();
        assert!(!parsed.is_deterministic());
        assert_eq!(parsed.constant().unwrap(), None);
        let bound = parsed.bind(&schema).unwrap();
        assert!(!bound.is_deterministic());
        assert_eq!(*evaluate(&bound, &batch).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(
            shown(&evaluate_at(&bound, &batch, Context { now: Some(noon), first_row: 7 }).unwrap(), 0),
            expected
        );
    }
    let error = parse("a = 1 AND current_date() > DATE '2020-01-01'").unwrap().bind(&schema).unwrap_err();
    assert!(error.message().contains("depends on the current time"), "{error}");
}

#[test]
fn unknown_functions_are_named() {
    for (text, name) in [("frobnicate(1)", "function frobnicate"), ("rand() < 1", "function rand")] {
        let error = parse_expression(text).unwrap().bind(&StructType::default()).unwrap_err();
        assert_eq!(*error.kind(), Kind::Unsupported { features: vec![name.to_owned()] }, "{error}");
    }
}

#[test]
fn constants_columns_and_renames() {
    let parsed = parse_expression("a.b + `c d` * coalesce(a.b, 1)").unwrap();
    let names: Vec<String> = parsed.columns().iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["a.b", "`c d`"]);
    assert_eq!(parsed.constant().unwrap(), None);
    let renamed = parsed.rename(&|name| (name.0 == ["a", "b"]).then(|| Name(vec!["x".to_owned(), "case".to_owned()])));
    assert_eq!(renamed.to_string(), "x.`case` + `c d` * coalesce(x.`case`, 1)");
    let constant = |text: &str| parse_expression(text).unwrap().constant().unwrap();
    assert_eq!(constant("upper('a' || 'b')"), Some(Scalar::String("AB".to_owned())));
    assert_eq!(constant("CAST('7' AS tinyint)"), Some(Scalar::Byte(7)));
    assert_eq!(constant("NULL"), Some(Scalar::Null));
    assert!(parse_expression("1 div 0").unwrap().constant().is_err());
}

#[test]
fn escapes_of_string_literals() {
    let of = |text: &str| match parse_expression(text).unwrap() {
        Expression::Literal(Scalar::String(text)) => text,
        other => panic!("{other}"),
    };
    assert_eq!(of(r"'it\'s \\ \u00e9\t\101 \% \z'"), "it's \\ é\tA \\% z");
    assert_eq!(of("'it''s'"), "it's");
    assert_eq!(of(r#""it's \"\t\" ""x""""#), "it's \"\t\" \"x\"");
    let BoundPredicate::Compare { value, .. } = parse(r"s = 'a\n'").unwrap().bind(&schema()).unwrap() else { panic!() };
    assert_eq!(value, Scalar::String(r"a\n".to_owned()));
}

#[test]
fn height_and_growth_of_trees_are_limited() {
    let chain = |count: usize| vec!["a"; count].join(" + ");
    assert!(parse_expression(&chain(150)).is_ok());
    for text in [
        chain(10_000),
        format!("{}1", "- ".repeat(1_000_000)),
        format!("{}a", "abs(".repeat(1_000_000)),
        format!("{}a", "CASE WHEN ".repeat(100_000)),
        format!("a{}", "::int".repeat(100_000)),
        format!("a{}", " IS NULL = TRUE".repeat(100_000)),
    ] {
        let error = parse_expression(&text).unwrap_err();
        assert_eq!(*error.kind(), Kind::Invalid);
        assert!(error.to_string().len() < 400);
    }
    let nested = (0..60).fold("i".to_owned(), |inner, _| format!("nullif({inner}, 1)"));
    assert!(parse_expression(&nested).unwrap().bind(&schema()).unwrap_err().message().contains("more than"));
    let wide = format!("CASE {} {}END", chain(150).replace('a', "i"), "WHEN 1 THEN 2 ".repeat(10_000));
    assert!(parse_expression(&wide).unwrap().bind(&schema()).unwrap_err().message().contains("more than"));
    let nested = (0..60).fold("flag".to_owned(), |inner, _| format!("({inner} BETWEEN FALSE AND TRUE)"));
    assert!(parse_expression(&nested).unwrap().bind(&schema()).unwrap_err().message().contains("more than"));
}

/// Decimals of a file may have more digits than their type allows; strings may grow beyond memory.
#[test]
fn values_that_no_type_holds_are_errors() {
    let wide = arrow_array::Decimal128Array::from(vec![i128::MIN]).with_precision_and_scale(38, 0).unwrap();
    let texts: Vec<String> = (0..2000).map(|row| row.to_string()).collect();
    let (one, schema) = batch(vec![("w", Arc::new(wide))]);
    let evaluated = |text: &str, batch: &RecordBatch, schema: &StructType| {
        evaluate(&parse_expression(text).unwrap().bind(schema).unwrap(), batch)
    };
    for text in ["-w", "abs(w)", "w + w", "w * w", "pmod(w, -1)", "pmod(w, w - w - 1)", "w % -1", "w / -1", "w div -1"]
    {
        if let Err(error) = evaluated(text, &one, &schema) {
            assert_eq!(*error.kind(), Kind::Invalid, "{text}: {error}");
        }
    }
    for text in ["floor(w)", "ceil(w)", "round(w)", "round(w, -3)", "CAST(w AS bigint)", "CAST(w AS decimal(38,10))"] {
        drop(evaluated(text, &one, &schema));
    }
    for (text, expected) in [
        ("round(2147483647, -2147483648)", "0"),
        ("substring('abc', -2147483648, 2147483647)", "abc"),
        ("split_part('abc', 'b', -2147483648)", ""),
        ("locate('c', 'abc', -2147483648)", "0"),
    ] {
        assert_eq!(shown(&evaluated(text, &one, &schema).unwrap(), 0), expected, "{text}");
    }
    let (many, schema) = batch(vec![("s", Arc::new(StringArray::from(texts)))]);
    let long = "x".repeat(1 << 20);
    for text in [
        format!("s || '{long}'"),
        "repeat(s, 1000000)".to_owned(),
        "repeat(s, 2147483647)".to_owned(),
        "lpad(s, 1000000)".to_owned(),
        "rpad(s, 2147483647, 'b')".to_owned(),
        "replace(repeat('a', 100000), 'a', repeat('b', 100000))".to_owned(),
        "concat_ws(repeat('-', 300000), s, s)".to_owned(),
        "CAST(repeat(s, 100000) AS binary) || CAST(repeat(s, 100000) AS binary)".to_owned(),
        format!("date_format(CAST(s AS int)::timestamp, '\\'{long}\\'')"),
    ] {
        let error = evaluated(&text, &many, &schema).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error:.400}");
    }
}

#[test]
fn regular_expressions_are_limited() {
    let nested = (0..8).fold("a".to_owned(), |inner, _| format!("({inner}){{1,100}}"));
    let error = parse_expression(&format!("s RLIKE '{nested}'")).unwrap_err();
    assert!(error.to_string().contains("size limit"), "{error}");
    let bound = parse_expression("repeat('a', 100000) RLIKE '^(a*)*(a*)*(a*)*b$'").unwrap().bind(&schema()).unwrap();
    assert_eq!(bound.data_type(), &DataType::BOOLEAN);
    // Java and Rust interpret these differently.
    for pattern in ["a{2}{3}", "a+{3}", "a**", "a*??", "a{2}*", "a$b", "(a$)b", "$?"] {
        let refusal =
            parse_expression(&format!("s RLIKE '{pattern}'")).and_then(|parsed| parsed.bind(&schema()).map(drop));
        assert!(refusal.is_err_and(|e| e.to_string().contains("regular expression is not supported")), "{pattern}");
    }
    for pattern in ["a{2}?", "a+?b*", "(a{2}){3}", "a$", "(a$|b$)", "[+*]{2}", "a\\\\+{2}", "[$]b"] {
        let parsed = parse_expression(&format!("s RLIKE '{pattern}'")).unwrap();
        assert!(parsed.bind(&schema()).is_ok(), "{pattern}");
    }
}

/// Conditions on dates and years become ranges of the column. The oracle evaluates the condition as an expression.
#[test]
fn ranges_of_dates_and_years_are_exact() {
    let day = 86_400_000_000_i64;
    let days =
        [-719_528, -141_428, -141_427, -1, 0, 1, 364, 365, 18_992, 19_357, 19_723, 19_724, 20_088, 2_932_896, -719_162];
    let micros: Vec<Option<i64>> = days
        .iter()
        .flat_map(|d| [d * day - 1, d * day, d * day + 1, d * day + day / 2])
        .chain([i64::MAX, i64::MIN])
        .map(Some)
        .chain([None])
        .collect();
    let dates: Vec<Option<i32>> = micros.iter().map(|m| m.map(|m| m.div_euclid(day) as i32)).collect();
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(micros.clone()).with_timezone("UTC"));
    let wall: ArrayRef = Arc::new(TimestampMicrosecondArray::from(micros));
    let (batch, schema) =
        batch(vec![("at", at), ("wall", wall), ("day", Arc::new(arrow_array::Date32Array::from(dates)))]);
    let mut ranges = 0;
    for column in ["at", "wall", "day"] {
        for op in ["=", "<>", "<", "<=", ">", ">=", "IN"] {
            for (left, literals) in [
                ("year($)", ["2022", "1970", "1582", "0", "2147483647", "2022L"]),
                (
                    "CAST($ AS DATE)",
                    [
                        "DATE '2022-01-01'",
                        "DATE '1970-01-01'",
                        "DATE '1582-10-15'",
                        "DATE '9999-12-31'",
                        "DATE '+5000000-01-01'",
                        "'2024-01-01'",
                    ],
                ),
                (
                    "date($)",
                    [
                        "DATE '2024-01-02'",
                        "DATE '0000-01-01'",
                        "DATE '2022-12-31'",
                        "'2022-01-01'",
                        "DATE '1969-12-31'",
                        "DATE '1970-01-02'",
                    ],
                ),
            ] {
                for literal in literals {
                    let left = left.replace('$', column);
                    let text = if op == "IN" {
                        format!("{left} IN ({literal}, {literal})")
                    } else {
                        format!("{left} {op} {literal}")
                    };
                    for text in [text.clone(), format!("NOT ({text})")] {
                        let bound = parse(&text).unwrap().bind(&schema).unwrap();
                        ranges += usize::from(!compact(&bound).contains("expression"));
                        let values = bound.evaluate(&batch).unwrap();
                        let expression = parse_expression(&text).unwrap().bind(&schema).unwrap();
                        let expected = evaluate(&expression, &batch).unwrap();
                        for row in 0..values.len() {
                            let value =
                                if values.is_null(row) { "NULL".to_owned() } else { values.value(row).to_string() };
                            assert_eq!(value, shown(&expected, row), "{text}, row {row}: {}", compact(&bound));
                        }
                    }
                }
            }
        }
    }
    assert!(ranges > 600, "{ranges}");
}

#[test]
fn a_filter_reads_the_columns_of_its_expressions() {
    let bound = parse("year(at) % 2 = 0 AND i + l > p.x").unwrap().bind(&schema()).unwrap();
    let columns: Vec<String> = bound.columns().iter().map(|column| column.to_string()).collect();
    assert_eq!(columns, ["at", "i", "l", "p.x"]);
    assert!(matches!(bound, BoundPredicate::And(_)));
    let arrow = Arc::new(to_arrow_schema(&schema()));
    assert_eq!(bound.evaluate(&RecordBatch::new_empty(arrow)).unwrap().len(), 0);
    let (text, schema) = batch(vec![("s", Arc::new(StringArray::from(vec![Some("Äb"), None])) as ArrayRef)]);
    let bound = parse("lower(s) = 'äb'").unwrap().bind(&schema).unwrap();
    assert_eq!(super::predicate::letters(&bound.evaluate(&text).unwrap()), "T N");
}
