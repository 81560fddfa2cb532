//! Tests of puts, conditional or not, and of files that are written piece by piece.

use bytes::Bytes;

use super::listings::list;
use crate::error::Error;
use crate::put::{Body, Put};
use crate::storage::Storage;
use crate::syncing::Syncing;

pub(super) async fn writing(storage: &Storage) {
    check_puts(storage).await;
    check_files_synced_later(storage).await;
    check_hints(storage).await;
    check_large_puts(storage).await;
    assert!(list(storage, "w/.tmp", "").await.is_empty());
    check_files_of_pieces(storage).await;
    check_given_up_files(storage).await;
}

/// Checks small puts, conditional or not, and that a file appears when it is finished.
async fn check_puts(storage: &Storage) {
    storage.put("w/a", Bytes::from_static(b"1")).await.unwrap();
    storage.put("w/a", Bytes::from_static(b"2")).await.unwrap();
    assert_eq!(storage.get("w/a").await.unwrap(), "2");
    assert!(matches!(storage.put_if_absent("w/a", Bytes::from_static(b"3")).await, Ok(Put::Exists)));
    assert_eq!(storage.get("w/a").await.unwrap(), "2");
    assert!(matches!(storage.put_if_absent("w/deep/b", Bytes::from_static(b"4")).await, Ok(Put::Created)));
    assert_eq!(storage.get("w/deep/b").await.unwrap(), "4");

    let mut writer = storage.create_file("w/new/c").await.unwrap();
    writer.write(Bytes::from_static(b"5")).await.unwrap();
    assert!(list(storage, "w/new", "").await.is_empty());
    writer.write(Bytes::from_static(b"6")).await.unwrap();
    assert_eq!(writer.finish().await.unwrap(), 2);
    assert_eq!(storage.get("w/new/c").await.unwrap(), "56");
}

/// Checks files that are synced later, and a file that refers to them.
async fn check_files_synced_later(storage: &Storage) {
    let mut before = Syncing::default();
    let files = [Bytes::new(), Bytes::from_static(b"7"), Bytes::from(vec![7u8; 3 << 20])];
    for (data, alone) in files.iter().flat_map(|data| [(data.clone(), false), (data.clone(), true)]) {
        let (name, size) = (format!("w/soon/{}-{alone}", data.len()), data.len() as u64);
        let mut writer = storage.create_file(&name).await.unwrap();
        writer.write(data.clone()).await.unwrap();
        let (written, syncing) = writer.finish_unsynced(alone).await.unwrap();
        assert_eq!((written, storage.get(&name).await.unwrap()), (size, data));
        before.extend(syncing);
    }
    let refers = storage.put_if_absent_after("w/refers", Bytes::from_static(b"8"), before).await;
    assert!(matches!(refers, Ok(Put::Created)));
    let again = storage.put_if_absent_after("w/refers", Bytes::from_static(b"9"), Syncing::default()).await;
    assert!(matches!(again, Ok(Put::Exists)));
    assert_eq!(storage.get("w/refers").await.unwrap(), "8");
}

/// Checks puts of files that need not be durable.
async fn check_hints(storage: &Storage) {
    assert!(matches!(storage.put_hint_if_absent("w/hint", Bytes::from_static(b"1")).await, Ok(Put::Created)));
    assert!(matches!(storage.put_hint_if_absent("w/hint", Bytes::from_static(b"2")).await, Ok(Put::Exists)));
    assert_eq!(storage.get("w/hint").await.unwrap(), "1");
    storage.put_hint("w/hint", Bytes::from_static(b"3")).await.unwrap();
    assert_eq!(storage.get("w/hint").await.unwrap(), "3");
}

/// Checks a file of several pieces, and one of none.
async fn check_files_of_pieces(storage: &Storage) {
    let piece = Bytes::from(vec![7u8; 3 << 20]);
    let mut writer = storage.create_file("w/new/large").await.unwrap();
    for _ in 0..7 {
        writer.write(piece.clone()).await.unwrap();
    }
    assert_eq!(writer.finish().await.unwrap(), 21 << 20);
    assert_eq!(storage.get_suffix("w/new/large", 1).await.unwrap(), (Bytes::from_static(&[7]), 21 << 20));

    assert_eq!(storage.create_file("w/new/zero").await.unwrap().finish().await.unwrap(), 0);
    assert_eq!(storage.head("w/new/zero").await.unwrap().size, 0);
}

/// Checks that nothing is left of files whose writers were aborted or dropped.
async fn check_given_up_files(storage: &Storage) {
    let piece = Bytes::from(vec![7u8; 3 << 20]);
    let mut aborted = storage.create_file("w/gone/d").await.unwrap();
    aborted.write(piece.clone()).await.unwrap();
    aborted.abort().await.unwrap();
    let mut aborted = storage.create_file("w/gone/e").await.unwrap();
    for _ in 0..4 {
        aborted.write(piece.clone()).await.unwrap();
    }
    aborted.abort().await.unwrap();
    let mut dropped = storage.create_file("w/gone/f").await.unwrap();
    dropped.write(piece).await.unwrap();
    drop(dropped);
    assert!(list(storage, "w/gone", "").await.is_empty());
}

/// Checks conditional puts that are too large for one request, if the store can make them in parts.
///
/// # Panics
/// The store breaks the contract.
pub async fn check_large_puts(storage: &Storage) {
    let piece = &Bytes::from(vec![7u8; 3 << 20]);
    for expected in ["Created", "Exists"] {
        let put = storage.put_if_absent("w/many", large(piece)).await.unwrap();
        assert_eq!(format!("{put:?}"), expected);
    }
    assert_eq!(storage.head("w/many").await.unwrap().size, 36 << 20);
    assert_eq!(storage.get_suffix("w/many", 1).await.unwrap(), (Bytes::from_static(&[7]), 36 << 20));
    let broken = Body::of(36 << 20, pieces(piece, 6).chain([Err(Error::invalid("cut off"))]));
    assert!(storage.put_if_absent("w/broken", broken).await.unwrap_err().to_string().contains("cut off"));
    assert!(storage.head("w/broken").await.unwrap_err().is_not_found());
    // The rest of a writer that gave up does no harm.
    assert!(matches!(storage.put_if_absent("w/broken", Bytes::from_static(b"mended")).await, Ok(Put::Created)));
    assert_eq!(storage.get("w/broken").await.unwrap(), "mended");
}

/// A body of twelve pieces.
pub(super) fn large(piece: &Bytes) -> Body {
    Body::of(12 * piece.len() as u64, pieces(piece, 12))
}

pub(super) fn pieces(piece: &Bytes, count: usize) -> impl Iterator<Item = Result<Bytes, Error>> + Send + use<> {
    std::iter::repeat_n(piece.clone(), count).map(Ok)
}
