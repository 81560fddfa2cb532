//! Which rows have a value: as runs if these are long, otherwise as bits.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};

use super::rows::Rows;

/// A set of rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mask {
    /// The first row and the end of each run, in ascending order.
    Runs(Vec<(u32, u32)>),
    /// A bit for each row.
    Bits(BooleanBuffer),
}

impl Mask {
    pub(super) fn of(bits: &BooleanBuffer) -> Self {
        let most = (bits.len() / 8 / size_of::<(u32, u32)>()).max(1);
        let short = |row: usize| u32::try_from(row).ok();
        let runs = bits.set_slices().take(most + 1).map(|(start, end)| Some((short(start)?, short(end)?)));
        match runs.collect::<Option<Vec<_>>>() {
            Some(mut runs) if runs.len() <= most => {
                runs.shrink_to_fit();
                Self::Runs(runs)
            }
            // A copy, since the buffer may be part of a larger one.
            _ => Self::Bits(BooleanBuffer::collect_bool(bits.len(), |row| bits.value(row))),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Runs(runs) => runs.capacity() * size_of::<(u32, u32)>(),
            Self::Bits(bits) => bits.len().div_ceil(8),
        }
    }

    pub(super) fn unpack(&self, rows: Rows<'_>) -> BooleanBuffer {
        match (self, rows) {
            (Self::Bits(bits), Rows::Range { start, length }) => bits.slice(start, length),
            (Self::Bits(bits), Rows::Set(rows)) => rows.set_indices().map(|row| bits.value(row)).collect(),
            (Self::Runs(runs), Rows::Range { start, length }) => {
                let end = start + length;
                let mut found = BooleanBufferBuilder::new(length);
                let first = runs.partition_point(|(_, to)| *to as usize <= start);
                for (from, to) in runs.get(first..).unwrap_or_default() {
                    let (from, to) = ((*from as usize).clamp(start, end), (*to as usize).min(end));
                    if from == end {
                        break;
                    }
                    found.append_n(from - start - found.len(), false);
                    found.append_n(to - from, true);
                }
                found.append_n(length - found.len(), false);
                found.finish()
            }
            (Self::Runs(runs), Rows::Set(rows)) => {
                let has = |row: usize| {
                    let run = runs.get(runs.partition_point(|(_, to)| *to as usize <= row));
                    run.is_some_and(|(from, _)| *from as usize <= row)
                };
                rows.set_indices().map(has).collect()
            }
        }
    }

    /// As a validity buffer; `None` if all rows have a value.
    pub(super) fn nulls(&self, rows: Rows<'_>) -> Option<NullBuffer> {
        Some(NullBuffer::new(self.unpack(rows))).filter(|nulls| nulls.null_count() > 0)
    }
}
