//! Bloom filters skip row groups without changing the result.

use arrow_array::TimestampMicrosecondArray;

use super::*;

/// A file with a bloom filter for each column chunk.
pub(super) fn encode(columns: Vec<(&str, ArrayRef)>, group_rows: usize) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_dictionary_enabled(false)
        .set_bloom_filter_enabled(true)
        .set_bloom_filter_max_ndv(group_rows as u64)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// A number of row `i`, spread so that bounds of row groups do not prune: 48,878 for row 31, 27,706 for row 2,718.
fn spread(i: i32) -> i32 {
    (i64::from(i) * 7919 % 65_537) as i32
}

/// 4,000 rows in eight row groups. `noise` takes most of the bytes.
fn lake() -> Lake {
    let rows = || (0..4000).map(spread);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", ints(0..4000)),
        ("short", Arc::new(Int16Array::from_iter_values(rows().map(|n| (n - 32_768) as i16)))),
        ("widened", ints(rows())),
        ("long", Arc::new(Int64Array::from_iter_values(rows().map(i64::from)))),
        ("text", Arc::new(StringArray::from_iter_values(rows().map(|n| format!("t{n}"))))),
        ("bytes", Arc::new(BinaryArray::from_iter_values(rows().map(|n| n.to_string())))),
        ("day", Arc::new(Date32Array::from_iter_values(rows().map(|n| n - 30_000)))),
        ("time", Arc::new(TimestampMicrosecondArray::from_iter_values(rows().map(i64::from)).with_timezone("UTC"))),
        ("noise", Arc::new(StringArray::from_iter_values(rows().map(|n| format!("{n}").repeat(40))))),
    ];
    let mut lake = Lake::new(&[
        ("i", "integer"),
        ("short", "short"),
        ("widened", "long"),
        ("long", "long"),
        ("text", "string"),
        ("bytes", "binary"),
        ("day", "date"),
        ("time", "timestamp"),
        ("noise", "string"),
    ]);
    lake.add(&encode(columns, 500));
    lake
}

/// The same files with unreadable filters.
fn damaged() -> Lake {
    let mut lake = lake();
    let mut bytes = std::fs::read(lake.path(0)).unwrap();
    // A header has the length of the filter, then algorithm, hash and compression.
    let fixed = [0x1c, 0x1c, 0x00, 0x00, 0x1c, 0x1c, 0x00, 0x00, 0x1c, 0x1c, 0x00, 0x00, 0x00];
    let headers: Vec<usize> = (0..bytes.len() - fixed.len()).filter(|at| bytes[*at..].starts_with(&fixed)).collect();
    assert_eq!(headers.len(), 72);
    for at in headers {
        bytes[at] = 0xff;
    }
    lake.tasks.clear();
    lake.add(&bytes);
    lake
}

#[test]
fn bloom_filters_skip_row_groups() {
    let (lake, damaged) = (lake(), damaged());
    let noise = format!("noise = '{}'", "27706".repeat(40));
    for (condition, expected) in [
        ("short = -5062", &["2718"][..]),
        ("widened = 27706", &["2718"]),
        ("long = 27706", &["2718"]),
        ("long IN (48878, 27706, 65536000000)", &["31", "2718"]),
        ("text = 't27706' AND long > 0", &["2718"]),
        ("text = 't27706' AND long = 48878", &[]),
        ("bytes = X'3237373036'", &["2718"]),
        ("day = DATE '1963-09-21'", &["2718"]),
        ("time = TIMESTAMP '1970-01-01T00:00:00.027706Z'", &["2718"]),
        (&noise, &["2718"]),
        ("long = 12345 AND noise > ''", &[]),
    ] {
        lake.check(&["i"], Some(condition), expected);
        // An unreadable filter is ignored.
        damaged.check(&["i"], Some(condition), expected);
        let (spared, all) = (lake.bytes_read(&["i"], Some(condition)), damaged.bytes_read(&["i"], Some(condition)));
        assert!(spared < all, "{condition}: {spared} of {all}");
    }
    let (one, all) = (lake.bytes_read(&["i"], Some(&noise)), damaged.bytes_read(&["i"], Some(&noise)));
    assert!(all > 500_000 && one < all / 3, "{one} of {all}");
}

#[test]
fn values_of_a_bloom_filter_are_found() {
    let lake = lake();
    for row in (0..4000).step_by(61) {
        let n = spread(row);
        let condition = format!("short = {} AND widened = {n} AND long = {n} AND text = 't{n}'", n - 32_768);
        lake.check(&["i"], Some(&condition), &[&row.to_string()]);
    }
}
