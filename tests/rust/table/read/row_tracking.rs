//! Row ids and row commit versions, from the log and from files.

use deltic_table::log::LogSource;
use std::collections::BTreeSet;

use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_ID};
use deltic_table::snapshot::Snapshot;
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};

use super::super::sample::{add_with, lines, metadata_of};
use super::*;

/// Rows 1000 to 1000 + `n`, which version 3 added, in row groups of `group` rows.
fn tracked(n: i32, group: usize) -> Lake {
    let mut lake = numbers(n, group);
    lake.row_tracking = Some(RowTracking::default());
    lake.tasks[0].base_row_id = Some(1000);
    lake.tasks[0].default_row_commit_version = Some(3);
    lake
}

fn with_columns(lake: &mut Lake) {
    let (row_id_column, row_commit_version_column) = (Some("_id".to_owned()), Some("_version".to_owned()));
    lake.row_tracking = Some(RowTracking { row_id_column, row_commit_version_column });
}

fn longs(rows: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(rows.to_vec()))
}

#[test]
fn ids_follow_from_the_position_in_the_file() {
    let mut lake = tracked(5, 2);
    let expected = ["1000|0|3", "1001|1|3", "1002|2|3", "1003|3|3", "1004|4|3"];
    lake.check(&[ROW_ID, "n", ROW_COMMIT_VERSION], None, &expected);
    // Without other columns, with deleted rows, and with predicates on returned and other columns.
    lake.check(&[ROW_ID], None, &["1000", "1001", "1002", "1003", "1004"]);
    lake.check(&[ROW_COMMIT_VERSION], None, &["3"; 5]);
    lake.tasks[0].deletion_vector = delete([0, 3]);
    lake.check(&[ROW_ID], None, &["1001", "1002", "1004"]);
    lake.check(&[ROW_COMMIT_VERSION], None, &["3"; 3]);
    lake.check(&["n", ROW_ID], Some("n > 1"), &["2|1002", "4|1004"]);
    lake.check(&[ROW_ID], Some("n > 1"), &["1002", "1004"]);
    lake.check(&["long", ROW_ID], Some("n = 4"), &[&format!("{:0>500}|1004", 4)]);
    lake.check(&[ROW_COMMIT_VERSION], Some("n = 4"), &["3"]);
    let schema = lake.batches(&[ROW_ID], None).unwrap()[0].schema();
    assert_eq!(schema.field(0), &Field::new("_metadata.row_id", ArrowType::Int64, false));
}

#[test]
fn ids_next_to_int96_and_nested_columns() {
    let list = r#"{"type":"array","elementType":"timestamp","containsNull":true}"#;
    let mut lake = Lake::new(&[("l", list)]);
    let mut value = Int96::new();
    value.set_data(0, 0, 2_440_588);
    let message = "message m { optional group l (LIST) { repeated group list { optional int96 element; } } }";
    let bytes = raw(message, |column| {
        column.typed::<Int96Type>().write_batch(&[value; 3], Some(&[3, 3, 3]), Some(&[0, 1, 0])).unwrap();
    });
    lake.add(&bytes).base_row_id = Some(5);
    lake.row_tracking = Some(RowTracking::default());
    let epoch = "1970-01-01T00:00:00Z";
    lake.check(&["l", ROW_ID], None, &[&format!("[{epoch}, {epoch}]|5"), &format!("[{epoch}]|6")]);
}

#[test]
fn materialized_ids_have_precedence() {
    let mut lake = Lake::new(&[("n", "integer")]);
    with_columns(&mut lake);
    let ids = longs(&[Some(7), None, Some(-1), None]);
    let versions = longs(&[None, Some(1), Some(2), None]);
    let task = lake.file(vec![("_version", versions), ("n", ints(0..4)), ("_id", ids)]);
    (task.base_row_id, task.default_row_commit_version) = (Some(20), Some(9));
    lake.check(&["n", ROW_ID, ROW_COMMIT_VERSION], None, &["0|7|9", "1|21|1", "2|-1|2", "3|23|9"]);
    lake.check(&[ROW_COMMIT_VERSION, ROW_ID], Some("n >= 2"), &["2|-1", "9|23"]);
    lake.check(&[ROW_ID], Some("n <> 2"), &["7", "21", "23"]);
    // The materialized columns cannot be read by name, and may be missing in a file.
    assert_eq!(lake.rows(&["_id"], None).unwrap_err().kind(), &Kind::Invalid);
    let task = lake.file(vec![("n", ints([9]))]);
    (task.base_row_id, task.default_row_commit_version) = (Some(0), Some(0));
    lake.check(&[ROW_ID, ROW_COMMIT_VERSION], Some("n = 9"), &["0|0"]);
}

#[test]
fn materialized_columns_are_not_mapped() {
    for mode in ["name", "id"] {
        let mut lake = mapped(mode);
        with_columns(&mut lake);
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), "1".to_owned())]);
        let schema = Schema::new(vec![
            Field::new("col-1", ArrowType::Int32, true).with_metadata(id),
            Field::new("_id", ArrowType::Int64, true),
        ]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![ints([1, 2]), longs(&[Some(5), None])]).unwrap();
        lake.tasks.clear();
        let task = lake.add(&encode(&batch, 10));
        (task.base_row_id, task.default_row_commit_version) = (Some(70), Some(8));
        lake.check(&[ROW_ID, "a", ROW_COMMIT_VERSION], None, &["5|1|8", "71|2|8"]);
    }
}

#[test]
fn a_file_without_row_ids_is_corrupt() {
    let mut lake = tracked(2, 2);
    (lake.tasks[0].base_row_id, lake.tasks[0].default_row_commit_version) = (None, None);
    lake.check_corrupt(&[ROW_ID], &["no `baseRowId`"]);
    lake.check_corrupt(&[ROW_COMMIT_VERSION], &["no `defaultRowCommitVersion`"]);
    lake.tasks[0].base_row_id = Some(i64::MAX);
    lake.check_corrupt(&[ROW_ID], &["largest number"]);
    // Rows with materialized ids do not need them.
    let mut lake = Lake::new(&[("n", "integer")]);
    with_columns(&mut lake);
    lake.file(vec![("n", ints(0..2)), ("_id", longs(&[Some(1), Some(2)])), ("_version", longs(&[Some(3), Some(4)]))]);
    lake.check(&[ROW_ID, ROW_COMMIT_VERSION], None, &["1|3", "2|4"]);
    lake.tasks.clear();
    lake.file(vec![("n", ints([0])), ("_id", strings(["one"]))]);
    lake.check_corrupt(&[ROW_ID], &["`_id` has type string in the file"]);
}

#[test]
fn tables_without_row_tracking_have_no_such_columns() {
    let mut lake = numbers(2, 2);
    for name in [ROW_ID, ROW_COMMIT_VERSION] {
        let error = lake.rows(&[name], None).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        check_message(&error, &[name, "does not track rows", "delta.enableRowTracking"]);
    }
    lake.row_tracking = Some(RowTracking::default());
    assert_eq!(lake.rows(&["_metadata.row"], None).unwrap_err().kind(), &Kind::Invalid);
    assert_eq!(lake.rows(&[ROW_ID, ROW_ID], None).unwrap_err().kind(), &Kind::Invalid);
    // A column of the table with the same name has precedence.
    let mut lake = Lake::new(&[(ROW_ID, "string")]);
    lake.row_tracking = Some(RowTracking::default());
    lake.file(vec![(ROW_ID, strings(["mine"]))]);
    lake.check(&[ROW_ID], None, &["mine"]);
    lake.check(&[ROW_ID], Some("`_metadata.row_id` = 'mine'"), &["mine"]);
}

/// Sets the ordinals of row groups in a footer.
fn renumbered(bytes: &[u8], ordinals: &[i32]) -> Vec<u8> {
    let footer = bytes.len() - 8 - u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
    let metadata = ParquetMetaDataReader::decode_metadata(&bytes[footer..bytes.len() - 8]).unwrap();
    let mut builder = metadata.into_builder();
    let groups = builder.take_row_groups().into_iter().zip(ordinals);
    let groups = groups.map(|(group, ordinal)| group.into_builder().set_ordinal(*ordinal).build().unwrap()).collect();
    let metadata = builder.set_row_groups(groups).build();
    let mut renumbered = bytes[..footer].to_vec();
    ParquetMetaDataWriter::new(&mut renumbered, &metadata).finish().unwrap();
    renumbered
}

#[test]
fn ordinals_of_row_groups_are_ignored() {
    let bytes = std::fs::read(numbers(6, 2).path(0)).unwrap();
    for ordinals in [[0, 1, 2], [0, 0, 0], [2, 1, 0], [5, 6, 7]] {
        let mut lake = tracked(0, 1);
        lake.tasks.clear();
        lake.add(&renumbered(&bytes, &ordinals)).base_row_id = Some(10);
        lake.check(&[ROW_ID, "n"], None, &["10|0", "11|1", "12|2", "13|3", "14|4", "15|5"]);
        lake.check(&[ROW_ID], Some("n > 3"), &["14", "15"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// With any pruning, deletion and filtering, and any row groups and batches.
    #[test]
    fn a_row_keeps_its_id(
        rows in 1_i32..60,
        group in 1_usize..20,
        batch_rows in 1_usize..20,
        range in (-5_i32..65, -5_i32..65),
        deleted in prop::collection::btree_set(0_u64..60, 0..30),
        brought in prop::collection::btree_set(0_i32..60, 0..30),
        columns in prop::sample::select(vec![vec![ROW_ID], vec!["n", ROW_ID], vec![ROW_ID, "t"], vec!["t", ROW_ID, "n"]]),
        filter in any::<bool>(),
    ) {
        let id = |n: i32| if brought.contains(&n) { -i64::from(n) } else { 500 + i64::from(n) };
        let mut lake = Lake::new(&[("n", "integer"), ("t", "string")]);
        with_columns(&mut lake);
        lake.options.batch_rows = batch_rows;
        let texts: Vec<String> = (0..rows).map(|n| format!("t{n}")).collect();
        let ids: Vec<Option<i64>> = (0..rows).map(|n| brought.contains(&n).then(|| id(n))).collect();
        let file = vec![("t", strings(texts.iter().map(String::as_str))), ("_id", longs(&ids)), ("n", ints(0..rows))];
        let task = lake.file_in_groups(file, group);
        task.base_row_id = Some(500);
        let deleted: BTreeSet<u64> = deleted.into_iter().filter(|row| *row < rows as u64).collect();
        task.deletion_vector = delete(deleted.iter().copied());
        let (low, high) = range;
        let predicate = format!("n >= {low} and n < {high}");
        let expected: Vec<String> = (0..rows)
            .filter(|n| !deleted.contains(&(*n as u64)) && (!filter || (low..high).contains(n)))
            .map(|n| {
                let value = |column: &&str| match *column {
                    "n" => n.to_string(),
                    "t" => format!("t{n}"),
                    _ => id(n).to_string(),
                };
                columns.iter().map(value).collect::<Vec<_>>().join("|")
            })
            .collect();
        prop_assert_eq!(lake.rows(&columns, filter.then_some(predicate.as_str())).unwrap(), expected);
    }
}

/// A table with one file, in its own log.
fn table(features: &str, properties: Value) -> Lake {
    let mut lake = numbers(3, 2);
    let features: Value = serde_json::from_str(&format!("[{features}]")).unwrap();
    let task = lake.tasks.remove(0);
    let commit = lines(&[
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}),
        metadata_of(&lake.fields, &[], properties),
        add_with(&task.path, json!({"size": task.size, "baseRowId": 40, "defaultRowCommitVersion": 2})),
    ]);
    std::fs::create_dir(lake.dir.path().join("_delta_log")).unwrap();
    std::fs::write(lake.dir.path().join("_delta_log/00000000000000000000.json"), commit).unwrap();
    lake
}

/// The rows that a plan for these columns reads.
fn planned(lake: &Lake, columns: &[&str], filter: Option<&str>) -> Result<Vec<String>> {
    let columns: Vec<String> = columns.iter().map(|c| (*c).to_owned()).collect();
    block_on(async {
        let snapshot = Snapshot::open(&LogSource::of(&lake.storage), None).await?;
        let plan = ScanPlan::new(&snapshot, Some(&columns), filter).await?;
        let groups = plan.task_groups(1).await?;
        let group = TaskGroup::from_bytes(&groups[0])?;
        let reader = Reader::new(lake.storage.clone(), group.spec)?;
        let batches: Vec<Result<RecordBatch>> = reader.read(group.tasks, ReadOptions::default()).collect().await;
        let batches = batches.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(batches.iter().flat_map(text).collect())
    })
}

const FEATURES: &str = r#""rowTracking","domainMetadata""#;

#[test]
fn a_plan_has_the_columns_if_row_tracking_is_enabled() {
    let lake = table(FEATURES, json!({"delta.enableRowTracking": "true"}));
    assert_eq!(planned(&lake, &["n", ROW_ID], Some("n > 0")).unwrap(), ["1|41", "2|42"]);
    assert_eq!(planned(&lake, &[ROW_COMMIT_VERSION], None).unwrap(), ["2", "2", "2"]);
    // The column `n` is used as row ids if the property names it.
    let name = "delta.rowTracking.materializedRowIdColumnName";
    let lake = table(FEATURES, json!({"delta.enableRowTracking": "true", name: "n"}));
    assert_eq!(planned(&lake, &[ROW_ID], None).unwrap(), ["0", "1", "2"]);
}

#[test]
fn a_plan_refuses_the_columns_without_row_tracking() {
    for (features, properties) in [
        (FEATURES, json!({})),
        (FEATURES, json!({"delta.enableRowTracking": "false"})),
        (r#""appendOnly""#, json!({"delta.enableRowTracking": "true"})),
    ] {
        let lake = table(features, properties);
        assert_eq!(planned(&lake, &["n"], None).unwrap(), ["0", "1", "2"]);
        let error = planned(&lake, &["n", ROW_ID], None).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        check_message(&error, &["does not track rows"]);
        assert!(error.table().is_some());
    }
    let lake = table(FEATURES, json!({"delta.enableRowTracking": "perhaps"}));
    assert_eq!(planned(&lake, &[ROW_ID], None).unwrap_err().kind(), &Kind::Corrupt);
    assert_eq!(planned(&lake, &["n"], None).unwrap().len(), 3);
}
