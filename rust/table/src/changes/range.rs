//! Finds the first and the last version of a feed for a range of versions or times.
//!
//! A range of times has the commits made in it: from the first at or after its start to the last at or before its
//! end; an end after the newest commit means that commit. There may be none.

use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::history::Timeline;
use crate::log::LogSource;

/// One end of a feed, included in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A version.
    Version(u64),
    /// Milliseconds since the epoch.
    Time(i64),
}

/// A range in versions.
#[derive(Debug)]
pub(super) struct Range {
    start: u64,
    /// `None` for the newest version.
    end: Option<u64>,
    /// Whether both ends were times, so that no commit may lie between them.
    of_times: bool,
}

/// Finds the versions of times; whether given versions exist is not checked.
pub(super) async fn resolve(log: &LogSource, start: Bound, end: Option<Bound>) -> Result<Range> {
    let backwards = |what: String| Err(Error::invalid(format!("{what}; exchange start and end")));
    match (start, end) {
        (Bound::Version(start), Some(Bound::Version(end))) if start > end => {
            return backwards(format!("the range starts at version {start} and ends before it, at version {end}"));
        }
        (Bound::Time(start), Some(Bound::Time(end))) if start > end => {
            return backwards(format!("the range starts at {start} ms and ends before that, at {end} ms"));
        }
        _ => {}
    }
    let is_time = |bound: &Bound| matches!(bound, Bound::Time(_));
    let timeline = match [Some(start), end].iter().flatten().any(is_time) {
        true => Some(Timeline::load(log).await?),
        false => None,
    };
    Ok(Range {
        start: match (start, &timeline) {
            (Bound::Time(time), Some(timeline)) => timeline.since(time).await?,
            (Bound::Version(version), _) => version,
            (Bound::Time(_), None) => return Err(Error::internal("the times of the versions were not read")),
        },
        end: match (end, &timeline) {
            (Some(Bound::Time(time)), Some(timeline)) => Some(timeline.until(time).await?),
            (Some(Bound::Version(version)), _) => Some(version),
            (Some(Bound::Time(_)) | None, _) => None,
        },
        of_times: is_time(&start) && end.as_ref().is_some_and(is_time),
    })
}

impl Range {
    /// The last version; `None` for the newest.
    pub(super) fn last(&self) -> Option<u64> {
        self.end
    }

    /// The versions up to `last`, which is the end; `None` between two commits.
    pub(super) fn versions(&self, last: u64) -> Result<Option<RangeInclusive<u64>>> {
        let start = self.start;
        match self.end {
            _ if start <= last => Ok(Some(start..=last)),
            Some(_) if self.of_times => Ok(None),
            Some(end) => Err(Error::invalid(format!(
                "the range starts at version {start} and ends before it, at version {end}; exchange start and end"
            ))),
            None => Err(Error::version_not_found(
                format!(
                    "the table has no version {start}, so there are no changes from there on; its newest version is \
                     {last}"
                ),
                None,
                Some(last),
            )),
        }
    }
}
