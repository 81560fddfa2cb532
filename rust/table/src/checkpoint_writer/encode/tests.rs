//! Chunks against those of the parquet crate: random rows, nulls at every level, values that repeat and that do not.

use std::sync::Arc;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, StringViewArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, Type as PhysicalType, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterVersion;
use parquet::file::statistics::Statistics;
use proptest::prelude::*;

use super::{Encoding as FileEncoding, WriterSlot, file_of};

/// One action: nothing if it is another than `add`. Path, number, and whether its statistics are there.
type Row = Option<(String, Option<i64>, bool)>;

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let text = prop_oneof![Just(String::new()), "[a-c]{1,2}", "[ -~é]{0,40}", "x{250,300}"];
    let number = prop_oneof![Just(7_i64), 0..4_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)];
    let add = (text, proptest::option::weighted(0.8, number), proptest::bool::weighted(0.8));
    // Long runs of the same kind, as checkpoints have them, and single ones between.
    let run = (proptest::option::weighted(0.8, add), 1..30_usize);
    prop::collection::vec(run, 0..30).prop_map(|runs| runs.into_iter().flat_map(|(row, n)| vec![row; n]).collect())
}

fn structure(members: Vec<(&str, ArrayRef)>, there: Vec<bool>) -> StructArray {
    // A path is required, as in checkpoints.
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), *name != "path");
    let fields: Fields = members.iter().map(field).collect();
    let arrays = members.into_iter().map(|(_, array)| array).collect();
    StructArray::new(fields, arrays, Some(NullBuffer::from(there)))
}

/// The rows as a column `add` with members of every type that is encoded here, and of some that are not.
fn batch(rows: &[Row]) -> RecordBatch {
    let numbers: Vec<Option<i64>> = rows.iter().map(|row| row.as_ref()?.1).collect();
    let small = |bits: u32| numbers.iter().map(move |n| n.map(|n| n >> (64 - bits)));
    let double = |number: i64| match number {
        i64::MIN => f64::NAN,
        i64::MAX => -0.0,
        7 => f64::NEG_INFINITY,
        number => (number >> 24) as f64 / 8.0,
    };
    let decimal = |bits: u32, precision: u8| -> ArrayRef {
        let unscaled: Decimal128Array = small(bits).map(|n| n.map(i128::from)).collect();
        Arc::new(unscaled.with_precision_and_scale(precision, 2).unwrap())
    };
    let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
    let mut map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for row in rows {
        if let Some((path, number, _)) = row {
            map.keys().append_value(path);
            map.values().append_option(number.map(|n| n.to_string()));
        }
        map.append(row.is_some()).unwrap();
    }
    let text = |row: &Row| row.as_ref().map(|(path, ..)| path.clone());
    let says = |row: &Row| row.as_ref().is_some_and(|(_, _, says)| *says);
    let inner = structure(
        vec![
            ("time", Arc::new(TimestampMicrosecondArray::from(numbers.clone()).with_timezone("UTC"))),
            ("double", Arc::new(numbers.iter().map(|n| n.map(double)).collect::<Float64Array>())),
            ("text", Arc::new(rows.iter().map(text).collect::<StringArray>())),
        ],
        rows.iter().map(|row| says(row) && row.as_ref().is_some_and(|(path, ..)| path.len() % 3 != 0)).collect(),
    );
    let stats = structure(
        vec![
            ("int", Arc::new(small(20).map(|n| n.map(|n| n as i32)).collect::<Int32Array>())),
            ("minValues", Arc::new(inner)),
            ("float", Arc::new(small(9).map(|n| n.map(|n| n as f32 / 4.0)).collect::<Float32Array>())),
        ],
        rows.iter().map(says).collect(),
    );
    let add = structure(
        vec![
            ("path", Arc::new(rows.iter().map(|row| Some(text(row).unwrap_or_default())).collect::<StringArray>())),
            ("partitionValues", Arc::new(map.finish())),
            ("size", Arc::new(Int64Array::from(numbers.clone()))),
            ("dataChange", Arc::new(numbers.iter().map(|n| n.map(|n| n > 5)).collect::<BooleanArray>())),
            ("stats", Arc::new(rows.iter().map(|row| text(row).filter(|_| says(row))).collect::<StringViewArray>())),
            ("date", Arc::new(small(20).map(|n| n.map(|n| n as i32)).collect::<Date32Array>())),
            ("nine", decimal(28, 9)),
            ("eighteen", decimal(56, 18)),
            ("thirty", decimal(60, 30)),
            ("stats_parsed", Arc::new(stats)),
        ],
        rows.iter().map(Option::is_some).collect(),
    );
    let version: Int64Array = rows.iter().map(|row| if row.is_none() { Some(1) } else { None }).collect();
    let txn = structure(vec![("version", Arc::new(version))], rows.iter().map(Option::is_none).collect());
    let columns: Vec<(&str, ArrayRef)> = vec![("txn", Arc::new(txn)), ("add", Arc::new(add))];
    let fields: Fields =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// What a file has, and what its footer says.
fn read(file: Bytes) -> (Vec<RecordBatch>, ParquetMetaData) {
    let options = ArrowReaderOptions::new().with_encoding_stats_as_mask(false);
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
    let metadata = reader.metadata().as_ref().clone();
    (reader.build().unwrap().collect::<Result<_, _>>().unwrap(), metadata)
}

/// Of each leaf of each row group: its name, values, nulls and bounds. Texts that are too long for bounds have none here,
/// and a part of them there; and so it is where all numbers are NaN.
fn column_facts(metadata: &ParquetMetaData) -> Vec<(String, i64, Option<u64>, Option<String>)> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let bounds = |statistics: &Statistics| match statistics {
        Statistics::ByteArray(bounds) if !(bounds.min_is_exact() && bounds.max_is_exact()) => None,
        Statistics::Double(bounds) => {
            let number = |bound: Option<&f64>| bound.filter(|bound| !bound.is_nan()).map(|bound| bound.to_bits());
            Some(format!("{:?} {:?} {:?}", number(bounds.min_opt()), number(bounds.max_opt()), bounds.nan_count_opt()))
        }
        other => Some(format!("{:?} {:?}", other.min_bytes_opt(), other.max_bytes_opt())),
    };
    let of = |column: &parquet::file::metadata::ColumnChunkMetaData| {
        let statistics = column.statistics();
        let nulls = statistics.and_then(Statistics::null_count_opt);
        (column.column_path().string(), column.num_values(), nulls, statistics.and_then(bounds))
    };
    columns.map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn chunks_are_those_of_the_general_encoder(groups in prop::collection::vec(prop::collection::vec(rows(), 1..4), 1..3)) {
        let mut groups: Vec<Vec<RecordBatch>> =
            groups.iter().map(|pieces| pieces.iter().map(|rows| batch(rows)).collect()).collect();
        // A row group without rows is none.
        groups.retain(|pieces| pieces.iter().any(|piece| piece.num_rows() > 0));
        prop_assume!(!groups.is_empty());
        let schema = groups[0][0].schema();
        let (rows, metadata) = read(file_of(&schema, &groups, WriterVersion::PARQUET_1_0).unwrap());
        let (expected, of_others) = read(file_of(&schema, &groups, WriterVersion::PARQUET_2_0).unwrap());
        let all = |rows: &[RecordBatch]| concat_batches(rows[0].schema_ref(), rows).unwrap();
        prop_assert_eq!(all(&rows), all(&expected));
        prop_assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), groups.iter().flatten().map(RecordBatch::num_rows).sum::<usize>());
        for (here, there) in column_facts(&metadata).into_iter().zip(column_facts(&of_others)) {
            let has_long = there.3.is_none() || here.3.is_none();
            if has_long {
                prop_assert_eq!((here.0, here.1, here.2), (there.0, there.1, there.2));
            } else {
                prop_assert_eq!(here, there);
            }
        }
    }
}

#[test]
fn leaves_of_files_are_encoded_directly() {
    let schema = batch(&[]).schema();
    let direct = |version: WriterVersion, compression: Compression| -> Vec<String> {
        let encoding = FileEncoding::with(&schema, version, compression).unwrap();
        let slots = encoding.tree.slots().iter().enumerate();
        let direct = slots.filter(|(_, slot)| matches!(slot, WriterSlot::Direct(_)));
        direct.map(|(leaf, _)| encoding.leaves.column(leaf).path().string()).collect()
    };
    let leaves = direct(WriterVersion::PARQUET_1_0, Compression::SNAPPY);
    for leaf in ["txn.version", "add.path", "add.size", "add.stats", "add.date", "add.eighteen"] {
        assert!(leaves.iter().any(|direct| direct == leaf), "{leaf} is not among {leaves:?}");
    }
    assert!(!leaves.iter().any(|leaf| leaf.starts_with("add.partitionValues")), "{leaves:?}");
    assert!(direct(WriterVersion::PARQUET_2_0, Compression::SNAPPY).is_empty());
    assert!(direct(WriterVersion::PARQUET_1_0, Compression::ZSTD(ZstdLevel::default())).is_empty());
}

/// The encodings of the pages of one leaf, how many bytes they take, and the values that are read.
fn of_numbers(numbers: Vec<i64>) -> (Vec<Encoding>, i64, usize) {
    let count = numbers.len();
    let array: ArrayRef = Arc::new(Int64Array::from(numbers));
    let rows = RecordBatch::try_from_iter([("n", array)]).unwrap();
    let pieces = (0..count).step_by(4096).map(|start| rows.slice(start, 4096.min(count - start))).collect();
    let (read, metadata) = read(file_of(rows.schema_ref(), &[pieces], WriterVersion::PARQUET_1_0).unwrap());
    assert_eq!(concat_batches(rows.schema_ref(), &read).unwrap(), rows);
    let column = metadata.row_group(0).column(0);
    assert_eq!(column.column_type(), PhysicalType::INT64);
    let pages = column.page_encoding_stats().unwrap();
    let encodings = pages.iter().map(|pages| pages.encoding).collect();
    (encodings, column.compressed_size(), pages.iter().map(|pages| usize::try_from(pages.count).unwrap()).sum())
}

#[test]
fn numbers_that_repeat_have_a_dictionary_and_others_none() {
    let rows = 50_000;
    let (encodings, bytes, pages) = of_numbers(vec![5; rows]);
    assert_eq!((encodings, pages), (vec![Encoding::PLAIN, Encoding::RLE_DICTIONARY], 8));
    assert!(bytes < 400, "{bytes}");
    let (encodings, bytes, _) = of_numbers((0..rows as i64).map(|n| n * n % 1_000).collect());
    assert_eq!(encodings, [Encoding::PLAIN, Encoding::RLE_DICTIONARY]);
    assert!(bytes < 100_000, "{bytes}");
    // Eight thousand numbers fill a page.
    let (encodings, _, pages) =
        of_numbers((0..rows as i64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed())).collect());
    assert_eq!((encodings, pages), (vec![Encoding::PLAIN], 7));
}

#[test]
fn numbers_that_repeat_no_more_go_on_without() {
    let many = |at: i64| if at < 30_000 { at % 10 } else { at };
    let (encodings, ..) = of_numbers((0..60_000).map(many).collect());
    assert_eq!(encodings, [Encoding::PLAIN, Encoding::RLE_DICTIONARY, Encoding::PLAIN]);
}

#[test]
fn a_page_has_the_texts_that_fit() {
    let texts: StringViewArray =
        (0..1_000).map(|at| Some("t".repeat(at % 400 + if at == 501 { 200_000 } else { 0 }))).collect();
    let there = NullBuffer::new(BooleanBuffer::collect_bool(1_000, |row| row % 10 > 0));
    let (views, buffers, _) = texts.into_parts();
    let texts: ArrayRef = Arc::new(StringViewArray::new(views, buffers, Some(there)));
    let add = structure(vec![("stats", texts)], vec![true; 1_000]);
    let rows = RecordBatch::try_from_iter([("add", Arc::new(add) as ArrayRef)]).unwrap();
    let (read, metadata) = read(file_of(rows.schema_ref(), &[vec![rows.clone()]], WriterVersion::PARQUET_1_0).unwrap());
    let text = |rows: &[RecordBatch]| -> Vec<Option<String>> {
        let texts = |rows: &RecordBatch| {
            let column = cast(rows.column(0).as_struct().column(0), &DataType::Utf8View).unwrap();
            column.as_string_view().iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>()
        };
        rows.iter().flat_map(texts).collect()
    };
    assert_eq!(text(&read), text(&[rows]));
    let column = metadata.row_group(0).column(0);
    assert!(column.statistics().is_none());
    // Some 180 KB in pages of 64, one of them around the text that fits none.
    let pages: i32 = column.page_encoding_stats().unwrap().iter().map(|pages| pages.count).sum();
    assert!((5..=6).contains(&pages), "{pages}");
}
