//! Rows of a source that have places: each is for one row of the target, because another engine has joined the two sides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array, Int64Array};

use crate::error::{Error, Result};

/// Where the rows of a source belong. Each column has a value for each row.
#[derive(Debug, Clone)]
pub struct Places {
    /// The numbers of the rows among all of the source; null for a row that has values for a row of the target which no row of
    /// the source matches.
    pub numbers: Int64Array,
    /// The indexes of the files among those of a task.
    pub files: Int64Array,
    /// The positions of the rows of the target in the files.
    pub positions: Int64Array,
}

/// The places, by file.
#[derive(Debug)]
pub(crate) struct PlacedRows {
    /// For each file, the positions of rows of the target, in their order, each with a row of the source.
    of_files: HashMap<String, Vec<(u64, u32)>>,
    numbers: Int64Array,
    /// How many rows of the source are paired with a row of the target.
    paired: AtomicUsize,
}

impl Places {
    /// `paths`: the paths of the task's files.
    ///
    /// # Errors
    /// `Invalid` for places that are not in these files.
    pub(crate) fn in_files(&self, paths: &[&str]) -> Result<PlacedRows> {
        let unknown = || Error::invalid("rows came for a file or a position that the task does not have");
        let mut of_files: HashMap<String, Vec<(u64, u32)>> = HashMap::new();
        for row in 0..self.numbers.len() {
            let is_placed = row < self.files.len() && row < self.positions.len();
            if !is_placed || self.files.is_null(row) || self.positions.is_null(row) {
                return Err(unknown());
            }
            let path = usize::try_from(self.files.value(row)).ok().and_then(|file| paths.get(file));
            let position = u64::try_from(self.positions.value(row)).map_err(|_| unknown())?;
            let source = u32::try_from(row).map_err(|_| unknown())?;
            of_files.entry((*path.ok_or_else(unknown)?).to_owned()).or_default().push((position, source));
        }
        of_files.values_mut().for_each(|rows| rows.sort_unstable());
        Ok(PlacedRows { of_files, numbers: self.numbers.clone(), paired: AtomicUsize::new(0) })
    }
}

impl PlacedRows {
    /// Whether a row is one of the source that matches.
    pub(super) fn is_match(&self, source: u32) -> bool {
        self.numbers.is_valid(source as usize)
    }

    /// Calls `visit` with the pairs of rows of a file at these positions.
    pub(super) fn each(
        &self,
        path: &str,
        positions: &[i64],
        visit: &mut dyn FnMut(u32, u32) -> Result<()>,
    ) -> Result<()> {
        let Some(placed) = self.of_files.get(path) else { return Ok(()) };
        for (target, position) in positions.iter().enumerate() {
            let position = position.cast_unsigned();
            let first = placed.partition_point(|(at, _)| *at < position);
            let at_position = placed.iter().skip(first).take_while(|(at, _)| *at == position);
            for (_, source) in at_position {
                self.paired.fetch_add(1, Ordering::Relaxed);
                visit(u32::try_from(target).unwrap_or(u32::MAX), *source)?;
            }
        }
        Ok(())
    }

    /// Fails if a row had no place.
    ///
    /// # Errors
    /// `Invalid` if the files are not those that the other engine has read.
    pub(super) fn check_all_paired(&self) -> Result<()> {
        match self.paired.load(Ordering::Relaxed) == self.numbers.len() {
            true => Ok(()),
            false => Err(Error::invalid("the files have other rows than before; run it again")),
        }
    }
}
