//! The contract of [`Storage`], as a suite that every backend passes.
//!
//! For a new backend, and for servers that offer a known interface (such as that of S3). Each function writes into an empty
//! location and reads the result back. They panic if the contract is broken, like tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;

use crate::error::Kind;
use crate::storage::Storage;

mod listings;
mod races;
mod writes;

pub use races::{check_races, winner};
pub use writes::check_large_puts;

/// Checks everything except [`check_races`].
///
/// It proves that files are found under their exact keys and missing ones are reported; that listings of a folder start
/// at a name, and those of a tree have every file; that ranges are read correctly and those beyond the end are refused; that a
/// put replaces, a conditional one does not, and a file appears whole or not at all; that deletions have one outcome each;
/// that no path leads out of the root; that requests are counted.
///
/// `storage` must be empty. Afterwards it has some 80 MB below `log`, `log2`, `tree`, `w`, `many` and beside them.
/// `without`: characters that its keys cannot have.
///
/// # Panics
/// The store breaks the contract.
pub async fn check(storage: &Storage, without: &str) {
    listings::missing(storage).await;
    listings::strange_keys(storage, without).await;
    listings::listing(storage).await;
    listings::trees(storage).await;
    listings::deleting(storage, without).await;
    check_reads(storage).await;
    writes::writing(storage).await;
    escaping(storage).await;
}

/// Checks reads of whole files, of ranges and of ends, also for a location where files cannot be deleted.
///
/// # Panics
/// The store breaks the contract.
pub async fn check_reads(storage: &Storage) {
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    storage.put("data", data.clone().into()).await.unwrap();
    assert_eq!(storage.get_range("data", 10..20).await.unwrap(), &data[10..20]);
    assert!(storage.get_range("data", 7..7).await.unwrap().is_empty());
    let ranges = [2_900_000..2_900_010, 5..9, 0..6, 100..100, 1_500_000..1_500_000, 9..70_000];
    for (range, bytes) in ranges.iter().zip(storage.get_ranges("data", &ranges).await.unwrap()) {
        assert_eq!(bytes, &data[range.start as usize..range.end as usize]);
    }
    let size = data.len() as u64;
    for (length, expected) in [(8, 8), (0, 0), (size, size), (size + 1, size), (u64::MAX, size)] {
        let (bytes, whole) = storage.get_suffix("data", length).await.unwrap();
        assert_eq!((bytes.as_ref(), whole), (&data[(size - expected) as usize..], size), "{length}");
    }
    #[allow(clippy::reversed_empty_ranges)]
    for range in [size - 1..size + 1, size..size + 1, u64::MAX - 1..u64::MAX, 0..u64::MAX, 5..4] {
        let error = storage.get_range("data", range.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.path()), (&Kind::Corrupt, Some("data")), "{range:?}: {error}");
    }
    storage.put("empty", Bytes::new()).await.unwrap();
    assert_eq!(storage.get_suffix("empty", 8).await.unwrap(), (Bytes::new(), 0));
    assert!(storage.get("empty").await.unwrap().is_empty());
}

async fn escaping(storage: &Storage) {
    for path in ["../x", "a/../../x", "..", "./..", "a/../..", "", ".", "a/..", "./"] {
        for error in [
            storage.get(path).await.unwrap_err(),
            storage.put(path, Bytes::new()).await.unwrap_err(),
            storage.put_if_absent(path, Bytes::new()).await.unwrap_err(),
            storage.delete(path).await.unwrap_err(),
            storage.create_file(path).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), &Kind::Corrupt, "{path}: {error}");
        }
    }
    storage.put("inside", Bytes::new()).await.unwrap();
    assert_eq!(storage.head("a/../b/./../inside").await.unwrap().size, 0);
}
