//! Which byte ranges of one file are worth a request of their own.
//!
//! Invariant: every wanted range lies inside exactly the span it is assigned to, so slicing a span that was read in
//! full cannot fail. Proved by `ranges_come_back_as_asked` in the storage tests.

use std::ops::Range;

use bytes::Bytes;

use crate::error::{Error, Result};

/// The largest span, so that a large contiguous read is divided among several connections.
const MAX_SPAN_BYTES: u64 = 32 * 1024 * 1024;

/// Spans to read, in ascending order, and for each requested range the index of its span.
pub(super) struct Spans {
    pub(super) spans: Vec<Range<u64>>,
    holder: Vec<usize>,
}

/// Merges ranges that overlap or lie at most `gap` bytes apart.
pub(super) fn merge(wanted: &[Range<u64>], gap: u64) -> Spans {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let bounds = |i: usize| wanted.get(i).map_or((0, 0), |r| (r.start, r.end));
    order.sort_by_key(|&i| bounds(i));
    let mut spans: Vec<Range<u64>> = Vec::new();
    let mut holder = vec![0; wanted.len()];
    for i in order {
        let (start, end) = bounds(i);
        match spans.last_mut() {
            Some(last)
                if start <= last.end.saturating_add(gap)
                    && (end <= last.end || end.saturating_sub(last.start) <= MAX_SPAN_BYTES) =>
            {
                last.end = last.end.max(end);
            }
            _ => spans.push(start..end),
        }
        if let Some(slot) = holder.get_mut(i) {
            *slot = spans.len() - 1;
        }
    }
    Spans { spans, holder }
}

impl Spans {
    /// Cuts the requested ranges, in their order, out of the bytes of each span.
    pub(super) fn cut(&self, wanted: &[Range<u64>], read: &[Bytes]) -> Result<Vec<Bytes>> {
        let lost = || Error::internal("a merged read lost one of its ranges");
        wanted
            .iter()
            .zip(&self.holder)
            .map(|(range, &span)| {
                let (origin, bytes) = self.spans.get(span).zip(read.get(span)).ok_or_else(lost)?;
                let from = range.start.checked_sub(origin.start).ok_or_else(lost)?;
                let to = range.end.checked_sub(origin.start).ok_or_else(lost)?;
                if from > to || to > bytes.len() as u64 {
                    return Err(lost());
                }
                Ok(bytes.slice(from as usize..to as usize))
            })
            .collect()
    }
}
