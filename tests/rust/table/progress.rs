//! Progress is reported after changes and at the end, and only inside a scope. A trace has start and end of each work.

use std::cell::Cell;

use deltic_table::progress::{Observers, Progress, Report, TimedWork, Trace, Traced, Unit, Watch};

use super::dml::block_on;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(100) };
}

/// A thread-local clock that advances by one with each call.
fn clock() -> u64 {
    NOW.set(NOW.get() + 1);
    NOW.get()
}

fn watched(watch: &Watch) -> Observers {
    Observers { watch: Some(watch.clone()), trace: None }
}

fn traced(trace: &Trace) -> Observers {
    Observers { watch: None, trace: Some(trace.clone()) }
}

fn timed(operation: &str, unit: Unit, done: u64, (start_ns, end_ns): (u64, u64)) -> TimedWork {
    TimedWork { operation: operation.to_owned(), unit, done, start_ns, end_ns }
}

fn changes(watch: &Watch) -> Vec<(u64, Option<u64>, bool)> {
    watch.changes().into_iter().map(|Report { done, total, ended, .. }| (done, total, ended)).collect()
}

#[test]
fn changes_are_reported_once() {
    let watch = Watch::default();
    let work = watched(&watch).scope(async {
        let progress = Progress::begin("OPTIMIZE", Unit::Bytes, Some(10));
        assert_eq!(changes(&watch), [(0, Some(10), false)]);
        assert_eq!(changes(&watch), []);
        let clone = progress.clone();
        let elsewhere = tokio::spawn(async move {
            // Outside of the scope.
            Progress::begin("OPTIMIZE", Unit::Files, None).share(1, None).end();
            clone.advance(4);
        });
        elsewhere.await.unwrap();
        assert_eq!(changes(&watch), [(4, Some(10), false)]);
        progress.advance(6);
    });
    block_on(work);
    let last = watch.changes();
    assert_eq!(last.len(), 1);
    assert_eq!((last[0].operation.as_str(), last[0].unit.as_str()), ("OPTIMIZE", "bytes"));
    assert_eq!((last[0].done, last[0].ended), (10, true));
    assert_eq!(changes(&watch), []);
}

#[test]
fn works_of_one_scope_have_different_ids() {
    let watch = Watch::default();
    let work = async {
        let both = [Progress::begin("VACUUM", Unit::Files, None), Progress::begin("CLONE", Unit::Files, Some(2))];
        let reports = watch.changes();
        assert_ne!(reports[0].id, reports[1].id);
        assert_eq!([reports[0].total, reports[1].total], [None, Some(2)]);
        drop(both);
    };
    block_on(watched(&watch).scope(work));
    assert_eq!(changes(&watch), [(0, None, true), (0, Some(2), true)]);
    block_on(Observers::default().scope(async {
        let progress = Progress::begin("VACUUM", Unit::Files, None);
        progress.advance(1);
    }));
    assert_eq!(changes(&watch), []);
}

#[test]
fn shares_are_reported_by_their_steps() {
    let watch = Watch::default();
    let work = async {
        let progress = Progress::begin("OPTIMIZE", Unit::Bytes, Some(300));
        let (mut one, mut unknown) = (progress.share(100, Some(8)), progress.share(200, None));
        one.advance(2);
        unknown.advance(1000);
        assert_eq!(changes(&watch), [(25, Some(300), false)]);
        one.advance(1000);
        assert_eq!(changes(&watch), [(100, Some(300), false)]);
        one.end();
        unknown.end();
        assert_eq!(changes(&watch), [(300, Some(300), false)]);
        let mut huge = progress.share(u64::MAX, Some(u64::MAX));
        huge.advance(u64::MAX);
    };
    block_on(watched(&watch).scope(work));
}

#[test]
fn a_trace_has_start_and_end_of_work() {
    let trace = Trace::new(clock);
    assert_eq!(trace.traced(), Traced::default());
    NOW.set(0);
    block_on(traced(&trace).scope(async {
        let outer = Progress::begin("OPTIMIZE", Unit::Bytes, Some(10));
        outer.advance(4);
        let inner = Progress::begin("CHECKPOINT", Unit::Files, None);
        inner.clone().advance(7);
        drop(inner);
        outer.share(6, None).end();
    }));
    // Work of another call, which fails.
    let failed: Result<(), ()> = block_on(traced(&trace).scope(async {
        let progress = Progress::begin("MERGE", Unit::Rows, Some(9));
        progress.advance(2);
        Err(())
    }));
    assert_eq!(failed, Err(()));
    let work = vec![
        timed("OPTIMIZE", Unit::Bytes, 10, (1, 4)),
        timed("CHECKPOINT", Unit::Files, 7, (2, 3)),
        timed("MERGE", Unit::Rows, 2, (5, 6)),
    ];
    assert_eq!(trace.traced(), Traced { work, left_out: 0 });
}

#[test]
fn unfinished_work_ends_at_the_request() {
    let trace = Trace::new(clock);
    NOW.set(0);
    let progress = block_on(traced(&trace).scope(async { Progress::begin("WRITE", Unit::Rows, None) }));
    progress.advance(1);
    assert_eq!(trace.traced().work, [timed("WRITE", Unit::Rows, 1, (1, 2))]);
    progress.advance(1);
    drop(progress);
    assert_eq!(trace.traced().work, [timed("WRITE", Unit::Rows, 2, (1, 3))]);
    // The clock is set back meanwhile.
    let progress = block_on(traced(&trace).scope(async { Progress::begin("WRITE", Unit::Rows, None) }));
    NOW.set(0);
    drop(progress);
    assert_eq!(trace.traced().work[1], timed("WRITE", Unit::Rows, 0, (5, 5)));
}

#[test]
fn a_trace_is_bounded() {
    let trace = Trace::new(clock);
    block_on(traced(&trace).scope(async {
        for at in 0..1_003 {
            Progress::begin("WRITE", Unit::Rows, None).advance(at);
        }
    }));
    let Traced { work, left_out } = trace.traced();
    assert_eq!((work.len(), left_out), (1_000, 3));
    assert_eq!((work[0].done, work[999].done), (0, 999));
}

#[test]
fn without_a_trace_the_clock_is_not_read() {
    let watch = Watch::default();
    let trace = Trace::new(clock);
    NOW.set(0);
    for observers in [Observers::default(), watched(&watch)] {
        block_on(observers.scope(async { Progress::begin("VACUUM", Unit::Files, None).advance(1) }));
    }
    block_on(async { Progress::begin("VACUUM", Unit::Files, None).advance(1) });
    assert_eq!(NOW.get(), 0);
    assert_eq!(changes(&watch), [(1, None, true)]);
    // Watched and traced.
    let both = Observers { watch: Some(watch.clone()), trace: Some(trace.clone()) };
    block_on(both.scope(async {
        let progress = Progress::begin("VACUUM", Unit::Files, Some(3));
        progress.advance(3);
        assert_eq!(changes(&watch), [(3, Some(3), false)]);
    }));
    assert_eq!(changes(&watch), [(3, Some(3), true)]);
    assert_eq!(trace.traced().work, [timed("VACUUM", Unit::Files, 3, (1, 2))]);
}
