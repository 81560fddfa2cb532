//! Collecting statistics: JSON for given values, and the property that all values are within the bounds.

use std::collections::HashMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_select::concat::concat;
use deltic_protocol::scalar::{Scalar, parse_timestamp};
use deltic_protocol::schema::arrow::{to_arrow_schema, to_arrow_type};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType, json};
use deltic_protocol::stats::collect::{IndexedColumns, StatsCollector};
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

fn schema(fields: &str) -> StructType {
    let fields: Vec<String> = fields
        .split(';')
        .map(|field| {
            let (name, data_type) = field.split_once(' ').unwrap();
            let data_type = if data_type.starts_with('{') { data_type.to_owned() } else { format!("\"{data_type}\"") };
            format!(r#"{{"name":"{name}","type":{data_type},"nullable":true,"metadata":{{}}}}"#)
        })
        .collect();
    json::parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))).unwrap()
}

fn array(data_type: &PrimitiveType, values: &[&str]) -> ArrayRef {
    let one = |text: &&str| match *text {
        "null" => Scalar::Null.to_array(data_type, 1).unwrap(),
        text => Scalar::parse(text, data_type).unwrap().to_array(data_type, 1).unwrap(),
    };
    let arrays: Vec<ArrayRef> = values.iter().map(one).collect();
    concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap()
}

/// Minimum, maximum and null count of a column `c` of these values, one batch for each value.
fn add(collector: &mut StatsCollector, batch: &RecordBatch) {
    collector.columns(batch.num_rows() as u64).for_each(|mut column| column.update(batch).unwrap());
}

fn bounds(data_type: &str, values: &[&str]) -> (Option<String>, Option<String>, u64) {
    let schema = schema(&format!("c {data_type}"));
    let primitive = schema.fields[0].data_type.as_primitive().unwrap().clone();
    let arrow = Arc::new(to_arrow_schema(&schema));
    let mut collector = StatsCollector::new(&schema, &IndexedColumns::default()).with_prefix_length(4);
    for value in values {
        let batch = RecordBatch::try_new(arrow.clone(), vec![array(&primitive, &[value])]).unwrap();
        add(&mut collector, &batch);
    }
    let whole = RecordBatch::try_new(arrow, vec![array(&primitive, values)]).unwrap();
    let mut at_once = StatsCollector::new(&schema, &IndexedColumns::default()).with_prefix_length(4);
    add(&mut at_once, &whole);
    assert_eq!(collector.finish(), at_once.finish(), "the result depends on the batches");

    let text = collector.finish();
    let stats: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stats["numRecords"], values.len());
    assert_eq!(stats["tightBounds"], true);
    // The JSON itself, since serde_json may lose digits.
    let part = |name: &str| {
        let start = text.find(&format!("\"{name}\":{{")).unwrap() + name.len() + 4;
        let inner = &text[start..];
        inner.strip_prefix("\"c\":").map(|rest| rest[..rest.find('}').unwrap()].to_owned())
    };
    (part("minValues"), part("maxValues"), stats["nullCount"]["c"].as_u64().unwrap())
}

fn check(data_type: &str, values: &[&str], expected: &str) {
    let (min, max, nulls) = bounds(data_type, values);
    assert_eq!(min.is_some(), max.is_some(), "{data_type} {values:?}: one bound without the other");
    let shown = format!("{} {} {nulls}", min.as_deref().unwrap_or("-"), max.as_deref().unwrap_or("-"));
    assert_eq!(shown, expected, "{data_type} {values:?}");
}

#[test]
fn numbers() {
    check("byte", &["3", "null", "-128", "127"], "-128 127 1");
    check("short", &["3", "-7"], "-7 3 0");
    check("integer", &["-2147483648", "2147483647"], "-2147483648 2147483647 0");
    check("long", &["9223372036854775807", "-9223372036854775808"], "-9223372036854775808 9223372036854775807 0");
    check("long", &["null", "null"], "- - 2");
    check("decimal(5,2)", &["1.5", "-0.01", "null"], "-0.01 1.50 1");
    check("decimal(3,0)", &["-999", "999"], "-999 999 0");
    let digits = "12345678901234567890123456789012345678";
    check("decimal(38,0)", &[digits, "1"], &format!("1 {digits} 0"));
    check(
        "decimal(38,38)",
        &["0.00000000000000000000000000000000000001"],
        "0.00000000000000000000000000000000000001 0.00000000000000000000000000000000000001 0",
    );
}

#[test]
fn floats() {
    check("double", &["1.5", "-2.25"], "-2.25 1.5 0");
    check("double", &["1e300", "5e-324"], "5e-324 1e+300 0");
    check("double", &["0", "1"], "-0.0 1.0 0");
    check("double", &["-0.0", "-1"], "-1.0 0.0 0");
    check("double", &["1", "inf"], "- - 0");
    check("double", &["1", "-inf"], "- - 0");
    check("float", &["1", "inf"], "- - 0");
    check("double", &["1", "NaN", "null"], "- - 1");
    check("double", &["1", "-NaN"], "- - 0");
    // Readers may parse the bound of a float as a double, so that it must be exact as both.
    check("float", &["0.1", "-0.3"], "-0.30000001192092896 0.10000000149011612 0");
    check("float", &["NaN"], "- - 0");
}

#[test]
fn dates_and_times() {
    check("date", &["1969-12-31", "2024-02-29"], "\"1969-12-31\" \"2024-02-29\" 0");
    check("date", &["0001-01-01", "9999-12-31"], "\"0001-01-01\" \"9999-12-31\" 0");
    check("date", &["0000-12-31", "9999-12-31"], "- - 0");
    check("date", &["-0001-12-31", "10000-01-01"], "- - 0");
    let same = r#""2020-01-01T00:00:00.000Z" "2020-01-01T00:00:00.000Z" 0"#;
    check("timestamp", &["2020-01-01T00:00:00Z"], same);
    let up = r#""2020-01-01T00:00:00.123Z" "2020-01-01T00:00:00.124Z" 0"#;
    check("timestamp", &["2020-01-01T00:00:00.123001Z"], up);
    let before = r#""1969-12-31T23:59:59.999Z" "1970-01-01T00:00:00.000Z" 0"#;
    check("timestamp", &["1969-12-31T23:59:59.999999Z"], before);
    // The last millisecond is not rounded up: it is the largest.
    let (first, last) = ("2020-01-01T00:00:00.000", "9999-12-31T23:59:59.999");
    check("timestamp", &["9999-12-31T23:59:59.999999Z"], &format!("\"{last}Z\" \"{last}Z\" 0"));
    check(
        "timestamp",
        &["2020-01-01T00:00:00Z", "9999-12-31T23:59:59.999001Z"],
        &format!("\"{first}Z\" \"{last}Z\" 0"),
    );
    check("timestamp", &["9999-12-31T23:59:59.998001Z"], &format!("\"9999-12-31T23:59:59.998Z\" \"{last}Z\" 0"));
    check(
        "timestamp_ntz",
        &["2020-01-01 00:00:00", "9999-12-31 23:59:59.999999"],
        &format!("\"{first}\" \"{last}\" 0"),
    );
    check("date", &["2020-01-01", "10000-01-01"], "- - 0");
    check("date", &["-0001-12-31", "2020-01-01"], "- - 0");
    check("timestamp_ntz", &["2020-01-01 00:00:00"], r#""2020-01-01T00:00:00.000" "2020-01-01T00:00:00.000" 0"#);
}

#[test]
fn text() {
    check("string", &["b", "a", "null"], r#""a" "b" 1"#);
    check("string", &["abcd"], r#""abcd" "abcd" 0"#);
    check("string", &["abcde"], "\"abcd\" \"abcd\u{10FFFF}\" 0");
    check("string", &["abcd", "abcdz", "abcda"], "\"abcd\" \"abcd\u{10FFFF}\" 0");
    check("string", &["ääääÄ"], "\"ääää\" \"ääää\u{10FFFF}\" 0");
    check("string", &["abcd😀x"], "\"abcd\" \"abcd\u{10FFFF}\" 0");
    // In UTF-16 order U+FFFD is above the largest character, which is not above itself.
    check("string", &["abcd\u{FFFD}efg"], "\"abcd\" \"abcd\u{FFFD}\u{10FFFF}\" 0");
    check("string", &["abcd\u{10FFFF}"], "\"abcd\" \"abcd\u{10FFFF}\" 0");
    check("string", &["abcd\u{10FFFF}ab"], "\"abcd\" \"abcd\u{10FFFF}\u{10FFFF}\" 0");
    let endless = format!("abcd{}", "\u{FFFD}".repeat(99));
    check("string", &[&endless], "- - 0");
    check("string", &["\"\\\n\u{1}"], r#""\"\\\n\u0001" "\"\\\n\u0001" 0"#);
}

#[test]
fn types_without_bounds() {
    check("boolean", &["true", "null"], "- - 1");
    check("binary", &["x", "null"], "- - 1");
}

#[test]
fn strings_of_another_order_have_no_bounds() {
    let printed = |metadata: &str| {
        let field = format!(r#"{{"name":"s","type":"string","nullable":true,"metadata":{{{metadata}}}}}"#);
        let schema = json::parse(&format!(r#"{{"type":"struct","fields":[{field}]}}"#)).unwrap();
        let mut collector = StatsCollector::new(&schema, &IndexedColumns::default());
        let strings: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("A")]));
        add(&mut collector, &RecordBatch::try_from_iter_with_nullable([("s", strings, true)]).unwrap());
        collector.finish()
    };
    let with = r#""minValues":{"s":"A"},"maxValues":{"s":"b"},"nullCount":{"s":1}"#;
    let without = r#""minValues":{},"maxValues":{},"nullCount":{"s":1}"#;
    for binary in
        ["", r#""__COLLATIONS":{"s":"spark.UTF8_BINARY"}"#, r#""collations":{"collation":"spark.UTF8_BINARY.75.1"}"#]
    {
        assert!(printed(binary).contains(with), "{binary}: {}", printed(binary));
    }
    for other in [
        r#""__COLLATIONS":{"s":"icu.UNICODE_CI"}"#,
        r#""__COLLATIONS":"spark.UTF8_LCASE""#,
        r#""collations":{"collation":"ICU.de_DE.73"}"#,
        r#""collations":7"#,
    ] {
        assert!(printed(other).contains(without), "{other}: {}", printed(other));
    }
}

#[test]
fn indexed_columns() {
    let schema = schema(
        r#"a long;s {"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}},{"name":"y","type":"string","nullable":true,"metadata":{}}]};m {"type":"map","keyType":"string","valueType":"long","valueContainsNull":true};z long"#,
    );
    let check = |indexed: IndexedColumns, expected: &str| {
        let counts: Value = serde_json::from_str(&StatsCollector::new(&schema, &indexed).finish()).unwrap();
        assert_eq!(counts["nullCount"].to_string(), expected, "{indexed:?}");
    };
    let named = |paths: &[&str]| {
        IndexedColumns::Named(paths.iter().map(|p| p.split('.').map(str::to_owned).collect()).collect())
    };
    check(IndexedColumns::First(-1), r#"{"a":0,"m":0,"s":{"x":0,"y":0},"z":0}"#);
    check(IndexedColumns::First(0), "{}");
    check(IndexedColumns::First(1), r#"{"a":0}"#);
    check(IndexedColumns::First(2), r#"{"a":0,"s":{"x":0}}"#);
    check(IndexedColumns::First(4), r#"{"a":0,"m":0,"s":{"x":0,"y":0}}"#);
    check(named(&["s"]), r#"{"s":{"x":0,"y":0}}"#);
    check(named(&["s.y", "z"]), r#"{"s":{"y":0},"z":0}"#);
    check(named(&["s.y.q", "nothing"]), "{}");
    let also = |indexed: IndexedColumns, paths: &[&str]| match named(paths) {
        IndexedColumns::Named(paths) => indexed.and(&paths),
        other => other,
    };
    check(also(IndexedColumns::First(1), &["s.y", "gone"]), r#"{"a":0,"s":{"y":0}}"#);
    check(also(IndexedColumns::First(0), &["z"]), r#"{"z":0}"#);
    check(also(named(&["s.y"]), &["s.y", "a"]), r#"{"a":0,"s":{"y":0}}"#);
    check(also(also(IndexedColumns::First(1), &["z"]), &["m"]), r#"{"a":0,"m":0,"z":0}"#);
    assert_eq!(also(IndexedColumns::First(7), &[]), IndexedColumns::First(7));
}

#[test]
fn values_under_a_null_struct_do_not_count() {
    let schema = schema(
        r#"s {"type":"struct","fields":[{"name":"x","type":"integer","nullable":true,"metadata":{}},{"name":"t","type":"string","nullable":true,"metadata":{}}]}"#,
    );
    let arrow = Arc::new(to_arrow_schema(&schema));
    let arrow_schema::DataType::Struct(fields) = to_arrow_type(&schema.fields[0].data_type) else { unreachable!() };
    let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(-99), Some(1), None, Some(99)]));
    let t: ArrayRef = Arc::new(StringArray::from(vec!["A", "b", "c", "zz"]));
    let nulls = NullBuffer::from(vec![false, true, true, false]);
    let structs = StructArray::new(fields, vec![x, t], Some(nulls));
    let batch = RecordBatch::try_new(arrow, vec![Arc::new(structs)]).unwrap();
    for slice in [batch.clone(), batch.slice(1, 2)] {
        let mut collector = StatsCollector::new(&schema, &IndexedColumns::default());
        add(&mut collector, &slice);
        let stats: Value = serde_json::from_str(&collector.finish()).unwrap();
        assert_eq!(stats["minValues"].to_string(), r#"{"s":{"t":"b","x":1}}"#);
        assert_eq!(stats["maxValues"].to_string(), r#"{"s":{"t":"c","x":1}}"#);
        let hidden = slice.num_rows() as u64 - 2;
        assert_eq!(stats["nullCount"]["s"]["x"], hidden + 1);
        assert_eq!(stats["nullCount"]["s"]["t"], hidden);
    }
}

/// The paths of all members that are not objects.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn bounds_come_in_pairs_at_every_level() {
    let schema = schema(
        r#"a double;s {"type":"struct","fields":[{"name":"d","type":"double","nullable":true,"metadata":{}},{"name":"t","type":"timestamp","nullable":true,"metadata":{}},{"name":"n","type":{"type":"struct","fields":[{"name":"x","type":"string","nullable":true,"metadata":{}},{"name":"y","type":"date","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}"#,
    );
    let arrow = Arc::new(to_arrow_schema(&schema));
    let structure = |data_type: &arrow_schema::DataType, columns: Vec<ArrayRef>| -> ArrayRef {
        let arrow_schema::DataType::Struct(fields) = data_type else { unreachable!() };
        Arc::new(StructArray::new(fields.clone(), columns, None))
    };
    let endless = format!("abcd{}", "\u{FFFD}".repeat(99));
    let (doubles, times) = (["1", "inf", "-inf", "NaN"], ["2020-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]);
    let mut pairs = 0;
    for (double, time) in doubles.iter().flat_map(|d| times.map(|t| (d, t))) {
        for (string, date) in [("x", "2020-01-01"), (endless.as_str(), "2020-01-01"), ("x", "10000-01-01")] {
            let one = |data_type: &PrimitiveType, value: &str| array(data_type, &[value]);
            let arrow_schema::DataType::Struct(outer) = arrow.field(1).data_type() else { unreachable!() };
            let inner = structure(
                outer[2].data_type(),
                vec![one(&PrimitiveType::String, string), one(&PrimitiveType::Date, date)],
            );
            let columns = vec![one(&PrimitiveType::Double, double), one(&PrimitiveType::Timestamp, time), inner];
            let outer = structure(arrow.field(1).data_type(), columns);
            let batch = RecordBatch::try_new(arrow.clone(), vec![one(&PrimitiveType::Double, double), outer]).unwrap();
            let mut collector = StatsCollector::new(&schema, &IndexedColumns::default()).with_prefix_length(4);
            add(&mut collector, &batch);
            let stats: Value = serde_json::from_str(&collector.finish()).unwrap();
            let [min, max] = ["minValues", "maxValues"].map(|part| {
                let mut found = Vec::new();
                leaves(&stats[part], "", &mut found);
                found
            });
            assert_eq!(min, max, "{stats}");
            pairs += min.len();
        }
    }
    assert!(pairs > 10, "{pairs}");
}

#[test]
fn names_are_escaped_and_empty_parts_stay_objects() {
    let name = "a \"b\"\n";
    let schema = StructType::new(vec![StructField::new(name, DataType::BOOLEAN, true)]);
    let text = StatsCollector::new(&schema, &IndexedColumns::default()).finish();
    assert_eq!(
        text,
        r#"{"numRecords":0,"minValues":{},"maxValues":{},"nullCount":{"a \"b\"\n":0},"tightBounds":true}"#
    );
}

/// The bounds of a column of these batches, as JSON.
fn collect(data_type: DataType, batches: Vec<ArrayRef>, prefix_length: usize) -> (Option<String>, Option<String>) {
    let schema = StructType::new(vec![StructField::new("c", data_type, true)]);
    let arrow = Arc::new(to_arrow_schema(&schema));
    let mut collector = StatsCollector::new(&schema, &IndexedColumns::default()).with_prefix_length(prefix_length);
    for array in batches {
        add(&mut collector, &RecordBatch::try_new(arrow.clone(), vec![array]).unwrap());
    }
    let stats: HashMap<String, Box<RawValue>> = serde_json::from_str(&collector.finish()).unwrap();
    let bound = |name: &str| {
        let bounds: HashMap<String, Box<RawValue>> = serde_json::from_str(stats[name].get()).unwrap();
        bounds.get("c").map(|bound| bound.get().to_owned())
    };
    let (min, max) = (bound("minValues"), bound("maxValues"));
    assert_eq!(min.is_some(), max.is_some(), "one bound without the other: {min:?} {max:?}");
    (min, max)
}

fn unquoted(bound: Option<String>) -> Option<String> {
    bound.map(|text| serde_json::from_str(&text).unwrap())
}

/// Parses exactly: serde_json may be off by one in the last place.
fn number<T: FromStr<Err: Debug>>(bound: Option<String>) -> Option<T> {
    bound.map(|text| text.parse().unwrap())
}

/// Strings of characters around the boundaries of UTF-8 and UTF-16 order.
fn boundary_string() -> impl Strategy<Value = String> {
    let characters = "\0a~\u{7F}\u{80}ä\u{D7FF}\u{E000}\u{FFFD}\u{FFFF}\u{10000}😀\u{10FFFE}\u{10FFFF}";
    let character = prop::sample::select(characters.chars().collect::<Vec<_>>());
    prop::collection::vec(character, 0..12).prop_map(|characters| characters.into_iter().collect())
}

proptest! {
    #[test]
    fn bounds_hold_every_string(batches in prop::collection::vec(prop::collection::vec(prop_oneof![boundary_string(), any::<String>()], 1..5), 1..4), prefix in 0_usize..6) {
        let arrays = batches.iter().map(|b| Arc::new(StringArray::from(b.clone())) as ArrayRef).collect();
        let (min, max) = collect(DataType::STRING, arrays, prefix);
        let (min, max) = (unquoted(min), unquoted(max));
        for value in batches.iter().flatten() {
            if let (Some(min), Some(max)) = (&min, &max) {
                prop_assert!(min.as_str() <= value.as_str());
                prop_assert!(max.as_str() >= value.as_str());
                prop_assert!(max.chars().count() <= 2 * prefix + 2);
            }
        }
    }

    #[test]
    fn a_rounded_string_is_above_in_utf16_order_too(value in boundary_string(), prefix in 0_usize..6) {
        let (_, max) = collect(DataType::STRING, vec![Arc::new(StringArray::from(vec![value.clone()]))], prefix);
        if let Some(max) = unquoted(max) {
            prop_assert!(max.encode_utf16().collect::<Vec<_>>() >= value.encode_utf16().collect::<Vec<_>>());
        }
    }

    #[test]
    fn bounds_hold_every_time(values in prop::collection::vec(prop_oneof![any::<i64>(), -9_000_000_i64..9_000_000, 253_402_300_799_000_000_i64..253_402_300_801_000_000], 1..9)) {
        let array = Arc::new(arrow_array::TimestampMicrosecondArray::from(values.clone()).with_timezone("UTC"));
        let (min, max) = collect(DataType::TIMESTAMP, vec![array], 32);
        let (min, max) = (unquoted(min), unquoted(max));
        for value in values {
            if let Some(min) = &min {
                prop_assert!(parse_timestamp(min).unwrap() <= value);
            }
            if let Some(max) = &max {
                // Readers take the last millisecond as a range.
                let margin = if max == "9999-12-31T23:59:59.999Z" { 999 } else { 0 };
                prop_assert!(parse_timestamp(max).unwrap() + margin >= value);
            }
        }
    }

    #[test]
    fn bounds_hold_every_double(values in prop::collection::vec(any::<f64>(), 1..9)) {
        let (min, max) = collect(DataType::DOUBLE, vec![Arc::new(Float64Array::from(values.clone()))], 32);
        let (min, max) = (number::<f64>(min), number::<f64>(max));
        if values.iter().any(|v| v.is_nan()) {
            prop_assert!(min.is_none() && max.is_none());
        }
        for value in values {
            if let Some(min) = min {
                prop_assert!(min.total_cmp(&value).is_le());
            }
            if let Some(max) = max {
                prop_assert!(max.total_cmp(&value).is_ge());
            }
        }
    }

    #[test]
    fn bounds_of_whole_numbers_are_exact(values in prop::collection::vec(any::<i64>(), 1..9)) {
        let (min, max) = collect(DataType::LONG, vec![Arc::new(Int64Array::from(values.clone()))], 32);
        prop_assert_eq!(number(min), values.iter().min().copied());
        prop_assert_eq!(number(max), values.iter().max().copied());
    }
}
