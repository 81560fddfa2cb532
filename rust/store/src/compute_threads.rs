//! The threads that decode what was read: as many as there are processors.
//!
//! The allocator keeps memory for each thread, so few threads need less of it. Work that waits for a disk, and what may compute
//! for seconds, such as encoding and sorting, has other threads, those of the tokio runtime: there are more of them.
//!
//! A child process made by `fork` inherits the state of these threads and not the threads, so it starts its own.

use std::num::NonZeroUsize;
use std::process;
use std::sync::{LazyLock, OnceLock};
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

static THREADS: OnceLock<Threads> = OnceLock::new();

/// How many processors this process may use.
pub fn processors() -> usize {
    // Cached, since the operating system reads several files for it.
    static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get));
    *PROCESSORS
}

/// The threads of one process. The runtime has no tasks: only its pool for blocking work is used, whose threads start when
/// they are needed.
#[derive(Debug)]
struct Threads {
    /// None if there is no such runtime; then the threads of the caller's runtime compute.
    runtime: Option<Runtime>,
    process: u32,
    of_child: OnceLock<Box<Self>>,
}

impl Threads {
    fn start() -> Self {
        let mut builder = Builder::new_current_thread();
        builder.thread_name("deltic-compute").max_blocking_threads(processors());
        Self { runtime: builder.build().ok(), process: process::id(), of_child: OnceLock::new() }
    }

    /// Those of process `id`, this one: the last, or new ones. Earlier ones are of ancestors, even where one had the same id.
    fn of_process(&self, id: u32) -> &Self {
        let mut last = self;
        while let Some(child) = last.of_child.get() {
            last = child;
        }
        if last.process == id { last } else { last.of_child.get_or_init(|| Box::new(Self::start())) }
    }
}

/// Prepares the threads of this process. While one thread does so, no other may fork: the child would wait for it.
pub fn prepare() {
    let _prepared = of_this_process();
}

fn of_this_process() -> &'static Threads {
    THREADS.get_or_init(Threads::start).of_process(process::id())
}

/// Starts work on one of the threads. It must not use the tokio runtime.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match &of_this_process().runtime {
        Some(runtime) => runtime.spawn_blocking(work),
        None => spawn_blocking(work),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn as_many_threads_compute_as_there_are_processors() {
        let work = || {
            thread::sleep(Duration::from_millis(5));
            (thread::current().id(), thread::current().name().map(str::to_owned))
        };
        let started: Vec<_> = (0..4 * processors()).map(|_| spawn(work)).collect();
        let mut threads = HashSet::new();
        for one in started {
            let (id, name) = one.await.unwrap();
            assert_eq!(name.as_deref(), Some("deltic-compute"));
            threads.insert(id);
        }
        assert!(threads.len() <= processors(), "{} threads", threads.len());
    }

    #[test]
    fn a_child_has_threads_of_its_own() {
        // What a child process finds: the state of its parent, under another process id.
        let this = process::id();
        let parent = Threads { process: this + 1, ..Threads::start() };
        let own = parent.of_process(this);
        assert!(!std::ptr::eq(own, &raw const parent) && std::ptr::eq(parent.of_process(this), own));
        // A process may have the id of an ancestor that has ended.
        let ancestor = Threads::start();
        ancestor.of_child.set(Box::new(parent)).unwrap();
        assert!(!std::ptr::eq(ancestor.of_process(this), &raw const ancestor));
    }
}
