//! Decides how many rows of a file make a batch.
//!
//! A batch should have a bounded number of bytes. The bytes of a row are estimated twice before rows are decoded: by
//! the footer, and by the headers of pages, since with a dictionary a few bytes can become long values when
//! decoded. Both can be wrong. The strings of a batch cannot exceed 2 GiB, so the headers also show from how
//! many rows on they could be longer.
//!
//! Proved by the tests in `tests/rust/table/read/long_values.rs` and by
//! `pages::wide_columns_take_memory_in_proportion_to_the_file`.

use deltic_pages::limits::{PageLimits, fixed_width};
use deltic_protocol::error::{Error, Result};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ColumnChunkMetaData;

use super::unit::Unit;

/// The target size of a batch in bytes.
const BATCH_BYTES: u64 = 64 * 1024 * 1024;

/// The most bytes of strings in one batch: their offsets have 32 bits.
const MAX_STRING_BYTES: u64 = i32::MAX as u64;

/// How many rows of `unit` make a batch by the footer, at most `max_rows`. An error if a single row would be too large.
pub(super) fn by_footer(unit: &Unit, max_rows: usize) -> Result<usize> {
    let file = &unit.file;
    let leaves = file.needed_leaves();
    let schema = file.metadata.parquet_schema();
    let fixed = leaves.iter().filter_map(|leaf| schema.columns().get(*leaf)).filter_map(|c| fixed_width(c));
    let width = fixed.fold(0, u64::saturating_add);
    if width > BATCH_BYTES.max(file.bytes.size()) {
        return Err(Error::corrupt(format!(
            "by its schema a row of the file takes {width} bytes, which is impossible in a file of {}; restore it, \
             or remove it from the table",
            file.bytes.size()
        )));
    }
    let mut rows = max_rows;
    for selected in &unit.row_groups {
        let Some(group) = file.metadata.metadata().row_groups().get(selected.row_group_index()) else { continue };
        let columns = leaves.iter().filter_map(|leaf| group.columns().get(*leaf));
        let bytes = columns.map(|column| footer_bytes(column, count(group.num_rows()))).fold(0, u64::saturating_add);
        rows = rows.min(fit(count(group.num_rows()), bytes, max_rows));
    }
    Ok(rows)
}

/// The estimate by the page headers of the current row group.
#[derive(Debug, Default)]
pub(super) struct ByPages {
    group: usize,
    bytes: u64,
}

impl ByPages {
    /// Adds a column of the row group `group`, which has `rows` rows. Returns how many rows, at most `max_rows`, make a batch
    /// by the columns so far.
    pub(super) fn add(
        &mut self,
        group: usize,
        rows: u64,
        column: &ColumnChunkMetaData,
        claims: &PageLimits,
        max_rows: usize,
    ) -> usize {
        if group != self.group {
            *self = Self { group, bytes: 0 };
        }
        let bytes = footer_bytes(column, rows);
        let has_exact_bytes = column.unencoded_byte_array_data_bytes().is_some();
        let long = if has_exact_bytes { 0 } else { claims.values.saturating_mul(claims.dictionary_value) };
        let repeated = if has_exact_bytes { 0 } else { claims.prefixes };
        self.bytes = self.bytes.saturating_add(bytes.saturating_add(repeated).max(long));
        fit(rows, self.bytes, max_rows)
    }
}

/// How many rows certainly have strings that fit into one batch, by the page headers of a column.
pub(super) fn rows_that_fit(column: &ColumnChunkMetaData, rows: u64, claims: &PageLimits) -> usize {
    if column.column_type() != PhysicalType::BYTE_ARRAY
        || claims.values.saturating_mul(claims.largest_page) <= MAX_STRING_BYTES
    {
        return usize::MAX;
    }
    let in_row = claims.values.div_ceil(rows.max(1)).max(1);
    let rows = MAX_STRING_BYTES / in_row.saturating_mul(claims.largest_page).max(1);
    usize::try_from(rows).unwrap_or(usize::MAX).max(1)
}

/// How many rows make a batch after the strings of a batch of more than `rows_that_fit` rows were too long.
pub(super) fn after_overflow(rows_that_fit: usize) -> usize {
    let times = usize::try_from(MAX_STRING_BYTES / BATCH_BYTES).unwrap_or(1).max(1);
    (rows_that_fit / times).max(1)
}

/// Bytes of a decoded column chunk, by the footer.
fn footer_bytes(column: &ColumnChunkMetaData, rows: u64) -> u64 {
    let repeats = column.column_descr().max_rep_level() > 0;
    let values = if repeats { count(column.num_values()) } else { rows };
    let string_bytes = || count(column.unencoded_byte_array_data_bytes().unwrap_or(column.uncompressed_size()));
    match column.column_type() {
        PhysicalType::BOOLEAN => values / 8,
        PhysicalType::INT32 | PhysicalType::FLOAT => values.saturating_mul(4),
        PhysicalType::INT64 | PhysicalType::DOUBLE | PhysicalType::INT96 => values.saturating_mul(8),
        PhysicalType::BYTE_ARRAY => values.saturating_mul(4).saturating_add(string_bytes()),
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            values.saturating_mul(fixed_width(column.column_descr()).unwrap_or_default())
        }
    }
}

/// How many rows make a batch if `rows` rows take `bytes` bytes: at least one, at most `max_rows`.
fn fit(rows: u64, bytes: u64, max_rows: usize) -> usize {
    let each = bytes.div_ceil(rows.max(1)).max(1);
    usize::try_from(BATCH_BYTES / each).unwrap_or(usize::MAX).clamp(1, max_rows.max(1))
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
