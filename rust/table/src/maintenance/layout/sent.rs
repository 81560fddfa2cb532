//! Samples and ranges as plain data, which processes send each other.
//!
//! Values are in the row format of Arrow, whose bytes have the order of the values. Long ones are cut off: what is left still
//! divides the values, since every string of bytes does. So all processes that have the same ranges give a row the same
//! position on the curve.
//!
//! Invariant: data of another process is checked before it is used (`optimize_intervals::results_of_samples_are_checked`).

use arrow_array::RecordBatch;
use arrow_row::{OwnedRow, RowConverter};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

use super::CurveLayout;
use super::ranges::{ColumnRanges, Ranges, SampleLimits, Sampler, bytes_of, converter, key_columns};
use crate::error::{Error, Result};

/// The most bytes of a value that are sent.
const VALUE_BYTES: usize = 128;

/// The most positions of a sample that are sent with ranges.
const POSITIONS: usize = 16 * 1024;

/// The sample of a part of the rows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    rows: u64,
    threshold: u64,
    hashes: Vec<u64>,
    /// The values of each row, one for each column.
    values: Values,
}

/// The ranges of a curve's columns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SentRanges {
    columns: Vec<SentColumn>,
    positions: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SentColumn {
    bounds: Values,
    coordinates: Vec<u32>,
}

/// Strings of bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Values {
    lengths: Vec<usize>,
    /// The bytes of all, in hexadecimal digits.
    digits: String,
}

impl Sample {
    /// The sample that was taken.
    pub(crate) fn of(sampler: &Sampler) -> Self {
        let mut values = Values::default();
        let (rows, threshold) = (sampler.rows, sampler.threshold);
        let mut hashes = Vec::with_capacity(sampler.sample.len());
        for (hash, row) in &sampler.sample {
            hashes.push(*hash);
            row.iter().for_each(|value| values.push(value.row().as_ref()));
        }
        Self { rows, threshold, hashes, values }
    }

    /// One sample of the rows of all parts. `schema`: the columns that are read for the keys.
    ///
    /// # Errors
    /// `Invalid` if a sample is not that of these columns.
    pub(crate) fn merge(
        samples: Vec<Self>,
        layout: &CurveLayout,
        schema: &SchemaRef,
        limits: SampleLimits,
    ) -> Result<Sampler> {
        let mut merged = Sampler::of_part(layout.clone(), 0, limits);
        merged.converters = converters(layout, schema)?;
        let threshold = samples.iter().map(|sample| sample.threshold).min().unwrap_or(u64::MAX);
        for sample in samples {
            merged.rows = merged.rows.checked_add(sample.rows).ok_or_else(wrong)?;
            if (sample.hashes.len() as u64) > sample.rows || (sample.hashes.is_empty() && sample.rows > 0) {
                return Err(wrong());
            }
            let mut values = sample.values.decoded()?.into_iter();
            for hash in sample.hashes {
                let value = |converter: &RowConverter| owned(converter, &values.next().ok_or_else(wrong)?);
                let row = merged.converters.iter().map(value).collect::<Result<Vec<OwnedRow>>>()?;
                if hash <= threshold {
                    merged.sample_bytes = merged.sample_bytes.saturating_add(row.iter().map(bytes_of).sum());
                    merged.sample.push((hash, row));
                }
            }
            if values.next().is_some() {
                return Err(wrong());
            }
        }
        merged.threshold = threshold;
        merged.shrink();
        Ok(merged)
    }
}

impl SentRanges {
    pub(crate) fn of(ranges: &Ranges) -> Self {
        let column = |column: &ColumnRanges| {
            let mut bounds = Values::default();
            column.bounds.iter().for_each(|bound| bounds.push(bound.as_ref()));
            SentColumn { bounds, coordinates: column.coordinates.clone() }
        };
        let step = ranges.positions.len().div_ceil(POSITIONS).max(1);
        let positions = ranges.positions.iter().copied().step_by(step).collect();
        Self { columns: ranges.columns.iter().map(column).collect(), positions }
    }

    /// The ranges that were sent. `schema`: has the columns of the keys.
    ///
    /// # Errors
    /// `Invalid` if they are not those of these columns.
    pub(crate) fn into_ranges(self, layout: &CurveLayout, schema: &SchemaRef) -> Result<Ranges> {
        let converters = converters(layout, schema)?;
        if converters.len() != self.columns.len() || !self.positions.is_sorted() {
            return Err(wrong());
        }
        let column = |(converter, column): (RowConverter, SentColumn)| {
            let values = column.bounds.decoded()?;
            if values.len() != column.coordinates.len() || !values.is_sorted() {
                return Err(wrong());
            }
            let mut bounds = converter.empty_rows(values.len(), 0);
            let parser = converter.parser();
            values.iter().for_each(|value| bounds.push(parser.parse(value)));
            Ok(ColumnRanges { converter, bounds, coordinates: column.coordinates })
        };
        let columns = converters.into_iter().zip(self.columns).map(column).collect::<Result<_>>()?;
        Ok(Ranges { layout: layout.clone(), columns, positions: self.positions })
    }
}

impl Values {
    /// Adds a value, of which only the first [`VALUE_BYTES`] bytes are kept.
    fn push(&mut self, value: &[u8]) {
        const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or_default();
        let kept = value.get(..VALUE_BYTES).unwrap_or(value);
        self.lengths.push(kept.len());
        self.digits.extend(kept.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    }

    fn decoded(&self) -> Result<Vec<Vec<u8>>> {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|half| u8::try_from(half).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = self.digits.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or_else(wrong)?;
        let (mut values, mut rest) = (Vec::with_capacity(self.lengths.len()), bytes.as_slice());
        for length in &self.lengths {
            let (value, after) = rest.split_at_checked(*length).ok_or_else(wrong)?;
            values.push(value.to_vec());
            rest = after;
        }
        if rest.is_empty() { Ok(values) } else { Err(wrong()) }
    }
}

fn owned(converter: &RowConverter, bytes: &[u8]) -> Result<OwnedRow> {
    Ok(converter.parser().parse(bytes).owned())
}

/// Converters of the columns of the keys.
fn converters(layout: &CurveLayout, schema: &SchemaRef) -> Result<Vec<RowConverter>> {
    key_columns(&RecordBatch::new_empty(schema.clone()), &layout.columns)?.iter().map(converter).collect()
}

fn wrong() -> Error {
    Error::invalid("a sample or ranges of a curve are not those of the table's columns; run it again")
}
