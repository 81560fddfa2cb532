//! Files that Spark wrote with the hybrid calendar, as marked in their footers. The expected values are those of Spark.

use arrow_array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{Date32Array, TimestampMicrosecondArray, TimestampMillisecondArray};
use parquet::file::metadata::KeyValue;

use super::*;

const DAY: i64 = 86_400_000_000;
const VERSION: (&str, &str) = ("org.apache.spark.version", "4.0.1");
const DATETIME: (&str, &str) = ("org.apache.spark.legacyDateTime", "");
const INT96: (&str, &str) = ("org.apache.spark.legacyINT96", "");
const UTC: (&str, &str) = ("org.apache.spark.timeZone", "UTC");

fn zone(name: &str) -> (&str, &str) {
    (UTC.0, name)
}

fn spark(version: &str) -> (&str, &str) {
    (VERSION.0, version)
}

/// Days since 1970 as stored with the hybrid calendar, and their dates.
const DATES: [(i32, &str); 10] = [
    (-719_165, "0000-12-31"),
    (-719_164, "0001-01-01"),
    (-171_597, "1500-02-28"),
    // The hybrid calendar has a February 29 in this year.
    (-171_596, "1500-03-01"),
    (-171_595, "1500-03-01"),
    (-141_428, "1582-10-04"),
    (-141_427, "1582-10-15"),
    (-25_568, "1899-12-31"),
    (-25_567, "1900-01-01"),
    (19_723, "2024-01-01"),
];

fn properties(keys: &[(&str, &str)]) -> WriterProperties {
    let keys = keys.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    WriterProperties::builder()
        .set_key_value_metadata(Some(keys))
        .set_max_row_group_row_count(Some(2))
        .set_dictionary_enabled(false)
        .build()
}

fn file(keys: &[(&str, &str)], columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties(keys))).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn days() -> ArrayRef {
    Arc::new(Date32Array::from_iter_values(DATES.map(|(day, _)| day)))
}

fn micros(seconds: &[i64]) -> ArrayRef {
    let micros = seconds.iter().map(|second| second * 1_000_000);
    Arc::new(TimestampMicrosecondArray::from_iter_values(micros).with_timezone("UTC"))
}

/// A file with one INT96 column.
fn int96(keys: &[(&str, &str)], micros: &[i64]) -> Vec<u8> {
    let values: Vec<Int96> = micros
        .iter()
        .map(|micros| {
            let (day, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY) * 1000);
            let mut value = Int96::new();
            value.set_data(rest as u32, (rest >> 32) as u32, u32::try_from(day + 2_440_588).unwrap());
            value
        })
        .collect();
    let schema = Arc::new(parse_message_type("message m { required int96 c; }").unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties(keys))).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn dates_are_rebased() {
    let mut lake = Lake::new(&[("c", "date")]);
    let expected = DATES.map(|(_, date)| date);
    // Dates have no time zone.
    for keys in [&[VERSION, DATETIME, UTC][..], &[VERSION, DATETIME], &[DATETIME, zone("nowhere")], &[spark("2.4.8")]] {
        lake.tasks.clear();
        lake.add(&file(keys, vec![("c", days())]));
        lake.check(&["c"], None, &expected);
        // Bounds of row groups are converted too.
        for (day, date) in &DATES[1..] {
            let found = lake.rows(&["c"], Some(&format!("c = DATE '{date}'"))).unwrap();
            let times = expected.iter().filter(|other| *other == date).count();
            assert_eq!(found, vec![*date; times], "{day}");
        }
        lake.check(&["c"], Some("c < DATE '0001-01-01'"), &expected[..1]);
        lake.check(&["c"], Some("c > DATE '1582-10-04' AND c < DATE '1900-01-01'"), &expected[6..8]);
    }
    // All others use the proleptic calendar.
    for keys in [&[VERSION, INT96, UTC][..], &[spark("3.0.0"), UTC], &[UTC], &[spark("10.0")], &[spark("?")], &[]] {
        lake.tasks.clear();
        lake.add(&file(keys, vec![("c", days())]));
        assert_eq!(
            lake.rows(&["c"], None).unwrap()[1..7].join(" "),
            "0000-12-30 1500-03-09 1500-03-10 1500-03-11 1582-10-14 1582-10-15"
        );
    }
}

#[test]
fn rebased_dates_become_timestamps() {
    let mut lake = Lake::new(&[("c", "timestamp_ntz")]);
    lake.add(&file(&[VERSION, DATETIME], vec![("c", days())]));
    assert_eq!(lake.rows(&["c"], Some("c < TIMESTAMP_NTZ '0002-01-01 00:00:00'")).unwrap()[1], "0001-01-01T00:00:00");
}

/// Seconds as stored with the hybrid calendar, and their times in UTC.
#[test]
fn timestamps_are_rebased() {
    let utc: &[(i64, &str)] = &[
        (-62_135_769_600, "0001-01-01T00:00:00Z"),
        (-171_595 * 86_400 + 43_200, "1500-03-01T12:00:00Z"),
        (-141_427 * 86_400 - 1, "1582-10-04T23:59:59Z"),
        (-141_427 * 86_400, "1582-10-15T00:00:00Z"),
        (-2_208_988_801, "1899-12-31T23:59:59Z"),
        (1_704_067_200, "2024-01-01T00:00:00Z"),
    ];
    // Midnight of the first day of the era, and noon of a day of the 19th century, in local time.
    let los_angeles: &[(i64, &str)] = &[
        (-62_135_740_800, "0001-01-01T07:52:58Z"),
        (-2_840_068_800, "1880-01-01T19:52:58Z"),
        (-2_208_988_801, "1899-12-31T23:59:59Z"),
    ];
    let berlin: &[(i64, &str)] = &[
        (-62_135_773_200, "0000-12-31T23:06:32Z"),
        (-2_524_482_000, "1890-01-01T11:06:32Z"),
        (-2_366_755_200, "1895-01-01T00:00:00Z"),
    ];
    let hour: &[(i64, &str)] = &[(-62_135_751_600, "0001-01-01T05:00:00Z"), (-2_524_449_600, "1890-01-01T20:00:00Z")];
    for (name, cases) in [
        ("UTC", utc),
        ("Etc/GMT", utc),
        ("America/Los_Angeles", los_angeles),
        ("US/Pacific", los_angeles),
        ("Europe/Berlin", berlin),
        ("Etc/GMT+5", hour),
    ] {
        let seconds: Vec<i64> = cases.iter().map(|(second, _)| *second).collect();
        let expected: Vec<&str> = cases.iter().map(|(_, at)| *at).collect();
        let all: Vec<i64> = seconds.iter().map(|second| second * 1_000_000).collect();
        let millis = TimestampMillisecondArray::from_iter_values(seconds.iter().map(|second| second * 1_000));
        let mut lake = Lake::new(&[("c", "timestamp")]);
        lake.add(&file(&[VERSION, DATETIME, zone(name)], vec![("c", micros(&seconds))]));
        lake.add(&file(&[VERSION, DATETIME, zone(name)], vec![("c", Arc::new(millis.with_timezone("UTC")))]));
        lake.add(&int96(&[VERSION, INT96, zone(name)], &all));
        lake.add(&int96(&[spark("3.0.3"), zone(name)], &all));
        let expected = expected.repeat(4);
        lake.check(&["c"], None, &expected);
        for at in &expected[..seconds.len()] {
            lake.check(&["c"], Some(&format!("c = TIMESTAMP '{at}'")), &[*at; 4]);
        }
    }
    // Fractions of seconds are kept, also before 1970.
    let mut lake = Lake::new(&[("c", "timestamp")]);
    let micros = TimestampMicrosecondArray::from(vec![Some(-62_135_769_600_000_000 - 1), None]).with_timezone("UTC");
    lake.add(&file(&[VERSION, DATETIME, UTC], vec![("c", Arc::new(micros))]));
    lake.check(&["c"], None, &["0000-12-31T23:59:59.999999Z", "null"]);
}

#[test]
fn each_footer_key_counts_for_its_columns() {
    let mut lake = Lake::new(&[("c", "timestamp")]);
    lake.add(&int96(&[VERSION, DATETIME, UTC], &[-62_135_596_800_000_000]));
    lake.add(&int96(&[spark("3.1.0"), UTC], &[-62_135_596_800_000_000]));
    lake.add(&file(&[VERSION, INT96, UTC], vec![("c", micros(&[-62_135_596_800]))]));
    lake.check(&["c"], None, &["0001-01-01T00:00:00Z"; 3]);
    // Timestamps without a time zone always use the proleptic calendar.
    let mut lake = Lake::new(&[("c", "timestamp_ntz")]);
    let micros = TimestampMicrosecondArray::from(vec![-62_135_596_800_000_000]);
    lake.add(&file(&[VERSION, DATETIME, UTC], vec![("c", Arc::new(micros))]));
    lake.check(&["c"], None, &["0001-01-01T00:00:00"]);
}

#[test]
fn nested_columns_are_rebased_too() {
    let list = r#"{"type":"array","elementType":"date","containsNull":true}"#;
    let map = r#"{"type":"map","keyType":"string","valueType":"date","valueContainsNull":true}"#;
    let inner = r#"{"type":"struct","fields":[{"name":"d","type":"date","nullable":true,"metadata":{}}]}"#;
    let mut lake = Lake::new(&[("l", list), ("m", map), ("s", inner)]);
    let mut lists = ListBuilder::new(Date32Array::builder(2));
    lists.values().append_value(-719_164);
    lists.values().append_null();
    lists.append(true);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Date32Array::builder(1));
    maps.keys().append_value("k");
    maps.values().append_value(-719_164);
    maps.append(true).unwrap();
    let date: ArrayRef = Arc::new(Date32Array::from(vec![-719_164]));
    let structs = StructArray::from(vec![(Arc::new(Field::new("d", ArrowType::Date32, true)), date)]);
    let columns: Vec<(&str, ArrayRef)> =
        vec![("l", Arc::new(lists.finish())), ("m", Arc::new(maps.finish())), ("s", Arc::new(structs))];
    lake.add(&file(&[VERSION, DATETIME], columns));
    lake.check(&["l", "m", "s"], None, &["[0001-01-01, null]|{k: 0001-01-01}|{d: 0001-01-01}"]);
    lake.check(&["s"], Some("s.d = DATE '0001-01-01'"), &["{d: 0001-01-01}"]);
}

#[test]
fn unknown_time_zones_are_refused() {
    let mut lake = Lake::new(&[("c", "timestamp")]);
    for (keys, words) in [
        (&[VERSION, DATETIME][..], "does not name"),
        (&[spark("2.4.8")], "does not name"),
        (&[VERSION, DATETIME, zone("Mars/Olympus")], "`Mars/Olympus`"),
        (&[VERSION, DATETIME, zone("+01:00")], "`+01:00`"),
    ] {
        lake.tasks.clear();
        lake.add(&file(keys, vec![("c", micros(&[0, -2_208_988_801]))]));
        for filter in [None, Some("c > TIMESTAMP '1800-01-01T00:00:00Z'")] {
            let error = lake.rows(&["c"], filter).unwrap_err();
            assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{error}");
            check_message(&error, &["`c`", "before 1900", "-2208988801", words, "CORRECTED"]);
            assert_eq!(error.path(), Some("f0.parquet"));
        }
        // From 1900 on calendars and time zones agree.
        lake.tasks.clear();
        lake.add(&file(keys, vec![("c", micros(&[0, -2_208_988_800]))]));
        lake.check(&["c"], None, &["1970-01-01T00:00:00Z", "1900-01-01T00:00:00Z"]);
    }
}
