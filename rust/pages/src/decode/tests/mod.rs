//! Compares direct decoding with the parquet crate: random rows, in every layout that a writer may choose.

mod hostile;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::filter::filter;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding as ParquetEncoding, Type as PhysicalType};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;

use super::string_lengths::{self, StringLeaf};
use super::{
    Chunk, DictionaryEncoded, Failure, FrontCodedStrings, FrontCoder, StringPages, StringViews, array, defined,
    entries, strings_by_page,
};
use crate::limits;
use crate::pool::Pool;

/// One action: nothing if it is another than `add`.
type Row = Option<(Option<String>, Option<i64>, Vec<(String, Option<String>)>)>;

#[derive(Debug, Clone)]
struct Layout {
    codec: Compression,
    second_version: bool,
    dictionary: bool,
    delta: bool,
    /// Levels that do not exist are declared as bit-packed, as in parquet-java.
    of_java: bool,
    rows_of_page: usize,
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    // Most tables have one partition column, or none.
    let rows = |string: fn() -> BoxedStrategy<String>| {
        prop_oneof![
            3 => rows_with(string, "[k-m]", 0..4),
            1 => rows_with(string, "k", 0..2),
            1 => rows_with(string, "k", 1..2),
        ]
    };
    // Names of files mostly have digits at the same places.
    prop_oneof![
        3 => rows(strings),
        2 => rows(|| "k=[0-9]{2}/p-[0-9]{5}-[0-9a-f]{8}-4[0-9a-f]{3}.z".boxed()),
        1 => rows(|| "k=[a-z]{0,9}/p-[0-9]{5}-[0-9a-f]{40}".boxed()),
        1 => rows(|| "[0-9a-f]{100}".boxed()),
        1 => rows(|| prop_oneof![40 => "p-[0-9a-f]{8}", 1 => "[p-][--g]{7,9}[0-9a-g]"].boxed()),
    ]
}

fn strings() -> BoxedStrategy<String> {
    // Characters that begin, or end, with the same byte.
    prop_oneof![Just(String::new()), "[a-c]{1,2}", "[ -~é]{0,40}", "[éè©]{0,2}b{0,2}[éè©]{0,3}"].boxed()
}

fn rows_with(
    path: fn() -> BoxedStrategy<String>,
    keys: &'static str,
    entries: Range<usize>,
) -> impl Strategy<Value = Vec<Row>> {
    let string = strings();
    let number = prop_oneof![Just(7_i64), 0..4_i64, any::<i64>()];
    let entry = (keys, proptest::option::weighted(0.8, string.clone()));
    let add = (
        proptest::option::weighted(0.9, path()),
        proptest::option::weighted(0.8, number),
        prop::collection::vec(entry, entries),
    );
    // Long runs of the same kind, as in checkpoints, and single rows between.
    let run = (proptest::option::weighted(0.8, add), 1..30_usize);
    prop::collection::vec(run, 1..30).prop_map(|runs| runs.into_iter().flat_map(|(row, n)| vec![row; n]).collect())
}

fn layout() -> impl Strategy<Value = Layout> {
    let codec = prop_oneof![
        Just(Compression::UNCOMPRESSED),
        Just(Compression::SNAPPY),
        Just(Compression::ZSTD(Default::default())),
        Just(Compression::LZ4_RAW)
    ];
    (codec, any::<[bool; 3]>(), proptest::bool::weighted(0.1), 1..200_usize).prop_map(
        |(codec, [second_version, dictionary, of_java], delta, rows_of_page)| Layout {
            codec,
            second_version,
            dictionary,
            delta: delta && !dictionary,
            of_java: of_java && !second_version,
            rows_of_page,
        },
    )
}

/// The rows as a column `add` with members of every type that is decoded directly.
fn batch(rows: &[Row]) -> RecordBatch {
    let numbers: Vec<Option<i64>> = rows.iter().map(|row| row.as_ref()?.1).collect();
    let small = |bits: u32| numbers.iter().map(move |n| n.map(|n| n >> (64 - bits)));
    let strings: StringArray = rows.iter().map(|row| row.as_ref()?.0.clone()).collect();
    let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
    let mut map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for row in rows {
        for (key, value) in row.iter().flat_map(|(_, _, entries)| entries) {
            map.keys().append_value(key);
            map.values().append_option(value.as_ref());
        }
        map.append(row.is_some()).unwrap();
    }
    let inner: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
    let some: Vec<bool> = numbers.iter().map(|n| n.is_some_and(|n| n % 3 != 0)).collect();
    let fields = Fields::from(vec![Field::new("n", inner.data_type().clone(), true)]);
    let nested = StructArray::new(fields, vec![inner.clone()], Some(NullBuffer::from(some)));
    let decimal = |bits: u32, precision: u8| -> ArrayRef {
        let unscaled: Decimal128Array = small(bits).map(|n| n.map(i128::from)).collect();
        Arc::new(unscaled.with_precision_and_scale(precision, 2).unwrap())
    };
    let members: Vec<(&str, ArrayRef)> = vec![
        ("string", Arc::new(strings)),
        ("long", inner),
        ("date", Arc::new(small(20).map(|n| n.map(|n| n as i32)).collect::<Date32Array>())),
        ("time", Arc::new(TimestampMicrosecondArray::from(numbers.clone()).with_timezone("UTC"))),
        ("float", Arc::new(small(9).map(|n| n.map(|n| n as f32 / 4.0)).collect::<Float32Array>())),
        ("double", Arc::new(small(40).map(|n| n.map(|n| n as f64 / 8.0)).collect::<Float64Array>())),
        ("nine", decimal(28, 9)),
        ("eighteen", decimal(56, 18)),
        ("nested", Arc::new(nested)),
        ("map", Arc::new(map.finish())),
    ];
    let fields: Fields = members.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    let there: Vec<bool> = rows.iter().map(Option::is_some).collect();
    let arrays = members.into_iter().map(|(_, array)| array).collect();
    let add = StructArray::new(fields.clone(), arrays, Some(NullBuffer::from(there)));
    let schema = Schema::new(vec![Field::new_struct("add", fields, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(add)]).unwrap()
}

fn written(batch: &RecordBatch, layout: &Layout) -> Bytes {
    let version = if layout.second_version { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
    let mut properties = WriterProperties::builder()
        .set_compression(layout.codec)
        .set_writer_version(version)
        .set_dictionary_enabled(layout.dictionary)
        .set_dictionary_page_size_limit(300)
        .set_data_page_row_count_limit(layout.rows_of_page)
        .set_write_batch_size(layout.rows_of_page);
    if !layout.dictionary {
        let of_strings = if layout.delta { ParquetEncoding::DELTA_BYTE_ARRAY } else { ParquetEncoding::PLAIN };
        let of_numbers = if layout.delta { ParquetEncoding::DELTA_BINARY_PACKED } else { ParquetEncoding::PLAIN };
        let member = |name: &str| ColumnPath::new(vec!["add".to_owned(), name.to_owned()]);
        properties = properties.set_encoding(ParquetEncoding::PLAIN);
        properties = properties.set_column_encoding(member("string"), of_strings);
        properties = properties.set_column_encoding(member("long"), of_numbers);
    }
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    Bytes::from(out)
}

/// The value of each row: that of the last entry with the first key, otherwise of the last one with the second key.
fn expected_entries(batch: &RecordBatch, keys: [&str; 2]) -> Vec<Option<String>> {
    let add = batch.column(0).as_struct();
    let map = add.column_by_name("map").unwrap().as_map();
    let of_row = |row: usize| {
        let entries = map.value(row);
        let (found, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
        let last = |key: &str| (0..found.len()).rfind(|at| found.value(*at) == key);
        let at = last(keys[0]).or_else(|| last(keys[1]))?;
        (!values.is_null(at)).then(|| values.value(at).to_owned())
    };
    (0..batch.num_rows()).map(|row| if add.is_null(row) || map.is_null(row) { None } else { of_row(row) }).collect()
}

fn check(rows: &[Row], layout: &Layout, wanted: Option<&BooleanBuffer>) {
    let bytes = written(&batch(rows), layout);
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&bytes, options).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata.clone());
    let general = reader.with_batch_size(rows.len()).build().unwrap().next().unwrap().unwrap();
    let add = general.column(0).as_struct();
    let group = &metadata.metadata().row_groups()[0];
    let of_java = with_other_repetition(&bytes);
    let chunk = |path: &[&str]| {
        let column = group
            .columns()
            .iter()
            .find(|c| c.column_path().parts().iter().eq(path))
            .unwrap_or_else(|| panic!("{path:?}"));
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset()) as usize;
        let level = |level: i16| u32::try_from(level).unwrap();
        let length = column.compressed_size() as usize;
        let is_flat = column.column_descr().max_rep_level() == 0;
        let bytes = if layout.of_java && is_flat { of_java.as_slice() } else { bytes.as_ref() };
        let chunk = Chunk {
            bytes: &bytes[start..start + length],
            codec: column.compression(),
            physical: column.column_type(),
            max_definition: level(column.column_descr().max_def_level()),
            max_repetition: level(column.column_descr().max_rep_level()),
            rows: rows.len(),
            compressed: length,
            size: usize::try_from(column.uncompressed_size()).unwrap(),
        };
        // After a dictionary that grew too large, version 2 of the writer uses another encoding.
        let falls_back = layout.second_version && layout.dictionary;
        let is_rare = layout.delta || falls_back || layout.codec == Compression::LZ4_RAW;
        (chunk, is_rare)
    };
    let chosen = |array: &dyn Array| match wanted {
        Some(rows) => filter(array, &BooleanArray::new(rows.clone(), None)).unwrap(),
        None => arrow_array::make_array(array.to_data()),
    };
    let there = chunk(&["add", "long"]);
    let nulls = add.nulls().map_or_else(|| BooleanBuffer::new_set(rows.len()), |nulls| nulls.inner().clone());
    match defined(there.0, 1) {
        Ok(found) => assert_eq!(found, nulls),
        Err(stop) => assert!(stop == Failure::Unsupported && there.1, "{stop:?}"),
    }
    let nested = add.column_by_name("nested").unwrap().as_struct();
    let leaves: Vec<(Vec<&str>, ArrayRef)> = ["string", "long", "date", "time", "float", "double", "nine", "eighteen"]
        .into_iter()
        .map(|name| (vec!["add", name], add.column_by_name(name).unwrap().clone()))
        .chain([(
            vec!["add", "nested", "n"],
            arrow_select::nullif::nullif(
                nested.column(0),
                &BooleanArray::from((0..rows.len()).map(|row| nested.is_null(row)).collect::<Vec<_>>()),
            )
            .unwrap(),
        )])
        .collect();
    for (path, expected) in &leaves {
        let (chunk, is_rare) = chunk(path);
        match array(chunk, expected.data_type(), wanted) {
            Ok(found) => assert_eq!(&chosen(&found), &chosen(expected), "{path:?}"),
            Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{path:?}: {stop:?}"),
        }
    }
    let (string, is_rare) = chunk(&["add", "string"]);
    let strings = add.column_by_name("string").unwrap();
    let check_strings = |found: &FrontCodedStrings| {
        assert_eq!(&found.strings(0..found.rows(), found.rows()).unwrap(), strings.as_string::<i32>());
        if let Some(wanted) = wanted {
            let found = found.strings(wanted.set_indices(), wanted.count_set_bits());
            assert_eq!(&found.unwrap(), chosen(strings).as_string::<i32>());
        }
    };
    let packed = FrontCodedStrings::of(strings.as_string()).unwrap();
    check_strings(&packed);
    match trimmed(string) {
        Ok(found) => check_strings(&found),
        Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{stop:?}"),
    }
    let numbers = [vec!["add", "long"], vec!["add", "nested", "n"]];
    let expected = numbers.clone().map(|path| &leaves.iter().find(|(leaf, _)| *leaf == path).unwrap().1);
    for (path, expected) in numbers.iter().zip(expected) {
        match DictionaryEncoded::read(chunk(path).0) {
            Ok(found) => {
                let expected = expected.as_primitive::<Int64Type>();
                assert_eq!(&found.numbers(0..found.rows(), found.rows()).unwrap(), expected);
                for at_most in [1, 3, rows.len()] {
                    let wanted = wanted.iter().flat_map(|wanted| wanted.set_indices());
                    let some: Vec<usize> = wanted.step_by(rows.len() / at_most.max(1) + 1).collect();
                    let found = found.numbers(some.iter().copied(), some.len()).unwrap();
                    let value = |row: &usize| expected.is_valid(*row).then(|| expected.value(*row));
                    assert_eq!(found, some.iter().map(value).collect::<Int64Array>());
                }
            }
            Err(stop) => {
                let is_rare = layout.delta || layout.codec == Compression::LZ4_RAW;
                assert!(stop == Failure::Unsupported && is_rare, "numbers are of a rare kind: {stop:?}");
            }
        }
    }
    for size in [1, 100, 1000, 1 << 20] {
        match strings_by_pieces(string, wanted, size) {
            Ok(found) => assert_eq!(&chosen(&found), &chosen(add.column_by_name("string").unwrap())),
            Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{stop:?}"),
        }
        match trimming_by_pieces(string, size).map(FrontCoder::finish) {
            Ok(found) => check_strings(&found),
            Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{stop:?}"),
        }
    }
    for together in [1, 7, 100, rows.len().max(1)] {
        match strings_as_views(string, rows.len(), together) {
            Ok(found) => assert_eq!(&found, add.column_by_name("string").unwrap().as_string::<i32>()),
            Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{stop:?}"),
        }
    }
    match strings_by_page(string, wanted, |strings| strings.iter().map(|t| t.map(str::to_owned)).collect::<Vec<_>>()) {
        Ok(pages) => {
            let found: StringArray = pages.into_iter().flatten().collect();
            assert_eq!(&chosen(&found), &chosen(add.column_by_name("string").unwrap()));
        }
        Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{stop:?}"),
    }
    let (keys, is_rare) = chunk(&["add", "map", "key_value", "key"]);
    let (values, _) = chunk(&["add", "map", "key_value", "value"]);
    let sought = [["k", "l"], ["l", "none"], ["l", "k"]];
    match entries(keys, values, &sought) {
        Ok(found) => {
            assert_eq!(found.len(), sought.len());
            for (found, pair) in found.iter().zip(sought) {
                let string = |code: &u32| found.strings.get(*code as usize).cloned();
                assert_eq!(found.codes.iter().map(string).collect::<Vec<_>>(), expected_entries(&general, pair));
            }
        }
        Err(stop) => assert!(stop == Failure::Unsupported && is_rare, "{stop:?}"),
    }
}

/// The file with another encoding of repetition levels in every header of a page: in both, definition levels are runs.
fn with_other_repetition(bytes: &[u8]) -> Vec<u8> {
    let (runs, packed) = ([0x15, 6, 0x15, 6], [0x15, 6, 0x15, 8]);
    let mut other = bytes.to_vec();
    for at in 0..other.len().saturating_sub(runs.len()) {
        if other[at..].starts_with(&runs) {
            other[at..at + runs.len()].copy_from_slice(&packed);
        }
    }
    other
}

/// The limits for the strings of a leaf: of those in the dictionary alone, and of all with their pages.
fn said(batch: &RecordBatch, layout: &Layout, path: &[&str], rows: u64) -> Result<[u64; 2], String> {
    let bytes = written(batch, layout);
    let metadata = ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new()).unwrap();
    let mut columns = metadata.metadata().row_groups()[0].columns().iter();
    let column = columns.find(|column| column.column_path().parts().iter().eq(path)).unwrap();
    let (start, length) = column.byte_range();
    let chunk = bytes.slice(start as usize..(start + length) as usize);
    let limits = limits::check(&chunk, column).unwrap();
    let all =
        string_lengths::check(&[StringLeaf { chunk: &chunk, column, limits }], rows, 0).map_err(|e| e.to_string())?;
    Ok([all - limits.bytes - limits.prefixes, all])
}

#[test]
fn a_long_string_of_few_rows_is_within_bounds() {
    let layout = |dictionary| Layout {
        codec: Compression::SNAPPY,
        second_version: false,
        dictionary,
        delta: false,
        of_java: false,
        rows_of_page: 20_000,
    };
    let schema = |string: Option<&str>| {
        let strings: StringArray = (0..100_000).map(|row| string.filter(|_| row == 77)).collect();
        RecordBatch::try_from_iter_with_nullable([("string", Arc::new(strings) as ArrayRef, true)]).unwrap()
    };
    let long: String = (0..200_000).map(|number| format!("{number:05}")).collect();
    let [coded, all] = said(&schema(Some(&long)), &layout(true), &["string"], 100_000).unwrap();
    assert!(coded == long.len() as u64 && all < 3_000_000, "{coded} of {all}");
    let [coded, _] = said(&schema(None), &layout(true), &["string"], 100_000).unwrap();
    assert_eq!(coded, 0);
}

#[test]
fn paths_are_kept_in_room_that_does_not_grow() {
    // As in a checkpoint with tombstones: some rows have no path.
    let path = |row: u64| {
        let id = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("p_date=2022-01-{:02}/part-00000-{id:016x}{:016x}-c000.snappy.parquet", row / 4_000, id.rotate_left(7))
    };
    let strings: StringArray = (0..100_000).map(|row| (row % 50 != 0).then(|| path(row))).collect();
    let column = RecordBatch::try_from_iter_with_nullable([("string", Arc::new(strings.clone()) as ArrayRef, true)]);
    let layout = Layout {
        codec: Compression::SNAPPY,
        second_version: false,
        dictionary: false,
        delta: false,
        of_java: false,
        rows_of_page: 4_000,
    };
    let bytes = written(&column.unwrap(), &layout);
    let metadata = ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new()).unwrap();
    let column = metadata.metadata().row_groups()[0].column(0);
    let (start, length) = column.byte_range();
    let chunk = Chunk {
        bytes: &bytes[start as usize..(start + length) as usize],
        codec: Compression::SNAPPY,
        physical: PhysicalType::BYTE_ARRAY,
        max_definition: 1,
        max_repetition: 0,
        rows: strings.len(),
        compressed: length as usize,
        size: column.uncompressed_size() as usize,
    };
    let kept = trimmed(chunk).unwrap();
    // 16 bytes for each UUID, and 4 for its end.
    let least = 98_000 * 16;
    assert!((least..least * 3 / 2).contains(&kept.bytes()), "{}", kept.bytes());
}

/// The strings of a leaf that is read in pieces of `size` bytes.
fn strings_by_pieces(chunk: Chunk<'_>, wanted: Option<&BooleanBuffer>, size: usize) -> Result<StringArray, Failure> {
    let (mut pages, mut rest, mut found) = (StringPages::default(), Vec::new(), Vec::new());
    let mut pieces = chunk.bytes.chunks(size).peekable();
    while let Some(piece) = pieces.next() {
        rest.extend_from_slice(piece);
        let own = |strings: &[Option<&str>]| strings.iter().map(|t| t.map(str::to_owned)).collect::<Vec<_>>();
        let whole = Chunk { bytes: &rest, ..chunk };
        let (read, length) = pages.read(whole, pieces.peek().is_none(), wanted, own)?;
        found.extend(read.into_iter().flatten());
        rest.drain(..length);
    }
    Ok(found.into_iter().collect())
}

fn trimmed(chunk: Chunk<'_>) -> Result<FrontCodedStrings, Failure> {
    let mut trimming = FrontCoder::default();
    trimming.read(chunk, true)?;
    Ok(trimming.finish())
}

/// The strings of a leaf that is read in pieces of this size.
fn trimming_by_pieces(chunk: Chunk<'_>, size: usize) -> Result<FrontCoder, Failure> {
    let (mut trimming, mut rest) = (FrontCoder::default(), Vec::new());
    let mut pieces = chunk.bytes.chunks(size).peekable();
    while let Some(piece) = pieces.next() {
        rest.extend_from_slice(piece);
        let length = trimming.read(Chunk { bytes: &rest, ..chunk }, pieces.peek().is_none())?;
        rest.drain(..length);
    }
    Ok(trimming)
}

/// The strings of a leaf, so many at a time, in memory that was used before.
fn strings_as_views(chunk: Chunk<'_>, rows: usize, together: usize) -> Result<StringArray, Failure> {
    let pool = Arc::new(Pool::default());
    pool.put_back(vec![0xff; 100_000]);
    let bytes = Bytes::copy_from_slice(chunk.bytes);
    let mut views = StringViews::new(Chunk { bytes: &bytes, ..chunk }, &bytes, &pool)?;
    let mut found = Vec::new();
    for start in (0..rows).step_by(together) {
        let some = views.take(together.min(rows - start))?;
        // After views are dropped, the memory of their page is used for the next one.
        found.extend(some.iter().map(|string| string.map(str::to_owned)).collect::<Vec<_>>());
    }
    assert!(views.take(1).is_err(), "more rows than there are");
    Ok(found.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn leaves_are_decoded_as_by_the_general_decoder(
        rows in rows(),
        layout in layout(),
        wanted in proptest::option::of(prop::collection::vec(proptest::bool::weighted(0.05), 900)),
    ) {
        let wanted = wanted.map(|bits| BooleanBuffer::collect_bool(rows.len(), |row| bits[row]));
        check(&rows, &layout, wanted.as_ref());
    }

    #[test]
    fn lengths_are_never_understated(rows in rows(), layout in layout()) {
        let batch = batch(&rows);
        let add = batch.column(0).as_struct();
        let map = add.column_by_name("map").unwrap().as_map();
        for (path, strings) in [
            (&["add", "string"][..], add.column_by_name("string").unwrap()),
            (&["add", "map", "key_value", "key"], map.keys()),
            (&["add", "map", "key_value", "value"], map.values()),
        ] {
            let length: usize = strings.as_string::<i32>().iter().flatten().map(str::len).sum();
            let [coded, all] = said(&batch, &layout, path, 0).unwrap();
            // Exact for the dictionary; the limit for pages includes their lengths, levels and codes.
            prop_assert!(coded <= length as u64 && length as u64 <= all, "{length}: {coded} of {all}");
        }
    }

    #[test]
    fn broken_bytes_are_refused_or_read(
        rows in rows(),
        layout in layout(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let bytes = written(&batch(&rows), &layout);
        let metadata = ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new()).unwrap();
        let columns = metadata.metadata().row_groups()[0].columns();
        let bytes_of = |column: &ColumnChunkMetaData| {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset()) as usize;
            bytes[start..start + column.compressed_size() as usize].to_vec()
        };
        for column in columns {
            let mut broken = bytes_of(column);
            let at = at.index(broken.len());
            if cut { broken.truncate(at) } else { broken[at] = to }
            let chunk = Chunk {
                bytes: &broken,
                codec: column.compression(),
                physical: column.column_type(),
                max_definition: u32::try_from(column.column_descr().max_def_level()).unwrap(),
                max_repetition: u32::try_from(column.column_descr().max_rep_level()).unwrap(),
                rows: rows.len(),
                compressed: broken.len(),
                size: usize::MAX,
            };
            let target = match chunk.physical {
                PhysicalType::INT32 => arrow_schema::DataType::Int32,
                PhysicalType::INT64 => arrow_schema::DataType::Int64,
                _ => arrow_schema::DataType::Utf8,
            };
            // A result has as many rows as the footer says.
            if let Ok(found) = array(chunk, &target, None) {
                prop_assert_eq!(found.len(), rows.len());
            }
            if let Ok(found) = trimmed(chunk) {
                let whole = found.strings(0..found.rows(), found.rows());
                // Invalid strings are an error only when they are requested.
                prop_assert_eq!(found.rows(), whole.map_or(rows.len(), |strings| strings.len()));
                prop_assert_eq!(found.rows(), rows.len());
            }
            if let Ok(found) = DictionaryEncoded::read(chunk) {
                prop_assert_eq!(found.rows(), rows.len());
                // An invalid code is an error only when its number is requested.
                let all = found.numbers(0..rows.len(), rows.len());
                prop_assert_eq!(all.map_or(rows.len(), |numbers| numbers.len()), rows.len());
                let _ = found.numbers((0..rows.len()).step_by(20), rows.len().div_ceil(20));
            }
            if let Ok(found) = defined(chunk, 1) {
                prop_assert_eq!(found.len(), rows.len());
            }
            if let Ok(found) = entries(chunk, chunk, &[["k", "l"]]) {
                prop_assert!(found.iter().all(|found| found.codes.len() == rows.len()));
            }
        }
    }
}
