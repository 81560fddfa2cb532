//! Decodes numbers of leaves into Arrow arrays.

use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, Decimal128Array, PrimitiveArray, make_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType as ArrowType;
use parquet::basic::Type as PhysicalType;

use super::chunk::{Chunk, Decoded, Failure, Scratch, with_scratch};
use super::page::{Encoding, NextPage, PageReader};
use super::values::{Number, nulls, spread};

/// The numbers of a leaf in an array of this type, which has the same values. With `rows`, others
/// may be zero.
pub(super) fn array(chunk: Chunk<'_>, target: &ArrowType, rows: Option<&BooleanBuffer>) -> Decoded<ArrayRef> {
    use ArrowType as A;
    let retyped = |array: &dyn Array| {
        let data = array.to_data().into_builder().data_type(target.clone()).build();
        data.map(make_array).map_err(|_| Failure::Unsupported)
    };
    let decimal = |unscaled: Decimal128Array, precision: u8, scale: i8| match unscaled
        .with_precision_and_scale(precision, scale)
    {
        Ok(decimals) => Ok(Arc::new(decimals) as ArrayRef),
        Err(_) => Err(Failure::Unsupported),
    };
    match (chunk.physical, target) {
        (PhysicalType::INT32, A::Int32 | A::Date32) => retyped(&numbers::<Int32Type>(chunk, rows)?),
        (PhysicalType::INT64, A::Int64 | A::Timestamp(..)) => retyped(&numbers::<Int64Type>(chunk, rows)?),
        (PhysicalType::FLOAT, A::Float32) => Ok(Arc::new(numbers::<Float32Type>(chunk, rows)?)),
        (PhysicalType::DOUBLE, A::Float64) => Ok(Arc::new(numbers::<Float64Type>(chunk, rows)?)),
        (PhysicalType::INT32, A::Decimal128(precision, scale)) => {
            decimal(numbers::<Int32Type>(chunk, rows)?.unary(i128::from), *precision, *scale)
        }
        (PhysicalType::INT64, A::Decimal128(precision, scale)) => {
            decimal(numbers::<Int64Type>(chunk, rows)?.unary(i128::from), *precision, *scale)
        }
        _ => Err(Failure::Unsupported),
    }
}

fn numbers<T: ArrowPrimitiveType<Native: Number>>(
    chunk: Chunk<'_>,
    rows: Option<&BooleanBuffer>,
) -> Decoded<PrimitiveArray<T>> {
    with_scratch(|scratch| {
        let Scratch { page: buffer, dictionary, codes } = scratch;
        let (mut pages, dictionary) = PageReader::new(chunk, rows, dictionary)?;
        let known = dictionary.as_ref().map_or((&[][..], 0), |page| (page.data, page.values));
        let none = T::Native::default();
        let mut values: Vec<T::Native> = Vec::new();
        values.try_reserve_exact(chunk.rows).map_err(|_| Failure::Unsupported)?;
        let mut valid = BooleanBufferBuilder::new(chunk.rows);
        while let Some(step) = pages.next_page()? {
            let compressed = match step {
                NextPage::Read(compressed) => compressed,
                NextPage::Skip(count) => {
                    values.resize(values.len() + count, none);
                    valid.append_n(count, false);
                    continue;
                }
            };
            let page = compressed.open(chunk, buffer)?;
            let defined = page.defined(chunk, chunk.max_definition)?;
            let (start, found) = (values.len(), defined.count_set_bits());
            match page.encoding {
                Encoding::Plain => Number::plain(page.data, found, &mut values)?,
                Encoding::Dictionary => {
                    page.codes(found, codes)?;
                    Number::coded(known.0, known.1, codes, &mut values)?;
                }
                Encoding::Rle | Encoding::Other => return Err(Failure::Unsupported),
            }
            spread(&mut values, start, &defined, none);
            valid.append_buffer(&defined);
        }
        Ok(PrimitiveArray::new(values.into(), nulls(valid)))
    })
}
