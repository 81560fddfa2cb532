//! The error of rows that break Arrow's format, and checks for several kinds of arrays.

use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;

use crate::error::Error;

/// A fault, and its path: the innermost name first.
pub(super) struct Broken {
    names: Vec<String>,
    reason: String,
}

pub(super) type Checked<T = ()> = std::result::Result<T, Broken>;

pub(super) fn broken<T>(reason: impl Into<String>) -> Checked<T> {
    Err(Broken { names: Vec::new(), reason: reason.into() })
}

impl Broken {
    pub(in super::super) fn inside(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }
}

impl From<ArrowError> for Broken {
    fn from(error: ArrowError) -> Self {
        let reason = match error {
            ArrowError::InvalidArgumentError(reason) => reason,
            other => other.to_string(),
        };
        Self { names: Vec::new(), reason }
    }
}

impl From<Broken> for Error {
    fn from(found: Broken) -> Self {
        let path: Vec<&str> = found.names.iter().rev().map(String::as_str).collect();
        match path.is_empty() {
            true => Self::invalid(format!("the Arrow data is not valid: {}", found.reason)),
            false => {
                Self::invalid(format!("the Arrow data of column `{}` is not valid: {}", path.join("."), found.reason))
            }
        }
    }
}

/// The length of the buffer with the bytes of strings.
pub(super) fn bytes(data: &ArrayData) -> usize {
    data.buffers().get(1).map_or(0, Buffer::len)
}

/// The offsets of the slice, none if it is empty. They must ascend, and not exceed `limit`.
pub(super) fn check_offsets<O: ArrowNativeType>(data: &ArrayData, limit: usize) -> Checked<&[O]> {
    let offsets: &[O] = match (data.len(), data.buffers().first()) {
        (0, _) | (_, None) => return Ok(&[]),
        (length, Some(buffer)) => {
            let all: &[O] = buffer.typed_data();
            all.get(data.offset()..).and_then(|own| own.get(..length + 1)).unwrap_or(&[])
        }
    };
    let steps = || offsets.iter().zip(offsets.iter().skip(1));
    let ascends = steps().fold(true, |ascends, (low, high)| ascends & (low <= high));
    let is_negative = |offset: &O| offset.to_usize().is_none();
    match (offsets.first(), offsets.last()) {
        (Some(low), Some(high)) if ascends && !is_negative(low) && high.as_usize() <= limit => Ok(offsets),
        _ if ascends => broken(format!("its offsets exceed its {limit} values")),
        _ => {
            let row = steps().position(|(low, high)| low > high).unwrap_or_default();
            broken(format!("the offsets of row {row} of the batch decrease"))
        }
    }
}
