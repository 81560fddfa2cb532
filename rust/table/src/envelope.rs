//! The byte form of plans, tasks and results between processes: JSON with a format number and the kind of its content.
//!
//! All kinds share one format number, so that a driver and an executor with different releases fail with a clear message
//! instead of wrong rows (`write::plans_have_a_byte_form`, `read::task_groups_have_a_byte_form`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// The format number: it must change with every change of any kind.
const FORM: u32 = 11;

#[derive(Serialize)]
struct Packed<'a, T> {
    form: u32,
    kind: &'a str,
    body: &'a T,
}

#[derive(Deserialize)]
struct Unpacked<'a> {
    form: u32,
    #[serde(borrow, default)]
    kind: Option<&'a str>,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Packs the body of a plan, task or result.
///
/// # Errors
/// `Internal` if it has no JSON form (cannot happen).
pub fn pack<T: Serialize>(kind: &str, body: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(&Packed { form: FORM, kind, body })
        .map_err(|e| Error::internal("data for another process has no JSON form").caused_by(e))
}

/// Reads what [`pack`] wrote.
///
/// # Errors
/// `Invalid` if the bytes are of another kind, or of another release of deltic.
pub fn unpack<T: DeserializeOwned>(kind: &str, bytes: &[u8]) -> Result<T> {
    let foreign = || {
        Error::invalid(format!(
            "these bytes are not a {kind} of this release of deltic; use the same \
                                             release everywhere"
        ))
    };
    let unpacked: Unpacked<'_> = serde_json::from_slice(bytes).map_err(|e| foreign().caused_by(e))?;
    if unpacked.form != FORM {
        return Err(Error::invalid(format!(
            "this {kind} has format {}, and this release of deltic reads format {FORM}; install the same release on \
             driver and executors",
            unpacked.form
        )));
    }
    if unpacked.kind != Some(kind) {
        return Err(foreign());
    }
    serde_json::from_str(unpacked.body.get()).map_err(|e| foreign().caused_by(e))
}
