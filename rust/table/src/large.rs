//! Large buffers, in huge pages where the system has them.
//!
//! A system hands out fresh memory page by page, and clears each when it is touched first: for many bytes this takes
//! about as long as decompressing them does, and less the larger the pages are. The allocator is not told to use huge ones
//! for everything, as it would clear much that nobody needs.

use std::io::{self, Read};

use bytes::Bytes;
use memmap2::MmapMut;

/// The size of a huge page on most systems. Others only lose the gain.
const HUGE_PAGE: usize = 2 * 1024 * 1024;

/// For fewer bytes the system is not asked.
const WORTH_ASKING: usize = 64 * 1024;

/// Bytes that are appended.
#[derive(Debug)]
pub(crate) enum Large {
    /// Few bytes, as any others.
    Few(Vec<u8>),
    /// Memory of its own, which takes none where it was never touched, and how many bytes are in it.
    Mapped(MmapMut, usize),
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
        if room < HUGE_PAGE / 2 {
            let mut few = Vec::new();
            few.try_reserve_exact(room)?;
            return Ok(Self::Few(few));
        }
        // Room for whole huge pages is laid out at their bounds. The last one is not asked for if less than half of it is
        // needed: to be given half of it in small pages takes longer than to have it cleared as a whole.
        let mapped = MmapMut::map_anon(room.checked_next_multiple_of(HUGE_PAGE).unwrap_or(room))?;
        #[cfg(target_os = "linux")]
        {
            let in_huge_pages = room.saturating_add(HUGE_PAGE / 2) / HUGE_PAGE * HUGE_PAGE;
            // A system without huge pages says so, and nothing is lost.
            let _ = mapped.advise_range(memmap2::Advice::HugePage, 0, in_huge_pages);
        }
        Ok(Self::Mapped(mapped, 0))
    }

    /// Nothing, with room for so many bytes, all of which will come: the system hands it out at once, which takes less
    /// time than one page after the other. Not in huge pages, which may be dearer than that for bytes that are read once.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn to_fill(room: usize) -> io::Result<Self> {
        if room < WORTH_ASKING {
            return Self::with_room(room);
        }
        let mapped = MmapMut::map_anon(room)?;
        // A system that cannot do so does it page by page.
        #[cfg(target_os = "linux")]
        let _ = mapped.advise(memmap2::Advice::PopulateWrite);
        Ok(Self::Mapped(mapped, 0))
    }

    /// How many bytes fit.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Few(few) => few.capacity(),
            Self::Mapped(mapped, _) => mapped.len(),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Mapped(_, length) => *length,
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
            Self::Mapped(mapped, length) if end <= mapped.len() => {
                mapped.get_mut(*length..end).unwrap_or_default().copy_from_slice(bytes);
                *length = end;
            }
            _ => {
                self.grow(end)?;
                self.extend(bytes)?;
            }
        }
        Ok(())
    }

    /// Appends what is written to the front of so much room, which is as long as `write` says.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn extend_with<T, E>(
        &mut self,
        room: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(usize, T), E>,
    ) -> io::Result<Result<T, E>> {
        let (start, end) = (self.len(), self.len().saturating_add(room));
        if end > self.room() {
            self.grow(end)?;
        }
        let written = match self {
            Self::Few(few) => {
                few.resize(end, 0);
                write(few.get_mut(start..).unwrap_or_default())
            }
            Self::Mapped(mapped, _) => write(mapped.get_mut(start..end).unwrap_or_default()),
        };
        let length = written.as_ref().map_or(0, |(length, _)| *length);
        match self {
            Self::Few(few) => few.truncate(start.saturating_add(length)),
            Self::Mapped(_, whole) => *whole = end.min(start.saturating_add(length)),
        }
        Ok(written.map(|(_, made)| made))
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
            Self::Mapped(mapped, length) => {
                let end = length.saturating_add(most).min(mapped.len());
                while *length < end {
                    match source.read(mapped.get_mut(*length..end).unwrap_or_default()) {
                        Ok(0) => break,
                        Ok(read) => *length += read,
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
            Self::Mapped(mapped, _) => mapped.copy_within(length..all, 0),
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
            Self::Mapped(_, whole) => *whole = length.min(*whole),
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
            Self::Mapped(mapped, length) => mapped.get(..*length).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn numbered(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn bytes_are_those_that_were_appended() {
        for room in [0, 10, HUGE_PAGE - 1, HUGE_PAGE, 5 * HUGE_PAGE / 2] {
            for length in [0, 7, HUGE_PAGE / 2, 3 * HUGE_PAGE] {
                let expected = numbered(length);
                for mut large in [Large::with_room(room).unwrap(), Large::to_fill(room).unwrap()] {
                    assert!(large.room() >= room);
                    expected.chunks(100_003).for_each(|chunk| large.extend(chunk).unwrap());
                    assert!(large.as_ref() == expected, "{length} in {room}");
                    large.truncate(length + 1);
                    large.extend(b"no more").unwrap();
                    large.truncate(length);
                    large.reserve(HUGE_PAGE).unwrap();
                    assert!(large.room() >= length + HUGE_PAGE);
                    large.drop_front(length / 3);
                    let expected = expected.get(length / 3..).unwrap();
                    assert!(large.as_ref() == expected && large.into_bytes() == expected, "{length} in {room}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_those_that_were_written() {
        for room in [0, 10, HUGE_PAGE - 1, HUGE_PAGE] {
            let (mut large, mut expected) = (Large::with_room(room).unwrap(), Vec::new());
            for length in [7, 0, HUGE_PAGE / 2, HUGE_PAGE, 3] {
                let bytes = numbered(length);
                let written = large.extend_with(length + 5, |to| {
                    assert!(to.len() == length + 5);
                    to[..length].copy_from_slice(&bytes);
                    Ok::<_, ()>((length, "made"))
                });
                assert_eq!(written.unwrap(), Ok("made"));
                expected.extend(bytes);
                assert!(large.as_ref() == expected, "{length} more in {room}");
                // What fails leaves nothing.
                let failed = large.extend_with(9, |to| {
                    to.fill(1);
                    Err::<(usize, ()), _>("broken")
                });
                assert_eq!(failed.unwrap(), Err("broken"));
                assert!(large.as_ref() == expected, "after {length} more in {room}");
            }
        }
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
        for room in [10, HUGE_PAGE - 1, HUGE_PAGE, 5 * HUGE_PAGE / 2] {
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
