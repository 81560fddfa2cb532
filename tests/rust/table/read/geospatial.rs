//! Geometry and geography columns are read as well-known binary, whatever their type in Parquet.

use parquet::data_type::ByteArrayType;

use super::*;

/// A point at (1, 2), little-endian.
fn point() -> Vec<u8> {
    [&[1, 1, 0, 0, 0][..], &1_f64.to_le_bytes(), &2_f64.to_le_bytes()].concat()
}

const COLUMNS: [(&str, &str); 2] = [("GEOMETRY", "geometry(EPSG:3857)"), ("GEOGRAPHY", "geography(OGC:CRS84, karney)")];

fn lake(message: &str, data_type: &str) -> Lake {
    let mut lake = Lake::new(&[("g", data_type)]);
    lake.add(&raw(message, |column| {
        let rows = [ByteArray::from(point()), ByteArray::from(vec![0xff])];
        column.typed::<ByteArrayType>().write_batch(&rows, Some(&[1, 0, 1]), None).unwrap();
    }));
    lake
}

#[test]
fn geometries_are_read_as_binary_with_their_reference_system() {
    let point: String = point().iter().map(|byte| format!("{byte:02x}")).collect();
    for (logical, data_type) in COLUMNS {
        for message in
            [format!("message m {{ optional binary g ({logical}); }}"), "message m { optional binary g; }".to_owned()]
        {
            let lake = lake(&message, data_type);
            lake.check(&["g"], None, &[&point, "null", "ff"]);
            lake.check(&["g"], Some("g is null"), &["null"]);
            lake.check(&["g"], Some("g is not null"), &[&point, "ff"]);
            let batch = &lake.batches(&["g"], None).unwrap()[0];
            let schema = batch.schema();
            let field = schema.field(0);
            assert_eq!(field.data_type(), &ArrowType::Binary);
            assert_eq!(field.metadata()["delta.type"], data_type);
            assert_eq!(field.extension_type_name(), Some("geoarrow.wkb"));
        }
    }
}

#[test]
fn geometries_inside_other_columns_are_read() {
    let list = json!({"type": "array", "elementType": "geometry(OGC:CRS84)", "containsNull": true}).to_string();
    let mut lake = Lake::new(&[("l", &list)]);
    let message =
        "message m { optional group l (LIST) { repeated group list { optional binary element (GEOMETRY); } } }";
    lake.add(&raw(message, |column| {
        let rows = [ByteArray::from(vec![1]), ByteArray::from(vec![2])];
        column.typed::<ByteArrayType>().write_batch(&rows, Some(&[3, 3]), Some(&[0, 1])).unwrap();
    }));
    lake.check(&["l"], None, &["[01, 02]"]);
    let batch = &lake.batches(&["l"], None).unwrap()[0];
    let schema = batch.schema();
    let ArrowType::List(element) = schema.field(0).data_type() else { panic!("{schema}") };
    assert_eq!(element.metadata()["delta.type"], "geometry(OGC:CRS84)");
    assert_eq!(element.extension_type_name(), Some("geoarrow.wkb"));
}

#[test]
fn geometries_inside_maps_and_structs_keep_their_reference_system() {
    let inner = json!({"type": "struct", "fields": [column("g", "geography(OGC:CRS84, karney)")]});
    let map = json!({"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": true}).to_string();
    let mut lake = Lake::new(&[("m", &map)]);
    let value: ArrayRef = Arc::new(BinaryArray::from_iter_values([point()]));
    let plain = Field::new("g", ArrowType::Binary, true);
    let value = StructArray::new(vec![plain].into(), vec![value], None);
    let entries = Fields::from(vec![
        Field::new("key", ArrowType::Utf8, false),
        Field::new("value", value.data_type().clone(), true),
    ]);
    let entries_field = Arc::new(Field::new("key_value", ArrowType::Struct(entries.clone()), false));
    let entries = StructArray::new(entries, vec![strings(["k"]), Arc::new(value)], None);
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([1]);
    lake.file(vec![("m", Arc::new(arrow_array::MapArray::new(entries_field, offsets, entries, None, false)))]);
    let batch = &lake.batches(&["m"], None).unwrap()[0];
    let value = batch.column(0).as_map().values().as_struct();
    assert_eq!(value.fields()[0].metadata()["delta.type"], "geography(OGC:CRS84, karney)");
    assert_eq!(value.column(0).as_binary::<i32>().value(0), point());
}

#[test]
fn a_geometry_that_is_not_binary_is_corrupt() {
    let mut lake = Lake::new(&[("g", "geometry(OGC:CRS84)")]);
    lake.file(vec![("g", ints([1]))]);
    lake.check_corrupt(&["g"], &["`g` has type integer in the file"]);
}
