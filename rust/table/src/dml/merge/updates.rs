//! The rows of a file that a merge updates, each with its update and its row of the source.
//!
//! Memory does not depend on rows that are not updated. A row that no row of the source matches is a bit, or two bytes, of a
//! bitmap; any other takes [`UpdatedRow`], 12 bytes, and up to twice that while rows are added.

use deltic_protocol::deletion_vector::DeletionVector;

/// Stands for no row of the source.
pub(super) const NO_SOURCE_ROW: u32 = u32::MAX;

/// The upper and the lower half of the position of an updated row, and the row of the source.
type UpdatedRow = [u32; 3];

/// The updated rows of a file.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// Those of each update, by its index.
    of_updates: Vec<OfUpdate>,
}

/// The rows of one update.
#[derive(Debug, Default)]
struct OfUpdate {
    /// Rows that no row of the source matches.
    without_source: DeletionVector,
    /// Other rows.
    with_source: Vec<UpdatedRow>,
}

impl Updates {
    /// Adds a row. `update`: the index of its update.
    pub(super) fn push(&mut self, position: u64, update: usize, source: Option<u32>) {
        if self.of_updates.len() <= update {
            self.of_updates.resize_with(update.saturating_add(1), OfUpdate::default);
        }
        let Some(of_update) = self.of_updates.get_mut(update) else { return };
        match source {
            Some(source) => {
                let [upper, lower] = halves(position);
                of_update.with_source.push([upper, lower, source]);
            }
            None => of_update.without_source.extend([position]),
        }
    }

    /// Sorts the rows, and releases spare memory. To be called after the last [`Updates::push`]: rows of parts of a file
    /// come in any order.
    pub(super) fn sort(&mut self) {
        for of_update in &mut self.of_updates {
            of_update.with_source.sort_unstable();
            of_update.with_source.shrink_to_fit();
        }
    }

    /// For each update, the rows of the source of the rows that it changes, in their order.
    pub(super) fn source_rows(&self) -> impl Iterator<Item = impl Iterator<Item = u32> + Clone> {
        self.of_updates.iter().map(|of_update| of_update.with_source.iter().map(|[_, _, source]| *source))
    }

    /// The index of a row's update, and the row of the source ([`NO_SOURCE_ROW`] if there is none).
    pub(super) fn get(&self, position: u64) -> Option<(usize, u32)> {
        let wanted = halves(position);
        self.of_updates.iter().enumerate().find_map(|(update, of_update)| {
            if of_update.without_source.contains(position) {
                return Some((update, NO_SOURCE_ROW));
            }
            let rows = &of_update.with_source;
            let at = rows.binary_search_by_key(&wanted, |[upper, lower, _]| [*upper, *lower]).ok()?;
            rows.get(at).map(|[_, _, source]| (update, *source))
        })
    }
}

/// The upper and the lower half of a number: in this form numbers and arrays have the same order.
fn halves(number: u64) -> [u32; 2] {
    let upper = (number >> u32::BITS) as u32;
    [upper, number as u32]
}
