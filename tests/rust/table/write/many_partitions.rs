//! Many partitions in little memory: one file per partition, rows in order, no temporary files left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_schema::Field;
use arrow_select::concat::concat_batches;
use deltic_protocol::error::{Error, Kind, Result};
use deltic_store::decode_path;
use deltic_table::write::writer::{Compression, DataFile, Limits, MemoryUse, WriteSpec};
use futures::stream;
use proptest::prelude::*;

use super::writer::{Table, batch, field, longs, numbers_by_partition, spec};

const MIB: usize = 1024 * 1024;

/// Consecutive numbers and their partitions.
fn rows(from: i64, count: i64, partition: impl Fn(i64) -> i64) -> RecordBatch {
    let numbers = from..from + count;
    let strings = StringArray::from_iter_values(numbers.clone().map(|n| format!("{n:0>100}")));
    let columns: Vec<(&str, ArrayRef)> =
        vec![("n", longs(numbers.clone())), ("p", longs(numbers.map(partition))), ("t", Arc::new(strings))];
    batch(columns)
}

/// Partitions in mixed order.
fn mixed(partitions: i64) -> impl Fn(i64) -> i64 + Copy {
    move |n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed()).rem_euclid(1_000_003) % partitions
}

fn of_strings() -> WriteSpec {
    spec(&[field("n", "long"), field("t", "string"), field("p", "long")], &["p"])
}

fn write(table: &Table, spec: &WriteSpec, limits: Limits, batches: &[RecordBatch]) -> (Vec<DataFile>, Arc<MemoryUse>) {
    table.runtime.block_on(async {
        let writer = table.writer(spec).with_limits(limits);
        let memory = writer.memory_use();
        let files = writer.write_all(stream::iter(batches.iter().cloned().map(Ok))).await.unwrap();
        (files, memory)
    })
}

fn numbers(rows: impl Iterator<Item = i64>, partition: impl Fn(i64) -> i64) -> BTreeMap<Option<String>, Vec<i64>> {
    let mut found: BTreeMap<Option<String>, Vec<i64>> = BTreeMap::new();
    for n in rows {
        found.entry(Some(partition(n).to_string())).or_default().push(n);
    }
    found
}

#[test]
fn each_partition_has_one_file_in_bounded_memory() {
    let partition = mixed(1500);
    let batches: Vec<RecordBatch> = (0..40).map(|i| rows(i * 1000, 1000, partition)).collect();
    for memory in [MIB, 3 * MIB, 64 * MIB] {
        let table = Table::new();
        let (files, held) = write(&table, &of_strings(), Limits::of_memory(memory), &batches);
        assert_eq!(files.len(), 1500, "{memory}");
        assert_eq!(files.len(), table.files_on_disk());
        assert_eq!(numbers_by_partition(&table, &files), numbers(0..40_000, partition));
        assert!(held.peak() <= memory, "{} of {memory} bytes", held.peak());
        assert_eq!(held.spilled() > 0, memory < 64 * MIB, "{memory}");
    }
}

#[test]
fn rows_sorted_by_partition_need_no_temporary_file() {
    let partition = |n: i64| n / 100;
    let batches: Vec<RecordBatch> = (0..40).map(|i| rows(i * 1000, 1000, partition)).collect();
    let table = Table::new();
    let (files, held) = write(&table, &of_strings(), Limits::of_memory(MIB), &batches);
    assert_eq!((files.len(), held.spilled()), (400, 0));
    assert_eq!(numbers_by_partition(&table, &files), numbers(0..40_000, partition));
    assert!(held.peak() <= MIB, "{}", held.peak());
}

#[test]
fn recurring_partitions_have_at_most_two_files() {
    let partition = |n: i64| n / 100 % 100;
    let batches: Vec<RecordBatch> = (0..50).map(|i| rows(i * 1000, 1000, partition)).collect();
    let table = Table::new();
    let (files, held) = write(&table, &of_strings(), Limits::of_memory(MIB), &batches);
    assert!((100..200).contains(&files.len()), "{}", files.len());
    assert_eq!(numbers_by_partition(&table, &files), numbers(0..50_000, partition));
    assert!(held.spilled() > 0 && held.peak() <= MIB, "{}", held.peak());
}

#[test]
fn large_partitions_have_files_of_the_target_size() {
    let partition = mixed(3);
    let batches: Vec<RecordBatch> = (0..60).map(|i| rows(i * 1000, 1000, partition)).collect();
    let target = 300_000;
    let spec = WriteSpec { target_file_size: target, compression: Compression::Uncompressed, ..of_strings() };
    let table = Table::new();
    let (files, held) = write(&table, &spec, Limits { open_files: 1, memory: MIB / 2 }, &batches);
    assert_eq!(numbers_by_partition(&table, &files), numbers(0..60_000, partition));
    assert!(held.spilled() > 0 && held.peak() <= MIB, "{}", held.peak());
    assert!(files.iter().all(|file| file.add.size < 3 * target as i64), "{files:?}");
    assert!(files.len() < 40, "{}", files.len());
}

#[test]
fn files_of_spilled_rows_have_a_maximum_of_rows() {
    let partition = mixed(30);
    let batches: Vec<RecordBatch> = (0..60).map(|i| rows(i * 1000, 1000, partition)).collect();
    let spec = WriteSpec { max_rows_per_file: Some(999), ..of_strings() };
    let table = Table::new();
    let (files, held) = write(&table, &spec, Limits::of_memory(MIB), &batches);
    let expected = numbers(0..60_000, partition);
    assert!(held.spilled() > 0);
    assert!(files.iter().all(|file| file.rows <= 999));
    assert_eq!(files.len(), expected.values().map(|numbers| numbers.len().div_ceil(999)).sum::<usize>());
    assert_eq!(numbers_by_partition(&table, &files), expected);
}

#[test]
fn files_of_spilled_rows_are_sorted() {
    let partition = mixed(300);
    let sorted =
        WriteSpec { sort_by: vec!["k".to_owned()], ..spec(&["n", "k", "p"].map(|c| field(c, "long")), &["p"]) };
    let key = |n: i64| n * 7919 % 1009;
    let batches: Vec<RecordBatch> = (0..60)
        .map(|i| {
            let numbers = i * 1000..(i + 1) * 1000;
            let of = |value: &dyn Fn(i64) -> i64| longs(numbers.clone().map(value));
            batch(vec![("n", of(&|n| n)), ("k", of(&key)), ("p", of(&partition))])
        })
        .collect();
    let table = Table::new();
    let (files, held) = write(&table, &sorted, Limits::of_memory(MIB), &batches);
    assert_eq!(files.len(), 300);
    assert!(held.spilled() > 0);
    let mut expected = numbers(0..60_000, partition);
    // Rows with equal keys keep their order.
    expected.values_mut().for_each(|numbers| numbers.sort_by_key(|n| key(*n)));
    assert_eq!(numbers_by_partition(&table, &files), expected);
}

/// Rows with columns of all types, with nulls.
fn of_all_kinds(from: i64, count: i64) -> RecordBatch {
    let values = from..from + count;
    let some = |n: i64| (n % 5 > 0).then_some(n);
    let longs_of = || Int64Array::from_iter(values.clone().map(some));
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(
        values.clone().map(|n| some(n).map(|n| (0..n % 4).map(|i| (i > 0).then_some(n)).collect::<Vec<_>>())),
    );
    let structs = StructArray::try_new(
        vec![Field::new("x", arrow_schema::DataType::Int64, true), Field::new("l", lists.data_type().clone(), true)]
            .into(),
        vec![Arc::new(longs_of()), Arc::new(lists.clone())],
        Some(values.clone().map(|n| n % 3 > 0).collect::<Vec<bool>>().into()),
    )
    .unwrap();
    let bytes = BinaryArray::from_iter(values.clone().map(|n| some(n).map(|n| n.to_le_bytes())));
    let decimals = Decimal128Array::from_iter(values.clone().map(|n| some(n).map(i128::from)));
    let times = TimestampMicrosecondArray::from_iter(values.clone().map(some)).with_timezone("UTC");
    batch(vec![
        ("p", longs(values.clone().map(mixed(40)))),
        ("n", longs(values.clone())),
        ("b", Arc::new(bytes)),
        ("d", Arc::new(decimals.with_precision_and_scale(20, 2).unwrap())),
        ("at", Arc::new(times)),
        ("l", Arc::new(lists)),
        ("s", Arc::new(structs)),
        ("yes", Arc::new(BooleanArray::from_iter(values.clone().map(|n| some(n).map(|n| n % 2 == 0))))),
        ("t", Arc::new(StringArray::from_iter(values.map(|n| some(n).map(|n| "ä".repeat(n as usize % 9)))))),
    ])
}

#[test]
fn values_of_all_types_survive_a_spill() {
    let column =
        |name: &str, kind: &str| format!(r#"{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{}}}}"#);
    let list = r#"{"type":"array","elementType":"long","containsNull":true}"#;
    let inner = format!(r#"{{"type":"struct","fields":[{},{}]}}"#, field("x", "long"), column("l", list));
    let fields = [
        field("p", "long"),
        field("n", "long"),
        field("b", "binary"),
        field("d", "decimal(20,2)"),
        field("at", "timestamp"),
        column("l", list),
        column("s", &inner),
        field("yes", "boolean"),
        field("t", "string"),
    ];
    let batches: Vec<RecordBatch> = (0..30).map(|i| of_all_kinds(i * 500, 500)).collect();
    for materializes_partition_columns in [false, true] {
        let spec = WriteSpec { materializes_partition_columns, ..spec(&fields, &["p"]) };
        let read = |limits: Limits| {
            let table = Table::new();
            let (files, held) = write(&table, &spec, limits, &batches);
            let by_partition = |file: &DataFile| {
                let rows = table.rows(file);
                let stats = file.add.stats.clone();
                (file.add.partition_values.clone(), (concat_batches(&rows[0].schema(), &rows).unwrap(), stats))
            };
            let found: BTreeMap<_, _> = files.iter().map(by_partition).collect();
            assert_eq!(found.len(), files.len());
            (found, held.spilled())
        };
        let (expected, none) = read(Limits::default());
        let (found, spilled) = read(Limits { open_files: 2, memory: 200_000 });
        assert!(none == 0 && spilled > 0, "{none} {spilled}");
        assert_eq!(found, expected);
    }
}

#[test]
fn no_temporary_file_is_left() {
    let table = Table::new();
    let some = || (0..20).map(|i| Ok(rows(i * 1000, 1000, mixed(500))));
    table.runtime.block_on(async {
        // After an error of the source, and after an invalid batch.
        let foreign = batch(vec![("n", Arc::new(StringArray::from(vec!["x"])))]);
        for last in [Err(Error::invalid("the source is gone")), Ok(foreign)] {
            let writer = table.writer(&of_strings()).with_limits(Limits::of_memory(MIB));
            let held = writer.memory_use();
            let rows: Vec<Result<RecordBatch>> = some().chain([last]).collect();
            assert_eq!(writer.write_all(stream::iter(rows)).await.unwrap_err().kind(), &Kind::Invalid);
            assert!(held.spilled() > 0);
            assert_eq!(table.files_on_disk(), 0);
        }
        // Dropped after any number of polls.
        for polls in [0, 5, 50, 100, 200, 400] {
            let mut writer = table.writer(&of_strings()).with_limits(Limits::of_memory(MIB));
            let released = writer.released();
            let held = writer.memory_use();
            let mut writing = Box::pin(writer.write_all(stream::iter(some())));
            let mut left = polls;
            let files = std::future::poll_fn(|context| match writing.as_mut().poll(context) {
                Poll::Ready(files) => Poll::Ready(files.unwrap()),
                Poll::Pending if held.spilled() > 0 && left == 0 => Poll::Ready(Vec::new()),
                Poll::Pending => {
                    left -= i32::from(held.spilled() > 0);
                    Poll::Pending
                }
            });
            let files = files.await;
            drop(writing);
            released.await;
            for file in files {
                table.storage.delete(&decode_path(&file.add.path).unwrap()).await.unwrap();
            }
            // Running jobs of the pool finish, and delete their files.
            for _ in 0..500 {
                if table.files_on_disk() > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            assert_eq!(table.files_on_disk(), 0, "dropped after {polls} polls");
        }
    });
}

fn any_rows() -> impl Strategy<Value = Vec<Vec<i64>>> {
    prop::collection::vec(prop::collection::vec(0..12_i64, 0..60), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 100, ..ProptestConfig::default() })]

    /// With any limits, the files of a partition have its rows in order.
    #[test]
    fn rows_keep_their_order_within_any_limits(
        partitions in any_rows(),
        (memory, open_files) in (1..60_000_usize, 1..4_usize),
        (most, target) in (prop::option::of(1..50_u64), prop_oneof![Just(1_u64), Just(2_000), Just(1 << 30)]),
    ) {
        let table = Table::new();
        let mut expected: BTreeMap<Option<String>, Vec<i64>> = BTreeMap::new();
        let mut batches = Vec::new();
        let mut next = 0;
        for of_batch in &partitions {
            let of_rows = of_batch.clone();
            let first = next;
            batches.push(rows(first, of_batch.len() as i64, |n| of_rows[(n - first) as usize]));
            for partition in of_batch {
                expected.entry(Some(partition.to_string())).or_default().push(next);
                next += 1;
            }
        }
        let spec = WriteSpec { max_rows_per_file: most, target_file_size: target, ..of_strings() };
        let (files, held) = write(&table, &spec, Limits { open_files, memory }, &batches);
        prop_assert!(files.iter().all(|file| most.is_none_or(|most| file.rows <= most)));
        prop_assert_eq!(table.files_on_disk(), files.len());
        prop_assert_eq!(numbers_by_partition(&table, &files), expected);
        // A file is closed when it has its maximum of rows, so that memory may not be used at all.
        prop_assert!(held.peak() > 0 || next == 0 || most.is_some());
    }
}
