//! Integers of a leaf of which few are needed, kept much as they are in the file: codes stay packed, and are looked up one
//! by one when they are needed.
//!
//! Invariant: a requested row is what the parquet crate returns
//! (`decode::tests::leaves_are_decoded_as_by_the_general_decoder`). Other rows are not checked: a code that is in
//! no dictionary is refused when it is needed.

use arrow_array::Int64Array;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use parquet::basic::Type as PhysicalType;

use super::chunk::{Chunk, Decoded, Failure, NO_SUCH_ENTRY, SPARSE_RATIO, Scratch, buffer_with_capacity, with_scratch};
use super::hybrid::Runs;
use super::page::{Encoding, NextPage, PageReader};
use super::values::{CUT_OFF, count_defined, nulls, spread};

/// Bytes of a number, and of a difference.
const NUMBER_BYTES: usize = size_of::<i64>();
const DIFFERENCE_BYTES: usize = size_of::<u32>();

/// 64-bit integers, kept as codes where the file has codes.
#[derive(Debug)]
pub struct DictionaryEncoded {
    rows: usize,
    nulls: Option<NullBuffer>,
    dictionary: Option<Numbers>,
    pages: Vec<Values>,
    memory: Vec<u8>,
}

/// Numbers one after the other.
#[derive(Debug)]
struct Numbers {
    start: usize,
    count: usize,
    /// The least number, if the others are stored as differences from it.
    least: Option<i64>,
}

/// Values of a page.
#[derive(Debug)]
struct Values {
    count: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain(Numbers),
    /// Codes of so many bits, and the place of their runs.
    Coded {
        width: u32,
        start: usize,
        end: usize,
    },
}

/// The most bytes of runs of codes, and how many more for each value: bytes after them are not kept.
const BASE_RUN_BYTES: usize = 64;
const RUN_BYTES_PER_VALUE: usize = 5;

/// The bytes that a leaf is likely to take, if its numbers need few bits.
fn expected_memory(chunk: Chunk<'_>) -> usize {
    let are_distinct = chunk.size >= chunk.rows.saturating_mul(NUMBER_BYTES);
    chunk.expected_bytes().saturating_sub(if are_distinct {
        chunk.rows.saturating_mul(NUMBER_BYTES - DIFFERENCE_BYTES)
    } else {
        0
    })
}

impl Numbers {
    /// Appends the `count` numbers at the beginning of `data`.
    fn append(data: &[u8], count: usize, memory: &mut Vec<u8>) -> Decoded<Self> {
        let (numbers, _) = data.as_chunks::<NUMBER_BYTES>();
        let numbers = numbers.get(..count).ok_or(CUT_OFF)?;
        let start = memory.len();
        let (least, most) = numbers.iter().fold((i64::MAX, i64::MIN), |(least, most), bytes| {
            let number = i64::from_le_bytes(*bytes);
            (least.min(number), most.max(number))
        });
        let is_narrow = most.checked_sub(least).is_some_and(|spread| spread <= i64::from(u32::MAX));
        if !is_narrow {
            memory.extend_from_slice(numbers.as_flattened());
            return Ok(Self { start, count, least: None });
        }
        let difference =
            |bytes: &[u8; NUMBER_BYTES]| (i64::from_le_bytes(*bytes).wrapping_sub(least) as u32).to_le_bytes();
        memory.extend(numbers.iter().flat_map(difference));
        Ok(Self { start, count, least: Some(least) })
    }

    fn number(&self, at: usize, memory: &[u8]) -> Option<i64> {
        if at >= self.count {
            return None;
        }
        let front = |width: usize| memory.get(self.start + at * width..);
        match self.least {
            Some(least) => {
                Some(least.wrapping_add(u32::from_le_bytes(*front(DIFFERENCE_BYTES)?.first_chunk()?).into()))
            }
            None => Some(i64::from_le_bytes(*front(NUMBER_BYTES)?.first_chunk()?)),
        }
    }
}

impl DictionaryEncoded {
    /// Reads the numbers of a leaf, unless they have an unusual encoding.
    pub fn read(chunk: Chunk<'_>) -> Decoded<Self> {
        if chunk.physical != PhysicalType::INT64 {
            return Err(Failure::Unsupported);
        }
        with_scratch(|scratch| {
            let Scratch { page: buffer, dictionary, .. } = scratch;
            let (mut pages, known) = PageReader::new(chunk, None, dictionary)?;
            // A leaf whose dictionary has more values than rows is left to the parquet crate: unused values would be kept.
            if known.as_ref().is_some_and(|page| page.values > chunk.rows) {
                return Err(Failure::Unsupported);
            }
            let mut memory = buffer_with_capacity(expected_memory(chunk))?;
            let dictionary = known.map(|page| Numbers::append(page.data, page.values, &mut memory)).transpose()?;
            let (mut valid, mut found) = (BooleanBufferBuilder::new(chunk.rows), Vec::new());
            while let Some(NextPage::Read(compressed)) = pages.next_page()? {
                let page = compressed.open(chunk, buffer)?;
                let defined = page.defined(chunk, chunk.max_definition)?;
                let count = defined.count_set_bits();
                valid.append_buffer(&defined);
                let kind = match page.encoding {
                    Encoding::Plain => Kind::Plain(Numbers::append(page.data, count, &mut memory)?),
                    Encoding::Dictionary if dictionary.is_some() => {
                        let (width, runs) = page.data.split_first().unwrap_or((&0, &[]));
                        if runs.len() > BASE_RUN_BYTES.saturating_add(count.saturating_mul(RUN_BYTES_PER_VALUE)) {
                            return Err(Failure::Unsupported);
                        }
                        let start = memory.len();
                        memory.extend_from_slice(runs);
                        Kind::Coded { width: u32::from(*width), start, end: memory.len() }
                    }
                    Encoding::Dictionary | Encoding::Rle | Encoding::Other => return Err(Failure::Unsupported),
                };
                found.push(Values { count, kind });
            }
            memory.shrink_to_fit();
            Ok(Self { rows: valid.len(), nulls: nulls(valid), dictionary, pages: found, memory })
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.buffer().capacity());
        self.memory.capacity() + nulls + size_of::<Values>() * self.pages.capacity()
    }

    /// The numbers at `rows`, which ascend; `count` is how many there are.
    pub fn numbers(&self, rows: impl Iterator<Item = usize>, count: usize) -> Decoded<Int64Array> {
        let mut places = Vec::with_capacity(count);
        let mut valid = BooleanBufferBuilder::new(count);
        // How many values there are before a row.
        let (mut before, mut counted) = (0, 0);
        for row in rows {
            before += count_defined(self.nulls.as_ref(), counted, row);
            counted = row;
            let is_defined = count_defined(self.nulls.as_ref(), row, row + 1) > 0;
            valid.append(is_defined);
            if is_defined {
                places.push(before);
            }
        }
        let mut numbers = self.at(&places)?;
        let valid = valid.finish();
        spread(&mut numbers, 0, &valid, 0);
        let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
        Ok(Int64Array::new(numbers.into(), nulls))
    }

    /// The values at these indexes, which ascend.
    fn at(&self, mut places: &[usize]) -> Decoded<Vec<i64>> {
        let (mut numbers, mut first) = (Vec::with_capacity(places.len()), 0);
        for page in &self.pages {
            let end = first + page.count;
            let (here, rest) = places.split_at(places.partition_point(|place| *place < end));
            let of_page: Vec<usize> = here.iter().map(|place| place - first).collect();
            self.of_page(page, &of_page, &mut numbers)?;
            (places, first) = (rest, end);
        }
        if places.is_empty() { Ok(numbers) } else { Err(CUT_OFF) }
    }

    /// Appends the values at these indexes of a page.
    fn of_page(&self, page: &Values, places: &[usize], out: &mut Vec<i64>) -> Decoded<()> {
        if places.is_empty() {
            return Ok(());
        }
        let (numbers, codes, beyond) = match &page.kind {
            Kind::Plain(numbers) => (numbers, None, CUT_OFF),
            Kind::Coded { width, start, end } => {
                let runs = Runs::new(self.memory.get(*start..*end).ok_or(CUT_OFF)?, *width, page.count)?;
                let dictionary = self.dictionary.as_ref().ok_or(NO_SUCH_ENTRY)?;
                (dictionary, Some(some(runs, page.count, places)?), NO_SUCH_ENTRY)
            }
        };
        for place in codes.as_deref().unwrap_or(places) {
            out.push(numbers.number(*place, &self.memory).ok_or(beyond)?);
        }
        Ok(())
    }
}

/// The codes at these indexes, of `count` codes.
fn some(runs: Runs<'_>, count: usize, places: &[usize]) -> Decoded<Vec<usize>> {
    let mut codes = Vec::with_capacity(places.len());
    if places.len() < count / SPARSE_RATIO {
        runs.some(places.iter().copied(), &mut codes)?;
        return Ok(codes.into_iter().map(|code| code as usize).collect());
    }
    runs.numbers(&mut codes)?;
    places.iter().map(|place| codes.get(*place).map(|code| *code as usize).ok_or(CUT_OFF)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Numbers are what they were, and narrow ones take half the room.
        #[test]
        fn numbers_that_are_appended_come_back(
            least in any::<i64>(),
            spread in prop_oneof![Just(0), Just(u64::from(u32::MAX)), Just(1 << 32), any::<u64>()],
            places in prop::collection::vec(any::<u64>(), 1..50),
            before in 0..9_usize,
        ) {
            let greatest = least.saturating_add_unsigned(spread);
            let apart = greatest.abs_diff(least);
            let inside = |place: u64| least.wrapping_add_unsigned(apart.checked_add(1).map_or(place, |all| place % all));
            let numbers: Vec<i64> = [greatest, least].into_iter().chain(places.into_iter().map(inside)).collect();
            let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let mut memory = vec![1; before];
            prop_assert_eq!(Numbers::append(&data, numbers.len() + 1, &mut memory).err(), Some(CUT_OFF));
            let appended = Numbers::append(&data, numbers.len(), &mut memory).unwrap();
            let width = if apart <= u64::from(u32::MAX) { DIFFERENCE_BYTES } else { NUMBER_BYTES };
            prop_assert_eq!(memory.len(), before + numbers.len() * width);
            for (at, number) in numbers.iter().enumerate() {
                prop_assert_eq!(appended.number(at, &memory), Some(*number));
            }
            prop_assert_eq!(appended.number(numbers.len(), &memory), None);
        }
    }
}
