//! Collects bytes in pieces of memory that are reused: a single growing buffer would be copied again and again.

use std::sync::Arc;

use bytes::Bytes;

use crate::pool::Pool;

/// The bytes of a piece, except of the first.
const CHUNK_BYTES: usize = 256 * 1024;
/// The bytes of the first piece: most leaves have few bytes.
const FIRST_CHUNK_BYTES: usize = 4 * 1024;

/// A growing sequence of bytes.
pub(crate) struct ChunkedBuffer {
    pool: Arc<Pool>,
    pieces: Vec<Vec<u8>>,
    length: usize,
}

impl ChunkedBuffer {
    /// An empty sequence.
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: pool.clone(), pieces: Vec::new(), length: 0 }
    }

    /// The pool of their memory.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len();
        while !bytes.is_empty() {
            match self.pieces.last_mut().filter(|last| last.len() < last.capacity()) {
                Some(last) => {
                    let (now, later) = bytes.split_at(bytes.len().min(last.capacity() - last.len()));
                    last.extend_from_slice(now);
                    bytes = later;
                }
                None => self.grow(),
            }
        }
    }

    /// Adds an empty piece.
    fn grow(&mut self) {
        let mut bytes = match self.length {
            small @ ..CHUNK_BYTES => Vec::with_capacity(small.max(FIRST_CHUNK_BYTES)),
            _ => self.pool.take(CHUNK_BYTES),
        };
        bytes.clear();
        self.pieces.push(bytes);
    }

    /// Takes all pieces, in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        self.length = 0;
        let pool = self.pool.clone();
        std::mem::take(&mut self.pieces).into_iter().map(move |piece| pool.shared_bytes(piece))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// Nothing is lost, and memory that was used holds nothing of what was in it.
        #[test]
        fn what_is_pushed_is_taken(lengths in prop::collection::vec(0..300_000_usize, 0..12)) {
            let pool = Arc::new(Pool::default());
            for round in 0..2_u8 {
                let mut pieces = ChunkedBuffer::new(&pool);
                let all: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| at as u8 ^ round).collect();
                let mut rest = all.as_slice();
                for length in &lengths {
                    let (now, later) = rest.split_at(*length);
                    pieces.push(now);
                    rest = later;
                }
                prop_assert_eq!(pieces.len(), all.len());
                let taken: Vec<Bytes> = pieces.take().collect();
                prop_assert!(pieces.len() == 0 && taken.concat() == all);
            }
        }
    }

    #[test]
    fn pieces_are_used_again() {
        let pool = Arc::new(Pool::default());
        let mut pieces = ChunkedBuffer::new(&pool);
        pieces.push(&vec![1; 5 * CHUNK_BYTES]);
        let all: Vec<Bytes> = pieces.take().collect();
        assert!(pool.take(0).is_empty());
        drop(all);
        assert!((0..4).all(|_| !pool.take(CHUNK_BYTES).is_empty()));
    }
}
