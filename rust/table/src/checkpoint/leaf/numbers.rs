//! Numbers of leaves as arrays of Arrow.
//!
//! Those of two leaves may lie in one piece of memory: it is large enough then that many pages are asked for at once.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, Decimal128Array, PrimitiveArray, make_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, ScalarBuffer, ToByteSlice};
use arrow_schema::DataType as ArrowType;
use parquet::basic::Type as PhysicalType;

use super::page::{Encoding, Page, Pages, Step};
use super::values::{CUT_OFF, Number, nulls, spread};
use super::{Chunk, Decoded, FEW, Stop};
use crate::large::Large;

/// Numbers that are copied at once.
const BLOCK: usize = 8 * 1024;
/// Where numbers of any type may begin.
const ALIGNMENT: usize = size_of::<i64>();

/// Whether a leaf has numbers that are read here as this type.
pub(super) fn holds_numbers(chunk: Chunk<'_>, target: &ArrowType) -> bool {
    use ArrowType as A;
    match chunk.physical {
        PhysicalType::INT32 => matches!(target, A::Int32 | A::Date32 | A::Decimal128(..)),
        PhysicalType::INT64 => matches!(target, A::Int64 | A::Timestamp(..) | A::Decimal128(..)),
        PhysicalType::FLOAT => target == &A::Float32,
        PhysicalType::DOUBLE => target == &A::Float64,
        _ => false,
    }
}

/// What numbers are decoded with, for one leaf after the other.
pub(super) struct Working<'s> {
    page: &'s mut Vec<u8>,
    codes: &'s mut Vec<u32>,
    /// Where the numbers go.
    memory: Large,
}

/// Numbers of a leaf, as wide as in the file.
pub(super) struct Numbers {
    /// Those that are not in the memory of all.
    own: Option<Buffer>,
    /// Where in the memory they begin, in bytes.
    start: usize,
    rows: usize,
    nulls: Option<NullBuffer>,
}

pub(super) type OfLeaf<'c, 'p> = (Pages<'c>, Option<Page<'p>>);

impl<'s> Working<'s> {
    /// With room for the numbers of these leaves.
    pub(super) fn new(chunks: &[Chunk<'_>], page: &'s mut Vec<u8>, codes: &'s mut Vec<u32>) -> Decoded<Self> {
        let room = chunks.iter().map(|chunk| room(*chunk)).fold(0, usize::saturating_add);
        let memory = Large::with_room(room).map_err(|_| Stop::Rare)?;
        Ok(Self { page, codes, memory })
    }

    /// Decodes a leaf; of `rows` alone if given, where others may be zero.
    pub(super) fn read(
        &mut self,
        chunk: Chunk<'_>,
        rows: Option<&BooleanBuffer>,
        pages: OfLeaf<'_, '_>,
    ) -> Decoded<Numbers> {
        match chunk.physical {
            PhysicalType::INT32 => self.numbers::<i32>(chunk, rows, pages),
            PhysicalType::INT64 => self.numbers::<i64>(chunk, rows, pages),
            PhysicalType::FLOAT => self.numbers::<f32>(chunk, rows, pages),
            PhysicalType::DOUBLE => self.numbers::<f64>(chunk, rows, pages),
            _ => Err(Stop::Rare),
        }
    }

    /// The memory that all were read to.
    pub(super) fn into_memory(self) -> Buffer {
        let memory = self.memory.into_bytes();
        // Small memory has no bounds that anybody promises.
        match memory.as_ptr().align_offset(ALIGNMENT) {
            0 => memory.into(),
            _ => Buffer::from(memory.as_ref()),
        }
    }

    fn numbers<N: Number>(
        &mut self,
        chunk: Chunk<'_>,
        rows: Option<&BooleanBuffer>,
        (mut pages, dictionary): OfLeaf<'_, '_>,
    ) -> Decoded<Numbers> {
        let Self { page: buffer, codes, memory } = self;
        let known = dictionary.as_ref().map_or((&[][..], 0), |page| (page.data, page.values));
        // Memory that is zero and not written to costs nothing.
        let few = rows.filter(|rows| rows.count_set_bits() < rows.len() / FEW);
        let mut picked = vec![N::default(); if few.is_some() { chunk.rows } else { 0 }];
        let first = memory.len().next_multiple_of(ALIGNMENT);
        let gap = first - memory.len();
        let mut append = |bytes: &[u8]| memory.extend(bytes).map_err(|_| Stop::Rare);
        append(&[0; ALIGNMENT][..gap])?;
        let mut valid = BooleanBufferBuilder::new(chunk.rows);
        let mut block: Vec<N> = Vec::new();
        while let Some(step) = pages.step()? {
            let start = valid.len();
            let packed = match step {
                Step::Wanted(packed) => packed,
                Step::Unwanted(count) => {
                    if few.is_none() {
                        append(vec![N::default(); count].to_byte_slice())?;
                    }
                    valid.append_n(count, false);
                    continue;
                }
            };
            let page = packed.open(chunk, buffer)?;
            let there = page.defined(chunk, chunk.max_definition)?;
            let found = there.count_set_bits();
            match page.encoding {
                Encoding::Plain => {}
                Encoding::Dictionary => page.codes(found, codes)?,
                Encoding::Runs | Encoding::Other => return Err(Stop::Rare),
            }
            // Numbers that stand beside each other in the page do so in the array, if all rows have one.
            let at_once = if found == there.len() && few.is_none() { BLOCK } else { found.max(1) };
            for from in (0..found.max(1)).step_by(at_once) {
                block.clear();
                some_of(&page, known, codes, from..found.min(from.saturating_add(at_once)), &mut block)?;
                if found < there.len() {
                    spread(&mut block, 0, &there, N::default());
                }
                match few {
                    Some(few) => {
                        let wanted = few.slice(start, there.len());
                        wanted.set_indices().for_each(|row| picked[start + row] = block[row]);
                    }
                    None => append(block.to_byte_slice())?,
                }
            }
            valid.append_buffer(&there);
        }
        let nulls = nulls(valid);
        let own = few.map(|_| Buffer::from_vec(picked));
        Ok(Numbers { own, start: first, rows: chunk.rows, nulls })
    }
}

/// Bytes of the numbers of a leaf.
fn room(chunk: Chunk<'_>) -> usize {
    let width = match chunk.physical {
        PhysicalType::INT32 | PhysicalType::FLOAT => size_of::<i32>(),
        _ => size_of::<i64>(),
    };
    chunk.rows.saturating_mul(width)
}

/// Appends some of the numbers of a page.
fn some_of<N: Number>(
    page: &Page<'_>,
    (dictionary, known): (&[u8], usize),
    codes: &[u32],
    which: Range<usize>,
    out: &mut Vec<N>,
) -> Decoded<()> {
    if page.encoding == Encoding::Dictionary {
        return N::coded(dictionary, known, codes.get(which).ok_or(CUT_OFF)?, out);
    }
    let rest = which.start.checked_mul(size_of::<N>()).and_then(|start| page.data.get(start..));
    N::plain(rest.ok_or(CUT_OFF)?, which.len(), out)
}

impl Numbers {
    /// An array of the type, which holds them as they are.
    pub(super) fn array(self, physical: PhysicalType, target: &ArrowType, memory: &Buffer) -> Decoded<ArrayRef> {
        use ArrowType as A;
        let retyped = |array: &dyn Array| {
            let data = array.to_data().into_builder().data_type(target.clone()).build();
            data.map(make_array).map_err(|_| Stop::Rare)
        };
        let decimal = |unscaled: Decimal128Array, precision: u8, scale: i8| match unscaled
            .with_precision_and_scale(precision, scale)
        {
            Ok(decimals) => Ok(Arc::new(decimals) as ArrayRef),
            Err(_) => Err(Stop::Rare),
        };
        match (physical, target) {
            (PhysicalType::INT32, A::Int32 | A::Date32) => retyped(&self.of::<Int32Type>(memory)),
            (PhysicalType::INT64, A::Int64 | A::Timestamp(..)) => retyped(&self.of::<Int64Type>(memory)),
            (PhysicalType::FLOAT, A::Float32) => Ok(Arc::new(self.of::<Float32Type>(memory))),
            (PhysicalType::DOUBLE, A::Float64) => Ok(Arc::new(self.of::<Float64Type>(memory))),
            (PhysicalType::INT32, A::Decimal128(precision, scale)) => {
                decimal(self.of::<Int32Type>(memory).unary(i128::from), *precision, *scale)
            }
            (PhysicalType::INT64, A::Decimal128(precision, scale)) => {
                decimal(self.of::<Int64Type>(memory).unary(i128::from), *precision, *scale)
            }
            _ => Err(Stop::Rare),
        }
    }

    fn of<T: ArrowPrimitiveType>(self, memory: &Buffer) -> PrimitiveArray<T> {
        let bytes = self.rows * size_of::<T::Native>();
        let numbers = self.own.unwrap_or_else(|| memory.slice_with_length(self.start, bytes));
        PrimitiveArray::new(ScalarBuffer::new(numbers, 0, self.rows), self.nulls)
    }
}
