//! A pool of large buffers, which are reused.
//!
//! The system clears new memory page by page; a large checkpoint would wait for that for each of its bytes,
//! several times.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// The most bytes of all unused buffers, and the fewest bytes of one.
const MAX_FREE_BYTES: usize = 16 * 1024 * 1024;
const MIN_BUFFER_BYTES: usize = 32 * 1024;
/// Buffers are allocated in multiples of this, so that one fits the next contents of about the same length.
const STEP_BYTES: usize = 64 * 1024;

/// The unused buffers.
#[derive(Debug, Default)]
pub struct Pool(Mutex<FreeBuffers>);

#[derive(Debug, Default)]
struct FreeBuffers {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// The smallest unused buffer of this capacity, with its old contents; or a new one.
    pub fn take(&self, capacity: usize) -> Vec<u8> {
        self.take_free(capacity)
            .unwrap_or_else(|| Vec::with_capacity(capacity.checked_next_multiple_of(STEP_BYTES).unwrap_or(capacity)))
    }

    fn take_free(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut free = self.0.lock().ok()?;
        let capacities = free.buffers.iter().map(Vec::capacity).enumerate();
        let (at, bytes) = capacities.filter(|(_, bytes)| *bytes >= capacity).min_by_key(|(_, bytes)| *bytes)?;
        free.bytes -= bytes;
        Some(free.buffers.swap_remove(at))
    }

    /// Takes a buffer back.
    pub fn put_back(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes >= MIN_BUFFER_BYTES
            && let Ok(mut free) = self.0.lock()
            && free.bytes + bytes <= MAX_FREE_BYTES
        {
            free.bytes += bytes;
            free.buffers.push(buffer);
        }
    }

    /// The bytes of a buffer, which returns to the pool when they are dropped.
    pub fn shared_bytes(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(PooledBuffer { buffer, pool: self.clone() })
    }
}

/// A buffer that returns to its pool when it is dropped.
struct PooledBuffer {
    buffer: Vec<u8>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_buffer_comes_back_when_it_is_dropped() {
        let pool = Arc::new(Pool::default());
        let bytes = pool.shared_bytes(vec![7; MIN_BUFFER_BYTES]);
        let part = bytes.slice(5..9);
        drop(bytes);
        assert!(pool.take(1).is_empty());
        assert_eq!(part, [7; 4].as_slice());
        drop(part);
        assert_eq!(pool.take(1), vec![7; MIN_BUFFER_BYTES]);
        assert!(pool.take(1).is_empty());
    }

    #[test]
    fn the_smallest_buffer_with_room_is_taken() {
        let pool = Pool::default();
        for size in [3, 1, 2] {
            pool.put_back(vec![0; size * MIN_BUFFER_BYTES]);
        }
        assert_eq!(pool.take(MIN_BUFFER_BYTES + 1).len(), 2 * MIN_BUFFER_BYTES);
        assert_eq!(pool.take(MIN_BUFFER_BYTES + 1).len(), 3 * MIN_BUFFER_BYTES);
        let new = pool.take(MIN_BUFFER_BYTES + 1);
        assert_eq!((new.len(), new.capacity()), (0, STEP_BYTES));
        assert_eq!(pool.take(0).len(), MIN_BUFFER_BYTES);
    }

    #[test]
    fn few_bytes_wait() {
        let pool = Pool::default();
        pool.put_back(vec![0; MIN_BUFFER_BYTES - 1]);
        assert!(pool.take_free(0).is_none());
        (0..5).for_each(|_| pool.put_back(vec![0; MAX_FREE_BYTES / 4]));
        assert_eq!(std::iter::from_fn(|| pool.take_free(0)).count(), 4);
        pool.put_back(vec![0; MAX_FREE_BYTES]);
        assert_eq!(pool.take(0).len(), MAX_FREE_BYTES);
    }
}
