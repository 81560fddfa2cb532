//! Numbers that every file of a checkpoint must have, where the log leaves them out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use deltic_protocol::action::batch::AddBatch;

use crate::error::{Error, Result};

/// Zero for missing times of modification, as readers of commits treat them.
pub(super) fn filled(array: &ArrayRef) -> ArrayRef {
    match array.as_primitive_opt::<Int64Type>() {
        Some(numbers) if numbers.null_count() > 0 => {
            Arc::new(Int64Array::from_iter_values(numbers.iter().map(Option::unwrap_or_default)))
        }
        Some(_) | None => array.clone(),
    }
}

/// The sizes of files, none of which may be missing: readers would believe any number that was written instead. Rows without a
/// path are not files. `paths`, if they are not those of the batch.
///
/// # Errors
/// `Corrupt`, naming a file without a size.
pub(super) fn all_there(sizes: ArrayRef, adds: &AddBatch, paths: Option<&ArrayRef>) -> Result<ArrayRef> {
    for row in (0..sizes.len()).filter(|row| sizes.is_null(*row)) {
        let path = match paths {
            Some(paths) => cast(&paths.slice(row, 1), &DataType::Utf8)?.as_string::<i32>().value(0).to_owned(),
            None => adds.path().value(row).to_owned(),
        };
        if !path.is_empty() {
            let message = "the log does not say the size of a file, so no checkpoint was written; rewrite that file, or \
                           remove it from the table";
            return Err(Error::corrupt(message).in_file(path));
        }
    }
    Ok(sizes)
}
