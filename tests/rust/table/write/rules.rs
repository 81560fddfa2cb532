//! Constraints, generated columns and defaults in the writer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType as A, Field, Fields};
use deltic_protocol::constraint::{ExternalRules, Rules};
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::schema::TableSchema;
use deltic_store::Storage;
use deltic_table::write::rules::WriteRules;
use deltic_table::write::writer::{DataFile, DataWriter, WriteSpec};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;

const NOW: i64 = 1_700_000_000_000_000;

fn field(name: &str, data_type: &Value, metadata: &Value) -> Value {
    json!({"name": name, "type": data_type, "nullable": true, "metadata": metadata})
}

fn plain(name: &str, data_type: &str) -> Value {
    field(name, &json!(data_type), &json!({}))
}

struct Table {
    dir: TempDir,
    spec: WriteSpec,
}

impl Table {
    fn new(fields: &[Value], partition_columns: &[&str], constraints: &[(&str, &str)]) -> Self {
        let schema = json!({"type": "struct", "fields": fields}).to_string();
        let names = partition_columns.iter().map(|name| (*name).to_owned()).collect();
        let mut spec = WriteSpec::new(TableSchema::parse(schema).unwrap(), names);
        let constraints: BTreeMap<String, String> =
            constraints.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned())).collect();
        spec.rules = Some(WriteRules { constraints, now: Some(NOW), external: ExternalRules::default() });
        Self { dir: TempDir::new().unwrap(), spec }
    }

    fn storage(&self) -> Storage {
        let options = HashMap::from([("deltic.durability".to_owned(), "none".to_owned())]);
        Storage::open(self.dir.path().to_str().unwrap(), &options).unwrap()
    }

    async fn write(&self, batches: Vec<RecordBatch>) -> Result<Vec<DataFile>> {
        let writer = DataWriter::new(self.storage(), &self.spec, || 0)?;
        writer.write_all(futures::stream::iter(batches.into_iter().map(Ok))).await
    }

    /// The rows of the only file of a write.
    async fn stored(&self, batch: RecordBatch) -> RecordBatch {
        let files = self.write(vec![batch]).await.unwrap();
        let bytes = self.storage().get(&files[0].add.path).await.unwrap();
        ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap().next().unwrap().unwrap()
    }

    /// The error of a write. Checks that no file is left.
    async fn refused(&self, batches: Vec<RecordBatch>) -> Error {
        let error = self.write(batches).await.unwrap_err();
        assert_eq!(std::fs::read_dir(self.dir.path()).unwrap().count(), 0, "{error}");
        error
    }
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn longs(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn strings(values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

#[tokio::test]
async fn a_violation_in_the_last_batch_leaves_nothing() {
    let table = Table::new(&[plain("a", "long"), plain("s", "string")], &["s"], &[("small", "a < 100 AND s <> ''")]);
    let good = || rows(vec![("A", longs((0..50).collect())), ("s", strings(vec![Some("x"); 50]))]);
    assert_eq!(table.write(vec![good(), good()]).await.unwrap().iter().map(|file| file.rows).sum::<u64>(), 100);
    let table = Table { dir: TempDir::new().unwrap(), ..table };
    let bad = rows(vec![("a", longs(vec![1, 2, 100])), ("s", strings(vec![Some("x"), Some("y"), Some("z")]))]);
    let error = table.refused(vec![good(), good(), bad]).await;
    assert_eq!(*error.kind(), Kind::Invalid);
    assert_eq!(
        error.message(),
        "the CHECK constraint `small` (a < 100 AND s <> '') is violated by row 102 (the first is 0) of the data: \
         a = 100, s = 'z'"
    );
    let null = rows(vec![("a", longs(vec![1])), ("s", strings(vec![None]))]);
    assert!(table.refused(vec![null]).await.message().contains("row 0 (the first is 0) of the data: a = 1, s = NULL"));
}

#[tokio::test]
async fn row_numbers_of_large_batches() {
    let table = Table::new(&[plain("a", "long")], &[], &[("few", "a < 200000")]);
    let error = table.refused(vec![rows(vec![("a", longs((0..200_001).collect()))])]).await;
    assert!(error.message().ends_with("row 200000 (the first is 0) of the data: a = 200000"), "{error}");
}

#[tokio::test]
async fn missing_columns_are_computed() {
    let default = |sql: &str| json!({"CURRENT_DEFAULT": sql});
    let generated = |sql: &str| json!({"delta.generationExpression": sql});
    let table = Table::new(
        &[
            plain("id", "long"),
            field("s", &json!("string"), &default("concat('a', \"b\")")),
            field("at", &json!("timestamp"), &default("current_timestamp()")),
            field("twice", &json!("long"), &generated("ID * 2 + length(s)")),
            field("p", &json!("string"), &generated("substring(s, 1, 1)")),
        ],
        &["p"],
        &[("computed", "twice > id AND p IS NOT NULL")],
    );
    // The data is a dictionary of another integer type, and lacks the other columns.
    let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let ids = arrow_cast::cast(&ids, &A::Dictionary(Box::new(A::Int8), Box::new(A::Int32))).unwrap();
    let files = table.write(vec![rows(vec![("Id", Arc::clone(&ids))])]).await.unwrap();
    assert_eq!(files[0].add.partition_values.get("p").and_then(Option::as_deref), Some("a"));
    let stored = {
        let bytes = table.storage().get(&files[0].add.path).await.unwrap();
        ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap().next().unwrap().unwrap()
    };
    assert_eq!(stored.column_by_name("twice").unwrap().as_primitive::<Int64Type>().values(), &[4, 6]);
    assert_eq!(stored.column_by_name("s").unwrap().as_string::<i32>().value(1), "ab");
    let at = stored.column_by_name("at").unwrap().as_primitive::<TimestampMicrosecondType>();
    assert_eq!(at.values(), &[NOW, NOW]);
    // Given values are kept, null too, and computed values depend on them.
    let table = Table { dir: TempDir::new().unwrap(), ..table };
    let given = rows(vec![("id", longs(vec![5])), ("s", strings(vec![Some("xyz")])), ("p", strings(vec![Some("x")]))]);
    let stored = table.stored_in("p=x", given).await;
    assert_eq!(stored.column_by_name("twice").unwrap().as_primitive::<Int64Type>().values(), &[13]);
    let table = Table { dir: TempDir::new().unwrap(), ..table };
    let null = rows(vec![("id", longs(vec![5])), ("s", strings(vec![None]))]);
    let error = table.refused(vec![null]).await;
    assert!(error.message().contains("`computed`"), "an explicit null stays null: {error}");
}

impl Table {
    async fn stored_in(&self, folder: &str, batch: RecordBatch) -> RecordBatch {
        let files = self.write(vec![batch]).await.unwrap();
        assert!(files[0].add.path.starts_with(folder), "{}", files[0].add.path);
        let bytes = self.storage().get(&files[0].add.path).await.unwrap();
        ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap().next().unwrap().unwrap()
    }
}

#[tokio::test]
async fn given_values_of_generated_columns_are_compared() {
    let generated = json!({"delta.generationExpression": "a + 1"});
    let table = Table::new(&[plain("a", "long"), field("g", &json!("long"), &generated)], &[], &[]);
    let good = rows(vec![
        ("a", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("g", Arc::new(Int64Array::from(vec![Some(2), None]))),
    ]);
    assert_eq!(table.stored(good).await.num_rows(), 2);
    let table = Table { dir: TempDir::new().unwrap(), ..table };
    let bad = rows(vec![("a", longs(vec![1, 2])), ("g", longs(vec![2, 4]))]);
    let error = table.refused(vec![bad]).await;
    assert_eq!(*error.kind(), Kind::Invalid);
    assert!(error.message().starts_with("row 1 (the first is 0) has another value than"), "{error}");
    assert!(error.message().contains("`g` (a + 1) gives: g = 4, a = 2;"), "{error}");
}

#[tokio::test]
async fn conditions_see_logical_names_and_void_columns() {
    let invariant = json!({"expression": {"expression": "s.x > 0"}}).to_string();
    let mapped = |name: &str, id: i64, metadata: Value| {
        let mut all = json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{name}")});
        all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        all
    };
    let x = field("x", &json!("long"), &mapped("x", 3, json!({"delta.invariants": invariant})));
    let inner = json!({"type": "struct", "fields": [x]});
    let mut table = Table::new(
        &[
            field("v", &json!("void"), &mapped("v", 1, json!({}))),
            field("s", &inner, &mapped("s", 2, json!({}))),
            field("g", &json!("long"), &mapped("g", 4, json!({"delta.generationExpression": "s.x * 10"}))),
        ],
        &[],
        &[("mixed", "v IS NULL AND g < 1000")],
    );
    table.spec.column_mapping = "name".to_owned();
    let structs = |values: Vec<i64>| -> ArrayRef {
        let fields: Fields = vec![Field::new("x", A::Int64, true)].into();
        Arc::new(StructArray::new(fields, vec![longs(values)], None))
    };
    let files = table.write(vec![rows(vec![("s", structs(vec![1, 99]))])]).await.unwrap();
    let bytes = table.storage().get(&files[0].add.path).await.unwrap();
    let stored = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap().next().unwrap().unwrap();
    assert_eq!(stored.column_by_name("col-g").unwrap().as_primitive::<Int64Type>().values(), &[10, 990]);
    let table = Table { dir: TempDir::new().unwrap(), ..table };
    let error = table.refused(vec![rows(vec![("s", structs(vec![1, 100]))])]).await;
    assert!(error.message().contains("`mixed` (v IS NULL AND g < 1000) is violated by row 1"), "{error}");
    assert!(error.message().ends_with("v = NULL, g = 1000"), "{error}");
    let error = table.refused(vec![rows(vec![("s", structs(vec![0]))])]).await;
    assert!(error.message().contains("the invariant of column `s.x` (s.x > 0) is violated by row 0"), "{error}");
}

#[tokio::test]
async fn unsupported_rules_refuse_the_write() {
    let table = Table::new(&[plain("a", "long")], &[], &[("odd", "frobnicate(a) > 0")]);
    let error = table.refused(vec![]).await;
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function frobnicate".to_owned()] });
    assert!(error.message().contains("the CHECK constraint `odd` (frobnicate(a) > 0)"), "{error}");
    let table = Table::new(
        &[plain("a", "long"), field("d", &json!("string"), &json!({"CURRENT_DEFAULT": "uuid()"}))],
        &[],
        &[],
    );
    let given = rows(vec![("a", longs(vec![1])), ("d", strings(vec![Some("x")]))]);
    assert_eq!(table.stored(given).await.num_rows(), 1, "the default is not needed");
    let table = Table { dir: TempDir::new().unwrap(), ..table };
    let error = table.refused(vec![rows(vec![("a", longs(vec![1]))])]).await;
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function uuid".to_owned()] });
    assert!(error.message().contains("the default of the column `d` (uuid())"), "{error}");
}

#[tokio::test]
async fn rewritten_rows_are_not_checked() {
    let mut table = Table::new(&[plain("a", "long")], &[], &[("never", "FALSE")]);
    table.spec.rules = None;
    assert_eq!(table.stored(rows(vec![("a", longs(vec![1]))])).await.num_rows(), 1);
}

/// The rules of a table that another engine evaluates, for rows with these columns.
fn external(table: &Table, given: &[&str]) -> ExternalRules {
    let rules = table.spec.rules.as_ref().unwrap();
    Rules::external(&table.spec.schema, &rules.constraints, rules.now, given).unwrap()
}

#[tokio::test]
async fn external_conditions_are_demanded() {
    let generated = json!({"delta.generationExpression": "frob(a)"});
    let mut table = Table::new(
        &[plain("a", "long"), field("g", &json!("long"), &generated), plain("_deltic_condition_0", "long")],
        &[],
        &[("odd", "frob(a) > INTERVAL 1 DAY"), ("small", "a < 5")],
    );
    let found = external(&table, &["A"]);
    let conditions: Vec<(&str, &str)> =
        found.conditions.iter().map(|of| (of.column.as_str(), of.sql.as_str())).collect();
    assert_eq!(conditions, [("__deltic_condition_0", "frob(a) > INTERVAL 1 DAY")]);
    assert_eq!(found.columns.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["g"]);
    assert_eq!(found.columns[0].refusal.as_ref().unwrap().features, ["function frob"]);
    table.spec.rules.as_mut().unwrap().external = found;

    let booleans = |values: Vec<Option<bool>>| Arc::new(BooleanArray::from(values)) as ArrayRef;
    let two = |values| {
        let conditions = ("__deltic_condition_0", booleans(values));
        rows(vec![("a", longs(vec![1, 2])), conditions, ("G", longs(vec![7, 8]))])
    };
    let stored = table.stored(two(vec![Some(true), Some(true)])).await;
    assert_eq!(stored.column_by_name("g").unwrap().as_primitive::<Int64Type>().values(), &[7, 8]);
    assert_eq!(stored.num_columns(), 3, "{:?}", stored.schema());

    table.dir = TempDir::new().unwrap();
    for values in [vec![Some(true), Some(false)], vec![Some(true), None]] {
        let error = table.refused(vec![two(vec![Some(true), Some(true)]), two(values)]).await;
        assert_eq!(
            error.message(),
            "the CHECK constraint `odd` (frob(a) > INTERVAL 1 DAY) is violated by row 3 (the first is 0) of the data: a = 2"
        );
    }
    let known =
        rows(vec![("a", longs(vec![9])), ("g", longs(vec![9])), ("__deltic_condition_0", booleans(vec![Some(true)]))]);
    assert!(table.refused(vec![known]).await.message().contains("`small`"), "deltic evaluates the rest");
    for (lacking, named) in [
        (rows(vec![("a", longs(vec![1])), ("g", longs(vec![1]))]), "the CHECK constraint `odd`"),
        (rows(vec![("a", longs(vec![1])), ("__deltic_condition_0", booleans(vec![Some(true)]))]), "column `g`"),
        (
            rows(vec![("a", longs(vec![1])), ("g", longs(vec![1])), ("__deltic_condition_0", longs(vec![1]))]),
            "the CHECK constraint `odd`",
        ),
    ] {
        let error = table.refused(vec![lacking]).await;
        assert_eq!(*error.kind(), Kind::Invalid);
        assert!(error.message().contains(named) && error.message().contains("deltic.spark.write"), "{error}");
    }
}

#[tokio::test]
async fn a_given_value_of_a_column_that_another_engine_generates() {
    let generated = json!({"delta.generationExpression": "frob(a)"});
    let default = json!({"CURRENT_DEFAULT": "frob()"});
    let fields = [
        plain("a", "long"),
        field("g", &json!("long"), &generated),
        field("d", &json!("long"), &default),
        field("known", &json!("long"), &json!({"CURRENT_DEFAULT": "7"})),
    ];
    let mut table = Table::new(&fields, &[], &[]);
    let names = |found: &ExternalRules| found.columns.iter().map(|of| of.name.clone()).collect::<Vec<_>>();
    let found = external(&table, &["a", "g", "d"]);
    assert_eq!(names(&found), ["known"], "conditions may depend on it");
    assert_eq!(found.conditions[0].rule.to_string(), "the expression of the generated column `g`");
    assert_eq!(names(&external(&table, &["a"])), ["g", "d", "known"]);
    let only_default = Table::new(&[plain("a", "long"), field("d", &json!("long"), &default)], &[], &[]);
    assert!(external(&only_default, &["a", "d"]).is_empty(), "the default is not needed");
    table.spec.rules.as_mut().unwrap().external = found;
    let given = |holds: bool| {
        let columns = vec![("a", longs(vec![1])), ("g", longs(vec![2])), ("d", longs(vec![3]))];
        let condition: ArrayRef = Arc::new(BooleanArray::from(vec![holds]));
        rows([columns, vec![("known", longs(vec![4])), ("_deltic_condition_0", condition)]].concat())
    };
    let error = table.refused(vec![given(false)]).await;
    assert!(error.message().contains("`g` (frob(a)) gives: g = 2, a = 1"), "{error}");
    let stored = table.stored(given(true)).await;
    assert_eq!(stored.column_by_name("known").unwrap().as_primitive::<Int64Type>().values(), &[4]);
}

#[test]
fn what_no_engine_may_evaluate() {
    for (sql, expected) in [("frob(h)", "depends on `h`"), ("rand() + frob(a)", "not always give the same value")] {
        let generated = |sql: &str| json!({"delta.generationExpression": sql});
        let fields = [
            plain("a", "long"),
            field("g", &json!("double"), &generated(sql)),
            field("h", &json!("double"), &generated("a * 2D")),
        ];
        let table = Table::new(&fields, &[], &[("frob", "frob(a)")]);
        let error = Rules::external(&table.spec.schema, &BTreeMap::new(), None, &["a"]).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
    }
    let broken = Table::new(&[field("a", &json!("long"), &json!({"delta.invariants": "{}"}))], &[], &[]);
    let error = Rules::external(&broken.spec.schema, &BTreeMap::new(), None, &["a"]).unwrap_err();
    assert_eq!(*error.kind(), Kind::Corrupt);
}
