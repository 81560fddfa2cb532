//! A pool of large buffers, which are reused.
//!
//! The system clears new memory page by page; a large checkpoint would wait for that for each of its bytes,
//! several times.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// The most bytes of all unused buffers, and the fewest bytes of one.
const MOST_WAITING: usize = 16 * 1024 * 1024;
const LEAST_BYTES: usize = 32 * 1024;
/// Buffers are allocated in multiples of this, so that one fits the next contents of about the same length.
const STEP_BYTES: usize = 64 * 1024;

/// The unused buffers.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// The smallest unused buffer that has so much room, with its old contents; or a new one.
    pub fn take(&self, room: usize) -> Vec<u8> {
        self.waiting(room)
            .unwrap_or_else(|| Vec::with_capacity(room.checked_next_multiple_of(STEP_BYTES).unwrap_or(room)))
    }

    fn waiting(&self, room: usize) -> Option<Vec<u8>> {
        let mut waiting = self.0.lock().ok()?;
        let capacities = waiting.buffers.iter().map(Vec::capacity).enumerate();
        let (at, bytes) = capacities.filter(|(_, bytes)| *bytes >= room).min_by_key(|(_, bytes)| *bytes)?;
        waiting.bytes -= bytes;
        Some(waiting.buffers.swap_remove(at))
    }

    /// Takes a buffer back.
    pub fn give(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes >= LEAST_BYTES
            && let Ok(mut waiting) = self.0.lock()
            && waiting.bytes + bytes <= MOST_WAITING
        {
            waiting.bytes += bytes;
            waiting.buffers.push(buffer);
        }
    }

    /// The bytes of a buffer, which returns to the pool when they are dropped.
    pub fn share(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Shared { buffer, pool: self.clone() })
    }
}

/// A buffer that returns to its pool when it is dropped.
struct Shared {
    buffer: Vec<u8>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_buffer_comes_back_when_it_is_dropped() {
        let pool = Arc::new(Pool::default());
        let bytes = pool.share(vec![7; LEAST_BYTES]);
        let part = bytes.slice(5..9);
        drop(bytes);
        assert!(pool.take(1).is_empty());
        assert_eq!(part, [7; 4].as_slice());
        drop(part);
        assert_eq!(pool.take(1), vec![7; LEAST_BYTES]);
        assert!(pool.take(1).is_empty());
    }

    #[test]
    fn the_smallest_buffer_with_room_is_taken() {
        let pool = Pool::default();
        for size in [3, 1, 2] {
            pool.give(vec![0; size * LEAST_BYTES]);
        }
        assert_eq!(pool.take(LEAST_BYTES + 1).len(), 2 * LEAST_BYTES);
        assert_eq!(pool.take(LEAST_BYTES + 1).len(), 3 * LEAST_BYTES);
        let new = pool.take(LEAST_BYTES + 1);
        assert_eq!((new.len(), new.capacity()), (0, STEP_BYTES));
        assert_eq!(pool.take(0).len(), LEAST_BYTES);
    }

    #[test]
    fn few_bytes_wait() {
        let pool = Pool::default();
        pool.give(vec![0; LEAST_BYTES - 1]);
        assert!(pool.waiting(0).is_none());
        (0..5).for_each(|_| pool.give(vec![0; MOST_WAITING / 4]));
        assert_eq!(std::iter::from_fn(|| pool.waiting(0)).count(), 4);
        pool.give(vec![0; MOST_WAITING]);
        assert_eq!(pool.take(0).len(), MOST_WAITING);
    }
}
