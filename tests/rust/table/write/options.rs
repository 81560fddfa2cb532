//! Options for data files: column encodings, file and row group sizes, sort order.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use deltic_protocol::error::Kind;
use deltic_table::write::options::{BloomFilter, ColumnOptions};
use deltic_table::write::writer::{Compression, DataFile, WriteSpec, check};
use parquet::basic::{Compression as Codec, Encoding};
use parquet::file::metadata::ColumnChunkMetaData;
use serde_json::{Value, json};

use super::writer::{Table, batch, field, longs, spec};

fn array(name: &str, element: &str) -> String {
    let data_type = json!({"type": "array", "elementType": element, "containsNull": true});
    json!({"name": name, "type": data_type, "nullable": true, "metadata": {}}).to_string()
}

/// Columns `n`, `t`, `b`, `p.q` (quoted), a list of longs, a struct with a string.
fn columns() -> WriteSpec {
    let inner = json!({"type": "struct", "fields": [
        {"name": "x", "type": "string", "nullable": true, "metadata": {}},
        {"name": "y", "type": "double", "nullable": true, "metadata": {}}]});
    let of_struct = json!({"name": "s", "type": inner, "nullable": true, "metadata": {}}).to_string();
    let fields = [
        field("n", "long"),
        field("t", "string"),
        field("b", "boolean"),
        field("p.q", "long"),
        array("l", "long"),
        of_struct,
    ];
    spec(&fields, &[])
}

fn with(options: Value) -> WriteSpec {
    let column_options: BTreeMap<String, ColumnOptions> = serde_json::from_value(options).unwrap();
    WriteSpec { column_options, ..columns() }
}

/// A thousand rows with few distinct strings and numbers.
fn rows() -> RecordBatch {
    let t: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|n| format!("value {}", n % 10))));
    let b: ArrayRef = Arc::new(BooleanArray::from_iter((0..1000).map(|n| Some(n % 2 == 0))));
    batch(vec![("n", longs((0..1000).map(|n| n % 10))), ("t", t), ("b", b), ("p.q", longs(0..1000))])
}

/// The column chunk of a path in the only row group of the only file.
fn chunk(table: &Table, files: &[DataFile], path: &str) -> ColumnChunkMetaData {
    let metadata = table.metadata(&files[0]);
    let mut columns = metadata.row_group(0).columns().iter();
    columns.find(|column| column.column_path().string() == path).unwrap().clone()
}

fn encodings(column: &ColumnChunkMetaData) -> Vec<Encoding> {
    column.encodings().collect()
}

#[test]
fn columns_are_encoded_as_chosen() {
    let table = Table::new();
    let plain = table.write(&columns(), &[rows()]);
    assert!(encodings(&chunk(&table, &plain, "n")).contains(&Encoding::RLE_DICTIONARY));
    let chosen = with(json!({
        "N": {"encoding": "delta_binary_packed"},
        "t": {"encoding": "DELTA_BYTE_ARRAY", "compression": "snappy", "bloom_filter": {"fpp": 0.01, "ndv": 100}},
        "b": {"dictionary": false},
        "p.q": {"compression": "zstd", "compression_level": 19, "dictionary": true, "encoding": "plain"},
        "l.element": {"dictionary": false},
        "s": {"compression": "gzip"},
        "s.y": {"compression": "uncompressed"},
    }));
    let files = table.write(&chosen, &[rows()]);
    let of = |path: &str| chunk(&table, &files, path);
    assert!(encodings(&of("n")).contains(&Encoding::DELTA_BINARY_PACKED));
    assert!(!encodings(&of("n")).contains(&Encoding::RLE_DICTIONARY), "an encoding replaces the dictionary");
    assert!(encodings(&of("t")).contains(&Encoding::DELTA_BYTE_ARRAY));
    assert_eq!(of("t").compression(), Codec::SNAPPY);
    assert!(of("t").bloom_filter_offset().is_some() && of("n").bloom_filter_offset().is_none());
    assert!(encodings(&of("p.q")).contains(&Encoding::RLE_DICTIONARY), "unless a dictionary is requested too");
    assert!(!encodings(&of("l.list.element")).contains(&Encoding::RLE_DICTIONARY));
    assert!(matches!(of("s.x").compression(), Codec::GZIP(_)), "options of a struct count for its fields");
    assert_eq!(of("s.y").compression(), Codec::UNCOMPRESSED, "unless a field has its own options");
    assert!(matches!(of("n").compression(), Codec::ZSTD(_)));
    // Statistics do not depend on the encoding.
    let stats = |files: &[DataFile]| files[0].add.stats.clone();
    assert_eq!(stats(&files), stats(&plain));
    assert_eq!(table.rows(&files[0]), table.rows(&plain[0]));
}

#[test]
fn a_bloom_filter_without_a_size_has_the_default_one() {
    let table = Table::new();
    let files = table.write(&with(json!({"n": {"bloom_filter": {}}})), &[rows()]);
    assert!(chunk(&table, &files, "n").bloom_filter_length().is_some_and(|length| length > 0));
}

#[test]
fn compression_levels_are_those_of_the_codec() {
    let table = Table::new();
    let t: ArrayRef = Arc::new(StringArray::from_iter_values((0..50_000).map(|n| format!("{}", n * 7919 % 65_537))));
    let size = |compression: Compression, compression_level: Option<i64>| {
        let spec = WriteSpec { compression, compression_level, ..spec(&[field("t", "string")], &[]) };
        table.write(&spec, &[batch(vec![("t", t.clone())])])[0].add.size
    };
    assert!(size(Compression::Gzip, Some(9)) < size(Compression::Gzip, Some(0)));
    assert_ne!(size(Compression::Zstd, Some(19)), size(Compression::Zstd, None));
    assert!(size(Compression::Brotli, Some(9)) < size(Compression::Brotli, Some(0)));
}

#[test]
fn invalid_options_are_refused_before_a_file_is_written() {
    let options = |name: &str, options: Value| with(json!({name: options}));
    let level =
        |compression: Compression, level: i64| WriteSpec { compression, compression_level: Some(level), ..columns() };
    let sorted = |by: &str| WriteSpec { sort_by: vec![by.to_owned()], ..columns() };
    let of_maps = json!({"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "long",
        "valueContainsNull": true}, "nullable": true, "metadata": {}});
    let fpp = |fpp: f64| {
        let bloom_filter = Some(BloomFilter { fpp: Some(fpp), ndv: None });
        let column_options = BTreeMap::from([("n".to_owned(), ColumnOptions { bloom_filter, ..Default::default() })]);
        WriteSpec { column_options, ..columns() }
    };
    for (spec, words) in [
        (options("gone", json!({})), "`gone`"),
        (options("s.z", json!({})), "`s.z`"),
        (options("a,b", json!({})), "`a,b`"),
        (options("`a", json!({})), "back-tick"),
        (options("n", json!({"encoding": "lzo"})), "`lzo` is not an encoding"),
        (options("n", json!({"encoding": "delta_byte_array"})), "INT64"),
        (options("n", json!({"encoding": "rle"})), "RLE"),
        (options("t", json!({"encoding": "delta_binary_packed"})), "BYTE_ARRAY"),
        (options("n", json!({"compression": "lzo"})), "`lzo` is not a compression"),
        (options("n", json!({"compression": "snappy", "compression_level": 3})), "no levels"),
        (options("b", json!({"bloom_filter": {}})), "booleans"),
        (options("s", json!({"encoding": "delta_byte_array"})), "`s.y`"),
        (options("n", json!({"bloom_filter": {"ndv": 0}})), "ndv"),
        (fpp(0.0), "fpp"),
        (fpp(1.0), "fpp"),
        (fpp(f64::NAN), "fpp"),
        (level(Compression::Zstd, 23), "up to 22, not 23"),
        (level(Compression::Zstd, i64::MAX), "up to 22"),
        (level(Compression::Gzip, -1), "from 0 to 9, not -1"),
        (level(Compression::Brotli, 12), "from 0 to 11"),
        (level(Compression::Lz4, 1), "lz4 has no levels"),
        (sorted("gone"), "sort_by names `gone`"),
        (
            WriteSpec { sort_by: vec!["m".to_owned()], ..super::writer::spec(&[of_maps.to_string()], &[]) },
            "maps have no order",
        ),
    ] {
        let error = check(&spec).expect_err(words);
        assert!(*error.kind() == Kind::Invalid && error.to_string().contains(words), "{words}: {error}");
    }
}

#[test]
fn files_have_a_maximum_of_rows() {
    for most in [1, 7, 1000, 5000] {
        let table = Table::new();
        let base = spec(&[field("n", "long"), field("p", "long")], &["p"]);
        let spec = WriteSpec { max_rows_per_file: Some(most), ..base };
        let batches: Vec<RecordBatch> = (0..3)
            .map(|i| batch(vec![("n", longs(i * 100..(i + 1) * 100)), ("p", longs((0..100).map(|n| n % 2)))]))
            .collect();
        let files = table.write(&spec, &batches);
        assert_eq!(files.len() as u64, 2 * 150_u64.div_ceil(most));
        assert!(files.iter().all(|file| (1..=most).contains(&file.rows)));
        let mut numbers: Vec<i64> = files.iter().flat_map(|file| numbers(&table, file, "n")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    }
}

fn numbers(table: &Table, file: &DataFile, name: &str) -> Vec<i64> {
    let of = |batch: &RecordBatch| {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
        column.iter().map(|value| value.unwrap_or(i64::MIN)).collect::<Vec<_>>()
    };
    table.rows(file).iter().flat_map(of).collect()
}

#[test]
fn row_groups_are_sorted() {
    let table = Table::new();
    let base = spec(&[field("k", "string"), field("n", "long"), field("p", "long")], &["p"]);
    let spec = WriteSpec { sort_by: ["P", "k", "n"].map(str::to_owned).to_vec(), ..base };
    let mixed = |n: i64| n.wrapping_mul(7919) % 1000;
    let batches: Vec<RecordBatch> = (0..200)
        .map(|i| {
            let values = (i * 50..(i + 1) * 50).map(mixed);
            let k: ArrayRef = Arc::new(StringArray::from_iter_values(values.clone().map(|n| format!("k{}", n % 7))));
            let n: ArrayRef = Arc::new(Int64Array::from_iter(values.map(|n| (n % 11 > 0).then_some(n))));
            batch(vec![("n", n), ("k", k), ("p", longs((0..50).map(|n| n % 2)))])
        })
        .collect();
    let files = table.write(&spec, &batches);
    assert_eq!(files.len(), 2, "rows that fit into memory are one sorted file");
    let mut found = 0;
    for file in &files {
        let rows: Vec<(String, Option<i64>)> = table
            .rows(file)
            .iter()
            .flat_map(|batch| {
                let (k, n) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
                (0..batch.num_rows())
                    .map(|i| (k.value(i).to_owned(), n.is_valid(i).then(|| n.value(i))))
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(rows.is_sorted(), "rows are not sorted with nulls first");
        found += rows.len();
        let metadata = table.metadata(file);
        let declared = metadata.row_group(0).sorting_columns().unwrap();
        let declared: Vec<_> = declared.iter().map(|c| (c.column_idx, c.descending, c.nulls_first)).collect();
        assert_eq!(declared, [(0, false, true), (1, false, true)]);
    }
    assert_eq!(found, 10_000);
}

#[test]
fn small_target_sizes_divide_sorted_rows() {
    let table = Table::new();
    let base = spec(&[field("n", "long")], &[]);
    let spec = WriteSpec {
        sort_by: vec!["n".to_owned()],
        target_file_size: 16 * 1024,
        max_rows_per_group: 500,
        compression: Compression::Uncompressed,
        ..base
    };
    let files = table.write(&spec, &[batch(vec![("n", longs((0..20_000).map(|n| n * 7919 % 20_011)))])]);
    assert!(files.len() > 2);
    for file in &files {
        let metadata = table.metadata(file);
        let numbers = numbers(&table, file, "n");
        let mut rest = numbers.as_slice();
        for group in metadata.row_groups() {
            let (rows, after) = rest.split_at(group.num_rows() as usize);
            assert!(rows.is_sorted() && rows.len() <= 500);
            rest = after;
        }
        assert!(rest.is_empty());
    }
}

#[test]
fn rearranged_rows_are_no_data_change() {
    let table = Table::new();
    let spec = WriteSpec { rearrange_only: true, ..spec(&[field("n", "long")], &[]) };
    assert!(!table.write(&spec, &[batch(vec![("n", longs([1]))])])[0].add.data_change);
}
