//! Conditions and clauses of merges, on pairs of rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{Field, Schema};
use deltic_protocol::error::Kind;
use deltic_protocol::expression::MissingFields;
use deltic_protocol::expression::{BoundExpression, Context, evaluate_at, parse_expression};
use deltic_protocol::predicate;
use deltic_protocol::row_merge::{
    Bounds, JoinCondition, RowInsert, Sides, VisibleSides, assigned_without_alias, named_columns, without_alias,
};
use deltic_protocol::row_update::{NewValue, Target};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_rows_schema;
use deltic_protocol::schema::{DataType, StructField, StructType};

fn columns(fields: &[(&str, DataType)]) -> StructType {
    StructType::new(fields.iter().map(|(name, of)| StructField::new(*name, of.clone(), true)).collect())
}

fn sides() -> Sides {
    let target = columns(&[
        ("id", DataType::LONG),
        ("name", DataType::STRING),
        ("d", DataType::DOUBLE),
        ("t_only", DataType::INTEGER),
        ("st", DataType::Struct(Arc::new(columns(&[("x", DataType::INTEGER)])))),
    ]);
    let source = columns(&[("id", DataType::INTEGER), ("name", DataType::STRING), ("d", DataType::DOUBLE)]);
    Sides::new(target, source, "s", "t").unwrap()
}

/// All pairs of target and source rows.
fn pairs() -> RecordBatch {
    let target: [(Option<i64>, Option<&str>, f64, i32); 4] = [
        (Some(1), Some("a"), 0.0, 1),
        (Some(2), Some("b"), f64::NAN, 2),
        (None, None, 1.5, 3),
        (Some(4), Some("a"), -0.0, 4),
    ];
    let source: [(Option<i32>, Option<&str>, f64); 4] =
        [(Some(1), Some("b"), -0.0), (Some(2), Some("a"), f64::NAN), (None, None, 1.5), (Some(4), None, 7.0)];
    let all: Vec<_> = target.iter().flat_map(|t| source.iter().map(move |s| (*t, *s))).collect();
    let x: ArrayRef = Arc::new(all.iter().map(|(t, _)| Some(t.3 * 10)).collect::<Int32Array>());
    let inner = StructArray::from(vec![(Arc::new(Field::new("x", x.data_type().clone(), true)), x)]);
    let of = |columns: Vec<(&str, ArrayRef)>| {
        let fields = columns.iter().map(|(name, array)| Arc::new(Field::new(*name, array.data_type().clone(), true)));
        Arc::new(StructArray::from(fields.zip(columns.iter().map(|(_, array)| array.clone())).collect::<Vec<_>>()))
    };
    let t = of(vec![
        ("id", Arc::new(all.iter().map(|(t, _)| t.0).collect::<Int64Array>())),
        ("name", Arc::new(all.iter().map(|(t, _)| t.1).collect::<StringArray>())),
        ("d", Arc::new(all.iter().map(|(t, _)| Some(t.2)).collect::<Float64Array>())),
        ("t_only", Arc::new(all.iter().map(|(t, _)| Some(t.3)).collect::<Int32Array>())),
        ("st", Arc::new(inner)),
    ]);
    let s = of(vec![
        ("id", Arc::new(all.iter().map(|(_, s)| s.0).collect::<Int32Array>())),
        ("name", Arc::new(all.iter().map(|(_, s)| s.1).collect::<StringArray>())),
        ("d", Arc::new(all.iter().map(|(_, s)| Some(s.2)).collect::<Float64Array>())),
    ]);
    let schema =
        Schema::new(vec![Field::new("t", t.data_type().clone(), false), Field::new("s", s.data_type().clone(), false)]);
    RecordBatch::try_new(Arc::new(schema), vec![t, s]).unwrap()
}

fn true_rows(bound: &BoundExpression, on: &RecordBatch) -> Vec<bool> {
    let values = evaluate_at(bound, on, Context::default()).unwrap();
    match values.as_boolean_opt() {
        Some(values) => values.iter().map(|value| value == Some(true)).collect(),
        None => vec![false; on.num_rows()],
    }
}

#[test]
fn parts_of_a_condition_equal_the_whole() {
    let (sides, on) = (sides(), pairs());
    for (sql, keys, target_only, rest) in [
        ("s.id = t.id", 1, 0, 0),
        ("t.id = s.id AND s.name <=> t.name", 2, 0, 0),
        ("s.d = t.d", 1, 0, 0),
        ("S.ID = T.ID AND t_only > 1 AND s.d < 5", 1, 1, 1),
        ("t.id + 1 = s.id * 2 AND (t.name = 'a' OR t.d > 1)", 1, 1, 0),
        ("s.id < t.id", 0, 0, 1),
        ("s.id = t.id OR s.name = t.name", 0, 0, 1),
        ("t.id = s.id AND t.id <> 4", 1, 1, 0),
        ("t.st.x = s.id * 10", 1, 0, 0),
        ("t.id = t_only AND s.id = s.id", 0, 0, 2),
        ("NULL", 0, 0, 1),
        ("TRUE", 0, 0, 1),
    ] {
        let condition = JoinCondition::parse(sql, &sides).unwrap();
        let counts = (condition.keys.len(), condition.target_only.len(), condition.rest.len());
        assert_eq!(counts, (keys, target_only, rest), "{sql}");
        let whole = true_rows(&condition.whole.bind(&sides.both()).unwrap(), &on);
        let mut parts = vec![true; on.num_rows()];
        let mut and = |holds: Vec<bool>| parts.iter_mut().zip(holds).for_each(|(all, holds)| *all &= holds);
        for key in &condition.keys {
            let of = |side| evaluate_at(side, &on, Context::default()).unwrap();
            let (left, right) = (of(&key.target), of(&key.source));
            assert_eq!(left.data_type(), right.data_type());
            let equal = |row| match (Scalar::from_array(&left, row).unwrap(), Scalar::from_array(&right, row).unwrap())
            {
                (Scalar::Null, Scalar::Null) => key.null_safe,
                (left, right) => left.compare(&right) == Some(std::cmp::Ordering::Equal),
            };
            and((0..on.num_rows()).map(equal).collect());
        }
        condition.rest.iter().for_each(|bound| and(true_rows(bound, &on)));
        let without_filters = parts.clone();
        let mut and = |holds: Vec<bool>| parts.iter_mut().zip(holds).for_each(|(all, holds)| *all &= holds);
        condition.target_only_bound.iter().for_each(|bound| and(true_rows(bound, &on)));
        assert_eq!(parts, whole, "{sql}");
        // The target-only conditions give the same as filters on the target.
        let mut filtered = without_filters;
        let target = on.column(0).as_struct();
        let target = RecordBatch::try_new(Arc::new(Schema::new(target.fields().clone())), target.columns().to_vec());
        for filter in &condition.target_only {
            let bound = predicate::parse(filter).unwrap().bind(&sides.target).unwrap();
            let held = predicate::keep(&bound.evaluate(target.as_ref().unwrap()).unwrap());
            filtered.iter_mut().enumerate().for_each(|(row, all)| *all &= held.value(row));
        }
        assert_eq!(filtered, whole, "{sql}");
    }
}

#[test]
fn bounds_hold_wherever_keys_are_equal() {
    let (sides, on) = (sides(), pairs());
    for (sql, values, expected) in [
        ("s.id = t.id", vec![Some(4), None, Some(2)], Some("id IN (4L, 2L)")),
        ("s.id <=> t.id", vec![Some(4), None], Some("id IN (4L) OR id IS NULL")),
        ("s.id <=> t.id", vec![None], Some("id IS NULL")),
        ("s.id = t.id", vec![None], Some("FALSE")),
        ("s.id = t.id", (0..500).map(Some).collect(), Some("id BETWEEN 0L AND 499L")),
        ("s.id + 1L = t.id", vec![Some(1)], Some("id IN (1L)")),
        ("s.id = t.id + 1", vec![Some(1)], None),
        ("s.id = t.t_only", vec![Some(7)], Some("t_only IN (7)")),
    ] {
        let condition = JoinCondition::parse(sql, &sides).unwrap();
        let key = &condition.keys[0];
        let values: ArrayRef = match key.source.data_type() {
            &DataType::LONG => Arc::new(values.into_iter().map(|v| v.map(i64::from)).collect::<Int64Array>()),
            _ => Arc::new(values.into_iter().collect::<Int32Array>()),
        };
        let mut bounds = Bounds::new();
        bounds.extend(&values).unwrap();
        assert_eq!(bounds.filter(key, &sides.target).as_deref(), expected, "{sql}");
    }
    assert_eq!(on.num_rows(), 16);
}

#[test]
fn names_resolve_to_their_side() {
    let sides = sides();
    for (sql, seen, expected) in [
        ("s.id + t.id + t_only", VisibleSides::Both, Ok("s.id + t.id + t.t_only")),
        ("S.NAME", VisibleSides::Both, Ok("s.name")),
        ("id", VisibleSides::Source, Ok("s.id")),
        ("id", VisibleSides::Target, Ok("t.id")),
        ("st.x", VisibleSides::Both, Ok("t.st.x")),
        ("id", VisibleSides::Both, Err("both sides have a column `id`: write `s.id` or `t.id`")),
        ("t.id", VisibleSides::Source, Err("`t.id` has no value here: there is no such row yet")),
        ("s.id", VisibleSides::Target, Err("`s.id` has no value here: no row of the source matches there")),
        ("nme", VisibleSides::Both, Err("there is no column `nme` in t or s; the nearest is name")),
        ("s.nme", VisibleSides::Both, Err("s: there is no column `nme`; the nearest is name")),
        ("t_only", VisibleSides::Source, Err("there is no column `t_only` in s")),
    ] {
        let found = sides.qualified(parse_expression(&format!("{sql} IS NULL")).unwrap(), seen);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), format!("{expected} IS NULL")),
            (Err(error), Err(expected)) => {
                assert_eq!(*error.kind(), Kind::Invalid);
                assert!(error.message().starts_with(expected), "{sql}: {error}");
            }
            (found, _) => panic!("{sql}: {found:?}"),
        }
    }
    assert_eq!((sides.assigned("t.name"), sides.assigned("T.st.x"), sides.assigned("name")), ("name", "st.x", "name"));
    let same = Sides::new(sides.target.clone(), sides.source.clone(), "t", "T");
    assert!(same.unwrap_err().message().contains("different aliases"));
}

#[test]
fn an_alias_of_a_table_is_left_out() {
    let columns = ["id", "name", "t", "a b"].map(str::to_owned);
    for (sql, alias, expected) in [
        ("x.id = 1", "x", "id = 1"),
        ("X.Id=1 AND x.name LIKE 'a''%'", "x", "Id = 1 AND name LIKE 'a''%'"),
        ("upper(x.name) IN ('x.id', y.name)", "x", "upper(name) IN ('x.id', y.name)"),
        ("x.`a b`.c IS NULL", "x", "`a b`.c IS NULL"),
        ("x.wrong > 0", "x", "wrong > 0"),
        // The text stays as it is.
        ("id=1", "x", "id=1"),
        ("x=1", "x", "x=1"),
        ("id=1", "id", "id=1"),
        // The table has a column `t`.
        ("t.id = 1 OR t.field = 2", "t", "id = 1 OR t.field = 2"),
        ("t.t.field = 2", "t", "t.field = 2"),
    ] {
        assert_eq!(without_alias(sql, alias, &columns).unwrap(), expected, "{sql}");
    }
    for (key, alias, expected) in [
        ("x.id", "x", "id"),
        ("X.`a b`.c", "x", "`a b`.c"),
        ("`x`.wrong", "x", "wrong"),
        ("a b", "a b", "a b"),
        ("id", "id", "id"),
        ("t.id", "t", "id"),
        ("t.field", "t", "t.field"),
        ("x.", "x", "x."),
    ] {
        assert_eq!(assigned_without_alias(key, alias, &columns), expected, "{key}");
    }
    assert_eq!(*without_alias("x.id = ", "x", &columns).unwrap_err().kind(), Kind::Invalid);
    let named: Vec<Vec<String>> =
        named_columns("s.id = t.ID AND f(`a b`, s.id)").unwrap().into_iter().map(|name| name.0).collect();
    assert_eq!(named, [vec!["s", "id"], vec!["t", "ID"], vec!["a b"]]);
}

#[test]
fn inserted_rows_have_the_given_columns() {
    let (sides, on) = (sides(), pairs());
    let target = Target {
        schema: &sides.target,
        partition_columns: &["name".to_owned()],
        constraints: &BTreeMap::new(),
        external: None,
        now: None,
        missing: MissingFields::Refused,
    };
    let bind = |parsed| sides.bind(parsed, VisibleSides::Source);
    let set = |set: &[(&str, &str)]| {
        let set = set.iter().map(|(key, sql)| ((*key).to_owned(), NewValue::Expression((*sql).to_owned())));
        RowInsert::new(set.collect(), target, &bind)
    };
    let rows = set(&[("ID", "s.id"), ("d", "DEFAULT")]).unwrap().rows(&on, &|row| row as u64).unwrap();
    // A partition column that is not given is NULL.
    assert_eq!(rows.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["id", "name"]);
    assert_eq!((rows.num_rows(), rows.column(1).null_count()), (16, 16));
    assert_eq!(rows.schema().field(0).data_type(), to_rows_schema(&sides.target).field(0).data_type());
    for (given, message) in [
        (&[("nope", "1")][..], "cannot set `nope`"),
        (&[("id", "1"), ("id", "2")], "`id` is given twice"),
        (&[("st.x", "1")], "cannot insert `st.x`"),
        (&[("id", "t.id")], "cannot set `id`: `t.id` has no value here"),
        (&[("id", "DATE '2020-01-01'")], "cannot set `id`: `DATE '2020-01-01'` of type date cannot be stored"),
    ] {
        assert!(set(given).unwrap_err().message().starts_with(message), "{given:?}");
    }
    let failing = set(&[("id", "10 div (s.id - 2)")]).unwrap().rows(&on, &|row| 100 + row as u64).unwrap_err();
    assert!(failing.message().starts_with("the source's row 101: "), "{failing}");
}
