//! Large buffers that are used again.
//!
//! Whoever asks the system for fresh memory waits until it is cleared; a checkpoint of many files would do so for every
//! one of its bytes, several times.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// Buffers that wait take no more bytes than this, and each no fewer than that.
const MOST_WAITING: usize = 16 * 1024 * 1024;
const LEAST_BYTES: usize = 32 * 1024;

/// Buffers that wait to be used.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A buffer as it was given back, with whatever is in it.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let mut waiting = self.0.lock().ok()?;
        let buffer = waiting.buffers.pop()?;
        waiting.bytes -= buffer.capacity();
        Some(buffer)
    }

    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes >= LEAST_BYTES
            && let Ok(mut waiting) = self.0.lock()
            && waiting.bytes + bytes <= MOST_WAITING
        {
            waiting.bytes += bytes;
            waiting.buffers.push(buffer);
        }
    }

    /// The bytes of a buffer, which is given back when nobody has them any more.
    pub(crate) fn share(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Shared { buffer, pool: self.clone() })
    }
}

/// A buffer that comes back to its pool.
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
    fn a_shared_buffer_comes_back_when_nobody_has_it() {
        let pool = Arc::new(Pool::default());
        let bytes = pool.share(vec![7; LEAST_BYTES]);
        let part = bytes.slice(5..9);
        drop(bytes);
        assert!(pool.take().is_none());
        assert_eq!(part, [7; 4].as_slice());
        drop(part);
        assert_eq!(pool.take().unwrap(), vec![7; LEAST_BYTES]);
        assert!(pool.take().is_none());
    }

    #[test]
    fn few_bytes_wait() {
        let pool = Pool::default();
        pool.give(vec![0; LEAST_BYTES - 1]);
        assert!(pool.take().is_none());
        (0..5).for_each(|_| pool.give(vec![0; MOST_WAITING / 4]));
        assert_eq!(std::iter::from_fn(|| pool.take()).count(), 4);
        pool.give(vec![0; MOST_WAITING]);
        assert_eq!(pool.take().unwrap().len(), MOST_WAITING);
    }
}
