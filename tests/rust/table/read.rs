//! Rows for given tasks. Rows are compared as strings, with values separated by bars.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Int32Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Date32Array, Float32Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray,
    PrimitiveArray, RecordBatch, StringArray, StructArray,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::property::RowTracking;
use deltic_protocol::schema::TableSchema;
use deltic_store::Storage;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::task::{FileTask, ReadSpec, TaskGroup};
use futures::StreamExt;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type as PInt32, Int64Type as PInt64, Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serde_json::{Value, json};

mod bloom_filters;
mod calendars;
mod geospatial;
mod long_values;
mod row_tracking;
mod shredded;

/// Data files in a folder, and how to read them.
struct Lake {
    dir: tempfile::TempDir,
    storage: Storage,
    fields: Vec<Value>,
    partitions: Vec<String>,
    mapping: &'static str,
    tasks: Vec<FileTask>,
    options: ReadOptions,
    row_tracking: Option<RowTracking>,
}

impl Lake {
    /// A table with these columns, each `name: type`; a type is a name or JSON.
    fn new(columns: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path().to_str().unwrap(), &HashMap::new()).unwrap();
        let fields = columns.iter().map(|(name, data_type)| column(name, data_type)).collect();
        let options = ReadOptions { concurrent_files: 2, ..ReadOptions::default() };
        let (partitions, tasks) = (Vec::new(), Vec::new());
        Self { dir, storage, fields, partitions, mapping: "none", tasks, options, row_tracking: None }
    }

    fn spec(&self, columns: &[&str], predicate: Option<&str>) -> ReadSpec {
        ReadSpec {
            schema: TableSchema::parse(json!({"type": "struct", "fields": self.fields}).to_string()).unwrap(),
            partition_columns: self.partitions.clone(),
            column_mapping: self.mapping.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            filter: predicate.map(|text| text.to_owned().into()),
            row_tracking: self.row_tracking.clone(),
            may_lack_row_ids: false,
        }
    }

    fn path(&self, task: usize) -> PathBuf {
        self.dir.path().join(&self.tasks[task].path)
    }

    fn add(&mut self, bytes: &[u8]) -> &mut FileTask {
        let path = format!("f{}.parquet", self.tasks.len());
        std::fs::write(self.dir.path().join(&path), bytes).unwrap();
        self.tasks.push(FileTask { path, size: bytes.len() as u64, ..FileTask::default() });
        self.tasks.last_mut().unwrap()
    }

    /// Adds a file with these columns.
    fn file(&mut self, columns: Vec<(&str, ArrayRef)>) -> &mut FileTask {
        self.file_in_groups(columns, 1 << 20)
    }

    fn file_in_groups(&mut self, columns: Vec<(&str, ArrayRef)>, rows: usize) -> &mut FileTask {
        let bytes = encode(
            &RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap(),
            rows,
        );
        self.add(&bytes)
    }

    fn batches(&self, columns: &[&str], predicate: Option<&str>) -> Result<Vec<RecordBatch>> {
        let reader = Reader::new(self.storage.clone(), self.spec(columns, predicate))?;
        let schema = reader.schema();
        let stream = reader.read(self.tasks.clone(), self.options.clone());
        let batches: Vec<Result<RecordBatch>> = block_on(stream.collect());
        let batches: Vec<RecordBatch> = batches.into_iter().collect::<Result<_>>()?;
        for batch in &batches {
            assert_eq!(batch.schema(), schema);
            assert!(batch.num_rows() > 0, "an empty batch");
        }
        Ok(batches)
    }

    fn rows(&self, columns: &[&str], predicate: Option<&str>) -> Result<Vec<String>> {
        Ok(self.batches(columns, predicate)?.iter().flat_map(text).collect())
    }

    #[track_caller]
    fn check(&self, columns: &[&str], predicate: Option<&str>, expected: &[&str]) {
        assert_eq!(self.rows(columns, predicate).unwrap(), expected, "{columns:?} where {predicate:?}");
    }

    /// Checks that the read fails as corrupt, with these words.
    #[track_caller]
    fn check_corrupt(&self, columns: &[&str], words: &[&str]) {
        let error = self.rows(columns, None).unwrap_err();
        assert_eq!(error.kind(), &Kind::Corrupt, "{error}");
        check_message(&error, words);
        assert!(error.path().is_some_and(|path| path.ends_with("f0.parquet")), "{error} names no file");
    }

    fn bytes_read(&self, columns: &[&str], predicate: Option<&str>) -> u64 {
        let before = self.storage.counts();
        self.rows(columns, predicate).unwrap();
        self.storage.counts().since(&before).bytes_read
    }
}

#[track_caller]
fn check_message(error: &Error, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "`{error}` does not contain `{word}`");
    }
}

fn column(name: &str, data_type: &str) -> Value {
    let data_type = serde_json::from_str(data_type).unwrap_or_else(|_| Value::from(data_type));
    json!({"name": name, "type": data_type, "nullable": true, "metadata": {}})
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

fn encode(batch: &RecordBatch, group_rows: usize) -> Vec<u8> {
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).set_dictionary_enabled(false).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Replaces time zones by offsets, since the formatter does not know them by name.
fn with_offset(array: &ArrayRef) -> ArrayRef {
    if let Some(times) = array.as_primitive_opt::<TimestampMicrosecondType>()
        && times.timezone() == Some("UTC")
    {
        return Arc::new(times.clone().with_timezone("+00:00"));
    }
    if let Some(list) = array.as_list_opt::<i32>() {
        let values = with_offset(list.values());
        let field = Arc::new(Field::new("element", values.data_type().clone(), true));
        return Arc::new(ListArray::new(field, list.offsets().clone(), values, list.nulls().cloned()));
    }
    Arc::clone(array)
}

fn text(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("null");
    let columns: Vec<ArrayRef> = batch.columns().iter().map(with_offset).collect();
    let columns: Vec<_> = columns.iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}

fn ints(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// `n` rows of a number, the number as a string and a long string, in row groups of `group` rows.
fn numbers(n: i32, group: usize) -> Lake {
    let mut lake = Lake::new(&[("n", "integer"), ("t", "string"), ("long", "string")]);
    let texts: Vec<String> = (0..n).map(|i| format!("t{i}")).collect();
    let long: Vec<String> = (0..n).map(|i| format!("{i:0>500}")).collect();
    let columns = vec![
        ("n", ints(0..n)),
        ("t", strings(texts.iter().map(String::as_str))),
        ("long", strings(long.iter().map(String::as_str))),
    ];
    lake.file_in_groups(columns, group);
    lake
}

fn delete(rows: impl IntoIterator<Item = u64>) -> Option<deltic_protocol::action::DeletionVectorDescriptor> {
    Some(rows.into_iter().collect::<DeletionVector>().to_inline().unwrap())
}

#[test]
fn columns_have_the_requested_order_and_missing_ones_are_null() {
    let mut lake = Lake::new(&[("a", "integer"), ("b", "string"), ("c", "long"), ("v", "void")]);
    lake.file(vec![("b", strings(["x", "y"])), ("a", ints([1, 2])), ("extra", ints([7, 8]))]);
    lake.file(vec![("A", ints([3])), ("c", Arc::new(Int64Array::from(vec![30])))]);
    lake.check(&["a", "b", "c"], None, &["1|x|null", "2|y|null", "3|null|30"]);
    lake.check(&["c", "a"], None, &["null|1", "null|2", "30|3"]);
    lake.check(&["v", "b"], None, &["null|x", "null|y", "null|null"]);
}

#[test]
fn a_column_that_may_be_either_of_two_is_none_of_them() {
    let mut lake = Lake::new(&[("ab", "integer"), ("Ab", "integer")]);
    lake.file(vec![("Ab", ints([1])), ("aB", ints([2]))]);
    lake.check(&["Ab"], None, &["1"]);
    lake.check_corrupt(&["ab"], &["`Ab`", "`aB`", "`ab`"]);
}

#[test]
fn an_impossible_request_is_invalid() {
    let lake = Lake::new(&[("a", "integer")]);
    for columns in [&["b"][..], &["a", "a"], &["a", "A"]] {
        let error = lake.rows(columns, None).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid, "{error}");
    }
}

#[test]
fn only_needed_columns_are_fetched() {
    let lake = numbers(2000, 2000);
    let (all, some) = (lake.bytes_read(&["n", "t", "long"], None), lake.bytes_read(&["n"], None));
    assert!(all > 1_000_000, "{all}");
    // The footer is always read.
    assert!(some < 64 * 1024 + 20_000, "{some}");
}

#[test]
fn nested_columns_adapt_at_every_level() {
    let inner = r#"{"type":"struct","fields":[
        {"name":"x","type":"long","nullable":true,"metadata":{}},
        {"name":"new","type":"string","nullable":true,"metadata":{}}]}"#;
    let list = format!(r#"{{"type":"array","elementType":{inner},"containsNull":true}}"#);
    let map = format!(
        r#"{{"type":"map","keyType":"string","valueType":{{"type":"struct","fields":[
            {{"name":"l","type":{list},"nullable":true,"metadata":{{}}}}]}},"valueContainsNull":true}}"#
    );
    let mut lake = Lake::new(&[("s", inner), ("l", &list), ("m", &map), ("after", "integer")]);
    // The file has `x` as an int, an extra field before it, and no `new`.
    let fields = Fields::from(vec![Field::new("gone", ArrowType::Utf8, true), Field::new("x", ArrowType::Int32, true)]);
    let structs = StructArray::new(
        fields.clone(),
        vec![strings(["p", "q", "r"]), Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))],
        Some(vec![true, true, false].into()),
    );
    let element = Arc::new(Field::new("element", ArrowType::Struct(fields), true));
    let list_type = ArrowType::List(Arc::clone(&element));
    let offsets = arrow_buffer::OffsetBuffer::new(vec![0, 2, 2, 3].into());
    let lists =
        ListArray::new(element, offsets.clone(), Arc::new(structs.clone()), Some(vec![true, false, true].into()));
    let value_fields = Fields::from(vec![Field::new("l", list_type, true)]);
    let entry_fields = Fields::from(vec![
        Field::new("key", ArrowType::Utf8, false),
        Field::new("value", ArrowType::Struct(value_fields.clone()), true),
    ]);
    let values = StructArray::new(value_fields, vec![Arc::new(lists.clone())], None);
    let entries = StructArray::new(entry_fields.clone(), vec![strings(["k1", "k2", "k3"]), Arc::new(values)], None);
    let entries_field = Arc::new(Field::new("key_value", ArrowType::Struct(entry_fields), false));
    let maps = arrow_array::MapArray::new(entries_field, offsets, entries, None, false);
    lake.file(vec![
        ("s", Arc::new(structs)),
        ("l", Arc::new(lists)),
        ("m", Arc::new(maps)),
        ("after", ints([10, 20, 30])),
    ]);
    lake.check(
        &["after", "s", "l"],
        None,
        &[
            "10|{x: 1, new: null}|[{x: 1, new: null}, {x: null, new: null}]",
            "20|{x: null, new: null}|null",
            "30|null|[null]",
        ],
    );
    lake.check(
        &["m"],
        None,
        &["{k1: {l: [{x: 1, new: null}, {x: null, new: null}]}, k2: {l: null}}", "{}", "{k3: {l: [null]}}"],
    );
}

#[test]
fn a_struct_without_any_known_field_keeps_its_nulls() {
    let wanted = r#"{"type":"struct","fields":[{"name":"new","type":"string","nullable":true,"metadata":{}}]}"#;
    let mut lake = Lake::new(&[("s", wanted)]);
    let fields = Fields::from(vec![Field::new("old", ArrowType::Int32, true)]);
    lake.file(vec![("s", Arc::new(StructArray::new(fields, vec![ints([1, 2])], Some(vec![true, false].into()))))]);
    lake.check(&["s"], None, &["{new: null}", "null"]);
}

/// The columns `a` and the struct `s` with the field `x`, mapped to physical names and ids.
fn mapped(mode: &'static str) -> Lake {
    let mut lake = Lake::new(&[]);
    let metadata =
        |id: i32, name: &str| json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": name});
    lake.mapping = mode;
    lake.fields = vec![
        json!({"name": "a", "type": "integer", "nullable": true, "metadata": metadata(1, "col-1")}),
        json!({"name": "s", "nullable": true, "metadata": metadata(2, "col-2"), "type": {"type": "struct", "fields": [
            {"name": "x", "type": "integer", "nullable": true, "metadata": metadata(3, "col-3")}]}}),
        json!({"name": "p", "type": "integer", "nullable": true, "metadata": metadata(4, "col-4")}),
    ];
    lake.partitions = vec!["p".to_owned()];
    let id = |field: Field, id: i32| {
        field.with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]))
    };
    // In name mode the ids of the file are misleading, in id mode its names are.
    let (names, ids) = match mode {
        "name" => (["col-1", "col-2", "col-3", "a"], [3, 1, 2, 9]),
        _ => (["col-3", "col-1", "col-2", "a"], [1, 2, 3, 9]),
    };
    let inner = Fields::from(vec![id(Field::new(names[2], ArrowType::Int32, true), ids[2])]);
    let schema = Schema::new(vec![
        id(Field::new(names[3], ArrowType::Utf8, true), ids[3]),
        id(Field::new(names[1], ArrowType::Struct(inner.clone()), true), ids[1]),
        id(Field::new(names[0], ArrowType::Int32, true), ids[0]),
    ]);
    let columns: Vec<ArrayRef> =
        vec![strings(["wrong"]), Arc::new(StructArray::new(inner, vec![ints([5])], None)), ints([4])];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    lake.add(&encode(&batch, 10)).partition_values.insert("col-4".to_owned(), Some("6".to_owned()));
    lake
}

#[test]
fn mapped_columns_are_found_by_physical_name_or_by_id() {
    for mode in ["name", "id"] {
        let lake = mapped(mode);
        lake.check(&["a", "s", "p"], None, &["4|{x: 5}|6"]);
        lake.check(&["p", "a"], Some("a = 4 and p = 6"), &["6|4"]);
        lake.check(&["s"], Some("a > 4"), &[]);
    }
}

#[test]
fn a_file_without_ids_is_refused_in_id_mode() {
    let mut lake = mapped("id");
    lake.tasks.clear();
    lake.file(vec![("col-1", ints([1]))]);
    lake.check_corrupt(&["a"], &["field ids"]);
}

#[test]
fn narrower_types_are_widened() {
    let decimals = |values: Vec<i128>, precision, scale| -> ArrayRef {
        let array = PrimitiveArray::<Decimal128Type>::from_iter_values(values);
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    };
    let cases: Vec<(ArrayRef, &str, &str)> = vec![
        (Arc::new(Int8Array::from(vec![-5])), "short", "-5"),
        (Arc::new(Int16Array::from(vec![-5])), "integer", "-5"),
        (ints([-5]), "long", "-5"),
        (ints([-5]), "byte", "-5"),
        (ints([-5]), "double", "-5.0"),
        (ints([-5]), "decimal(12,2)", "-5.00"),
        (Arc::new(Int64Array::from(vec![-5])), "decimal(20,1)", "-5.0"),
        (Arc::new(Float32Array::from(vec![1.5])), "double", "1.5"),
        (decimals(vec![-12345], 5, 2), "decimal(10,4)", "-123.4500"),
        (decimals(vec![-12345], 20, 2), "decimal(20,2)", "-123.45"),
        (Arc::new(Date32Array::from(vec![-1])), "timestamp_ntz", "1969-12-31T00:00:00"),
        (Arc::new(BinaryArray::from(vec![&b"caf\xc3\xa9"[..]])), "string", "café"),
        (strings(["ab"]), "binary", "6162"),
        (Arc::new(PrimitiveArray::<TimestampMillisecondType>::from(vec![-1])), "timestamp", "1969-12-31T23:59:59.999Z"),
        (
            Arc::new(PrimitiveArray::<TimestampNanosecondType>::from(vec![-1])),
            "timestamp_ntz",
            "1969-12-31T23:59:59.999999",
        ),
        (
            Arc::new(PrimitiveArray::<TimestampMillisecondType>::from(vec![0]).with_timezone("UTC")),
            "timestamp_ntz",
            "1970-01-01T00:00:00",
        ),
    ];
    for (array, data_type, expected) in cases {
        let mut lake = Lake::new(&[("c", data_type)]);
        let from = array.data_type().clone();
        lake.file(vec![("c", array)]);
        assert_eq!(lake.rows(&["c"], None).unwrap(), [expected], "{from} to {data_type}");
    }
}

#[test]
fn types_and_values_that_do_not_fit_are_corrupt() {
    let cases: Vec<(ArrayRef, &str)> = vec![
        (Arc::new(Int64Array::from(vec![1])), "integer"),
        (strings(["1"]), "integer"),
        (ints([1]), "string"),
        (ints([1]), "decimal(9,0)"),
        (ints([300]), "byte"),
        (ints([1]), "date"),
        (ints([1]), r#"{"type":"array","elementType":"integer","containsNull":true}"#),
        (Arc::new(BinaryArray::from(vec![&b"\xff"[..]])), "string"),
        (Arc::new(PrimitiveArray::<TimestampMillisecondType>::from(vec![i64::MAX])), "timestamp"),
        (Arc::new(Date32Array::from(vec![i32::MAX])), "timestamp_ntz"),
    ];
    for (array, data_type) in cases {
        let mut lake = Lake::new(&[("c", data_type)]);
        lake.file(vec![("c", array)]);
        lake.check_corrupt(&["c"], &["`c`"]);
    }
}

#[test]
fn nulls_in_required_columns_are_corrupt() {
    let mut lake = Lake::new(&[("c", "integer")]);
    lake.fields[0]["nullable"] = json!(false);
    lake.file(vec![("c", ints([1]))]);
    lake.check(&["c"], None, &["1"]);
    lake.tasks.clear();
    lake.file(vec![("c", Arc::new(PrimitiveArray::<Int32Type>::from(vec![Some(1), None])))]);
    lake.check_corrupt(&["c"], &["`c`", "null"]);
}

/// Writes a file with one column by hand.
fn raw(schema: &str, write: impl FnOnce(&mut parquet::file::writer::SerializedColumnWriter<'_>)) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    write(&mut column);
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn int96_covers_all_years() {
    let int96 = |julian_day: u32, nanos: u64| {
        let mut value = Int96::new();
        value.set_data(nanos as u32, (nanos >> 32) as u32, julian_day);
        value
    };
    let values = [
        int96(2_440_588, 1_000),              // 1970-01-01
        int96(5_373_484, 86_399_999_999_000), // 9999-12-31
        int96(1_721_426, 0),                  // 0001-01-01
    ];
    for (data_type, zone) in [("timestamp", "Z"), ("timestamp_ntz", "")] {
        let mut lake = Lake::new(&[("c", data_type)]);
        lake.add(&raw("message m { required int96 c; }", |column| {
            column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
        }));
        let expected = ["1970-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00"];
        let expected: Vec<String> = expected.iter().map(|t| format!("{t}{zone}")).collect();
        assert_eq!(lake.rows(&["c"], None).unwrap(), expected);
    }
    // Beside other columns and nested.
    let list = r#"{"type":"array","elementType":"timestamp","containsNull":true}"#;
    let mut lake = Lake::new(&[("l", list)]);
    let message = "message m { optional group l (LIST) { repeated group list { optional int96 element; } } }";
    lake.add(&raw(message, |column| {
        column.typed::<Int96Type>().write_batch(&values[1..], Some(&[3, 3]), Some(&[0, 1])).unwrap();
    }));
    lake.check(&["l"], None, &["[9999-12-31T23:59:59.999999Z, 0001-01-01T00:00:00Z]"]);
}

#[test]
fn int96_is_compared_without_bounds() {
    let mut lake = Lake::new(&[("c", "timestamp")]);
    let mut value = Int96::new();
    value.set_data(0, 0, 2_440_588);
    lake.add(&raw("message m { required int96 c; }", |column| {
        column.typed::<Int96Type>().write_batch(&[value], None, None).unwrap();
    }));
    lake.check(&["c"], Some("c = TIMESTAMP '1970-01-01 00:00:00Z'"), &["1970-01-01T00:00:00Z"]);
}

#[test]
fn unannotated_types_are_read_as_the_type_of_the_table() {
    let mut lake = Lake::new(&[("c", "string")]);
    lake.add(&raw("message m { required binary c; }", |column| {
        column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("x")], None, None).unwrap();
    }));
    lake.check(&["c"], Some("c = 'x'"), &["x"]);

    let mut lake = Lake::new(&[("c", "short")]);
    lake.add(&raw("message m { required int32 c; }", |column| {
        column.typed::<PInt32>().write_batch(&[-3], None, None).unwrap();
    }));
    lake.check(&["c"], Some("c < 0"), &["-3"]);

    let mut lake = Lake::new(&[("c", "timestamp")]);
    lake.add(&raw("message m { required int64 c (TIMESTAMP(MICROS,false)); }", |column| {
        column.typed::<PInt64>().write_batch(&[-3], None, None).unwrap();
    }));
    lake.check(&["c"], None, &["1969-12-31T23:59:59.999997Z"]);
}

#[test]
fn variants_are_two_binaries_in_any_order() {
    let binary = |bytes: &'static [u8]| -> ArrayRef { Arc::new(BinaryArray::from(vec![bytes])) };
    let variant = |names: [&str; 2], values: [&'static [u8]; 2]| -> ArrayRef {
        let fields: Fields = names.iter().map(|name| Field::new(*name, ArrowType::Binary, true)).collect();
        Arc::new(StructArray::new(fields, values.map(binary).to_vec(), None))
    };
    let mut lake = Lake::new(&[("v", "variant")]);
    lake.file(vec![("v", variant(["metadata", "value"], [b"m", b"v"]))]);
    lake.file(vec![("v", variant(["value", "metadata"], [b"v", b"m"]))]);
    lake.check(&["v"], None, &["{metadata: 6d, value: 76}", "{metadata: 6d, value: 76}"]);
    lake.tasks.clear();
    lake.file(vec![("v", variant(["metadata", "other"], [b"m", b"v"]))]);
    lake.check_corrupt(&["v"], &["`v` lacks `metadata` or `value`"]);
}

/// Two files of a table partitioned by `p` and `d`.
fn partitioned() -> Lake {
    let mut lake = Lake::new(&[("n", "integer"), ("p", "string"), ("d", "date")]);
    lake.partitions = vec!["p".to_owned(), "d".to_owned()];
    for (p, d) in [(Some("x"), Some("2024-02-29")), (None, Some(""))] {
        // Partition columns in files are ignored.
        let task = lake.file(vec![("n", ints([1, 2])), ("p", strings(["lie", "lie"]))]);
        task.partition_values.insert("p".to_owned(), p.map(str::to_owned));
        task.partition_values.insert("d".to_owned(), d.map(str::to_owned));
    }
    lake
}

#[test]
fn partition_values_come_from_the_log() {
    let lake = partitioned();
    lake.check(&["p", "n", "d"], None, &["x|1|2024-02-29", "x|2|2024-02-29", "null|1|null", "null|2|null"]);
    lake.check(&["d"], None, &["2024-02-29", "2024-02-29", "null", "null"]);
    lake.check(&["n"], Some("p = 'x' and n > 1"), &["2"]);
    lake.check(&["n"], Some("p is null or n = 2"), &["2", "1", "2"]);
    let mut lake = partitioned();
    lake.tasks[0].partition_values.insert("d".to_owned(), Some("tomorrow".to_owned()));
    lake.check_corrupt(&["n"], &["tomorrow"]);
}

#[test]
fn partition_columns_in_files_are_ignored_under_every_mapping() {
    for mode in ["name", "id"] {
        let mut lake = mapped(mode);
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), "4".to_owned())]);
        let p = Field::new("col-4", ArrowType::Int32, true).with_metadata(id);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![p])), vec![ints([7, 8])]).unwrap();
        lake.add(&encode(&batch, 10)).partition_values.insert("col-4".to_owned(), Some("9".to_owned()));
        lake.check(&["p"], None, &["6", "9", "9"]);
        lake.check(&["p"], Some("p = 9"), &["9", "9"]);
        lake.check(&["p"], Some("p = 7"), &[]);
        lake.check(&["a", "p"], Some("a is null and p > 8"), &["null|9", "null|9"]);
    }
}

#[test]
fn partition_values_of_a_narrower_type_are_widened() {
    for (data_type, text, expected) in [
        ("long", "-5", "-5"),
        ("double", "1.1", "1.1"),
        ("double", "7", "7.0"),
        ("decimal(12,4)", "1.50", "1.5000"),
        ("decimal(20,0)", "127", "127"),
        ("timestamp_ntz", "2024-02-29", "2024-02-29T00:00:00"),
    ] {
        let mut lake = Lake::new(&[("n", "integer"), ("p", data_type)]);
        lake.partitions = vec!["p".to_owned()];
        lake.file(vec![("n", ints([1]))]).partition_values.insert("p".to_owned(), Some(text.to_owned()));
        lake.check(&["p"], Some("n = 1"), &[expected]);
    }
}

#[test]
fn files_pruned_by_partition_values_need_no_request() {
    let lake = partitioned();
    assert_eq!(lake.bytes_read(&["n"], Some("p = 'y'")), 0);
    assert!(lake.bytes_read(&["n"], Some("p = 'x'")) < lake.bytes_read(&["n"], None));
}

#[test]
fn the_predicate_is_exact() {
    let mut lake = Lake::new(&[("a", "integer"), ("b", "string")]);
    lake.file(vec![
        ("a", Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]))),
        ("b", Arc::new(StringArray::from(vec![Some("w"), Some("x"), None, Some("z")]))),
    ]);
    for (predicate, expected) in [
        ("a > 1", &["3|null", "4|z"][..]),
        ("not (a > 1)", &["1|w"]),
        ("a > 1 or b = 'x'", &["null|x", "3|null", "4|z"]),
        ("b is null", &["3|null"]),
        ("a > 100", &[]),
        ("a = 4 and b = 'z'", &["4|z"]),
    ] {
        lake.check(&["a", "b"], Some(predicate), expected);
        let last: Vec<&str> = expected.iter().map(|row| row.split('|').nth(1).unwrap()).collect();
        lake.check(&["b"], Some(predicate), &last);
    }
    // A column that the file lacks is null.
    lake.fields.push(column("c", "integer"));
    lake.check(&["a"], Some("c = 1"), &[]);
    lake.check(&["a"], Some("c is null and a = 1"), &["1"]);
    lake.check(&["a"], Some("c is null"), &["1", "null", "3", "4"]);
}

#[test]
fn predicates_on_struct_fields() {
    let inner = r#"{"type":"struct","fields":[
        {"name":"x","type":"long","nullable":true,"metadata":{}},
        {"name":"big","type":"string","nullable":true,"metadata":{}},
        {"name":"new","type":"long","nullable":true,"metadata":{}}]}"#;
    let mut lake = Lake::new(&[("s", inner), ("n", "integer")]);
    let fields = Fields::from(vec![Field::new("big", ArrowType::Utf8, true), Field::new("x", ArrowType::Int32, true)]);
    let long: Vec<String> = (0..2000).map(|i| format!("{i:0>500}")).collect();
    let columns = vec![strings(long.iter().map(String::as_str)), ints(0..2000)];
    let valid: Vec<bool> = (0..2000).map(|i| i != 3).collect();
    let structs: ArrayRef = Arc::new(StructArray::new(fields, columns, Some(valid.into())));
    lake.file_in_groups(vec![("s", structs), ("n", ints(0..2000))], 400);
    lake.check(&["n"], Some("s.x < 6 and s.x >= 2"), &["2", "4", "5"]);
    lake.check(&["n"], Some("s.x is null"), &["3"]);
    lake.check(&["n"], Some("s is null"), &["3"]);
    lake.check(&["n"], Some("s.new = 1"), &[]);
    lake.check(&["n"], Some("s.new is null and n < 2"), &["0", "1"]);
    assert!(lake.bytes_read(&["n"], Some("s.x >= 0")) < 64 * 1024 + 40_000, "the other fields were decoded");
    assert!(lake.bytes_read(&["n", "s"], Some("s.x = 700")) < 300_000, "the other row groups were decoded");
}

#[test]
fn deep_nesting_is_read_without_exhausting_the_stack() {
    let depth = deltic_protocol::schema::json::MAX_DEPTH - 1;
    let (mut array, mut data_type) = (ints([7]), "\"integer\"".to_owned());
    for _ in 0..depth {
        let field = Arc::new(Field::new("element", array.data_type().clone(), true));
        array = Arc::new(ListArray::new(field, arrow_buffer::OffsetBuffer::new(vec![0, 1].into()), array, None));
        data_type = format!(r#"{{"type":"array","elementType":{data_type},"containsNull":true}}"#);
    }
    let mut lake = Lake::new(&[("deep", &data_type), ("n", "integer")]);
    lake.file(vec![("deep", array), ("n", ints([1]))]);
    let expected = format!("{}7{}|1", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(lake.rows(&["deep", "n"], Some("n = 1")).unwrap(), [expected]);
}

#[test]
fn bounds_of_floats_and_strings_are_inexact() {
    let mut lake = Lake::new(&[("f", "double"), ("t", "string"), ("n", "integer")]);
    let floats = [1.0, f64::NAN, -0.0, 0.0, f64::INFINITY, 2.0];
    let long = |last: &str| format!("{}{last}", "x".repeat(200));
    let texts = [long("a"), long("b"), String::new(), "é".to_owned(), "\u{10ffff}".repeat(40), "z".to_owned()];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("f", Arc::new(arrow_array::Float32Array::from_iter_values(floats.map(|f| f as f32)))),
        ("t", strings(texts.iter().map(String::as_str))),
        ("n", ints(0..6)),
    ];
    lake.file_in_groups(columns, 2);
    lake.check(&["n"], Some("f > 100"), &["1", "4"]);
    lake.check(&["n"], Some("f = 0"), &["2", "3"]);
    lake.check(&["n"], Some("f < 2"), &["0", "2", "3"]);
    for (row, text) in texts.iter().enumerate() {
        assert_eq!(lake.rows(&["n"], Some(&format!("t = '{text}'"))).unwrap(), [row.to_string()], "{text}");
    }
    lake.check(&["n"], Some("t > 'xx'"), &["0", "1", "3", "4", "5"]);
}

#[test]
fn pruned_row_groups_are_not_read() {
    let lake = numbers(4000, 500);
    let (all, one) =
        (lake.bytes_read(&["n", "long"], None), lake.bytes_read(&["n", "long"], Some("n >= 700 and n < 710")));
    assert!(all > 2_000_000, "{all}");
    assert!(one < all / 5, "{one} of {all}");
    let expected: Vec<String> = (700..710).map(|n| n.to_string()).collect();
    assert_eq!(lake.rows(&["n"], Some("n >= 700 and n < 710")).unwrap(), expected);
    // Only the footer.
    assert!(lake.bytes_read(&["long"], Some("n < 0")) <= 64 * 1024);
}

#[test]
fn late_materialisation_equals_a_plain_filter() {
    let lake = numbers(3000, 1000);
    for predicate in ["n = 1234", "t like '%7'", "t = 't5' or n = 2999", "n > 900 and n < 2100", "n < 0"] {
        let late = lake.rows(&["long", "n"], Some(predicate)).unwrap();
        let plain = lake.rows(&["n", "t"], Some(predicate)).unwrap();
        let number = |row: &String, at: usize| row.split('|').nth(at).unwrap().parse::<i32>().unwrap();
        assert_eq!(
            late.iter().map(|row| number(row, 1)).collect::<Vec<_>>(),
            plain.iter().map(|row| number(row, 0)).collect::<Vec<_>>(),
            "{predicate}"
        );
        assert!(late.iter().all(|row| number(row, 0) == number(row, 1)), "{predicate}");
    }
}

#[test]
fn deletion_vectors_span_row_groups() {
    let mut lake = numbers(100, 10);
    let deleted: Vec<u64> = [0, 5, 9, 10].into_iter().chain(18..42).chain([55, 99]).collect();
    lake.tasks[0].deletion_vector = delete(deleted.clone());
    let left: Vec<String> = (0..100).filter(|n| !deleted.contains(n)).map(|n| n.to_string()).collect();
    assert_eq!(lake.rows(&["n"], None).unwrap(), left);
    // Positions count from the start of the file also when row groups are pruned.
    lake.check(&["n"], Some("n >= 50 and n < 60"), &["50", "51", "52", "53", "54", "56", "57", "58", "59"]);
    lake.check(&["t"], Some("n >= 9 and n <= 43"), &["t11", "t12", "t13", "t14", "t15", "t16", "t17", "t42", "t43"]);
    lake.tasks[0].deletion_vector = delete(0..100);
    lake.check(&["n"], None, &[]);
    lake.tasks[0].deletion_vector = delete([100]);
    lake.check_corrupt(&["n"], &["row 100"]);
}

#[test]
fn deletion_vectors_in_files_are_found() {
    let mut lake = numbers(10, 10);
    let vector: DeletionVector = (1..9).collect();
    let (bytes, places) = deltic_protocol::deletion_vector::to_file_bytes(&[vector]).unwrap();
    let uuid = [7; 16];
    let name = "deletion_vector_07070707-0707-0707-0707-070707070707.bin";
    std::fs::create_dir(lake.dir.path().join("a b")).unwrap();
    std::fs::write(lake.dir.path().join("a b").join(name), bytes).unwrap();
    lake.tasks[0].deletion_vector = Some(deltic_protocol::action::DeletionVectorDescriptor {
        storage_type: "u".to_owned(),
        path_or_inline_dv: deltic_protocol::deletion_vector::encode_path("a b", &uuid),
        offset: Some(places[0].offset),
        size_in_bytes: places[0].size_in_bytes,
        cardinality: 8,
    });
    lake.check(&["n"], None, &["0", "9"]);
    lake.tasks[0].deletion_vector.as_mut().unwrap().cardinality = 9;
    lake.check_corrupt(&["n"], &["deletion vector"]);
}

#[test]
fn rows_without_columns_are_counted() {
    let mut lake = numbers(3000, 1000);
    let count = |lake: &Lake, predicate: Option<&str>| -> usize {
        lake.batches(&[], predicate).unwrap().iter().map(RecordBatch::num_rows).sum()
    };
    assert_eq!(count(&lake, None), 3000);
    assert!(lake.bytes_read(&[], None) <= 64 * 1024);
    assert_eq!(count(&lake, Some("n < 1500")), 1500);
    assert_eq!(count(&lake, Some("n < 0")), 0);
    lake.tasks[0].deletion_vector = delete(500..1500);
    assert_eq!(count(&lake, None), 2000);
    assert_eq!(count(&lake, Some("n < 1500")), 500);
}

#[test]
fn batches_have_the_requested_size() {
    let mut lake = numbers(1000, 300);
    lake.partitions = vec!["p".to_owned()];
    lake.fields.push(column("p", "integer"));
    lake.tasks[0].partition_values.insert("p".to_owned(), Some("7".to_owned()));
    lake.options.batch_rows = 64;
    for columns in [&["n", "p"][..], &["p"]] {
        let batches = lake.batches(columns, None).unwrap();
        assert!(batches.iter().all(|batch| batch.num_rows() <= 64));
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
    }
}

#[test]
fn many_files_come_in_order() {
    let mut lake = Lake::new(&[("n", "integer")]);
    for file in 0..40 {
        lake.file_in_groups(vec![("n", ints(file * 10..file * 10 + 10))], 3);
    }
    let expected: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    for (concurrent_files, batch_rows) in [(1, 1), (2, 4), (16, 1000), (0, 0)] {
        lake.options = ReadOptions { batch_rows, concurrent_files };
        assert_eq!(lake.rows(&["n"], None).unwrap(), expected, "{concurrent_files} at once");
    }
}

#[test]
fn nothing_is_requested_before_the_first_poll() {
    let mut lake = Lake::new(&[("n", "integer")]);
    for file in 0..40 {
        lake.file(vec![("n", ints([file]))]);
    }
    block_on(async {
        let reader = Reader::new(lake.storage.clone(), lake.spec(&["n"], None)).unwrap();
        let stream = reader.read(lake.tasks.clone(), lake.options.clone());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(lake.storage.counts().gets, 0);
        let mut stream = Box::pin(stream);
        assert_eq!(text(&stream.next().await.unwrap().unwrap()), ["0"]);
        // Reading ahead is bounded, also when the reader is slow.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let ahead = lake.storage.counts().gets;
        assert!(ahead < 20, "{ahead} requests for the first of 40 files");
        drop(stream);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let stopped = lake.storage.counts().gets;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!(lake.storage.counts().gets, stopped);
    });
}

#[test]
fn a_stream_ends_after_an_error_and_stays_ended() {
    let mut lake = Lake::new(&[("n", "integer")]);
    lake.file(vec![("n", ints([1]))]);
    lake.add(b"not a Parquet file at all");
    lake.file(vec![("n", ints([3]))]);
    block_on(async {
        let reader = Reader::new(lake.storage.clone(), lake.spec(&["n"], None)).unwrap();
        let mut stream = Box::pin(reader.read(lake.tasks.clone(), lake.options.clone()));
        assert_eq!(text(&stream.next().await.unwrap().unwrap()), ["1"]);
        let error = stream.next().await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.path()), (&Kind::Corrupt, Some("f1.parquet")));
        assert!(stream.next().await.is_none());
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn a_wrong_size_is_corrupt() {
    for wrong in [-1_i64, 1, 1_000_000, -300] {
        let mut lake = numbers(10, 10);
        lake.tasks[0].size = lake.tasks[0].size.checked_add_signed(wrong).unwrap();
        lake.check_corrupt(&["n"], &[]);
    }
    let mut lake = numbers(10, 10);
    lake.tasks[0].size = 0;
    lake.check_corrupt(&["n"], &["0 bytes"]);
}

#[test]
fn a_missing_file_is_named_and_is_not_a_missing_table() {
    let mut lake = numbers(10, 10);
    lake.tasks[0].deletion_vector = Some(deltic_protocol::action::DeletionVectorDescriptor {
        storage_type: "u".to_owned(),
        path_or_inline_dv: deltic_protocol::deletion_vector::encode_path("", &[7; 16]),
        offset: Some(1),
        size_in_bytes: 40,
        cardinality: 8,
    });
    let error = lake.rows(&["n"], None).unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt, "{error}");
    check_message(&error, &["gone", "VACUUM", "deletion_vector_07070707-0707-0707-0707-070707070707.bin"]);
    lake.tasks[0].deletion_vector = None;
    std::fs::remove_file(lake.path(0)).unwrap();
    lake.check_corrupt(&["n"], &["gone", "VACUUM", "f0.parquet"]);
}

#[test]
fn hostile_footers_are_corrupt() {
    let bytes = std::fs::read(numbers(10, 5).path(0)).unwrap();
    // Truncated at any length.
    for length in (0..bytes.len()).step_by(97) {
        let mut lake = Lake::new(&[("n", "integer")]);
        lake.add(&bytes[..length]);
        lake.check_corrupt(&["n"], &[]);
    }
    // The row count of the footer (zigzag, twice the number) gives 11 instead of 10: field 3 of the metadata.
    let footer = bytes.len() - 8 - u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
    let field = footer + bytes[footer..].windows(3).position(|w| w == [0x16, 20, 0x19]).unwrap();
    let mut corrupt = bytes.clone();
    corrupt[field + 1] = 22;
    let mut lake = Lake::new(&[("n", "integer")]);
    lake.add(&corrupt);
    lake.check_corrupt(&["n"], &["11 rows"]);
}

#[test]
fn a_wrong_row_count_of_a_row_group_is_corrupt() {
    // Both row groups and the file claim one row more than the columns hold.
    let bytes = std::fs::read(numbers(10, 10).path(0)).unwrap();
    let footer = bytes.len() - 8 - u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
    let mut corrupt = bytes.clone();
    let mut changed = 0;
    for at in footer..bytes.len() - 9 {
        // `num_rows` of the file or row group: the Thrift header of an i64 field, 10 as zigzag, the header of the next field.
        if corrupt[at] == 0x16 && corrupt[at + 1] == 20 && matches!(corrupt[at + 2], 0x19 | 0x26) {
            corrupt[at + 1] = 22;
            changed += 1;
        }
    }
    assert!(changed >= 2, "{changed}");
    for (columns, predicate) in [(&["n"][..], None), (&["n", "t"], Some("n >= 0"))] {
        let mut lake = Lake::new(&[("n", "integer"), ("t", "string")]);
        lake.add(&corrupt);
        let error = lake.rows(columns, predicate).unwrap_err();
        assert_eq!(error.kind(), &Kind::Corrupt, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With any bytes changed, a read gives rows or an error that names the file.
    #[test]
    fn damaged_files_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), footer in any::<bool>()) {
        let mut bytes = std::fs::read(numbers(20, 7).path(0)).unwrap();
        let start = if footer { bytes.len() - 1500 } else { 0 };
        for (at, byte) in changes {
            let at = start + at.index(bytes.len() - start);
            bytes[at] = byte;
        }
        let mut lake = Lake::new(&[("n", "integer"), ("t", "string"), ("long", "string")]);
        lake.add(&bytes);
        if let Err(error) = lake.rows(&["n", "t", "long"], Some("n > 3")) {
            prop_assert_eq!(error.kind(), &Kind::Corrupt, "{}", error);
        }
    }

    /// The rows are the same with and without bounds, bloom filters, row groups, late materialization and deletion vectors.
    #[test]
    fn pruning_never_changes_the_result(
        values in prop::collection::vec(prop::option::of(-20_i32..20), 1..60),
        group in 1_usize..20,
        bound in -22_i32..22,
        deleted in prop::collection::btree_set(0_u64..60, 0..20),
        operator in prop::sample::select(vec!["<", "<=", "=", ">=", ">", "<>"]),
        has_filters in any::<bool>(),
    ) {
        let mut lake = Lake::new(&[("v", "long"), ("i", "integer")]);
        let n = values.len() as u64;
        let columns: Vec<(&str, ArrayRef)> =
            vec![("v", Arc::new(Int32Array::from(values.clone()))), ("i", ints(0..n as i32))];
        let deleted_rows = delete(deleted.iter().copied().filter(|row| *row < n));
        if has_filters {
            lake.add(&bloom_filters::encode(columns, group)).deletion_vector = deleted_rows;
        } else {
            lake.file_in_groups(columns, group).deletion_vector = deleted_rows;
        }
        let keep = |value: i32| match operator {
            "<" => value < bound,
            "<=" => value <= bound,
            "=" => value == bound,
            ">=" => value >= bound,
            ">" => value > bound,
            _ => value != bound,
        };
        let expected: Vec<String> = (0..n)
            .filter(|row| !deleted.contains(row) && values[*row as usize].is_some_and(keep))
            .map(|row| row.to_string())
            .collect();
        prop_assert_eq!(lake.rows(&["i"], Some(&format!("v {operator} {bound}"))).unwrap(), expected);
    }
}

#[test]
fn task_groups_have_a_byte_form() {
    let lake = partitioned();
    let group = TaskGroup { spec: lake.spec(&["n", "p"], Some("n > 1")), tasks: lake.tasks.clone() };
    let bytes = group.to_bytes().unwrap();
    assert_eq!(TaskGroup::from_bytes(&bytes).unwrap(), group);
    let mut other = bytes.clone();
    let form = other.windows(3).position(|three| three == b":11").unwrap();
    other[form + 2] = b'5';
    for wrong in [&[][..], &other, &bytes[..bytes.len() - 1], b"\x01{}", b"{}"] {
        assert_eq!(TaskGroup::from_bytes(wrong).unwrap_err().kind(), &Kind::Invalid);
    }
}
