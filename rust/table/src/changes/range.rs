//! From what a caller asks for to the first and the last version of a feed.
//!
//! A range of times holds the commits made in it: from the first at or after its start to the last at or before its
//! end, where a later end than the newest commit means that commit. There may be none.

use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::history;
use crate::storage::Storage;

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

/// Finds the versions of times; versions are not looked for.
pub(super) async fn resolve(storage: &Storage, start: Bound, end: Option<Bound>) -> Result<Range> {
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
    let times = if [Some(start), end].iter().flatten().any(is_time) { history::times(storage).await? } else { vec![] };
    Ok(Range {
        start: match start {
            Bound::Version(version) => version,
            Bound::Time(time) => since(&times, time)?,
        },
        end: match end {
            None => None,
            Some(Bound::Version(version)) => Some(version),
            Some(Bound::Time(time)) => Some(until(&times, time)?),
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
            None => Err(Error::not_found(format!(
                "the table has no version {start}, so there are no changes from there on; its newest version is {last}"
            ))),
        }
    }
}

/// The first version made at `time` or later.
fn since(times: &[(u64, i64)], time: i64) -> Result<u64> {
    match times.iter().find(|(_, made)| *made >= time) {
        Some((version, made)) if *version > 0 && times.first() == Some(&(*version, *made)) && *made > time => {
            Err(Error::not_found(format!(
                "the log does not reach back to the time {time} ms: its oldest commit is version {version} at {made} \
                 ms; start there"
            )))
        }
        Some((version, _)) => Ok(*version),
        None => Err(Error::not_found(format!(
            "nothing was committed at the time {time} ms or later; {}",
            times.last().map_or_else(
                || "the log has no commit at all".to_owned(),
                |(version, made)| format!("the newest commit is version {version} at {made} ms")
            )
        ))),
    }
}

/// The last version made at `time` or earlier.
fn until(times: &[(u64, i64)], time: i64) -> Result<u64> {
    let found = times.iter().rev().find(|(_, made)| *made <= time);
    found.map(|(version, _)| *version).ok_or_else(|| {
        Error::not_found(format!(
            "nothing was committed at the time {time} ms or earlier, as far as the log reaches back; {}",
            times.first().map_or_else(
                || "the log has no commit at all".to_owned(),
                |(version, made)| format!("its oldest commit is version {version} at {made} ms")
            )
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_become_the_versions_between_them() {
        let all = [(0, 100), (1, 200), (2, 300)];
        let late = [(5, 100), (6, 200)];
        for (times, time, first, last) in [
            (&all[..], 99, Some(0), None),
            (&all, 100, Some(0), Some(0)),
            (&all, 101, Some(1), Some(0)),
            (&all, 300, Some(2), Some(2)),
            (&all, 301, None, Some(2)),
            (&late, 99, None, None),
            (&late, 100, Some(5), Some(5)),
            (&late, 150, Some(6), Some(5)),
            (&[], 100, None, None),
        ] {
            assert_eq!((since(times, time).ok(), until(times, time).ok()), (first, last), "{time} in {times:?}");
        }
    }
}
