//! Deletion vectors: which rows of a data file are deleted.
//!
//! Bytes in, row numbers out; the caller reads the region that [`source`] names. Positions count from 0 in
//! the data file. Not here: which vector belongs to which file (`replay`).
//!
//! Invariants: size, magic, checksum, bucket order and cardinality are all checked before a vector exists; what is
//! printed parses to the same rows (`deletion_vector::properties`); no bytes make parsing panic, or allocate more than
//! a few times their length (`deletion_vector::properties::hostile_bytes`).
//!
//! PROTOCOL.md: "Deletion Vectors", "Deletion Vector Format".

use std::iter::Peekable;
use std::ops::Range;

use roaring::{RoaringBitmap, RoaringTreemap};

use crate::action::DeletionVectorDescriptor;
use crate::error::{Error, Result};

mod z85;

/// First four bytes of a vector, little endian.
const MAGIC: u32 = 1_681_511_377;

/// First four bytes of a vector in the older form, an array of bitmaps. PROTOCOL.md's inline example has it with big-endian
/// numbers, delta-spark still reads it with little-endian ones.
const ARRAY_MAGIC: u32 = 1_681_511_376;

/// First byte of a file of vectors.
const FILE_VERSION: u8 = 1;

/// Bytes around a vector in a file: its size before, its checksum after.
const FRAME: u64 = 8;

/// Shortest bucket: a key and an empty bitmap.
const MIN_BUCKET: usize = 12;

/// Where the bytes of a vector are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Here, for [`parse_inline`].
    Inline(Vec<u8>),
    /// In a file.
    File {
        /// Plain text relative to the table's root, or an absolute percent-encoded URI.
        path: DeletionVectorPath,
        /// Where the region for [`parse_file_region`] starts.
        offset: u64,
        /// How long that region is: size, vector and checksum.
        length: u64,
    },
}

/// Which file holds a vector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeletionVectorPath {
    /// Below the table's root, not encoded.
    Relative(String),
    /// A URI, encoded like the `path` of an `add`.
    Absolute(String),
}

/// Where the vector of a descriptor is, or its bytes when the descriptor holds them.
pub fn source(descriptor: &DeletionVectorDescriptor) -> Result<Source> {
    let size = vector_size(descriptor)?;
    let text = descriptor.path_or_inline_dv.as_str();
    let path = match descriptor.storage_type.as_str() {
        "i" => {
            let mut bytes = z85::decode(text).ok_or_else(|| corrupt("its inline string is not Z85"))?;
            // Encoding works on blocks of four bytes, so there may be up to three of padding.
            if bytes.len() < size || bytes.len() - size > 3 {
                return Err(corrupt(format!("it should have {size} bytes and has {} inline", bytes.len())));
            }
            bytes.truncate(size);
            return Ok(Source::Inline(bytes));
        }
        "u" => DeletionVectorPath::Relative(relative_path(text)?),
        "p" if text.is_empty() => return Err(corrupt("its path is empty")),
        "p" => DeletionVectorPath::Absolute(text.to_owned()),
        other => return Err(corrupt(format!("its storage type is `{other}`, not u, i or p"))),
    };
    // The first byte of a file is its version, so a vector without an offset can only be the first one, after it.
    let offset = u64::try_from(descriptor.offset.unwrap_or(1)).map_err(|_| corrupt("its offset is negative"))?;
    Ok(Source::File { path, offset, length: size as u64 + FRAME })
}

/// Reads the bytes of an inline vector.
pub fn parse_inline(bytes: &[u8], descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
    if bytes.len() != vector_size(descriptor)? {
        return Err(corrupt(format!("it should have {} bytes and has {}", descriptor.size_in_bytes, bytes.len())));
    }
    let vector = DeletionVector { rows: parse_vector(bytes)? };
    if u64::try_from(descriptor.cardinality) != Ok(vector.cardinality()) {
        return Err(corrupt(format!(
            "it should delete {} rows and deletes {}",
            descriptor.cardinality,
            vector.cardinality()
        )));
    }
    Ok(vector)
}

/// Reads the region of a file that [`source`] names: big-endian size, vector, big-endian CRC-32.
pub fn parse_file_region(bytes: &[u8], descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
    let size = vector_size(descriptor)?;
    let cut_off = || corrupt(format!("its file ends before its {size} bytes and their checksum do"));
    let (head, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut_off)?;
    if usize::try_from(u32::from_be_bytes(*head)) != Ok(size) {
        return Err(corrupt(format!("it should have {size} bytes, its file has {}", u32::from_be_bytes(*head))));
    }
    let (vector, rest) = rest.split_at_checked(size).ok_or_else(cut_off)?;
    let checksum = rest.first_chunk::<4>().ok_or_else(cut_off)?;
    if crc32fast::hash(vector) != u32::from_be_bytes(*checksum) {
        return Err(corrupt("its checksum does not match its bytes"));
    }
    parse_inline(vector, descriptor)
}

fn vector_size(descriptor: &DeletionVectorDescriptor) -> Result<usize> {
    usize::try_from(descriptor.size_in_bytes).map_err(|_| corrupt("its size is negative"))
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::corrupt(format!("a deletion vector is damaged: {}", what.into()))
}

/// `<random prefix><Z85 UUID>` to `<random prefix>/deletion_vector_<uuid>.bin`.
///
/// # Errors
/// `Corrupt` if it is something else.
pub fn relative_path(text: &str) -> Result<String> {
    let malformed = || corrupt(format!("`{text}` is not an optional prefix and a UUID in 20 characters of Z85"));
    let (prefix, encoded) =
        text.len().checked_sub(20).and_then(|at| text.split_at_checked(at)).ok_or_else(malformed)?;
    let bytes: [u8; 16] = z85::decode(encoded).and_then(|b| b.try_into().ok()).ok_or_else(malformed)?;
    // A prefix names one folder; anything that could lead elsewhere did not come from a writer.
    let leads_away = |c: char| matches!(c, '/' | '\\') || c.is_control();
    if prefix.contains(leads_away) || prefix == "." || prefix == ".." {
        return Err(malformed());
    }
    let name = format!("deletion_vector_{}.bin", uuid_string(&bytes));
    Ok(if prefix.is_empty() { name } else { format!("{prefix}/{name}") })
}

fn uuid_string(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A vector in any of its forms, told apart by the magic number.
fn parse_vector(bytes: &[u8]) -> Result<RoaringTreemap> {
    let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| corrupt("it has no magic number"))?;
    let (buckets, rest) = match u32::from_le_bytes(*magic) {
        MAGIC => parse_portable(rest)?,
        ARRAY_MAGIC => parse_array(rest, u32::from_le_bytes)?,
        _ if u32::from_be_bytes(*magic) == ARRAY_MAGIC => parse_array(rest, u32::from_be_bytes)?,
        other => return Err(corrupt(format!("its magic number is {other}, not {MAGIC}"))),
    };
    if !rest.is_empty() {
        return Err(corrupt(format!("{} bytes follow its last bucket", rest.len())));
    }
    Ok(RoaringTreemap::from_bitmaps(buckets))
}

/// The upper half of row numbers, and a bitmap of the lower halves.
type Bucket = (u32, RoaringBitmap);

/// The number of buckets, then each: its key and bitmap.
fn parse_portable(bytes: &[u8]) -> Result<(Vec<Bucket>, &[u8])> {
    let (count, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(|| corrupt("it has no number of buckets"))?;
    let count = u64::from_le_bytes(*count);
    if count > (rest.len() / MIN_BUCKET) as u64 {
        return Err(corrupt(format!("it has {count} buckets in {} bytes", rest.len())));
    }
    let mut buckets = Vec::new();
    let mut last = None;
    for _ in 0..count {
        let key = u32::from_le_bytes(word(&mut rest)?);
        if key > i32::MAX.cast_unsigned() || last.is_some_and(|last| key <= last) {
            return Err(corrupt("its buckets are out of order"));
        }
        last = Some(key);
        push_bitmap(&mut buckets, key, &mut rest)?;
    }
    Ok((buckets, rest))
}

/// The number of buckets, then each, without gaps: the length of its bitmap and the bitmap.
fn parse_array(bytes: &[u8], number: fn([u8; 4]) -> u32) -> Result<(Vec<Bucket>, &[u8])> {
    let mut rest = bytes;
    let count = number(word(&mut rest)?);
    if usize::try_from(count).is_ok_and(|count| count > rest.len() / MIN_BUCKET) {
        return Err(corrupt(format!("it has {count} buckets in {} bytes", rest.len())));
    }
    let mut buckets = Vec::new();
    for key in 0..count {
        let length = number(word(&mut rest)?) as usize;
        let before = rest.len();
        push_bitmap(&mut buckets, key, &mut rest)?;
        if before - rest.len() != length {
            return Err(corrupt(format!("one of its bitmaps does not have the {length} bytes it should")));
        }
    }
    Ok((buckets, rest))
}

fn word(rest: &mut &[u8]) -> Result<[u8; 4]> {
    let (word, after) = rest.split_first_chunk::<4>().ok_or_else(|| corrupt("it ends inside a bucket"))?;
    *rest = after;
    Ok(*word)
}

fn push_bitmap(buckets: &mut Vec<Bucket>, key: u32, rest: &mut &[u8]) -> Result<()> {
    let bitmap =
        RoaringBitmap::deserialize_from(rest).map_err(|e| corrupt("one of its bitmaps cannot be read").caused_by(e))?;
    // Some writers fill gaps between buckets with empty ones.
    if !bitmap.is_empty() {
        buckets.push((key, bitmap));
    }
    Ok(())
}

/// The rows of a data file that are deleted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeletionVector {
    rows: RoaringTreemap,
}

impl FromIterator<u64> for DeletionVector {
    /// Rows in any order; those beyond the largest a vector can hold (2^63 - 1) are left out.
    fn from_iter<I: IntoIterator<Item = u64>>(rows: I) -> Self {
        Self { rows: rows.into_iter().filter(|row| i64::try_from(*row).is_ok()).collect() }
    }
}

impl Extend<u64> for DeletionVector {
    /// As [`DeletionVector::from_iter`], beside the rows that are deleted already.
    fn extend<I: IntoIterator<Item = u64>>(&mut self, rows: I) {
        self.rows.extend(rows.into_iter().filter(|row| i64::try_from(*row).is_ok()));
    }
}

impl DeletionVector {
    /// So many rows from the first on.
    pub fn first(rows: u64) -> Self {
        let mut all = RoaringTreemap::new();
        all.insert_range(0..rows.min(i64::MAX.cast_unsigned()));
        Self { rows: all }
    }

    /// Whether no row is deleted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The last row that is deleted.
    pub fn last(&self) -> Option<u64> {
        self.rows.max()
    }

    /// The rows that this vector or `other` deletes.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { rows: &self.rows | &other.rows }
    }

    /// Whether no row is deleted by both.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.rows.is_disjoint(&other.rows)
    }

    /// Whether this vector deletes every row that `other` deletes.
    pub fn is_superset(&self, other: &Self) -> bool {
        self.rows.is_superset(&other.rows)
    }

    /// How many rows are deleted.
    pub fn cardinality(&self) -> u64 {
        self.rows.len()
    }

    /// The rows that this vector deletes and `other` does not.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self { rows: &self.rows - &other.rows }
    }

    /// Whether `row` is deleted.
    pub fn contains(&self, row: u64) -> bool {
        self.rows.contains(row)
    }

    /// Numbers of the deleted rows, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.rows.iter()
    }

    /// Numbers of the deleted rows from `row` on, ascending.
    pub fn iter_from(&self, row: u64) -> impl Iterator<Item = u64> {
        let mut rows = self.rows.iter();
        rows.advance_to(row);
        rows
    }

    /// Ranges of deleted rows, ascending. Ranges may touch where two buckets do.
    pub fn deleted_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.rows.bitmaps().flat_map(|(key, bitmap)| {
            let base = u64::from(key) << 32;
            let mut rows = bitmap.iter();
            std::iter::from_fn(move || rows.next_range())
                .map(move |range| base + u64::from(*range.start())..base + u64::from(*range.end()) + 1)
        })
    }

    /// Ranges of rows that are left in a file of `rows` rows, ascending and apart from each other. `Corrupt` when the
    /// vector deletes a row that the file does not have.
    pub fn kept_ranges(&self, rows: u64) -> Result<impl Iterator<Item = Range<u64>>> {
        match self.rows.max() {
            Some(row) if row >= rows => {
                Err(corrupt(format!("it deletes row {row} of a data file that has {rows} rows")))
            }
            Some(_) | None => Ok(Gaps { deleted: self.deleted_ranges().peekable(), at: 0, end: rows }),
        }
    }

    /// The vector as it stands inline, without [`to_inline`](Self::to_inline)'s encoding, or between size and checksum
    /// in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut rows = self.rows.clone();
        rows.optimize();
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        // Writing to memory does not fail.
        let _ = rows.serialize_into(&mut bytes);
        bytes
    }

    /// A descriptor that holds the vector. `Invalid` when the vector is too large for one.
    pub fn to_inline(&self) -> Result<DeletionVectorDescriptor> {
        let mut bytes = self.to_bytes();
        let size_in_bytes = size_of_vector(&bytes)?;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(DeletionVectorDescriptor {
            storage_type: "i".to_owned(),
            path_or_inline_dv: z85::encode(&bytes),
            offset: None,
            size_in_bytes,
            cardinality: self.cardinality().cast_signed(),
        })
    }
}

/// Where a vector stands in a file, in the terms of its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Byte position of its size.
    pub offset: i32,
    /// Bytes of the vector alone.
    pub size_in_bytes: i32,
}

/// The bytes of a file of vectors, and the place of each. `Invalid` when they are too large for one file.
pub fn to_file_bytes(vectors: &[DeletionVector]) -> Result<(Vec<u8>, Vec<Place>)> {
    let mut file = vec![FILE_VERSION];
    let mut places = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let bytes = vector.to_bytes();
        let size_in_bytes = size_of_vector(&bytes)?;
        places.push(Place { offset: size_of_vector(&file)?, size_in_bytes });
        file.extend_from_slice(&size_in_bytes.to_be_bytes());
        file.extend_from_slice(&bytes);
        file.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    }
    Ok((file, places))
}

/// The `pathOrInlineDv` of a file that the UUID names.
pub fn encode_path(prefix: &str, uuid: &[u8; 16]) -> String {
    format!("{prefix}{}", z85::encode(uuid))
}

fn size_of_vector(bytes: &[u8]) -> Result<i32> {
    i32::try_from(bytes.len()).map_err(|_| Error::invalid("deletion vectors of more than 2 GiB cannot be stored"))
}

/// What lies between the ranges of `deleted`.
struct Gaps<I: Iterator<Item = Range<u64>>> {
    deleted: Peekable<I>,
    at: u64,
    end: u64,
}

impl<I: Iterator<Item = Range<u64>>> Iterator for Gaps<I> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        while let Some(deleted) = self.deleted.next_if(|deleted| deleted.start <= self.at) {
            self.at = self.at.max(deleted.end);
        }
        let end = self.deleted.peek().map_or(self.end, |deleted| deleted.start);
        let kept = self.at..end;
        self.at = end;
        (!kept.is_empty()).then_some(kept)
    }
}
