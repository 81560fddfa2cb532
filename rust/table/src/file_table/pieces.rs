//! Leaves that are most of what a checkpoint is, statistics as JSON and paths, fetched and read a few pages at a time.
//!
//! From a disk they are read into the same memory, again and again. From a store, the next piece is fetched while one is
//! read. Nothing of either is kept but what is made of it.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use bytes::Bytes;

use super::decode::{ColumnPlan, PATH, Values};
use super::direct::{BESIDE, Failed};
use crate::checkpoint::leaf::{Chunk, TextPages, Trimming, trimming_with};
use crate::checkpoint::part::Part;
use crate::error::{Error, Result};
use crate::storage::pool;

/// Bytes of a piece from the disk, enough for several pages, and from a store that takes its time for every request.
const LOCAL_PIECE: u64 = 5 * 512 * 1024;
const REMOTE_PIECE: u64 = 8 * 1024 * 1024;

/// Where the texts are.
const TEXTS: [&str; 2] = ["add", "stats"];

/// What was read piece by piece.
#[derive(Default)]
pub(super) struct Before {
    /// The columns that come from texts of the statistics.
    pub(super) bounds: Option<Vec<Values>>,
    /// All paths, of which few are wanted.
    pub(super) paths: Option<Trimming>,
}

impl Before {
    /// What had better be read piece by piece of the columns of a plan; of `rows` alone if given, where others may be
    /// missing.
    pub(super) async fn of(
        part: &Arc<Part>,
        group: usize,
        plan: &Arc<ColumnPlan>,
        rows: Option<&BooleanBuffer>,
    ) -> Result<Self> {
        Ok(Self { bounds: bounds(part, group, plan, rows).await?, paths: paths(part, group, plan).await? })
    }

    /// Whether a leaf was read.
    pub(super) fn has(&self, leaf: &[String]) -> bool {
        (self.bounds.is_some() && leaf == TEXTS) || (self.paths.is_some() && leaf == PATH)
    }
}

/// `None` if the texts are few, or of a rare kind, and had better be decoded with the other columns.
async fn bounds(
    part: &Arc<Part>,
    group: usize,
    plan: &Arc<ColumnPlan>,
    rows: Option<&BooleanBuffer>,
) -> Result<Option<Vec<Values>>> {
    let Some(leaf) = large_leaf(part, group, TEXTS)?.filter(|_| plan.reads_texts()) else { return Ok(None) };
    let (work, rows) = (plan.clone(), rows.cloned());
    let read = move |(pages, found): &mut (TextPages, Vec<Vec<Values>>), chunk: Chunk<'_>, is_last| {
        let (made, length) = pages.read(chunk, is_last, rows.as_ref(), |texts| work.read_texts(texts))?;
        found.extend(made.into_iter().collect::<Result<Vec<_>>>()?);
        Ok(length)
    };
    match in_pieces(part, group, leaf, (TextPages::new(), Vec::new()), read).await? {
        Some((_, found)) => plan.join_texts(found).map(Some).map_err(|e| e.in_file(part.path())),
        None => Ok(None),
    }
}

/// The same of paths.
async fn paths(part: &Arc<Part>, group: usize, plan: &Arc<ColumnPlan>) -> Result<Option<Trimming>> {
    let Some(leaf) = large_leaf(part, group, PATH)?.filter(|_| plan.wants_few_paths(part)) else { return Ok(None) };
    let beside = BESIDE.map(|path| part.leaf(&path).map(|leaf| part.chunk_of(group, leaf, &[])));
    let trimming = match beside {
        [Some(one), Some(other)] => trimming_with([one?, other?]),
        _ => Trimming::new(0),
    };
    in_pieces(part, group, leaf, trimming, |trimming, chunk, is_last| Ok(trimming.read(chunk, is_last)?)).await
}

/// A leaf that is more than one piece.
fn large_leaf(part: &Part, group: usize, path: [&str; 2]) -> Result<Option<usize>> {
    let Some(leaf) = part.leaf(&path) else { return Ok(None) };
    let span = part.span(group, leaf)?;
    Ok(Some(leaf).filter(|_| span.end - span.start > piece_bytes(part)))
}

fn piece_bytes(part: &Part) -> u64 {
    if part.is_local() { LOCAL_PIECE } else { REMOTE_PIECE }
}

/// Shows `read` what is there of a leaf, and whether nothing follows it; it gives how many bytes it needs no more. `None`
/// if it leaves the leaf to the general decoder.
async fn in_pieces<R: Send + 'static>(
    part: &Arc<Part>,
    group: usize,
    leaf: usize,
    mut so_far: R,
    read: impl Fn(&mut R, Chunk<'_>, bool) -> Result<usize, Failed> + Clone + Send + 'static,
) -> Result<Option<R>> {
    let (span, size) = (part.span(group, leaf)?, piece_bytes(part));
    let no_memory = |e| Error::storage(false, "not enough memory to read the checkpoint").caused_by(e);
    let (mut memory, mut at) = (pool::buffer(size as usize).map_err(no_memory)?, span.start);
    let mut ahead: Option<Bytes> = None;
    loop {
        // Pages that are larger than a piece are there after some pieces.
        let left = memory.len() as u64;
        let end = at.saturating_add(if left < size / 2 && part.is_local() { size - left } else { size }).min(span.end);
        let piece = ahead.take();
        if piece.is_none() {
            memory = part.append(at..end, memory).await?;
        }
        at = end;
        let (is_last, work) = (at == span.end, read.clone());
        let reading = part.blocking(move |part| {
            memory.extend(piece.as_deref().unwrap_or_default()).map_err(no_memory)?;
            match work(&mut so_far, part.chunk_of(group, leaf, memory.as_ref())?, is_last) {
                Ok(length) => memory.drop_front(length),
                Err(Failed::Rare) => return Ok(None),
                Err(Failed::Error(error)) => return Err(error.in_file(part.path())),
            }
            Ok(Some((memory, so_far)))
        });
        let fetching = async {
            let is_there = is_last || part.is_local();
            if is_there { Ok(None) } else { part.piece(at..at.saturating_add(size).min(span.end)).await.map(Some) }
        };
        let (done, next) = futures::future::try_join(reading, fetching).await?;
        let Some(done) = done else { return Ok(None) };
        (memory, so_far, ahead) = (done.0, done.1, next);
        if is_last {
            pool::give(memory);
            return Ok(Some(so_far));
        }
    }
}
