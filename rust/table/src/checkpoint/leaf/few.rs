//! What is kept of files of which few are wanted: their paths and their numbers, in one piece of memory, which is large
//! enough that many pages are asked for at once.

use super::{Chunk, Coded, Decoded, Stop, Trimmed, Trimming, coded};
use crate::large::Large;

/// Texts that are trimmed, with room for two leaves of numbers.
pub(crate) fn trimming_with(numbers: [Chunk<'_>; 2]) -> Trimming {
    Trimming::new(likely_room(numbers))
}

fn likely_room(numbers: [Chunk<'_>; 2]) -> usize {
    numbers.into_iter().map(coded::likely_room).fold(0, usize::saturating_add)
}

/// Texts that are all read, and two leaves of numbers if they are given and are not of a rare kind.
pub(crate) fn few(texts: Trimming, numbers: Option<[Chunk<'_>; 2]>) -> Decoded<(Trimmed, [Option<Coded>; 2])> {
    let Some(numbers) = numbers else { return Ok((texts.finish(), [None, None])) };
    let (trimmed, memory, (leaves, own)) = texts.finish_with(|memory| {
        // To make room would copy all texts.
        let room = likely_room(numbers);
        if memory.room() - memory.len() >= room {
            return (coded::two(numbers, memory), None);
        }
        match Large::with_room(room) {
            Ok(mut own) => (coded::two(numbers, &mut own), Some(own)),
            Err(_) => (Err(Stop::Rare), None),
        }
    });
    let memory = own.map_or(memory, Large::into_bytes);
    match leaves {
        Ok(leaves) => Ok((trimmed, leaves.map(|leaf| Some(leaf.in_memory(&memory))))),
        Err(Stop::Rare) => Ok((trimmed, [None, None])),
        Err(broken) => Err(broken),
    }
}
