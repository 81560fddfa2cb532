//! Bytes on their way to a file, in pieces of memory that are used again: what grows in one is copied again and again.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::memory::Pool;

/// Bytes of a piece, once there are that many.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of the first one: most leaves are a few bytes.
const LEAST_BYTES: usize = 4 * 1024;

/// Bytes that grow.
pub(super) struct Pieces {
    pool: Arc<Pool>,
    pieces: Vec<Vec<u8>>,
    length: usize,
}

impl Pieces {
    /// None yet.
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: pool.clone(), pieces: Vec::new(), length: 0 }
    }

    /// Where their memory comes from.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
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

    /// With an empty piece behind the others.
    fn grow(&mut self) {
        let mut bytes = match self.length {
            small @ ..PIECE_BYTES => Vec::with_capacity(small.max(LEAST_BYTES)),
            _ => self.pool.take(PIECE_BYTES),
        };
        bytes.clear();
        self.pieces.push(bytes);
    }

    /// All of them, one behind the other. None is left.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        self.length = 0;
        let pool = self.pool.clone();
        std::mem::take(&mut self.pieces).into_iter().map(move |piece| pool.share(piece))
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that are read.
#[derive(Clone, Default)]
pub(super) struct Joined {
    pieces: VecDeque<Bytes>,
}

impl Joined {
    /// These, one behind the other.
    pub(super) fn of(pieces: impl Iterator<Item = Bytes>) -> Self {
        Self { pieces: pieces.filter(|piece| !piece.is_empty()).collect() }
    }

    fn advance(&mut self, mut by: usize) {
        while by > 0
            && let Some(first) = self.pieces.front_mut()
        {
            let some = by.min(first.len());
            first.advance(some);
            by -= some;
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}

impl Length for Joined {
    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl ChunkReader for Joined {
    type T = Self;

    fn get_read(&self, start: u64) -> Result<Self, ParquetError> {
        let mut rest = self.clone();
        rest.advance(usize::try_from(start)?);
        Ok(rest)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

impl Read for Joined {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(first) = self.pieces.front() else { return Ok(0) };
        let some = first.len().min(to.len());
        if let Some((to, from)) = to.get_mut(..some).zip(first.get(..some)) {
            to.copy_from_slice(from);
        }
        self.advance(some);
        Ok(some)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// What was written is read, from wherever, and memory that was used holds nothing of it.
        #[test]
        fn what_is_pushed_is_read(lengths in prop::collection::vec(0..300_000_usize, 0..12), from in 0..100_usize) {
            let pool = Arc::new(Pool::default());
            for round in 0..2_u8 {
                let mut pieces = Pieces::new(&pool);
                let all: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| at as u8 ^ round).collect();
                let mut rest = all.as_slice();
                for length in &lengths {
                    let (now, later) = rest.split_at(*length);
                    pieces.write_all(now).unwrap();
                    rest = later;
                }
                prop_assert_eq!(pieces.len(), all.len());
                let joined = Joined::of(pieces.take());
                prop_assert_eq!((pieces.len(), joined.len()), (0, all.len() as u64));
                let start = all.len() * from / 100;
                let mut read = Vec::new();
                joined.get_read(start as u64).unwrap().read_to_end(&mut read).unwrap();
                prop_assert!(read == all[start..]);
                prop_assert!(joined.get_bytes(0, start).unwrap() == all[..start]);
            }
        }
    }

    #[test]
    fn pieces_are_used_again() {
        let pool = Arc::new(Pool::default());
        let mut pieces = Pieces::new(&pool);
        pieces.push(&vec![1; 5 * PIECE_BYTES]);
        let all: Vec<Bytes> = pieces.take().collect();
        assert!(pool.take(0).is_empty());
        drop(all);
        assert!((0..4).all(|_| !pool.take(PIECE_BYTES).is_empty()));
    }
}
