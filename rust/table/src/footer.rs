//! The footer of a Parquet file: bytes to metadata, safely.
//!
//! The decoder of the parquet crate recurses over the schema and reserves room for as many children as the footer
//! claims. A footer is untrusted, so [`parse`] first walks it without recursion over the schema and refuses one that
//! nests deeper than any table can, or that promises more children than it holds.
//!
//! Does no I/O and knows nothing of tables. What stands in front of the pages of such a file is for [`pages`], a footer
//! of which little is needed for [`mod@narrow`].
//! Proved by `read::hostile_footers_are_corrupt` and the tests below.

pub(crate) mod calendar;
pub mod narrow;
pub(crate) mod packed;
pub mod pages;
pub(crate) mod thrift;

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType as ArrowType, Field, Fields, Schema, TimeUnit};
use deltic_protocol::schema::json::MAX_DEPTH;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{ColumnOrder, SortOrder, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};
use parquet::file::statistics::Statistics;
use parquet::schema::types::SchemaDescriptor;

use self::thrift::{BINARY, I32, LIST, STRUCT, Thrift};

/// Bytes at the very end of a file: the metadata's length and the magic number.
pub const TRAILER: u64 = 8;

/// How deep a file's schema may nest. A list or map of the table takes two levels in the file.
const MAX_FILE_DEPTH: usize = 2 * MAX_DEPTH + 8;

/// How deep anything else in a footer may nest.
const MAX_VALUE_DEPTH: usize = 16;

/// How many bytes of metadata stand before the trailer, given at least the file's last [`TRAILER`] bytes.
pub fn metadata_length(end: &[u8]) -> Result<u64, ParquetError> {
    match end.last_chunk::<8>() {
        Some([a, b, c, d, b'P', b'A', b'R', b'1']) => Ok(u64::from(u32::from_le_bytes([*a, *b, *c, *d]))),
        Some([.., b'P', b'A', b'R', b'E']) => Err(ParquetError::NYI("the file's footer is encrypted".to_owned())),
        Some(_) | None => Err(ParquetError::General("the file does not end with PAR1".to_owned())),
    }
}

/// The Arrow form of a file's schema, from Parquet's own types alone: an embedded Arrow schema may say anything.
/// INT96 becomes microseconds in `int96_zone`.
pub fn arrow_metadata(
    metadata: Arc<ParquetMetaData>,
    int96_zone: Option<&str>,
) -> Result<ArrowReaderMetadata, ParquetError> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::try_new(Arc::clone(&metadata), options.clone())?;
    match int96_as_micros(&plain, int96_zone) {
        Some(fields) => ArrowReaderMetadata::try_new(metadata, options.with_schema(Arc::new(Schema::new(fields)))),
        None => Ok(plain),
    }
}

/// Whether the order behind the bounds of a leaf, in all row groups, is the order of its values.
pub fn has_ordered_bounds(file: &ArrowReaderMetadata, leaf: usize) -> bool {
    let Some(column) = file.parquet_schema().columns().get(leaf) else { return false };
    // Numbers are compared as numbers by every writer there ever was. Bytes were not.
    let number = matches!(
        column.physical_type(),
        PhysicalType::BOOLEAN | PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::FLOAT | PhysicalType::DOUBLE
    ) && column.sort_order() != SortOrder::UNSIGNED;
    let orders = file.metadata().file_metadata().column_orders();
    let defined = match orders.and_then(|orders| orders.get(leaf)) {
        Some(
            ColumnOrder::TYPE_DEFINED_ORDER(_) | ColumnOrder::IEEE_754_TOTAL_ORDER | ColumnOrder::INT96_TIMESTAMP_ORDER,
        ) => true,
        Some(ColumnOrder::UNKNOWN) => return false,
        Some(ColumnOrder::UNDEFINED) | None => number,
    };
    let deprecated = || {
        let statistics =
            file.metadata().row_groups().iter().filter_map(|group| group.columns().get(leaf)?.statistics());
        // Where all values are null there is no bound to be of either kind, and the reader calls it the old one.
        let has_bounds = |s: &Statistics| s.min_bytes_opt().is_some() || s.max_bytes_opt().is_some();
        statistics.into_iter().any(|statistics| statistics.is_min_max_deprecated() && has_bounds(statistics))
    };
    defined && (number || !deprecated())
}

/// The fields with microseconds in `zone` for INT96; `None` if the file has no INT96.
///
/// By default it becomes nanoseconds, which end in the year 2262.
pub fn int96_as_micros(plain: &ArrowReaderMetadata, zone: Option<&str>) -> Option<Fields> {
    let parquet = plain.parquet_schema();
    if !parquet.columns().iter().any(|leaf| leaf.physical_type() == PhysicalType::INT96) {
        return None;
    }
    let micros = ArrowType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let mut leaf = 0;
    let fields = plain.schema().fields().iter();
    Some(fields.map(|field| with_int96(field, &micros, parquet, &mut leaf)).collect())
}

/// `field` with INT96 as `micros`; its first leaf is number `leaf`, which moves past its last.
fn with_int96(field: &Field, micros: &ArrowType, parquet: &SchemaDescriptor, leaf: &mut usize) -> Field {
    let mut inside = |field: &Arc<Field>| Arc::new(with_int96(field, micros, parquet, leaf));
    let data_type = match field.data_type() {
        ArrowType::Struct(fields) => ArrowType::Struct(fields.iter().map(inside).collect()),
        ArrowType::List(element) => ArrowType::List(inside(element)),
        ArrowType::Map(entries, sorted) => ArrowType::Map(inside(entries), *sorted),
        other => {
            let int96 = parquet.columns().get(*leaf).is_some_and(|c| c.physical_type() == PhysicalType::INT96);
            *leaf += 1;
            if int96 { micros.clone() } else { other.clone() }
        }
    };
    field.clone().with_data_type(data_type)
}

/// Decodes the metadata that stands before the trailer.
pub fn parse(metadata: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    check(metadata).ok_or_else(|| {
        ParquetError::General(format!(
            "the footer is cut off, contradicts itself, or nests deeper than {MAX_FILE_DEPTH} levels"
        ))
    })?;
    // Which pages have which encoding says the pages themselves.
    static OPTIONS: LazyLock<ParquetMetaDataOptions> =
        LazyLock::new(|| ParquetMetaDataOptions::new().with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll));
    ParquetMetaDataReader::decode_metadata_with_options(metadata, Some(&OPTIONS))
}

/// Walks a `FileMetaData` in Thrift's compact form; `None` if it must not be decoded.
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

/// Walks the list of schema elements, a tree written depth first, each node with its number of children; shows `visit`
/// how deep each is, its name, and whether it is a leaf.
fn walk_schema<'b>(thrift: &mut Thrift<'b>, mut visit: impl FnMut(usize, &'b [u8], bool)) -> Option<()> {
    let (count, kind) = thrift.list()?;
    if kind != STRUCT {
        return None;
    }
    // Children still to come, by level.
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

/// Walks one schema element and gives its name and its number of children.
fn walk_element<'b>(thrift: &mut Thrift<'b>) -> Option<(&'b [u8], u64)> {
    let (mut id, mut name, mut children) = (0, &b""[..], 0);
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (4, BINARY) => name = thrift.binary()?,
            (5, I32) => {
                let number = thrift.varint()?;
                // Signed numbers are zigzag: odd ones are negative.
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
