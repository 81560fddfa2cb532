//! Operations that are interrupted. Between commits the error names those that remain, and the next call continues. Work
//! before a commit stops.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deltic_protocol::error::{Error, Kind, Result};
use deltic_table::backfill::{Enabled, enable_row_tracking};
use deltic_table::commit::{CommitContext, RetryPolicy};
use deltic_table::committers::LogCommitter;
use deltic_table::convert::{ConvertOptions, convert};
use deltic_table::copies::{CloneOptions, RestoreOptions, RestoreTo, clone, restore};
use deltic_table::drop_feature::drop_feature;
use deltic_table::log::LogSource;
use deltic_table::maintenance::{Limits, OptimizeOptions, optimize};
use deltic_table::purge::{PurgeOptions, purge};

use super::dml::{Table, VECTORS, World, block_on, now};
use super::sample::Sample;

/// Cancelled after so many commits.
struct CancelledAfter(AtomicUsize);

impl RetryPolicy for CancelledAfter {
    fn now_ms(&self) -> i64 {
        now()
    }

    fn back_off(&self, _: u32) -> Option<Duration> {
        None
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn committed(&self, _: u64) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn cancelled_after(commits: usize) -> CancelledAfter {
    CancelledAfter(AtomicUsize::new(commits))
}

#[track_caller]
fn assert_remain<T: Debug>(interrupted: Result<T>, remaining: &str) {
    let error = interrupted.unwrap_err();
    assert_eq!(error.kind(), &Kind::Interrupted, "{error}");
    assert_eq!(error.message(), format!("interrupted: {remaining}; call it again to continue"));
}

/// Version 3: two files of three rows each, of which one has a deletion vector.
fn with_a_vector() -> Table {
    let table = Table::new(&[VECTORS], false);
    for first in [0, 10] {
        table.write(&[("a", Some(first + 1)), ("a", Some(first + 2)), ("a", Some(first + 3))]);
    }
    table.delete("x = 11").unwrap();
    table
}

fn committer(table: &Table) -> LogCommitter {
    LogCommitter::new(table.sample.log.clone())
}

#[test]
fn a_purge() {
    let table = with_a_vector();
    let (storage, log) = (&table.sample.storage, committer(&table));
    let options = PurgeOptions { filter: Some("x = 2".to_owned()), ..PurgeOptions::default() };
    let run = |retry: &dyn RetryPolicy| {
        block_on(purge(&LogSource::of(storage), None, &options, &World, now, CommitContext { committer: &log, retry }))
    };
    assert_remain(run(&cancelled_after(1)), "version 4 was committed and remains");
    assert_eq!(run(&World).unwrap().versions, [5]);
}

#[test]
fn dropping_a_feature() {
    let table = with_a_vector();
    let (storage, log) = (&table.sample.storage, committer(&table));
    let run = |retry: &dyn RetryPolicy| {
        block_on(drop_feature(
            &LogSource::of(storage),
            "deletionVectors",
            false,
            &World,
            now,
            CommitContext { committer: &log, retry },
        ))
    };
    assert_remain(run(&cancelled_after(3)), "versions 4, 5 and 6 were committed and remain");
    run(&World).unwrap();
}

#[test]
fn dropping_column_mapping() {
    let table = Table::new(&[("delta.columnMapping.mode", "name")], false);
    table.write(&[("a", Some(1)), ("b", Some(2))]);
    let (storage, log) = (&table.sample.storage, committer(&table));
    let run = |retry: &dyn RetryPolicy| {
        block_on(drop_feature(
            &LogSource::of(storage),
            "columnMapping",
            false,
            &World,
            now,
            CommitContext { committer: &log, retry },
        ))
    };
    let error = run(&cancelled_after(0)).unwrap_err();
    assert_eq!((error.kind(), error.message()), (&Kind::Interrupted, "interrupted: nothing was committed"));
    assert_eq!(block_on(table.sample.open()).unwrap().version(), 1);
    assert_remain(run(&cancelled_after(1)), "version 2 was committed and remains");
    assert_eq!(run(&World).unwrap().committed.version, 6);
}

#[test]
fn enabling_row_tracking() {
    let table = Table::new(&[], false);
    table.write(&[("a", Some(1))]);
    let log = committer(&table);
    let run = |retry: &dyn RetryPolicy| block_on(enable_row_tracking(&table.sample.log, &log, &World, retry));
    assert_remain(run(&cancelled_after(2)), "versions 2 and 3 were committed and remain");
    assert_eq!(run(&World).unwrap(), Enabled { version: 4, files: 0 });
}

#[test]
fn an_optimize() {
    let table = Table::new(&[], true);
    for x in 0..3 {
        table.write(&[("a", Some(x)), ("b", Some(x))]);
    }
    let (storage, log) = (&table.sample.storage, committer(&table));
    let limits = Limits { commit_bytes: 1, ..Limits::default() };
    let options = OptimizeOptions { limits, ..OptimizeOptions::default() };
    let run = |retry: &dyn RetryPolicy| {
        block_on(optimize(
            &LogSource::of(storage),
            None,
            &options,
            &World,
            now,
            CommitContext { committer: &log, retry },
        ))
    };
    assert_remain(run(&cancelled_after(1)), "version 4 was committed and remains");
    assert_eq!(run(&World).unwrap().versions, [5]);
}

#[test]
fn the_search_for_files_stops() {
    fn assert_stopped(error: &Error) {
        assert_eq!((error.kind(), error.message()), (&Kind::Interrupted, "interrupted: nothing was committed"));
    }
    let table = with_a_vector();
    let (storage, log, cancelled) = (&table.sample.storage, committer(&table), cancelled_after(0));
    let (to, options) = (RestoreTo::Version(1), RestoreOptions { dry_run: true, ..RestoreOptions::default() });
    let context = CommitContext { committer: &log, retry: &cancelled };
    assert_stopped(&block_on(restore(&LogSource::of(storage), None, &to, options, &World, context)).unwrap_err());

    let (source, target) = (block_on(table.sample.open()).unwrap(), Sample::new());
    let to = LogCommitter::new(target.log.clone());
    let options = CloneOptions { checks_files: true, ..CloneOptions::default() };
    let cloned = clone(&source, &target.log, options, &to, &World, &cancelled);
    assert_stopped(&block_on(cloned).unwrap_err());

    std::fs::remove_dir_all(table.sample.path("_delta_log")).unwrap();
    let options = ConvertOptions { dry_run: true, ..ConvertOptions::default() };
    assert_stopped(&block_on(convert(&LogSource::of(storage), options, &World, &log, &cancelled)).unwrap_err());
}
