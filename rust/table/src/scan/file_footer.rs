//! The footer of a data file, read without its rows.

use std::sync::Arc;

use deltic_protocol::error::Result;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;

use super::read::{FileBytes, blocking, parse_footer};
use crate::error::corrupt_parquet;
use crate::footer::arrow_metadata;
use deltic_store::Storage;

/// Reads a file's footer and returns the result of `look`, which runs on a worker thread. `path`: as the store
/// takes it.
///
/// # Errors
/// `Corrupt` for a file that is not Parquet, naming it; those of the store and of `look`.
pub(crate) async fn look_at_footer<T: Send + 'static>(
    storage: &Storage,
    path: &str,
    size: u64,
    look: impl FnOnce(&ArrowReaderMetadata) -> Result<T> + Send + 'static,
) -> Result<T> {
    let bytes = FileBytes::open(storage.clone(), path.to_owned(), size).await.map_err(|e| e.in_file(path))?;
    let footer = bytes.footer().await.map_err(|e| e.in_file(path))?;
    let place = path.to_owned();
    blocking(path, move || {
        let metadata = Arc::new(parse_footer(&place, &footer)?);
        look(&arrow_metadata(metadata, Some("UTC")).map_err(|e| corrupt_parquet(&place, e))?)
    })
    .await
}
