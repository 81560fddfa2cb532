//! Converts shredded variants to plain ones.
//!
//! A shredded variant stores the values at some of its paths in typed columns and only the rest as bytes. The variant
//! library joins them, after [`check_extent`] has accepted their bytes.
//!
//! Invariants: the result is a struct of two binaries that are null where the variant is; the result of hostile bytes is no
//! larger than a small multiple of their length. Proved by `tests/rust/table/read/shredded.rs` and
//! `write::conform::shredded_variants`.
//!
//! PROTOCOL.md: "Variant Shredding"; the layout is Parquet's "VariantShredding.md" and "VariantEncoding.md".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType as ArrowType, FieldRef, Fields};
use parquet_variant_compute::{VariantArray, unshred_variant};

use crate::variant_extent::check_extent;

/// Name of the column with typed values; a variant that has it is shredded.
const TYPED_VALUE: &str = "typed_value";

/// Whether a variant with these columns is shredded.
pub(crate) fn is_shredded(columns: &Fields) -> bool {
    columns.iter().any(|column| column.name() == TYPED_VALUE)
}

/// The struct `target`, of the binaries `metadata` and `value`, from a shredded variant with all its columns. It is null
/// where a struct around it is null, as `masked` shows.
pub(crate) fn unshred(
    shredded: &ArrayRef,
    masked: Option<&NullBuffer>,
    target: &Fields,
) -> Result<ArrayRef, ArrowError> {
    let shredded = shredded.as_struct_opt().ok_or_else(|| wrong("a shredded variant is not a struct"))?;
    check_extents(shredded)?;
    let (fields, columns, nulls) = shredded.clone().into_parts();
    let nulls = NullBuffer::union(nulls.as_ref(), masked);
    let shredded = StructArray::try_new_with_length(fields, columns, nulls, shredded.len())?;
    let plain = unshred_variant(&VariantArray::try_new(&shredded)?)?.into_inner();
    let column = |field: &FieldRef| {
        let found = plain.column_by_name(field.name()).ok_or_else(|| wrong("a part of a variant is missing"))?;
        cast_with_options(found, field.data_type(), &CastOptions { safe: false, ..CastOptions::default() })
    };
    let columns = target.iter().map(column).collect::<Result<_, _>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(target.clone(), columns, plain.nulls().cloned(), plain.len())?))
}

/// Checks all bytes at any depth of a shredded variant. The depth is limited, since that of the footer's schema is.
fn check_extents(shredded: &StructArray) -> Result<(), ArrowError> {
    if let Some(values) = shredded.column_by_name("value") {
        let check =
            |value| check_extent(value).ok_or_else(|| wrong("a variant is cut off, or parts of it share their bytes"));
        // Files have the first type, other libraries the others.
        match values.data_type() {
            ArrowType::Binary => values.as_binary::<i32>().iter().flatten().try_for_each(check)?,
            ArrowType::LargeBinary => values.as_binary::<i64>().iter().flatten().try_for_each(check)?,
            ArrowType::BinaryView => values.as_binary_view().iter().flatten().try_for_each(check)?,
            _ => return Err(wrong("the bytes of a shredded variant are no binary")),
        }
    }
    let Some(typed) = shredded.column_by_name(TYPED_VALUE) else { return Ok(()) };
    match typed.data_type() {
        ArrowType::Struct(_) => typed.as_struct().columns().iter().try_for_each(|field| {
            check_extents(field.as_struct_opt().ok_or_else(|| wrong("a shredded field is not a struct"))?)
        }),
        ArrowType::List(_) => {
            let elements = typed.as_list::<i32>().values();
            check_extents(elements.as_struct_opt().ok_or_else(|| wrong("a shredded element is not a struct"))?)
        }
        ArrowType::LargeList(_)
        | ArrowType::FixedSizeList(_, _)
        | ArrowType::ListView(_)
        | ArrowType::LargeListView(_) => {
            Err(wrong("a shredded variant has its lists in another layout than Arrow's list"))
        }
        // A variant cannot be shredded to other nested types; the library refuses them.
        _ => Ok(()),
    }
}

fn wrong(what: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(what.to_owned())
}
