//! Checks variants, which are two binaries in files, and converts JSON to variants.
//!
//! Callers give them as two binaries, with or without Arrow's extension type, or as JSON. Numbers of JSON become the
//! smallest integer type that fits, or doubles.
//!
//! Proved by `write::conform::variants`.
//!
//! PROTOCOL.md: "Variant data in Parquet".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType as ArrowType, FieldRef, Fields};
use parquet_variant::Variant;
use parquet_variant_compute::json_to_variant;

use crate::variant_extent::check_extent;

/// The position of a value that is not a variant, and the reason.
pub(super) type NotVariant = (usize, String);

/// The variants of JSON texts, null where the texts are.
pub(super) fn from_json(texts: &ArrayRef, target: &Fields) -> Result<Result<ArrayRef, NotVariant>, ArrowError> {
    let texts = cast(texts, &ArrowType::Utf8)?;
    let Ok(variants) = json_to_variant(&texts) else {
        let fault = |row: usize| json_to_variant(&texts.slice(row, 1)).err().map(|e| (row, reason(&e)));
        let found = (0..texts.len()).find_map(fault);
        return Ok(Err(found.unwrap_or_else(|| (0, "it cannot be read".to_owned()))));
    };
    let variants = variants.into_inner();
    let column = |field: &FieldRef| match variants.column_by_name(field.name()) {
        Some(found) => cast(found, field.data_type()),
        None => Err(ArrowError::SchemaError(format!("a variant has no {}", field.name()))),
    };
    let columns = target.iter().map(column).collect::<Result<_, _>>()?;
    let nulls = texts.nulls().cloned();
    Ok(Ok(Arc::new(StructArray::try_new_with_length(target.clone(), columns, nulls, texts.len())?)))
}

/// Checks that bytes are variants.
pub(super) fn check(variants: &StructArray) -> Result<(), NotVariant> {
    let binary = |name: &str| variants.column_by_name(name).and_then(|column| column.as_binary_opt::<i32>());
    let (Some(metadata), Some(values)) = (binary("metadata"), binary("value")) else { return Ok(()) };
    for row in (0..variants.len()).filter(|row| variants.is_valid(*row)) {
        if check_extent(values.value(row)).is_none() {
            return Err((row, "its bytes are cut off, or parts of it share them".to_owned()));
        }
        Variant::try_new(metadata.value(row), values.value(row)).map_err(|e| (row, reason(&e)))?;
    }
    Ok(())
}

fn reason(error: &ArrowError) -> String {
    match error {
        ArrowError::InvalidArgumentError(message)
        | ArrowError::ParseError(message)
        | ArrowError::JsonError(message) => message.clone(),
        other => other.to_string(),
    }
}
