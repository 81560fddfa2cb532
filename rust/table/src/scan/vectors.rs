//! Reads deletion vectors by their descriptors.
//!
//! PROTOCOL.md: "Deletion Vectors".

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::deletion_vector::{self, DeletionVector, Source};
use deltic_protocol::error::{Error, Result};

use crate::vector_file::literal;
use deltic_store::Storage;

/// The vector of a descriptor. An inline one needs no request.
///
/// # Errors
/// `Corrupt` if it is damaged; those of the store.
pub(crate) async fn read_vector(storage: &Storage, descriptor: &DeletionVectorDescriptor) -> Result<DeletionVector> {
    match deletion_vector::source(descriptor)? {
        Source::Inline(bytes) => deletion_vector::parse_inline(&bytes, descriptor),
        Source::File { path, offset, length } => {
            let path = literal(path)?;
            let end = offset.checked_add(length).ok_or_else(|| Error::corrupt("a deletion vector has no valid end"))?;
            let bytes = storage.get_range(&path, offset..end).await?;
            deletion_vector::parse_file_region(&bytes, descriptor)
        }
    }
}
