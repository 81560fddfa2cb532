//! The data writer: files have the given rows, and no other files are left.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType as A, Field, Schema};
use bytes::Bytes;
use deltic_protocol::action::Add;
use deltic_protocol::error::Kind;
use deltic_protocol::property::PageVersion;
use deltic_protocol::schema::TableSchema;
use deltic_protocol::stats::collect::IndexedColumns;
use deltic_store::{Storage, decode_path};
use deltic_table::write::identity::Numbering;
use deltic_table::write::plan::WritePlan;
use deltic_table::write::writer::{Compression, DataFile, DataWriter, Limits, WriteSpec};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::basic::LogicalType;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::Type;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const NOW: i64 = 1_700_000_000_000;

pub(crate) fn field(name: &str, data_type: &str) -> String {
    format!(r#"{{"name":"{name}","type":"{data_type}","nullable":true,"metadata":{{}}}}"#)
}

pub(crate) fn spec(fields: &[String], partition_columns: &[&str]) -> WriteSpec {
    let schema = format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","));
    WriteSpec::new(TableSchema::parse(schema).unwrap(), partition_columns.iter().map(|p| (*p).to_owned()).collect())
}

pub(crate) struct Table {
    dir: TempDir,
    pub(crate) storage: Storage,
    pub(crate) runtime: Runtime,
}

impl Table {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let options = HashMap::from([("deltic.durability".to_owned(), "none".to_owned())]);
        let storage = Storage::open(dir.path().to_str().unwrap(), &options).unwrap();
        Self { dir, storage, runtime: Runtime::new().unwrap() }
    }

    pub(crate) fn writer(&self, spec: &WriteSpec) -> DataWriter {
        DataWriter::new(self.storage.clone(), spec, || NOW).unwrap()
    }

    pub(crate) fn write(&self, spec: &WriteSpec, batches: &[RecordBatch]) -> Vec<DataFile> {
        self.runtime.block_on(async {
            let mut writer = self.writer(spec);
            for batch in batches {
                writer.write(batch).await.unwrap();
            }
            writer.finish().await.unwrap()
        })
    }

    fn bytes(&self, file: &DataFile) -> Bytes {
        self.runtime.block_on(self.storage.get(&decode_path(&file.add.path).unwrap())).unwrap()
    }

    pub(crate) fn rows(&self, file: &DataFile) -> Vec<RecordBatch> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(self.bytes(file)).unwrap().build().unwrap();
        reader.collect::<Result<_, _>>().unwrap()
    }

    pub(crate) fn metadata(&self, file: &DataFile) -> Arc<ParquetMetaData> {
        ArrowReaderMetadata::load(&self.bytes(file), Default::default()).unwrap().metadata().clone()
    }

    pub(crate) fn files_on_disk(&self) -> usize {
        fn count(dir: &Path) -> usize {
            let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
        }
        count(self.dir.path())
    }
}

pub(crate) fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(n, a)| Field::new(*n, a.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect()).unwrap()
}

pub(crate) fn longs(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// The values of the column `n` by partition, in the order of the files.
pub(crate) fn numbers_by_partition(table: &Table, files: &[DataFile]) -> BTreeMap<Option<String>, Vec<i64>> {
    let mut found: BTreeMap<Option<String>, Vec<i64>> = BTreeMap::new();
    for file in files {
        let mut rows = 0;
        for batch in table.rows(file) {
            rows += batch.num_rows() as u64;
            let numbers = batch.column_by_name("n").unwrap().as_primitive::<Int64Type>().values().to_vec();
            found.entry(file.add.partition_values.get("p").cloned().flatten()).or_default().extend(numbers);
        }
        assert_eq!(rows, file.rows);
        let stats: serde_json::Value = serde_json::from_str(file.add.stats.as_ref().unwrap()).unwrap();
        assert_eq!(stats["numRecords"], rows);
        assert_eq!(file.add.size, table.bytes(file).len() as i64);
        assert_eq!(file.add.modification_time, NOW);
        assert!(file.add.data_change);
    }
    found
}

#[test]
fn one_file() {
    let table = Table::new();
    let spec = spec(&[field("n", "long"), field("t", "string"), field("at", "timestamp")], &[]);
    let at = TimestampMicrosecondArray::from(vec![Some(1_500), None]).with_timezone("Europe/Berlin");
    let rows =
        batch(vec![("t", Arc::new(StringArray::from(vec!["a", "b"]))), ("N", longs([1, 2])), ("at", Arc::new(at))]);
    let files = table.write(&spec, &[rows]);
    assert_eq!(files.len(), 1);
    let add = &files[0].add;
    assert!(add.path.starts_with("part-00000-") && add.path.ends_with(".c000.zstd.parquet"), "{}", add.path);
    assert_eq!(
        add.stats.as_deref().unwrap(),
        r#"{"numRecords":2,"minValues":{"n":1,"t":"a","at":"1970-01-01T00:00:00.001Z"},"maxValues":{"n":2,"t":"b","at":"1970-01-01T00:00:00.002Z"},"nullCount":{"n":0,"t":0,"at":1},"tightBounds":true}"#
    );
    let read = &table.rows(&files[0])[0];
    assert_eq!(
        read.schema().field(2).data_type(),
        &A::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into()))
    );
    assert_eq!(read.column(1).as_string::<i32>().value(1), "b");
    let metadata = table.metadata(&files[0]);
    let file = metadata.file_metadata();
    assert!(file.created_by().unwrap().starts_with("deltic version "));
    assert!(file.key_value_metadata().is_none_or(|pairs| pairs.iter().all(|pair| pair.key != "ARROW:schema")));
    let column = metadata.row_group(0).column(2);
    assert_eq!(column.column_type(), parquet::basic::Type::INT64);
    assert!(matches!(column.compression(), parquet::basic::Compression::ZSTD(_)));
    assert!(column.statistics().is_some() && column.column_index_range().is_some());
}

#[test]
fn without_rows_there_is_no_file() {
    let table = Table::new();
    let spec = spec(&[field("n", "long")], &[]);
    assert!(table.write(&spec, &[]).is_empty());
    assert!(table.write(&spec, &[batch(vec![("n", longs([]))])]).is_empty());
    assert_eq!(table.files_on_disk(), 0);
}

#[test]
fn every_compression() {
    for name in ["zstd", "SNAPPY", "gzip", "lz4", "none"] {
        let table = Table::new();
        let compression = Compression::parse(name).unwrap();
        let spec = WriteSpec { compression, ..spec(&[field("n", "long")], &[]) };
        let files = table.write(&spec, &[batch(vec![("n", longs(0..1000))])]);
        assert_eq!(numbers_by_partition(&table, &files)[&None], (0..1000).collect::<Vec<_>>());
    }
    assert_eq!(Compression::parse("lzo").unwrap_err().kind(), &Kind::Invalid);
}

#[test]
fn page_versions() {
    for (page_version, number) in [(PageVersion::One, 1), (PageVersion::Two, 2)] {
        let table = Table::new();
        let spec = WriteSpec { page_version, ..spec(&[field("n", "long"), field("t", "string")], &[]) };
        let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|n| format!("value {n}"))));
        let files = table.write(&spec, &[batch(vec![("n", longs(0..1000)), ("t", strings)])]);
        assert_eq!(numbers_by_partition(&table, &files)[&None], (0..1000).collect::<Vec<_>>());
        assert_eq!(table.metadata(&files[0]).file_metadata().version(), number);
    }
}

#[test]
fn random_prefixes_replace_partition_directories() {
    for length in [1, 4, 255] {
        let table = Table::new();
        let fields = [field("p", "string"), field("n", "long")];
        let spec = WriteSpec { random_prefix_length: Some(length), ..spec(&fields, &["p"]) };
        let p: ArrayRef = Arc::new(StringArray::from(vec!["a", "é"]));
        let files = table.write(&spec, &[batch(vec![("p", p), ("n", longs([1, 2]))])]);
        assert_eq!(files.len(), 2);
        for file in files {
            let (prefix, name) = file.add.path.split_once('/').unwrap();
            assert_eq!(prefix.len(), usize::from(length));
            assert!(prefix.bytes().all(|byte| byte.is_ascii_alphanumeric()) && name.starts_with("part-"), "{prefix}");
            assert_eq!(table.rows(&file).len(), 1);
        }
    }
}

#[test]
fn mapped_columns() {
    let mapped = |name: &str, id: u32| {
        format!(
            r#"{{"name":"{name}","type":"long","nullable":true,"metadata":
               {{"delta.columnMapping.id":{id},"delta.columnMapping.physicalName":"col-{id}"}}}}"#
        )
    };
    let table = Table::new();
    let spec = WriteSpec {
        column_mapping: "name".to_owned(),
        indexed_columns: IndexedColumns::Named(vec![vec!["b".to_owned()], vec!["gone".to_owned()]]),
        ..spec(&[mapped("p", 1), mapped("a", 2), mapped("b", 3)], &["p"])
    };
    let files = table.write(&spec, &[batch(vec![("p", longs([7])), ("a", longs([8])), ("b", longs([9]))])]);
    let add = &files[0].add;
    assert_eq!(add.partition_values, BTreeMap::from([("col-1".to_owned(), Some("7".to_owned()))]));
    assert_eq!(add.path.find('/'), Some(2), "{}", add.path);
    assert!(add.stats.as_ref().unwrap().contains(r#""minValues":{"col-3":9}"#), "{add:?}");
    let metadata = table.metadata(&files[0]);
    let columns = metadata.file_metadata().schema_descr().columns().to_vec();
    let shown: Vec<(&str, i32)> = columns.iter().map(|c| (c.name(), c.self_type().get_basic_info().id())).collect();
    assert_eq!(shown, [("col-2", 2), ("col-3", 3)]);
}

#[test]
fn logical_types_are_in_the_footer() {
    let table = Table::new();
    let column =
        |name: &str, kind: &str| format!(r#"{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{}}}}"#);
    let array = |of: &str| format!(r#"{{"type":"array","elementType":{of},"containsNull":true}}"#);
    let shape = r#""geometry(EPSG:3857)""#;
    let map = format!(r#"{{"type":"map","keyType":"string","valueType":{shape},"valueContainsNull":true}}"#);
    let inner = format!(r#"{{"type":"struct","fields":[{}]}}"#, column("x", r#""geography(OGC:CRS84, karney)""#));
    let columns = [
        column("n", r#""long""#),
        column("v", r#""variant""#),
        column("l", &array(r#""variant""#)),
        column("g", shape),
        column("m", &map),
        column("s", &inner),
        column("other", r#""geography(OGC:CRS84, unheard)""#),
    ];
    let files = table.write(&spec(&columns, &[]), &[batch(vec![("n", longs([1]))])]);
    let metadata = table.metadata(&files[0]);
    let mut found = Vec::new();
    fn walk(column: &Type, above: &str, found: &mut Vec<String>) {
        let path = format!("{above}{}", column.name());
        match column.get_basic_info().logical_type_ref() {
            Some(LogicalType::Variant(_)) => found.push(format!("{path} variant")),
            Some(LogicalType::Geometry(kind)) => found.push(format!("{path} {}", kind.crs.as_ref().unwrap())),
            Some(LogicalType::Geography(kind)) => found.push(format!("{path} {:?}", kind.algorithm.unwrap())),
            Some(LogicalType::List | LogicalType::Map) => found.push(format!("{path} nested")),
            _ => {}
        }
        if column.is_group() {
            column.get_fields().iter().for_each(|field| walk(field, &format!("{path}."), found));
        }
    }
    metadata.file_metadata().schema().get_fields().iter().for_each(|field| walk(field, "", &mut found));
    let expected = [
        "v variant",
        "l nested",
        "l.list.element variant",
        "g EPSG:3857",
        "m nested",
        "m.key_value.value EPSG:3857",
        "s.x KARNEY",
    ];
    assert_eq!(found, expected.map(str::to_owned));
}

#[test]
fn partition_columns_are_materialized_if_required() {
    let table = Table::new();
    let columns = [field("p", "string"), field("n", "long"), field("q", "long")];
    let materialized = WriteSpec { materializes_partition_columns: true, ..spec(&columns, &["q", "p"]) };
    let strings: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some(""), None]));
    let rows = batch(vec![("p", strings), ("n", longs([1, 2, 3])), ("q", longs([7, 7, 7]))]);
    let files = table.write(&materialized, &[rows]);
    assert_eq!(files.len(), 2);
    for file in &files {
        let metadata = table.metadata(file);
        let columns = metadata.file_metadata().schema_descr().columns().iter().map(|c| c.name().to_owned());
        assert_eq!(columns.collect::<Vec<_>>(), ["n", "q", "p"]);
        // The log has the value, and no statistics of the column.
        let stats = file.add.stats.as_ref().unwrap();
        assert!(stats.contains(r#""nullCount":{"n":0}"#), "{stats}");
        let nulls = metadata.row_group(0).column(2).statistics().unwrap().null_count_opt();
        assert_eq!(nulls == Some(0), file.add.partition_values["p"].is_some());
        assert_eq!(file.add.partition_values["q"].as_deref(), Some("7"));
    }
    let strict = field("p", "string").replace("\"nullable\":true", "\"nullable\":false");
    let strict = WriteSpec { materializes_partition_columns: true, ..spec(&[strict, field("n", "long")], &["p"]) };
    let empty: ArrayRef = Arc::new(StringArray::from(vec![""]));
    let mut writer = table.writer(&strict);
    let written = table.runtime.block_on(writer.write(&batch(vec![("p", empty), ("n", longs([1]))])));
    let error = written.unwrap_err();
    assert!(error.message().contains("an empty string is null in a partition column"), "{error}");
}

#[test]
fn identity_columns() {
    let table = Table::new();
    let numbering = Numbering { column: "id".to_owned(), first: 100, step: -7, allows_explicit: false };
    let plain = spec(&[field("p", "long"), field("id", "long"), field("n", "long")], &["p"]);
    let numbered = WriteSpec { identities: vec![numbering.clone()], ..plain };
    let rows = |from: i64| batch(vec![("n", longs(from..from + 50)), ("p", longs((from..from + 50).map(|n| n % 3)))]);
    let files = table.write(&numbered, &[rows(0), rows(50)]);
    let mut seen = 0;
    for file in &files {
        assert_eq!(file.identities, BTreeMap::from([("id".to_owned(), 100 - 7 * 99)]));
        for rows in table.rows(file) {
            let (ids, numbers) = (rows["id"].as_primitive::<Int64Type>(), rows["n"].as_primitive::<Int64Type>());
            assert!(ids.values().iter().zip(numbers.values()).all(|(id, n)| *id == 100 - 7 * n));
            seen += rows.num_rows();
        }
    }
    assert_eq!(seen, 100);
    // Each of several writers has its own numbers.
    assert!(numbered.clone().of_task(None).unwrap_err().message().contains("pass `task`"));
    let task =
        |task| numbered.clone().of_task(Some(task)).map(|spec| (spec.identities[0].first, spec.identities[0].step));
    assert_eq!(task(0).unwrap(), (100, -7 * 65_536));
    assert_eq!(task(65_535).unwrap(), (100 - 7 * 65_535, -7 * 65_536));
    assert!(task(65_536).unwrap_err().message().contains("65536 tasks"));
    let vast = Numbering { step: i64::MAX / 2, ..numbering };
    assert!(vast.of_task(1).unwrap_err().message().contains("has no number left"));
    // A writer without rows uses no number.
    assert!(table.write(&numbered, &[rows(0).slice(0, 0)]).is_empty());
}

#[test]
fn lists_and_maps_have_the_standard_shape() {
    let table = Table::new();
    let list = r#"{"name":"l","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}}"#;
    let map = r#"{"name":"m","type":{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true},"nullable":true,"metadata":{}}"#;
    let spec = spec(&[list.to_owned(), map.to_owned(), field("n", "long")], &[]);
    let files = table.write(&spec, &[batch(vec![("n", longs([1]))])]);
    let metadata = table.metadata(&files[0]);
    let paths: Vec<String> =
        metadata.file_metadata().schema_descr().columns().iter().map(|c| c.path().string()).collect();
    assert_eq!(paths, ["l.list.element", "m.key_value.key", "m.key_value.value", "n"]);
}

#[test]
fn a_full_file_is_followed_by_another() {
    let table = Table::new();
    let target = 64 * 1024;
    let spec = WriteSpec {
        target_file_size: target,
        compression: Compression::Uncompressed,
        ..spec(&[field("n", "long")], &[])
    };
    // Numbers that no encoding compresses well.
    let numbers: Vec<i64> = (0..100_000_i64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed())).collect();
    let files = table.write(&spec, &[batch(vec![("n", longs(numbers.clone()))])]);
    assert!(files.len() > 5, "{} files", files.len());
    assert_eq!(files.len(), table.files_on_disk());
    assert!(files.iter().all(|f| f.add.size < 3 * target as i64), "{files:?}");
    let mut found = numbers_by_partition(&table, &files).remove(&None).unwrap();
    let mut numbers = numbers;
    found.sort_unstable();
    numbers.sort_unstable();
    assert_eq!(found, numbers);
}

#[test]
fn row_groups_end_by_rows() {
    let table = Table::new();
    let spec = WriteSpec { max_rows_per_group: 1000, ..spec(&[field("n", "long")], &[]) };
    let files = table.write(&spec, &[batch(vec![("n", longs(0..2500))])]);
    let metadata = table.metadata(&files[0]);
    let groups: Vec<i64> = metadata.row_groups().iter().map(|g| g.num_rows()).collect();
    assert_eq!(groups, [1000, 1000, 500]);
}

#[test]
fn many_partitions_within_small_limits() {
    let table = Table::new();
    let spec = spec(&[field("n", "long"), field("p", "long")], &["p"]);
    let batches: Vec<RecordBatch> = (0..10)
        .map(|i| batch(vec![("n", longs(i * 1000..(i + 1) * 1000)), ("p", longs((0..1000).map(|n| n % 200)))]))
        .collect();
    for limits in [Limits::default(), Limits { open_files: 3, memory: 100_000 }] {
        let files = table.runtime.block_on(async {
            let mut writer = table.writer(&spec).with_limits(limits);
            for batch in &batches {
                writer.write(batch).await.unwrap();
            }
            writer.finish().await.unwrap()
        });
        assert_eq!(files.len(), 200);
        let found = numbers_by_partition(&table, &files);
        assert_eq!(found.len(), 200);
        for (partition, numbers) in found {
            let remainder: i64 = partition.unwrap().parse().unwrap();
            assert_eq!(numbers, (0..10_000).filter(|n| n % 200 == remainder).collect::<Vec<_>>());
        }
    }
}

#[test]
fn abort_leaves_nothing() {
    let table = Table::new();
    let spec = WriteSpec { target_file_size: 16 * 1024, ..spec(&[field("n", "long"), field("p", "long")], &["p"]) };
    let rows = batch(vec![("n", longs(0..50_000)), ("p", longs((0..50_000).map(|n| n % 3)))]);
    table.runtime.block_on(async {
        let mut writer = table.writer(&spec);
        writer.write(&rows).await.unwrap();
        assert!(table.files_on_disk() > 0, "no file was written yet");
        writer.abort().await;
    });
    assert_eq!(table.files_on_disk(), 0);
}

#[test]
fn a_refused_batch_leaves_nothing() {
    let table = Table::new();
    let spec = WriteSpec { target_file_size: 16 * 1024, ..spec(&[field("n", "long")], &[]) };
    table.runtime.block_on(async {
        let mut writer = table.writer(&spec);
        writer.write(&batch(vec![("n", longs(0..50_000))])).await.unwrap();
        let foreign = batch(vec![("n", Arc::new(StringArray::from(vec!["1"])))]);
        assert_eq!(writer.write(&foreign).await.unwrap_err().kind(), &Kind::Invalid);
        assert!(writer.write(&batch(vec![("n", longs(0..1))])).await.is_err(), "a failed writer accepts rows");
        assert!(writer.finish().await.is_err());
    });
    assert_eq!(table.files_on_disk(), 0);
}

#[test]
fn a_dropped_writer_leaves_no_unfinished_files() {
    let table = Table::new();
    let spec = spec(&[field("n", "long")], &[]);
    table.runtime.block_on(async {
        let mut writer = table.writer(&spec);
        writer.write(&batch(vec![("n", longs(0..2_000_000))])).await.unwrap();
    });
    assert_eq!(table.files_on_disk(), 0);
}

#[test]
fn a_dropped_writer_leaves_no_files() {
    use std::task::Poll;
    use std::time::Duration;

    use futures::{StreamExt, stream};

    let table = Table::new();
    let spec = WriteSpec { target_file_size: 16 * 1024, ..spec(&[field("n", "long"), field("p", "long")], &["p"]) };
    let rows = batch(vec![("n", longs(0..50_000)), ("p", longs((0..50_000).map(|n| n % 3)))]);
    table.runtime.block_on(async {
        // Dropped while it waits for more rows.
        let mut writer = table.writer(&spec);
        let released = writer.released();
        let mut writing = Box::pin(writer.write_all(stream::iter([Ok(rows.clone())]).chain(stream::pending())));
        while table.files_on_disk() < 3 {
            assert!(tokio::time::timeout(Duration::from_millis(50), &mut writing).await.is_err());
        }
        drop(writing);
        released.await;
        assert_eq!(table.files_on_disk(), 0);

        // Dropped after any number of polls.
        for polls in 0..60 {
            let mut writer = table.writer(&spec);
            let released = writer.released();
            let mut writing = Box::pin(writer.write_all(stream::iter([Ok(rows.clone())])));
            let mut left = polls;
            let files = std::future::poll_fn(|context| match writing.as_mut().poll(context) {
                Poll::Ready(files) => Poll::Ready(files.unwrap()),
                Poll::Pending if left == 0 => Poll::Ready(Vec::new()),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            });
            let files = files.await;
            drop(writing);
            released.await;
            // Running jobs of the pool finish, and delete their files.
            for _ in 0..500 {
                if table.files_on_disk() > files.len() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            assert_eq!(table.files_on_disk(), files.len(), "dropped after {polls} polls");
            for file in files {
                table.storage.delete(&decode_path(&file.add.path).unwrap()).await.unwrap();
            }
        }
    });
}

/// Futures must be `Send` for runtimes with several threads.
#[test]
fn futures_are_send() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let table = Table::new();
    let spec = spec(&[field("n", "long")], &[]);
    table.runtime.block_on(async {
        let mut writer = table.writer(&spec);
        is_send(writer.write(&batch(vec![("n", longs([1]))]))).await.unwrap();
        assert_eq!(is_send(writer.finish()).await.unwrap().len(), 1);
        is_send(table.writer(&spec).abort()).await;
    });
}

#[test]
fn unsupported_tables_are_refused() {
    let table = Table::new();
    let open = |spec: &WriteSpec| DataWriter::new(table.storage.clone(), spec, || NOW).map(|_| ()).unwrap_err();
    let only = spec(&[field("p", "long")], &["p"]);
    assert!(matches!(open(&only).kind(), Kind::Unsupported { .. }));
    let unknown = spec(&[field("n", "long")], &["q"]);
    assert_eq!(open(&unknown).kind(), &Kind::Corrupt);
    assert_eq!(TableSchema::parse("{").unwrap_err().kind(), &Kind::Corrupt);
}

#[test]
fn plans_have_a_byte_form() {
    let spec = WriteSpec {
        column_mapping: "id".to_owned(),
        indexed_columns: IndexedColumns::Named(vec![vec!["a".to_owned(), "b".to_owned()]]),
        compression: Compression::Lz4,
        random_prefix_length: Some(3),
        ..spec(&[field("n", "long")], &["p"])
    };
    let plan = WritePlan { location: "s3://b/t".to_owned(), txn_id: "id".to_owned(), spec };
    let bytes = plan.to_bytes().unwrap();
    assert_eq!(WritePlan::from_bytes(&bytes).unwrap(), plan);
    let add = Add { path: "a%20b".to_owned(), stats: Some("{\"\u{10FFFF}\":1}".to_owned()), ..Add::default() };
    let file = DataFile { add, rows: u64::MAX, identities: BTreeMap::new() };
    assert_eq!(DataFile::from_bytes(&file.to_bytes().unwrap()).unwrap(), file);
    let of_another_kind = file.to_bytes().unwrap();
    for foreign in [
        b"".as_slice(),
        b"{}",
        b"null",
        b"{\"form\":1,\"body\":{}}",
        b"{\"form\":2,\"body\":{}}",
        &of_another_kind,
        &bytes[..bytes.len() - 1],
    ] {
        assert_eq!(WritePlan::from_bytes(foreign).unwrap_err().kind(), &Kind::Invalid);
    }
    let later = WritePlan::from_bytes(b"{\"form\":99,\"body\":{\"more\":1}}").unwrap_err();
    assert!(later.message().contains("format 99"), "{later}");
}

fn rows() -> impl Strategy<Value = Vec<Vec<(Option<String>, i64)>>> {
    let values = ["", "a", "a b", "ä", "a/b", "%2F", "..", "x=y", "\n", "\"", "__HIVE_DEFAULT_PARTITION__"];
    let value = prop::option::of(prop::sample::select(values.to_vec()).prop_map(str::to_owned));
    prop::collection::vec(prop::collection::vec((value, any::<i64>()), 0..20), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The files of a partition have its rows in order.
    #[test]
    fn round_trips(batches in rows()) {
        let table = Table::new();
        let spec = spec(&[field("p", "string"), field("n", "long")], &["p"]);
        let mut expected: BTreeMap<Option<String>, Vec<i64>> = BTreeMap::new();
        let mut written = Vec::new();
        for rows in &batches {
            let partitions: StringArray = rows.iter().map(|(p, _)| p.as_deref()).collect();
            written.push(batch(vec![("n", longs(rows.iter().map(|(_, n)| *n))), ("p", Arc::new(partitions))]));
            for (partition, number) in rows {
                expected.entry(partition.clone().filter(|p| !p.is_empty())).or_default().push(*number);
            }
        }
        let files = table.write(&spec, &written);
        prop_assert_eq!(files.len(), expected.len());
        prop_assert_eq!(numbers_by_partition(&table, &files), expected);
    }
}
