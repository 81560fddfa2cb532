//! Shredded variants are read back unchanged. Rows are compared as JSON.

use arrow_array::temporal_conversions::{timestamp_ns_to_datetime, timestamp_us_to_datetime};
use arrow_array::{Int64Array, MapArray, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::TimeUnit;
use parquet_variant::{Variant, VariantBuilder, VariantDecimal4, VariantDecimal8, VariantDecimal16};
use parquet_variant_compute::{VariantArray, VariantArrayBuilder, json_to_variant, shred_variant, variant_to_json};

use super::*;

fn variants(json: &[Option<&str>]) -> VariantArray {
    let text: ArrayRef = Arc::new(StringArray::from(json.to_vec()));
    json_to_variant(&text).unwrap()
}

fn shred(plain: &VariantArray, data_type: &ArrowType) -> ArrayRef {
    Arc::new(shred_variant(plain, data_type).unwrap().into_inner())
}

/// The variants of a column or nested column that was read.
fn read_back(array: &ArrayRef) -> VariantArray {
    assert_eq!(array.data_type(), &variant_type(), "an unshredded variant");
    let array = array.as_struct();
    for part in array.columns() {
        assert!(part.null_count() <= array.null_count(), "parts are not null where the variant is not");
    }
    VariantArray::try_new(array).unwrap()
}

fn variant_type() -> ArrowType {
    ArrowType::Struct(Fields::from(vec![
        Field::new("metadata", ArrowType::Binary, false),
        Field::new("value", ArrowType::Binary, false),
    ]))
}

fn as_json(variants: &VariantArray) -> Vec<String> {
    let text: ArrayRef = Arc::new(variants.inner().clone());
    variant_to_json(&text).unwrap().iter().map(|row| row.unwrap_or("NULL").to_owned()).collect()
}

fn object(fields: &[(&str, ArrowType)]) -> ArrowType {
    ArrowType::Struct(fields.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect())
}

fn list(element: ArrowType) -> ArrowType {
    ArrowType::List(Arc::new(Field::new("item", element, true)))
}

#[test]
fn shredded_variants_round_trip() {
    let rows = [
        Some(r#"{"a":1,"b":"x","c":[1,2]}"#),
        None,
        Some("null"),
        Some("7"),
        Some(r#""a text that is too long for the short form, which holds no more than 63 bytes""#),
        Some(r#"{"a":"other type","d":{"e":null,"f":[true,{"g":1.5}]}}"#),
        Some("{}"),
        Some(r#"{"b":null}"#),
        Some(r#"[1,"two",[3],{"a":4},null]"#),
        Some("[]"),
        Some(r#"{"c":[],"d":{"e":2,"h":3}}"#),
    ];
    let plain = variants(&rows);
    let expected: Vec<String> = rows.iter().map(|row| row.unwrap_or("NULL").to_owned()).collect();
    for data_type in [
        ArrowType::Int64,
        ArrowType::Utf8,
        object(&[("a", ArrowType::Int64)]),
        object(&[("b", ArrowType::Utf8), ("zebra", ArrowType::Boolean)]),
        object(&[
            ("d", object(&[("e", ArrowType::Int8), ("f", list(ArrowType::Boolean))])),
            ("c", list(ArrowType::Int64)),
        ]),
        list(ArrowType::Int64),
        list(object(&[("a", ArrowType::Int64)])),
    ] {
        let mut lake = Lake::new(&[("n", "integer"), ("v", "variant")]);
        let columns = vec![("n", ints(0..11)), ("v", shred(&plain, &data_type))];
        lake.file_in_groups(columns, 4);
        let read: Vec<String> =
            lake.batches(&["v"], None).unwrap().iter().flat_map(|b| as_json(&read_back(b.column(0)))).collect();
        assert_eq!(read, expected, "{data_type}");
        // Also after a predicate, and with deleted rows.
        lake.tasks[0].deletion_vector = delete([3, 5]);
        let read: Vec<String> = lake
            .batches(&["v"], Some("n >= 3"))
            .unwrap()
            .iter()
            .flat_map(|b| as_json(&read_back(b.column(0))))
            .collect();
        assert_eq!(read, [&expected[4..5], &expected[6..]].concat(), "{data_type}");
        lake.check(&["n"], Some("v is null"), &["1"]);
    }
}

#[test]
fn all_shredded_types_are_read() {
    let micros = timestamp_us_to_datetime(1_709_210_096_789_012).unwrap();
    let nanos = timestamp_ns_to_datetime(1_709_210_096_789_012_345).unwrap();
    let cases: Vec<(Variant<'_, '_>, ArrowType)> = vec![
        (Variant::BooleanTrue, ArrowType::Boolean),
        (Variant::Int8(-8), ArrowType::Int8),
        (Variant::Int16(-1600), ArrowType::Int16),
        (Variant::Int32(1 << 20), ArrowType::Int32),
        (Variant::Int64(1 << 40), ArrowType::Int64),
        (Variant::Float(1.5), ArrowType::Float32),
        (Variant::Double(-2.5), ArrowType::Float64),
        (Variant::Decimal4(VariantDecimal4::try_new(-1234, 2).unwrap()), ArrowType::Decimal32(9, 2)),
        (Variant::Decimal8(VariantDecimal8::try_new(1 << 40, 3).unwrap()), ArrowType::Decimal64(18, 3)),
        (Variant::Decimal16(VariantDecimal16::try_new(1 << 80, 4).unwrap()), ArrowType::Decimal128(38, 4)),
        (Variant::Date(micros.date()), ArrowType::Date32),
        (Variant::Time(micros.time()), ArrowType::Time64(TimeUnit::Microsecond)),
        (Variant::TimestampNtzMicros(micros), ArrowType::Timestamp(TimeUnit::Microsecond, None)),
        (Variant::TimestampMicros(micros.and_utc()), ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        (Variant::TimestampNtzNanos(nanos), ArrowType::Timestamp(TimeUnit::Nanosecond, None)),
        (Variant::TimestampNanos(nanos.and_utc()), ArrowType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))),
        (Variant::from("text"), ArrowType::Utf8),
        (Variant::Binary(b"\x00\xff"), ArrowType::Binary),
        (Variant::Uuid(uuid::Uuid::from_u128(7)), ArrowType::FixedSizeBinary(16)),
    ];
    for (value, data_type) in cases {
        let mut builder = VariantArrayBuilder::new(2);
        builder.append_variant(value.clone());
        builder.append_variant(Variant::Null);
        let shredded = shred(&builder.build(), &data_type);
        assert_eq!(shredded.as_struct().column_by_name("typed_value").unwrap().null_count(), 1, "{data_type} took it");
        let mut lake = Lake::new(&[("v", "variant")]);
        lake.file(vec![("v", shredded)]);
        let batches = lake.batches(&["v"], None).unwrap();
        let read = read_back(batches[0].column(0));
        assert_eq!((read.value(0), read.value(1)), (value, Variant::Null), "{data_type}");
    }
}

/// In structs, lists and maps.
#[test]
fn nested_shredded_variants_are_read() {
    let json = [r#"{"a":1,"b":[]}"#, r#"{"a":"x"}"#, "5", "null"];
    let shredded = || shred(&variants(&json.map(Some)), &object(&[("a", ArrowType::Int64)]));
    let inner = |name: &str| Arc::new(Field::new(name, shredded().data_type().clone(), true));
    let fields = Fields::from(vec![inner("v").as_ref().clone(), Field::new("n", ArrowType::Int32, true)]);
    let structs =
        StructArray::new(fields, vec![shredded(), ints(0..4)], Some(NullBuffer::from(vec![true, true, false, true])));
    let offsets = || OffsetBuffer::from_lengths([2, 0, 0, 2]);
    let lists = ListArray::new(inner("element"), offsets(), shredded(), None);
    let entries = Fields::from(vec![Field::new("key", ArrowType::Utf8, false), inner("value").as_ref().clone()]);
    let entries = StructArray::new(entries, vec![strings(["a", "b", "c", "d"]), shredded()], None);
    let map_field = Arc::new(Field::new("key_value", entries.data_type().clone(), false));
    let maps = MapArray::new(map_field, offsets(), entries, None, false);

    let column = |name: &str| json!({"name": name, "type": "variant", "nullable": true, "metadata": {}});
    let struct_type = json!({"type": "struct", "fields": [column("v")]}).to_string();
    let list_type = json!({"type": "array", "elementType": "variant", "containsNull": true}).to_string();
    let map_type = json!({"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": true});
    let mut lake = Lake::new(&[("s", &struct_type), ("l", &list_type), ("m", &map_type.to_string())]);
    lake.file(vec![("s", Arc::new(structs)), ("l", Arc::new(lists)), ("m", Arc::new(maps))]);

    let batches = lake.batches(&["m", "s", "l"], None).unwrap();
    let [m, s, l] = batches[0].columns() else { panic!() };
    assert_eq!(as_json(&read_back(m.as_map().values())), json);
    assert_eq!(as_json(&read_back(l.as_list::<i32>().values())), json);
    assert_eq!(l.as_list::<i32>().offsets(), &offsets());
    assert!(s.is_null(2));
    let read = as_json(&read_back(s.as_struct().column(0)));
    assert_eq!([&read[0], &read[1], &read[3]], [json[0], json[1], json[3]]);
}

/// A struct of nullable columns.
fn group(columns: Vec<(&str, ArrayRef)>) -> ArrayRef {
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    Arc::new(StructArray::new(fields, columns.into_iter().map(|(_, array)| array).collect(), None))
}

fn bytes(rows: &[Option<&[u8]>]) -> ArrayRef {
    Arc::new(BinaryArray::from(rows.to_vec()))
}

fn longs(rows: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(rows.to_vec()))
}

/// A dictionary with these names.
fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut builder = VariantBuilder::new().with_field_names(names);
    builder.append_value(Variant::Null);
    builder.finish().0
}

fn lake_of(column: ArrayRef) -> Lake {
    let mut lake = Lake::new(&[("v", "variant")]);
    lake.file(vec![("v", column)]);
    lake
}

const NULL: &[u8] = &[0];
const SEVEN: &[u8] = &[0b1100, 7];

#[test]
fn shredded_columns_may_be_missing_and_in_any_order() {
    let metadata = names(["a"]);
    let metadata = || bytes(&[Some(&metadata), Some(&metadata)]);
    let longs = || longs(&[Some(5), None]);
    for (column, expected) in [
        (group(vec![("typed_value", longs()), ("metadata", metadata())]), ["5", "null"]),
        (
            group(vec![("typed_value", longs()), ("value", bytes(&[None, Some(SEVEN)])), ("metadata", metadata())]),
            ["5", "7"],
        ),
        (
            group(vec![
                ("metadata", metadata()),
                ("typed_value", group(vec![("a", group(vec![("typed_value", longs())]))])),
            ]),
            [r#"{"a":5}"#, "{}"],
        ),
    ] {
        let batches = lake_of(column).batches(&["v"], None).unwrap();
        assert_eq!(as_json(&read_back(batches[0].column(0))), expected);
    }
}

/// `{"a": <value>}`, and the dictionary of its names.
fn object_a(value: Variant<'_, '_>) -> (Vec<u8>, Vec<u8>) {
    let mut builder = VariantBuilder::new();
    let mut object = builder.new_object();
    object.insert("a", value);
    object.finish();
    builder.finish()
}

#[test]
fn contradictory_shredding_is_corrupt() {
    let (metadata, object) = object_a(Variant::Int8(1));
    let with = |value: &[u8], typed: ArrayRef| {
        group(vec![("metadata", bytes(&[Some(&metadata)])), ("value", bytes(&[Some(value)])), ("typed_value", typed)])
    };
    let a = |columns| group(vec![("a", group(columns))]);
    // Two values, a duplicate field, fields of a value that is not an object.
    lake_of(with(SEVEN, longs(&[Some(5)]))).check_corrupt(&["v"], &["column `v`"]);
    lake_of(with(&object, a(vec![("typed_value", longs(&[Some(5)]))]))).check_corrupt(&["v"], &["column `v`"]);
    lake_of(with(SEVEN, a(vec![("typed_value", longs(&[Some(5)]))]))).check_corrupt(&["v"], &["column `v`"]);
    // A name that is not in the dictionary.
    let nameless = group(vec![("b", group(vec![("typed_value", longs(&[Some(5)]))]))]);
    lake_of(with(&object, nameless)).check_corrupt(&["v"], &[]);
    // Types that variants do not have, and columns that are not shredded fields.
    lake_of(with(NULL, Arc::new(UInt64Array::from(vec![1])))).check_corrupt(&["v"], &["column `v`"]);
    lake_of(with(NULL, group(vec![("a", longs(&[Some(5)]))]))).check_corrupt(&["v"], &["column `v`"]);
    let texts = group(vec![
        ("metadata", bytes(&[Some(&metadata)])),
        ("value", strings(["x"])),
        ("typed_value", longs(&[None])),
    ]);
    lake_of(texts).check_corrupt(&["v"], &["column `v`"]);
    lake_of(group(vec![("typed_value", longs(&[Some(5)]))])).check_corrupt(&["v"], &["`v` lacks `metadata`"]);
    lake_of(group(vec![("metadata", bytes(&[Some(b"")])), ("typed_value", longs(&[Some(5)]))]))
        .check_corrupt(&["v"], &["column `v`"]);
}

/// An array of one element, `depth` times.
fn nested(depth: usize) -> Vec<u8> {
    let mut value = NULL.to_vec();
    for _ in 0..depth {
        // Offsets of four bytes.
        let mut outer = vec![0b1111, 1, 0, 0, 0, 0];
        outer.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        outer.extend(value);
        value = outer;
    }
    value
}

#[test]
fn hostile_values_are_corrupt() {
    let metadata = names(["a", "b"]);
    let with = |value: &[u8]| {
        let (metadata, value) = (bytes(&[Some(&metadata)]), bytes(&[Some(value)]));
        lake_of(group(vec![("metadata", metadata), ("value", value), ("typed_value", longs(&[None]))]))
    };
    assert!(with(&nested(100)).rows(&["v"], None).is_ok());
    with(&nested(200)).check_corrupt(&["v"], &["column `v`"]);
    with(&nested(100_000)).check_corrupt(&["v"], &["column `v`"]);
    with(b"").check_corrupt(&["v"], &["column `v`"]);
    // An object whose two fields are the same bytes, at each level.
    let mut bomb = NULL.to_vec();
    for _ in 0..60 {
        let mut outer = vec![0b1110, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        outer.extend(u32::try_from(bomb.len()).unwrap().to_le_bytes());
        outer.extend(bomb);
        bomb = outer;
    }
    with(&bomb).check_corrupt(&["v"], &["column `v`"]);
}

/// Nested as deep as a file may be, in typed columns and then in bytes.
#[test]
fn deep_shredding_does_not_exhaust_the_stack() {
    let (metadata, _) = object_a(Variant::Null);
    let mut typed = group(vec![("value", bytes(&[Some(&nested(100))]))]);
    for _ in 0..38 {
        typed = group(vec![("typed_value", group(vec![("a", typed)]))]);
    }
    let typed_value = Arc::clone(typed.as_struct().column(0));
    let lake = lake_of(group(vec![("metadata", bytes(&[Some(&metadata)])), ("typed_value", typed_value)]));
    assert_eq!(lake.rows(&["v"], None).unwrap().len(), 1);
}

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-100_i64..100).prop_map(Value::from),
        "[a-z]{0,3}|.{60,70}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn shreddings() -> impl Strategy<Value = ArrowType> {
    let leaf = prop::sample::select(vec![ArrowType::Boolean, ArrowType::Int64, ArrowType::Int8, ArrowType::Utf8]);
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(list),
            prop::collection::btree_map("[a-d]", inner, 1..4).prop_map(|fields| {
                ArrowType::Struct(fields.into_iter().map(|(name, t)| Field::new(name, t, true)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_variant_survives_any_shredding(
        rows in prop::collection::vec(prop::option::weighted(0.9, json_values()), 1..20),
        data_type in shreddings(),
        group_rows in 1_usize..20,
    ) {
        let rows: Vec<Option<String>> = rows.iter().map(|row| row.as_ref().map(Value::to_string)).collect();
        let plain = variants(&rows.iter().map(Option::as_deref).collect::<Vec<_>>());
        let mut lake = Lake::new(&[("v", "variant")]);
        lake.file_in_groups(vec![("v", shred(&plain, &data_type))], group_rows);
        let read: Vec<String> =
            lake.batches(&["v"], None).unwrap().iter().flat_map(|b| as_json(&read_back(b.column(0)))).collect();
        prop_assert_eq!(read, as_json(&plain));
    }

    /// With any bytes changed, a read gives rows or an error that names the file.
    #[test]
    fn damaged_shredding_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let rows = [Some(r#"{"a":1,"b":[1,"x",{"c":null}]}"#), Some(r#"{"a":"y","d":{"e":2}}"#), None, Some("[1]")];
        let shredded = shred(&variants(&rows), &object(&[("a", ArrowType::Int64), ("b", list(ArrowType::Int64))]));
        let batch = RecordBatch::try_from_iter_with_nullable([("v", shredded, true)]).unwrap();
        let mut bytes = encode(&batch, 10);
        let footer = bytes.len() - 8 - u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
        for (at, byte) in changes {
            bytes[at.index(footer)] = byte;
        }
        let mut lake = Lake::new(&[("v", "variant")]);
        lake.add(&bytes);
        if let Err(error) = lake.rows(&["v"], None) {
            prop_assert_eq!(error.kind(), &Kind::Corrupt, "{}", error);
        }
    }
}
