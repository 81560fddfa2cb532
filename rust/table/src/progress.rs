//! Progress of long operations, for callers that wait.
//!
//! A caller makes a [`Watch`] and runs a future in its scope; an operation in the future begins a [`Progress`] and advances it.
//! Outside of a scope a `Progress` counts nothing, so that operations need not know whether progress is watched. Workers
//! only add to counters; there are no callbacks.
//!
//! Proved by `tests/rust/table/progress.rs` and `tests/python/test_progress.py`.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

tokio::task_local! {
    static CURRENT: Option<Watch>;
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
}

#[derive(Debug)]
struct Counter {
    id: u64,
    operation: String,
    unit: Unit,
    total: Option<u64>,
    done: AtomicU64,
}

impl Watch {
    /// Runs a future whose work is counted here; without a watch it is not counted.
    pub fn scope<F: Future>(watch: Option<Self>, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(watch, future)
    }

    /// The operations that have advanced since the last call. An operation that has ended is reported a last time.
    pub fn changes(&self) -> Vec<Report> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = watched.iter_mut().filter_map(Watched::change).collect();
        watched.retain(|watched| !watched.has_ended());
        reports
    }

    /// Reports all remaining operations as ended: the caller does not wait any more.
    pub fn end(&self) -> Vec<Report> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.drain(..).map(|watched| Report { ended: true, ..watched.counter.report() }).collect()
    }

    fn begin(&self, counter: Arc<Counter>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Watched { counter, reported: None });
    }
}

impl Watched {
    /// Whether no worker is left that could advance it.
    fn has_ended(&self) -> bool {
        Arc::strong_count(&self.counter) == 1
    }

    fn change(&mut self) -> Option<Report> {
        // In this order, so that all work before the end is counted.
        let ended = self.has_ended();
        let report = Report { ended, ..self.counter.report() };
        let is_news = ended || self.reported.replace(report.done) != Some(report.done);
        is_news.then_some(report)
    }
}

impl Counter {
    fn report(&self) -> Report {
        let Self { id, operation, unit, total, done } = self;
        let done = done.load(Ordering::Acquire);
        Report { id: *id, operation: operation.clone(), unit: *unit, done, total: *total, ended: false }
    }
}

/// Work that is counted. It ends when all its clones are dropped.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<Counter>>);

impl Progress {
    /// Begins a piece of work of the current scope, if there is one.
    pub fn begin(operation: &str, unit: Unit, total: Option<u64>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let Ok(Some(watch)) = CURRENT.try_with(Option::clone) else { return Self(None) };
        let (id, operation) = (IDS.fetch_add(1, Ordering::Relaxed), operation.to_owned());
        let counter = Arc::new(Counter { id, operation, unit, total, done: AtomicU64::new(0) });
        watch.begin(Arc::clone(&counter));
        Self(Some(counter))
    }

    /// `more` further units are done.
    pub fn advance(&self, more: u64) {
        if let Some(counter) = &self.0 {
            counter.done.fetch_add(more, Ordering::AcqRel);
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
