//! The boxes of geometries and geographies: those of given shapes, whatever the batches, and none for bytes that are no shapes.

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use deltic_protocol::scalar::wkb;
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_protocol::schema::json;
use deltic_protocol::stats::collect::{IndexedColumns, StatsCollector};
use proptest::prelude::*;
use serde_json::Value;

const TYPES: [&str; 2] = ["geometry(EPSG:3857)", "geography(OGC:CRS84, karney)"];

/// The bounds of a column of these values, of which each is a batch of its own.
fn bounds(data_type: &str, values: &[Option<&[u8]>]) -> Option<(String, String)> {
    let field = format!(r#"{{"name":"c","type":"{data_type}","nullable":true,"metadata":{{}}}}"#);
    let schema = json::parse(&format!(r#"{{"type":"struct","fields":[{field}]}}"#)).unwrap();
    let arrow = Arc::new(to_arrow_schema(&schema));
    let collected = |batches: &mut dyn Iterator<Item = &[Option<&[u8]>]>| {
        let mut collector = StatsCollector::new(&schema, &IndexedColumns::default());
        for values in batches {
            let batch =
                RecordBatch::try_new(arrow.clone(), vec![Arc::new(BinaryArray::from(values.to_vec()))]).unwrap();
            collector.columns(values.len() as u64).for_each(|mut column| column.update(&batch).unwrap());
        }
        collector.finish()
    };
    let text = collected(&mut values.chunks(1));
    assert_eq!(text, collected(&mut [values].into_iter()), "the result depends on the batches");
    let stats: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stats["nullCount"]["c"], values.iter().filter(|value| value.is_none()).count());
    let corner = |part: &str| stats[part].get("c").map(|corner| corner.as_str().unwrap().to_owned());
    let (min, max) = (corner("minValues"), corner("maxValues"));
    assert_eq!(min.is_some(), max.is_some());
    min.zip(max)
}

fn check(data_type: &str, values: &[Option<&[u8]>], expected: &[&str]) {
    let found = bounds(data_type, values).map_or(Vec::new(), |(min, max)| vec![min, max]);
    assert_eq!(found, expected, "{data_type} {values:?}");
}

fn shape(code: u32, numbers: &[f64]) -> Vec<u8> {
    let count = if code % 1000 == 1 { Vec::new() } else { (numbers.len() as u32 / 2).to_le_bytes().to_vec() };
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    [&[1][..], &code.to_le_bytes(), &count, &numbers].concat()
}

fn collection(shapes: &[Vec<u8>]) -> Vec<u8> {
    [&[1, 7, 0, 0, 0][..], &(shapes.len() as u32).to_le_bytes(), &shapes.concat()].concat()
}

#[test]
fn geometries() {
    let [geometry, _] = TYPES;
    let (here, line, there) = (shape(1, &[1.0, 2.0]), shape(2, &[0.0, 5.0, 9.5, -1.0]), shape(1, &[-200.25, 1e21]));
    check(geometry, &[Some(&here), None], &["POINT(1 2)"; 2]);
    check(geometry, &[Some(&here), Some(&line)], &["POINT(0 -1)", "POINT(9.5 5)"]);
    let large = "POINT(1 1000000000000000000000)";
    check(geometry, &[Some(&collection(&[here.clone(), there]))], &["POINT(-200.25 2)", large]);
    check(geometry, &[Some(&shape(1001, &[1.0, 2.0, 3.0])), Some(&here)], &["POINT(1 2)"; 2]);
    check(geometry, &[Some(&shape(3001, &[1.0, 2.0, 3.0, 4.0]))], &["POINT ZM(1 2 3 4)"; 2]);
    check(geometry, &[Some(&shape(2001, &[1.0, 2.0, 3.0]))], &["POINT M(1 2 3)"; 2]);
    check(geometry, &[Some(&shape(1, &[f64::NAN, f64::NAN])), Some(&here)], &["POINT(1 2)"; 2]);
    check(geometry, &[Some(&shape(1, &[f64::NAN, f64::NAN])), None], &[]);
    check(geometry, &[Some(&shape(1, &[f64::NAN, 1.0])), Some(&here)], &[]);
    check(geometry, &[Some(&shape(2, &[f64::NAN, f64::NAN])), Some(&here)], &[]);
    check(geometry, &[Some(&shape(1, &[1.0, f64::INFINITY])), Some(&here)], &[]);
}

#[test]
fn geographies() {
    let [_, geography] = TYPES;
    let (here, there) = (shape(1, &[179.0, 2.0]), shape(1, &[-179.0, 90.0]));
    check(geography, &[Some(&here), Some(&there)], &["POINT(-179 2)", "POINT(179 90)"]);
    check(geography, &[Some(&here), Some(&shape(2, &[]))], &["POINT(179 2)"; 2]);
    check(geography, &[Some(&shape(2, &[0.0, 5.0, 9.5, -1.0])), Some(&here)], &[]);
    check(geography, &[Some(&here), Some(&shape(1, &[181.0, 0.0]))], &[]);
    check(geography, &[Some(&shape(1, &[0.0, -90.5])), Some(&here)], &[]);
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    /// Bytes in which one is another, or that are cut off, have a box only if they are a shape.
    #[test]
    fn other_bytes_have_no_box(at in any::<prop::sample::Index>(), byte: u8, cut in prop_oneof![Just(0), 0..130_usize]) {
        let line = shape(2, &[0.0, 5.0, 9.5, -1.0]);
        let mut bytes = collection(&[shape(1, &[1.0, 2.0]), line.clone(), collection(&[line])]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(bytes.len().saturating_sub(cut));
        let is_shape = wkb::walk(&bytes, &mut |_| {}).is_ok();
        for data_type in TYPES {
            let found = bounds(data_type, &[Some(&bytes)]);
            prop_assert!(is_shape || found.is_none(), "{bytes:?}");
        }
    }
}
