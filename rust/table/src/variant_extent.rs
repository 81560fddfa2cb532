//! Checks bytes of variants before they are decoded.
//!
//! The variant library takes time linear in the decoded values, but an object whose fields share bytes decodes to more
//! bytes than it has, exponentially more if such objects are nested. Such values are refused first.
//!
//! Proved by the tests below. The layout is Parquet's "VariantEncoding.md".
//!
//! PROTOCOL.md: "Variant Data Type".

/// `None` if the values inside `value` have more bytes together than `value` itself. Everything else that may be wrong
/// is left to the library.
pub(crate) fn check_extent(value: &[u8]) -> Option<()> {
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

/// An object or an array, by its first byte.
struct Container {
    offset_width: usize,
    /// 0 in an array.
    id_width: usize,
    is_large: bool,
}

impl Container {
    /// Adds its values to `open`, and returns the size of the numbers before them.
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

/// The bytes of a number, by the two bits that encode its width.
fn width(bits: u8) -> usize {
    usize::from(bits & 0b11) + 1
}

/// The number at `index` in `bytes`, which has numbers of `width` bytes.
fn number(bytes: &[u8], width: usize, index: usize) -> Option<usize> {
    let start = index.checked_mul(width)?;
    let bytes = bytes.get(start..start.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
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
