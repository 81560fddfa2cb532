//! The commit protocol in a simulation: many small worlds, each from a seed. Writers and readers run the real commit
//! loop on a store that delays, reorders and loses requests and gives false answers, and are killed between any two
//! steps.
//!
//! Checked after every step: a read version equals the result of its commits, one after the other; an acknowledged
//! commit is in the log once, a refused one is not; no row is there twice, and no deleted row comes back unless its
//! version is restored; no writer tries a version before it has read the one below; no visible commit is removed; no
//! file is deleted that a version within the retention of a vacuum needs. At the end every writer has ended, and each
//! transaction with an unknown outcome is either committed or not.
//!
//! One thread, a virtual clock, no runtime: the same seed has the same steps. A failing seed prints its steps.
//! `DELTIC_SIMULATION_SEEDS=N` runs N seeds, `DELTIC_SIMULATION_SEED=S` runs one and prints it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod client;
mod operation;
mod process;
mod random;
mod referee;
mod store;
mod table;
mod vacuum;
mod view;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use bytes::Bytes;
use deltic_protocol::property::IsolationLevel;

use client::{Client, MOST_SKEW_MS, World};
use operation::Operation;
use process::{Isolation, Script};
use random::Random;
use referee::Referee;
use store::{Counts, Event, Store, Weather};
use table::Design;

/// Simulations in a run of the tests.
const SEEDS: u64 = 10_000;

/// Steps after which a simulation should long be over.
const MOST_STEPS: usize = 20_000;

/// What is broken on purpose, to see whether the referee notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A put replaces what is there.
    StoreOverwrites,
    /// Who judges winners does not see the files that they added.
    AddsAreIgnored,
    /// Nor those that they removed.
    RemovesAreIgnored,
    /// Nor their changes of metadata.
    MetadataIsIgnored,
    /// A writer does not know its own commit when it reads it.
    OwnCommitIsForeign,
    /// A lost answer counts as success.
    UnknownIsCreated,
    /// A lost answer counts as failure.
    UnknownIsRefused,
    /// A writer deletes a commit that it has just made.
    CommitIsTakenBack,
    /// Deletion vectors are united without a look whether a row is in both.
    VectorsAreUnited,
    /// Rows that others moved are taken to be at the same positions of the first file.
    MovedRowsKeepPositions,
    /// Who only rearranges rows does not see the files that winners removed.
    OptimizeIgnoresRemoves,
    /// Who merges does not say that it went by rows that match and stay.
    MatchesAreForgotten,
    /// Who goes back to an older version does not see what others do meanwhile.
    RestoreIsBlind,
    /// A vacuum takes files of deletion vectors for what nobody needs.
    VacuumForgetsVectors,
    /// A vacuum keeps what the newest version needs, and no other.
    VacuumForgetsVersions,
    /// A vacuum takes files however young they are.
    VacuumForgetsWriters,
}

impl Fault {
    /// A winner's commit as a writer with this fault reads it, who `rearranges` rows or does something else.
    fn distorted(self, lines: Bytes, rearranges: bool) -> Bytes {
        let without = |start: &str| {
            let text = std::str::from_utf8(&lines).unwrap();
            let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with(start)).collect();
            Bytes::from(kept.join("\n"))
        };
        match self {
            Self::AddsAreIgnored => without("{\"add\""),
            Self::RemovesAreIgnored => without("{\"remove\""),
            Self::OptimizeIgnoresRemoves if rearranges => without("{\"remove\""),
            Self::MetadataIsIgnored => without("{\"metaData\""),
            Self::OwnCommitIsForeign => {
                Bytes::from(std::str::from_utf8(&lines).unwrap().replace("\"txnId\"", "\"nobodys\""))
            }
            _ => lines,
        }
    }
}

type Process = Pin<Box<dyn Future<Output = ()>>>;

/// One simulation.
struct Simulation {
    world: Arc<Mutex<World>>,
    processes: Vec<Option<Process>>,
    /// Writers that may still be killed, or told to stop.
    mischief: usize,
}

/// How a simulation ended.
struct Ending {
    violation: Option<String>,
    steps: usize,
    counts: Counts,
    trace: Vec<String>,
}

impl Simulation {
    fn new(seed: u64, fault: Fault, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let isolation = Isolation(random.pick(&[
            IsolationLevel::Serializable,
            IsolationLevel::Serializable,
            IsolationLevel::WriteSerializable,
            IsolationLevel::WriteSerializable,
            IsolationLevel::SnapshotIsolation,
        ]));
        let (partitioned, featured) = (random.chance(500), random.chance(300));
        // A vacuum, and for how long it keeps files.
        let retention_ms = random.chance(200).then(|| random.pick(&[100, 300, 1000]));
        let vector_files = random.chance(if retention_ms.is_some() { 800 } else { 200 });
        let design = Design { partitioned, featured, vector_files };
        let weather = Weather {
            faults: random.pick(&[0, 30, 100, 250]),
            late_listings: random.pick(&[0, 200, 500]),
            overwrites: fault == Fault::StoreOverwrites,
        };
        let mischief = random.below(3);
        let (writers, readers) = (random.pick(&[2, 2, 3, 3, 4]), random.below(3));
        let mut scripts: Vec<Vec<Operation>> = (0..writers)
            .map(|_| {
                let operations = 1 + random.below(3);
                (0..operations).map(|_| Operation::random(&mut random)).collect()
            })
            .collect();
        scripts.extend((0..readers).map(|_| Vec::new()));
        scripts.extend(retention_ms.map(|_| vec![Operation::Vacuum("VACUUM START")]));
        let skews: Vec<i64> = scripts.iter().map(|_| random.below(60) as i64 - MOST_SKEW_MS).collect();
        let attempts = random.pick(&[2, 4, 50]);
        // One more writer makes the table before the others begin, as a rule.
        let founder = random.chance(850).then(|| {
            let appends = random.below(3);
            std::iter::repeat_with(|| Operation::append(&mut random)).take(1 + appends).collect()
        });
        let store = Store::new(weather, traced);
        let mut world = World::new(store, Referee::new(design), random);
        world.store.say(|| format!("{design:?} {isolation:?} {weather:?} {scripts:?} {founder:?}"));
        world.retention_ms = retention_ms;
        let world = Arc::new(Mutex::new(world));
        let mut processes = Vec::new();
        for (process, (operations, skew)) in scripts.into_iter().zip(skews).enumerate() {
            let client = Client { fault, skew, attempts, ..Client::new(process, world.clone(), vector_files) };
            let script = Script { operations, design, isolation };
            let process: Process = match (script.operations.first(), retention_ms) {
                (None, _) => Box::pin(process::read(client, 3)),
                (Some(Operation::Vacuum(_)), Some(retention_ms)) => {
                    Box::pin(vacuum::vacuum(client, script, retention_ms))
                }
                _ => Box::pin(process::write(client, script)),
            };
            processes.push(Some(process));
        }
        let mut simulation = Self { world, processes, mischief: 0 };
        if let Some(operations) = founder {
            simulation.found(Script { operations, design, isolation });
        }
        simulation.mischief = mischief;
        simulation
    }

    /// Makes the table, in good weather.
    fn found(&mut self, script: Script) {
        let at = self.processes.len();
        let weather = std::mem::replace(&mut self.world.lock().unwrap().store.weather, Weather::GOOD);
        let world = self.world.clone();
        let client = Client::new(at, world, script.design.vector_files);
        self.processes.push(Some(Box::pin(process::write(client, script))));
        self.poll(at);
        while self.step() {}
        self.world.lock().unwrap().store.weather = weather;
    }

    /// Lets a process go on until it waits for the store.
    fn poll(&mut self, at: usize) {
        if let Some(process) = &mut self.processes[at]
            && process.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            self.processes[at] = None;
            self.world.lock().unwrap().store.say(|| format!("process {at} has ended"));
        }
    }

    /// Kills a process, or tells it to stop.
    fn mischief(&mut self) {
        let mut world = self.world.lock().unwrap();
        if self.mischief == 0 || !world.random.chance(15) {
            return;
        }
        self.mischief -= 1;
        let at = world.random.below(self.processes.len());
        if world.random.chance(300) {
            world.store.count("processes that were told to stop");
            world.store.say(|| format!("process {at} is told to stop"));
            world.cancelled.insert(at);
        } else if self.processes[at].is_some() {
            world.store.count("processes that were killed");
            world.store.say(|| format!("process {at} is killed"));
            drop(world);
            self.processes[at] = None;
        }
    }

    /// One step; `false` when all is over.
    fn step(&mut self) -> bool {
        self.mischief();
        let heard = {
            let mut guard = self.world.lock().unwrap();
            let world = &mut *guard;
            if world.store.is_idle() {
                return false;
            }
            match world.store.step(&mut world.random) {
                Event::Landed { version, born, lines } => {
                    world.referee.landed(version, (born, world.store.now_ms()), &lines);
                    None
                }
                Event::Discarded { path, file, goes_by } => {
                    let what = world.referee.discarded(&path, &file, goes_by);
                    world.store.count(what);
                    None
                }
                Event::Removed(version) => {
                    world.referee.removed(version);
                    None
                }
                Event::Heard(process) => Some(process),
                Event::Nothing => None,
            }
        };
        if let Some(process) = heard {
            self.poll(process);
        }
        self.world.lock().unwrap().referee.check();
        true
    }

    fn run(mut self) -> Ending {
        (0..self.processes.len()).for_each(|at| self.poll(at));
        let mut steps = 0;
        while steps < MOST_STEPS && self.world.lock().unwrap().referee.violation.is_none() && self.step() {
            steps += 1;
        }
        let mut guard = self.world.lock().unwrap();
        let World { store, referee, .. } = &mut *guard;
        // No request is pending any more, so a process that still waits would wait forever.
        if let Some(at) = self.processes.iter().position(Option::is_some) {
            referee.object(format!("process {at} has not ended after {steps} steps"));
        }
        for stands in referee.resolved() {
            store.count(if stands { "unknown commits that stand" } else { "unknown commits that do not" });
        }
        let versions = referee.newest().map_or(0, |newest| newest + 1);
        *store.counts.entry("versions").or_default() += versions;
        let counts = std::mem::take(&mut store.counts);
        Ending { violation: referee.violation.take(), steps, counts, trace: store.trace.take().unwrap_or_default() }
    }
}

fn simulate(seed: u64, fault: Fault, traced: bool) -> Ending {
    Simulation::new(seed, fault, traced).run()
}

/// Runs seeds from 0 on, on all cores; what happened in them.
fn run(seeds: u64) -> Counts {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let share = move |thread: u64| {
        let mut counts = Counts::new();
        for seed in (thread..seeds).step_by(threads as usize) {
            let ending = simulate(seed, Fault::None, false);
            if let Some(violation) = ending.violation {
                let trace = simulate(seed, Fault::None, true).trace.join("\n");
                panic!("seed {seed}: {violation}\n{trace}\nagain: DELTIC_SIMULATION_SEED={seed}");
            }
            *counts.entry("steps").or_default() += ending.steps as u64;
            ending.counts.iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
        }
        counts
    };
    let mut all = Counts::new();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        for counts in running {
            let counts = counts.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            counts.iter().for_each(|(what, count)| *all.entry(what).or_default() += count);
        }
    });
    all
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// What must have happened, or the simulations prove little.
const EXPECTED: &[&str] = &[
    "answers of puts that were lost",
    "commits of which nobody knew",
    "commits that were acknowledged",
    "commits that were given up",
    "commits that took rows out and took several attempts",
    "commits that took several attempts",
    "compactions that left files out",
    "conflicts: ConcurrentAppend",
    "conflicts: ConcurrentDeleteDelete",
    "conflicts: ConcurrentDeleteRead",
    "conflicts: ConcurrentTransaction",
    "conflicts: MetadataChanged",
    "conflicts: ProtocolChanged",
    "files of older versions that were read beside a vacuum",
    "files of vectors that a vacuum took",
    "files of versions beyond the retention that were gone",
    "files that a vacuum took",
    "listings that failed",
    "listings that were late",
    "listings with a hole",
    "moved rows that were looked for",
    "processes that were killed",
    "processes that were told to stop",
    "puts answered with 409",
    "puts answered with 503",
    "puts that arrived when nobody waited",
    "puts that nobody waited for",
    "puts that something on the way repeated",
    "puts that were lost",
    "puts that were refused",
    "reads of a version",
    "reads that failed",
    "reads that missed what was there",
    "unknown commits that do not",
    "unknown commits that stand",
    "vacuums that came to their end",
    "vectors that were read",
];

#[test]
fn the_log_is_the_history_of_what_was_acknowledged() {
    if let Some(seed) = number("DELTIC_SIMULATION_SEED") {
        let ending = simulate(seed, Fault::None, true);
        eprintln!("{}", ending.trace.join("\n"));
        assert_eq!(ending.violation, None, "seed {seed}");
        return;
    }
    let seeds = number("DELTIC_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let start = std::time::Instant::now();
    let counts = run(seeds);
    eprintln!("{seeds} seeds in {:.1} s", start.elapsed().as_secs_f64());
    counts.iter().for_each(|(what, count)| eprintln!("{count:>12} {what}"));
    if seeds >= 1000 {
        let missing: Vec<_> = EXPECTED.iter().filter(|what| !counts.contains_key(*what)).collect();
        assert!(missing.is_empty(), "it never happened: {missing:?}");
    }
}

#[test]
fn a_seed_does_the_same_again() {
    for seed in 0..50 {
        let (one, other) = (simulate(seed, Fault::None, true), simulate(seed, Fault::None, true));
        assert!(one.trace.len() > 10, "{:?}", one.trace);
        assert_eq!(one.trace, other.trace);
        assert_eq!(simulate(seed, Fault::None, false).steps, one.steps);
    }
}

/// Simulations with a fault until the referee has said all of `expected`; it may say nothing else but `besides`.
#[track_caller]
fn is_noticed(fault: Fault, expected: &[&str], besides: &[&str]) {
    let mut missing = expected.to_vec();
    for seed in 0..3000 {
        let Some(violation) = simulate(seed, fault, false).violation else { continue };
        let is_known = expected.iter().chain(besides).any(|words| violation.contains(words));
        assert!(is_known, "{fault:?}, seed {seed}: {violation}");
        missing.retain(|words| !violation.contains(words));
        if missing.is_empty() {
            return;
        }
    }
    panic!("{fault:?}: the referee never said {missing:?}");
}

#[test]
fn a_store_that_overwrites_is_noticed() {
    let besides = [
        "stands at",
        "is not there",
        "it went by",
        "doing it again leaves",
        "is not after",
        "has the row ids",
        "that is gone",
        "was said not to be made",
        "which is deleted",
        "as if no commit named it",
        "is there twice",
        "comes again",
        "it only rearranges",
        "it goes back to",
        "a vacuum took",
        "misses",
    ];
    is_noticed(Fault::StoreOverwrites, &["was acknowledged as version", "was read as"], &besides);
}

#[test]
fn a_writer_that_judges_badly_is_noticed() {
    let besides = [
        "doing it again leaves",
        "it went by",
        "its writer was told",
        "it only rearranges",
        "it goes back to",
        "comes again",
        "is there twice",
    ];
    is_noticed(Fault::AddsAreIgnored, &["it went by"], &besides);
    is_noticed(Fault::RemovesAreIgnored, &["which is not there"], &besides);
    is_noticed(Fault::MetadataIsIgnored, &["doing it again leaves State"], &besides);
}

#[test]
fn vectors_that_are_united_unseen_are_noticed() {
    is_noticed(Fault::VectorsAreUnited, &["that is gone"], &["it went by", "doing it again leaves"]);
}

#[test]
fn moved_rows_that_are_taken_by_position_are_noticed() {
    let besides =
        ["that is gone", "it went by", "doing it again leaves", "it only rearranges", "comes again", "is not there"];
    is_noticed(Fault::MovedRowsKeepPositions, &["was read as"], &besides);
}

#[test]
fn a_rearrangement_that_ignores_removes_is_noticed() {
    is_noticed(Fault::OptimizeIgnoresRemoves, &["it only rearranges", "which is not there"], &["its writer was told"]);
}

#[test]
fn a_merge_that_forgets_what_matched_is_noticed() {
    is_noticed(Fault::MatchesAreForgotten, &["it went by"], &["doing it again leaves"]);
}

#[test]
fn going_back_without_a_look_at_others_is_noticed() {
    is_noticed(Fault::RestoreIsBlind, &["it goes back to"], &["it went by", "doing it again leaves"]);
}

#[test]
fn a_vacuum_that_forgets_is_noticed() {
    is_noticed(Fault::VacuumForgetsVectors, &["a vacuum took deletion_vector"], &[]);
    is_noticed(Fault::VacuumForgetsVersions, &["needs, within its retention"], &[]);
    is_noticed(Fault::VacuumForgetsWriters, &["which was changed within its retention"], &["needs, within"]);
}

#[test]
fn a_writer_that_misreads_answers_is_noticed() {
    is_noticed(Fault::OwnCommitIsForeign, &["it stands at"], &["was said not to be made and stands"]);
    is_noticed(Fault::UnknownIsCreated, &["was acknowledged as version"], &["tries"]);
    is_noticed(Fault::UnknownIsRefused, &["was said not to be made and stands"], &["it was said not to be made"]);
}

#[test]
fn a_commit_that_is_taken_back_is_noticed() {
    is_noticed(Fault::CommitIsTakenBack, &["was visible and is removed"], &[]);
}
