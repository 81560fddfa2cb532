//! Deletion vector files, by the paths that a store takes.
//!
//! PROTOCOL.md: "Deletion Vectors".

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::deletion_vector::{self, DeletionVectorPath, Source};

use crate::error::Result;
use deltic_store::decode_path;

/// The place of a deletion vector in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VectorFile {
    /// The path of the file, as a store takes it.
    pub(crate) path: String,
    /// The end of the vector: the offset after its last byte.
    pub(crate) end: u64,
}

impl VectorFile {
    /// The place by a descriptor; none for an inline vector.
    ///
    /// # Errors
    /// `Corrupt` for an invalid descriptor.
    pub(crate) fn of(descriptor: &DeletionVectorDescriptor) -> Result<Option<Self>> {
        let Source::File { path, offset, length } = deletion_vector::source(descriptor)? else { return Ok(None) };
        Ok(Some(Self { path: literal(path)?, end: offset.saturating_add(length) }))
    }

    /// The place of a data file's deletion vector; none if it has none, or an inline one.
    ///
    /// # Errors
    /// As [`VectorFile::of`], naming the file.
    pub(crate) fn of_row(files: &AddBatch, row: usize) -> Result<Option<Self>> {
        let found = files.deletion_vector(row)?.map(|descriptor| Self::of(&descriptor)).transpose();
        found.map(Option::flatten).map_err(|e| e.in_file(files.path().value(row)))
    }
}

/// The path of a deletion vector file, as a store takes it.
///
/// # Errors
/// `Corrupt` for a URI that cannot be decoded.
pub(crate) fn literal(path: DeletionVectorPath) -> Result<String> {
    match path {
        DeletionVectorPath::Relative(path) => Ok(path),
        DeletionVectorPath::Absolute(uri) => decode_path(&uri),
    }
}
