//! Large buffers, whose memory the system hands out shortly before it is written to, many pages at once.
//!
//! A system hands out fresh memory page by page, and clears each when it is touched first: for many bytes this takes
//! about as long as decompressing them does, and less if many pages are asked for at once. Huge pages would take less still
//! where they are at hand, and many times as much on a virtual machine whose host has taken them back meanwhile, as hosts
//! do with those that are free.

use std::io::{self, Read};

use bytes::Bytes;
use memmap2::MmapMut;

/// For fewer bytes the system is not asked: the allocator may have some that were used before. It hardly does for bytes
/// that are all kept.
const WORTH_ASKING: usize = 1024 * 1024;
const WORTH_ASKING_TO_KEEP: usize = 64 * 1024;

/// Room comes in multiples of this: some to spare takes no memory, and whoever needs a little more need not copy all.
const SPARE: usize = 2 * 1024 * 1024;

/// Memory is asked for in pieces of so many bytes at least, and no further ahead of what is there than so many: room may
/// be far more than is written to.
const STEP: usize = 128 * 1024;
const AHEAD: usize = 4 * 1024 * 1024;

/// Bytes that are appended.
#[derive(Debug)]
pub(crate) enum Large {
    /// Few bytes, as any others.
    Few(Vec<u8>),
    /// Memory of its own.
    Mapped(Mapped),
}

/// Memory that takes none where it was never touched.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: MmapMut,
    /// How many bytes are in it.
    length: usize,
    /// How far it was asked for.
    asked: usize,
}

impl Mapped {
    fn new(room: usize) -> io::Result<Self> {
        Ok(Self { memory: MmapMut::map_anon(room)?, length: 0, asked: 0 })
    }

    /// The room behind the bytes, up to `end`, to be written to.
    #[inline]
    fn room(&mut self, end: usize) -> &mut [u8] {
        let soon = end.min(self.length.saturating_add(AHEAD));
        if soon > self.asked {
            self.ask(soon);
        }
        self.memory.get_mut(self.length..end).unwrap_or_default()
    }

    #[cold]
    fn ask(&mut self, end: usize) {
        let to = end.checked_next_multiple_of(STEP).unwrap_or(end).min(self.memory.len());
        // A system that cannot do so does it page by page.
        #[cfg(target_os = "linux")]
        let _ = self.memory.advise_range(memmap2::Advice::PopulateWrite, self.asked, to - self.asked);
        self.asked = to;
    }
}

impl Default for Large {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Large {
    /// Nothing, with room for so many bytes.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn with_room(room: usize) -> io::Result<Self> {
        match room < WORTH_ASKING {
            true => Self::few(room),
            false => Mapped::new(room.checked_next_multiple_of(SPARE).unwrap_or(room)).map(Self::Mapped),
        }
    }

    /// The same for bytes of which all will come, none more, and be kept.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn to_keep(room: usize) -> io::Result<Self> {
        if room < WORTH_ASKING_TO_KEEP { Self::few(room) } else { Mapped::new(room).map(Self::Mapped) }
    }

    fn few(room: usize) -> io::Result<Self> {
        let mut few = Vec::new();
        few.try_reserve_exact(room)?;
        Ok(Self::Few(few))
    }

    /// How many bytes fit.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Few(few) => few.capacity(),
            Self::Mapped(mapped) => mapped.memory.len(),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Mapped(mapped) => mapped.length,
        }
    }

    /// Appends bytes, in twice the room if they do not fit.
    ///
    /// # Errors
    /// There is not so much memory.
    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.len().saturating_add(bytes.len());
        match self {
            Self::Few(few) if end <= few.capacity() => few.extend_from_slice(bytes),
            Self::Mapped(mapped) if end <= mapped.memory.len() => {
                mapped.room(end).copy_from_slice(bytes);
                mapped.length = end;
            }
            _ => {
                self.grow(end)?;
                self.extend(bytes)?;
            }
        }
        Ok(())
    }

    /// Makes room for so many bytes more.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn reserve(&mut self, more: usize) -> io::Result<()> {
        let end = self.len().saturating_add(more);
        if end > self.room() { self.grow(end) } else { Ok(()) }
    }

    /// Makes room for so many bytes, twice as much as there was at least.
    fn grow(&mut self, room: usize) -> io::Result<()> {
        let mut larger = Self::with_room(room.max(self.room().saturating_mul(2)))?;
        larger.extend(self.as_ref())?;
        *self = larger;
        Ok(())
    }

    /// Appends what `source` has, as far as there is room, and `most` bytes at most.
    pub(crate) fn read_from(&mut self, source: &mut impl Read, most: usize) -> io::Result<()> {
        match self {
            Self::Few(few) => {
                let most = most.min(few.capacity() - few.len());
                source.take(most as u64).read_to_end(few).map(drop)
            }
            Self::Mapped(mapped) => {
                let end = mapped.length.saturating_add(most).min(mapped.memory.len());
                while mapped.length < end {
                    match source.read(mapped.room(end)) {
                        Ok(0) => break,
                        Ok(read) => mapped.length += read,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
        }
    }

    /// Forgets the first `length` bytes, not the room: those behind them are the first then.
    pub(crate) fn drop_front(&mut self, length: usize) {
        let all = self.len();
        let length = length.min(all);
        if length == 0 {
            return;
        }
        match self {
            Self::Few(few) => drop(few.drain(..length)),
            Self::Mapped(mapped) => mapped.memory.copy_within(length..all, 0),
        }
        self.truncate(all - length);
    }

    /// Forgets the bytes, not the room.
    pub(crate) fn clear(&mut self) {
        self.truncate(0);
    }

    /// Forgets the bytes after the first `length`, not the room.
    pub(crate) fn truncate(&mut self, length: usize) {
        match self {
            Self::Few(few) => few.truncate(length),
            Self::Mapped(mapped) => mapped.length = length.min(mapped.length),
        }
    }

    /// The bytes, which are not copied.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Few(few) => few.into(),
            mapped => Bytes::from_owner(mapped),
        }
    }
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Few(few) => few,
            Self::Mapped(mapped) => mapped.memory.get(..mapped.length).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// More than is asked for at once.
    const MANY: usize = 2 * WORTH_ASKING;

    fn numbered(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn bytes_are_those_that_were_appended() {
        for room in [0, 10, WORTH_ASKING - 1, MANY, 5 * MANY / 2] {
            for length in [0, 7, MANY / 2, 3 * MANY] {
                let expected = numbered(length);
                for mut large in [Large::with_room(room).unwrap(), Large::to_keep(room).unwrap()] {
                    assert!(large.room() >= room);
                    expected.chunks(100_003).for_each(|chunk| large.extend(chunk).unwrap());
                    assert!(large.as_ref() == expected, "{length} in {room}");
                    large.truncate(length + 1);
                    large.extend(b"no more").unwrap();
                    large.truncate(length);
                    large.reserve(MANY).unwrap();
                    assert!(large.room() >= length + MANY);
                    large.drop_front(length / 3);
                    let expected = expected.get(length / 3..).unwrap();
                    assert!(large.as_ref() == expected && large.into_bytes() == expected, "{length} in {room}");
                }
            }
        }
    }

    #[test]
    fn room_that_is_not_written_to_is_hardly_asked_for() {
        let mut large = Large::with_room(100 * MANY).unwrap();
        large.extend(&numbered(10)).unwrap();
        assert!(matches!(large, Large::Mapped(Mapped { asked: STEP, length: 10, .. })));
        large.extend(&numbered(AHEAD)).unwrap();
        assert!(matches!(large, Large::Mapped(Mapped { asked, .. }) if asked == AHEAD + STEP));
    }

    /// Gives little at a time, and is interrupted.
    struct Slow<'s>(&'s [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let few = to.len().min(60_001);
            self.0.read(&mut to[..few])
        }
    }

    #[test]
    fn bytes_are_those_that_were_read() {
        for room in [10, WORTH_ASKING - 1, MANY, 5 * MANY / 2] {
            for most in [0, 7, room / 2, room] {
                let source = numbered(room + 1);
                let mut large = Large::with_room(room).unwrap();
                // What was in it before does not matter.
                large.extend(b"?").unwrap();
                large.clear();
                large.read_from(&mut Slow(&source, false), most).unwrap();
                assert_eq!(large.as_ref(), &source[..most], "{most} in {room}");
                large.clear();
                large.read_from(&mut Slow(&source[..most / 2], false), most).unwrap();
                assert_eq!(large.as_ref(), &source[..most / 2], "half of {most} in {room}");
            }
        }
    }
}
