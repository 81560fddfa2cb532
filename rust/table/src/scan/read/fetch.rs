//! Fetches bytes of one data file.
//!
//! The end of the file is fetched once and kept: the footer is decoded from it, and ranges within it need no
//! request, so that a small file takes one request. The size is taken from the log, which saves a request, and
//! every range is checked against it, because ranges come from the untrusted footer.

use std::ops::Range;

use bytes::Bytes;
use deltic_protocol::error::{Error, Result};
use parquet::file::metadata::ParquetMetaData;

use crate::error::corrupt_parquet;
use crate::footer;
use deltic_store::Storage;

/// How many bytes are fetched from the end of a file at first.
const TAIL_BYTES: u64 = 64 * 1024;

/// A data file that is being read.
#[derive(Debug, Clone)]
pub(crate) struct FileBytes {
    storage: Storage,
    /// The path that the store takes.
    path: String,
    size: u64,
    tail: Bytes,
}

impl FileBytes {
    /// Fetches the end of the file.
    pub(crate) async fn open(storage: Storage, path: String, size: u64) -> Result<Self> {
        let start = size.saturating_sub(TAIL_BYTES);
        let mut file = Self { storage, path, size, tail: Bytes::new() };
        file.tail = file.fetch(std::slice::from_ref(&(start..size))).await?.pop().unwrap_or_default();
        Ok(file)
    }

    /// The size of the file in bytes, by the log.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The still encoded metadata of the file, without the trailer.
    pub(crate) async fn footer(&self) -> Result<Bytes> {
        let length = footer::metadata_length(&self.tail).map_err(|e| {
            Error::corrupt(format!(
                "the file is not a Parquet file of {} bytes, which is its size in the log; restore it, or remove it \
                 from the table",
                self.size
            ))
            .caused_by(e)
        })?;
        let end = self.size.saturating_sub(footer::TRAILER);
        let start = end.checked_sub(length).ok_or_else(|| {
            Error::corrupt(format!("the file claims a footer of {length} bytes but has {} in all", self.size))
        })?;
        Ok(self.ranges(std::slice::from_ref(&(start..end))).await?.pop().unwrap_or_default())
    }

    /// The bytes of each range.
    pub(crate) async fn ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let mut total = 0_u64;
        for range in ranges {
            total = total.saturating_add(range.end.saturating_sub(range.start));
            if range.start > range.end || range.end > self.size || total > self.size {
                return Err(Error::corrupt(format!(
                    "the footer places data at {}..{} or uses bytes twice, in a file of {} bytes",
                    range.start, range.end, self.size
                )));
            }
        }
        let prefetched = |range: &Range<u64>| {
            let start = range.start.checked_sub(self.size.saturating_sub(self.tail.len() as u64))?;
            let end = start.checked_add(range.end - range.start)?;
            let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
            (end <= self.tail.len()).then(|| self.tail.slice(start..end))
        };
        let missing: Vec<Range<u64>> = ranges.iter().filter(|range| prefetched(range).is_none()).cloned().collect();
        let mut fetched = if missing.is_empty() { Vec::new() } else { self.fetch(&missing).await? }.into_iter();
        ranges
            .iter()
            .map(|range| {
                prefetched(range).or_else(|| fetched.next()).ok_or_else(|| Error::internal("a range was not fetched"))
            })
            .collect()
    }

    async fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = match ranges {
            [range] => vec![self.storage.get_range(&self.path, range.clone()).await?],
            ranges => self.storage.get_ranges(&self.path, ranges).await?,
        };
        let whole = bytes.len() == ranges.len()
            && bytes.iter().zip(ranges).all(|(bytes, range)| bytes.len() as u64 == range.end - range.start);
        if whole {
            return Ok(bytes);
        }
        Err(Error::corrupt(format!(
            "the file ends before the {} bytes that the log says it has; restore it, or remove it from the table",
            self.size
        )))
    }
}

/// Decodes the result of [`FileBytes::footer`], and compares its row counts with each other.
pub(crate) fn parse_footer(path: &str, bytes: &[u8]) -> Result<ParquetMetaData> {
    let metadata = footer::parse(bytes).map_err(|e| corrupt_parquet(path, e))?;
    let claimed = metadata.file_metadata().num_rows();
    let row_count = metadata.row_groups().iter().try_fold(0_i64, |sum, group| {
        let rows = group.num_rows();
        if rows < 0 { None } else { sum.checked_add(rows) }
    });
    if row_count != Some(claimed) {
        return Err(Error::corrupt(format!(
            "the footer has {claimed} rows, but its row groups do not add up to them; restore the file"
        ))
        .in_file(path));
    }
    Ok(metadata)
}
