//! Large buffers for reading from the disk, used again: fresh memory costs more than copying into it does.

use std::collections::TryReserveError;
use std::sync::Mutex;

use bytes::Bytes;

/// Smaller ones are cheap anyway.
const SMALLEST: usize = 256 * 1024;
/// Larger ones are too dear to keep.
const LARGEST: usize = 16 * 1024 * 1024;
/// How many wait to be used at most.
const WAITING: usize = 3;
/// Room comes in multiples of this, so that a buffer fits the next range of about the same size.
const STEP: usize = 512 * 1024;

/// The smallest first.
static BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

struct Lent(Vec<u8>);

/// An empty buffer with room for so many bytes.
pub(super) fn buffer(room: usize) -> Result<Vec<u8>, TryReserveError> {
    let is_pooled = (SMALLEST..=LARGEST).contains(&room);
    // Never waits: a lock that was held when the process forked stays held in the child.
    if is_pooled && let Ok(mut waiting) = BUFFERS.try_lock() {
        let fitting = waiting.partition_point(|buffer| buffer.capacity() < room);
        if fitting < waiting.len() {
            return Ok(waiting.remove(fitting));
        }
    }
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(if is_pooled { room.next_multiple_of(STEP) } else { room })?;
    Ok(buffer)
}

/// Forgets those that wait.
pub(crate) fn clear() {
    if let Ok(mut waiting) = BUFFERS.try_lock() {
        waiting.clear();
    }
}

/// The content of a buffer, which is used again when nobody reads it any more.
pub(super) fn lend(buffer: Vec<u8>) -> Bytes {
    match buffer.capacity() {
        SMALLEST..=LARGEST => Bytes::from_owner(Lent(buffer)),
        _ => buffer.into(),
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Ok(mut waiting) = BUFFERS.try_lock() else { return };
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        let place = waiting.partition_point(|other| other.capacity() < buffer.capacity());
        waiting.insert(place, buffer);
        if waiting.len() > WAITING {
            waiting.remove(0);
        }
    }
}
