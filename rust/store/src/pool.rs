//! Large buffers for reading from the disk, used again: fresh memory costs more than copying into it does.

use std::io;
use std::sync::Mutex;

use bytes::Bytes;

use crate::large::Large;

/// Smaller ones are cheap anyway.
const SMALLEST: usize = 256 * 1024;
/// Larger ones are too dear to keep.
const LARGEST: usize = 16 * 1024 * 1024;
/// How many wait to be used at most. To list all files on two processors takes as many, on each one for paths and one for
/// numbers; a plan reads into one on each.
const WAITING: usize = 4;
/// Room comes in multiples of this, so that a buffer fits the next range of about the same size.
const STEP: usize = 512 * 1024;

/// The smallest first.
static BUFFERS: Mutex<Vec<Large>> = Mutex::new(Vec::new());

/// A buffer, until it is dropped.
struct Lent(Option<Large>);

/// An empty buffer with room for so many bytes at least.
pub fn buffer(room: usize) -> io::Result<Large> {
    if !(SMALLEST..=LARGEST).contains(&room) {
        let mut few = Vec::new();
        few.try_reserve_exact(room)?;
        return Ok(Large::Few(few));
    }
    // Never waits: a lock that was held when the process forked stays held in the child.
    if let Ok(mut waiting) = BUFFERS.try_lock() {
        let fitting = waiting.partition_point(|buffer| buffer.room() < room);
        if fitting < waiting.len() {
            return Ok(waiting.remove(fitting));
        }
    }
    Large::with_room(room.next_multiple_of(STEP))
}

/// Forgets those that wait.
pub fn clear() {
    if let Ok(mut waiting) = BUFFERS.try_lock() {
        waiting.clear();
    }
}

/// Lets a buffer wait to be used.
pub fn give(mut buffer: Large) {
    if (SMALLEST..=LARGEST).contains(&buffer.room())
        && let Ok(mut waiting) = BUFFERS.try_lock()
    {
        buffer.clear();
        let place = waiting.partition_point(|other| other.room() < buffer.room());
        waiting.insert(place, buffer);
        if waiting.len() > WAITING {
            waiting.remove(0);
        }
    }
}

/// The content of a buffer, which is used again when nobody reads it any more.
pub(super) fn lend(buffer: Large) -> Bytes {
    match buffer.room() {
        SMALLEST..=LARGEST => Bytes::from_owner(Lent(Some(buffer))),
        _ => buffer.into_bytes(),
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map(Large::as_ref).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(give);
    }
}
