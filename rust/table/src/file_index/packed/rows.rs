//! Which rows of a packed column are unpacked.

use arrow_buffer::BooleanBuffer;

/// Rows to unpack.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rows<'r> {
    Range {
        start: usize,
        length: usize,
    },
    /// Those whose bits are set.
    Set(&'r BooleanBuffer),
}

impl Rows<'_> {
    /// How many rows are unpacked.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Range { length, .. } => *length,
            Self::Set(rows) => rows.count_set_bits(),
        }
    }
}
