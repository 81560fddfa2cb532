//! Finds out what is at a location without a table, for the error message.
//!
//! This is done only for errors that a person sees: creating a table reads only the log.

use deltic_protocol::log::name::LOG_DIR;
use futures::future::join;

use crate::error::Error;
use deltic_store::{FileMeta, Storage};

/// Endings of the names of data files.
const FILES: [&str; 7] = [".parquet", ".json", ".csv", ".orc", ".avro", ".arrow", ".feather"];

/// If a folder has so many files, the message has no exact number.
const COUNT_LIMIT: usize = 1000;

/// The error for a log without a version, extended by what is at the location. Takes three LISTs of one page each.
pub(super) async fn explain(storage: &Storage, error: Error) -> Error {
    // If the log has files, the error is about these already.
    if !error.is_not_found() || !matches!(storage.list_some(LOG_DIR).await, Ok(log) if log.is_empty()) {
        return error;
    }
    let (folder, metadata) = join(storage.list_some(""), storage.list_some("metadata")).await;
    // If the store fails now, the first error is passed on.
    let (Ok(folder), Ok(metadata)) = (folder, metadata) else { return error };
    let reason = reason(storage.location(), &folder, &metadata);
    Error::not_found(format!("this is not a Delta table: {reason}")).in_table(storage.location())
}

/// The message: what is wrong and what to do, by the files in the folder and in its folder `metadata`.
fn reason(location: &str, folder: &[FileMeta], metadata: &[FileMeta]) -> String {
    let name = |file: &FileMeta| file.path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let last = location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let is_iceberg = |file: &FileMeta| {
        let name = name(file);
        name.ends_with(".metadata.json") || name == "version-hint.text"
    };
    if metadata.iter().any(is_iceberg) {
        return "the folder has an Apache Iceberg table (`metadata/*.metadata.json`), which deltic does not read; \
                make a Delta table of it with `deltic.convert`, or read it with an Iceberg client and write its rows \
                to another location with `deltic.write`"
            .to_owned();
    }
    let files = folder.iter().filter(|file| name(file).ends_with(".parquet")).count();
    if last == "_delta_log" {
        return "the location is the log of a table; name the folder above it".to_owned();
    }
    if files > 0 {
        let partition =
            if last.contains('=') { "; if it is a partition of a table, open the table and filter" } else { "" };
        // Only the first page was listed.
        let number = if folder.len() < COUNT_LIMIT { files.to_string() } else { "many".to_owned() };
        return format!(
            "the folder has no Delta log (`_delta_log`), but {number} Parquet files; read them with a Parquet reader, and \
             write their rows to another location with `deltic.write`{partition}"
        );
    }
    if !folder.is_empty() {
        return format!(
            "the folder has no Delta log (`_delta_log`), but {} files that are not Parquet; check the location",
            if folder.len() < COUNT_LIMIT { folder.len().to_string() } else { "many".to_owned() }
        );
    }
    reason_by_name(last)
}

/// As [`reason`], for a location without files. `last`: the last part of its name.
fn reason_by_name(last: &str) -> String {
    if last.contains(['*', '?', '[']) {
        return "a location is not a pattern, and nothing has exactly this name; give the location of one table, and \
                choose its rows with `filter`"
            .to_owned();
    }
    if FILES.iter().any(|end| last.to_ascii_lowercase().ends_with(end)) {
        return "the location is the name of a file, or there is nothing; a table is a folder with a `_delta_log`"
            .to_owned();
    }
    if let Some((table, version)) = last.rsplit_once("@v").filter(|(_, version)| version.parse::<u64>().is_ok()) {
        return format!(
            "there is nothing with this name; if version {version} of the table `{table}` is meant, open `{table}` and read \
             `snapshot({version})`, or give the command line `--version {version}`"
        );
    }
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let catalog = match last.split('.').collect::<Vec<_>>()[..] {
        [a, b, c] if [a, b, c].into_iter().all(is_name) => {
            "; if this is the name of a table in a catalog, ask the catalog for its location"
        }
        _ => "",
    };
    format!(
        "there is no Delta log (`_delta_log`) at the location, and no file directly in it. Check the location, or create the \
         table with `deltic.write` or `deltic.create`{catalog}"
    )
}
