//! Seeded simulations of the commit protocol. Writers and readers run the real commit loop on a store that delays,
//! reorders and loses requests and answers wrongly, and are killed between any two steps.
//!
//! Checked after every step: a read of a version gives the result of its commits in order; an acknowledged commit is in
//! the log once, a failed one is not; no row is in the table twice, and no deleted row reappears unless its version is
//! restored; no writer tries a version before it has read the one below; no visible commit is deleted; a vacuum deletes
//! no file of a version within its retention. At the end every writer has finished, and each transaction with an unknown
//! outcome is either in the log or not.
//!
//! One thread, a virtual clock, no runtime: a seed always gives the same steps. A failing seed prints its steps.
//! `DELTIC_SIMULATION_SEEDS=N` runs N seeds, `DELTIC_SIMULATION_SEED=S` runs one and prints its steps.
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

use client::{Client, MAX_SKEW_MS, World};
use operation::Operation;
use process::{Isolation, Script};
use random::Random;
use referee::Referee;
use store::{Counts, Event, FaultRates, Store};
use table::Design;

/// Seeds that the test runs.
const SEEDS: u64 = 10_000;

/// Limit of steps of one simulation.
const MAX_STEPS: usize = 20_000;

/// A deliberate defect that the referee must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A put replaces an existing version.
    StoreOverwrites,
    /// The conflict check does not see the files that winners added.
    AddsAreIgnored,
    /// The conflict check does not see the files that winners removed.
    RemovesAreIgnored,
    /// The conflict check does not see metadata changes of winners.
    MetadataIsIgnored,
    /// A writer does not recognize its own commit when it reads it.
    OwnCommitIsForeign,
    /// A lost answer counts as success.
    UnknownIsCreated,
    /// A lost answer counts as failure.
    UnknownIsFailed,
    /// A writer deletes the commit that it has just written.
    CommitIsDeleted,
    /// Deletion vectors are merged without checking that they are disjoint.
    VectorOverlapIsIgnored,
    /// Rows that a winner moved are assumed to keep their positions, in the first of its files.
    MovedRowsKeepPositions,
    /// Files that a winner added are not searched for rows that a commit would have read.
    AddedRowsAreNotSearched,
    /// The conflict check of an OPTIMIZE does not see the files that winners removed.
    OptimizeIgnoresRemoves,
    /// The read set of a MERGE lacks the files with rows that match and stay.
    MergeOmitsMatchedFiles,
    /// The read set of a RESTORE is empty.
    RestoreReadsNothing,
    /// A vacuum deletes files of deletion vectors that are in use.
    VacuumIgnoresVectors,
    /// A vacuum keeps only the files of the newest version.
    VacuumIgnoresOldVersions,
    /// A vacuum deletes unreferenced files of any age.
    VacuumIgnoresFileAge,
}

impl Fault {
    /// A winner's commit as a writer with this fault reads it. `rearranges`: whether that writer's commit does.
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
                Bytes::from(std::str::from_utf8(&lines).unwrap().replace("\"txnId\"", "\"unknownField\""))
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
    /// How many processes may still be killed or cancelled.
    interruptions: usize,
}

struct RunResult {
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
        let (partitioned, row_tracking) = (random.chance(500), random.chance(500));
        // If set, a vacuum runs too.
        let retention_ms = random.chance(200).then(|| random.pick(&[100, 300, 1000]));
        let vector_files = random.chance(if retention_ms.is_some() { 800 } else { 200 });
        let design = Design { partitioned, row_tracking, vector_files };
        let fault_rates = FaultRates {
            requests: random.pick(&[0, 30, 100, 250]),
            stale_listings: random.pick(&[0, 200, 500]),
            overwrites: fault == Fault::StoreOverwrites,
        };
        let interruptions = random.below(3);
        let (writers, readers) = (random.pick(&[2, 2, 3, 3, 4]), random.below(3));
        let mut scripts: Vec<Vec<Operation>> = (0..writers)
            .map(|_| {
                let operations = 1 + random.below(3);
                (0..operations).map(|_| Operation::random(&mut random)).collect()
            })
            .collect();
        scripts.extend((0..readers).map(|_| Vec::new()));
        scripts.extend(retention_ms.map(|_| vec![Operation::Vacuum("VACUUM START")]));
        let skews: Vec<i64> = scripts.iter().map(|_| random.below(60) as i64 - MAX_SKEW_MS).collect();
        let max_attempts = random.pick(&[2, 4, 50]);
        // Usually another writer creates the table before the others start.
        let creator = random.chance(850).then(|| {
            let appends = random.below(3);
            std::iter::repeat_with(|| Operation::append(&mut random)).take(1 + appends).collect()
        });
        let store = Store::new(fault_rates, traced);
        let mut world = World::new(store, Referee::new(design), random);
        world.store.record(|| format!("{design:?} {isolation:?} {fault_rates:?} {scripts:?} {creator:?}"));
        world.retention_ms = retention_ms;
        let world = Arc::new(Mutex::new(world));
        let mut processes = Vec::new();
        for (process, (operations, skew)) in scripts.into_iter().zip(skews).enumerate() {
            let client = Client { fault, skew, max_attempts, ..Client::new(process, world.clone(), vector_files) };
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
        let mut simulation = Self { world, processes, interruptions: 0 };
        if let Some(operations) = creator {
            simulation.create_table(Script { operations, design, isolation });
        }
        simulation.interruptions = interruptions;
        simulation
    }

    /// Creates the table, on a store without faults.
    fn create_table(&mut self, script: Script) {
        let at = self.processes.len();
        let fault_rates = std::mem::replace(&mut self.world.lock().unwrap().store.fault_rates, FaultRates::NONE);
        let world = self.world.clone();
        let client = Client::new(at, world, script.design.vector_files);
        self.processes.push(Some(Box::pin(process::write(client, script))));
        self.poll(at);
        while self.step() {}
        self.world.lock().unwrap().store.fault_rates = fault_rates;
    }

    /// Runs a process until it waits for the store.
    fn poll(&mut self, at: usize) {
        if let Some(process) = &mut self.processes[at]
            && process.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            self.processes[at] = None;
            self.world.lock().unwrap().store.record(|| format!("process {at} has finished"));
        }
    }

    /// Kills or cancels a process, at random.
    fn interrupt(&mut self) {
        let mut world = self.world.lock().unwrap();
        if self.interruptions == 0 || !world.random.chance(15) {
            return;
        }
        self.interruptions -= 1;
        let at = world.random.below(self.processes.len());
        if world.random.chance(300) {
            world.store.count("processes that were cancelled");
            world.store.record(|| format!("process {at} is cancelled"));
            world.cancelled.insert(at);
        } else if self.processes[at].is_some() {
            world.store.count("processes that were killed");
            world.store.record(|| format!("process {at} is killed"));
            drop(world);
            self.processes[at] = None;
        }
    }

    /// One step; `false` if no request is pending.
    fn step(&mut self) -> bool {
        self.interrupt();
        let answered = {
            let mut guard = self.world.lock().unwrap();
            let world = &mut *guard;
            if world.store.is_idle() {
                return false;
            }
            match world.store.step(&mut world.random) {
                Event::Landed { version, transaction, lines } => {
                    world.referee.landed(version, (transaction, world.store.now_ms()), &lines);
                    world.check_vectors(version, &lines);
                    None
                }
                Event::FileDeleted { path, file, basis } => {
                    let what = world.referee.file_vacuumed(&path, &file, basis);
                    world.store.count(what);
                    None
                }
                Event::CommitDeleted(version) => {
                    world.referee.commit_deleted(version);
                    None
                }
                Event::Answered(process) => Some(process),
                Event::Nothing => None,
            }
        };
        if let Some(process) = answered {
            self.poll(process);
        }
        self.world.lock().unwrap().referee.check();
        true
    }

    fn run(mut self) -> RunResult {
        (0..self.processes.len()).for_each(|at| self.poll(at));
        let mut steps = 0;
        while steps < MAX_STEPS && self.world.lock().unwrap().referee.violation.is_none() && self.step() {
            steps += 1;
        }
        let mut guard = self.world.lock().unwrap();
        let World { store, referee, .. } = &mut *guard;
        // No request is pending, so a process that still waits would wait forever.
        if let Some(at) = self.processes.iter().position(Option::is_some) {
            referee.report(format!("process {at} has not finished after {steps} steps"));
        }
        for landed in referee.unknown_outcomes() {
            store.count(if landed { "unknown commits that landed" } else { "unknown commits that did not land" });
        }
        let versions = referee.newest().map_or(0, |newest| newest + 1);
        *store.counts.entry("versions").or_default() += versions;
        let counts = std::mem::take(&mut store.counts);
        RunResult { violation: referee.violation.take(), steps, counts, trace: store.trace.take().unwrap_or_default() }
    }
}

fn simulate(seed: u64, fault: Fault, traced: bool) -> RunResult {
    Simulation::new(seed, fault, traced).run()
}

/// Runs seeds from 0 on all cores, and returns their counts.
fn run(seeds: u64) -> Counts {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let share = move |thread: u64| {
        let mut counts = Counts::new();
        for seed in (thread..seeds).step_by(threads as usize) {
            let ending = simulate(seed, Fault::None, false);
            if let Some(violation) = ending.violation {
                let trace = simulate(seed, Fault::None, true).trace.join("\n");
                panic!("seed {seed}: {violation}\n{trace}\nrepeat with DELTIC_SIMULATION_SEED={seed}");
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
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Events that must have occurred, or the simulations prove little.
const EXPECTED: &[&str] = &[
    "commits that took several attempts",
    "commits that were acknowledged",
    "commits that were given up",
    "commits with an unknown outcome",
    "commits with deletion vectors that took several attempts",
    "compactions that left files out",
    "conflicts: ConcurrentAppend",
    "conflicts: ConcurrentDeleteDelete",
    "conflicts: ConcurrentDeleteRead",
    "conflicts: ConcurrentTransaction",
    "conflicts: MetadataChanged",
    "conflicts: ProtocolChanged",
    "deletion vector files that a vacuum deleted",
    "deletion vectors that were read",
    "files of older versions that were read during a vacuum",
    "files that a vacuum deleted",
    "listings that failed",
    "listings with a gap",
    "missing files of versions beyond the retention",
    "processes that were cancelled",
    "processes that were killed",
    "puts answered with 409",
    "puts answered with 503",
    "puts carried out after their sender stopped waiting",
    "puts that were delayed",
    "puts that were lost",
    "puts that were refused",
    "puts that were sent twice",
    "puts whose answer was lost",
    "reads of a version",
    "reads that failed",
    "reads that missed an existing commit",
    "searches for moved rows",
    "searches of added files",
    "stale listings",
    "unknown commits that did not land",
    "unknown commits that landed",
    "vacuums that finished",
];

#[test]
fn acknowledged_commits_are_in_the_log() {
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
        assert!(missing.is_empty(), "these never occurred: {missing:?}");
    }
}

#[test]
fn a_seed_always_gives_the_same_steps() {
    for seed in 0..50 {
        let (one, other) = (simulate(seed, Fault::None, true), simulate(seed, Fault::None, true));
        assert!(one.trace.len() > 10, "{:?}", one.trace);
        assert_eq!(one.trace, other.trace);
        assert_eq!(simulate(seed, Fault::None, false).steps, one.steps);
    }
}

/// Runs simulations with a fault until the referee has reported each of `expected`. It may also report `besides`, and
/// nothing else.
#[track_caller]
fn assert_detected(fault: Fault, expected: &[&str], besides: &[&str]) {
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
    panic!("{fault:?}: the referee never reported {missing:?}");
}

#[test]
fn an_overwriting_store_is_detected() {
    let besides = [
        "is in the log as",
        "is missing",
        "but repeated it reads",
        "but repeated it leaves",
        "is not after",
        "has row ids",
        "that is deleted already",
        "was reported as failed",
        "which is deleted",
        "is deleted as unreferenced",
        "is in the table twice",
        "reappears",
        "it only rearranges",
        "it restores",
        "a vacuum deleted",
        "misses",
    ];
    assert_detected(Fault::StoreOverwrites, &["was acknowledged as version", "was read as"], &besides);
}

#[test]
fn incomplete_conflict_checks_are_detected() {
    let besides = [
        "but repeated it leaves",
        "but repeated it reads",
        "but its writer got",
        "it only rearranges",
        "it restores",
        "reappears",
        "is in the table twice",
    ];
    assert_detected(Fault::AddsAreIgnored, &["but repeated it reads"], &besides);
    assert_detected(Fault::RemovesAreIgnored, &["which is missing"], &besides);
    assert_detected(Fault::MetadataIsIgnored, &["but repeated it leaves State"], &besides);
}

#[test]
fn overlapping_vectors_are_detected() {
    let besides = ["but repeated it reads", "but repeated it leaves"];
    assert_detected(Fault::VectorOverlapIsIgnored, &["that is deleted already"], &besides);
}

#[test]
fn moved_rows_found_by_position_are_detected() {
    let besides = [
        "that is deleted already",
        "but repeated it reads",
        "but repeated it leaves",
        "it only rearranges",
        "reappears",
        "which is missing",
    ];
    assert_detected(Fault::MovedRowsKeepPositions, &["but should delete"], &besides);
}

#[test]
fn added_rows_that_are_not_searched_are_detected() {
    assert_detected(Fault::AddedRowsAreNotSearched, &["but repeated it reads"], &["but repeated it leaves"]);
}

#[test]
fn an_optimize_that_ignores_removes_is_detected() {
    assert_detected(
        Fault::OptimizeIgnoresRemoves,
        &["it only rearranges", "which is missing"],
        &["but its writer got"],
    );
}

#[test]
fn an_incomplete_read_set_of_a_merge_is_detected() {
    assert_detected(Fault::MergeOmitsMatchedFiles, &["but repeated it reads"], &["but repeated it leaves"]);
}

#[test]
fn a_restore_with_an_empty_read_set_is_detected() {
    let besides = ["but repeated it reads", "but repeated it leaves"];
    assert_detected(Fault::RestoreReadsNothing, &["it restores"], &besides);
}

#[test]
fn a_vacuum_that_deletes_needed_files_is_detected() {
    assert_detected(Fault::VacuumIgnoresVectors, &["a vacuum deleted deletion_vector"], &[]);
    assert_detected(Fault::VacuumIgnoresOldVersions, &["needs within its retention"], &[]);
    assert_detected(Fault::VacuumIgnoresFileAge, &["which is younger than its retention"], &["needs within"]);
}

#[test]
fn misread_answers_are_detected() {
    let landed = "was reported as failed, but is in the log";
    assert_detected(Fault::OwnCommitIsForeign, &["it is in the log as"], &[landed]);
    assert_detected(Fault::UnknownIsCreated, &["was acknowledged as version"], &["tries"]);
    assert_detected(Fault::UnknownIsFailed, &[landed], &["it was reported as failed"]);
}

#[test]
fn deleting_a_visible_commit_is_detected() {
    assert_detected(Fault::CommitIsDeleted, &["was visible and was deleted"], &[]);
}
