//! Files of which a winner deleted rows by a deletion vector: whether a commit that read them, or deletes rows of them too, may
//! follow.
//!
//! Rows keep their positions in a file, and a vector only deletes some. So a commit would have found the same rows in the file
//! after the winner, unless the winner deleted one of them or restored others.
//!
//! PROTOCOL.md: "Deletion Vectors".

use std::collections::HashMap;

use super::Case;
use crate::action::DeletionVectorDescriptor;
use crate::action::batch::AddBatch;
use crate::action::json::CommitActions;
use crate::commit::marked::Vectors;
use crate::commit::pending::{Pending, ReadSet};
use crate::deletion_vector::DeletionVector;
use crate::error::{Conflict, Error, Result};
use crate::replay::canonical_path;
use crate::replay::paths::PathSet;

/// A file that a winner removes and adds again.
struct ReAddedFile<'a> {
    path: &'a str,
    /// Its index in the winner's adds.
    add: usize,
    old: Option<DeletionVectorDescriptor>,
    new: Option<DeletionVectorDescriptor>,
}

/// The files that a winner removes and adds again.
fn re_added_files(winner: &CommitActions) -> Result<Vec<ReAddedFile<'_>>> {
    if winner.removes.is_empty() || winner.adds.is_empty() {
        return Ok(Vec::new());
    }
    let added: HashMap<_, usize> =
        winner.adds.path().iter().flatten().enumerate().map(|(row, path)| (canonical_path(path), row)).collect();
    let removes = AddBatch::new(winner.adds.origin, winner.remove_rows.clone())?;
    let mut found = Vec::new();
    for row in 0..winner.removes.len() {
        let path = winner.removes.path(row);
        let Some(add) = added.get(canonical_path(path).as_ref()).copied() else { continue };
        let (old, new) = (removes.deletion_vector(row)?, winner.adds.deletion_vector(add)?);
        found.push(ReAddedFile { path, add, old, new });
    }
    Ok(found)
}

impl Pending {
    /// The deletion vectors that have to be read before a winner can be checked. The caller passes them to [`Pending::follow`].
    ///
    /// # Errors
    /// `Corrupt` if the winner's actions are.
    pub fn vectors_to_judge(&self, winner: &CommitActions) -> Result<Vec<DeletionVectorDescriptor>> {
        let mut wanted = Vec::new();
        for ReAddedFile { path, old, new, .. } in re_added_files(winner)? {
            if self.marked.get(path).is_some() {
                wanted.extend(new);
            } else if reads_rows(&self.read) && old.is_some() {
                wanted.extend(old.into_iter().chain(new));
            }
        }
        Ok(wanted)
    }
}

/// Whether rows were searched for, so that restored rows would matter.
fn reads_rows(read: &ReadSet) -> bool {
    match read {
        ReadSet::Predicates(_) | ReadSet::WholeTable | ReadSet::EveryFile => true,
        ReadSet::Nothing | ReadSet::Files(_) => false,
    }
}

impl Case<'_> {
    pub(super) fn rows_of_files(&mut self) -> Result<()> {
        let mut only_lost_rows = PathSet::default();
        let mut taken = PathSet::default();
        for file in re_added_files(self.winner)? {
            let is_marked = self.pending.marked.get(file.path).is_some();
            if !is_marked && !reads_rows(&self.pending.read) {
                continue;
            }
            let (old, new) = match self.pending.marked.get(file.path) {
                Some(marked) => (marked.deleted_before.clone(), known(self.vectors, file.new.as_ref())?),
                // If the file had no vector, no row was deleted.
                None if file.old.is_none() => (DeletionVector::default(), DeletionVector::default()),
                None => (known(self.vectors, file.old.as_ref())?, known(self.vectors, file.new.as_ref())?),
            };
            if new.is_superset(&old) {
                only_lost_rows.insert(file.path);
            } else if is_marked {
                return Err(super::refuse(Conflict::ConcurrentAppend, &format!("rows of {} came back", file.path)));
            }
            if is_marked {
                self.unite(&file, new)?;
                taken.insert(file.path);
            }
        }
        let removes = &self.winner.removes;
        let mut removed = (0..removes.len()).map(|row| removes.path(row));
        if let Some(path) = removed.find(|path| self.pending.marked.get(path).is_some() && !taken.contains(path)) {
            return Err(super::refuse(Conflict::ConcurrentDeleteDelete, &format!("such as {path}")));
        }
        self.only_lost_rows = only_lost_rows;
        Ok(())
    }

    /// Makes this commit build on the file as the winner left it, with the rows that `vector` deletes.
    fn unite(&mut self, file: &ReAddedFile<'_>, vector: DeletionVector) -> Result<()> {
        let add = self.winner.adds.sized_add(file.add)?;
        let Some(marked) = self.pending.marked.get_mut(file.path) else { return Ok(()) };
        if !vector.minus(&marked.deleted_before).is_disjoint(&marked.rows) {
            let detail = format!("rows of {}", file.path);
            return Err(super::refuse(Conflict::ConcurrentDeleteDelete, &detail));
        }
        (marked.add, marked.deleted_before, marked.vector) = (add, vector, None);
        Ok(())
    }
}

fn known(vectors: &Vectors, descriptor: Option<&DeletionVectorDescriptor>) -> Result<DeletionVector> {
    let Some(descriptor) = descriptor else { return Ok(DeletionVector::default()) };
    let missing = || Error::internal("a winner was checked without its deletion vectors");
    vectors.get(&descriptor.unique_id()).cloned().ok_or_else(missing)
}
