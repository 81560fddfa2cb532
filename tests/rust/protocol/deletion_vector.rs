//! Deletion vectors: descriptors, decoding, and invalid vectors.

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::deletion_vector::{
    DeletionVector, DeletionVectorPath, Place, Source, encode_path, parse_file_region, parse_inline, source,
    to_file_bytes,
};
use deltic_protocol::error::{Error, Kind};

fn descriptor(
    storage_type: &str,
    text: &str,
    offset: Option<i32>,
    size: i32,
    cardinality: i64,
) -> DeletionVectorDescriptor {
    DeletionVectorDescriptor {
        storage_type: storage_type.to_owned(),
        path_or_inline_dv: text.to_owned(),
        offset,
        size_in_bytes: size,
        cardinality,
    }
}

fn read_inline(descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector, Error> {
    match source(descriptor)? {
        Source::Inline(bytes) => parse_inline(&bytes, descriptor),
        Source::File { .. } => panic!("not inline"),
    }
}

/// The inline example of PROTOCOL.md.
const EXAMPLE: &str = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";

#[test]
fn the_examples_of_the_protocol() {
    let inline = descriptor("i", EXAMPLE, None, 40, 6);
    assert_eq!(read_inline(&inline).unwrap().iter().collect::<Vec<_>>(), [3, 4, 7, 11, 18, 29]);

    let relative = descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", Some(4), 40, 6);
    let path = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
    let expected = Source::File { path: DeletionVectorPath::Relative(path.to_owned()), offset: 4, length: 48 };
    assert_eq!(source(&relative).unwrap(), expected);

    let uri = "s3://mytable/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
    let absolute = descriptor("p", uri, Some(4), 40, 6);
    let expected = Source::File { path: DeletionVectorPath::Absolute(uri.to_owned()), offset: 4, length: 48 };
    assert_eq!(source(&absolute).unwrap(), expected);
}

#[test]
fn sources() {
    let uuid = "^-aqEH.-t@S}K{vb[*k^";
    // Storage type, string, offset, size; then path and offset, or part of the message.
    for (storage_type, text, offset, size, expected) in [
        ("u", uuid.to_owned(), None, 40, Ok(("deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 1))),
        ("u", uuid.to_owned(), Some(0), 40, Ok(("deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 0))),
        ("u", format!("é {uuid}"), Some(9), 0, Ok(("é /deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 9))),
        ("u", "abc".to_owned(), Some(1), 40, Err("is not an optional prefix")),
        ("u", String::new(), Some(1), 40, Err("is not an optional prefix")),
        ("u", format!("..{uuid}"), Some(1), 40, Err("is not an optional prefix")),
        ("u", format!("../../x{uuid}"), Some(1), 40, Err("is not an optional prefix")),
        ("u", format!("a\\b{uuid}"), Some(1), 40, Err("is not an optional prefix")),
        ("u", format!("a\0{uuid}"), Some(1), 40, Err("is not an optional prefix")),
        ("u", format!("{}é", &uuid[..19]), Some(1), 40, Err("is not an optional prefix")),
        ("u", "é".repeat(11), Some(1), 40, Err("is not an optional prefix")),
        ("u", "#".repeat(20), Some(1), 40, Err("is not an optional prefix")),
        ("u", uuid.to_owned(), Some(-1), 40, Err("offset is negative")),
        ("u", uuid.to_owned(), Some(1), -1, Err("size is negative")),
        ("p", String::new(), Some(1), 1, Err("path is empty")),
        ("i", "abcd".to_owned(), None, 4, Err("not Z85")),
        ("i", "00000".to_owned(), None, 5, Err("should have 5 bytes and has 4")),
        ("i", "0000000000".to_owned(), None, 4, Err("should have 4 bytes and has 8")),
        ("i", "00000".to_owned(), None, i32::MAX, Err("should have 2147483647 bytes")),
        ("I", "00000".to_owned(), None, 4, Err("storage type is `I`")),
        ("", "00000".to_owned(), None, 4, Err("storage type is ``")),
    ] {
        let descriptor = descriptor(storage_type, &text, offset, size, 1);
        match (source(&descriptor), expected) {
            (Ok(Source::File { path: DeletionVectorPath::Relative(path), offset, length }), Ok(expected)) => {
                assert_eq!((path.as_str(), offset), expected);
                assert_eq!(length, u64::try_from(size).unwrap() + 8);
            }
            (Err(error), Err(part)) => {
                assert_eq!(error.kind(), &Kind::Corrupt);
                assert!(error.message().contains(part), "{error}");
            }
            (actual, expected) => panic!("{text}: {actual:?} is not {expected:?}"),
        }
    }
}

#[test]
fn written_names_are_read_back() {
    let uuid = *b"0123456789abcdef";
    let descriptor = descriptor("u", &encode_path("p", &uuid), Some(1), 1, 1);
    let Source::File { path, .. } = source(&descriptor).unwrap() else { panic!("a file") };
    let name = "p/deletion_vector_30313233-3435-3637-3839-616263646566.bin";
    assert_eq!(path, DeletionVectorPath::Relative(name.to_owned()));
}

#[test]
#[allow(clippy::single_range_in_vec_init)]
fn kept_ranges() {
    let last_of_bucket = u64::from(u32::MAX);
    for (deleted, rows, expected) in [
        (vec![], 0, vec![]),
        (vec![], 3, vec![0..3]),
        (vec![0], 1, vec![]),
        (vec![0, 1, 2], 4, vec![3..4]),
        (vec![1, 3], 5, vec![0..1, 2..3, 4..5]),
        (vec![4], 5, vec![0..4]),
        (vec![65_535, 65_536], 65_540, vec![0..65_535, 65_537..65_540]),
        (
            vec![last_of_bucket, last_of_bucket + 1],
            last_of_bucket + 3,
            vec![0..last_of_bucket, last_of_bucket + 2..last_of_bucket + 3],
        ),
    ] {
        let vector: DeletionVector = deleted.iter().copied().collect();
        assert_eq!(vector.kept_ranges(rows).unwrap().collect::<Vec<_>>(), expected, "{deleted:?} of {rows}");
    }
    let vector: DeletionVector = [5].into_iter().collect();
    let error = vector.kept_ranges(5).map(|ranges| ranges.count()).unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt);
    assert!(error.message().contains("row 5 of a data file that has 5 rows"), "{error}");
}

#[test]
fn rows_beyond_the_largest_long_are_left_out() {
    let largest = i64::MAX as u64;
    let vector: DeletionVector = [largest, largest + 1, u64::MAX].into_iter().collect();
    assert_eq!(vector.iter().collect::<Vec<_>>(), [largest]);
    assert_eq!(read_inline(&vector.to_inline().unwrap()).unwrap(), vector);
}

/// A vector of one bucket per key, each with the row `key << 32`.
fn buckets(keys: &[u32], count: u64) -> Vec<u8> {
    let mut bytes = 1_681_511_377_u32.to_le_bytes().to_vec();
    bytes.extend(count.to_le_bytes());
    for key in keys {
        bytes.extend(key.to_le_bytes());
        // No runs, one container: key 0, one value, 0, at offset 16.
        for word in [12_346_u32, 1, 0, 16] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0, 0]);
    }
    bytes
}

#[test]
fn damaged_vectors() {
    let good = buckets(&[0, 2], 2);
    let read = |bytes: &[u8], cardinality| {
        parse_inline(bytes, &descriptor("i", "", None, i32::try_from(bytes.len()).unwrap(), cardinality))
    };
    assert_eq!(read(&good, 2).unwrap().iter().collect::<Vec<_>>(), [0, 2 << 32]);
    let mut other_magic = good.clone();
    other_magic[0] += 1;
    let mut trailing = good.clone();
    trailing.push(0);
    for (bytes, part) in [
        (vec![], "no magic number"),
        (good[..3].to_vec(), "no magic number"),
        (good[..4].to_vec(), "no number of buckets"),
        (other_magic, "magic number is 1681511378"),
        (trailing, "1 bytes follow"),
        (good[..good.len() - 1].to_vec(), "cannot be read"),
        (buckets(&[0, 2], 3), "it ends inside a bucket"),
        (buckets(&[0, 2], 1), "follow its last bucket"),
        (buckets(&[0, 2], 4), "4 buckets in"),
        (buckets(&[0], u64::MAX), "buckets in"),
        (buckets(&[2, 0], 2), "out of order"),
        (buckets(&[2, 2], 2), "out of order"),
        (buckets(&[1 << 31], 1), "out of order"),
    ] {
        let error = read(&bytes, 2).unwrap_err();
        assert_eq!(error.kind(), &Kind::Corrupt);
        assert!(error.message().contains(part), "{part}: {error}");
    }
    for cardinality in [-1, 0, 1, 3, i64::MAX] {
        assert!(read(&good, cardinality).unwrap_err().message().contains("and deletes 2"));
    }
    let longer = descriptor("i", "", None, 1000, 2);
    assert!(parse_inline(&good, &longer).unwrap_err().message().contains("should have 1000 bytes"));
}

#[test]
fn the_older_format() {
    let bitmap: &[u8] = &buckets(&[0], 1)[16..];
    for (number, magic) in [
        (u32::to_le_bytes as fn(u32) -> [u8; 4], 1_681_511_376_u32.to_le_bytes()),
        (u32::to_be_bytes, 1_681_511_376_u32.to_be_bytes()),
    ] {
        let build = |count: u32, lengths: &[u32]| {
            let mut bytes = magic.to_vec();
            bytes.extend(number(count));
            for length in lengths {
                bytes.extend(number(*length));
                bytes.extend(bitmap);
            }
            bytes
        };
        let read = |bytes: &[u8]| {
            parse_inline(bytes, &descriptor("i", "", None, i32::try_from(bytes.len()).unwrap(), 2))
                .map(|v| v.iter().collect::<Vec<_>>())
                .map_err(|e| e.message().to_owned())
        };
        let length = u32::try_from(bitmap.len()).unwrap();
        assert_eq!(read(&build(2, &[length, length])).unwrap(), [0, 1 << 32]);
        for (bytes, part) in [
            (build(1, &[length, length]), "follow its last bucket"),
            (build(3, &[length, length]), "ends inside a bucket"),
            (build(u32::MAX, &[length, length]), "4294967295 buckets in"),
            (build(2, &[length, length + 1]), "does not have the 19 bytes"),
            (magic.to_vec(), "ends inside"),
        ] {
            assert!(read(&bytes).unwrap_err().contains(part), "{part}");
        }
    }
}

#[test]
fn empty_buckets_between_others() {
    let mut bytes = buckets(&[0], 2);
    bytes.extend(1_u32.to_le_bytes());
    for word in [12_346_u32, 0] {
        bytes.extend(word.to_le_bytes());
    }
    let vector = parse_inline(&bytes, &descriptor("i", "", None, i32::try_from(bytes.len()).unwrap(), 1)).unwrap();
    assert_eq!(vector.iter().collect::<Vec<_>>(), [0]);
    assert_eq!(vector, [0].into_iter().collect());
}

#[test]
fn regions_of_files() {
    let vectors: Vec<DeletionVector> = vec![[1, 5].into_iter().collect(), (0..100_000).collect()];
    let (file, places) = to_file_bytes(&vectors).unwrap();
    assert_eq!(file[0], 1);
    for (vector, Place { offset, size_in_bytes }) in vectors.iter().zip(places) {
        let count = vector.cardinality().cast_signed();
        let descriptor = descriptor("p", "memory:///x", Some(offset), size_in_bytes, count);
        let Source::File { offset, length, .. } = source(&descriptor).unwrap() else { panic!("a file") };
        let (from, to) = (usize::try_from(offset).unwrap(), usize::try_from(offset + length).unwrap());
        let region = &file[from..to];
        assert_eq!(&parse_file_region(region, &descriptor).unwrap(), vector);
        for cut in [0, 3, 4, region.len() - 5, region.len() - 1] {
            let error = parse_file_region(&region[..cut], &descriptor).unwrap_err();
            assert!(error.message().contains("file ends before"), "{error}");
        }
        for (at, part) in [(0, "its file has"), (4, "checksum"), (region.len() - 1, "checksum")] {
            let mut damaged = region.to_vec();
            damaged[at] ^= 1;
            let error = parse_file_region(&damaged, &descriptor).unwrap_err();
            assert_eq!(error.kind(), &Kind::Corrupt);
            assert!(error.message().contains(part), "{error}");
        }
    }
}

mod properties {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    /// Sparse, dense and clustered rows around the boundaries of containers and buckets.
    fn rows() -> impl Strategy<Value = BTreeSet<u64>> {
        let near = |at: u64| (at.saturating_sub(200)..at + 200).boxed();
        let one = prop_oneof![near(0), near(1 << 16), near(3 << 16), near(1 << 32), near(2 << 32), 0..1_u64 << 34];
        let run = (one.clone(), 1..70_000_u64).prop_map(|(start, length)| (start..start + length).collect::<Vec<_>>());
        let stripes = (one.clone(), 1..12_000_u64, 2..5_u64)
            .prop_map(|(start, n, step)| (0..n).map(|i| start + i * step).collect::<Vec<_>>());
        let part = prop_oneof![8 => one.prop_map(|row| vec![row]), 1 => run, 1 => stripes];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.into_iter().flatten().collect())
    }

    proptest! {
        #![proptest_config(crate::cases(96))]

        #[test]
        fn vectors_round_trip(rows in rows()) {
            let vector: DeletionVector = rows.iter().copied().collect();
            prop_assert_eq!(vector.cardinality(), rows.len() as u64);
            let inline = vector.to_inline().unwrap();
            let again = read_inline(&inline).unwrap();
            prop_assert_eq!(&again, &vector);
            prop_assert!(again.iter().eq(rows.iter().copied()));
            let (file, places) = to_file_bytes(&[DeletionVector::default(), vector.clone()]).unwrap();
            let Place { offset, size_in_bytes } = places[1];
            let region = &file[usize::try_from(offset).unwrap()..];
            let stored = descriptor("p", "x", Some(offset), size_in_bytes, vector.cardinality().cast_signed());
            prop_assert_eq!(&parse_file_region(region, &stored).unwrap(), &vector);
        }

        #[test]
        fn kept_ranges_complement_the_vector(rows in rows(), more in 0..300_u64) {
            // Serialized and parsed, to get run containers.
            let vector: DeletionVector = rows.iter().copied().collect();
            let vector = read_inline(&vector.to_inline().unwrap()).unwrap();
            let total = rows.last().map_or(0, |row| row + 1) + more;
            let mut expected: Vec<Range<u64>> = Vec::new();
            let mut at = 0;
            for row in &rows {
                if at < *row { expected.push(at..*row); }
                at = row + 1;
            }
            if at < total { expected.push(at..total); }
            let kept: Vec<_> = vector.kept_ranges(total).unwrap().collect();
            prop_assert_eq!(kept, expected);
            let deleted: Vec<u64> = vector.deleted_ranges().flatten().collect();
            prop_assert!(deleted.iter().eq(rows.iter()));
            if let Some(last) = rows.last() {
                prop_assert!(vector.kept_ranges(*last).is_err());
                prop_assert!(vector.contains(*last));
            }
        }
    }

    proptest! {
        #![proptest_config(crate::cases(4000))]

        #[test]
        fn hostile_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            rows in prop::collection::vec(0..1_u64 << 20, 0..40),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let parse = |bytes: &[u8]| {
                for cardinality in [0, 1, 40] {
                    let d = descriptor("i", "", None, i32::try_from(bytes.len()).unwrap(), cardinality);
                    let _ = parse_inline(bytes, &d).map(|v| v.kept_ranges(1 << 21).map(Iterator::count));
                    let _ = parse_file_region(bytes, &d);
                }
            };
            parse(&bytes);
            let mut framed = 1_681_511_377_u32.to_le_bytes().to_vec();
            framed.extend(1_u64.to_le_bytes());
            framed.extend(0_u32.to_le_bytes());
            framed.extend(&bytes);
            parse(&framed);
            // A valid vector with some bytes changed gets further in the parser.
            let mut good = rows.into_iter().collect::<DeletionVector>().to_bytes();
            for (at, byte) in edits {
                let at = at.index(good.len());
                good[at] = byte;
            }
            parse(&good);
            parse(&good[..cut.index(good.len())]);
        }

        #[test]
        fn hostile_descriptors(kind in "[uip]", text in ".{0,40}", offset in any::<Option<i32>>(), size: i32) {
            let _ = source(&descriptor(&kind, &text, offset, size, 0));
        }
    }
}
