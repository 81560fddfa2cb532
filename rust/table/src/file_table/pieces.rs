//! Statistics as JSON, most of what a checkpoint is, fetched and read a few pages at a time.
//!
//! While one piece is read the one after it is fetched, unless a lane does both; nothing of either is kept but the bounds.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;

use super::decode::{ColumnPlan, Values};
use crate::checkpoint::leaf::{Stop, TextPages};
use crate::checkpoint::part::Part;
use crate::error::{Error, Result};

/// Bytes of a piece from the disk, enough for several pages, and from a store that takes its time for every request.
const LOCAL_PIECE: u64 = 2 * 1024 * 1024;
const REMOTE_PIECE: u64 = 8 * 1024 * 1024;

/// Where the texts are.
pub(super) const TEXTS: [&str; 2] = ["add", "stats"];

/// What was read so far.
#[derive(Default)]
struct Read {
    pages: TextPages,
    found: Vec<Vec<Values>>,
    /// The beginning of a page that is not whole.
    rest: Vec<u8>,
}

/// The columns of a plan that come from texts, of `rows` alone if given, where others may be missing; `None` if the
/// texts are few, or of a rare kind, and had better be decoded with the other columns.
pub(super) async fn texts(
    part: &Arc<Part>,
    group: usize,
    plan: &Arc<ColumnPlan>,
    rows: Option<&BooleanBuffer>,
) -> Result<Option<Vec<Values>>> {
    let Some(leaf) = part.leaf(&TEXTS).filter(|_| plan.reads_texts()) else { return Ok(None) };
    let size = if part.is_local() { LOCAL_PIECE } else { REMOTE_PIECE };
    let span = part.span(group, leaf)?;
    if span.end - span.start <= size {
        return Ok(None);
    }
    let until = |start: u64| start.saturating_add(size).min(span.end);
    let (mut at, mut read) = (until(span.start), Read::default());
    let mut piece = part.piece(span.start..at).await?;
    loop {
        let (is_last, work, rows) = (at == span.end, plan.clone(), rows.cloned());
        let reading = part.blocking(move |part| {
            read.rest.extend_from_slice(&piece);
            drop(piece);
            let chunk = part.chunk_of(group, leaf, &read.rest)?;
            let one = |texts: &[Option<&str>]| work.read_texts(texts);
            let (found, length) = match read.pages.read(chunk, is_last, rows.as_ref(), one) {
                Ok(done) => done,
                Err(Stop::Rare) => return Ok(None),
                Err(Stop::Broken(what)) => {
                    let message = format!("the Parquet file cannot be read: {what}");
                    return Err(Error::corrupt(message).in_file(part.path()));
                }
            };
            read.found.extend(found.into_iter().collect::<Result<Vec<_>>>().map_err(|e| e.in_file(part.path()))?);
            read.rest.drain(..length);
            Ok(Some(read))
        });
        let ahead = async { if is_last { Ok(None) } else { part.piece(at..until(at)).await.map(Some) } };
        let (done, ahead) = futures::future::try_join(reading, ahead).await?;
        let Some(done) = done else { return Ok(None) };
        read = done;
        match ahead {
            Some(bytes) => (piece, at) = (bytes, until(at)),
            None => return plan.join_texts(read.found).map(Some).map_err(|e| e.in_file(part.path())),
        }
    }
}
