//! Shredded variants back to plain ones.
//!
//! A shredded variant stores the values at some of its paths in typed columns and only the rest as bytes. The variant
//! library puts them together. It is linear in what it decodes, but an object whose fields share bytes decodes to more
//! than it is long, exponentially more when such objects nest: [`check_extent`] refuses those first.
//!
//! Invariants: what comes out is a struct of two binaries that are null where the variant is; hostile bytes come out no
//! larger than a small multiple of their length. Proved by `tests/rust/table/read/shredded.rs` and the tests below.
//!
//! PROTOCOL.md: "Variant Shredding"; the layout is Parquet's "VariantShredding.md" and "VariantEncoding.md".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType as ArrowType, FieldRef, Fields};
use parquet_variant_compute::{VariantArray, unshred_variant};

/// Name of the column with typed values; a variant that has it is shredded.
const TYPED_VALUE: &str = "typed_value";

/// Whether a variant with these columns is shredded.
pub(crate) fn is_shredded(columns: &Fields) -> bool {
    columns.iter().any(|column| column.name() == TYPED_VALUE)
}

/// The struct `target`, of the binaries `metadata` and `value`, from a shredded variant with all its columns. It is null
/// where a struct around it is, as `masked` says.
pub(crate) fn unshred(
    shredded: &ArrayRef,
    masked: Option<&NullBuffer>,
    target: &Fields,
) -> Result<ArrayRef, ArrowError> {
    let shredded = shredded.as_struct_opt().ok_or_else(|| wrong("a shredded variant is no struct"))?;
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

/// Checks all bytes at any depth of a shredded variant. A file's schema nests no deeper than its footer may.
fn check_extents(shredded: &StructArray) -> Result<(), ArrowError> {
    if let Some(values) = shredded.column_by_name("value") {
        let values: &BinaryArray =
            values.as_binary_opt().ok_or_else(|| wrong("the bytes of a shredded variant are no binary"))?;
        values.iter().flatten().try_for_each(|value| {
            check_extent(value).ok_or_else(|| wrong("a variant is cut off, or parts of it share their bytes"))
        })?;
    }
    let Some(typed) = shredded.column_by_name(TYPED_VALUE) else { return Ok(()) };
    match typed.data_type() {
        ArrowType::Struct(_) => typed.as_struct().columns().iter().try_for_each(|field| {
            check_extents(field.as_struct_opt().ok_or_else(|| wrong("a shredded field is no struct"))?)
        }),
        ArrowType::List(_) => {
            let elements = typed.as_list::<i32>().values();
            check_extents(elements.as_struct_opt().ok_or_else(|| wrong("a shredded element is no struct"))?)
        }
        // Other nested types are none that a variant can be shredded to, which the library says.
        _ => Ok(()),
    }
}

/// `None` if the values inside `value` take more bytes, taken together, than it has. Everything else that may be wrong
/// with them is left to the library.
fn check_extent(value: &[u8]) -> Option<()> {
    let mut rest = value.len();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        let (header, content) = value.split_first()?;
        let (kind, header) = (header & 0b11, header >> 2);
        let size = match (kind, header) {
            // Binary and text; the others have a fixed size.
            (0, 15 | 16) => number(content, 4, 0)?.checked_add(5)?,
            (0, _) => 1,
            (1, length) => usize::from(length) + 1,
            _ => {
                let container = if kind == 2 {
                    Container {
                        offset_width: width(header),
                        id_width: width(header >> 2),
                        is_large: header >> 4 & 1 == 1,
                    }
                } else {
                    Container { offset_width: width(header), id_width: 0, is_large: header >> 2 & 1 == 1 }
                };
                container.open(content, &mut open)? + 1
            }
        };
        rest = rest.checked_sub(size)?;
    }
    Some(())
}

/// An object or an array, going by its first byte.
struct Container {
    offset_width: usize,
    /// 0 in an array.
    id_width: usize,
    is_large: bool,
}

impl Container {
    /// Adds what it holds to `open`, and gives the size of the numbers that precede that.
    fn open<'a>(&self, content: &'a [u8], open: &mut Vec<&'a [u8]>) -> Option<usize> {
        let count_width = if self.is_large { 4 } else { 1 };
        let count = number(content, count_width, 0)?;
        let offsets = content.get(count_width.checked_add(count.checked_mul(self.id_width)?)?..)?;
        let values = offsets.get(count.checked_add(1)?.checked_mul(self.offset_width)?..)?;
        for i in 0..count {
            open.push(values.get(number(offsets, self.offset_width, i)?..)?);
        }
        Some(content.len() - values.len())
    }
}

/// Bytes of a number, from the two bits that say so.
fn width(bits: u8) -> usize {
    usize::from(bits & 0b11) + 1
}

/// The number `index` of those of `width` bytes in `bytes`.
fn number(bytes: &[u8], width: usize, index: usize) -> Option<usize> {
    let start = index.checked_mul(width)?;
    let bytes = bytes.get(start..start.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

fn wrong(what: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(what.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use parquet_variant::{EMPTY_VARIANT_METADATA_BYTES, Variant, VariantBuilder, VariantDecimal16};
    use proptest::prelude::*;

    use super::*;

    /// One value of each kind, nested in each other.
    fn every_kind(texts: &[String]) -> Vec<u8> {
        let mut builder = VariantBuilder::new();
        let mut object = builder.new_object();
        object.insert("null", Variant::Null);
        object.insert("true", true);
        object.insert("int", 1_i64);
        object.insert("double", 1.5);
        object.insert("decimal", VariantDecimal16::try_new(7, 3).unwrap());
        object.insert("binary", &[1_u8, 2, 3][..]);
        let mut list = object.new_list("list");
        texts.iter().for_each(|text| list.append_value(text.as_str()));
        let mut inner = list.new_object();
        for (i, text) in texts.iter().enumerate() {
            inner.insert(&i.to_string(), text.as_str());
        }
        inner.finish();
        list.finish();
        object.finish();
        builder.finish().1
    }

    #[test]
    fn values_that_share_no_bytes_are_let_through() {
        for (count, length) in [(0, 0), (1, 1), (3, 63), (3, 64), (300, 300), (10, 20_000)] {
            let value = every_kind(&vec!["x".repeat(length); count]);
            assert_eq!(check_extent(&value), Some(()), "{count} of {length}");
        }
        assert_eq!(check_extent(&[0]), Some(()));
    }

    /// An object with `fields` fields, all of them the one value that follows.
    fn shared(fields: u8, value: &[u8]) -> Vec<u8> {
        let length = u32::try_from(value.len()).unwrap().to_le_bytes();
        let mut object = vec![0b1110, fields];
        object.extend(0..fields);
        object.extend([0; 4].repeat(usize::from(fields)));
        object.extend(length);
        object.extend(value);
        object
    }

    #[test]
    fn values_that_share_bytes_are_refused_at_once() {
        let mut bomb = vec![0];
        for _ in 0..100 {
            bomb = shared(2, &bomb);
        }
        assert_eq!(check_extent(&bomb), None);
        let text = [&[16 << 2, 100, 0, 0, 0][..], &[b'x'; 100]].concat();
        assert_eq!(check_extent(&shared(1, &text)), Some(()));
        assert_eq!(check_extent(&shared(200, &text)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_extent(&bytes);
        }

        #[test]
        fn damaged_bytes_end(at in any::<prop::sample::Index>(), with in any::<u8>()) {
            let mut value = every_kind(&["a".to_owned(), "b".repeat(70)]);
            let at = at.index(value.len());
            value[at] = with;
            if check_extent(&value).is_some() {
                let _ = Variant::try_new(EMPTY_VARIANT_METADATA_BYTES, &value);
            }
        }
    }
}
