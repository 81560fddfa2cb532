//! Pages of a checkpoint decoded and encoded directly, and the same by the parquet crate: `cargo bench -p deltic-pages`.
//!
//! Each figure is the least of several runs over one row group in memory, on one thread.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::DataType;
use bytes::Bytes;
use deltic_pages::decode::{self, Chunk, FrontCoder};
use deltic_pages::encode::{ColumnWriter, Kind, PageCompressor};
use deltic_pages::pool::Pool;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnDescPtr;

const ROWS: i64 = 100_000;
const RUNS: usize = 20;

/// Random bits for a number, the same each time.
fn noise(number: i64) -> u64 {
    let mixed = number.cast_unsigned().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Files as a checkpoint has them: a path, a size, a time that some share, and statistics.
fn files() -> RecordBatch {
    let path = |n: i64| {
        format!("day=2024-01-{:02}/part-{:05}-{:016x}{:016x}.parquet", n % 28 + 1, n % 500, noise(n), noise(-n))
    };
    let stats = |n: i64| format!(r#"{{"numRecords":1000,"minValues":{{"id":{n}}},"maxValues":{{"id":{}}}}}"#, n + 999);
    let members: Vec<(&str, ArrayRef)> = vec![
        ("path", Arc::new(StringArray::from_iter_values((0..ROWS).map(path)))),
        ("size", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| (noise(n) >> 40).cast_signed())))),
        ("modificationTime", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| 1_700_000_000_000 + n / 500)))),
        ("stats", Arc::new(StringArray::from_iter_values((0..ROWS).map(stats)))),
    ];
    let add = StructArray::try_from(members).expect("members are of one length");
    RecordBatch::try_from_iter_with_nullable([("add", Arc::new(add) as ArrayRef, true)]).expect("one column")
}

fn least<T>(mut run: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let started = Instant::now();
        black_box(run());
        started.elapsed()
    };
    (0..RUNS).map(once).min().unwrap_or_default()
}

fn main() {
    let batch = files();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).expect("a schema");
    writer.write(&batch).expect("rows");
    writer.close().expect("a file");
    let file = Bytes::from(file);
    let metadata = ArrowReaderMetadata::load(&file, Default::default()).expect("a footer");
    println!("{:<25} {:>10} {:>10} {:>10} {:>7}", "leaf", "bytes", "direct", "parquet", "ratio");
    for leaf in 0..metadata.parquet_schema().num_columns() {
        let column = metadata.metadata().row_group(0).column(leaf);
        let (start, length) = column.byte_range();
        let bytes = file.slice(start as usize..(start + length) as usize);
        let chunk = Chunk {
            bytes: &bytes,
            codec: column.compression(),
            physical: column.column_type(),
            max_definition: column.column_descr().max_def_level().unsigned_abs().into(),
            max_repetition: 0,
            rows: ROWS as usize,
            compressed: bytes.len(),
            size: column.uncompressed_size() as usize,
        };
        let target = if leaf % 3 == 0 { DataType::Utf8 } else { DataType::Int64 };
        let direct = least(|| decode::array(chunk, &target, None).expect("a usual leaf"));
        let general = least(|| {
            let mask = ProjectionMask::leaves(metadata.parquet_schema(), [leaf]);
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone());
            let reader = reader.with_projection(mask).with_batch_size(ROWS as usize).build().expect("a reader");
            reader.collect::<Result<Vec<_>, _>>().expect("rows")
        });
        report(column.column_path().parts().last().map_or("", String::as_str), bytes.len(), direct, general);
        if leaf == 0 {
            let front_coded = least(|| {
                let mut coder = FrontCoder::default();
                coder.read(chunk, true).expect("paths");
                coder.finish()
            });
            report("path, front-coded", bytes.len(), front_coded, general);
        }
    }
    println!();
    for leaf in 0..metadata.parquet_schema().num_columns() {
        encode_leaf(&batch, metadata.parquet_schema().column(leaf), leaf);
    }
}

/// Encodes one leaf of the files.
fn encode_leaf(batch: &RecordBatch, descr: ColumnDescPtr, leaf: usize) {
    let (name, pool) = (descr.name().to_owned(), Arc::<Pool>::default());
    let add = batch.column(0).as_struct();
    let array = add.column(leaf);
    let nodes = [add.nulls().cloned(), array.nulls().cloned()];
    // Paths and statistics.
    let is_string = leaf.is_multiple_of(3);
    let kind = if is_string { Kind::String { has_bounds: leaf == 0 } } else { Kind::Long };
    let mut bytes = 0;
    let direct = least(|| {
        let (mut writer, mut compressor) = (ColumnWriter::new(descr.clone(), kind, &pool), PageCompressor::default());
        writer.write(&nodes, array, &mut compressor).expect("rows");
        let (pages, _) = writer.close(&mut compressor).expect("a chunk");
        bytes = pages.map(|page| page.len()).sum();
    });
    let alone = StructArray::try_from(vec![(name.as_str(), Arc::clone(array))]).expect("one member");
    let alone = RecordBatch::try_from_iter_with_nullable([("add", Arc::new(alone) as ArrayRef, true)]);
    let alone = alone.expect("one column");
    let general = least(|| {
        // As the checkpoint writer lets it encode these leaves.
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(!is_string)
            .set_statistics_enabled(if leaf == 3 { EnabledStatistics::None } else { EnabledStatistics::Chunk })
            .set_offset_index_disabled(true);
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, alone.schema(), Some(properties.build())).expect("a schema");
        writer.write(&alone).expect("rows");
        writer.close().expect("a file");
        file.len()
    });
    report(&format!("{name}, encoded"), bytes, direct, general);
}

fn report(leaf: &str, bytes: usize, direct: Duration, general: Duration) {
    let [direct, general] = [direct, general].map(|time| time.as_secs_f64() * 1e3);
    println!("{leaf:<25} {bytes:>10} {direct:>7.2} ms {general:>7.2} ms {:>6.2}x", general / direct);
}
