//! The corpus, tables of other clients: version, columns, live files, rows and errors, compared with a manifest.
//!
//! The tables are not part of the project. They are searched in `shared/corpus` of a parent folder, or in `DELTIC_CORPUS`. If
//! they are missing, the tests of [`corpus`] are skipped; with `DELTIC_CORPUS_REQUIRED`, as in CI (`.ci/run`), they fail.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use deltic_protocol::error::{Kind, Result};
use deltic_store::Storage;
use deltic_table::log::LogSource;
use deltic_table::scan::list_files::list_files;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::snapshot::Snapshot;
use futures::TryStreamExt;
use serde_json::Value;

/// The folder of the tables, and the tables of its manifest. A test that gets `None` returns: it is skipped.
///
/// # Panics
/// If the tables are missing although they are required, or if the manifest cannot be read.
pub(crate) fn corpus() -> Option<(PathBuf, Vec<Value>)> {
    let Some(folder) = folder() else {
        let missing = "there is no shared/corpus above this folder, and DELTIC_CORPUS names no folder";
        assert!(std::env::var_os("DELTIC_CORPUS_REQUIRED").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
        return None;
    };
    let tables = serde_json::from_slice(&std::fs::read(folder.join("MANIFEST.json")).unwrap()).unwrap();
    Some((folder, tables))
}

fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("DELTIC_CORPUS") {
        return Some(PathBuf::from(folder)).filter(|folder| folder.as_os_str() != "none");
    }
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|folder| folder.join("shared/corpus")).find(|folder| folder.join("MANIFEST.json").is_file())
}

/// The differences between a table as read and the manifest.
async fn faults(root: &Path, table: &Value) -> Vec<String> {
    let location = root.join(table["table_path"].as_str().unwrap());
    let storage = Storage::open(location.to_str().unwrap(), &HashMap::new()).unwrap();
    let refused = table["expect_snapshot"] == "error";
    let snapshot = match Snapshot::open(&LogSource::of(&storage), None).await {
        Ok(_) if refused => return vec![format!("opens, but: {}", table["expect_error"])],
        Ok(snapshot) => snapshot,
        Err(e) if refused && !matches!(e.kind(), Kind::Internal | Kind::Storage { .. }) => return Vec::new(),
        Err(e) => return vec![format!("does not open: {e}")],
    };
    let mut faults = Vec::new();
    let mut same = |what: &str, found: Value, expected: &Value| {
        if !expected.is_null() && found != *expected {
            faults.push(format!("{what} is {found}, not {expected}"));
        }
    };
    let fields = snapshot.shape().schema.fields.iter().map(|f| Value::from(f.name.as_str())).collect();
    same("version", snapshot.version().into(), &table["version"]);
    same("columns", fields, &table["columns"]);
    same("partition_columns", snapshot.shape().partition_columns.clone().into(), &table["partition_columns"]);
    if let Some(checksum) = snapshot.checksum() {
        same("num_files of the checksum", checksum.num_files.into(), &table["active_files"]);
    }
    match described(&snapshot).await {
        // Different absolute spellings of one local path may count as one file.
        Ok((_, 0)) if table["tolerance"].is_string() => return faults,
        Ok((files, kept)) => {
            same("number of live files", files.into(), &table["active_files"]);
            same("number of planned files", kept.into(), &table["active_files"]);
        }
        Err(e) => faults.push(format!("cannot be described: {e}")),
    }
    if table["expect"] == "rows" {
        match rows(&snapshot).await {
            Ok(rows) if table["expected_rows"].is_null() || table["expected_rows"] == rows => {}
            Ok(rows) => faults.push(format!("{rows} rows, not {}", table["expected_rows"])),
            Err(e) => faults.push(format!("cannot be read: {e}")),
        }
    } else if let Ok(rows) = rows(&snapshot).await {
        faults.push(format!("{rows} rows are read, but: {}", table["expect_error"]));
    }
    faults
}

/// The number of files with statistics, and of planned files.
async fn described(snapshot: &Snapshot) -> Result<(u64, u64)> {
    let (_, batches) = list_files(snapshot, None).await?;
    let files = batches.try_fold(0, |sum, batch| async move { Ok(sum + batch.num_rows() as u64) }).await?;
    Ok((files, ScanPlan::new(snapshot, None, None).await?.files_kept))
}

async fn rows(snapshot: &Snapshot) -> Result<u64> {
    let plan = ScanPlan::new(snapshot, None, None).await?;
    let reader = Reader::new(snapshot.storage().clone(), plan.spec().clone())?;
    let batches = reader.read(plan.tasks().await?, ReadOptions::default());
    batches.try_fold(0, |sum, batch| async move { Ok(sum + batch.num_rows() as u64) }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_other_writers_are_read_as_in_the_manifest() {
    let Some((root, tables)) = corpus() else { return };
    let mut wrong = Vec::new();
    for table in &tables {
        for fault in faults(&root, table).await {
            wrong.push(format!("{}: {fault}", table["id"].as_str().unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}
