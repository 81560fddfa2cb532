//! The byte form of whatever travels between processes: JSON with the number of the form and the kind of what is in it.
//!
//! One number counts for all kinds, so that a driver and an executor with different releases fail with a clear message
//! rather than with wrong rows (`write::plans_travel`, `read::task_groups_travel`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// Another one for every change of what any kind means.
const FORM: u32 = 9;

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

/// The form that travels.
///
/// # Errors
/// `Internal` if it has no JSON form, which the types rule out.
pub fn pack<T: Serialize>(kind: &str, body: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(&Packed { form: FORM, kind, body })
        .map_err(|e| Error::internal("what should travel to another process has no JSON form").caused_by(e))
}

/// Reads what [`pack`] wrote.
///
/// # Errors
/// `Invalid` if the bytes are of another kind, or of another release of deltic.
pub fn unpack<T: DeserializeOwned>(kind: &str, bytes: &[u8]) -> Result<T> {
    let foreign = || Error::invalid(format!("these bytes are no {kind} of this release of deltic; use it everywhere"));
    let unpacked: Unpacked<'_> = serde_json::from_slice(bytes).map_err(|e| foreign().caused_by(e))?;
    if unpacked.form != FORM {
        return Err(Error::invalid(format!(
            "this {kind} has form {}, and this deltic knows {FORM}; install the same release on driver and executors",
            unpacked.form
        )));
    }
    if unpacked.kind != Some(kind) {
        return Err(foreign());
    }
    serde_json::from_str(unpacked.body.get()).map_err(|e| foreign().caused_by(e))
}
