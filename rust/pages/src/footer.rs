//! Decodes the footer of a Parquet file safely.
//!
//! The decoder of the parquet crate recurses over the schema and reserves room for as many children as the footer
//! claims. A footer is untrusted, so [`parse`] first walks it without recursion over the schema and refuses one that
//! nests deeper than any table can, or that promises more children than it holds.
//!
//! Proved by `read::hostile_footers_are_corrupt` and the tests below.

use std::sync::LazyLock;

use deltic_protocol::schema::json::MAX_DEPTH;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
    RowGroupMetaData,
};

use crate::thrift::{BINARY, I32, LIST, STRUCT, Thrift};

/// Bytes at the very end of a file: the metadata's length and the magic number.
pub const TRAILER: u64 = 8;

/// How deep a file's schema may nest. A list or map of the table takes two levels in the file.
const MAX_FILE_DEPTH: usize = 2 * MAX_DEPTH + 8;

/// How deep anything else in a footer may nest.
pub(crate) const MAX_VALUE_DEPTH: usize = 16;

/// How many bytes of metadata are before the trailer, given at least the file's last [`TRAILER`] bytes.
pub fn metadata_length(end: &[u8]) -> Result<u64, ParquetError> {
    match end.last_chunk::<8>() {
        Some([a, b, c, d, b'P', b'A', b'R', b'1']) => Ok(u64::from(u32::from_le_bytes([*a, *b, *c, *d]))),
        Some([.., b'P', b'A', b'R', b'E']) => Err(ParquetError::NYI("the file's footer is encrypted".to_owned())),
        Some(_) | None => Err(ParquetError::General("the file does not end with PAR1".to_owned())),
    }
}

/// Decodes the metadata before the trailer.
pub fn parse(metadata: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    check(metadata).ok_or_else(|| {
        ParquetError::General(format!(
            "the footer is cut off, contradicts itself, or nests deeper than {MAX_FILE_DEPTH} levels"
        ))
    })?;
    // Statistics of page encodings are skipped: the pages have their encodings.
    static OPTIONS: LazyLock<ParquetMetaDataOptions> =
        LazyLock::new(|| ParquetMetaDataOptions::new().with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll));
    let metadata = ParquetMetaDataReader::decode_metadata_with_options(metadata, Some(&OPTIONS))?;
    let metadata = with_plain_offsets(metadata)?;
    let chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    // The crate panics when it is asked for the bytes of such a chunk.
    let is_before_file = |chunk: &ColumnChunkMetaData| {
        chunk.compressed_size() < 0
            || chunk.data_page_offset() < 0
            || chunk.dictionary_page_offset().is_some_and(|offset| offset < 0)
    };
    match chunks.into_iter().find(|chunk| is_before_file(chunk)) {
        Some(chunk) => Err(ParquetError::General(format!(
            "the column chunk of `{}` has a negative offset or size",
            chunk.column_path().string()
        ))),
        None => Ok(metadata),
    }
}

/// Some writers say 0 or -1 where a chunk has no dictionary, and readers take it so: no page begins there.
fn says_no_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    matches!(chunk.dictionary_page_offset(), Some(0 | -1))
}

/// The metadata without dictionary offsets that mean none.
fn with_plain_offsets(metadata: ParquetMetaData) -> Result<ParquetMetaData, ParquetError> {
    if !metadata.row_groups().iter().flat_map(RowGroupMetaData::columns).any(says_no_dictionary) {
        return Ok(metadata);
    }
    let mut builder = metadata.into_builder();
    let plain = |chunk: ColumnChunkMetaData| match says_no_dictionary(&chunk) {
        true => chunk.into_builder().set_dictionary_page_offset(None).build(),
        false => Ok(chunk),
    };
    let groups = builder.take_row_groups().into_iter().map(|group| {
        let mut group = group.into_builder();
        let chunks = group.take_columns().into_iter().map(plain).collect::<Result<_, _>>()?;
        group.set_column_metadata(chunks).build()
    });
    let groups = groups.collect::<Result<_, _>>()?;
    Ok(builder.set_row_groups(groups).build())
}

/// Reads a `FileMetaData` in Thrift's compact form; `None` if it must not be decoded.
fn check(metadata: &[u8]) -> Option<()> {
    let mut thrift = Thrift { bytes: metadata };
    let mut id = 0;
    while let Some(kind) = thrift.field(&mut id)? {
        if (id, kind) == (2, LIST) {
            walk_schema(&mut thrift, |_, _, _| ())?;
        } else {
            thrift.skip(kind, MAX_VALUE_DEPTH)?;
        }
    }
    Some(())
}

/// Reads the list of schema elements, a tree in depth-first order, each node with its number of children. Calls `visit` with
/// the depth of each, its name, and whether it is a leaf.
pub(crate) fn walk_schema<'b>(thrift: &mut Thrift<'b>, mut visit: impl FnMut(usize, &'b [u8], bool)) -> Option<()> {
    let (count, kind) = thrift.list()?;
    if kind != STRUCT {
        return None;
    }
    // For each level, how many children are still to come.
    let mut open: Vec<u64> = Vec::new();
    for rest in (0..count).rev() {
        if let Some(children) = open.last_mut() {
            *children = children.checked_sub(1)?;
        }
        let (name, children) = walk_element(thrift)?;
        if children > rest {
            return None;
        }
        visit(open.len(), name, children == 0);
        if children > 0 {
            open.push(children);
        }
        if open.len() > MAX_FILE_DEPTH {
            return None;
        }
        while open.last() == Some(&0) {
            open.pop();
        }
    }
    Some(())
}

/// Reads one schema element, and returns its name and its number of children.
fn walk_element<'b>(thrift: &mut Thrift<'b>) -> Option<(&'b [u8], u64)> {
    let (mut id, mut name, mut children) = (0, &b""[..], 0);
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (4, BINARY) => name = thrift.binary()?,
            (5, I32) => {
                let number = thrift.varint()?;
                // Signed numbers are zigzag-encoded: odd ones are negative.
                if number % 2 == 1 {
                    return None;
                }
                children = number / 2;
            }
            _ => thrift.skip(kind, MAX_VALUE_DEPTH)?,
        }
    }
    Some((name, children))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(out: &mut Vec<u8>) {
        out.extend([0x48, 1, b'c']); // field 4, binary, one byte
    }

    /// `depth` groups in one another with one leaf inside.
    fn nested(depth: usize, claimed_children: u8) -> Vec<u8> {
        let mut out = vec![0x15, 2]; // field 1: version 1
        out.push(0x19); // field 2: list
        out.push(0xfc); // of structs, long form
        let mut count = depth as u64 + 1;
        while count > 0x7f {
            out.push((count & 0x7f) as u8 | 0x80);
            count >>= 7;
        }
        out.push(count as u8);
        for level in 0..depth {
            if level > 0 {
                out.extend([0x35, 0]); // field 3: required
                out.extend([0x18, 1, b'c']); // field 4: name
            } else {
                name(&mut out);
            }
            out.extend([0x15, 2 * claimed_children, 0]); // field 5: children; stop
        }
        out.extend([0x15, 2, 0x25, 0, 0x18, 1, b'c', 0]); // INT32, required, name, stop
        out.extend([0x16, 0, 0x19, 0x0c, 0]); // no rows, no row groups, stop
        out
    }

    #[test]
    fn a_schema_within_the_limit_is_decoded() {
        for depth in [1, 2, MAX_FILE_DEPTH] {
            let metadata = parse(&nested(depth, 1)).unwrap();
            assert_eq!(metadata.file_metadata().schema_descr().num_columns(), 1);
        }
    }

    #[test]
    fn absurd_schemas_are_refused_before_decoding() {
        for (depth, children) in [(MAX_FILE_DEPTH + 1, 1), (1_000_000, 1), (3, 63)] {
            assert!(parse(&nested(depth, children)).is_err(), "{depth} levels of {children}");
        }
    }

    #[test]
    fn no_prefix_and_no_flipped_bit_panics() {
        let footer = nested(5, 1);
        for end in 0..footer.len() {
            assert!(check(&footer[..end]).is_none(), "prefix of {end}");
        }
        for (byte, bit) in (0..footer.len()).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut broken = footer.clone();
            broken[byte] ^= 1 << bit;
            let _ = check(&broken);
        }
    }

    #[test]
    fn the_trailer_tells_the_length() {
        assert_eq!(metadata_length(b"\x05\x01\0\0PAR1").unwrap(), 261);
        for wrong in [&b"PAR1"[..], b"", b"\0\0\0\0PAR0", b"\0\0\0\0PARE"] {
            assert!(metadata_length(wrong).is_err());
        }
    }
}
