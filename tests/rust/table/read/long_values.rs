//! Batches with long values have few rows.

use parquet::file::properties::EnabledStatistics;

use super::*;

/// Limit of the bytes of a batch: the target, and a margin.
const MAX_BATCH_BYTES: usize = 80 << 20;

/// A file of numbered rows with these strings.
fn lake(texts: &[&str], dictionary: bool, group: usize) -> Lake {
    let mut lake = Lake::new(&[("n", "integer"), ("t", "string")]);
    let (numbers, texts) = (ints(0..texts.len() as i32), texts);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group))
        .set_compression(parquet::basic::Compression::ZSTD(Default::default()))
        .set_dictionary_enabled(dictionary)
        // Otherwise the footer would have the sizes of the strings.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_page_size_limit(1 << 30)
        .build();
    let schema = Schema::new(vec![Field::new("n", ArrowType::Int32, false), Field::new("t", ArrowType::Utf8, false)]);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, Arc::new(schema.clone()), Some(properties)).unwrap();
    // In pieces, since all strings may be too long for one array.
    for at in (0..texts.len()).step_by(1000) {
        let length = (texts.len() - at).min(1000);
        let columns = vec![numbers.slice(at, length), strings(texts[at..at + length].iter().copied())];
        writer.write(&RecordBatch::try_new(Arc::new(schema.clone()), columns).unwrap()).unwrap();
    }
    writer.close().unwrap();
    lake.add(&bytes);
    lake
}

/// Checks that all rows are read once and in order, in batches of bounded size.
#[track_caller]
fn check(lake: &Lake, predicate: Option<&str>, expected: &[&str]) {
    let spec = lake.spec(&["n", "t"], predicate);
    let mut stream =
        Box::pin(Reader::new(lake.storage.clone(), spec).unwrap().read(lake.tasks.clone(), lake.options.clone()));
    let mut at = 0;
    block_on(async {
        while let Some(batch) = stream.next().await {
            let batch = batch.unwrap();
            let (numbers, texts) = (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_string::<i32>());
            assert!(
                texts.value_data().len() <= MAX_BATCH_BYTES,
                "{} bytes in {} rows",
                texts.value_data().len(),
                texts.len()
            );
            for row in 0..batch.num_rows() {
                assert_eq!(numbers.value(row), at, "{predicate:?}");
                assert!(texts.value(row) == expected[at as usize], "wrong string in row {at}, {predicate:?}");
                at += 1;
            }
        }
    });
    assert_eq!(at as usize, expected.len(), "{predicate:?}");
}

#[test]
fn long_values_are_read_in_small_batches() {
    let different: Vec<String> = (0..1000).map(|n| format!("{n}{}", "x".repeat(150_000))).collect();
    let different: Vec<&str> = different.iter().map(String::as_str).collect();
    let (same, short) = ("s".repeat(100_000), "t");
    let same_in_second: Vec<&str> = (0..3000).map(|n| if n < 1000 { short } else { &same }).collect();
    for (what, lake, texts) in [
        ("by the footer", lake(&different, false, 1000), &different),
        ("by the dictionary", lake(&vec![same.as_str(); 2000], true, 5000), &vec![same.as_str(); 2000]),
        ("when rows were sent", lake(&same_in_second, true, 1000), &same_in_second),
    ] {
        println!("{what}");
        for predicate in [None, Some("n >= 0"), Some("t >= ''"), Some("n >= 0 and t >= ''")] {
            check(&lake, predicate, texts);
        }
    }
}

/// Most values of the dictionary are short, but most rows have the long one.
#[test]
fn strings_beyond_2_gib_are_read_in_smaller_batches() {
    let long = "l".repeat(100_000);
    let few: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    let texts: Vec<&str> = few.iter().map(String::as_str).chain(std::iter::repeat_n(long.as_str(), 22_000)).collect();
    let lake = lake(&texts, true, 50_000);
    check(&lake, None, &texts);
}

#[test]
fn short_values_are_read_in_large_batches() {
    let texts: Vec<String> = (0..70_000).map(|n| format!("text {n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let batches = lake(&texts, false, 100_000).batches(&["n", "t"], None).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [65_536, 4464]);
}
