//! Statistics of files written before a type was widened, and of columns whose bounds deltic ignores.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float32Array, Int8Array, Int16Array, Int32Array,
    Int64Array, StringArray, StructArray,
};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::json;
use deltic_protocol::stats::json::complete;
use deltic_protocol::stats::read::{Leaf, LeafBounds, from_json, from_struct};

fn leaf(data_type: &str, was_float: bool) -> Leaf {
    let schema = format!(r#"{{"type":"struct","fields":[{{"name":"c","type":"{data_type}"}}]}}"#);
    let data_type = json::parse(&schema).unwrap().fields[0].data_type.as_primitive().unwrap().clone();
    Leaf { path: vec!["c".to_owned()], data_type, was_float }
}

/// Whether `value` is known to lie between the bounds of the only file; `None` if there are none.
fn holds(bounds: &LeafBounds, value: &str, leaf: &Leaf) -> Option<bool> {
    let value = Scalar::parse(value, &leaf.data_type).unwrap();
    let bound = |array: &ArrayRef| Scalar::from_array(array, 0).unwrap();
    let (min, max) = (bound(&bounds.min), bound(&bounds.max));
    if min == Scalar::Null && max == Scalar::Null {
        return None;
    }
    Some(min.compare(&value).unwrap().is_le() && max.compare(&value).unwrap().is_ge())
}

fn one_struct(name: &str, array: ArrayRef) -> ArrayRef {
    Arc::new(StructArray::try_from(vec![(name, array)]).unwrap())
}

/// The bound in JSON, the current type, whether it was float, the same value as a string.
const WIDENED: [(&str, &str, bool, &str); 9] = [
    ("5", "long", false, "5"),
    ("-7", "short", false, "-7"),
    ("5", "double", false, "5.0"),
    ("1.1", "double", true, "1.100000023841858"),
    ("5", "decimal(12,2)", false, "5.00"),
    ("9007199254740993", "decimal(20,0)", false, "9007199254740993"),
    ("1.50", "decimal(12,4)", false, "1.5000"),
    ("\"2024-02-29\"", "timestamp_ntz", false, "2024-02-29 00:00:00"),
    ("\"2024-02-29T00:00:00.000\"", "timestamp_ntz", false, "2024-02-29 00:00:00"),
];

#[test]
fn json_bounds_of_a_narrower_type_keep_their_value() {
    for (text, data_type, was_float, value) in WIDENED {
        let stats = format!(
            r#"{{"numRecords":1,"minValues":{{"c":{text}}},"maxValues":{{"c":{text}}},"nullCount":{{"c":0}}}}"#
        );
        let leaf = leaf(data_type, was_float);
        let columns = from_json(&StringArray::from(vec![stats]), std::slice::from_ref(&leaf)).unwrap();
        assert_eq!(holds(&columns.leaves[0], value, &leaf), Some(true), "{text} as {data_type}");
    }
}

#[test]
fn typed_bounds_of_a_narrower_type_keep_their_value_or_are_unknown() {
    let decimal = |value| Decimal128Array::from(vec![value]).with_precision_and_scale(5, 2).unwrap();
    let cases: Vec<(ArrayRef, &str, bool, &str, bool)> = vec![
        (Arc::new(Int8Array::from(vec![5])), "integer", false, "5", true),
        (Arc::new(Int16Array::from(vec![5])), "long", false, "5", true),
        (Arc::new(Int32Array::from(vec![-5])), "long", false, "-5", true),
        (Arc::new(Int32Array::from(vec![5])), "double", false, "5.0", true),
        (Arc::new(Int32Array::from(vec![5])), "decimal(12,2)", false, "5", true),
        (Arc::new(Int64Array::from(vec![i64::MAX])), "decimal(20,0)", false, "9223372036854775807", true),
        (Arc::new(decimal(150)), "decimal(12,4)", false, "1.5", true),
        (Arc::new(Date32Array::from(vec![1])), "timestamp_ntz", false, "1970-01-02 00:00:00", true),
        (Arc::new(Float32Array::from(vec![1.1])), "double", true, "1.100000023841858", true),
        // Some writers store every integer as a long.
        (Arc::new(Int64Array::from(vec![5])), "integer", false, "5", true),
        // Not a widening of Delta.
        (Arc::new(StringArray::from(vec!["5"])), "long", false, "5", false),
    ];
    for (array, data_type, was_float, value, known) in cases {
        let bounds = one_struct("c", array);
        let stats = StructArray::try_from(vec![
            ("numRecords", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
            ("minValues", bounds.clone()),
            ("maxValues", bounds),
        ]);
        let leaf = leaf(data_type, was_float);
        let columns = from_struct(&stats.unwrap(), std::slice::from_ref(&leaf)).unwrap();
        assert_eq!(holds(&columns.leaves[0], value, &leaf), known.then_some(true), "{value} as {data_type}");
    }
}

#[test]
fn geometries_and_void_have_null_counts_but_no_bounds() {
    for data_type in ["geometry(OGC:CRS84)", "geography(OGC:CRS84, spherical)", "void", "binary"] {
        let leaf = leaf(data_type, false);
        for bound in [r#""POINT(1 2)""#, r#"{"x":1,"y":[2]}"#, "7", "null"] {
            let stats = format!(
                r#"{{"numRecords":3,"minValues":{{"c":{bound}}},"maxValues":{{"c":{bound}}},"nullCount":{{"c":2}}}}"#
            );
            let columns = from_json(&StringArray::from(vec![stats]), std::slice::from_ref(&leaf)).unwrap();
            let bounds = &columns.leaves[0];
            assert!(bounds.min.is_empty() || bounds.min.logical_null_count() == 1, "{data_type} {bound}");
            assert!(bounds.max.logical_null_count() == 1, "{data_type} {bound}");
            assert_eq!((columns.num_records.value(0), bounds.null_count.value(0)), (3, 2), "{data_type} {bound}");
        }
        let bounds = one_struct("c", Arc::new(BinaryArray::from(vec![&b"x"[..]])));
        let nulls = one_struct("c", Arc::new(Int64Array::from(vec![1])));
        let stats =
            StructArray::try_from(vec![("minValues", bounds.clone()), ("maxValues", bounds), ("nullCount", nulls)]);
        let columns = from_struct(&stats.unwrap(), &[leaf]).unwrap();
        assert_eq!(columns.leaves[0].min.logical_null_count(), 1, "{data_type}");
        assert_eq!(columns.leaves[0].null_count.value(0), 1, "{data_type}");
        assert!(columns.leaves[0].max.as_string_opt::<i32>().is_none());
    }
}

#[test]
fn typed_bounds_are_printed_in_pairs() {
    let stats = |min: ArrayRef, max: Option<ArrayRef>| {
        let mut members = vec![("numRecords", Arc::new(Int64Array::from(vec![1])) as ArrayRef)];
        members.push(("minValues", one_struct("c", min)));
        members.extend(max.map(|max| ("maxValues", one_struct("c", max))));
        let stats = StructArray::try_from(members).unwrap();
        complete(None::<&StringArray>, &stats).unwrap().value(0).to_owned()
    };
    let day = |day: i32| Arc::new(Date32Array::from(vec![day])) as ArrayRef;
    let both = r#"{"numRecords":1,"minValues":{"c":"1970-01-02"},"maxValues":{"c":"1970-01-03"}}"#;
    assert_eq!(stats(day(1), Some(day(2))), both);
    assert_eq!(stats(day(1), Some(day(4_000_000))), r#"{"numRecords":1}"#);
    // A single bound in the source is printed alone.
    assert_eq!(stats(day(1), None), r#"{"numRecords":1,"minValues":{"c":"1970-01-02"}}"#);
}
