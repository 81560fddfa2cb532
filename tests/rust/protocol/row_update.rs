//! Rows after UPDATE, printed with columns separated by bars.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use deltic_protocol::error::{Kind, Result};
use deltic_protocol::expression::MissingFields;
use deltic_protocol::row_update::{NewValue, RowUpdate, Target, find};
use deltic_protocol::schema::arrow::to_rows_schema;
use deltic_protocol::schema::{DataType, StructField, StructType};

fn schema() -> StructType {
    let inner = StructType::new(vec![
        StructField::new("x", DataType::INTEGER, false),
        StructField::new("y", DataType::STRING, true),
    ]);
    let mut twice = StructField::new("twice", DataType::LONG, true);
    twice.metadata.insert("delta.generationExpression".to_owned(), "a * 2".into());
    let mut text = StructField::new("text", DataType::STRING, true);
    text.metadata.insert("CURRENT_DEFAULT".to_owned(), "'none'".into());
    StructType::new(vec![
        StructField::new("a", DataType::LONG, false),
        text,
        StructField::new("p", DataType::Struct(Arc::new(inner)), true),
        twice,
    ])
}

fn rows() -> RecordBatch {
    let schema = to_rows_schema(&schema());
    let arrow_schema::DataType::Struct(inner) = schema.field(2).data_type().clone() else { unreachable!() };
    let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 0, 3]));
    let y: ArrayRef = Arc::new(StringArray::from(vec![Some("m"), None, None]));
    let nulls = NullBuffer::from(vec![true, false, true]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(StringArray::from(vec![Some("s"), None, Some("")])),
        Arc::new(StructArray::new(inner, vec![x, y], Some(nulls))),
        Arc::new(Int64Array::from(vec![2, 4, 6])),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn updated(set: &[(&str, &str)], checks: &[(&str, &str)]) -> Result<Vec<String>> {
    let set = set.iter().map(|(key, sql)| ((*key).to_owned(), NewValue::Expression((*sql).to_owned())));
    let constraints: BTreeMap<String, String> =
        checks.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned())).collect();
    let (schema, partition_columns) = (schema(), ["text".to_owned()]);
    let target = Target {
        schema: &schema,
        partition_columns: &partition_columns,
        constraints: &constraints,
        external: None,
        now: Some(0),
        missing: MissingFields::Refused,
    };
    let update = RowUpdate::new(set.collect(), target, &|parsed| parsed.bind(&schema))?;
    let new = update.apply(&rows(), &rows(), &|row| 100 + 10 * row as u64)?;
    assert_eq!(new.schema(), rows().schema());
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> =
        new.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let print = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|");
    Ok((0..new.num_rows()).map(print).collect())
}

#[test]
fn only_assigned_columns_change() {
    for (set, expected) in [
        (&[("text", "'t'")][..], ["1|t|{x: 1, y: m}|2", "2|t|NULL|4", "3|t|{x: 3, y: NULL}|6"]),
        (&[("a", "a + 1")], ["2|s|{x: 1, y: m}|4", "3|NULL|NULL|6", "4||{x: 3, y: NULL}|8"]),
        (&[("A", "length(text)"), ("text", "a"), ("twice", "NULL")], ["", "", ""]),
        (&[("p.x", "7"), ("P.Y", "text")], ["1|s|{x: 7, y: s}|2", "2|NULL|{x: 7, y: NULL}|4", "3||{x: 7, y: }|6"]),
        (&[("p", "NULL"), ("text", "DEFAULT")], ["1|none|NULL|2", "2|none|NULL|4", "3|none|NULL|6"]),
        (&[("text", "''")], ["1|NULL|{x: 1, y: m}|2", "2|NULL|NULL|4", "3|NULL|{x: 3, y: NULL}|6"]),
        (&[("text", "a * 3"), ("twice", "a * 2")], ["1|3|{x: 1, y: m}|2", "2|6|NULL|4", "3|9|{x: 3, y: NULL}|6"]),
    ] {
        match updated(set, &[]) {
            Ok(found) => assert_eq!(found, expected, "{set:?}"),
            Err(error) => assert_eq!((expected[0], error.kind()), ("", &Kind::Invalid), "{set:?}: {error}"),
        }
    }
}

#[test]
fn invalid_values_are_reported_with_their_row() {
    for (set, checks, message) in [
        (&[][..], &[][..], "nothing is to be set; name at least one column"),
        (&[("b", "1")], &[], "cannot set `b`: there is no column `b`"),
        (&[("a", "1"), ("A", "2")], &[], "`A` is set twice"),
        (&[("p.x", "1"), ("p", "NULL")], &[], "`p` and `p.x` cannot both be set: one is inside the other"),
        (&[("p.z", "1")], &[], "cannot set `p.z`: column p has no field `z`"),
        (&[("a", "DEFAULT")], &[], "row 100: the column a is not nullable, and would be NULL"),
        (&[("twice", "default")], &[], "cannot set `twice`: the table computes the column; leave it out"),
        (&[("a", "length(text)")], &[], "row 110: the column a is not nullable, and would be NULL"),
        (&[("a", "10 div (a - 3)")], &[], "row 120: "),
        (&[("a", "9223372036854775806 + a")], &[], "row 110: "),
        (&[("p.y", "'q'")], &[], "row 110: p.y is set inside a struct that is NULL, whose field `x` is not nullable"),
        (&[("a", "a + 97")], &[("c", "a < 100")], "the CHECK constraint `c` (a < 100) is violated by row 120 "),
        (
            &[("text", "text")],
            &[("c", "text <> 'x'")],
            "the CHECK constraint `c` (text <> 'x') is violated by row 110 ",
        ),
        (&[("twice", "5")], &[], "row 100 (the first is 0) has another value than the expression of the generated"),
        (&[("a", "current_date()")], &[], "cannot set `a`: `"),
    ] {
        let error = updated(set, checks).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid, "{set:?}: {error}");
        assert!(error.message().starts_with(message), "{set:?}: {error}");
    }
}

#[test]
fn columns_are_found_by_their_paths() {
    let (schema, text) = (schema(), "P.y");
    let (at, name, field) = find(&schema, text).unwrap();
    assert_eq!((at, name.to_string().as_str(), field.name.as_str()), (vec![2, 1], "p.y", "y"));
    assert!(find(&schema, "a.b").unwrap_err().message().starts_with("cannot set `a.b`: column a of type long has no"));
}
