//! What is kept of files of which few are wanted: their paths and their numbers, in one piece of memory, which is large
//! enough to be had in huge pages.

use super::trimmed::Trimming;
use super::{Chunk, Coded, Decoded, Trimmed, coded};

/// A leaf of texts, and two of numbers.
pub(crate) fn few(texts: Chunk<'_>, numbers: [Chunk<'_>; 2]) -> Decoded<(Trimmed, [Coded; 2])> {
    let beside = numbers.into_iter().map(coded::room).fold(0, usize::saturating_add);
    let mut trimming = Trimming::of(texts, beside)?;
    let numbers = coded::two(numbers, trimming.memory())?;
    let (trimmed, memory) = trimming.finish();
    Ok((trimmed, numbers.map(|leaf| leaf.in_memory(&memory))))
}
