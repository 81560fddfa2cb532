//! Values of pages: numbers of a fixed width, and strings, either with their lengths before them or by codes.
//!
//! Parquet format: "Plain", "Dictionary Encoding".

use arrow_buffer::bit_chunk_iterator::UnalignedBitChunk;
use arrow_buffer::{ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, NullBuffer};

use super::chunk::{Decoded, Failure, NO_SUCH_ENTRY};
use super::page::{Encoding, Page};

pub(super) const CUT_OFF: Failure = Failure::Corrupt("the values of a page are cut off");

/// A number with the same width in Parquet and in memory.
pub(super) trait Number: ArrowNativeType {
    /// Appends the `count` numbers at the beginning of `data`.
    fn plain(data: &[u8], count: usize, out: &mut Vec<Self>) -> Decoded<()>;

    /// Appends the numbers with these codes, out of `count` numbers at the beginning of `data`.
    fn coded(data: &[u8], count: usize, codes: &[u32], out: &mut Vec<Self>) -> Decoded<()>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn plain(data: &[u8], count: usize, out: &mut Vec<Self>) -> Decoded<()> {
                let (numbers, _) = data.as_chunks();
                out.extend(numbers.get(..count).ok_or(CUT_OFF)?.iter().map(|bytes| Self::from_le_bytes(*bytes)));
                Ok(())
            }

            fn coded(data: &[u8], count: usize, codes: &[u32], out: &mut Vec<Self>) -> Decoded<()> {
                let (numbers, _) = data.as_chunks();
                let numbers = numbers.get(..count).ok_or(CUT_OFF)?;
                // All are checked before, which is faster than stopping at the first wrong one.
                if codes.iter().max().is_some_and(|most| *most as usize >= count) {
                    return Err(NO_SUCH_ENTRY);
                }
                let number = |code: &u32| numbers.get(*code as usize).copied().map(Self::from_le_bytes);
                out.extend(codes.iter().map(|code| number(code).unwrap_or_default()));
                Ok(())
            }
        }
    )*};
}

numbers!(i32, i64, f32, f64);

/// Moves the values from `start` on, which are dense, to the places of the set bits, and puts `none` elsewhere.
pub(super) fn spread<V: Copy>(values: &mut Vec<V>, start: usize, defined: &BooleanBuffer, none: V) {
    let mut end = values.len();
    if end - start == defined.len() {
        return;
    }
    values.resize(start + defined.len(), none);
    let runs: Vec<(usize, usize)> = defined.set_slices().collect();
    let mut after = defined.len();
    for (from, to) in runs.into_iter().rev() {
        let source = end - (to - from);
        values.copy_within(source..end, start + from);
        values[start + to..start + after].fill(none);
        (end, after) = (source, from);
    }
    values[start..start + after].fill(none);
}

/// Which rows are null, if there are any.
pub(super) fn nulls(mut valid: BooleanBufferBuilder) -> Option<NullBuffer> {
    Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0)
}

/// How many of these rows have a value.
pub(super) fn count_defined(nulls: Option<&NullBuffer>, from: usize, to: usize) -> usize {
    match nulls {
        None => to - from,
        Some(nulls) if to == from + 1 => usize::from(nulls.is_valid(from)),
        Some(nulls) => UnalignedBitChunk::new(nulls.validity(), nulls.offset() + from, to - from).count_ones(),
    }
}

/// The places of a dictionary's strings in its page.
pub(super) struct StringDictionary {
    spans: Vec<(u32, u32)>,
}

impl StringDictionary {
    pub(super) fn of(page: &Page<'_>) -> Decoded<Self> {
        let length = u32::try_from(page.data.len()).map_err(|_| Failure::Unsupported)?;
        // Each string has its length before it.
        let mut spans = Vec::with_capacity(page.values.min(page.data.len() / size_of::<u32>()));
        let mut rest = page.data;
        for _ in 0..page.values {
            let string = plain_string(&mut rest)?;
            let end = length - rest.len() as u32;
            spans.push((end - string.len() as u32, end));
        }
        Ok(Self { spans })
    }

    /// The place of a string in the page.
    pub(super) fn span(&self, code: u32) -> Decoded<(usize, usize)> {
        let (start, end) = self.spans.get(code as usize).ok_or(NO_SUCH_ENTRY)?;
        Ok((*start as usize, *end as usize))
    }

    /// A string; `page` is the page of the dictionary.
    pub(super) fn string<'p>(&self, page: &'p [u8], code: u32) -> Decoded<&'p [u8]> {
        let (start, end) = self.span(code)?;
        page.get(start..end).ok_or(NO_SUCH_ENTRY)
    }
}

/// A string of a page: its bytes, or its code in a dictionary.
#[derive(Clone, Copy)]
pub(super) enum Value<'p> {
    Plain(&'p [u8]),
    Coded(u32, &'p StringDictionary, &'p [u8]),
}

impl<'p> Value<'p> {
    /// Its code, if it has one.
    pub(super) fn code(&self) -> Option<u32> {
        match self {
            Self::Plain(_) => None,
            Self::Coded(code, ..) => Some(*code),
        }
    }

    #[inline]
    pub(super) fn string(&self) -> Decoded<&'p [u8]> {
        match self {
            Self::Plain(string) => Ok(string),
            Self::Coded(code, dictionary, page) => dictionary.string(page, *code),
        }
    }
}

/// The strings of a page, one after the other.
#[derive(Clone)]
pub(super) enum StringValues<'p> {
    Plain(&'p [u8]),
    Coded(std::slice::Iter<'p, u32>, &'p StringDictionary, &'p [u8]),
}

impl<'p> StringValues<'p> {
    /// The strings of `count` values, which may be codes of the dictionary, given with its page.
    pub(super) fn of(
        page: &Page<'p>,
        count: usize,
        dictionary: Option<(&'p StringDictionary, &'p [u8])>,
        codes: &'p mut Vec<u32>,
    ) -> Decoded<Self> {
        match (page.encoding, dictionary) {
            (Encoding::Plain, _) => Ok(Self::Plain(page.data)),
            (Encoding::Dictionary, Some((dictionary, bytes))) => {
                page.codes(count, codes)?;
                Ok(Self::Coded(codes.iter(), dictionary, bytes))
            }
            _ => Err(Failure::Unsupported),
        }
    }

    /// The most bytes that `count` strings have, if `without` bytes of each are left out.
    pub(super) fn max_bytes(&self, count: usize, without: usize) -> usize {
        match self {
            Self::Plain(rest) => rest.len().saturating_sub(count.saturating_mul(size_of::<u32>() + without)),
            Self::Coded(codes, dictionary, _) => {
                let lengths = codes.clone().map(|code| dictionary.span(*code).map_or(0, |(start, end)| end - start));
                lengths.sum::<usize>().saturating_sub(count.saturating_mul(without))
            }
        }
    }

    /// The next string.
    #[inline]
    pub(super) fn string(&mut self) -> Decoded<&'p [u8]> {
        self.next()?.string()
    }

    /// The next string; a code is not looked up yet.
    #[inline]
    pub(super) fn next(&mut self) -> Decoded<Value<'p>> {
        match self {
            Self::Plain(rest) => plain_string(rest).map(Value::Plain),
            Self::Coded(codes, dictionary, page) => Ok(Value::Coded(*codes.next().ok_or(CUT_OFF)?, dictionary, page)),
        }
    }
}

/// Takes a string off the beginning of `rest`.
#[inline]
fn plain_string<'p>(rest: &mut &'p [u8]) -> Decoded<&'p [u8]> {
    let (length, after) = rest.split_first_chunk::<4>().ok_or(CUT_OFF)?;
    let (string, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(CUT_OFF)?;
    *rest = after;
    Ok(string)
}
