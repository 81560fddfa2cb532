//! Files of which a winner deleted rows by a deletion vector, or whose rows it moved to other files: whether a commit that read
//! them, or deletes rows of them too, may follow.
//!
//! Rows keep their positions in a file, and a vector only deletes some. So a commit would have found the same rows in the file
//! after the winner, unless the winner deleted one of them or restored others. A winner that only moves rows keeps their row
//! ids, by which they are found in its files.
//!
//! PROTOCOL.md: "Deletion Vectors", "Row Tracking".

use std::collections::{HashMap, HashSet};

use super::ConflictCheck;
use crate::action::DeletionVectorDescriptor;
use crate::action::batch::AddBatch;
use crate::action::json::CommitActions;
use crate::commit::marked::{MarkedFile, MovedRows, Vectors};
use crate::commit::pending::Pending;
use crate::commit::read_set::ReadSet;
use crate::deletion_vector::DeletionVector;
use crate::error::{Conflict, Error, Result};
use crate::log_bounds::TableShape;
use crate::property::Properties;
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
    /// The deletion vectors that have to be read before a winner can be checked. The caller passes them to
    /// [`Pending::check_and_rebase`].
    ///
    /// # Errors
    /// `Corrupt` if the winner's actions are.
    pub fn vectors_needed(&self, winner: &CommitActions) -> Result<Vec<DeletionVectorDescriptor>> {
        let mut wanted = Vec::new();
        for ReAddedFile { path, old, new, .. } in re_added_files(winner)? {
            if self.marked.get(path).is_some() {
                wanted.extend(new);
            } else if searches_rows(&self.read) && old.is_some() {
                wanted.extend(old.into_iter().chain(new));
            }
        }
        Ok(wanted)
    }

    /// The rows that this commit deletes by deletion vectors and that a winner moved to other files, if it moved any. The
    /// caller finds them by their row ids and passes them to [`Pending::check_and_rebase`].
    ///
    /// # Errors
    /// `Corrupt` if the winner's actions are, or the table's metadata is.
    pub fn moved_rows(&self, winner: &CommitActions) -> Result<Option<MovedRows>> {
        let lost = self.lost_files(winner)?;
        let only_moved = !lost.is_empty() && lost.iter().all(|lost| lost.is_moved);
        let mut removed = (0..winner.removes.len()).map(|row| winner.removes.path(row));
        // A winner that also changes the metadata is not an OPTIMIZE. If both remove a file, a later check refuses this commit.
        let may_follow = only_moved && winner.metadata.is_none() && !removed.any(|path| self.actions.removes(path));
        let Some(state) = self.state.as_ref().filter(|_| may_follow) else { return Ok(None) };
        let Some(tracking) = Properties::of(&state.metadata).row_tracking(&state.protocol)? else { return Ok(None) };
        let mut moved = winner.adds.filter(!&super::data_changing(winner.adds.rows(), winner.adds.len()))?;
        if let ReadSet::Predicates(read) = &self.read {
            // Each of the rows makes one of the predicates TRUE.
            moved = super::matching(&moved, read)?;
        }
        let partitions: HashSet<_> = lost.iter().map(|lost| lost.file.add.partition_values.clone()).collect();
        let mut to = Vec::new();
        for row in 0..moved.len() {
            // OPTIMIZE moves no row to another partition.
            if partitions.contains(&moved.partition_values_at(row)?) {
                to.push(moved.sized_add(row)?);
            }
        }
        let schema = state.metadata.schema()?;
        let shape = TableShape {
            mapping: Properties::of(&state.metadata).column_mapping(&state.protocol, &schema)?,
            partition_columns: state.metadata.partition_columns.clone(),
            schema,
        };
        let from = lost.into_iter().map(|lost| lost.file.clone()).collect();
        Ok((!to.is_empty()).then_some(MovedRows { from, to, shape, tracking }))
    }

    /// The files with rows that this commit deletes and that a winner removes, and does not add again.
    fn lost_files<'a>(&'a self, winner: &'a CommitActions) -> Result<Vec<LostFile<'a>>> {
        if self.marked.is_empty() {
            return Ok(Vec::new());
        }
        let again: PathSet = re_added_files(winner)?.iter().map(|file| file.path).collect();
        let removes = &winner.removes;
        let changing = super::data_changing(&winner.remove_rows, removes.len());
        let lost = (0..removes.len()).filter_map(|row| {
            let path = removes.path(row);
            let file = self.marked.get(path).filter(|_| !again.contains(path))?;
            Some(LostFile { path, file, is_moved: !changing.value(row) })
        });
        Ok(lost.collect())
    }
}

/// A file with rows that a commit deletes, and that a winner removes.
struct LostFile<'a> {
    /// Its path, as the winner has it.
    path: &'a str,
    file: &'a MarkedFile,
    /// Whether its rows are in other files of the winner, unchanged.
    is_moved: bool,
}

/// Whether rows were searched for, so that restored rows would matter.
fn searches_rows(read: &ReadSet) -> bool {
    match read {
        ReadSet::Predicates(_) | ReadSet::AllRows | ReadSet::AllFiles => true,
        ReadSet::Nothing | ReadSet::Files(_) => false,
    }
}

/// The rows of a file that were deleted before the winner, and after it; `None` if this commit reads or deletes no rows of it.
fn deleted_rows(
    pending: &Pending,
    file: &ReAddedFile<'_>,
    vectors: &Vectors,
) -> Result<Option<(DeletionVector, DeletionVector)>> {
    Ok(match pending.marked.get(file.path) {
        Some(marked) => Some((marked.rows_deleted_before_commit.clone(), known(vectors, file.new.as_ref())?)),
        None if !searches_rows(&pending.read) => None,
        // If the file had no vector, no row was deleted.
        None if file.old.is_none() => Some((DeletionVector::default(), DeletionVector::default())),
        None => Some((known(vectors, file.old.as_ref())?, known(vectors, file.new.as_ref())?)),
    })
}

/// The files that the winner removed and added again with fewer rows.
pub(super) fn files_with_fewer_rows(pending: &Pending, winner: &CommitActions, vectors: &Vectors) -> Result<PathSet> {
    let mut found = PathSet::default();
    for file in re_added_files(winner)? {
        if let Some((old, new)) = deleted_rows(pending, &file, vectors)?
            && new.is_superset(&old)
        {
            found.insert(file.path);
        }
    }
    Ok(found)
}

impl ConflictCheck<'_> {
    pub(super) fn rows_of_files(&mut self) -> Result<()> {
        self.files_with_fewer_rows = files_with_fewer_rows(self.pending, self.winner, &self.rows.vectors)?;
        for file in re_added_files(self.winner)? {
            if self.pending.marked.get(file.path).is_none() {
                continue;
            }
            if !self.files_with_fewer_rows.contains(file.path) {
                return Err(super::refuse(
                    Conflict::ConcurrentAppend,
                    &format!("another writer restored rows of {}", file.path),
                ));
            }
            let deleted = known(&self.rows.vectors, file.new.as_ref())?;
            self.add_winner_deletes(&file, deleted)?;
        }
        self.replace_lost_files()
    }

    /// Puts the files to which the winner moved rows in the place of those that it removed.
    fn replace_lost_files(&mut self) -> Result<()> {
        let lost = self.pending.lost_files(self.winner)?;
        let rows_before = count_rows(lost.iter().map(|lost| lost.file));
        let rows_found = count_rows(&self.rows.moved);
        let paths: Vec<String> = lost.iter().map(|lost| lost.path.to_owned()).collect();
        if let Some(path) = paths.first().filter(|_| rows_found != rows_before) {
            return Err(super::refuse_lost_file(path));
        }
        paths.iter().for_each(|path| self.pending.marked.remove(path));
        self.rows.moved.iter().cloned().for_each(|file| self.pending.marked.mark(file));
        Ok(())
    }

    /// Makes this commit build on the file as the winner left it, with the rows that `vector` deletes.
    fn add_winner_deletes(&mut self, file: &ReAddedFile<'_>, vector: DeletionVector) -> Result<()> {
        let add = self.winner.adds.sized_add(file.add)?;
        let Some(marked) = self.pending.marked.get_mut(file.path) else { return Ok(()) };
        if !vector.minus(&marked.rows_deleted_before_commit).is_disjoint(&marked.rows) {
            return Err(super::refuse_same_rows(&format!("rows of {}", file.path)));
        }
        (marked.add, marked.rows_deleted_before_commit, marked.vector) = (add, vector, None);
        Ok(())
    }
}

fn count_rows<'a>(files: impl IntoIterator<Item = &'a MarkedFile>) -> u64 {
    files.into_iter().map(|file| file.rows.cardinality()).sum()
}

fn known(vectors: &Vectors, descriptor: Option<&DeletionVectorDescriptor>) -> Result<DeletionVector> {
    let Some(descriptor) = descriptor else { return Ok(DeletionVector::default()) };
    let missing = || Error::internal("the winner's deletion vectors were not loaded");
    vectors.get(&descriptor.unique_id()).cloned().ok_or_else(missing)
}
