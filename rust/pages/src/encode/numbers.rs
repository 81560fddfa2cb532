//! Encodes numbers of a fixed width: with a dictionary if they repeat.
//!
//! A page keeps its numbers until it is written: if they turn out to be mostly distinct, they are written without a dictionary.
//!
//! Parquet format: "Plain", "Dictionary Encoding", "Statistics".

use std::cmp::Ordering;
use std::ops::Range;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::hybrid::{Hybrid, width_of};
use super::page::PageCompressor;
use super::values::{ColumnEncoder, DICTIONARY_BYTES, PAGE_BYTES};

/// After so many numbers the dictionary is given up unless at least half of them are repetitions.
const SAMPLED: usize = 1024;

/// A number in Parquet's form.
pub(super) trait Number: Copy + Send + Sync + 'static {
    const WIDTH: usize;

    /// Calls `take` with the numbers at `rows` of an array; `None` if the array has another type.
    fn of(array: &dyn Array, rows: Range<usize>, take: &mut dyn FnMut(&[Self])) -> Option<()>;

    /// Its bits, which are equal only for the same number.
    fn bits(self) -> u64;

    fn put(numbers: &[Self], out: &mut Vec<u8>);

    fn order(&self, other: &Self) -> Ordering;

    /// Whether it is NaN, which bounds leave out.
    fn is_nan(self) -> bool {
        false
    }

    fn statistics(bounds: &Bounds<Self>, nulls: u64) -> Statistics;
}

/// Implements it for arrays of the same numbers, and for decimals, which are wider in Arrow.
macro_rules! numbers_of {
    ($($arrow:ty),*; $($wider:ty)?) => {
        const WIDTH: usize = size_of::<Self>();

        fn of(array: &dyn Array, rows: Range<usize>, take: &mut dyn FnMut(&[Self])) -> Option<()> {
            $(if let Some(array) = array.as_primitive_opt::<$arrow>() {
                take(array.values().get(rows)?);
                return Some(());
            })*
            $(if let Some(array) = array.as_primitive_opt::<$wider>() {
                let numbers: Vec<Self> = array.values().get(rows)?.iter().map(|number| *number as Self).collect();
                take(&numbers);
                return Some(());
            })?
            None
        }

        fn put(numbers: &[Self], out: &mut Vec<u8>) {
            let start = out.len();
            out.resize(start + size_of_val(numbers), 0);
            let (slots, _) = out.get_mut(start..).unwrap_or_default().as_chunks_mut();
            slots.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = number.to_le_bytes());
        }
    };
}

impl Number for i32 {
    numbers_of!(Int32Type, Date32Type; Decimal128Type);

    fn bits(self) -> u64 {
        u64::from(self.cast_unsigned())
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn statistics(Bounds { min, max, .. }: &Bounds<Self>, nulls: u64) -> Statistics {
        let statistics = ValueStatistics::new(*min, *max, None, Some(nulls), false);
        Statistics::Int32(statistics.with_backwards_compatible_min_max(true))
    }
}

impl Number for i64 {
    numbers_of!(Int64Type, TimestampMicrosecondType; Decimal128Type);

    fn bits(self) -> u64 {
        self.cast_unsigned()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn statistics(Bounds { min, max, .. }: &Bounds<Self>, nulls: u64) -> Statistics {
        let statistics = ValueStatistics::new(*min, *max, None, Some(nulls), false);
        Statistics::Int64(statistics.with_backwards_compatible_min_max(true))
    }
}

impl Number for f64 {
    numbers_of!(Float64Type;);

    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }

    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }

    fn statistics(Bounds { min, max, nans }: &Bounds<Self>, nulls: u64) -> Statistics {
        let nans = (min.is_some() || *nans > 0).then_some(*nans);
        Statistics::Double(ValueStatistics::new(*min, *max, None, Some(nulls), false).with_nan_count(nans))
    }
}

/// The least and the greatest number, and how many are NaN.
pub(super) struct Bounds<N> {
    min: Option<N>,
    max: Option<N>,
    nans: u64,
}

impl<N: Number> Bounds<N> {
    fn widen(&mut self, numbers: &[N]) {
        let first = self.min.zip(self.max).or_else(|| numbers.iter().find(|n| !n.is_nan()).map(|n| (*n, *n)));
        let Some((mut min, mut max)) = first else {
            self.nans += numbers.len() as u64;
            return;
        };
        for number in numbers {
            if number.is_nan() {
                self.nans += 1;
                continue;
            }
            min = if number.order(&min).is_lt() { *number } else { min };
            max = if number.order(&max).is_gt() { *number } else { max };
        }
        (self.min, self.max) = (Some(min), Some(max));
    }
}

/// The numbers of a page, and the dictionary and bounds of all numbers.
pub(super) struct NumberEncoder<N> {
    page: Vec<u8>,
    /// Their codes, while there is a dictionary.
    codes: Vec<u32>,
    dictionary: Dictionary<N>,
    is_coded: bool,
    is_sampled: bool,
    bounds: Bounds<N>,
}

impl<N: Number> NumberEncoder<N> {
    pub(super) fn new() -> Self {
        let bounds = Bounds { min: None, max: None, nans: 0 };
        Self {
            page: Vec::new(),
            codes: Vec::new(),
            dictionary: Dictionary::default(),
            is_coded: true,
            is_sampled: false,
            bounds,
        }
    }

    /// Adds the codes of numbers; gives the dictionary up if it has no room, or if the numbers are mostly distinct.
    fn code(&mut self, numbers: &[N]) {
        self.codes.reserve(numbers.len());
        let mut last = None;
        for number in numbers {
            // Equal numbers mostly follow one another.
            let code = match last {
                Some((before, code)) if before == number.bits() => Some(code),
                _ => self.dictionary.code(*number),
            };
            let Some(code) = code else {
                self.is_coded = false;
                return;
            };
            last = Some((number.bits(), code));
            self.codes.push(code);
            if self.codes.len() == SAMPLED && !self.is_sampled {
                self.is_sampled = true;
                self.is_coded = self.dictionary.numbers.len() <= SAMPLED / 2;
                if !self.is_coded {
                    return;
                }
            }
        }
    }
}

impl<N: Number> ColumnEncoder for NumberEncoder<N> {
    fn take(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(usize, bool), ParquetError> {
        // A page with codes may still become one with numbers, so it has no more of them.
        let room = (PAGE_BYTES.saturating_sub(self.page.len()) / N::WIDTH).max(1);
        let rows = rows.start..rows.end.min(rows.start.saturating_add(room));
        let taken = N::of(array, rows.clone(), &mut |numbers| {
            N::put(numbers, &mut self.page);
            self.bounds.widen(numbers);
            if self.is_coded {
                self.code(numbers);
            }
        });
        taken.ok_or_else(|| ParquetError::General("a column has numbers of several types".to_owned()))?;
        Ok((rows.len(), rows.len() < room))
    }

    fn page(&mut self, levels: &[u8], compressor: &mut PageCompressor) -> Encoding {
        let body = compressor.body();
        body.extend_from_slice(levels);
        // Without codes there is no dictionary; a page of nulls needs none.
        let encoding = if self.is_coded && !self.codes.is_empty() {
            let width = width_of(self.dictionary.numbers.len());
            body.push(width as u8);
            let mut hybrid = Hybrid::new(body, width);
            self.codes.chunk_by(|a, b| a == b).for_each(|run| {
                run.first().into_iter().for_each(|code| hybrid.push(*code, run.len()));
            });
            hybrid.finish();
            Encoding::RLE_DICTIONARY
        } else {
            body.extend_from_slice(&self.page);
            Encoding::PLAIN
        };
        self.page.clear();
        self.codes.clear();
        encoding
    }

    fn dictionary(&mut self, out: &mut Vec<u8>) -> usize {
        N::put(&self.dictionary.numbers, out);
        self.dictionary.numbers.len()
    }

    fn statistics(&self, nulls: u64) -> Option<Statistics> {
        Some(N::statistics(&self.bounds, nulls))
    }
}

/// Distinct numbers and their codes.
struct Dictionary<N> {
    numbers: Vec<N>,
    /// Slots of a hash table, each with a code or [`EMPTY_SLOT`]. Their number is a power of two, and at least twice that of
    /// the numbers.
    slots: Vec<u16>,
}

const EMPTY_SLOT: u16 = u16::MAX;
const MIN_SLOTS: usize = 64;

impl<N> Default for Dictionary<N> {
    fn default() -> Self {
        Self { numbers: Vec::new(), slots: Vec::new() }
    }
}

impl<N: Number> Dictionary<N> {
    /// The code of a number, which is added if it is new; `None` if there is no room.
    fn code(&mut self, number: N) -> Option<u32> {
        if self.slots.len() < 2 * (self.numbers.len() + 1) {
            self.slots = vec![EMPTY_SLOT; (2 * self.slots.len()).max(MIN_SLOTS)];
            for (code, number) in (0..).zip(&self.numbers) {
                let at = find_slot(&self.slots, &self.numbers, *number)?;
                *self.slots.get_mut(at)? = code;
            }
        }
        let at = find_slot(&self.slots, &self.numbers, number)?;
        let to = self.slots.get_mut(at)?;
        if *to == EMPTY_SLOT {
            if (self.numbers.len() + 1) * N::WIDTH > DICTIONARY_BYTES {
                return None;
            }
            *to = u16::try_from(self.numbers.len()).ok()?;
            self.numbers.push(number);
        }
        Some(u32::from(*to))
    }
}

/// The slot of a number, or the empty one for it.
fn find_slot<N: Number>(slots: &[u16], numbers: &[N], number: N) -> Option<usize> {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mask = slots.len() - 1;
    // The upper bits of the product depend on all bits of the number: a round double has only upper bits.
    let mut at = number.bits().wrapping_mul(ODD).rotate_left(slots.len().trailing_zeros()) as usize & mask;
    loop {
        let code = *slots.get(at)?;
        if code == EMPTY_SLOT || numbers.get(usize::from(code)).is_some_and(|there| there.bits() == number.bits()) {
            return Some(at);
        }
        at = (at + 1) & mask;
    }
}
