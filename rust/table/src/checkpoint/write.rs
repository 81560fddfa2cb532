//! Writing checkpoints.

use crate::error::{Error, Result};
use crate::storage::Storage;

/// Writes a checkpoint of `version` if its table wants one there. What went wrong, if anything did.
pub async fn when_due(_storage: &Storage, _version: u64, _now_ms: i64) -> Option<Error> {
    None
}

/// Writes a checkpoint of the newest version.
pub async fn checkpoint(_storage: &Storage, _now_ms: i64) -> Result<u64> {
    Err(Error::internal("not written"))
}
