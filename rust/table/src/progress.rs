//! Progress of long operations, for callers that wait, and the times of their work, for tracing.
//!
//! A caller runs a future in the scope of its [`Observers`]; an operation in the future begins a [`Progress`] and advances it.
//! Without observers a `Progress` counts nothing, so that operations need not know whether they are observed. Workers only
//! add to counters; there are no callbacks but the clock of a [`Trace`].
//!
//! Proved by `tests/rust/table/progress.rs`, `tests/python/test_progress.py` and `tests/python/test_telemetry.py`.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most pieces of work that a [`Trace`] keeps.
const MAX_TRACED: usize = 1_000;

tokio::task_local! {
    static CURRENT: Observers;
}

/// What observes the work of a call. By default nothing does.
#[derive(Debug, Clone, Default)]
pub struct Observers {
    /// Reports how far the work is.
    pub watch: Option<Watch>,
    /// Keeps when it began and ended.
    pub trace: Option<Trace>,
}

impl Observers {
    /// Runs a future whose work they observe.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Files.
    Files,
    /// Bytes.
    Bytes,
    /// Rows.
    Rows,
}

impl Unit {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Bytes => "bytes",
            Self::Rows => "rows",
        }
    }
}

/// How far a piece of work has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its id, which is unique in this process.
    pub id: u64,
    /// The name of the operation in the history.
    pub operation: String,
    /// What is counted.
    pub unit: Unit,
    /// How many of them are done.
    pub done: u64,
    /// How many there are, if that is known.
    pub total: Option<u64>,
    /// Whether it has ended, successfully or not.
    pub ended: bool,
}

/// The pieces of work of one call.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Vec<Watched>>>);

#[derive(Debug)]
struct Watched {
    counter: Arc<Counter>,
    /// The number that was reported last.
    reported: Option<u64>,
    /// Whether its end was reported.
    ended: bool,
}

/// The pieces of work of a traced operation, which may be of several calls: the first thousand.
#[derive(Debug, Clone)]
pub struct Trace {
    clock: fn() -> u64,
    work: Arc<Mutex<TracedWork>>,
}

#[derive(Debug, Default)]
struct TracedWork {
    counters: Vec<Arc<Counter>>,
    left_out: u64,
}

/// A piece of work, and when it was done, in nanoseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedWork {
    /// The name of the operation in the history.
    pub operation: String,
    /// What was counted.
    pub unit: Unit,
    /// How many of them were done.
    pub done: u64,
    /// When it began.
    pub start_ns: u64,
    /// When it ended, successfully or not.
    pub end_ns: u64,
}

/// The pieces of work of a [`Trace`], in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traced {
    /// Those that it has kept.
    pub work: Vec<TimedWork>,
    /// How many more there were.
    pub left_out: u64,
}

#[derive(Debug)]
struct Counter {
    id: u64,
    operation: String,
    unit: Unit,
    total: Option<u64>,
    done: AtomicU64,
    ended: AtomicBool,
    /// If it is traced.
    times: Option<Times>,
}

#[derive(Debug)]
struct Times {
    clock: fn() -> u64,
    start_ns: u64,
    /// 0 until it has ended.
    end_ns: AtomicU64,
}

impl Watch {
    /// The operations that have advanced since the last call. An operation that has ended is reported a last time.
    pub fn changes(&self) -> Vec<Report> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = watched.iter_mut().filter_map(Watched::change).collect();
        watched.retain(|watched| !watched.ended);
        reports
    }

    /// Reports all remaining operations as ended: the caller does not wait any more.
    pub fn end(&self) -> Vec<Report> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.drain(..).map(|watched| Report { ended: true, ..watched.counter.report() }).collect()
    }

    fn begin(&self, counter: Arc<Counter>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Watched { counter, reported: None, ended: false });
    }
}

impl Watched {
    fn change(&mut self) -> Option<Report> {
        // In this order, so that all work before the end is counted.
        self.ended = self.counter.ended.load(Ordering::Acquire);
        let report = Report { ended: self.ended, ..self.counter.report() };
        let is_news = self.ended || self.reported.replace(report.done) != Some(report.done);
        is_news.then_some(report)
    }
}

impl Trace {
    /// `clock`: nanoseconds since the epoch.
    pub fn new(clock: fn() -> u64) -> Self {
        Self { clock, work: Arc::default() }
    }

    /// The work so far. What has not ended ends now: the caller does not wait for it any more.
    pub fn traced(&self) -> Traced {
        let traced = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (self.clock)();
        let work = traced.counters.iter().filter_map(|counter| counter.timed(now)).collect();
        Traced { work, left_out: traced.left_out }
    }

    fn times(&self) -> Times {
        Times { clock: self.clock, start_ns: (self.clock)(), end_ns: AtomicU64::new(0) }
    }

    fn begin(&self, counter: Arc<Counter>) {
        let mut traced = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match traced.counters.len() < MAX_TRACED {
            true => traced.counters.push(counter),
            false => traced.left_out = traced.left_out.saturating_add(1),
        }
    }
}

impl Counter {
    fn report(&self) -> Report {
        let Self { id, operation, unit, total, done, .. } = self;
        let done = done.load(Ordering::Acquire);
        Report { id: *id, operation: operation.clone(), unit: *unit, done, total: *total, ended: false }
    }

    /// Its times, if it is traced. `now`: when it ends if it has not.
    fn timed(&self, now: u64) -> Option<TimedWork> {
        let Times { start_ns, end_ns, .. } = self.times.as_ref()?;
        let end_ns = match end_ns.load(Ordering::Acquire) {
            0 => now,
            ended => ended,
        };
        Some(TimedWork {
            operation: self.operation.clone(),
            unit: self.unit,
            done: self.done.load(Ordering::Acquire),
            start_ns: *start_ns,
            // The system's clock may have been set back.
            end_ns: end_ns.max(*start_ns),
        })
    }
}

/// Work that is counted. It ends when all its clones are dropped.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<Running>>);

/// What the clones of a [`Progress`] share.
#[derive(Debug)]
struct Running(Arc<Counter>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(times) = &self.0.times {
            times.end_ns.store((times.clock)(), Ordering::Release);
        }
        self.0.ended.store(true, Ordering::Release);
    }
}

impl Progress {
    /// Begins a piece of work, for the observers of the current scope.
    pub fn begin(operation: &str, unit: Unit, total: Option<u64>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let Ok(Observers { watch, trace }) = CURRENT.try_with(Observers::clone) else { return Self(None) };
        if watch.is_none() && trace.is_none() {
            return Self(None);
        }
        let counter = Arc::new(Counter {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            operation: operation.to_owned(),
            unit,
            total,
            done: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            times: trace.as_ref().map(Trace::times),
        });
        if let Some(watch) = watch {
            watch.begin(Arc::clone(&counter));
        }
        if let Some(trace) = trace {
            trace.begin(Arc::clone(&counter));
        }
        Self(Some(Arc::new(Running(counter))))
    }

    /// `more` further units are done.
    pub fn advance(&self, more: u64) {
        if let Some(running) = &self.0 {
            running.0.done.fetch_add(more, Ordering::AcqRel);
        }
    }

    /// A part of the work that is done by `steps` of another size, such as the rows of a file whose bytes are counted.
    pub fn share(&self, amount: u64, steps: Option<u64>) -> ProgressShare {
        ProgressShare { progress: self.clone(), amount, steps: steps.unwrap_or_default(), taken: 0, reported: 0 }
    }
}

/// A share of the progress, counted in steps of another unit.
#[derive(Debug)]
pub struct ProgressShare {
    progress: Progress,
    amount: u64,
    /// How many steps it takes; 0 if unknown.
    steps: u64,
    taken: u64,
    reported: u64,
}

impl ProgressShare {
    /// `more` further steps are done. The share counts as complete only after [`ProgressShare::end`].
    pub fn advance(&mut self, more: u64) {
        self.taken = self.taken.saturating_add(more);
        let share = u128::from(self.amount) * u128::from(self.taken.min(self.steps));
        let now = share.checked_div(u128::from(self.steps)).and_then(|now| u64::try_from(now).ok()).unwrap_or_default();
        self.report(now);
    }

    /// All of it is done.
    pub fn end(mut self) {
        self.report(self.amount);
    }

    fn report(&mut self, now: u64) {
        self.progress.advance(now.saturating_sub(self.reported));
        self.reported = self.reported.max(now);
    }
}
