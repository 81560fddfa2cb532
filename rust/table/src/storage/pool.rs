//! Large buffers for reading from the disk, used again: fresh memory costs more than copying into it does.

use std::sync::Mutex;

use bytes::Bytes;

/// Smaller ones are cheap anyway.
const SMALLEST: usize = 256 * 1024;
/// Larger ones are too dear to keep.
const LARGEST: usize = 16 * 1024 * 1024;
/// How many wait to be used at most.
const WAITING: usize = 3;

static BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

struct Lent(Vec<u8>);

/// An empty buffer, which has room if one that was used before has.
pub(super) fn buffer(room: usize) -> Vec<u8> {
    // Never waits: a lock that was held when the process forked stays held in the child.
    let Ok(mut waiting) = BUFFERS.try_lock() else { return Vec::new() };
    let fits = |buffer: &Vec<u8>| buffer.capacity() >= room && room >= SMALLEST;
    match waiting.iter().position(fits) {
        Some(at) => waiting.swap_remove(at),
        None => Vec::new(),
    }
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
        if waiting.len() < WAITING {
            let mut buffer = std::mem::take(&mut self.0);
            buffer.clear();
            waiting.push(buffer);
        }
    }
}
