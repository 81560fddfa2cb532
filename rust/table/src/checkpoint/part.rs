//! One Parquet file of a checkpoint: its footer, and row groups decoded on demand.
//!
//! Knows leaves and row groups, nothing of actions. Only the bytes of wanted leaves are fetched; decoding runs on the
//! blocking pool, never on the threads that wait for the store. Whatever a footer says of positions is checked first.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::read::may_hold;
use crate::error::{Error, Result, corrupt_parquet};
use crate::footer;
use crate::storage::Storage;

/// How much of the file's end is fetched at first; footers of checkpoints are mostly smaller.
const FOOTER_GUESS: u64 = 64 * 1024;
/// Footers fetched at once.
const CONCURRENT_FOOTERS: usize = 16;
/// Rows decoded into one batch.
const BATCH_ROWS: usize = 128 * 1024;

/// One Parquet file with actions.
#[derive(Debug)]
pub(super) struct Part {
    storage: Storage,
    path: String,
    size: u64,
    metadata: ArrowReaderMetadata,
    leaves: Vec<Vec<String>>,
}

impl Part {
    /// Reads the footers of files given by path and size.
    pub(super) async fn open_all(storage: &Storage, files: Vec<(String, u64)>) -> Result<Vec<Arc<Self>>> {
        let open = |(path, size)| async move { Self::open(storage, path, size).await.map(Arc::new) };
        stream::iter(files).map(open).buffered(CONCURRENT_FOOTERS).try_collect().await
    }

    async fn open(storage: &Storage, path: String, size: u64) -> Result<Self> {
        let parquet = |e| corrupt_parquet(&path, e);
        let cut = || Error::corrupt("the Parquet file is cut off").in_file(&path);
        if size <= footer::TRAILER {
            return Err(cut());
        }
        let start = size.saturating_sub(FOOTER_GUESS);
        let mut end = storage.get_range(&path, start..size).await?;
        let length = footer::metadata_length(&end).map_err(parquet)?;
        let from = size.checked_sub(footer::TRAILER).and_then(|at| at.checked_sub(length)).ok_or_else(cut)?;
        if from < start {
            let head = storage.get_range(&path, from..start).await?;
            end = Bytes::from([head, end].concat());
        }
        let skip = usize::try_from(from.saturating_sub(start)).unwrap_or(usize::MAX);
        let stop = end.len().saturating_sub(footer::TRAILER as usize);
        let metadata = footer::parse(end.get(skip..stop).ok_or_else(cut)?).map_err(parquet)?;
        // What writers still put into INT96 are instants.
        let metadata = footer::arrow_metadata(Arc::new(metadata), Some("UTC")).map_err(parquet)?;
        let leaves = metadata.metadata().file_metadata().schema_descr().columns().iter();
        let leaves = leaves.map(|c| c.path().parts().to_vec()).collect();
        Ok(Self { storage: storage.clone(), path, size, metadata, leaves })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn leaves(&self) -> impl Iterator<Item = &[String]> {
        self.leaves.iter().map(Vec::as_slice)
    }

    pub(super) fn has_leaf(&self, path: &[String]) -> bool {
        self.leaves.iter().any(|leaf| leaf == path)
    }

    /// Whether a leaf is null in every row, by the statistics.
    pub(super) fn is_empty_leaf(&self, path: &[String]) -> bool {
        let leaf = self.leaves.iter().position(|leaf| leaf == path);
        leaf.is_none_or(|leaf| !self.metadata.metadata().row_groups().iter().any(|group| may_hold(group, leaf)))
    }

    /// Row groups in which `root.key` may be there.
    pub(super) fn groups_with(&self, root: &str, key: &str) -> Vec<usize> {
        let Some(leaf) = self.leaves.iter().position(|leaf| leaf.len() == 2 && leaf[0] == root && leaf[1] == key)
        else {
            return Vec::new();
        };
        let groups = self.metadata.metadata().row_groups().iter().enumerate();
        groups.filter(|(_, group)| group.num_rows() > 0 && may_hold(group, leaf)).map(|(index, _)| index).collect()
    }

    /// Decodes the wanted leaves of a row group.
    pub(super) async fn read(
        self: &Arc<Self>,
        group: usize,
        wanted: &(dyn Fn(&[String]) -> bool + Send + Sync),
    ) -> Result<Vec<RecordBatch>> {
        let leaves: Vec<usize> = (0..self.leaves.len()).filter(|i| wanted(&self.leaves[*i])).collect();
        let chunks = self.chunks(group, &leaves)?;
        let bytes = self.storage.get_ranges(&self.path, &chunks).await?;
        let chunks = chunks.into_iter().zip(bytes).map(|(range, bytes)| (range.start, bytes)).collect();
        let (part, chunks) = (self.clone(), Chunks { size: self.size, chunks });
        let decoded = tokio::task::spawn_blocking(move || part.decode(group, leaves, chunks)).await;
        let decoded = decoded.map_err(|e| Error::corrupt("decoding the Parquet file failed").caused_by(e));
        decoded.map_err(|e| e.in_file(&self.path))?.map_err(|e| corrupt_parquet(&self.path, e))
    }

    fn chunks(&self, group: usize, leaves: &[usize]) -> Result<Vec<Range<u64>>> {
        let columns = self.metadata.metadata().row_groups().get(group).map(|g| g.columns()).unwrap_or_default();
        let range = |leaf: &usize| {
            let column = columns.get(*leaf)?;
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let start = u64::try_from(start).ok()?;
            let end = start.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
            (end <= self.size).then_some(start..end)
        };
        leaves.iter().map(range).collect::<Option<_>>().ok_or_else(|| {
            Error::corrupt("a column chunk lies outside the Parquet file, or is missing").in_file(&self.path)
        })
    }

    fn decode(&self, group: usize, leaves: Vec<usize>, chunks: Chunks) -> Result<Vec<RecordBatch>, ParquetError> {
        let mask = ProjectionMask::leaves(self.metadata.metadata().file_metadata().schema_descr(), leaves);
        let rows = usize::try_from(self.metadata.metadata().row_group(group).num_rows()).unwrap_or(BATCH_ROWS);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, self.metadata.clone())
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_batch_size(rows.clamp(1, BATCH_ROWS))
            .build()?;
        reader.map(|batch| batch.map_err(ParquetError::from)).collect()
    }
}

/// The fetched column chunks of a file, by position.
struct Chunks {
    size: u64,
    chunks: Vec<(u64, Bytes)>,
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        use bytes::Buf;
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF("a page reaches beyond its column chunk".to_owned()));
        }
        Ok(bytes.slice(..length))
    }
}

impl Chunks {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let inside = |(at, bytes): &&(u64, Bytes)| (*at..at.saturating_add(bytes.len() as u64)).contains(&start);
        let chunk = self.chunks.iter().find(inside);
        let (at, bytes) = chunk.ok_or_else(|| ParquetError::EOF("a page lies outside its column chunk".to_owned()))?;
        Ok(bytes.slice(usize::try_from(start - at).unwrap_or(usize::MAX)..))
    }
}
