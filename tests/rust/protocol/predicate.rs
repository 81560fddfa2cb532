//! Predicates: parsing, binding to a schema, and evaluation to TRUE, FALSE and NULL.

mod generate;
mod naive;
mod properties;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use deltic_protocol::error::Kind;
use deltic_protocol::predicate::{BoundPredicate, MAX_DEPTH, MAX_LENGTH, ValueSet, keep, parse};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::{to_arrow_fields, to_arrow_schema};
use deltic_protocol::schema::{ArrayType, DataType, MapType, PrimitiveType, StructField, StructType};

pub(crate) use self::generate::{Draw, Table, parse_literal, pool as generate_pool, types as generate_types};
pub(crate) use self::naive::evaluate as evaluate_naively;

/// Runs the cases of `tests/data/text/<name>.txt`. A case has lines of input, `----`, the lines that `run` must return, and
/// an empty line. Lines between cases that begin with `#` are comments. With `DELTIC_ACCEPT=1` the file is rewritten instead.
pub(crate) fn check_cases(name: &str, run: impl Fn(&str) -> String) {
    let path = format!("{}/../../tests/data/text/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut rewritten, mut wrong, mut count) = (String::new(), Vec::new(), 0);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            rewritten += &format!("{line}\n");
            continue;
        }
        let mut input = line.to_owned();
        for line in lines.by_ref().take_while(|line| *line != "----") {
            input += &format!("\n{line}");
        }
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.is_empty()) {
            expected.push(line);
        }
        let actual = run(&input);
        rewritten += &format!("{input}\n----\n{actual}\n");
        count += 1;
        if actual != expected.join("\n") {
            wrong.push(format!("{input}\n---- expected\n{}\n---- actual\n{actual}\n", expected.join("\n")));
        }
    }
    assert!(count > 0, "{path} has no case");
    if std::env::var_os("DELTIC_ACCEPT").is_some() {
        std::fs::write(&path, rewritten).unwrap();
    } else {
        assert!(wrong.is_empty(), "{path}:\n\n{}", wrong.join("\n"));
    }
}

fn shown<T>(result: Result<T, deltic_protocol::error::Error>, show: impl Fn(T) -> String) -> String {
    match result {
        Ok(value) => show(value),
        Err(error) => {
            assert_eq!(*error.kind(), Kind::Invalid, "{error}");
            format!("error: {error}")
        }
    }
}

#[test]
fn parse_cases() {
    check_cases("predicate_parse", |text| {
        shown(parse(text), |predicate| {
            let printed = predicate.to_string();
            assert_eq!(format!("{:?}", parse(&printed).unwrap()), format!("{predicate:?}"), "{printed}");
            printed
        })
    });
}

/// A bound predicate in a compact form.
pub(crate) fn compact(bound: &BoundPredicate) -> String {
    let list = |terms: &[BoundPredicate]| terms.iter().map(compact).collect::<Vec<_>>().join(" ");
    match bound {
        BoundPredicate::Constant(Some(value)) => value.to_string(),
        BoundPredicate::Constant(None) => "null".to_owned(),
        BoundPredicate::And(terms) => format!("(and {})", list(terms)),
        BoundPredicate::Or(terms) => format!("(or {})", list(terms)),
        BoundPredicate::Not(inner) => format!("(not {})", compact(inner)),
        BoundPredicate::IsNull(column) => format!("(null? {column})"),
        BoundPredicate::IsNotNull(column) => format!("(value? {column})"),
        BoundPredicate::Fixed { column, value } => format!("(fixed {column} {value})"),
        BoundPredicate::Compare { column, op, value } => {
            format!("({op} {column} {value}:{})", value.primitive_type().unwrap())
        }
        BoundPredicate::CompareColumns { left, op, right } => format!("({op} {left} {right})"),
        BoundPredicate::Range { column, low, low_included, high, high_included } => {
            let (from, to) = (if *low_included { '[' } else { '(' }, if *high_included { ']' } else { ')' });
            format!("(in {column} {from}{low} {high}{to})")
        }
        BoundPredicate::In { column, values } => format!("(in {column} {})", values_of(values)),
        BoundPredicate::Like { column, pattern } => format!("(like {column} {}…)", pattern.prefix()),
        BoundPredicate::Expression(expression) => format!("(expression {expression})"),
    }
}

fn values_of(set: &ValueSet) -> String {
    let values = (0..set.values().len()).map(|i| Scalar::from_array(set.values(), i).unwrap().to_string());
    format!("{{{}}}", values.collect::<Vec<_>>().join(" "))
}

fn bind_schema() -> StructType {
    let field = |name: &str, data_type: DataType| StructField::new(name, data_type, true);
    let p = |primitive: PrimitiveType| DataType::Primitive(primitive);
    let inner = StructType::new(vec![
        field("City", DataType::STRING),
        field("deep", DataType::Struct(Arc::new(StructType::new(vec![field("x", DataType::LONG)])))),
    ]);
    StructType::new(vec![
        field("i", DataType::INTEGER),
        field("j", DataType::INTEGER),
        field("l", DataType::LONG),
        field("b", p(PrimitiveType::Byte)),
        field("f", p(PrimitiveType::Float)),
        field("d", DataType::DOUBLE),
        field("m", p(PrimitiveType::Decimal { precision: 10, scale: 2 })),
        field("s", DataType::STRING),
        field("z", p(PrimitiveType::Binary)),
        field("flag", DataType::BOOLEAN),
        field("day", DataType::DATE),
        field("at", DataType::TIMESTAMP),
        field("wall", p(PrimitiveType::TimestampNtz)),
        field("v", p(PrimitiveType::Void)),
        field("g", p(PrimitiveType::Geometry { crs: "OGC:CRS84".to_owned() })),
        field("Address", DataType::Struct(Arc::new(inner))),
        field("a.b", DataType::INTEGER),
        field("twin", DataType::INTEGER),
        field("Twin", DataType::INTEGER),
        field("list", DataType::Array(Arc::new(ArrayType { element: DataType::LONG, contains_null: true }))),
        field(
            "map",
            DataType::Map(Arc::new(MapType {
                key: DataType::STRING,
                value: DataType::LONG,
                value_contains_null: true,
            })),
        ),
        field("any", DataType::Variant),
    ])
}

#[test]
fn bind_cases() {
    let schema = bind_schema();
    check_cases("predicate_bind", |text| shown(parse(text).unwrap().bind(&schema), |bound| compact(&bound)));
}

/// The rows of `predicate_eval.txt`, as that file shows them.
fn eval_batch() -> RecordBatch {
    let schema = StructType::new(vec![
        StructField::new("i", DataType::INTEGER, true),
        StructField::new("d", DataType::DOUBLE, true),
        StructField::new("s", DataType::STRING, true),
        StructField::new("flag", DataType::BOOLEAN, true),
        StructField::new("day", DataType::DATE, true),
        StructField::new(
            "p",
            DataType::Struct(Arc::new(StructType::new(vec![StructField::new("x", DataType::LONG, true)]))),
            true,
        ),
    ]);
    let column = |index: usize, values: [&str; 6]| -> ArrayRef {
        let primitive = schema.fields[index].data_type.as_primitive().unwrap();
        let parse = |text: &str| if text == "null" { Scalar::Null } else { Scalar::parse(text, primitive).unwrap() };
        Scalar::to_column(&values.map(parse), primitive).unwrap()
    };
    let x = Scalar::to_column(&[1, 2, 3, 4, 5, 6].map(Scalar::Long), &PrimitiveType::Long).unwrap();
    let DataType::Struct(inner) = &schema.fields[5].data_type else { panic!("p is a struct") };
    // Values under a null struct must not be read.
    let parents = NullBuffer::from(vec![true, true, false, true, true, false]);
    let p = StructArray::new(to_arrow_fields(inner), vec![x], Some(parents));
    let columns = vec![
        column(0, ["1", "2", "null", "5", "-3", "2"]),
        column(1, ["0.0", "-0.0", "NaN", "null", "-Infinity", "1.5"]),
        column(2, ["", "abc", "a%c", "null", "äbc", "abcd"]),
        column(3, ["true", "false", "null", "true", "false", "null"]),
        column(4, ["1970-01-01", "2020-02-29", "null", "9999-12-31", "0001-01-01", "2020-03-01"]),
        Arc::new(p),
    ];
    RecordBatch::try_new(Arc::new(to_arrow_schema(&schema)), columns).unwrap()
}

pub(crate) fn letters(result: &BooleanArray) -> String {
    let letter = |value: Option<bool>| value.map_or("N", |value| if value { "T" } else { "F" });
    result.iter().map(letter).collect::<Vec<_>>().join(" ")
}

#[test]
fn eval_cases() {
    let batch = eval_batch();
    let schema = deltic_protocol::schema::arrow::from_arrow_schema(&batch.schema()).unwrap();
    check_cases("predicate_eval", |text| {
        let bound = parse(text).unwrap().bind(&schema).unwrap();
        let result = bound.evaluate(&batch).unwrap();
        // Columns are found by name, so their order does not matter.
        let backwards = batch.project(&[5, 4, 3, 2, 1, 0]).unwrap();
        assert_eq!(bound.evaluate(&backwards).unwrap(), result);
        assert_eq!(bound.evaluate(&batch.slice(2, 3)).unwrap(), result.slice(2, 3));
        letters(&result)
    });
}

#[test]
fn null_is_not_kept() {
    let condition = BooleanArray::from(vec![Some(true), None, Some(false), None]);
    assert_eq!(letters(&keep(&condition)), "T F F F");
    assert_eq!(letters(&keep(&BooleanArray::from(vec![true, false]))), "T F");
}

#[test]
fn a_missing_column_is_an_internal_error() {
    let batch = eval_batch();
    let schema = deltic_protocol::schema::arrow::from_arrow_schema(&batch.schema()).unwrap();
    let bound = parse("i = 1 AND p.x = 2").unwrap().bind(&schema).unwrap();
    let error = bound.evaluate(&batch.project(&[0]).unwrap()).unwrap_err();
    assert_eq!(*error.kind(), Kind::Internal);
    let wrong: ArrayRef = Scalar::Long(1).to_array(&PrimitiveType::Long, 2).unwrap();
    let batch = RecordBatch::try_from_iter([("i", wrong)]).unwrap();
    assert!(bound.evaluate(&batch).unwrap_err().to_string().contains("Int64"));
}

#[test]
fn long_predicates_do_not_overflow_the_stack() {
    let schema = bind_schema();
    let batch = RecordBatch::try_from_iter([
        ("i", Scalar::Integer(9_999).to_array(&PrimitiveType::Integer, 3).unwrap()),
        ("j", Scalar::Null.to_array(&PrimitiveType::Integer, 3).unwrap()),
    ])
    .unwrap();
    let chain =
        |separator: &str, term: &dyn Fn(usize) -> String| (0..10_000).map(term).collect::<Vec<_>>().join(separator);
    for (text, expected) in [
        (chain(" OR ", &|k| format!("i = {k}")), "T T T"),
        (chain(" OR ", &|k| format!("i > {k} AND j = {k}")), "N N N"),
        (chain(" AND ", &|k| format!("i <> {k}")), "F F F"),
        (chain(" AND ", &|k| format!("NOT (i < {k} OR j > {k})")), "N N N"),
    ] {
        let predicate = parse(&text).unwrap();
        assert_eq!(parse(&predicate.to_string()).unwrap(), predicate);
        let bound = predicate.bind(&schema).unwrap();
        assert_eq!(letters(&bound.evaluate(&batch).unwrap()), expected);
        assert!(bound.columns().len() <= 2);
    }
    let list = (0..100_000).map(|k| (2 * k).to_string()).collect::<Vec<_>>().join(",");
    let bound = parse(&format!("i IN ({list})")).unwrap().bind(&schema).unwrap();
    assert_eq!(letters(&bound.evaluate(&batch).unwrap()), "F F F");
}

#[test]
fn nesting_and_length_are_limited() {
    let nested = |depth: usize| format!("{}i = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    for text in [
        nested(MAX_DEPTH + 1),
        nested(1_000_000),
        format!("{}flag", "NOT ".repeat(MAX_DEPTH + 1)),
        "!".repeat(1_000_000),
        format!("i = {}1", "(".repeat(1_000_000)),
        format!("i = 1{}", " ".repeat(MAX_LENGTH)),
    ] {
        let error = parse(&text).unwrap_err();
        assert_eq!(*error.kind(), Kind::Invalid);
        assert!(error.to_string().len() < 400, "{}", error.to_string().len());
    }
}

#[test]
fn columns_and_conjuncts() {
    let bound = parse("i = 1 AND (address.CITY = 'x' OR I > 3) AND j = i AND NOT (l = 1 OR d IS NULL)")
        .unwrap()
        .bind(&bind_schema())
        .unwrap();
    let columns: Vec<String> = bound.columns().iter().map(|c| format!("{c}@{}", c.index)).collect();
    assert_eq!(columns, ["i@0", "Address.City@15", "j@1", "l@2", "d@5"]);
    let conjuncts: Vec<String> = bound.split_conjuncts().into_iter().map(compact).collect();
    assert_eq!(
        conjuncts,
        ["(= i 1:integer)", "(or (= Address.City x:string) (> i 3:integer))", "(= j i)", "(<> l 1:long)", "(value? d)"]
    );
}
