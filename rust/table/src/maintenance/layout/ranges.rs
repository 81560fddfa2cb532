//! Maps values to coordinates: to ranges of their column's values between sampled bounds.
//!
//! A sample of the rows is taken by a hash of the row numbers, so that it is independent of the order of values and the
//! same each time. The bounds are its values; the coordinate of a value is the share of the sample below it, so that columns
//! with few values spread as far as others. Every type that has an order is allowed: ascending, nulls first, NaN last.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, make_array};
use arrow_buffer::NullBuffer;
use arrow_row::{OwnedRow, Row, RowConverter, Rows, SortField};
use arrow_select::take::take;

use super::CurveLayout;
use super::curve::{Curve, bits};
use crate::error::{Error, Result};

/// The most rows in a sample. It has at least about half as many, if there are so many rows.
const SAMPLE: usize = 128 * 1024;

/// The most bytes of the values in a sample, if it has more rows than [`MIN_SAMPLE_ROWS`].
const SAMPLE_BYTES: usize = 16 << 20;

/// The rows that a sample may have even if its values are long.
const MIN_SAMPLE_ROWS: usize = 1024;

/// Takes a sample of rows.
pub(crate) struct Sampler {
    layout: CurveLayout,
    converters: Vec<RowConverter>,
    /// The sample has the rows whose hash is not greater.
    threshold: u64,
    rows: u64,
    /// Hashes and values of the rows in the sample.
    sample: Vec<(u64, Vec<OwnedRow>)>,
    /// Bytes of the values.
    sample_bytes: usize,
}

/// The ranges of a curve's columns.
pub(crate) struct Ranges {
    layout: CurveLayout,
    columns: Vec<ColumnRanges>,
    /// Positions on the curve of the sample's rows, ascending.
    positions: Vec<u64>,
}

struct ColumnRanges {
    converter: RowConverter,
    /// Values of the sample, ascending.
    bounds: Rows,
    /// For each bound, the coordinate of the values from it up to the next bound.
    coordinates: Vec<u32>,
}

impl Sampler {
    pub(crate) fn new(layout: CurveLayout) -> Self {
        Self { layout, converters: Vec::new(), threshold: u64::MAX, rows: 0, sample: Vec::new(), sample_bytes: 0 }
    }

    /// How many rows were read.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Reads more rows.
    pub(crate) fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = key_columns(batch, &self.layout.columns)?;
        if self.converters.is_empty() {
            self.converters = columns.iter().map(converter).collect::<Result<_>>()?;
        }
        let (mut hashes, mut taken) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let hash = mixed(self.rows);
            self.rows += 1;
            if hash <= self.threshold {
                hashes.push(hash);
                taken.push(u32::try_from(row).map_err(|_| Error::internal("a batch of rows is too large"))?);
            }
        }
        let taken = UInt32Array::from(taken);
        let mut values: Vec<Vec<OwnedRow>> = vec![Vec::with_capacity(columns.len()); hashes.len()];
        for (converter, column) in self.converters.iter().zip(&columns) {
            let rows = converter.convert_columns(&[take(column, &taken, None)?])?;
            values.iter_mut().zip(rows.iter()).for_each(|(values, row)| values.push(row.owned()));
        }
        self.sample_bytes += values.iter().flatten().map(bytes_of).sum::<usize>();
        self.sample.extend(hashes.into_iter().zip(values));
        while self.sample.len() > SAMPLE || (self.sample.len() > MIN_SAMPLE_ROWS && self.sample_bytes > SAMPLE_BYTES) {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.sample.retain(|(hash, _)| *hash <= threshold);
            self.sample_bytes = self.sample.iter().flat_map(|(_, values)| values).map(bytes_of).sum();
        }
        Ok(())
    }

    /// The ranges between the values of the sample; none if there was no row.
    pub(crate) fn finish(self) -> Result<Option<Ranges>> {
        if self.sample.is_empty() {
            return Ok(None);
        }
        let bits = bits(self.layout.columns.len());
        let mut columns = Vec::with_capacity(self.converters.len());
        for (at, converter) in self.converters.into_iter().enumerate() {
            let values: Vec<&OwnedRow> = self.sample.iter().filter_map(|(_, values)| values.get(at)).collect();
            columns.push(ColumnRanges::of(converter, values, bits));
        }
        let mut points = vec![0_u32; columns.len()];
        let mut position = |values: &Vec<OwnedRow>| {
            for ((coordinate, column), value) in points.iter_mut().zip(&columns).zip(values) {
                *coordinate = column.coordinate(value.row());
            }
            self.layout.curve.position(&mut points)
        };
        let mut positions: Vec<u64> = self.sample.iter().map(|(_, values)| position(values)).collect();
        positions.sort_unstable();
        Ok(Some(Ranges { layout: self.layout, columns, positions }))
    }
}

impl Ranges {
    /// The positions of rows on the curve.
    pub(crate) fn positions(&self, batch: &RecordBatch) -> Result<Vec<u64>> {
        let keys = key_columns(batch, &self.layout.columns)?;
        let (rows, dimensions) = (batch.num_rows(), self.columns.len());
        let mut points = vec![0_u32; rows * dimensions];
        for (at, (column, key)) in self.columns.iter().zip(keys).enumerate() {
            let values = column.converter.convert_columns(&[key])?;
            let coordinates = points.iter_mut().skip(at).step_by(dimensions);
            coordinates.zip(values.iter()).for_each(|(coordinate, value)| *coordinate = column.coordinate(value));
        }
        let curve: Curve = self.layout.curve;
        Ok(points.chunks_mut(dimensions).map(|point| curve.position(point)).collect())
    }

    /// Positions that divide the rows into so many parts of about the same size.
    pub(crate) fn cuts(&self, parts: usize) -> Vec<u64> {
        let at = |part: usize| self.positions.get(self.positions.len() * part / parts.max(1)).copied();
        let mut cuts: Vec<u64> = (1..parts).filter_map(at).collect();
        cuts.dedup();
        cuts
    }
}

impl ColumnRanges {
    fn of(converter: RowConverter, mut values: Vec<&OwnedRow>, bits: u32) -> Self {
        values.sort_unstable();
        let (sampled, ranges) = (values.len(), 1_usize << bits);
        let mut bounds = converter.empty_rows(ranges.min(sampled), 0);
        let mut coordinates: Vec<u32> = Vec::new();
        let mut before: Option<&OwnedRow> = None;
        for (rank, value) in values.into_iter().enumerate() {
            let coordinate = u32::try_from(rank * ranges / sampled).unwrap_or(u32::MAX);
            // Only the first of equal values, and only the first value with a coordinate, becomes a bound.
            if before != Some(value) && coordinates.last() != Some(&coordinate) {
                bounds.push(value.row());
                coordinates.push(coordinate);
            }
            before = Some(value);
        }
        Self { converter, bounds, coordinates }
    }

    fn coordinate(&self, value: Row<'_>) -> u32 {
        let (mut low, mut high) = (0, self.coordinates.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.bounds.row(middle) <= value {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).and_then(|at| self.coordinates.get(at)).copied().unwrap_or_default()
    }
}

fn converter(column: &ArrayRef) -> Result<RowConverter> {
    Ok(RowConverter::new(vec![SortField::new(column.data_type().clone())])?)
}

/// The columns at these paths. Members of a null struct are null.
fn key_columns(batch: &RecordBatch, paths: &[Vec<String>]) -> Result<Vec<ArrayRef>> {
    let missing = |path: &[String]| Error::internal(format!("the column `{}` was not read", path.join(".")));
    let key = |path: &Vec<String>| {
        let (first, inner) = path.split_first().ok_or_else(|| missing(path))?;
        let mut column = batch.column_by_name(first).ok_or_else(|| missing(path))?.clone();
        for name in inner {
            let parent = column.as_struct_opt().ok_or_else(|| missing(path))?;
            let child = parent.column_by_name(name).ok_or_else(|| missing(path))?;
            let nulls = NullBuffer::union(child.nulls(), parent.nulls());
            column = make_array(child.to_data().into_builder().nulls(nulls).build()?);
        }
        Ok(column)
    };
    paths.iter().map(key).collect()
}

/// A hash of a number: SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn bytes_of(value: &OwnedRow) -> usize {
    value.row().as_ref().len()
}
