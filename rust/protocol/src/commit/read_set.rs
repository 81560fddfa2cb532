//! What a commit has read of the table, which decides about conflicts.

use crate::log_bounds::TableShape;
use crate::predicate::BoundPredicate;
use crate::replay::paths::PathSet;

/// What a commit has read of the table.
#[derive(Debug, Clone, Default)]
pub enum ReadSet {
    /// Nothing: a blind append, if nothing is removed either.
    #[default]
    Nothing,
    /// These files. Other files do not matter.
    Files(PathSet),
    /// The rows that make one of some predicates TRUE.
    Predicates(PredicatesRead),
    /// All rows of the table, as an overwrite reads them. Commits that only move rows to other files do not matter.
    AllRows,
    /// All files of the table, as restoring a version, copying a table and dropping a feature (which removes row ids) read
    /// them. Commits that only move rows to other files, or add files that are said to change no data, matter, too.
    AllFiles,
}

/// Predicates by which rows were searched, and the files in which they were found.
#[derive(Debug, Clone)]
pub struct PredicatesRead {
    /// The predicates. A transaction that changes columns has predicates of several schemas.
    pub searches: Vec<Search>,
    /// The files that were read.
    pub files: PathSet,
}

/// Predicates that are bound to the columns of one schema.
#[derive(Debug, Clone)]
pub struct Search {
    /// The columns at the time of reading.
    pub shape: TableShape,
    /// The predicates; each was evaluated on the whole table.
    pub predicates: Vec<BoundPredicate>,
}

impl PredicatesRead {
    /// A read by one predicate.
    pub fn new(shape: TableShape, predicate: BoundPredicate, files: PathSet) -> Self {
        Self { searches: vec![Search { shape, predicates: vec![predicate] }], files }
    }

    /// Adds another read of the same version.
    fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        for search in other.searches {
            match self.searches.iter_mut().find(|known| known.shape == search.shape) {
                Some(known) => known.predicates.extend(search.predicates),
                None => self.searches.push(search),
            }
        }
    }
}

impl ReadSet {
    /// Adds another read of the same version.
    pub fn extend(&mut self, other: Self) {
        *self = match (std::mem::take(self), other) {
            (Self::AllFiles, _) | (_, Self::AllFiles) => Self::AllFiles,
            (Self::AllRows, _) | (_, Self::AllRows) => Self::AllRows,
            (Self::Nothing, read) | (read, Self::Nothing) => read,
            (Self::Files(mut files), Self::Files(more)) => {
                files.extend(more);
                Self::Files(files)
            }
            (Self::Predicates(mut read), Self::Files(files)) | (Self::Files(files), Self::Predicates(mut read)) => {
                read.files.extend(files);
                Self::Predicates(read)
            }
            (Self::Predicates(mut read), Self::Predicates(more)) => {
                read.extend(more);
                Self::Predicates(read)
            }
        };
    }

    /// Whether nothing was read.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}
