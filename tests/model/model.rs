//! Model check of the commit loop: three writers, each with the same three operations in another order, on a store that
//! loses requests and answers, and repeats and delays puts.
//!
//! The state machine is that of real commits, compiled from its source. Which operation may follow which is read from the
//! table in `docs/commit-protocol.md`, which a test compares with the conflict rules. The simulation
//! (`tests/rust/simulation`) runs the loop with its driver and the real rules, but not in every order.
//!
//! The number of faults is bounded, so that the state space is finite.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../rust/protocol/src/commit/state.rs"]
#[expect(dead_code, reason = "the model prints loop states")]
mod state;

use std::collections::BTreeSet;
use std::time::Instant;

use state::{Failure, LoopState, NextStep, PutAnswer, ReadAnswer, UnknownReason};
use stateright::{Checker, HasDiscoveries, Model, Property};

const WRITERS: usize = 3;

/// Operations on files, and operations on rows of one file, as the table of the documentation names them.
const OF_FILES: [&str; 3] = ["append to `a`", "update `p = 'a'`", "optimize `a`"];
const OF_ROWS: [&str; 3] = ["mark rows 1, 2 of the file in `a`", "mark row 5 of the file in `a`", "optimize `a`"];

/// Each writer does each operation once, in its own order.
const ORDER: [[usize; 3]; WRITERS] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];

/// One operation of one writer: `writer * 3 + step`.
type Commit = u8;

fn kind(commit: Commit) -> usize {
    ORDER[usize::from(commit) / 3][usize::from(commit) % 3]
}

/// The state of a writer. Versions are counted from 1; version 0 creates the table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// It will read the table.
    BeforeRead,
    Committing(LoopState<()>),
    Finished,
    Crashed,
}

impl Phase {
    fn step(&self) -> Option<NextStep> {
        match self {
            Self::Committing(commit_loop) => Some(commit_loop.step()),
            Self::BeforeRead | Self::Finished | Self::Crashed => None,
        }
    }

    /// The version that the writer is putting.
    fn put_version(&self) -> Option<u8> {
        match self.step() {
            Some(NextStep::Put(version)) => Some(version as u8),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Pending,
    Committed(u8),
    /// It failed, and must never land.
    NotCommitted,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// The commit of each version from 1 on.
    log: Vec<Commit>,
    writers: [(Phase, Commit); WRITERS],
    /// The base version of each writer's commit.
    bases: [u8; WRITERS],
    /// The newest version that each writer has read, while it commits.
    seen: [u8; WRITERS],
    outcomes: [Outcome; WRITERS * 3],
    /// Delayed puts whose sender does not wait: commit, version, base version.
    late: Vec<(Commit, u8, u8)>,
    faults: u8,
    crashes: u8,
    violation: Option<Violation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Violation {
    /// A put replaced a version.
    Replaced,
    /// A version was put although the one below it is missing.
    Gap,
    /// A commit follows one that conflicts with it.
    Anomaly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Reads the newest version.
    ReadTable(usize),
    /// The put lands, and the answer is delivered. The delay of the answer makes no difference.
    Land(usize),
    /// The put lands, and the answer is lost.
    LandUnanswered(usize),
    /// The put lands, and the writer crashes.
    LandAndCrash(usize),
    /// The put is sent twice, and the answer is that of the second.
    LandTwice(usize),
    /// The put is lost, and the outcome unknown.
    Lose(usize),
    /// The put is delayed, and the outcome unknown.
    Delay(usize),
    /// Reads all new versions in one step, since versions never change.
    ReadWinners(usize),
    /// Reads so many versions, and fails to read the one after them.
    ReadWinnersFails(usize, u8),
    /// The writer gives up instead of trying again.
    GiveUp(usize),
    /// A delayed put lands.
    LandLate(usize),
    Crash(usize),
}

/// A deliberate defect that a property must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A put replaces an existing version.
    StoreOverwrites,
    /// After a lost race the next version is tried without reading the winner.
    WinnersAreNotRead,
    /// Winners are read, but not checked for conflicts.
    WinnersAreNotChecked,
    /// A writer does not recognize its own commit when it reads it.
    OwnCommitIsForeign,
    /// A version that exists always counts as that of another writer.
    ExistingIsForeign,
    /// A lost answer counts as success.
    UnknownIsCreated,
}

struct CommitModel {
    fault: Fault,
    /// The number of faults and of crashes in a history.
    budget: (u8, u8),
    /// Whether the first operation may follow the second.
    follows: [[bool; 3]; 3],
}

impl CommitModel {
    fn new(fault: Fault, budget: (u8, u8), operations: [&'static str; 3]) -> Self {
        Self { fault, budget, follows: rules(operations) }
    }

    fn may_follow(&self, own: Commit, winner: Commit) -> bool {
        self.follows[kind(own)][kind(winner)]
    }

    /// A put, as the store does it. Returns whether it created the version.
    fn put(&self, state: &mut State, commit: Commit, at: u8, base: u8) -> bool {
        let newest = state.log.len() as u8;
        if at <= newest && self.fault != Fault::StoreOverwrites {
            return false;
        }
        if at <= newest {
            state.violation = Some(Violation::Replaced);
            state.log[usize::from(at) - 1] = commit;
            return true;
        }
        if at > newest + 1 {
            state.violation = Some(Violation::Gap);
            return true;
        }
        if state.log[usize::from(base)..].iter().any(|winner| !self.may_follow(commit, *winner)) {
            state.violation = Some(Violation::Anomaly);
        }
        state.log.push(commit);
        // Other delayed puts of this version cannot land any more.
        if self.fault != Fault::StoreOverwrites {
            state.late.retain(|(_, late, _)| *late > at);
        }
        true
    }

    /// Records the outcome, and moves the writer to its next operation.
    fn finish(state: &mut State, writer: usize, outcome: Outcome) {
        let (phase, commit) = &mut state.writers[writer];
        state.outcomes[usize::from(*commit)] = outcome;
        (state.bases[writer], state.seen[writer]) = (0, 0);
        (*phase, *commit) =
            if *commit % 3 == 2 { (Phase::Finished, *commit) } else { (Phase::BeforeRead, *commit + 1) };
    }

    /// Runs the steps that need no store, until the writer puts, reads or has finished.
    fn advance(&self, state: &mut State, writer: usize) {
        while let Phase::Committing(commit_loop) = &mut state.writers[writer].0 {
            match commit_loop.step() {
                NextStep::Put(_) | NextStep::ReadFrom(_) => return,
                NextStep::CheckBaseBeforePut => commit_loop.base_checked_before_put(Ok(false)),
                NextStep::Wait => commit_loop.waited(true),
                NextStep::MakeDurable(_) => commit_loop.made_durable(Ok(())),
                NextStep::CheckBaseAfterPut(_) => commit_loop.base_checked_after_put(Ok(false)),
                NextStep::Done { version, .. } => Self::finish(state, writer, Outcome::Committed(version as u8)),
                NextStep::Failed => {
                    let failure = commit_loop.clone().into_failure().unwrap();
                    let is_unknown = match failure {
                        Failure::Unknown { reason: UnknownReason::ExistsButUnread, .. } => {
                            self.fault != Fault::ExistingIsForeign
                        }
                        Failure::Unknown { .. } | Failure::CommittedPastCleanup | Failure::Unverified(()) => true,
                        Failure::Interrupted | Failure::RaceLost | Failure::BaseGone | Failure::Refused(()) => false,
                    };
                    Self::finish(state, writer, if is_unknown { Outcome::Unknown } else { Outcome::NotCommitted });
                }
            }
        }
    }

    /// Reads versions and checks them for conflicts until one is missing, or fails after `most` of them.
    fn read(&self, state: &mut State, writer: usize, most: u8) {
        for count in 0..=most {
            let (Phase::Committing(commit_loop), own) = &mut state.writers[writer] else { return };
            let NextStep::ReadFrom(version) = commit_loop.step() else { return };
            commit_loop.read(match state.log.get(version as usize - 1).copied() {
                _ if count == most => ReadAnswer::Unreadable(()),
                None => ReadAnswer::Nothing,
                Some(found) if found == *own && self.fault != Fault::OwnCommitIsForeign => ReadAnswer::Own,
                Some(winner) if self.may_follow(*own, winner) || self.fault == Fault::WinnersAreNotChecked => {
                    state.seen[writer] = version as u8;
                    ReadAnswer::CompatibleWinner
                }
                Some(_) => ReadAnswer::Conflict(()),
            });
            self.advance(state, writer);
        }
    }

    /// Delivers the answer to a put.
    fn answer(&self, state: &mut State, writer: usize, answer: PutAnswer<()>) {
        let Phase::Committing(commit_loop) = &mut state.writers[writer].0 else { return };
        let is_created = matches!(answer, PutAnswer::Created);
        match (self.fault, answer) {
            (Fault::UnknownIsCreated, PutAnswer::Unknown(())) => commit_loop.put_answered(PutAnswer::Created),
            (_, answer) => commit_loop.put_answered(answer),
        }
        if self.fault == Fault::WinnersAreNotRead && !is_created {
            commit_loop.waited(true);
            commit_loop.read(ReadAnswer::CompatibleWinner);
            commit_loop.read(ReadAnswer::Nothing);
        }
        self.advance(state, writer);
    }
}

impl Model for CommitModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            log: Vec::new(),
            writers: std::array::from_fn(|writer| (Phase::BeforeRead, writer as u8 * 3)),
            bases: [0; WRITERS],
            seen: [0; WRITERS],
            outcomes: [Outcome::Pending; WRITERS * 3],
            late: Vec::new(),
            faults: self.budget.0,
            crashes: self.budget.1,
            violation: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faulty = state.faults > 0;
        for (writer, (phase, _)) in state.writers.iter().enumerate() {
            match (phase, phase.step()) {
                (Phase::BeforeRead, _) => actions.push(Action::ReadTable(writer)),
                (Phase::Committing(_), Some(NextStep::Put(_))) => {
                    actions.push(Action::Land(writer));
                    if faulty {
                        actions.extend([
                            Action::LandUnanswered(writer),
                            Action::LandTwice(writer),
                            Action::Lose(writer),
                            Action::Delay(writer),
                            Action::GiveUp(writer),
                        ]);
                    }
                }
                (Phase::Committing(_), _) => {
                    actions.push(Action::ReadWinners(writer));
                    let there = (state.log.len() as u8).saturating_sub(state.seen[writer]);
                    actions.extend((0..=there).filter(|_| faulty).map(|read| Action::ReadWinnersFails(writer, read)));
                }
                (Phase::Finished | Phase::Crashed, _) => continue,
            }
            if state.crashes > 0 {
                actions.push(Action::Crash(writer));
                actions.extend(phase.put_version().map(|_| Action::LandAndCrash(writer)));
            }
        }
        actions.extend((0..state.late.len()).map(Action::LandLate));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let costs = matches!(
            action,
            Action::LandTwice(_)
                | Action::Lose(_)
                | Action::Delay(_)
                | Action::LandUnanswered(_)
                | Action::ReadWinnersFails(..)
                | Action::GiveUp(_)
        );
        state.faults -= u8::from(costs);
        match action {
            Action::ReadTable(writer) => {
                let base = state.log.len() as u8;
                (state.bases[writer], state.seen[writer]) = (base, base);
                state.writers[writer].0 = Phase::Committing(LoopState::new(u64::from(base) + 1));
                self.advance(&mut state, writer);
            }
            Action::LandLate(at) => {
                let (commit, version, base) = state.late.remove(at);
                self.put(&mut state, commit, version, base);
            }
            Action::Crash(writer) | Action::LandAndCrash(writer) => {
                state.crashes -= 1;
                let (base, commit) = (last.bases[writer], last.writers[writer].1);
                if let Some(at) = last.writers[writer].0.put_version() {
                    match action {
                        Action::LandAndCrash(_) => drop(self.put(&mut state, commit, at, base)),
                        _ => state.delay(commit, at, base),
                    }
                }
                state.writers[writer].0 = Phase::Crashed;
                (state.bases[writer], state.seen[writer]) = (0, 0);
            }
            Action::ReadWinners(writer) => self.read(&mut state, writer, u8::MAX),
            Action::ReadWinnersFails(writer, most) => self.read(&mut state, writer, most),
            Action::Land(writer)
            | Action::LandUnanswered(writer)
            | Action::LandTwice(writer)
            | Action::Lose(writer)
            | Action::Delay(writer)
            | Action::GiveUp(writer) => {
                let (at, commit) = (last.writers[writer].0.put_version()?, last.writers[writer].1);
                let base = last.bases[writer];
                let answer = match action {
                    Action::Land(_) => match self.put(&mut state, commit, at, base) {
                        true => PutAnswer::Created,
                        false => PutAnswer::Exists,
                    },
                    Action::LandTwice(_) => {
                        self.put(&mut state, commit, at, base);
                        PutAnswer::Exists
                    }
                    Action::LandUnanswered(_) => {
                        self.put(&mut state, commit, at, base);
                        PutAnswer::Unknown(())
                    }
                    Action::Lose(_) => PutAnswer::Unknown(()),
                    Action::Delay(_) => {
                        state.delay(commit, at, base);
                        PutAnswer::Unknown(())
                    }
                    // `GiveUp` replaces the put, so nothing was sent.
                    _ => {
                        if let Phase::Committing(commit_loop) = &mut state.writers[writer].0 {
                            commit_loop.cancel();
                        }
                        self.advance(&mut state, writer);
                        return Some(state);
                    }
                };
                self.answer(&mut state, writer, answer);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("one commit per version", |_, state| state.violation != Some(Violation::Replaced)),
            Property::<Self>::always("the log has no gap", |_, state| state.violation != Some(Violation::Gap)),
            Property::<Self>::always("no commit follows one that conflicts with it", |_, state| {
                state.violation != Some(Violation::Anomaly)
            }),
            Property::<Self>::always("no commit is in the log twice", |_, state| {
                (0..state.outcomes.len() as u8).all(|commit| state.log.iter().filter(|c| **c == commit).count() <= 1)
            }),
            Property::<Self>::always("acknowledged commits are in the log", |_, state| {
                state.outcomes.iter().enumerate().all(|(commit, outcome)| match outcome {
                    Outcome::Committed(at) => state.log.get(usize::from(*at) - 1) == Some(&(commit as u8)),
                    Outcome::Pending | Outcome::NotCommitted | Outcome::Unknown => true,
                })
            }),
            Property::<Self>::always("failed commits are not in the log", |_, state| {
                state.log.iter().all(|commit| state.outcomes[usize::from(*commit)] != Outcome::NotCommitted)
            }),
            Property::<Self>::always("no version is tried before the one below it was read", |_, state| {
                let mut writers = state.writers.iter().zip(state.seen);
                writers.all(|((phase, _), seen)| phase.put_version().is_none_or(|at| at == seen + 1))
            }),
            Property::<Self>::always("no writer is stuck", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.have_finished()
            }),
            Property::<Self>::eventually("every writer finishes", |_, state| state.have_finished()),
            Property::<Self>::sometimes("all commits land", |_, state| state.log.len() == WRITERS * 3),
            Property::<Self>::sometimes("an unknown commit is in the log", |_, state| {
                state.log.iter().any(|commit| state.outcomes[usize::from(*commit)] == Outcome::Unknown)
            }),
            Property::<Self>::sometimes("a crashed writer's commit is in the log", |_, state| {
                state.writers.iter().any(|(phase, commit)| *phase == Phase::Crashed && state.log.contains(commit))
            }),
        ]
    }
}

impl State {
    /// The state without the order of versions that will not be read again, to merge equivalent states.
    fn canonical(&self) -> Self {
        let newest = self.log.len();
        let active =
            self.writers.iter().zip(self.bases).filter(|((phase, _), _)| matches!(phase, Phase::Committing(_)));
        let oldest = active.map(|(_, base)| base).chain(self.late.iter().map(|(_, _, base)| *base)).min();
        let mut state = self.clone();
        state.log[..oldest.map_or(newest, usize::from)].sort_unstable();
        for outcome in &mut state.outcomes {
            *outcome = if matches!(outcome, Outcome::Committed(_)) { Outcome::Committed(1) } else { *outcome };
        }
        state
    }

    fn have_finished(&self) -> bool {
        self.writers.iter().all(|(phase, _)| matches!(phase, Phase::Finished | Phase::Crashed))
    }

    /// Delays a put whose sender does not wait, unless its version exists already.
    fn delay(&mut self, commit: Commit, at: u8, base: u8) {
        if usize::from(at) > self.log.len() {
            self.late.push((commit, at, base));
            self.late.sort_unstable();
        }
    }
}

/// Which operation may follow which, from the table of the documentation.
fn rules(operations: [&'static str; 3]) -> [[bool; 3]; 3] {
    let page = include_str!("../../docs/commit-protocol.md");
    let table =
        page.split_once("<!-- matrix: generated -->\n").unwrap().1.split_once("<!-- matrix: end -->").unwrap().0;
    let cells =
        |line: &'static str| -> Vec<&'static str> { line.trim_matches('|').split(" | ").map(str::trim).collect() };
    let mut lines = table.lines();
    let winners = cells(lines.next().unwrap());
    let column = |name: &str| winners.iter().position(|winner| *winner == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.skip(1).map(cells).collect();
    operations.map(|own| {
        let row = rows.iter().find(|row| row[0] == format!("**{own}**")).unwrap();
        // With row tracking, a commit that marks rows may follow one that moves them.
        operations.map(|winner| row[column(winner)] == "✓" || row[column(winner)].ends_with("(rows tracked: ✓)"))
    })
}

#[test]
fn the_rules_are_those_of_the_documentation() {
    assert_eq!(rules(OF_ROWS), [[false, true, true], [true, false, true], [false, false, false]]);
    assert_eq!(rules(OF_FILES), [[true, true, true], [false, false, false], [true, false, false]]);
}

#[test]
fn every_state_of_the_commit_loop_is_correct() {
    for (budget, operations) in [((1, 1), OF_FILES), ((2, 0), OF_FILES), ((1, 1), OF_ROWS)] {
        let start = Instant::now();
        let checked = CommitModel::new(Fault::None, budget, operations)
            .checker()
            .symmetry_fn(State::canonical)
            .spawn_dfs()
            .join();
        eprintln!(
            "{}, {} faults, {} crashes: {} states ({} distinct), {} steps deep, in {:.1} s",
            operations.join(", "),
            budget.0,
            budget.1,
            checked.state_count(),
            checked.unique_state_count(),
            checked.max_depth(),
            start.elapsed().as_secs_f64()
        );
        let expected =
            ["all commits land", "an unknown commit is in the log", "a crashed writer's commit is in the log"];
        let possible = [true, budget.0 > 1, budget.1 > 0];
        for property in checked.model().properties() {
            let found = checked.discovery(property.name);
            let wanted = expected.iter().zip(possible).any(|(name, is_possible)| *name == property.name && is_possible);
            assert_eq!(found.is_some(), wanted, "{}: {:?}", property.name, found.map(stateright::Path::into_actions));
        }
    }
}

/// Checks that a fault breaks a property.
#[track_caller]
fn assert_broken(fault: Fault, expected: &'static str) {
    let checked = CommitModel::new(fault, (2, 0), OF_FILES)
        .checker()
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([expected])))
        .spawn_bfs()
        .join();
    let path = checked.discovery(expected).unwrap_or_else(|| panic!("{fault:?} does not break: {expected}"));
    eprintln!("{fault:?} breaks `{expected}` by {:?}", path.into_actions());
}

#[test]
fn faults_are_detected() {
    assert_broken(Fault::StoreOverwrites, "one commit per version");
    assert_broken(Fault::StoreOverwrites, "acknowledged commits are in the log");
    assert_broken(Fault::WinnersAreNotRead, "no version is tried before the one below it was read");
    assert_broken(Fault::WinnersAreNotChecked, "no commit follows one that conflicts with it");
    assert_broken(Fault::OwnCommitIsForeign, "no commit is in the log twice");
    assert_broken(Fault::ExistingIsForeign, "failed commits are not in the log");
    assert_broken(Fault::UnknownIsCreated, "acknowledged commits are in the log");
}
