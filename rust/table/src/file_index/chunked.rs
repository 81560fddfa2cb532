//! Reads the largest leaves of a checkpoint, statistics as JSON and paths, a few pages at a time.
//!
//! From a disk, all pieces are read into the same memory. From a remote store, the next piece of the statistics is
//! fetched while one is decoded; paths come in one request together with the leaves next to them. Only the decoded columns
//! are kept.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use bytes::Bytes;
use deltic_pages::decode::{Chunk, FrontCoder, StringPages};

use super::decode::{ChunkedColumns, ColumnPlan, STATS};
use super::direct::Failed;
use super::part_columns::PATH;
use super::values::Values;
use crate::checkpoint::action_file::ActionFile;
use crate::error::Result;
use deltic_store::no_memory;

/// Bytes of a piece from a disk, enough for several pages, and from a remote store, where each request takes long.
const LOCAL_PIECE: u64 = 5 * 512 * 1024;
const REMOTE_PIECE: u64 = 8 * 1024 * 1024;

/// Reads those columns of a plan that are better read in chunks. With `rows`, the values of other rows may be missing.
pub(super) async fn read(
    part: &Arc<ActionFile>,
    group: usize,
    plan: &Arc<ColumnPlan>,
    rows: Option<&BooleanBuffer>,
) -> Result<ChunkedColumns> {
    Ok(ChunkedColumns { bounds: bounds(part, group, plan, rows).await?, paths: paths(part, group, plan).await? })
}

/// The bounds from JSON statistics. `None` if the statistics are short or of an unusual encoding: then they are
/// decoded with the other columns.
async fn bounds(
    part: &Arc<ActionFile>,
    group: usize,
    plan: &Arc<ColumnPlan>,
    rows: Option<&BooleanBuffer>,
) -> Result<Option<Vec<Values>>> {
    let Some(leaf) = large_leaf(part, group, STATS)?.filter(|_| plan.reads_json_stats()) else { return Ok(None) };
    let (work, rows) = (plan.clone(), rows.cloned());
    let read = move |(pages, found): &mut (StringPages, Vec<Vec<Values>>), chunk: Chunk<'_>, is_last| {
        let (made, length) = pages.read(chunk, is_last, rows.as_ref(), |stats| work.read_json_stats(stats))?;
        found.extend(made.into_iter().collect::<Result<Vec<_>>>()?);
        Ok(length)
    };
    match in_pieces(part, group, leaf, ReadStrategy::of(part), (StringPages::default(), Vec::new()), read).await? {
        Some((_, found)) => plan.join_json_stats(found).map(Some).map_err(|e| e.in_file(part.path())),
        None => Ok(None),
    }
}

/// The paths of a row group, if they are long enough to be read in pieces.
async fn paths(part: &Arc<ActionFile>, group: usize, plan: &Arc<ColumnPlan>) -> Result<Option<FrontCoder>> {
    let is_worth_it = part.is_local() && plan.keeps_paths_encoded(part);
    let Some(leaf) = large_leaf(part, group, PATH)?.filter(|_| is_worth_it) else { return Ok(None) };
    in_pieces(part, group, leaf, ReadStrategy::of(part), FrontCoder::default(), |trimming, chunk, is_last| {
        Ok(trimming.read(chunk, is_last)?)
    })
    .await
}

/// The index of a leaf, if it is larger than one piece.
fn large_leaf(part: &ActionFile, group: usize, path: [&str; 2]) -> Result<Option<usize>> {
    let Some(leaf) = part.leaf(&path) else { return Ok(None) };
    let span = part.span(group, leaf)?;
    Ok(Some(leaf).filter(|_| span.end - span.start > ReadStrategy::of(part).piece_bytes))
}

/// How the pieces of a leaf are read.
#[derive(Clone, Copy)]
struct ReadStrategy {
    piece_bytes: u64,
    /// Whether the next piece is fetched while one is decoded.
    fetches_ahead: bool,
}

impl ReadStrategy {
    fn of(part: &ActionFile) -> Self {
        match part.is_local() {
            true => Self { piece_bytes: LOCAL_PIECE, fetches_ahead: false },
            false => Self { piece_bytes: REMOTE_PIECE, fetches_ahead: true },
        }
    }
}

/// Calls `read` with the bytes of a leaf so far and whether they are the last; it returns how many bytes it has consumed.
/// `None` if the leaf must be left to the parquet crate.
async fn in_pieces<R: Send + 'static>(
    part: &Arc<ActionFile>,
    group: usize,
    leaf: usize,
    ReadStrategy { piece_bytes: size, fetches_ahead }: ReadStrategy,
    mut so_far: R,
    read: impl Fn(&mut R, Chunk<'_>, bool) -> Result<usize, Failed> + Clone + Send + 'static,
) -> Result<Option<R>> {
    let span = part.span(group, leaf)?;
    let (mut memory, mut at) = (Vec::new(), span.start);
    let mut ahead: Option<Bytes> = None;
    loop {
        // A page that is larger than a piece is complete after several pieces.
        let left = memory.len() as u64;
        let room = if left < size / 2 && !fetches_ahead { size - left } else { size };
        let end = at.saturating_add(room).min(span.end);
        let piece = ahead.take();
        if piece.is_none() {
            memory = part.append(at..end, memory).await?;
        }
        at = end;
        let (is_last, work) = (at == span.end, read.clone());
        let reading = part.blocking(move |part| {
            let piece = piece.as_deref().unwrap_or_default();
            memory.try_reserve(piece.len()).map_err(no_memory)?;
            memory.extend_from_slice(piece);
            match work(&mut so_far, part.chunk_of(group, leaf, &memory)?, is_last) {
                Ok(length) => drop(memory.drain(..length.min(memory.len()))),
                Err(Failed::Unsupported) => return Ok(None),
                Err(Failed::Error(error)) => return Err(error.in_file(part.path())),
            }
            Ok(Some((memory, so_far)))
        });
        let fetching = async {
            match fetches_ahead && !is_last {
                true => part.read_range(at..at.saturating_add(size).min(span.end)).await.map(Some),
                false => Ok(None),
            }
        };
        let (done, next) = futures::future::try_join(reading, fetching).await?;
        let Some(done) = done else { return Ok(None) };
        (memory, so_far, ahead) = (done.0, done.1, next);
        if is_last {
            return Ok(Some(so_far));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::{RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use proptest::prelude::*;

    use super::*;
    use deltic_store::Storage;

    /// A file with one leaf, and the bytes of its pages.
    async fn file(folder: &std::path::Path, texts: usize) -> (Arc<ActionFile>, Vec<u8>) {
        let texts: StringArray = (0..texts).map(|number| Some((number * number % 9973).to_string())).collect();
        let batch = RecordBatch::try_from_iter([("text", Arc::new(texts) as _)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        std::fs::write(folder.join("file"), &bytes).unwrap();
        let storage = Storage::open(folder.to_str().unwrap(), &HashMap::new()).unwrap();
        let part = ActionFile::open(&storage, "file".to_owned(), bytes.len() as u64).await.unwrap();
        let span = part.span(0, 0).unwrap();
        (Arc::new(part), bytes[span.start as usize..span.end as usize].to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A reader that needs part of what was dropped is shown the rest of it, and what follows.
        #[test]
        fn all_bytes_are_shown_once(
            size in 1..3_000_u64,
            fetches_ahead in any::<bool>(),
            needed in prop::collection::vec(0..2_000_usize, 1..9),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let (part, expected) = file(folder.path(), 2_000).await;
                let read = move |(all, turns): &mut (Vec<u8>, usize), chunk: Chunk<'_>, is_last: bool| {
                    let wanted = needed.get(*turns % needed.len()).copied().unwrap_or_default();
                    *turns += 1;
                    let some = if is_last { chunk.bytes } else { chunk.bytes.get(..wanted).unwrap_or(chunk.bytes) };
                    all.extend_from_slice(some);
                    Ok(some.len())
                };
                let all = in_pieces(&part, 0, 0, ReadStrategy { piece_bytes: size, fetches_ahead }, (Vec::new(), 0), read).await.unwrap();
                let (all, turns) = all.unwrap();
                assert!(all == expected && turns as u64 >= (expected.len() as u64).div_ceil(size));
                let rare = |_: &mut (), _: Chunk<'_>, _: bool| Err(Failed::Unsupported);
                assert!(in_pieces(&part, 0, 0, ReadStrategy { piece_bytes: size, fetches_ahead }, (), rare).await.unwrap().is_none());
            });
        }
    }
}
