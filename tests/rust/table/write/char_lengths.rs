//! Strings that are too long for `char(n)` and `varchar(n)` columns are refused.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType as A, Field, Fields, Schema};
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::schema::TableSchema;
use deltic_store::Storage;
use deltic_table::write::writer::{DataFile, DataWriter, WriteSpec};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

fn field(name: &str, data_type: &Value, sql: Option<&str>) -> Value {
    let metadata = sql.map_or_else(|| json!({}), |sql| json!({"__CHAR_VARCHAR_TYPE_STRING": sql}));
    json!({"name": name, "type": data_type, "nullable": true, "metadata": metadata})
}

fn array_of(element: &Value) -> Value {
    json!({"type": "array", "elementType": element, "containsNull": true})
}

fn struct_of(fields: &[Value]) -> Value {
    json!({"type": "struct", "fields": fields})
}

fn strings(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn batch(name: &str, values: ArrayRef) -> RecordBatch {
    let schema = Schema::new(vec![Field::new(name, values.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
}

fn storage() -> Storage {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let location = format!("memory://lengths-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    Storage::open(&location, &HashMap::new()).unwrap()
}

/// Writes batches of the only column of a table, and returns the files.
async fn write(storage: &Storage, column: &Value, batches: &[RecordBatch]) -> Result<Vec<DataFile>> {
    let schema = TableSchema::parse(struct_of(std::slice::from_ref(column)).to_string()).unwrap();
    let spec = WriteSpec::new(schema, Vec::new());
    let mut writer = DataWriter::new(storage.clone(), &spec, || 0)?;
    for batch in batches {
        writer.write(batch).await?;
    }
    writer.finish().await
}

/// The stored values of one batch of the only column.
async fn stored(column: &Value, values: ArrayRef) -> Result<ArrayRef> {
    let storage = storage();
    let name = column["name"].as_str().unwrap();
    let files = write(&storage, column, &[batch(name, values)]).await?;
    let bytes = storage.get(&files[0].add.path).await?;
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    Ok(Arc::clone(reader.next().unwrap().unwrap().column(0)))
}

async fn refused(column: &Value, values: ArrayRef) -> Error {
    let error = stored(column, values).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Invalid, "{error}");
    error
}

#[tokio::test]
async fn characters_are_code_points() {
    let column = field("v", &json!("string"), Some("varchar(4)"));
    let values = [Some("abcd"), Some("日本語😀"), None, Some(""), Some("e\u{301}e\u{301}")];
    let read = stored(&column, strings(&values)).await.unwrap();
    assert_eq!(read.as_string::<i32>().iter().collect::<Vec<_>>(), values);
    for long in ["abcde", "日本語😀é", "abcd "] {
        let error = refused(&column, strings(&[Some("a"), None, Some(long)])).await;
        let expected = "the column `v` is varchar(4), and row 2 (the first is 0) has a string of 5 characters";
        assert!(error.message().starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn rows_are_counted_over_batches() {
    let column = field("v", &json!("string"), Some("VARCHAR( 2 )"));
    let one = batch("v", strings(&[Some("a"), Some("b")]));
    let error = write(&storage(), &column, &[one.clone(), one, batch("v", strings(&[Some("abc")]))]).await.unwrap_err();
    assert!(error.message().contains("row 4 "), "{error}");
}

#[tokio::test]
async fn short_strings_of_a_char_are_stored_as_given() {
    let column = field("c", &json!("string"), Some("char(3)"));
    let values = [Some("a"), None, Some("日本語"), Some(""), Some("ab ")];
    let read = stored(&column, strings(&values)).await.unwrap();
    assert_eq!(read.as_string::<i32>().iter().collect::<Vec<_>>(), values);
    for long in ["abc ", "abcd"] {
        let error = refused(&column, strings(&[Some("abc"), Some(long)])).await;
        assert!(
            error.message().contains("is char(3), and row 1 (the first is 0) has a string of 4 characters"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn lengths_count_at_all_depths() {
    let string = json!("string");
    let list = |values: &[Option<&str>], lengths: &[usize], nulls: Option<Vec<bool>>| -> ArrayRef {
        let element = Arc::new(Field::new("element", A::Utf8, true));
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        Arc::new(ListArray::new(element, offsets, strings(values), nulls.map(NullBuffer::from)))
    };
    let column = field("l", &array_of(&string), Some("array<varchar(2)>"));
    let fits = list(&[Some("ab"), Some("too long"), Some("c")], &[1, 1, 1], Some(vec![true, false, true]));
    assert!(stored(&column, fits).await.is_ok(), "strings below a null are checked");
    let error = refused(&column, list(&[Some("a"), Some("b"), Some("c"), Some("def")], &[2, 0, 2], None)).await;
    assert!(error.message().contains("`l.element` is varchar(2), and row 2 "), "{error}");

    let inner = struct_of(&[field("a", &string, None), field("b c", &array_of(&string), None)]);
    let column = field("s", &inner, Some("struct<a:char(2),`b c`:array<varchar(2)>>"));
    let value = |a: &str, b: &str| -> ArrayRef {
        let b = list(&[Some(b)], &[1], None);
        let fields = vec![Field::new("a", A::Utf8, true), Field::new("b c", b.data_type().clone(), true)];
        Arc::new(StructArray::new(Fields::from(fields), vec![strings(&[Some(a)]), b], None))
    };
    let read = stored(&column, value("x", "ab")).await.unwrap();
    assert_eq!(read.as_struct().column(0).as_string::<i32>().value(0), "x");
    assert!(refused(&column, value("xyz", "ab")).await.message().contains("`s.a` is char(2), and row 0 "));
    assert!(refused(&column, value("x", "abc")).await.message().contains("`s.b c.element` is varchar(2), and row 0 "));

    let pairs = json!({"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": true});
    let column = field("m", &pairs, Some("map<varchar(1),char(2)>"));
    let map = |keys: &[&str], values: &[&str], lengths: &[usize]| -> ArrayRef {
        let [keys, values] = [keys, values].map(|v| Arc::new(StringArray::from(v.to_vec())) as ArrayRef);
        let fields = Fields::from(vec![Field::new("key", A::Utf8, false), Field::new("value", A::Utf8, true)]);
        let entries = StructArray::new(fields.clone(), vec![keys, values], None);
        let field = Arc::new(Field::new("key_value", A::Struct(fields), false));
        Arc::new(MapArray::new(field, OffsetBuffer::from_lengths(lengths.iter().copied()), entries, None, false))
    };
    let read = stored(&column, map(&["a", "b"], &["x", "yy"], &[1, 1])).await.unwrap();
    assert_eq!(read.as_map().values().as_string::<i32>().value(0), "x");
    assert!(
        refused(&column, map(&["a", "bb"], &["x", "y"], &[1, 1]))
            .await
            .message()
            .contains("`m.key` is varchar(1), and row 1 ")
    );
    assert!(
        refused(&column, map(&["a", "b"], &["x", "yyy"], &[2]))
            .await
            .message()
            .contains("`m.value` is char(2), and row 0 ")
    );
}

#[tokio::test]
async fn invalid_lengths_are_refused_by_name() {
    let inner = struct_of(&[field("a:b", &json!("string"), None)]);
    for (data_type, sql) in [
        (json!("string"), "varchar"),
        (json!("string"), "varchar()"),
        (json!("string"), "varchar(-1)"),
        (json!("string"), "varchar(0)"),
        (json!("string"), "varchar(4) x"),
        (json!("string"), "array<varchar(4)>"),
        (json!("string"), ""),
        (json!("long"), "varchar(4)"),
        (array_of(&json!("string")), "varchar(4)"),
        (inner.clone(), "struct<a:b:varchar(4)>"),
        (inner.clone(), "struct<gone:varchar(4)>"),
        (inner.clone(), &"struct<a:".repeat(1000)),
    ] {
        let error = write(&storage(), &field("v", &data_type, Some(sql)), &[]).await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{sql}: {error}");
        assert!(error.message().contains("the column `v`"), "{error}");
    }
    for (data_type, sql) in [
        (json!("string"), "string"),
        (json!("decimal(10,2)"), "decimal(10,2)"),
        (inner, "struct<`a:b`:varchar(4),gone:decimal(10,2),x:struct<>>"),
        (array_of(&json!("string")), "array<string collate UTF8_LCASE>"),
    ] {
        write(&storage(), &field("v", &data_type, Some(sql)), &[]).await.unwrap();
    }
}
