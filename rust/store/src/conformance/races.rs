//! Tests of concurrent writers of one name.

use bytes::Bytes;

use super::writes::{large, pieces};
use crate::put::{Body, Put};
use crate::storage::Storage;

/// Checks that only one of many writers of a name creates the file, and that its bytes stay.
///
/// `storage` must not have a `_delta_log`; afterwards it has three files there. Needs a runtime with several threads.
///
/// # Panics
/// The store breaks the contract.
pub async fn check_races(storage: &Storage) {
    for round in 0..3 {
        let path = format!("_delta_log/{round:020}.json");
        let tasks: Vec<_> = (0..32u8)
            .map(|i| {
                let (storage, path) = (storage.clone(), path.clone());
                tokio::spawn(async move { (i, storage.put_if_absent(&path, Bytes::from(vec![i; 100])).await.unwrap()) })
            })
            .collect();
        let winner = winner(tasks).await;
        assert_eq!(storage.get(&path).await.unwrap(), vec![winner; 100]);
    }
    // Writers in parts take part in the same race.
    let path = "_delta_log/large.json";
    let tasks: Vec<_> = (0..6_u8)
        .map(|i| {
            let (storage, piece) = (storage.clone(), Bytes::from(vec![i; 3 << 20]));
            let body = if i < 3 { large(&piece) } else { Body::from(piece.slice(..100)) };
            tokio::spawn(async move {
                // Small puts wait, so that large ones may come first.
                tokio::time::sleep(std::time::Duration::from_millis(u64::from(i) * 40)).await;
                (i, storage.put_if_absent(path, body).await.unwrap())
            })
        })
        .collect();
    let winner = winner(tasks).await;
    let size = if winner < 3 { 36 << 20 } else { 100 };
    assert_eq!(storage.head(path).await.unwrap().size, size);
    assert_eq!(storage.get_suffix(path, 1).await.unwrap().0, vec![winner]);
    storage.delete(path).await.unwrap();

    overtaken(storage).await;
}

/// A writer that has sent almost all parts when another one creates the file is refused.
async fn overtaken(storage: &Storage) {
    let (path, piece, other) = ("_delta_log/overtaken.json", Bytes::from(vec![7; 3 << 20]), storage.clone());
    let last = piece.clone();
    let overtaken = std::iter::once_with(move || {
        let put = other.put_if_absent(path, Bytes::from_static(b"theirs"));
        let put = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(put));
        assert!(matches!(put, Ok(Put::Created)), "{put:?}");
        Ok(last)
    });
    let put = storage.put_if_absent(path, Body::of(36 << 20, pieces(&piece, 11).chain(overtaken))).await;
    assert!(matches!(put, Ok(Put::Exists)), "{put:?}");
    assert_eq!(storage.get(path).await.unwrap(), "theirs");
    storage.delete(path).await.unwrap();
}

/// The writer that created the file, of several.
///
/// # Panics
/// Not exactly one did, or it is unknown.
pub async fn winner(racers: Vec<tokio::task::JoinHandle<(u8, Put)>>) -> u8 {
    let mut created = Vec::new();
    for racer in racers {
        match racer.await.unwrap() {
            (i, Put::Created) => created.push(i),
            (_, Put::Exists) => {}
            (_, Put::Unknown(e)) => panic!("{e}"),
        }
    }
    let [winner] = created[..] else { panic!("{created:?}") };
    winner
}
