//! Splitting rows by partition, and the paths of partitions.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType as A, Field, Schema};
use deltic_protocol::error::Kind;
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};
use deltic_store::decode_path;
use deltic_table::write::layout::{DataPath, file_name, random_prefix};
use deltic_table::write::partition::{PartitionKey, PartitionSplitter};
use proptest::prelude::*;
use uuid::Uuid;

fn key(entries: &[(&str, Option<&str>)]) -> PartitionKey {
    PartitionKey::new(entries.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect())
}

#[track_caller]
fn check_path(entries: &[(&str, Option<&str>)], expected_key: &str, expected_log: &str) {
    let path = DataPath::new(&key(entries), None, "f");
    assert_eq!((path.key.as_str(), path.log.as_str()), (expected_key, expected_log));
}

#[test]
fn paths() {
    check_path(&[], "f", "f");
    check_path(&[("p", Some("1"))], "p=1/f", "p=1/f");
    check_path(
        &[("p", None), ("q", Some("x"))],
        "p=__HIVE_DEFAULT_PARTITION__/q=x/f",
        "p=__HIVE_DEFAULT_PARTITION__/q=x/f",
    );
    check_path(&[("p", Some("a b"))], "p=a b/f", "p=a%20b/f");
    check_path(&[("p", Some("a/b=c:d%"))], "p=a%2Fb%3Dc%3Ad%25/f", "p=a%252Fb%253Dc%253Ad%2525/f");
    check_path(
        &[("p", Some("\"#'*?\\{[]^\u{7F}\n\0"))],
        "p=%22%23%27%2A%3F%5C%7B%5B%5D%5E%7F%0A%00/f",
        "p=%2522%2523%2527%252A%253F%255C%257B%255B%255D%255E%257F%250A%2500/f",
    );
    check_path(&[("p", Some("}<>|`~!@$&()+,;"))], "p=}<>|`~!@$&()+,;/f", "p=%7D%3C%3E%7C%60~!@$&()+,;/f");
    check_path(&[("ü", Some("ä😀"))], "%C3%BC=%C3%A4%F0%9F%98%80/f", "%25C3%25BC=%25C3%25A4%25F0%259F%2598%2580/f");
    check_path(&[("a=b/c", Some(".."))], "a%3Db%2Fc=../f", "a%253Db%252Fc=../f");
    check_path(
        &[("p", Some("2020-01-01T00:00:00.000000Z"))],
        "p=2020-01-01T00%3A00%3A00.000000Z/f",
        "p=2020-01-01T00%253A00%253A00.000000Z/f",
    );
    // Without a partition directory if the name would be too long: directories are only a convention.
    check_path(&[("p", Some(&"x".repeat(300)))], "f", "f");
    check_path(
        &[("p", Some(&"x".repeat(200))), ("q", Some(&"x".repeat(200))), ("r", Some(&"x".repeat(200)))],
        "f",
        "f",
    );
}

#[test]
fn names() {
    let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    assert_eq!(file_name(("part", 7), id, "zstd"), "part-00007-01234567-89ab-cdef-0123-456789abcdef.c000.zstd.parquet");
    assert_eq!(file_name(("part", 123_456), id, ""), "part-123456-01234567-89ab-cdef-0123-456789abcdef.c000.parquet");
    assert_eq!(random_prefix(std::iter::repeat(id), 4), "0123");
    assert_eq!(random_prefix(std::iter::repeat(id), 255).len(), 255);
    assert_eq!(DataPath::new(&key(&[("p", Some("1"))]), Some("01"), "f").key, "01/f");
}

fn schema(data_type: PrimitiveType, nullable: bool) -> StructType {
    StructType::new(vec![
        StructField::new("row", DataType::LONG, true),
        StructField::new("p", DataType::Primitive(data_type), nullable),
    ])
}

/// The partitions of these values, as `value: rows`.
fn split(data_type: PrimitiveType, nullable: bool, values: ArrayRef) -> Result<String, String> {
    let schema = schema(data_type, nullable);
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
    let fields = vec![Field::new("row", A::Int64, true), Field::new("p", values.data_type().clone(), true)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![rows, values]).unwrap();
    let splitter = PartitionSplitter::new(&schema, &["p".to_owned()]).unwrap();
    let parts = splitter.split(&batch).map_err(|e| {
        assert_eq!(e.kind(), &Kind::Invalid);
        e.message().to_owned()
    })?;
    let show = |(key, batch): &(PartitionKey, RecordBatch)| {
        assert_eq!(batch.num_columns(), 1);
        let text = key.to_partition_values()["p"].clone();
        format!(
            "{}: {:?}",
            text.as_deref().unwrap_or("null"),
            batch.column(0).as_primitive::<Int64Type>().values().to_vec()
        )
    };
    Ok(parts.iter().map(show).collect::<Vec<_>>().join(", "))
}

fn strings(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn splitting() {
    let string = |values: &[Option<&str>]| split(PrimitiveType::String, true, strings(values)).unwrap();
    assert_eq!(string(&[]), "");
    assert_eq!(string(&[Some("a"), Some("a")]), "a: [0, 1]");
    assert_eq!(string(&[Some("a"), Some("b"), Some("b")]), "a: [0], b: [1, 2]");
    assert_eq!(string(&[Some("b"), Some("a"), Some("b"), None]), "b: [0, 2], a: [1], null: [3]");
    assert_eq!(string(&[Some(""), Some("x"), None]), "null: [0, 2], x: [1]");
    let doubles =
        |values: &[f64]| split(PrimitiveType::Double, true, Arc::new(Float64Array::from(values.to_vec()))).unwrap();
    assert_eq!(
        doubles(&[0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY]),
        "0.0: [0], -0.0: [1], NaN: [2, 3], Infinity: [4]"
    );
}

#[test]
fn values_without_a_string_form_are_refused() {
    let refused = split(PrimitiveType::String, false, strings(&[Some("")])).unwrap_err();
    assert!(refused.contains("`p`") && refused.contains("an empty string is null"), "{refused}");
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![b"\xFF".as_slice()]));
    let refused = split(PrimitiveType::Binary, true, bytes).unwrap_err();
    assert!(refused.contains("`p`") && refused.contains("UTF-8"), "{refused}");
}

#[test]
fn one_partition_is_not_copied() {
    let schema = schema(PrimitiveType::String, true);
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let columns = vec![rows.clone(), strings(&[Some("a"), Some("a")])];
    let batch = RecordBatch::try_new(Arc::new(to_arrow_schema(&schema)), columns).unwrap();
    let parts = PartitionSplitter::new(&schema, &["p".to_owned()]).unwrap().split(&batch).unwrap();
    let buffer = |array: &ArrayRef| array.as_primitive::<Int64Type>().values().inner().as_ptr();
    assert_eq!(buffer(parts[0].1.column(0)), buffer(&rows));
}

fn any_scalar() -> impl Strategy<Value = (PrimitiveType, Scalar)> {
    use PrimitiveType as P;
    let decimal = P::Decimal { precision: 38, scale: 7 };
    prop_oneof![
        any::<String>().prop_map(|v| (P::String, Scalar::String(v))),
        any::<i8>().prop_map(|v| (P::Byte, Scalar::Byte(v))),
        any::<i64>().prop_map(|v| (P::Long, Scalar::Long(v))),
        any::<f32>().prop_map(|v| (P::Float, Scalar::Float(v))),
        any::<f64>().prop_map(|v| (P::Double, Scalar::Double(v))),
        any::<bool>().prop_map(|v| (P::Boolean, Scalar::Boolean(v))),
        any::<i32>().prop_map(|v| (P::Date, Scalar::Date(v))),
        any::<i64>().prop_map(|v| (P::Timestamp, Scalar::Timestamp(v))),
        any::<i64>().prop_map(|v| (P::TimestampNtz, Scalar::TimestampNtz(v))),
        any::<String>().prop_map(|v| (P::Binary, Scalar::Binary(v.into_bytes()))),
        any::<i64>().prop_map(move |v| {
            let value = Scalar::Decimal { value: i128::from(v) * 1_000_000_007, precision: 38, scale: 7 };
            (decimal.clone(), value)
        }),
    ]
}

proptest! {
    /// A partition value is written as a string that is read as the same value, or refused.
    #[test]
    fn partition_values_read_back((data_type, value) in any_scalar()) {
        let schema = schema(data_type.clone(), true);
        let columns = vec![Arc::new(Int64Array::from(vec![0])) as ArrayRef, value.to_array(&data_type, 1).unwrap()];
        let batch = RecordBatch::try_new(Arc::new(to_arrow_schema(&schema)), columns).unwrap();
        if let Ok(parts) = PartitionSplitter::new(&schema, &["p".to_owned()]).unwrap().split(&batch) {
            let text = parts[0].0.to_partition_values()["p"].clone();
            let read = Scalar::parse_partition(text.as_deref(), &data_type).unwrap();
            let empty = matches!(&value, Scalar::String(v) if v.is_empty()) || matches!(&value, Scalar::Binary(v) if v.is_empty());
            let same = if empty { read == Scalar::Null } else { read.to_string() == value.to_string() || read == value };
            prop_assert!(same, "{:?} became {:?}, which is {:?}", value, text, read);
        } else {
            let odd_year = value.to_string().starts_with(['+', '-']) || value.to_string().starts_with("0000");
            let is_dated = matches!(value, Scalar::Date(_) | Scalar::Timestamp(_) | Scalar::TimestampNtz(_));
            prop_assert!(matches!(value, Scalar::Binary(_)) || (is_dated && odd_year), "{:?}", value);
        }
    }

    #[test]
    fn log_path_decodes_to_key(name in ".{1,8}", value in prop::option::of(any::<String>())) {
        let path = DataPath::new(&key(&[(&name, value.as_deref())]), None, "f");
        prop_assert!(path.key.is_ascii() && path.log.is_ascii(), "{:?}", path);
        prop_assert_eq!(decode_path(&path.log).unwrap(), path.key.clone());
        prop_assert!(is_uri_path(&path.log), "{}", path.log);
        prop_assert!(path.key.split('/').count() <= 2);
    }
}

/// Whether RFC 3986 allows the string as a path.
fn is_uri_path(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(c))
}
