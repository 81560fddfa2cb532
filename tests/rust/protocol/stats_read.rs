//! Bounds from statistics. A case has the type of a column and the statistics of the log; bounds are compared as strings.
//!
//! The property: however a known writer rounds a value into the statistics, the bounds read from them contain the value.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    LargeStringArray, StringArray, StructArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType as ArrowType, Field, Fields};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::{DataType, PrimitiveType};
use deltic_protocol::stats::read::{Leaf, StatsColumns, from_json, from_json_as_written, from_struct};
use proptest::prelude::*;
use serde_json::json;

fn type_of(name: &str) -> PrimitiveType {
    let schema = json!({"type": "struct", "fields": [{"name": "c", "type": name, "nullable": true, "metadata": {}}]});
    let schema = deltic_protocol::schema::json::parse(&schema.to_string()).unwrap();
    schema.fields[0].data_type.as_primitive().unwrap().clone()
}

fn leaf(path: &[&str], data_type: &str) -> Leaf {
    // `was float` is a double that was widened from float.
    let was_float = data_type == "was float";
    let data_type = if was_float { PrimitiveType::Double } else { type_of(data_type) };
    Leaf { path: path.iter().map(|p| (*p).to_owned()).collect(), data_type, was_float }
}

fn show(stats: &StatsColumns, row: usize) -> String {
    let text = |array: &ArrayRef| match array.data_type() {
        ArrowType::Null => "?".to_owned(),
        _ => match Scalar::from_array(array, row).unwrap() {
            Scalar::Null => "?".to_owned(),
            known => known.to_string(),
        },
    };
    let count = |array: &Int64Array| text(&(Arc::new(array.clone()) as ArrayRef));
    let leaves = stats.leaves.iter().map(|l| format!(" {}..{} {}", text(&l.min), text(&l.max), count(&l.null_count)));
    count(&stats.num_records) + &leaves.collect::<String>()
}

fn read(stats: &[Option<&str>], leaves: &[Leaf]) -> StatsColumns {
    let stats = from_json(&StringArray::from(stats.to_vec()), leaves).unwrap();
    for (bounds, leaf) in stats.leaves.iter().zip(leaves) {
        let arrow = to_arrow_type(&DataType::Primitive(leaf.data_type.clone()));
        assert_eq!((bounds.min.data_type(), bounds.max.data_type()), (&arrow, &arrow));
    }
    stats
}

/// Rows, bounds and nulls of column `c`, given its bounds as JSON.
fn bounds(data_type: &str, min: &str, max: &str) -> String {
    let text =
        format!(r#"{{"numRecords":3,"minValues":{{"c":{min}}},"maxValues":{{"c":{max}}},"nullCount":{{"c":1}}}}"#);
    show(&read(&[Some(&text)], &[leaf(&["c"], data_type)]), 0).strip_prefix("3 ").unwrap().to_owned()
}

#[track_caller]
fn check(data_type: &str, min: &str, max: &str, expected: &str) {
    assert_eq!(bounds(data_type, min, max), format!("{expected} 1"), "{data_type} from {min} to {max}");
}

#[test]
fn integers() {
    check("long", "-9223372036854775808", "9223372036854775807", "-9223372036854775808..9223372036854775807");
    check("integer", "-5", "5", "-5..5");
    check("byte", "-128", "127", "-128..127");
    // Out of range of the type or of any integer, or not an integer.
    check("byte", "-129", "128", "?..?");
    check("short", "-32769", "32767", "?..32767");
    check("integer", "9999999999", "2147483648", "?..?");
    check("long", "1.0", "1e3", "?..?");
    check("long", "9223372036854775808", "true", "?..?");
    check("long", "null", "[1]", "?..?");
    check("long", "{\"a\":1}", "\"x\"", "?..?");
    check("long", "\"7\"", "\"8\"", "7..8");
}

#[test]
fn floats() {
    check("double", "-1.5", "2.25e3", "-1.5..2250.0");
    check("double", "\"-Infinity\"", "\"Infinity\"", "-Infinity..Infinity");
    check("double", "\"NaN\"", "\"NaN\"", "?..?");
    check("double", "1e400", "1e400", "?..?");
    check("double", "-0.0", "0.0", "-0.0..0.0");
    check("double", "3", "4", "3.0..4.0");
    check("float", "0.1", "0.10000000149011612", "0.1..0.1");
    check("float", "3.5e38", "3.5e38", "?..?");
    check("float", "\"-Infinity\"", "\"NaN\"", "-Infinity..?");
    check("was float", "0.1", "0.1", "0.1..0.10000000149011612");
    check("was float", "0.7", "0.7", "0.699999988079071..0.7");
    check("was float", "0.5", "1e39", "0.5..Infinity");
}

#[test]
fn decimals() {
    check("decimal(10,2)", "-1.5", "12345678.91", "-1.50..12345678.91");
    check("decimal(10,2)", "\"-1.5\"", "1.5E+1", "-1.50..15.00");
    check("decimal(10,2)", "1.234", "123456789.1", "?..?");
    check("decimal(10,2)", "\"NaN\"", "\"\"", "?..?");
    // Fifteen digits survive a double. So do numbers that are no double.
    check("decimal(38,0)", "999999999999999", "999999999999999", "999999999999999..999999999999999");
    let digits = "12345678901234567890123456789012345678";
    check("decimal(38,0)", digits, digits, &format!("{digits}..{digits}"));
    // Sixteen or seventeen digits may be rounded; so may fewer digits followed by zeros.
    check("decimal(38,0)", "1234567890123456", "1234567890123456", "1234567890123455..1234567890123457");
    check("decimal(38,0)", "12345678901234567", "-12345678901234567", "12345678901234561..-12345678901234561");
    check("decimal(38,0)", "1e20", "100000000000000000000", "99999999999999955591..100000000000000044409");
    check("decimal(38,18)", "0.12345678901234567", "0.1", "0.123456789012345615..0.100000000000000045");
    check("decimal(38,20)", "0.00012345678901234567", "0.5", "0.00012345678901234561..0.50000000000000022205");
    check(
        "decimal(38,0)",
        "1e37",
        "9.99999999999999e37",
        "9999999999999995559107901499373838305..99999999999999944408920985006217208025",
    );
    check("decimal(38,0)", "1e2147483647", "1e-2147483648", "?..?");
    check("decimal(38,0)", "0e2147483647", "-0", "0..0");
}

#[test]
fn strings_and_booleans() {
    check("string", r#""a""#, r#""z\"\u00e9""#, "a..z\"é");
    check("string", "1", "true", "?..?");
    check("string", r#""""#, "\"\\ud800\"", "..?");
    check("boolean", "false", "true", "false..true");
    check("boolean", "0", "\"yes\"", "?..?");
    check("binary", r#""a""#, r#""z""#, "?..?");
    check("void", "1", "2", "?..?");
}

#[test]
fn dates() {
    check("date", r#""2020-01-31""#, r#""9999-12-31""#, "2020-01-31..9999-12-31");
    check("date", r#""2020-01-31T00:00:00.000-08:00""#, r#""2020-01-31 00:00:00""#, "2020-01-31..2020-01-31");
    check("date", r#""-0044-03-15""#, r#""-0044-03-15""#, "-0044-03-15..-0044-03-15");
    check("date", r#""+10000-01-11""#, r#""10000-01-11""#, "+10000-01-11..+10000-01-11");
    check("date", r#""2020-02-30""#, "18262", "?..?");
}

#[test]
fn timestamps() {
    let instant = |time: &str| format!(r#""2020-01-01T{time}""#);
    let around = |min: &str, max: &str| format!("2020-01-01T{min}Z..2020-01-01T{max}Z");
    let both = |time: &str, expected: &str| check("timestamp", &instant(time), &instant(time), expected);
    // Microseconds may be truncated to milliseconds, and offsets to minutes.
    both("12:00:00.123Z", &around("12:00:00.122000", "12:00:00.124000"));
    both("12:00:00.123456Z", &around("12:00:00.122456", "12:00:00.124456"));
    both("12:00:00.000+02:00", &around("09:59:00.999000", "10:00:59.001000"));
    both("04:00:00.000-07:52", &around("11:51:00.999000", "11:52:59.001000"));
    // The time zone is unknown.
    both("18:30:00", "2020-01-01T00:29:59.999000Z..2020-01-02T12:30:00.001000Z");
    check(
        "timestamp",
        r#""2020-01-02""#,
        r#""2020-01-02 00:00:00""#,
        "2020-01-01T05:59:59.999000Z..2020-01-02T18:00:00.001000Z",
    );
    both("25:00:00Z", "?..?");
    check("timestamp", "1577836800000", "\"\"", "?..?");

    let both = |time: &str, expected: &str| check("timestamp_ntz", &instant(time), &instant(time), expected);
    both("12:00:00.123", "2020-01-01 12:00:00.122000..2020-01-01 12:00:00.124000");
    both("12:00:00.123Z", "2020-01-01 12:00:00.122000..2020-01-01 12:00:00.124000");
    both("12:00:00.123+01:00", "?..?");
    // A column that was widened from date.
    check(
        "timestamp_ntz",
        r#""2020-01-02""#,
        r#""2020-01-02""#,
        "2020-01-01 23:59:59.999000..2020-01-02 00:00:00.001000",
    );
}

const LONG: &str = r#"{"numRecords":5,"minValues":{"c":1},"maxValues":{"c":9},"nullCount":{"c":2}}"#;

#[track_caller]
fn check_text(text: &str, expected: &str) {
    // Statistics of the files before and after are not affected.
    let stats = read(&[Some(LONG), Some(text), None, Some(LONG)], &[leaf(&["c"], "long")]);
    assert_eq!(show(&stats, 1), expected, "{text}");
    assert_eq!(
        (show(&stats, 0), show(&stats, 2), show(&stats, 3)),
        ("5 1..9 2".into(), "? ?..? ?".into(), "5 1..9 2".into())
    );
}

#[test]
fn missing_statistics_are_unknown() {
    check_text("{}", "? ?..? ?");
    check_text(r#"{"numRecords":5}"#, "5 ?..? ?");
    check_text(r#"{"minValues":{"c":1}}"#, "? 1..? ?");
    check_text(r#"{"numRecords":null,"minValues":null,"maxValues":{"c":null},"nullCount":{}}"#, "? ?..? ?");
    check_text(r#"{"tightBounds":false,"numRecords":5,"other":{"c":[{}]},"nullCount":{"x":1,"c":5}}"#, "5 ?..? 5");
    check_text(r#"{"numRecords":-1,"nullCount":{"c":-1}}"#, "? ?..? ?");
    check_text(r#"{"numRecords":1.0,"minValues":{"c":1},"nullCount":{"c":"x"}}"#, "? 1..? ?");
}

#[test]
fn malformed_statistics_are_unknown() {
    for end in 1..LONG.len() {
        check_text(&LONG[..end], "? ?..? ?");
    }
    for text in ["", "x", "[]", "1", "null", "\"{}\""] {
        check_text(text, "? ?..? ?");
    }
    check_text(&format!("{LONG}x"), "? ?..? ?");
    check_text(&format!("{LONG}{LONG}"), "? ?..? ?");
    check_text(&LONG.replace("{\"c\":9}", "9"), "? ?..? ?");
    check_text(&LONG.replace("{\"c\":9}", "[9]"), "? ?..? ?");
    // Deeply nested values are skipped.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    check_text(&LONG.replace("{\"c\":9}", &format!("{{\"d\":{deep},\"c\":8}}")), "5 1..8 2");
    check_text(&LONG.replace("\"c\":9", &format!("\"c\":{deep}")), "5 1..? 2");
}

#[test]
fn the_first_of_two_bounds_counts() {
    check_text(&LONG.replace("\"c\":9", "\"c\":9,\"c\":3"), "5 1..9 2");
}

#[test]
fn columns_inside_structs_and_with_any_name() {
    let leaves = [
        leaf(&["s", "a"], "long"),
        leaf(&["s", "t", "b"], "string"),
        leaf(&["s.a"], "long"),
        leaf(&["é \"x\""], "long"),
        leaf(&["s", "nothing"], "long"),
    ];
    let text = r#"{"minValues":{"s":{"a":1,"t":{"b":"x","c":2},"u":[]},"s.a":5,"\u00e9 \"x\"":7},
        "maxValues":{"s":{"t":null,"a":2}},"nullCount":{"s":{"a":0,"t":{"b":3}},"s.a":4}}"#;
    assert_eq!(show(&read(&[Some(text)], &leaves), 0), "? 1..2 0 x..? 3 5..? 4 7..? ? ?..? ?");
    // A struct where a value should be, and a value where a struct should be.
    assert_eq!(show(&read(&[Some(r#"{"minValues":{"s":{"a":{"b":1}}}}"#)], &leaves[..1]), 0), "? ?..? ?");
    assert_eq!(show(&read(&[Some(r#"{"numRecords":1,"minValues":{"s":1}}"#)], &leaves[..1]), 0), "? ?..? ?");
}

#[test]
fn no_column_and_no_file() {
    assert_eq!(show(&read(&[Some(LONG)], &[]), 0), "5");
    let none = read(&[], &[leaf(&["c"], "long")]);
    assert_eq!((none.num_records.len(), none.leaves[0].min.len(), none.leaves[0].null_count.len()), (0, 0, 0));
}

// --- typed statistics

fn structure(members: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>) -> ArrayRef {
    let fields: Fields = members.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    let columns = members.into_iter().map(|(_, a)| a).collect();
    Arc::new(StructArray::new(fields, columns, nulls.map(NullBuffer::from)))
}

/// Checks the bounds of column `c` from typed statistics with this array as minima and maxima.
#[track_caller]
fn check_typed(data_type: &str, found: ArrayRef, expected: &[&str]) {
    let bounds = structure(vec![("c", found.clone())], None);
    let stats = structure(vec![("minValues", bounds.clone()), ("maxValues", bounds)], None);
    let stats = from_struct(stats.as_any().downcast_ref().unwrap(), &[leaf(&["c"], data_type)]).unwrap();
    let shown: Vec<String> = (0..found.len()).map(|row| show(&stats, row)).collect();
    let expected: Vec<String> = expected.iter().map(|bounds| format!("? {bounds} ?")).collect();
    assert_eq!(shown, expected, "{data_type} from {}", found.data_type());
}

#[test]
fn typed_bounds_of_other_widths() {
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(300)]));
    check_typed("long", longs.clone(), &["1..1", "?..?", "300..300"]);
    check_typed("byte", longs.clone(), &["1..1", "?..?", "?..?"]);
    check_typed("integer", longs.clone(), &["1..1", "?..?", "300..300"]);
    check_typed("decimal(20,1)", longs.clone(), &["1.0..1.0", "?..?", "300.0..300.0"]);
    // Not every long is a double.
    check_typed("double", longs.clone(), &["?..?"; 3]);
    check_typed("string", longs, &["?..?"; 3]);
    check_typed("long", Arc::new(Int8Array::from(vec![-3])), &["-3..-3"]);
    check_typed("short", Arc::new(Int32Array::from(vec![-3])), &["-3..-3"]);
    check_typed("double", Arc::new(Int16Array::from(vec![-3])), &["-3.0..-3.0"]);
    check_typed("string", Arc::new(LargeStringArray::from(vec!["x"])), &["x..x"]);
    check_typed("long", Arc::new(StringArray::from(vec!["1"])), &["?..?"]);
    check_typed("binary", Arc::new(StringArray::from(vec!["1"])), &["?..?"]);
    check_typed("boolean", new_null_array(&ArrowType::Boolean, 1), &["?..?"]);
}

#[test]
fn typed_floats_decimals_and_instants_are_as_wide_as_json_ones() {
    check_typed("double", Arc::new(Float32Array::from(vec![0.1])), &["0.10000000149011612..0.10000000149011612"]);
    check_typed("was float", Arc::new(Float32Array::from(vec![0.1])), &["0.10000000149011612..0.10000000149011612"]);
    // May have been read from JSON statistics of a float.
    check_typed("was float", Arc::new(Float64Array::from(vec![0.1])), &["0.1..0.10000000149011612"]);
    check_typed("double", Arc::new(Float64Array::from(vec![0.1])), &["0.1..0.1"]);

    let decimal = |value: i128, precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap())
    };
    check_typed("decimal(10,2)", decimal(150, 10, 2), &["1.50..1.50"]);
    check_typed("decimal(12,4)", decimal(150, 10, 2), &["1.5000..1.5000"]);
    check_typed("decimal(38,0)", decimal(1_234_567_890_123_456, 38, 0), &["1234567890123455..1234567890123457"]);
    // A smaller scale is no widening.
    check_typed("decimal(10,0)", decimal(150, 10, 2), &["?..?"]);
    check_typed(
        "decimal(38,0)",
        decimal(i128::MIN, 38, 0),
        &["-170141183460469231731687303715884105728..-170141183460469231731687303715884105728"],
    );

    let wide = "1969-12-31T23:59:01.999000Z..1970-01-01T00:01:00.001000Z";
    let utc: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_000_000]).with_timezone("UTC"));
    check_typed("timestamp", utc, &[wide]);
    let paris: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_000]).with_timezone("Europe/Paris"));
    check_typed("timestamp", paris, &[wide]);
    // Old writers used nanoseconds without a time zone for instants.
    let nanos: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_000_000_999]));
    check_typed("timestamp", nanos.clone(), &[wide]);
    check_typed("timestamp_ntz", nanos, &["1970-01-01 00:00:00.999000..1970-01-01 00:00:01.001000"]);
    let date: ArrayRef = Arc::new(arrow_array::Date32Array::from(vec![1]));
    check_typed("timestamp_ntz", date, &["1970-01-01 23:59:59.999000..1970-01-02 00:00:00.001000"]);
    let end: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]).with_timezone("UTC"));
    let shown = bounds("timestamp", "\"9999-12-31T23:59:59.999Z\"", "null");
    assert!(shown.starts_with("9999-12-31"));
    let stats = structure(vec![("maxValues", structure(vec![("c", end)], None))], None);
    let stats = from_struct(stats.as_any().downcast_ref().unwrap(), &[leaf(&["c"], "timestamp")]).unwrap();
    assert_eq!(Scalar::from_array(&stats.leaves[0].max, 0).unwrap(), Scalar::Timestamp(i64::MAX));
}

#[test]
fn typed_statistics_under_nulls_are_null() {
    let numbers = |values: [i64; 4]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    // A row without nulls, then a null at each level.
    let inner = structure(vec![("a", numbers([1, 2, 3, 4]))], Some(vec![true, false, true, true]));
    let min = structure(vec![("s", inner)], Some(vec![true, true, false, true]));
    let counts = structure(vec![("s", structure(vec![("a", numbers([0, -1, 2, 3]))], None))], None);
    let stats = structure(
        vec![("numRecords", numbers([9, 9, 9, 9])), ("minValues", min), ("nullCount", counts)],
        Some(vec![true, true, true, false]),
    );
    let stats = from_struct(stats.as_any().downcast_ref().unwrap(), &[leaf(&["s", "a"], "long")]).unwrap();
    let shown: Vec<String> = (0..4).map(|row| show(&stats, row)).collect();
    assert_eq!(shown, ["9 1..? 0", "9 ?..? ?", "9 ?..? 2", "? ?..? ?"]);
}

/// Statistics with columns in any order, unknown and missing columns, names with common prefixes, and errors.
pub(crate) fn any_order() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("ab"), Just("s"), Just("x"), Just("q\\\"t"), Just("b\":1,\"a")];
    let value = prop_oneof![Just("1"), Just("\"2\""), Just("null"), Just("{\"a\":3,\"b\":4}"), Just("{\"b\":5}")];
    let space = prop_oneof![8 => Just(""), 1 => Just(" ")];
    let member = (name, space.clone(), value).prop_map(|(name, space, value)| format!("\"{name}\"{space}:{value}"));
    let object = proptest::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(",")));
    let part = prop_oneof![Just("minValues"), Just("maxValues"), Just("nullCount")];
    let parts = proptest::collection::vec((part, space, object), 0..4);
    parts.prop_map(|parts| {
        let part = |(name, space, object): (&str, &str, String)| format!("\"{name}\":{space}{object}");
        format!("{{{}}}", parts.into_iter().map(part).collect::<Vec<_>>().join(","))
    })
}

fn any_value() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("1"),
        Just("-70"),
        Just("null"),
        Just("1.5e3"),
        Just("\"é 2024-01-01\""),
        Just("\"2024-01-01\""),
        Just("\"\""),
        Just("\"a\\\"b\""),
        Just("{}"),
        Just("[1,2]"),
        Just("7 "),
        Just("true"),
        Just("1}")
    ]
}

mod properties {
    use super::*;

    /// A value, and its minimum and maximum in JSON, as writers print them.
    #[derive(Debug, Clone)]
    struct Written {
        data_type: &'static str,
        value: Scalar,
        min: String,
        max: String,
    }

    fn same(data_type: &'static str, value: Scalar, text: String) -> Written {
        Written { data_type, value, min: text.clone(), max: text }
    }

    fn quoted_if_no_number(text: String) -> String {
        if text.contains(['N', 'I']) { format!("\"{text}\"") } else { text }
    }

    fn decimal() -> impl Strategy<Value = Written> {
        let size = prop_oneof![any::<i128>(), any::<i64>().prop_map(i128::from), any::<i16>().prop_map(i128::from)];
        (size, 0..3_u8, any::<bool>()).prop_map(|(value, kind, through_a_double)| {
            let (data_type, precision, scale) =
                [("decimal(38,0)", 38, 0), ("decimal(38,18)", 38, 18), ("decimal(18,2)", 18, 2)][usize::from(kind)];
            let value = value % 10_i128.pow(u32::from(precision));
            let scalar = Scalar::Decimal { value, precision, scale };
            let text = scalar.to_string();
            let text =
                if through_a_double { serde_json::to_string(&text.parse::<f64>().unwrap()).unwrap() } else { text };
            same(data_type, scalar, text)
        })
    }

    /// An instant as Spark prints it: milliseconds, local time, the offset without its seconds.
    fn timestamp() -> impl Strategy<Value = Written> {
        let offset = prop_oneof![Just(0), -57_600..57_600_i64];
        (-62_000_000_000_000_000..250_000_000_000_000_000_i64, offset, any::<bool>()).prop_map(
            |(micros, offset, cut)| {
                let millis = if cut { micros / 1000 } else { micros.div_euclid(1000) };
                let local = Scalar::TimestampNtz(millis * 1000 + offset * 1_000_000).to_string().replace(' ', "T");
                let sign = if offset < 0 { '-' } else { '+' };
                let (hours, minutes) = (offset.abs() / 3600, offset.abs() / 60 % 60);
                let zone = if offset == 0 { "Z".to_owned() } else { format!("{sign}{hours:02}:{minutes:02}") };
                let text = format!("\"{}{zone}\"", &local[..local.len() - 3]);
                same("timestamp", Scalar::Timestamp(micros), text)
            },
        )
    }

    fn written() -> impl Strategy<Value = Written> {
        let bits = any::<u32>().prop_map(f32::from_bits);
        let few = (-10_000..10_000_i32).prop_map(|n| n as f32 / 100.0);
        let float = prop_oneof![bits, few].boxed();
        let double = any::<u64>().prop_map(f64::from_bits);
        prop_oneof![
            any::<i64>().prop_map(|v| same("long", Scalar::Long(v), v.to_string())),
            any::<i32>().prop_map(|v| same("integer", Scalar::Integer(v), v.to_string())),
            any::<i8>().prop_map(|v| same("byte", Scalar::Byte(v), v.to_string())),
            any::<bool>().prop_map(|v| same("boolean", Scalar::Boolean(v), v.to_string())),
            double.prop_map(|v| same("double", Scalar::Double(v), quoted_if_no_number(Scalar::Double(v).to_string()))),
            float.clone().prop_map(|v| same(
                "float",
                Scalar::Float(v),
                quoted_if_no_number(Scalar::Float(v).to_string())
            )),
            // A float that was widened to double, as either writer prints it.
            (float, any::<bool>()).prop_map(|(v, exact)| {
                let value = Scalar::Double(f64::from(v));
                let text = if exact { value.to_string() } else { Scalar::Float(v).to_string() };
                same("was float", value, quoted_if_no_number(text))
            }),
            decimal(),
            timestamp(),
            (-62_000_000_000_000_000..250_000_000_000_000_000_i64).prop_map(|v| {
                let text = Scalar::TimestampNtz(v.div_euclid(1000) * 1000).to_string().replace(' ', "T");
                same("timestamp_ntz", Scalar::TimestampNtz(v), format!("\"{}\"", &text[..text.len() - 3]))
            }),
            any::<i32>().prop_map(|v| same("date", Scalar::Date(v / 4), format!("\"{}\"", Scalar::Date(v / 4)))),
            (any::<String>(), 1..8_usize, any::<bool>()).prop_map(|(value, cut, tie)| {
                let prefix: String = value.chars().take(cut).collect();
                let is_cut = prefix.len() < value.len();
                let max = if tie && is_cut { format!("{prefix}\u{10ffff}") } else { prefix.clone() };
                Written {
                    data_type: "string",
                    value: Scalar::String(value),
                    min: json!(prefix).to_string(),
                    max: json!(max).to_string(),
                }
            }),
        ]
    }

    proptest! {
        #![proptest_config(crate::cases(4000))]

        #[test]
        fn bounds_contain_their_value(written in written()) {
            let text = format!(r#"{{"minValues":{{"c":{}}},"maxValues":{{"c":{}}}}}"#, written.min, written.max);
            let stats = read(&[Some(&text)], &[leaf(&["c"], written.data_type)]);
            let bound = |array: &ArrayRef| Scalar::from_array(array, 0).unwrap();
            let (min, max) = (bound(&stats.leaves[0].min), bound(&stats.leaves[0].max));
            if let Some(order) = min.compare(&written.value) {
                prop_assert!(order.is_le(), "{min} is above {:?}", written);
            }
            if let Some(order) = max.compare(&written.value) {
                // The maximum of strings may be a prefix of the value.
                let begins = matches!((&max, &written.value), (Scalar::String(m), Scalar::String(v)) if v.starts_with(m.as_str()));
                prop_assert!(order.is_ge() || begins, "{max} is below {:?}", written);
            }
            // Exact bounds must not be lost.
            if !written.value.is_nan() && written.data_type != "decimal(38,18)" && written.data_type != "decimal(18,2)" {
                prop_assert!(min != Scalar::Null, "no bound was read from {written:?}");
            }
        }

        /// The parser reuses the layout of the previous file. That must not change results.
        #[test]
        fn earlier_files_do_not_change_bounds(texts in proptest::collection::vec(any_order(), 1..8)) {
            let leaves = [leaf(&["a"], "long"), leaf(&["ab"], "string"), leaf(&["s", "a"], "long"), leaf(&["s", "b"], "double"),
                leaf(&["q\"t"], "integer")];
            let together = read(&texts.iter().map(|text| Some(text.as_str())).collect::<Vec<_>>(), &leaves);
            for (row, text) in texts.iter().enumerate() {
                prop_assert_eq!(show(&together, row), show(&read(&[Some(text)], &leaves), 0), "{}", text);
            }
        }

        /// Nor must the shapes that it has learned: here with other values, more or fewer of them, and truncated JSON.
        #[test]
        fn learned_shapes_do_not_change_bounds(
            shapes in proptest::collection::vec(any_order(), 1..4),
            files in proptest::collection::vec((any::<prop::sample::Index>(), any_value(), any_value(), 0..40_usize), 2..80),
        ) {
            let leaves = [leaf(&["a"], "long"), leaf(&["ab"], "string"), leaf(&["s", "a"], "double"), leaf(&["s", "b"], "date")];
            let text = |(shape, first, second, cut): &(prop::sample::Index, &str, &str, usize)| {
                let mut text = shape.get(&shapes).replace(":1", &format!(":{first}")).replace("\"2\"", second);
                text.insert_str(1, &format!("\"numRecords\":{first}{}", if text.len() > 2 { "," } else { "" }));
                let end = text.floor_char_boundary(text.len() - cut.saturating_sub(30).min(text.len()));
                text.truncate(end);
                text
            };
            let texts: Vec<String> = files.iter().map(text).collect();
            let together = from_json_as_written(texts.iter().map(|text| Some(text.as_str())), &leaves).unwrap();
            for (row, text) in texts.iter().enumerate() {
                let alone = from_json_as_written([Some(text.as_str())], &leaves).unwrap();
                prop_assert_eq!(show(&together, row), show(&alone, 0), "{:?} of {:?}", text, texts);
            }
        }

        #[test]
        fn any_string_is_read_or_unknown(text in ".{0,60}", cut in any::<prop::sample::Index>()) {
            let types = ["long", "double", "float", "was float", "decimal(38,10)", "boolean", "string", "date", "timestamp",
                "timestamp_ntz", "binary"];
            let leaves: Vec<Leaf> = types.iter().map(|t| leaf(&[t], t)).collect();
            let values = types.iter().map(|t| format!("{:?}:{}", t, json!(text))).collect::<Vec<_>>().join(",");
            let whole = format!(r#"{{"numRecords":1,"minValues":{{{values}}},"maxValues":{{{values}}}}}"#);
            let mut end = cut.index(whole.len() + 1);
            while !whole.is_char_boundary(end) {
                end -= 1;
            }
            let stats = read(&[Some(&whole), Some(&whole[..end]), Some(&text)], &leaves);
            prop_assert_eq!(stats.num_records.len(), 3);
            prop_assert!(show(&stats, 0).starts_with("1 "));
        }
    }
}
