//! Deletion vectors: the bytes of a file, inline strings, descriptors; a parsed vector is the same after writing and
//! parsing.
//!
//! The first byte decides what the others are. For some kinds sizes (and the checksum of a file) are corrected, so that
//! damage inside is not refused at once.

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::deletion_vector::{
    DeletionVector, DeletionVectorPath, Source, parse_file_region, parse_inline, source, to_file_bytes,
};

/// Ranges looked at; a vector of a few bytes may have one of billions of rows, and one of many bytes many ranges.
const RANGES: usize = 1000;

pub(crate) fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind {
        b'i' => {
            let Some((cardinality, vector)) = cardinality(data) else { return };
            if let Ok(read) = parse_inline(vector, &descriptor("i", "", vector.len(), cardinality)) {
                check(&read, cardinality);
            }
        }
        b'f' => {
            let Some((cardinality, vector)) = cardinality(data) else { return };
            let size = u32::try_from(vector.len()).unwrap();
            let region = [&size.to_be_bytes(), vector, &crc32fast::hash(vector).to_be_bytes()].concat();
            if let Ok(read) = parse_file_region(&region, &descriptor("u", "", vector.len(), cardinality)) {
                check(&read, cardinality);
            }
        }
        b'r' => {
            let Some((cardinality, region)) = cardinality(data) else { return };
            let size = region.len().saturating_sub(8);
            if let Ok(read) = parse_file_region(region, &descriptor("u", "", size, cardinality)) {
                check(&read, cardinality);
            }
        }
        // A descriptor, whose parts are lines: its storage type, its numbers, its text.
        _ => {
            let text = String::from_utf8_lossy(data);
            let mut lines = text.splitn(5, '\n');
            let mut line = || lines.next().unwrap_or_default();
            let (kind, offset, size, rows, text) = (line(), line(), line(), line(), line());
            let descriptor = DeletionVectorDescriptor {
                storage_type: kind.to_owned(),
                path_or_inline_dv: text.to_owned(),
                offset: offset.parse().ok(),
                size_in_bytes: size.parse().unwrap_or_default(),
                cardinality: rows.parse().unwrap_or_default(),
            };
            check_source(&descriptor);
        }
    }
}

fn cardinality(data: &[u8]) -> Option<(i64, &[u8])> {
    let (cardinality, rest) = data.split_first_chunk::<4>()?;
    Some((i64::from(u32::from_le_bytes(*cardinality)), rest))
}

fn descriptor(kind: &str, text: &str, size: usize, cardinality: i64) -> DeletionVectorDescriptor {
    DeletionVectorDescriptor {
        storage_type: kind.to_owned(),
        path_or_inline_dv: text.to_owned(),
        offset: None,
        size_in_bytes: i32::try_from(size).unwrap(),
        cardinality,
    }
}

fn check_source(descriptor: &DeletionVectorDescriptor) {
    assert!(descriptor.unique_id().starts_with(&descriptor.storage_type));
    match source(descriptor) {
        Ok(Source::Inline(bytes)) => {
            assert_eq!(Ok(bytes.len()), usize::try_from(descriptor.size_in_bytes));
            if let Ok(read) = parse_inline(&bytes, descriptor) {
                check(&read, descriptor.cardinality);
            }
        }
        Ok(Source::File { path: DeletionVectorPath::Relative(path), length, .. }) => {
            assert_eq!(i128::from(length), i128::from(descriptor.size_in_bytes) + 8);
            let parts: Vec<&str> = path.split('/').collect();
            assert!(parts.len() <= 2 && !parts.contains(&"") && !parts.contains(&"..") && !parts.contains(&"."));
            assert!(path.ends_with(".bin") && !path.contains(['\\', '\0', '\n']));
        }
        Ok(Source::File { path: DeletionVectorPath::Absolute(uri), .. }) => {
            assert_eq!(uri, descriptor.path_or_inline_dv);
        }
        Err(error) => assert_eq!(*error.kind(), deltic_protocol::error::Kind::Corrupt),
    }
}

fn check(read: &DeletionVector, cardinality: i64) {
    assert_eq!(u64::try_from(cardinality), Ok(read.cardinality()));
    let (mut end, mut deleted, mut ranges) = (0, 0, 0);
    for range in read.deleted_ranges().take(RANGES) {
        assert!(range.start >= end && range.start < range.end);
        assert!(read.contains(range.start) && read.contains(range.end - 1));
        deleted += range.end - range.start;
        end = range.end;
        ranges += 1;
    }
    if ranges < RANGES {
        assert_eq!(deleted, read.cardinality());
        let kept: u64 = read.kept_ranges(end).unwrap().map(|range| range.end - range.start).sum();
        assert_eq!(kept + deleted, end);
        assert!(end == 0 || read.kept_ranges(end - 1).is_err());
    }
    assert_eq!(read.minus(read).cardinality(), 0);

    let inline = read.to_inline().unwrap();
    let Source::Inline(bytes) = source(&inline).unwrap() else { panic!("not inline") };
    assert_eq!(&parse_inline(&bytes, &inline).unwrap(), read);
    let (file, places) = to_file_bytes(std::slice::from_ref(read)).unwrap();
    let region = &file[usize::try_from(places[0].offset).unwrap()..];
    assert_eq!(&parse_file_region(region, &inline).unwrap(), read);
}
