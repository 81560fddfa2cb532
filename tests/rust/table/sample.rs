//! Handmade tables, also such as no writer would write. Used by all tests of this crate.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, StructArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use deltic_protocol::error::Result;
use deltic_protocol::log::name::{checkpoint_name, commit_name};
use deltic_store::{Counts, Storage};
use deltic_table::checkpoint::read::AddColumns;
use deltic_table::log::LogSource;
use deltic_table::snapshot::Snapshot;
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

pub(crate) struct Sample {
    dir: tempfile::TempDir,
    pub(crate) storage: Storage,
    pub(crate) log: LogSource,
}

impl Sample {
    pub(crate) fn new() -> Self {
        Self::with_options(&HashMap::new())
    }

    /// A table with `deltic.durability` set to `none`.
    pub(crate) fn not_durable() -> Self {
        Self::with_options(&HashMap::from([("deltic.durability".to_owned(), "none".to_owned())]))
    }

    fn with_options(options: &HashMap<String, String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("_delta_log/_sidecars")).unwrap();
        let storage = Storage::open(dir.path().to_str().unwrap(), options).unwrap();
        Self { dir, log: LogSource::of(&storage), storage }
    }

    /// The path of a file of the table.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a Parquet file of these rows, and returns its size.
    pub(crate) fn data_file(&self, path: &str, batch: &RecordBatch) -> u64 {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        std::fs::write(path, &bytes).unwrap();
        bytes.len() as u64
    }

    /// A table with one `long` column and these commits after its creation.
    pub(crate) fn with_commits(commits: &[Vec<Value>]) -> Self {
        let sample = Self::new();
        sample.commit(0, &[protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
        commits.iter().zip(1..).for_each(|(actions, version)| sample.commit(version, actions));
        sample
    }

    /// The path of a file of the log.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join("_delta_log").join(name)
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.log(name), bytes).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        std::fs::remove_file(self.log(name)).unwrap();
    }

    /// Deletes commits, as log cleanup does.
    pub(crate) fn forget_commits(&self, versions: std::ops::RangeInclusive<u64>) {
        versions.for_each(|version| self.delete(&commit_name(version)));
    }

    /// Writes a commit. Without actions it has a `commitInfo`.
    pub(crate) fn commit(&self, version: u64, actions: &[Value]) {
        let bare = [json!({"commitInfo": {}})];
        self.put(&commit_name(version), lines(if actions.is_empty() { &bare } else { actions }));
    }

    /// The actions of a commit.
    pub(crate) fn read(&self, version: u64) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log(&commit_name(version))).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes a classic checkpoint.
    pub(crate) fn checkpoint(&self, version: u64, actions: &[Value]) {
        self.put(&checkpoint_name(version), parquet(actions));
    }

    /// Writes `_last_checkpoint`.
    pub(crate) fn hint(&self, version: u64) {
        self.put("_last_checkpoint", json!({"version": version, "size": 1}).to_string());
    }

    pub(crate) async fn open(&self) -> Result<Snapshot> {
        Snapshot::open(&self.log, None).await
    }

    pub(crate) async fn open_at(&self, version: u64) -> Result<Snapshot> {
        Snapshot::open(&self.log, Some(version)).await
    }

    /// Gets and lists of what is awaited, and its outcome.
    pub(crate) async fn counted<T>(&self, work: impl Future<Output = T>) -> ((u64, u64), T) {
        let before = self.storage.counts();
        let done = work.await;
        let Counts { gets, lists, heads, puts, .. } = self.storage.counts().since(&before);
        assert_eq!((heads, puts), (0, 0), "only reads were expected");
        ((gets, lists), done)
    }
}

/// The live files by path, each with its deletion vector's id.
pub(crate) async fn live(snapshot: &Snapshot) -> Result<Vec<String>> {
    let columns = AddColumns { members: vec!["path", "deletionVector"], ..AddColumns::default() };
    let mut batches = std::pin::pin!(snapshot.live_files(&columns).await?);
    let mut files = Vec::new();
    while let Some(adds) = batches.try_next().await? {
        for row in 0..adds.len() {
            let vector = adds.deletion_vector(row)?.map(|v| format!(" {}", v.unique_id())).unwrap_or_default();
            files.push(format!("{}{vector}", adds.path().value(row)));
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn lines(actions: &[Value]) -> String {
    actions.iter().map(|action| format!("{action}\n")).collect()
}

pub(crate) fn protocol(reader: i32, writer: i32) -> Value {
    json!({"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}})
}

/// The protocol that lists features: those of readers, and those of writers alone.
pub(crate) fn protocol_of(readers: &[&str], writers: &[&str]) -> Value {
    let writers = [readers, writers].concat();
    json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": readers, "writerFeatures": writers}})
}

/// A column of a schema; the type is a name, or JSON.
pub(crate) fn column_of(name: &str, data_type: &str) -> Value {
    let data_type = serde_json::from_str(data_type).unwrap_or_else(|_| Value::from(data_type));
    json!({"name": name, "type": data_type, "nullable": true, "metadata": {}})
}

/// Metadata of a table with these columns, each `name: type`.
pub(crate) fn metadata(columns: &[(&str, &str)], partitions: &[&str], configuration: Value) -> Value {
    let columns: Vec<Value> = columns.iter().map(|(name, data_type)| column_of(name, data_type)).collect();
    metadata_of(&columns, partitions, configuration)
}

/// Metadata of a table with these columns, each as the schema has it.
pub(crate) fn metadata_of(columns: &[Value], partitions: &[&str], configuration: Value) -> Value {
    json!({"metaData": {
        "id": "5d9b2d3c-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json!({"type": "struct", "fields": columns}).to_string(),
        "partitionColumns": partitions,
        "configuration": configuration,
    }})
}

pub(crate) fn add(path: &str) -> Value {
    json!({"add": {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": true}})
}

/// An add with more members, or others.
pub(crate) fn add_with(path: &str, members: Value) -> Value {
    let mut action = add(path);
    let members = members.as_object().unwrap().clone();
    action["add"].as_object_mut().unwrap().extend(members);
    action
}

pub(crate) fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": 5, "dataChange": true}})
}

/// A deletion vector in a separate file.
pub(crate) fn vector(offset: i32) -> Value {
    json!({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": offset, "sizeInBytes": 40,
        "cardinality": 6})
}

// --- checkpoints

fn structure(members: Vec<(&str, DataType)>) -> DataType {
    DataType::Struct(members.into_iter().map(|(name, data_type)| Field::new(name, data_type, true)).collect())
}

fn texts() -> DataType {
    DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)))
}

fn text_map() -> DataType {
    let entries = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)];
    DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(Fields::from(entries)), false)), false)
}

/// The columns of a checkpoint of delta-spark, whose deletion vectors have one member more than the log.
fn checkpoint_columns(stats: Option<DataType>) -> Vec<(&'static str, DataType)> {
    use DataType::{Boolean, Int32, Int64, Utf8};
    let vector = structure(vec![
        ("storageType", Utf8),
        ("pathOrInlineDv", Utf8),
        ("offset", Int32),
        ("sizeInBytes", Int32),
        ("cardinality", Int64),
        ("maxRowIndex", Int64),
    ]);
    let mut add = vec![
        ("path", Utf8),
        ("partitionValues", text_map()),
        ("size", Int64),
        ("modificationTime", Int64),
        ("dataChange", Boolean),
        ("tags", text_map()),
        ("deletionVector", vector.clone()),
        ("baseRowId", Int64),
        ("defaultRowCommitVersion", Int64),
        ("stats", Utf8),
    ];
    add.extend(stats.map(|stats| ("stats_parsed", stats)));
    let remove = vec![
        ("path", Utf8),
        ("deletionTimestamp", Int64),
        ("dataChange", Boolean),
        ("extendedFileMetadata", Boolean),
        ("partitionValues", text_map()),
        ("size", Int64),
        ("deletionVector", vector),
    ];
    vec![
        ("txn", structure(vec![("appId", Utf8), ("version", Int64), ("lastUpdated", Int64)])),
        ("add", structure(add)),
        ("remove", structure(remove)),
        (
            "metaData",
            structure(vec![
                ("id", Utf8),
                ("name", Utf8),
                ("description", Utf8),
                ("format", structure(vec![("provider", Utf8), ("options", text_map())])),
                ("schemaString", Utf8),
                ("partitionColumns", texts()),
                ("configuration", text_map()),
                ("createdTime", Int64),
            ]),
        ),
        (
            "protocol",
            structure(vec![
                ("minReaderVersion", Int32),
                ("minWriterVersion", Int32),
                ("readerFeatures", texts()),
                ("writerFeatures", texts()),
            ]),
        ),
        ("domainMetadata", structure(vec![("domain", Utf8), ("configuration", Utf8), ("removed", Boolean)])),
        ("sidecar", structure(vec![("path", Utf8), ("sizeInBytes", Int64), ("modificationTime", Int64)])),
        ("checkpointMetadata", structure(vec![("version", Int64)])),
    ]
}

/// A checkpoint's Parquet file with these actions, in row groups of three rows.
pub(crate) fn parquet(actions: &[Value]) -> Vec<u8> {
    parquet_of(actions, checkpoint_columns(None))
}

/// The same with typed statistics: `numRecords`, bounds and null counts of these columns.
pub(crate) fn parquet_with_stats(actions: &[Value], columns: &[(&'static str, DataType)]) -> Vec<u8> {
    let counts = columns.iter().map(|(name, _)| (*name, DataType::Int64)).collect();
    let stats = structure(vec![
        ("numRecords", DataType::Int64),
        ("minValues", structure(columns.to_vec())),
        ("maxValues", structure(columns.to_vec())),
        ("nullCount", structure(counts)),
    ]);
    parquet_of(actions, checkpoint_columns(Some(stats)))
}

/// The same with typed values of the partition column `p` and typed bounds of the column `d`, given as days since 1970 in
/// `partitionValues_parsed` and `stats_parsed`. The footer has these keys.
pub(crate) fn parquet_with_typed_dates(actions: &[Value], keys: &[(&str, &str)]) -> Vec<u8> {
    let date = || structure(vec![("d", DataType::Date32)]);
    let counts = structure(vec![("d", DataType::Int64)]);
    let stats =
        vec![("numRecords", DataType::Int64), ("minValues", date()), ("maxValues", date()), ("nullCount", counts)];
    let mut columns = checkpoint_columns(Some(structure(stats)));
    let (_, DataType::Struct(add)) = columns.iter_mut().find(|(name, _)| *name == "add").unwrap() else { panic!() };
    let typed = Field::new("partitionValues_parsed", structure(vec![("p", DataType::Date32)]), true);
    *add = add.iter().cloned().chain([Arc::new(typed)]).collect();
    let keys = keys.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    encoded(actions, &columns, WriterProperties::builder().set_key_value_metadata(Some(keys)).build())
}

/// Only file actions, as in a sidecar.
pub(crate) fn sidecar(actions: &[Value]) -> Vec<u8> {
    let mut columns = checkpoint_columns(None);
    columns.retain(|(name, _)| matches!(*name, "add" | "remove"));
    parquet_of(actions, columns)
}

fn parquet_of(actions: &[Value], columns: Vec<(&'static str, DataType)>) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
    encoded(actions, &columns, properties)
}

/// The same with required members of deletion vectors, as some writers have them, and `page_rows` rows in a page.
pub(crate) fn parquet_with_required_vectors(actions: &[Value], page_rows: usize) -> Vec<u8> {
    let mut columns = checkpoint_columns(None);
    let (_, DataType::Struct(add)) = columns.iter_mut().find(|(name, _)| *name == "add").unwrap() else { panic!() };
    let required = |field: &Arc<Field>| match (field.name().as_str(), field.data_type()) {
        ("deletionVector", DataType::Struct(members)) => {
            let required = |m: &Arc<Field>| {
                let never =
                    matches!(m.name().as_str(), "storageType" | "pathOrInlineDv" | "sizeInBytes" | "cardinality");
                Arc::new(m.as_ref().clone().with_nullable(!never))
            };
            let members: Fields = members.iter().map(required).collect();
            Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(members)))
        }
        _ => field.clone(),
    };
    *add = add.iter().map(required).collect();
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .set_dictionary_enabled(false)
        .build();
    encoded(actions, &columns, properties)
}

/// A file as small as possible, with only the columns that the actions fill. Typed bounds are of type long.
pub(crate) fn small_parquet(actions: &[Value], properties: WriterProperties) -> Vec<u8> {
    let rows: Vec<Option<&Value>> = actions.iter().map(Some).collect();
    let bounds = || structure(vec![("l", DataType::Int64)]);
    let stats = structure(vec![
        ("numRecords", DataType::Int64),
        ("minValues", bounds()),
        ("maxValues", bounds()),
        ("nullCount", bounds()),
    ]);
    let mut columns = checkpoint_columns(Some(stats));
    columns.retain_mut(|(name, data_type)| {
        let values = members(&rows, name);
        *data_type = filled(data_type, &values);
        values.iter().any(Option::is_some)
    });
    encoded(actions, &columns, properties)
}

/// The type without the members that are missing in all values.
fn filled(data_type: &DataType, values: &[Option<&Value>]) -> DataType {
    let DataType::Struct(fields) = data_type else { return data_type.clone() };
    let kept = fields.iter().filter_map(|field| {
        let values = members(values, field.name());
        let field = field.as_ref().clone().with_data_type(filled(field.data_type(), &values));
        values.iter().any(Option::is_some).then_some(field)
    });
    DataType::Struct(kept.collect())
}

fn encoded(actions: &[Value], columns: &[(&'static str, DataType)], properties: WriterProperties) -> Vec<u8> {
    let rows: Vec<Option<&Value>> = actions.iter().map(Some).collect();
    let fields: Fields = columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect();
    let arrays = fields.iter().map(|f| column(f.data_type(), &members(&rows, f.name()))).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn members<'a>(values: &[Option<&'a Value>], name: &str) -> Vec<Option<&'a Value>> {
    values.iter().map(|value| value.and_then(|v| v.get(name)).filter(|v| !v.is_null())).collect()
}

/// JSON values as an array of this type. Values of other types panic.
fn column(data_type: &DataType, values: &[Option<&Value>]) -> ArrayRef {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    match data_type {
        DataType::Utf8 => Arc::new(values.iter().map(|v| v.map(text)).collect::<StringArray>()),
        DataType::Boolean => Arc::new(values.iter().map(|v| v.map(|v| v.as_bool().unwrap())).collect::<BooleanArray>()),
        DataType::Int64 => Arc::new(values.iter().map(|v| v.map(|v| v.as_i64().unwrap())).collect::<Int64Array>()),
        DataType::Date32 => {
            let days = |v: &Value| i32::try_from(v.as_i64().unwrap()).unwrap();
            Arc::new(values.iter().map(|v| v.map(days)).collect::<Date32Array>())
        }
        DataType::Int32 => {
            let narrow = |v: &Value| i32::try_from(v.as_i64().unwrap()).unwrap();
            Arc::new(values.iter().map(|v| v.map(narrow)).collect::<Int32Array>())
        }
        DataType::Float64 => {
            // JSON has no NaN.
            let double = |v: &Value| v.as_f64().unwrap_or_else(|| v.as_str().unwrap().parse().unwrap());
            Arc::new(values.iter().map(|v| v.map(double)).collect::<Float64Array>())
        }
        DataType::Decimal128(precision, scale) => {
            let unscaled = values.iter().map(|v| v.map(|v| v.as_str().unwrap().parse().unwrap()));
            let decimals = unscaled.collect::<Decimal128Array>();
            Arc::new(decimals.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Struct(fields) => {
            let children = fields.iter().map(|f| column(f.data_type(), &members(values, f.name()))).collect();
            let valid: Vec<bool> = values.iter().map(Option::is_some).collect();
            Arc::new(StructArray::new(fields.clone(), children, Some(NullBuffer::from(valid))))
        }
        DataType::List(element) => {
            let lists = values.iter().map(|v| v.map_or(&[][..], |v| v.as_array().unwrap().as_slice()));
            let offsets = OffsetBuffer::from_lengths(lists.clone().map(<[Value]>::len));
            let items: Vec<Option<&Value>> = lists.flatten().map(Some).collect();
            let valid: Vec<bool> = values.iter().map(Option::is_some).collect();
            let items = column(element.data_type(), &items);
            Arc::new(ListArray::new(element.clone(), offsets, items, Some(NullBuffer::from(valid))))
        }
        DataType::Map(..) => {
            let names =
                MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
            let mut map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
            for value in values {
                for (key, value) in value.and_then(|v| v.as_object()).into_iter().flatten() {
                    map.keys().append_value(key);
                    map.values().append_option(value.as_str());
                }
                map.append(value.is_some()).unwrap();
            }
            Arc::new(map.finish())
        }
        other => new_null_array(other, values.len()),
    }
}
