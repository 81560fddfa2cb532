//! Maps values to coordinates: to ranges of their column's values between sampled bounds.
//!
//! A sample of the rows is taken by a hash of the row numbers, so that it is independent of the order of values and the
//! same each time. The bounds are its values; the coordinate of a value is the share of the sample below it, so that columns
//! with few values spread as far as others. Every type that has an order is allowed: ascending, nulls first, NaN last.
//!
//! Several processes may sample parts of the rows, and use ranges that one of them has made: [`super::sent`].

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, make_array};
use arrow_buffer::NullBuffer;
use arrow_row::{OwnedRow, Row, RowConverter, Rows, SortField};
use arrow_select::take::take;
use serde::{Deserialize, Serialize};

use super::CurveLayout;
use super::curve::{Curve, bits};
use crate::error::{Error, Result};

/// How large a sample may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SampleLimits {
    /// The most rows. A sample has at least about half as many, if there are so many rows.
    rows: usize,
    /// The most bytes of the values, if there are more rows than `min_rows`.
    bytes: usize,
    /// The rows that a sample may have even if its values are long.
    min_rows: usize,
}

impl SampleLimits {
    /// For all rows that are ordered together.
    pub(super) const WHOLE: Self = Self { rows: 128 * 1024, bytes: 16 << 20, min_rows: 1024 };

    /// For one of `groups` groups of rows, each of which is ordered by itself.
    pub(crate) fn of_group(groups: usize) -> Self {
        let Self { rows, bytes, min_rows } = Self::WHOLE;
        let groups = groups.max(1);
        Self { rows: (rows / groups).max(4096), bytes: (bytes / groups).max(512 * 1024), min_rows }
    }

    /// For one of `parts` parts of these rows, whose samples are merged. It is twice the part's share, since parts may have
    /// different numbers of rows.
    pub(crate) fn of_part(self, parts: usize) -> Self {
        let parts = parts.max(1);
        let share = |all: usize| all.saturating_mul(2) / parts;
        Self { rows: share(self.rows).max(64), bytes: share(self.bytes).max(4096), min_rows: 64.min(self.min_rows) }
    }
}

/// Takes a sample of rows.
pub(crate) struct Sampler {
    pub(super) layout: CurveLayout,
    pub(super) limits: SampleLimits,
    pub(super) converters: Vec<RowConverter>,
    /// The sample has the rows whose hash is not greater.
    pub(super) threshold: u64,
    /// The number of the first row.
    first: u64,
    pub(super) rows: u64,
    /// Hashes and values of the rows in the sample.
    pub(super) sample: Vec<(u64, Vec<OwnedRow>)>,
    /// Bytes of the values.
    pub(super) sample_bytes: usize,
}

/// The ranges of a curve's columns.
pub(crate) struct Ranges {
    pub(super) layout: CurveLayout,
    pub(super) columns: Vec<ColumnRanges>,
    /// Positions on the curve of the sample's rows, ascending.
    pub(super) positions: Vec<u64>,
}

pub(super) struct ColumnRanges {
    pub(super) converter: RowConverter,
    /// Values of the sample, ascending.
    pub(super) bounds: Rows,
    /// For each bound, the coordinate of the values from it up to the next bound.
    pub(super) coordinates: Vec<u32>,
}

/// How many rows a part of the rows has at most.
const ROWS_OF_A_PART: u64 = 1 << 40;

impl Sampler {
    pub(crate) fn new(layout: CurveLayout) -> Self {
        Self::of_part(layout, 0, SampleLimits::WHOLE)
    }

    /// Samples a part of the rows. Rows of different parts have different numbers.
    pub(crate) fn of_part(layout: CurveLayout, part: u64, limits: SampleLimits) -> Self {
        let first = part.wrapping_mul(ROWS_OF_A_PART);
        let (converters, sample) = (Vec::new(), Vec::new());
        Self { layout, limits, converters, threshold: u64::MAX, first, rows: 0, sample, sample_bytes: 0 }
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
            let hash = mixed(self.first.wrapping_add(self.rows));
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
        self.shrink();
        Ok(())
    }

    /// Halves the sample until it is small enough.
    pub(super) fn shrink(&mut self) {
        let SampleLimits { rows, bytes, min_rows } = self.limits;
        while self.sample.len() > rows || (self.sample.len() > min_rows && self.sample_bytes > bytes) {
            self.keep_up_to(self.threshold / 2);
        }
    }

    /// Keeps the rows of the sample whose hash is not greater.
    pub(super) fn keep_up_to(&mut self, threshold: u64) {
        self.threshold = threshold;
        self.sample.retain(|(hash, _)| *hash <= threshold);
        self.sample_bytes = self.sample.iter().flat_map(|(_, values)| values).map(bytes_of).sum();
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

    /// The positions, from the second on, at which so many intervals begin. A row of the sample is at the beginning of each,
    /// so none is without rows.
    pub(crate) fn intervals(&self, most: usize) -> Vec<u64> {
        let mut cuts = self.cuts(most);
        cuts.retain(|cut| self.positions.first().is_some_and(|first| cut > first));
        cuts
    }

    /// Keeps the positions of the sample from `from` up to `to`, since only rows between them will be sorted. Returns about
    /// how many of `rows` rows these are.
    pub(crate) fn narrow(&mut self, from: u64, to: Option<u64>, rows: u64) -> u64 {
        let all = self.positions.len().max(1) as u128;
        self.positions.retain(|position| *position >= from && to.is_none_or(|to| *position < to));
        let kept = self.positions.len() as u128;
        u64::try_from(u128::from(rows) * kept / all).unwrap_or(rows)
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

pub(super) fn converter(column: &ArrayRef) -> Result<RowConverter> {
    Ok(RowConverter::new(vec![SortField::new(column.data_type().clone())])?)
}

/// The columns at these paths. Members of a null struct are null.
pub(super) fn key_columns(batch: &RecordBatch, paths: &[Vec<String>]) -> Result<Vec<ArrayRef>> {
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

pub(super) fn bytes_of(value: &OwnedRow) -> usize {
    value.row().as_ref().len()
}
