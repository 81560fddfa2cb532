//! Conversion of batches to the schema of a table: allowed conversions, and the errors of others.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampMicrosecondType};
use arrow_array::*;
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, i256};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType as A, Field, Fields, Schema};
use deltic_protocol::error::Kind;
use deltic_protocol::schema::arrow::table_type_name;
use deltic_protocol::schema::json;
use deltic_protocol::schema::mapping::{ColumnMapping, check_mapped};
use deltic_table::write::conform::Conformer;
use parquet_variant::Variant;
use parquet_variant_compute::{json_to_variant, shred_variant, variant_to_json};

fn conformer(fields: &str, mapping: ColumnMapping) -> Conformer {
    let schema = json::parse(&format!(r#"{{"type":"struct","fields":[{fields}]}}"#)).unwrap();
    Conformer::new(&schema, mapping).unwrap()
}

fn field(name: &str, data_type: &str, nullable: bool) -> String {
    let data_type = if data_type.starts_with('{') { data_type.to_owned() } else { format!("\"{data_type}\"") };
    format!(r#"{{"name":"{name}","type":{data_type},"nullable":{nullable},"metadata":{{}}}}"#)
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(n, a)| Field::new(*n, a.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect()).unwrap()
}

fn show(array: &ArrayRef) -> String {
    // The formatter does not know time zones by name.
    let array = match array.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) if times.timezone() == Some("UTC") => {
            &(Arc::new(times.clone().with_timezone("+00:00")) as ArrayRef)
        }
        _ => array,
    };
    let values: Vec<String> = (0..array.len())
        .map(|i| if array.is_null(i) { "null".to_owned() } else { array_value_to_string(array, i).unwrap() })
        .collect();
    values.join(" ")
}

/// The rows of `data` in a table with these columns: the values of each column, or the error message.
fn outcome(columns: &[String], data: &RecordBatch) -> String {
    let conformer = conformer(&columns.join(","), ColumnMapping::None);
    match conformer.conform(data) {
        Ok(rows) => {
            assert_eq!(rows.schema_ref(), conformer.schema());
            assert_eq!(rows.num_rows(), data.num_rows());
            rows.columns().iter().map(show).collect::<Vec<_>>().join(" | ")
        }
        Err(error) => {
            assert_eq!(error.kind(), &Kind::Invalid, "{error}");
            error.message().to_owned()
        }
    }
}

/// Checks one column `c` of this type, given this array. An error is given as part of its message.
#[track_caller]
fn check(data_type: &str, array: impl Array + 'static, expected: &str) {
    let array: ArrayRef = Arc::new(array);
    let source = array.data_type().clone();
    let got = outcome(&[field("c", data_type, true)], &batch(vec![("c", Arc::clone(&array))]));
    match expected.strip_prefix("refused: ") {
        None => {
            assert_eq!(got, expected, "{source} -> {data_type}");
            // In a slice, and as a dictionary, the values must be the same.
            let padded = arrow_select::concat::concat(&[&array, &array]).unwrap();
            let slice = padded.slice(array.len(), array.len());
            let got = outcome(&[field("c", data_type, true)], &batch(vec![("c", slice)]));
            assert_eq!(got, expected, "slice of {source} -> {data_type}");
        }
        Some(part) => {
            assert!(got.contains(part), "{source} -> {data_type}: {got}");
            assert!(got.contains("`c`"), "{got}");
            assert!(got.contains(data_type) && got.contains(&table_type_name(&source)), "{got}");
        }
    }
}

#[test]
fn integers() {
    check("long", Int8Array::from(vec![Some(-1), None]), "-1 null");
    check("long", UInt32Array::from(vec![u32::MAX]), "4294967295");
    check("integer", UInt16Array::from(vec![u16::MAX]), "65535");
    check("integer", Int64Array::from(vec![7, -7]), "7 -7");
    check("integer", Int64Array::from(vec![1 << 31]), "refused: row 0 (the first is 0) of the data has 2147483648");
    check("byte", Int32Array::from(vec![127, -128, 128]), "refused: row 2 (the first is 0) of the data has 128");
    check("long", UInt64Array::from(vec![i64::MAX.cast_unsigned()]), "9223372036854775807");
    check("long", UInt64Array::from(vec![1 << 63]), "refused: has 9223372036854775808");
    check("long", Float64Array::from(vec![Some(1.0), None, Some(-0.0), Some(-9e18)]), "1 null 0 -9000000000000000000");
    check(
        "long",
        Float64Array::from(vec![Some(1.0), None, Some(f64::NAN)]),
        "refused: row 2 (the first is 0) of the data has NaN",
    );
    check("long", Float64Array::from(vec![f64::INFINITY]), "refused: has inf");
    check("long", Float64Array::from(vec![9_223_372_036_854_775_808.0]), "refused: has 9.223372036854776e18");
    check("long", Float64Array::from(vec![-9_223_372_036_854_775_808.0]), "-9223372036854775808");
    check("integer", Float32Array::from(vec![1.5]), "refused: only whole numbers");
    check("long", decimal(-1200, 10, 2), "-12");
    check("long", decimal(1201, 10, 2), "refused: has 12.01");
    check("long", StringArray::from(vec!["1"]), "refused: cast it to the table's type");
    check("long", BooleanArray::from(vec![true]), "refused: cast it");
    check("boolean", Int8Array::from(vec![1]), "refused: cast it");
    check("integer", NullArray::new(2), "null null");
}

#[test]
fn floats() {
    check("double", Float32Array::from(vec![0.5, f32::NAN, -0.0]), "0.5 NaN -0.0");
    check("double", Int32Array::from(vec![i32::MAX]), "2147483647.0");
    check("float", Int16Array::from(vec![-3]), "-3.0");
    check("double", Int64Array::from(vec![Some(1 << 53), None]), "9007199254740992.0 null");
    check(
        "double",
        Int64Array::from(vec![1, (1 << 53) + 1]),
        "refused: row 1 (the first is 0) of the data has 9007199254740993",
    );
    check("double", Int64Array::from(vec![i64::MAX]), "refused: digits would be lost");
    check("double", Int64Array::from(vec![i64::MIN]), "-9.223372036854776e18");
    check("double", UInt64Array::from(vec![u64::MAX]), "refused: digits would be lost");
    check("float", Int32Array::from(vec![1 << 24]), "16777216.0");
    check("float", Int32Array::from(vec![(1 << 24) + 1]), "refused: has 16777217");
    check("float", Float64Array::from(vec![0.5, f64::NAN, f64::NEG_INFINITY, -0.0]), "0.5 NaN -inf -0.0");
    check("float", Float64Array::from(vec![0.1]), "refused: has 0.1");
    check("float", Float64Array::from(vec![1e300]), "refused: has 1e300");
    check("double", decimal(125, 5, 2), "1.25");
    check("double", decimal(1, 5, 2), "refused: has 0.01");
    check("float", decimal((1 << 24) + 1, 10, 0), "refused: has 16777217");
}

fn decimal(value: i128, precision: u8, scale: i8) -> Decimal128Array {
    Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap()
}

#[test]
fn decimals() {
    check("decimal(10,2)", decimal(123, 5, 2), "1.23");
    check("decimal(10,4)", decimal(123, 5, 2), "1.2300");
    check("decimal(4,2)", decimal(9999, 20, 2), "99.99");
    check("decimal(4,2)", decimal(10000, 20, 2), "refused: has 100.00");
    check("decimal(4,3)", decimal(9999, 4, 2), "refused: no more digits");
    check("decimal(10,1)", decimal(120, 5, 2), "1.2");
    check("decimal(10,1)", decimal(121, 5, 2), "refused: has 1.21");
    check("decimal(5,2)", decimal(5, 5, -2), "500.00");
    check("decimal(38,0)", decimal(10_i128.pow(37), 38, -1), "refused: no more digits");
    check("decimal(5,2)", Int32Array::from(vec![999]), "999.00");
    check("decimal(5,2)", Int32Array::from(vec![1000]), "refused: has 1000");
    check("decimal(20,0)", UInt64Array::from(vec![u64::MAX]), "18446744073709551615");
    let wide = |value: i256, scale| Decimal256Array::from(vec![value]).with_precision_and_scale(76, scale).unwrap();
    check("decimal(10,2)", wide(i256::from(5), 2), "0.05");
    check(
        "decimal(10,2)",
        wide(i256::from_string("5").unwrap().wrapping_mul(i256::from_i128(10).wrapping_pow(60)), 62),
        "0.05",
    );
    check("decimal(38,0)", wide(i256::from_i128(10).wrapping_pow(38), 0), "refused: no more digits");
    check("decimal(10,2)", Decimal64Array::from(vec![5]).with_precision_and_scale(9, 2).unwrap(), "0.05");
    check(
        "decimal(10,2)",
        Float64Array::from(vec![Some(0.5), None, Some(-0.0), Some(-99_999_999.75)]),
        "0.50 null 0.00 -99999999.75",
    );
    check("decimal(10,2)", Float64Array::from(vec![0.1]), "refused: has 0.1");
    check("decimal(10,2)", Float64Array::from(vec![1e8]), "refused: has 100000000");
    check("decimal(10,2)", Float32Array::from(vec![f32::INFINITY]), "refused: has inf");
    check("decimal(38,38)", Float64Array::from(vec![2_f64.powi(-38)]), "0.00000000000363797880709171295166015625");
    check("decimal(38,37)", Float64Array::from(vec![2_f64.powi(-38)]), "refused: cast the column to decimal(38, 37)");
}

/// Producers may have values with more digits than the type of the array allows.
#[test]
fn decimals_beyond_their_own_type() {
    for (value, precision, scale) in [
        (9_999_999_999_999, 5, 2),
        (-100_000, 5, 2),
        (10_i128.pow(24) - 1, 18, 2),
        (i128::MAX, 38, 0),
        (i128::MIN, 38, 0),
    ] {
        let table = format!("decimal({precision},{scale})");
        check(&table, decimal(value, precision, scale), "refused: it has more digits than its type");
        let in_null = Decimal128Array::new(vec![1, value].into(), Some(vec![true, false].into()));
        let in_null = in_null.with_precision_and_scale(precision, scale).unwrap();
        let shown = show(&(Arc::new(decimal(1, precision, scale)) as ArrayRef));
        check(&table, in_null, &format!("{shown} null"));
        // Also if the type of the table is wider.
        check("decimal(38,0)", decimal(i128::MAX, 37, 0), "refused: no more digits");
        let inner =
            DictionaryArray::<Int32Type>::new(vec![1, 0].into(), Arc::new(decimal_of(&[0, value], precision, scale)));
        check(&table, inner, "refused: row 0 (the first is 0)");
    }
    let lists = ListArray::new(
        Arc::new(Field::new("item", A::Decimal128(5, 2), true)),
        OffsetBuffer::from_lengths([0, 2, 0, 1]),
        Arc::new(decimal_of(&[1, 2, 100_000], 5, 2)),
        None,
    );
    let table = r#"{"type":"array","elementType":"decimal(5,2)","containsNull":true}"#;
    let got = outcome(&[field("c", table, true)], &batch(vec![("c", Arc::new(lists.slice(1, 3)))]));
    assert!(
        got.contains("`c.element` is decimal(5,2)") && got.contains("row 2 (the first is 0) of the data has 1000.00"),
        "{got}"
    );
}

fn decimal_of(values: &[i128], precision: u8, scale: i8) -> Decimal128Array {
    Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap()
}

#[test]
fn strings_and_bytes() {
    check("string", LargeStringArray::from(vec![Some("ä"), None]), "ä null");
    check(
        "string",
        StringViewArray::from(vec!["a longer text than fits a view", ""]),
        "a longer text than fits a view ",
    );
    check("binary", LargeBinaryArray::from(vec![b"\x01".as_slice()]), "01");
    check("binary", BinaryViewArray::from(vec![b"\x01".as_slice()]), "01");
    check("binary", FixedSizeBinaryArray::new(2, Buffer::from_vec(vec![1_u8, 2, 3, 4]), None), "0102 0304");
    check("binary", StringArray::from(vec!["a"]), "refused: cast it");
    check("string", BinaryArray::from(vec![b"a".as_slice()]), "refused: cast it");
    let dictionary: DictionaryArray<Int32Type> = vec![Some("x"), None, Some("x")].into_iter().collect();
    check("string", dictionary, "x null x");
    let runs = RunArray::try_new(&Int32Array::from(vec![2, 3]), &StringArray::from(vec!["a", "b"])).unwrap();
    assert_eq!(outcome(&[field("c", "string", true)], &batch(vec![("c", Arc::new(runs))])), "a a b");
}

#[test]
fn encodings_inside_encodings() {
    let words: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(
        vec![Some(1), None, Some(0)].into(),
        Arc::new(LargeStringArray::from(vec!["a", "b"])),
    ));
    let runs = RunArray::try_new(&Int32Array::from(vec![1, 3, 4]), &words).unwrap();
    assert_eq!(outcome(&[field("c", "string", true)], &batch(vec![("c", Arc::new(runs))])), "b null null a");
}

/// A slice whose offsets exceed 32 bits, though its values would fit.
#[test]
fn a_slice_far_into_a_large_array() {
    let far = i64::from(i32::MAX);
    let offsets = OffsetBuffer::new(vec![0, far, far + 1, far + 2].into());
    let values = Buffer::from_vec(vec![0_u8; usize::try_from(far).unwrap() + 2]);
    let array = LargeBinaryArray::new(offsets, values, None);
    let column = [field("c", "binary", true)];
    assert_eq!(outcome(&column, &batch(vec![("c", Arc::new(array.slice(1, 2)))])), "00 00");
    assert!(outcome(&column, &batch(vec![("c", Arc::new(array))])).contains("a row can hold 2 GiB of it at most"));
}

#[test]
fn dates_and_times() {
    check("date", Date32Array::from(vec![1]), "1970-01-02");
    check("date", Date64Array::from(vec![86_400_000]), "1970-01-02");
    check("date", Date64Array::from(vec![86_400_001]), "refused: times of day");
    check("date", TimestampMicrosecondArray::from(vec![-86_400_000_000]), "1969-12-31");
    check("date", TimestampNanosecondArray::from(vec![Some(0), None, Some(1)]), "refused: row 2 (the first is 0)");
    let zoned = |zone: &str| TimestampMillisecondArray::from(vec![1]).with_timezone(zone);
    check("date", zoned("UTC"), "refused: depends on the time zone");
    check("timestamp", zoned("UTC"), "1970-01-01T00:00:00.001Z");
    check("timestamp", zoned("+02:00"), "1970-01-01T00:00:00.001Z");
    check("timestamp", zoned("Europe/Berlin"), "1970-01-01T00:00:00.001Z");
    check("timestamp", TimestampSecondArray::from(vec![1]).with_timezone("UTC"), "1970-01-01T00:00:01Z");
    check(
        "timestamp",
        TimestampSecondArray::from(vec![i64::MAX]).with_timezone("UTC"),
        "refused: in the range of 64 bits",
    );
    check("timestamp_ntz", TimestampMillisecondArray::from(vec![i64::MIN]), "refused: of the years -290308 to 294247");
    let nanos = |v: Vec<Option<i64>>| TimestampNanosecondArray::from(v).with_timezone("UTC");
    check("timestamp", nanos(vec![Some(1000), None]), "1970-01-01T00:00:00.000001Z null");
    check("timestamp", nanos(vec![Some(-1)]), "refused: round it to microseconds");
    check("timestamp_ntz", TimestampNanosecondArray::from(vec![2_000_000_000]), "1970-01-01T00:00:02");
    check("timestamp", TimestampMicrosecondArray::from(vec![0]), "refused: give it the time zone");
    check("timestamp_ntz", zoned("UTC"), "refused: drop the zone");
    check("timestamp", Date32Array::from(vec![0]), "refused: cast it to a timestamp");
    check("timestamp_ntz", Date32Array::from(vec![-1]), "1969-12-31T00:00:00");
    check("timestamp_ntz", Date64Array::from(vec![1]), "1970-01-01T00:00:00.001");
}

#[test]
fn strings_that_are_dates_and_times() {
    check("date", StringArray::from(vec![Some("2024-02-29"), None, Some("0001-01-01")]), "2024-02-29 null 0001-01-01");
    check("date", LargeStringArray::from(vec!["9999-12-31"]), "9999-12-31");
    check("date", StringViewArray::from(vec!["1970-01-01"]), "1970-01-01");
    for text in ["2023-02-29", "2024-2-29", " 2024-02-29", "2024-02-29T00:00:00", "29.02.2024", "", "now"] {
        check("date", StringArray::from(vec!["2024-01-01", text]), "refused: only strings like");
    }
    let instant = "2024-02-29T12:00:00";
    let check_instant = |text: &str, expected: &str| check("timestamp", StringArray::from(vec![text]), expected);
    check_instant(&format!("{instant}Z"), "2024-02-29T12:00:00Z");
    check_instant(&format!("{instant}.5+01:00"), "2024-02-29T11:00:00.500Z");
    check_instant("2024-02-29 12:00:00.000001000-00:30", "2024-02-29T12:30:00.000001Z");
    for zone in ["", ".0000001Z", "Z ", " Z", "+1", "+01:00:00", ".Z", "[UTC]"] {
        check_instant(&format!("{instant}{zone}"), "refused: are instants");
    }
    check_instant("2024-02-29", "refused: are instants");
    let check_local = |text: &str, expected: &str| check("timestamp_ntz", StringArray::from(vec![text]), expected);
    check_local(instant, "2024-02-29T12:00:00");
    check_local("2024-02-29 12:00:00.25", "2024-02-29T12:00:00.250");
    check_local("2024-02-30 12:00:00", "refused: without a zone");
    check_local("2024-02-29T12:00:00Z", "refused: without a zone");
    check("string", Date32Array::from(vec![0]), "refused: cast it");
}

fn long(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn columns_by_name() {
    let table = [field("a", "long", true), field("B", "long", true)];
    let check = |columns: Vec<(&str, ArrayRef)>, expected: &str| {
        let got = outcome(&table, &batch(columns));
        assert!(got.contains(expected) && (!got.contains('|') || got == expected), "{got}");
    };
    check(vec![("a", long(&[1])), ("B", long(&[2]))], "1 | 2");
    check(vec![("B", long(&[2])), ("a", long(&[1]))], "1 | 2");
    check(vec![("b", long(&[2])), ("A", long(&[1]))], "1 | 2");
    check(vec![("B", long(&[2]))], "null | 2");
    check(vec![("b", long(&[2])), ("B", long(&[3]))], "a column `b` that the table does not have; drop it");
    check(vec![("a", long(&[2])), ("a", long(&[3]))], "two columns `a`");
    check(vec![("c", long(&[2])), ("a", long(&[3]))], "a column `c` that the table does not have");
    let cased = [field("abc", "long", true)];
    let got = outcome(&cased, &batch(vec![("ABC", long(&[1])), ("Abc", long(&[2]))]));
    assert!(got.contains("may both be the table's `abc`"), "{got}");
}

#[test]
fn missing_partition_columns_are_refused() {
    let table = [field("a", "long", true), field("p", "string", true)].join(",");
    let conformer = conformer(&table, ColumnMapping::None).with_partition_columns(&["p".to_owned()]);
    let error = conformer.conform(&batch(vec![("a", long(&[1]))])).unwrap_err();
    assert_eq!(error.kind(), &Kind::Invalid);
    assert!(error.message().contains("no column `p`, by which the table is partitioned"), "{error}");
    let nulls: ArrayRef = Arc::new(NullArray::new(1));
    let rows = conformer.conform(&batch(vec![("P", nulls)])).unwrap();
    assert_eq!(rows.columns().iter().map(show).collect::<Vec<_>>(), ["null", "null"]);
}

#[test]
fn row_numbers_count_from_the_first_batch() {
    let conformer = conformer(&field("c", "byte", true), ColumnMapping::None);
    let rows = batch(vec![("c", long(&[1, 2, 300]))]);
    let error = conformer.conform_from(&rows, 1000).unwrap_err();
    assert!(error.message().contains("row 1002 (the first is 0) of the data has 300"), "{error}");
}

#[test]
fn nulls_in_required_columns() {
    let table = [field("a", "long", false)];
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let got = outcome(&table, &batch(vec![("a", nulls)]));
    assert!(got.contains("`a` may not be null, but 1 of its values are, the first in row 1 (the first is 0)"), "{got}");
    assert!(outcome(&table, &batch(vec![("a", Arc::new(NullArray::new(2)))])).contains("but 2 of its values are"));
    let other = [field("a", "long", false), field("b", "long", true)];
    assert!(outcome(&other, &batch(vec![("b", long(&[1]))])).contains("no column `a`, which may not be null"));
    let dictionary =
        DictionaryArray::<Int32Type>::new(vec![0, 1].into(), Arc::new(Int64Array::from(vec![Some(1), None])));
    assert!(outcome(&table, &batch(vec![("a", Arc::new(dictionary))])).contains("but 1 of its values are"));
}

#[test]
fn columns_the_table_fills() {
    for key in ["CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"] {
        let column = format!(r#"{{"name":"a","type":"long","nullable":true,"metadata":{{"{key}":"1"}}}}"#);
        let table = [column, field("b", "long", true)];
        assert!(
            outcome(&table, &batch(vec![("b", long(&[1]))])).contains("no column `a`, whose value the table defines")
        );
        assert_eq!(outcome(&table, &batch(vec![("a", long(&[2])), ("b", long(&[1]))])), "2 | 1");
    }
}

#[test]
fn void_columns_are_not_stored() {
    let table = [field("v", "void", true), field("a", "long", true)];
    assert_eq!(outcome(&table, &batch(vec![("a", long(&[1]))])), "1");
    assert_eq!(outcome(&table, &batch(vec![("v", Arc::new(NullArray::new(1))), ("a", long(&[1]))])), "1");
    assert!(
        outcome(&table, &batch(vec![("v", long(&[1])), ("a", long(&[1]))])).contains("a void column has only nulls")
    );
    let only = json::parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, field("v", "void", true))).unwrap();
    assert!(matches!(Conformer::new(&only, ColumnMapping::None).unwrap_err().kind(), Kind::Unsupported { .. }));
}

const STRUCT: &str = r#"{"type":"struct","fields":[
    {"name":"x","type":"integer","nullable":false,"metadata":{}},
    {"name":"Y","type":"string","nullable":true,"metadata":{}}]}"#;

fn structs(columns: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>) -> ArrayRef {
    let fields: Fields = columns.iter().map(|(n, a)| Field::new(*n, a.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, a)| a).collect();
    Arc::new(StructArray::new(fields, arrays, nulls.map(NullBuffer::from)))
}

#[test]
fn inside_structs() {
    let table = [field("s", STRUCT, true)];
    let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let y: ArrayRef = Arc::new(StringArray::from(vec!["p", "q"]));
    let check = |columns: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>, expected: &str| {
        let got = outcome(&table, &batch(vec![("s", structs(columns, nulls))]));
        assert!(got.contains(expected), "{got}");
    };
    let all = vec![true, false];
    check(vec![("y", y.clone()), ("X", x.clone())], Some(all.clone()), "{x: 1, Y: p} null");
    check(vec![("x", x.clone())], Some(all.clone()), "{x: 1, Y: } null");
    check(vec![("x", x.clone())], None, "`s.x` may not be null, but 1 of its values");
    check(vec![("y", y.clone())], None, "no column `s.x`, which may not be null");
    check(vec![("x", x.clone()), ("z", y.clone())], Some(all.clone()), "a column `s.z` that the table does not have");
    check(vec![("x", y.clone())], None, "`s.x` is integer in the table and string in the data");
    // Values under a null struct are not checked.
    let out_of_range: ArrayRef = Arc::new(Int64Array::from(vec![1, 1 << 40]));
    check(vec![("x", out_of_range)], Some(all), "{x: 1, Y: } null");
    let got = outcome(&table, &batch(vec![("s", long(&[1]))]));
    assert!(got.contains("`s` is struct<x: integer, Y: string> in the table and long in the data"), "{got}");
}

const LIST: &str = r#"{"type":"array","elementType":"integer","containsNull":false}"#;
const LISTS: &str =
    r#"{"type":"array","elementType":{"type":"array","elementType":"long","containsNull":true},"containsNull":true}"#;

#[test]
fn inside_lists() {
    let mut builder = ListBuilder::new(Int32Builder::new());
    builder.append_value([Some(1), Some(2)]);
    builder.append_null();
    builder.append_value([]);
    let list = builder.finish();
    let large = arrow_cast::cast(&list, &A::LargeList(Arc::new(Field::new("x", A::Int64, true)))).unwrap();
    let view = arrow_cast::cast(&list, &A::ListView(Arc::new(Field::new("x", A::Int16, true)))).unwrap();
    check(LIST, list.clone(), "[1, 2] null []");
    check(LIST, large.as_list::<i64>().clone(), "[1, 2] null []");
    check(LIST, view.as_list_view::<i32>().clone(), "[1, 2] null []");
    let fixed = FixedSizeListArray::new(
        Arc::new(Field::new("item", A::Int32, true)),
        2,
        Arc::new(Int32Array::from(vec![Some(1), Some(2), None, None])),
        Some(NullBuffer::from(vec![true, false])),
    );
    check(LIST, fixed, "[1, 2] null");
    // Elements under a null list are not values.
    let hidden = ListArray::new(
        Arc::new(Field::new("item", A::Int32, true)),
        OffsetBuffer::from_lengths([1, 2, 1]),
        Arc::new(Int32Array::from(vec![Some(7), None, None, Some(8)])),
        Some(NullBuffer::from(vec![true, false, true])),
    );
    check(LIST, hidden, "[7] null [8]");
    let table = [field("c", LIST, true)];
    let mut builder = ListBuilder::new(Int32Builder::new());
    builder.append_value([None]);
    let got = outcome(&table, &batch(vec![("c", Arc::new(builder.finish()))]));
    assert!(got.contains("`c.element` may not be null"), "{got}");
    let mut outer = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    outer.values().append_value([Some(1), None]);
    outer.values().append_null();
    outer.append(true);
    check(LISTS, outer.finish(), "[[1, ], ]");
    let got = outcome(&table, &batch(vec![("c", long(&[1]))]));
    assert!(got.contains("`c` is array<integer> in the table and long in the data; pass a list"), "{got}");
}

#[test]
fn inside_maps() {
    let map = r#"{"type":"map","keyType":"string","valueType":"long","valueContainsNull":false}"#;
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    builder.keys().append_value("k");
    builder.values().append_value(1);
    builder.append(true).unwrap();
    builder.append(false).unwrap();
    check(map, builder.finish(), "{k: 1} null");
    builder.keys().append_value("k");
    builder.values().append_null();
    builder.append(true).unwrap();
    let got = outcome(&[field("c", map, true)], &batch(vec![("c", Arc::new(builder.finish()))]));
    assert!(got.contains("`c.value` may not be null"), "{got}");
    let got = outcome(&[field("c", map, true)], &batch(vec![("c", long(&[1]))]));
    assert!(got.contains("`c` is map<string, long> in the table and long in the data"), "{got}");
}

#[test]
fn variants() {
    let binary = |bytes: &[u8]| -> ArrayRef { Arc::new(BinaryArray::from(vec![bytes])) };
    let views: ArrayRef = Arc::new(BinaryViewArray::from(vec![b"\x0c\x07".as_slice()]));
    let column = [field("c", "variant", true)];
    let both = structs(vec![("value", views), ("metadata", binary(b"\x01\0\0"))], None);
    assert_eq!(outcome(&column, &batch(vec![("c", both)])), "{metadata: 010000, value: 0c07}");
    for (value, metadata) in [(b"\x0c".as_slice(), b"\x01\0\0".as_slice()), (b"\x0c\x07", b"\x07"), (b"", b"\x01\0\0")]
    {
        let broken = structs(vec![("value", binary(value)), ("metadata", binary(metadata))], None);
        let got = outcome(&column, &batch(vec![("c", broken)]));
        assert!(got.contains("`c` is variant in the table; row 0") && got.contains("is not a variant"), "{got}");
    }
}

#[test]
fn shredded_variants() {
    let column = [field("c", "variant", true)];
    let json = [Some(r#"{"a": 7, "b": "x"}"#), None, Some(r#"{"a": "no number"}"#), Some("[1.5]")];
    let plain = json_to_variant(&(Arc::new(StringArray::from(json.to_vec())) as ArrayRef)).unwrap();
    let fields = A::Struct(vec![Field::new("a", A::Int64, true)].into());
    let list = A::List(Arc::new(Field::new("element", A::Float64, true)));
    for typed in [fields, list, A::Utf8] {
        let shredded: ArrayRef = Arc::new(shred_variant(&plain, &typed).unwrap().into_inner());
        assert!(shredded.as_struct().column_by_name("typed_value").is_some(), "{typed}");
        let rows = conformer(&column[0], ColumnMapping::None).conform(&batch(vec![("c", shredded)])).unwrap();
        let written = variant_to_json(rows.column(0)).unwrap();
        let expected = variant_to_json(&(Arc::new(plain.inner().clone()) as ArrayRef)).unwrap();
        assert_eq!(written, expected, "{typed}");
        assert_eq!(rows.column(0).as_struct().num_columns(), 2);
    }
    let binary = |bytes: &[u8]| -> ArrayRef { Arc::new(BinaryArray::from(vec![bytes])) };
    let parts = |value: &[u8], typed| vec![("metadata", binary(b"\x01\0\0")), ("value", binary(value)), typed];
    // Both parts of a value that is not an object, a truncated value, and a type that variants do not have.
    let halves: ArrayRef = Arc::new(UInt8Array::from(vec![1]));
    for (value, typed) in [(b"\x0c\x07".as_slice(), long(&[1])), (b"\x14", long(&[1])), (b"\x0c\x07", halves)] {
        let got = outcome(&column, &batch(vec![("c", structs(parts(value, ("typed_value", typed)), None))]));
        assert!(got.contains("`c` is variant in the table") && got.contains("do not make variants"), "{got}");
    }
}

#[test]
fn json_becomes_variants() {
    let column = [field("c", "variant", true)];
    let texts = vec![Some("7"), None, Some("null"), Some(r#"{"b": [1.5, "x"], "a": true}"#)];
    let layouts: [ArrayRef; 3] = [
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts.clone())),
        Arc::new(StringViewArray::from(texts)),
    ];
    for texts in layouts {
        let conformer = conformer(&column[0], ColumnMapping::None);
        let rows = conformer.conform(&batch(vec![("c", texts)])).unwrap();
        let variants = rows.column(0).as_struct();
        let read = |row: usize| {
            let part = |name: &str| variants.column_by_name(name).unwrap().as_binary::<i32>().value(row);
            Variant::try_new(part("metadata"), part("value")).unwrap()
        };
        assert_eq!((0..4).map(|row| variants.is_null(row)).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!((read(0), read(2)), (Variant::from(7_i8), Variant::Null));
        let object = read(3);
        let object = object.as_object().unwrap();
        assert_eq!(object.get("a"), Some(Variant::from(true)));
        assert_eq!(object.get("b").unwrap().as_list().unwrap().get(1), Some(Variant::from("x")));
    }
    let broken: ArrayRef = Arc::new(StringArray::from(vec!["1", "{", "2"]));
    let got = outcome(&column, &batch(vec![("c", broken)]));
    assert!(got.contains("`c` is variant in the table; row 1") && got.contains("is not JSON"), "{got}");
}

#[test]
fn shapes() {
    fn shape(code: u32, rest: &[&[u8]]) -> Vec<u8> {
        [&[1_u8][..], &code.to_le_bytes(), &rest.concat()].concat()
    }
    let (count, xy) = (|n: u32| n.to_le_bytes(), [0_u8; 16]);
    let point = shape(1, &[&xy]);
    let big_endian = [&[0_u8, 0, 0, 0, 1][..], &xy].concat();
    let line = shape(2, &[&count(2), &xy, &xy]);
    let good = [
        point.clone(),
        big_endian.clone(),
        line.clone(),
        shape(3, &[&count(1), &count(3), &xy, &xy, &xy]),
        shape(1001, &[&xy, &xy[..8]]),
        shape(3001, &[&xy, &xy]),
        shape(4, &[&count(2), &point, &big_endian]),
        shape(5, &[&count(1), &line]),
        shape(7, &[&count(2), &shape(7, &[&count(0)]), &line]),
        shape(7, &[&count(0)]),
    ];
    let mut deep = shape(7, &[&count(0)]);
    for _ in 0..100 {
        deep = shape(7, &[&count(1), &deep]);
    }
    let bad = [
        (vec![], "cut off"),
        (b"POINT (1 2)".to_vec(), "byte order"),
        (point[..20].to_vec(), "cut off"),
        ([&point[..], b"x"].concat(), "bytes follow"),
        (shape(8, &[&xy]), "type is not known"),
        (shape(4001, &[&xy]), "type is not known"),
        (shape(0x2000_0001, &[&count(4326), &xy]), "EWKB"),
        (shape(2, &[&count(u32::MAX)]), "cut off"),
        (shape(4, &[&count(u32::MAX), &point]), "cut off"),
        (shape(4, &[&count(1), &line]), "another type"),
        (deep, "nest too deep"),
    ];
    for kind in ["geometry(OGC:CRS84)", "geography(OGC:CRS84, spherical)"] {
        let column = [field("c", kind, true)];
        let of = |bytes: &[u8]| -> ArrayRef { Arc::new(LargeBinaryArray::from_opt_vec(vec![None, Some(bytes)])) };
        for bytes in &good {
            let got = outcome(&column, &batch(vec![("c", of(bytes))]));
            assert!(got.starts_with("null 0"), "{bytes:?}: {got}");
        }
        for (bytes, part) in &bad {
            let got = outcome(&column, &batch(vec![("c", of(bytes))]));
            assert!(
                got.contains("row 1") && got.contains("well-known binary") && got.contains(part),
                "{bytes:?}: {got}"
            );
        }
    }
}

#[test]
fn mapped_columns_get_physical_names_and_field_ids() {
    let mapped = |name: &str, id: u32, data_type: &str| {
        format!(
            r#"{{"name":"{name}","type":{data_type},"nullable":true,"metadata":
               {{"delta.columnMapping.id":{id},"delta.columnMapping.physicalName":"col-{id}","comment":"x"}}}}"#
        )
    };
    let inner = format!(r#"{{"type":"struct","fields":[{}]}}"#, mapped("b", 2, r#""long""#));
    let list = format!(r#"{{"type":"array","elementType":{inner},"containsNull":true}}"#);
    let conformer = conformer(&mapped("a", 1, &list), ColumnMapping::Name);
    let a = conformer.schema().field(0);
    assert_eq!((a.name().as_str(), a.metadata()["PARQUET:field_id"].as_str(), a.metadata().len()), ("col-1", "1", 1));
    let A::List(element) = a.data_type() else { panic!("{a}") };
    let A::Struct(fields) = element.data_type() else { panic!("{a}") };
    assert_eq!((fields[0].name().as_str(), fields[0].metadata()["PARQUET:field_id"].as_str()), ("col-2", "2"));
    let rows = structs(vec![("b", long(&[5]))], None);
    let list = ListArray::new(
        Arc::new(Field::new("item", rows.data_type().clone(), true)),
        OffsetBuffer::from_lengths([1]),
        rows,
        None,
    );
    let rows = conformer.conform(&batch(vec![("a", Arc::new(list))])).unwrap();
    assert_eq!(show(rows.column(0)), "[{col-2: 5}]");
}

/// A column with this name, physical name and id, and nested ids.
fn mapped(name: &str, (physical, id): (&str, u32), data_type: &str, nested: &str) -> String {
    format!(
        r#"{{"name":"{name}","type":{data_type},"nullable":true,"metadata":{{"delta.columnMapping.id":{id},
           "delta.columnMapping.physicalName":"{physical}","delta.columnMapping.nested.ids":{{{nested}}}}}}}"#
    )
}

#[test]
fn elements_keys_and_values_get_nested_field_ids() {
    let array = |of: &str| format!(r#"{{"type":"array","elementType":{of},"containsNull":true}}"#);
    let inner = mapped("x", ("col-x", 3), &array(r#""long""#), r#""col-x.element":12"#);
    let value = array(&format!(r#"{{"type":"struct","fields":[{inner}]}}"#));
    let map = format!(r#"{{"type":"map","keyType":"string","valueType":{value},"valueContainsNull":true}}"#);
    let nested = r#""col-m.key":9,"col-m.value":10,"col-m.value.element":11,"elsewhere":99"#;
    let conformer = conformer(&mapped("m", ("col-m", 1), &map, nested), ColumnMapping::Id);
    fn walk(field: &Field, found: &mut Vec<String>) {
        found.push(format!("{} {}", field.name(), field.metadata().get("PARQUET:field_id").map_or("-", |id| id)));
        match field.data_type() {
            A::Struct(fields) => fields.iter().for_each(|field| walk(field, found)),
            A::List(inner) | A::Map(inner, _) => walk(inner, found),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(conformer.schema().field(0), &mut found);
    assert_eq!(
        found,
        ["col-m 1", "key_value -", "key 9", "value 10", "element 11", "col-x 3", "element 12"].map(str::to_owned)
    );
}

#[test]
fn a_mapping_that_is_not_unique_is_refused() {
    let plain = |name: &str, physical: &str, id: u32| mapped(name, (physical, id), r#""long""#, "");
    let strukt = |name: &str, physical: &str, id: u32, inner: &str| {
        mapped(name, (physical, id), &format!(r#"{{"type":"struct","fields":[{inner}]}}"#), "")
    };
    let refusal = |fields: &[String]| {
        let schema = json::parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))).unwrap();
        check_mapped(&schema, ColumnMapping::Name).map_err(|e| e.message().to_owned())
    };
    assert_eq!(refusal(&[plain("a", "x", 1), strukt("s", "y", 2, &plain("b", "x", 3))]), Ok(()));
    let twice = refusal(&[plain("a", "x", 1), plain("b", "x", 2)]).unwrap_err();
    assert_eq!(twice, "the columns `a` and `b` have one physical name, `x`");
    let twice = refusal(&[plain("a", "x", 1), strukt("s", "y", 2, &plain("b", "x", 1))]).unwrap_err();
    assert_eq!(twice, "the columns `a` and `s.b` have one id, 1");
    let without = plain("a", "x", 1).replace("delta.columnMapping.id", "id");
    assert!(refusal(&[without]).unwrap_err().contains("column `a` has no `delta.columnMapping.id`"));
}
