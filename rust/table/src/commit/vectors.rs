//! Deletion vectors that a commit needs: those of winners are read, and its own are stored, in a new file each time
//! they change. Rows that a winner moved to other files are found there, and rows that it added are searched.
//!
//! PROTOCOL.md: "Deletion Vectors", "Deletion Vector File Storage Format".

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::commit::{AddedRows, MarkedFile, MovedRows};
use deltic_protocol::deletion_vector::{DeletionVector, encode_path, relative_path, to_file_bytes};
use futures::future::BoxFuture;
use uuid::Uuid;

use super::added_rows::search_added_rows;
use super::moved_rows::find_moved_rows;
use crate::error::{Error, Result};
use crate::scan::vectors::read_vector;
use crate::write::layout::random_prefix;
use deltic_store::Storage;

/// Reads and stores deletion vectors, and searches files of winners for rows.
pub trait DeletionVectorStore: Send + Sync {
    /// Reads the vector of a descriptor.
    fn read(&self, descriptor: DeletionVectorDescriptor) -> BoxFuture<'_, Result<DeletionVector>>;

    /// Stores vectors durably, and returns their descriptors in the same order.
    fn store(&self, vectors: Vec<DeletionVector>) -> BoxFuture<'_, Result<Vec<DeletionVectorDescriptor>>>;

    /// Finds rows that a winner moved to other files, by their row ids: the files that have them now, with these rows; `None`
    /// if not every row is found exactly once.
    fn find_moved(&self, moved: Arc<MovedRows>) -> BoxFuture<'_, Result<Option<Vec<MarkedFile>>>>;

    /// Searches rows of files that a winner added: the path of a file with a row that makes one of the predicates TRUE; `None` if
    /// there is none.
    fn search_added(&self, added: Arc<AddedRows>) -> BoxFuture<'_, Result<Option<String>>>;
}

/// For commits that neither write nor read deletion vectors.
#[derive(Debug, Clone, Copy)]
pub struct NoDeletionVectors;

impl DeletionVectorStore for NoDeletionVectors {
    fn read(&self, _: DeletionVectorDescriptor) -> BoxFuture<'_, Result<DeletionVector>> {
        Box::pin(std::future::ready(Err(Error::internal(
            "a deletion vector cannot be read in a commit without row changes",
        ))))
    }

    fn store(&self, _: Vec<DeletionVector>) -> BoxFuture<'_, Result<Vec<DeletionVectorDescriptor>>> {
        Box::pin(std::future::ready(Err(Error::internal(
            "a deletion vector cannot be stored in a commit without row changes",
        ))))
    }

    fn find_moved(&self, _: Arc<MovedRows>) -> BoxFuture<'_, Result<Option<Vec<MarkedFile>>>> {
        Box::pin(std::future::ready(Err(Error::internal(
            "moved rows cannot be searched in a commit without row changes",
        ))))
    }

    /// Every file that statistics do not rule out counts as having such a row.
    fn search_added(&self, added: Arc<AddedRows>) -> BoxFuture<'_, Result<Option<String>>> {
        Box::pin(std::future::ready(Ok(added.files.first().map(|file| file.path.clone()))))
    }
}

/// Deletion vector files in a table's root.
#[derive(Debug)]
pub(crate) struct TableVectors {
    storage: Storage,
    /// The length of the random prefix of their paths, if they have one.
    prefix_length: Option<u8>,
    /// The keys of the files that were written, or may have been.
    written_keys: Mutex<Vec<String>>,
}

impl TableVectors {
    pub(crate) fn new(storage: Storage, prefix_length: Option<u8>) -> Self {
        Self { storage, prefix_length, written_keys: Mutex::default() }
    }

    /// Deletes the unreferenced files (best effort): all, or after a successful commit all except the last.
    pub(crate) async fn delete_unreferenced(&self, is_committed: bool) {
        let mut keys = std::mem::take(&mut *self.written_keys.lock().unwrap_or_else(PoisonError::into_inner));
        if is_committed {
            keys.pop();
        }
        for key in keys {
            // A file that cannot be deleted stays as an orphan, which a vacuum deletes.
            let _deleted = self.storage.delete(&key).await;
        }
    }

    async fn store_all(&self, vectors: Vec<DeletionVector>) -> Result<Vec<DeletionVectorDescriptor>> {
        let (bytes, places) = to_file_bytes(&vectors)?;
        let prefix = self.prefix_length.map(|length| random_prefix(std::iter::repeat_with(Uuid::new_v4), length));
        let encoded = encode_path(&prefix.unwrap_or_default(), Uuid::new_v4().as_bytes());
        let key = relative_path(&encoded)?;
        // Recorded before it is written, so that it can be deleted even if writing fails.
        self.written_keys.lock().unwrap_or_else(PoisonError::into_inner).push(key.clone());
        self.storage.put(&key, Bytes::from(bytes)).await?;
        let descriptor =
            |(vector, place): (&DeletionVector, deltic_protocol::deletion_vector::Place)| DeletionVectorDescriptor {
                storage_type: "u".to_owned(),
                path_or_inline_dv: encoded.clone(),
                offset: Some(place.offset),
                size_in_bytes: place.size_in_bytes,
                cardinality: vector.cardinality().cast_signed(),
            };
        Ok(vectors.iter().zip(places).map(descriptor).collect())
    }
}

impl DeletionVectorStore for TableVectors {
    fn read(&self, descriptor: DeletionVectorDescriptor) -> BoxFuture<'_, Result<DeletionVector>> {
        Box::pin(async move { read_vector(&self.storage, &descriptor).await })
    }

    fn store(&self, vectors: Vec<DeletionVector>) -> BoxFuture<'_, Result<Vec<DeletionVectorDescriptor>>> {
        Box::pin(self.store_all(vectors))
    }

    fn find_moved(&self, moved: Arc<MovedRows>) -> BoxFuture<'_, Result<Option<Vec<MarkedFile>>>> {
        Box::pin(async move { find_moved_rows(&self.storage, &moved).await })
    }

    fn search_added(&self, added: Arc<AddedRows>) -> BoxFuture<'_, Result<Option<String>>> {
        Box::pin(async move { search_added_rows(&self.storage, &added).await })
    }
}
