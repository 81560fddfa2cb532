//! Geometry and geography columns are well-known binary whatever Parquet says they are.

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
}

#[test]
fn a_geometry_that_is_no_bytes_is_corrupt() {
    let mut lake = Lake::new(&[("g", "geometry(OGC:CRS84)")]);
    lake.file(vec![("g", ints([1]))]);
    lake.check_corrupt(&["g"], &["`g` is a Int32 in the file"]);
}
