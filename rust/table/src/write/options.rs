//! Options for data files. Everything else depends on the table.
//!
//! They are plain data, which is part of a write plan. Values are checked when a plan is made, so that a wrong one is refused
//! before any file is written.

use std::collections::BTreeMap;
use std::fmt;

use deltic_protocol::error::{Error, Result};
use parquet::basic::{self, BrotliLevel, GzipLevel, ZstdLevel};
use serde::{Deserialize, Serialize};

/// How the pages of a data file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Zstandard, at its fastest regular level.
    #[default]
    Zstd,
    /// Snappy.
    Snappy,
    /// Gzip.
    Gzip,
    /// LZ4 blocks without a frame.
    Lz4,
    /// Brotli, at its fastest level.
    Brotli,
    /// None.
    Uncompressed,
}

impl Compression {
    /// Parses the name of a codec as in Spark and in the table property, in any case.
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "zstd" => Ok(Self::Zstd),
            "snappy" => Ok(Self::Snappy),
            "gzip" => Ok(Self::Gzip),
            "lz4" | "lz4_raw" | "lz4raw" => Ok(Self::Lz4),
            "brotli" => Ok(Self::Brotli),
            "uncompressed" | "none" => Ok(Self::Uncompressed),
            _ => Err(Error::invalid(format!(
                "`{text}` is not a compression that deltic writes; use zstd, snappy, gzip, lz4, brotli or \
                 uncompressed"
            ))),
        }
    }

    /// Its name in file names.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
            Self::Gzip => "gz",
            Self::Lz4 => "lz4raw",
            Self::Brotli => "br",
            Self::Uncompressed => "",
        }
    }

    /// The codec for Parquet's writer, at a level or at its default.
    ///
    /// # Errors
    /// `Invalid` for a level that the codec does not have.
    pub(super) fn at_level(self, level: Option<i64>) -> Result<basic::Compression> {
        let refuse = |levels: &str| {
            let given = level.unwrap_or_default();
            Error::invalid(format!("compression_level of {self} is {levels}, not {given}"))
        };
        let unsigned = level.map(|level| u32::try_from(level).unwrap_or(u32::MAX));
        Ok(match (self, level, unsigned) {
            (Self::Zstd, None, _) => basic::Compression::ZSTD(ZstdLevel::default()),
            (Self::Zstd, Some(level), _) => {
                let level = i32::try_from(level).unwrap_or(i32::MAX);
                basic::Compression::ZSTD(ZstdLevel::try_new(level).map_err(|_| refuse("a number up to 22"))?)
            }
            (Self::Gzip, _, None) => basic::Compression::GZIP(GzipLevel::default()),
            (Self::Gzip, _, Some(level)) => {
                basic::Compression::GZIP(GzipLevel::try_new(level).map_err(|_| refuse("a number from 0 to 9"))?)
            }
            (Self::Brotli, _, None) => basic::Compression::BROTLI(BrotliLevel::default()),
            (Self::Brotli, _, Some(level)) => {
                basic::Compression::BROTLI(BrotliLevel::try_new(level).map_err(|_| refuse("a number from 0 to 11"))?)
            }
            (Self::Snappy | Self::Lz4 | Self::Uncompressed, Some(_), _) => {
                return Err(Error::invalid(format!("{self} has no levels; leave compression_level out")));
            }
            (Self::Snappy, None, _) => basic::Compression::SNAPPY,
            (Self::Lz4, None, _) => basic::Compression::LZ4_RAW,
            (Self::Uncompressed, None, _) => basic::Compression::UNCOMPRESSED,
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
            Self::Brotli => "brotli",
            Self::Uncompressed => "uncompressed",
        })
    }
}

/// Options for data files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileOptions {
    /// Bytes after which a data file ends and another begins.
    pub target_file_size: Option<u64>,
    /// The most rows of a data file.
    pub max_rows_per_file: Option<u64>,
    /// The most rows of a row group.
    pub row_group_rows: Option<u64>,
    /// Parquet codec.
    pub compression: Option<String>,
    /// Level of the codec.
    pub compression_level: Option<i64>,
    /// Options of single columns, by name or dotted path. Those of a nested column apply to all its leaves.
    pub column_options: BTreeMap<String, ColumnOptions>,
    /// Columns by which the rows of each row group are sorted, ascending, nulls first.
    pub sort_by: Vec<String>,
    /// Most bytes of rows and encoded pages that a writer has in memory.
    pub memory_limit: Option<u64>,
}

/// How one column is encoded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColumnOptions {
    /// The encoding of its values where they are not dictionary-encoded.
    pub encoding: Option<String>,
    /// Whether values are dictionary-encoded. By default they are, unless an encoding is given.
    pub dictionary: Option<bool>,
    /// Parquet codec, instead of the file's.
    pub compression: Option<String>,
    /// Level of the codec.
    pub compression_level: Option<i64>,
    /// A bloom filter for each row group.
    pub bloom_filter: Option<BloomFilter>,
}

/// The size of a bloom filter, by two numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BloomFilter {
    /// Probability of a false positive, between 0 and 1.
    pub fpp: Option<f64>,
    /// The expected number of distinct values in a row group.
    pub ndv: Option<u64>,
}
