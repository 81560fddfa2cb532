//! Strings with a collation: conditions that depend on it are refused wherever they are bound.

use std::sync::Arc;

use deltic_protocol::constraint::{Constraint, GeneratedColumn};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::expression::parse_expression;
use deltic_protocol::predicate;
use deltic_protocol::row_merge::{JoinCondition, Sides};
use deltic_protocol::schema::{ArrayType, DataType, StructField, StructType};
use serde_json::{Value, json};

fn with(name: &str, data_type: DataType, metadata: Value) -> StructField {
    let mut field = StructField::new(name, data_type, true);
    field.metadata = metadata.as_object().unwrap().clone();
    field
}

fn schema() -> StructType {
    let lower = |path: &str| json!({"__COLLATIONS": {path: "spark.UTF8_LCASE"}});
    let inner = StructType::new(vec![with("deep", DataType::STRING, lower("deep"))]);
    let list = ArrayType { element: DataType::STRING, contains_null: true };
    StructType::new(vec![
        with("name", DataType::STRING, lower("name")),
        with("other", DataType::STRING, json!({"collations": {"collation": "icu.de_DE.75"}})),
        with("st", DataType::Struct(Arc::new(inner)), json!({})),
        with("list", DataType::Array(Arc::new(list)), lower("list.element")),
        with("plain", DataType::STRING, json!({"__COLLATIONS": {"plain": "spark.UTF8_BINARY"}})),
        with("id", DataType::LONG, json!({})),
    ])
}

fn check_refused<T>(sql: &str, bound: Result<T, Error>, column: &str, collation: &str) {
    let Err(error) = bound else { panic!("{sql} is not refused") };
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["collations".to_owned()] }, "{sql}: {error}");
    let named = format!("column {column} has the collation {collation},");
    assert!(error.message().contains(&named), "{sql}: {error}");
    assert!(error.message().contains("evaluate this in Spark"), "{sql}: {error}");
}

const REFUSED: [&str; 24] = [
    "name = 'a'",
    "'a' < name",
    "name <> plain",
    "plain >= NAME",
    "name <=> 'a'",
    "NOT name IN ('a', 'b')",
    "name IN ('a')",
    "name BETWEEN 'a' AND 'b'",
    "name NOT BETWEEN 'a' AND 'b'",
    "name LIKE 'a%'",
    "name LIKE 'a'",
    "name ILIKE 'a%'",
    "name RLIKE 'a'",
    "id = 1 AND (id = 2 OR name > 'a')",
    "upper(name) = 'A'",
    "concat(name, 'x') = 'ax'",
    "coalesce(name, plain) = 'a'",
    "CASE WHEN id = 1 THEN name ELSE plain END = 'a'",
    "CASE name WHEN 'a' THEN TRUE ELSE FALSE END",
    "CAST(name AS STRING) = 'a'",
    "nullif(name, 'a') IS NULL",
    "instr(name, 'a') = 1",
    "startswith(name, 'a')",
    "greatest(name, plain) IS NULL",
];

#[test]
fn conditions_on_strings_with_a_collation_are_refused() {
    for sql in REFUSED {
        let parsed = predicate::parse(sql).unwrap();
        check_refused(sql, parsed.bind(&schema()), "name", "spark.UTF8_LCASE");
        check_refused(sql, parse_expression(sql).unwrap().bind(&schema()), "name", "spark.UTF8_LCASE");
        check_refused(sql, Constraint::parse("mine", sql, &schema()), "name", "spark.UTF8_LCASE");
    }
    for (sql, column, collation) in [
        ("other = 'a'", "other", "icu.de_DE.75"),
        ("st.deep = 'a'", "st.deep", "spark.UTF8_LCASE"),
        ("array_contains(list, 'a')", "list", "spark.UTF8_LCASE"),
        ("element_at(list, 1) = 'a'", "list", "spark.UTF8_LCASE"),
    ] {
        check_refused(sql, predicate::parse(sql).unwrap().bind(&schema()), column, collation);
    }
}

#[test]
fn what_does_not_depend_on_a_collation_is_bound() {
    for sql in [
        "name IS NULL",
        "name IS NOT NULL AND id = 1",
        "NOT st.deep IS NULL",
        "name <=> NULL",
        "st IS NULL",
        "plain = 'a'",
        "plain IN ('a', 'b') AND plain LIKE 'a%'",
        "length(name) > 3",
        "length(concat(name, plain)) = 2",
        "coalesce(name, plain) IS NULL",
        "size(list) = 1",
    ] {
        predicate::parse(sql).unwrap().bind(&schema()).unwrap();
        parse_expression(sql).unwrap().bind(&schema()).unwrap();
    }
    for sql in ["name", "st", "list", "coalesce(name, 'x')", "CASE WHEN id = 1 THEN name END", "name || 'x'"] {
        parse_expression(sql).unwrap().bind(&schema()).unwrap();
    }
}

#[test]
fn a_generated_column_may_not_depend_on_a_collation() {
    let generated = |field: &StructField, sql: &str| GeneratedColumn::parse(field, sql, &schema());
    let id = StructField::new("id", DataType::LONG, true);
    generated(&id, "length(name)").unwrap();
    for (field, sql) in [
        (id, "CASE WHEN name = 'a' THEN 1 END"),
        // A given value would be compared with the one that is computed.
        (StructField::new("plain", DataType::STRING, true), "left(name, 1)"),
        (schema().fields.first().unwrap().clone(), "plain"),
    ] {
        check_refused(sql, generated(&field, sql), "name", "spark.UTF8_LCASE");
    }
}

#[test]
fn keys_of_a_merge_may_not_have_a_collation() {
    let source = StructType::new(vec![
        StructField::new("name", DataType::STRING, true),
        StructField::new("id", DataType::LONG, true),
    ]);
    let sides = Sides::new(schema(), source, "s", "t").unwrap();
    for sql in ["s.name = t.name", "s.id = t.id AND t.name <=> s.name", "s.id = t.id AND t.name > 'a'"] {
        check_refused(sql, JoinCondition::parse(sql, &sides), "t.name", "spark.UTF8_LCASE");
    }
    JoinCondition::parse("s.id = t.id AND t.name IS NOT NULL", &sides).unwrap();
}
