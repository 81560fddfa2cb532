//! Checks the commit loop in all its states: three writers, each with the same three operations in another order, on a
//! store that loses requests and answers, repeats puts, carries them out late and lists late.
//!
//! The loop is the one of real commits, compiled from its source. The table in `docs/commit-protocol.md`, which a test
//! compares with the conflict rules, tells which operation may follow which. A simulation (`tests/rust/simulation`)
//! runs the loop with its driver and the real rules, but not in every order.
//!
//! The number of failures is bounded, so that the check ends.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../rust/protocol/src/commit/state.rs"]
#[expect(dead_code, reason = "attempts can always be printed here")]
mod state;

use std::collections::BTreeSet;
use std::time::Instant;

use state::{Failure, LoopState, NextStep, PutAnswer, ReadAnswer, UnknownReason};
use stateright::{Checker, HasDiscoveries, Model, Property};

const WRITERS: usize = 3;

/// As the table of the documentation calls them: what files are for, and what rows of one file are for.
const OF_FILES: [&str; 3] = ["append to `a`", "update `p = 'a'`", "optimize `a`"];
const OF_ROWS: [&str; 3] = ["mark rows 1, 2 of the file in `a`", "mark row 5 of the file in `a`", "optimize `a`"];

/// Each writer does each operation once, in its own order.
const ORDER: [[usize; 3]; WRITERS] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];

/// One writer's one operation: `writer * 3 + step`.
type Commit = u8;

fn kind(commit: Commit) -> usize {
    ORDER[usize::from(commit) / 3][usize::from(commit) % 3]
}

/// What a writer is about to hear or do. Versions are counted from 1; 0 is the table as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// To look at the table.
    Looks,
    /// Commits.
    Commits(LoopState<()>),
    /// Has done what it had to do.
    Ended,
    Dead,
}

impl Phase {
    fn step(&self) -> Option<NextStep> {
        match self {
            Self::Commits(commit_loop) => Some(commit_loop.step()),
            Self::Looks | Self::Ended | Self::Dead => None,
        }
    }

    /// The version whose put is under way.
    fn puts(&self) -> Option<u8> {
        match self.step() {
            Some(NextStep::Put(version)) => Some(version as u8),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Told {
    Nothing,
    Committed(u8),
    /// It was refused, or given up, and will not be made.
    NotMade,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// The commit of each version from 1 on.
    log: Vec<Commit>,
    writers: [(Phase, Commit); WRITERS],
    /// The version that each writer's commit builds on.
    bases: [u8; WRITERS],
    /// The last version that each writer has read, while it commits.
    seen: [u8; WRITERS],
    told: [Told; WRITERS * 3],
    /// Puts that nobody waits for, with their base; they land if they come in time.
    late: Vec<(Commit, u8, u8)>,
    faults: u8,
    crashes: u8,
    /// What happened that must not.
    wrong: Option<Wrong>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Wrong {
    /// A version was put in the place of another.
    Replaced,
    /// A version was put where the one below it is missing.
    Gap,
    /// A commit follows one that it must not follow.
    Anomaly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Sees the newest version.
    Look(usize),
    /// The put arrives, and the answer is heard. Nobody else notices when it is.
    Arrive(usize),
    /// The put arrives, and the answer is lost.
    ArriveUnheard(usize),
    /// The put arrives, and the writer dies.
    ArriveAndCrash(usize),
    /// It arrives twice, and the answer is that of the second.
    ArriveTwice(usize),
    /// It never arrives, and nobody knows.
    Lose(usize),
    /// Nobody knows; it is still under way.
    Delay(usize),
    /// Reads all the versions that are there. When each is read is nobody's concern: none of them changes.
    Read(usize),
    /// Reads so many versions, and fails at the one after them.
    ReadFails(usize, u8),
    /// Gives up instead of trying once more.
    GiveUp(usize),
    /// A put that nobody waits for arrives.
    ArriveLate(usize),
    Crash(usize),
}

/// What is broken on purpose, to see whether a property notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A put replaces what is there.
    StoreOverwrites,
    /// Who finds a version taken tries the one after it, unread.
    WinnersAreNotRead,
    /// Winners are read and not judged.
    WinnersAreNotJudged,
    /// A writer does not know its own commit when it reads it.
    OwnCommitIsForeign,
    /// That a version exists counts as proof that it is another's.
    ExistingIsForeign,
    /// A lost answer counts as success.
    UnknownIsCreated,
}

struct Loop {
    fault: Fault,
    /// How often the store may misbehave in a history, and writers may crash.
    budget: (u8, u8),
    /// Whether the first may follow the second.
    follows: [[bool; 3]; 3],
}

impl Loop {
    fn new(fault: Fault, budget: (u8, u8), operations: [&'static str; 3]) -> Self {
        Self { fault, budget, follows: rules(operations) }
    }

    fn may_follow(&self, own: Commit, winner: Commit) -> bool {
        self.follows[kind(own)][kind(winner)]
    }

    /// The store's part of a put; whether it made the version.
    fn put(&self, state: &mut State, commit: Commit, at: u8, base: u8) -> bool {
        let newest = state.log.len() as u8;
        if at <= newest && self.fault != Fault::StoreOverwrites {
            return false;
        }
        if at <= newest {
            state.wrong = Some(Wrong::Replaced);
            state.log[usize::from(at) - 1] = commit;
            return true;
        }
        if at > newest + 1 {
            state.wrong = Some(Wrong::Gap);
            return true;
        }
        if state.log[usize::from(base)..].iter().any(|winner| !self.may_follow(commit, *winner)) {
            state.wrong = Some(Wrong::Anomaly);
        }
        state.log.push(commit);
        // Whatever else is under way to this version cannot land any more.
        if self.fault != Fault::StoreOverwrites {
            state.late.retain(|(_, late, _)| *late > at);
        }
        true
    }

    /// The writer is told, and goes on to its next operation.
    fn end(state: &mut State, writer: usize, told: Told) {
        let (phase, commit) = &mut state.writers[writer];
        state.told[usize::from(*commit)] = told;
        (state.bases[writer], state.seen[writer]) = (0, 0);
        (*phase, *commit) = if *commit % 3 == 2 { (Phase::Ended, *commit) } else { (Phase::Looks, *commit + 1) };
    }

    /// Does what needs no store, until the writer puts, reads or has ended.
    fn go_on(&self, state: &mut State, writer: usize) {
        while let Phase::Commits(commit_loop) = &mut state.writers[writer].0 {
            match commit_loop.step() {
                NextStep::Put(_) | NextStep::ReadFrom(_) => return,
                NextStep::CheckBase => commit_loop.base_checked(Ok(false)),
                NextStep::Wait => commit_loop.waited(true),
                NextStep::MakeDurable(_) => commit_loop.made_durable(Ok(())),
                NextStep::VerifyBase(_) => commit_loop.base_verified(Ok(false)),
                NextStep::Done { version, .. } => Self::end(state, writer, Told::Committed(version as u8)),
                NextStep::Failed => {
                    let failure = commit_loop.clone().into_failure().unwrap();
                    let is_unknown = match failure {
                        Failure::Unknown { reason: UnknownReason::Unread, .. } => {
                            self.fault != Fault::ExistingIsForeign
                        }
                        Failure::Unknown { .. } | Failure::Late | Failure::Unverified(()) => true,
                        Failure::Interrupted | Failure::RaceLost | Failure::BaseGone | Failure::Refused(()) => false,
                    };
                    Self::end(state, writer, if is_unknown { Told::Unknown } else { Told::NotMade });
                }
            }
        }
    }

    /// Reads and judges versions until one is not there, or fails after so many.
    fn read(&self, state: &mut State, writer: usize, most: u8) {
        for count in 0..=most {
            let (Phase::Commits(commit_loop), own) = &mut state.writers[writer] else { return };
            let NextStep::ReadFrom(version) = commit_loop.step() else { return };
            commit_loop.read(match state.log.get(version as usize - 1).copied() {
                _ if count == most => ReadAnswer::Unreadable(()),
                None => ReadAnswer::Nothing,
                Some(found) if found == *own && self.fault != Fault::OwnCommitIsForeign => ReadAnswer::Own,
                Some(winner) if self.may_follow(*own, winner) || self.fault == Fault::WinnersAreNotJudged => {
                    state.seen[writer] = version as u8;
                    ReadAnswer::Other
                }
                Some(_) => ReadAnswer::Conflict(()),
            });
            self.go_on(state, writer);
        }
    }

    /// A writer hears of its put.
    fn answer(&self, state: &mut State, writer: usize, answer: PutAnswer<()>) {
        let Phase::Commits(commit_loop) = &mut state.writers[writer].0 else { return };
        let is_created = matches!(answer, PutAnswer::Created);
        match (self.fault, answer) {
            (Fault::UnknownIsCreated, PutAnswer::Unknown(())) => commit_loop.put_answered(PutAnswer::Created),
            (_, answer) => commit_loop.put_answered(answer),
        }
        if self.fault == Fault::WinnersAreNotRead && !is_created {
            commit_loop.waited(true);
            commit_loop.read(ReadAnswer::Other);
            commit_loop.read(ReadAnswer::Nothing);
        }
        self.go_on(state, writer);
    }
}

impl Model for Loop {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            log: Vec::new(),
            writers: std::array::from_fn(|writer| (Phase::Looks, writer as u8 * 3)),
            bases: [0; WRITERS],
            seen: [0; WRITERS],
            told: [Told::Nothing; WRITERS * 3],
            late: Vec::new(),
            faults: self.budget.0,
            crashes: self.budget.1,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faulty = state.faults > 0;
        for (writer, (phase, _)) in state.writers.iter().enumerate() {
            match (phase, phase.step()) {
                (Phase::Looks, _) => actions.push(Action::Look(writer)),
                (Phase::Commits(_), Some(NextStep::Put(_))) => {
                    actions.push(Action::Arrive(writer));
                    if faulty {
                        actions.extend([
                            Action::ArriveUnheard(writer),
                            Action::ArriveTwice(writer),
                            Action::Lose(writer),
                            Action::Delay(writer),
                            Action::GiveUp(writer),
                        ]);
                    }
                }
                (Phase::Commits(_), _) => {
                    actions.push(Action::Read(writer));
                    let there = (state.log.len() as u8).saturating_sub(state.seen[writer]);
                    actions.extend((0..=there).filter(|_| faulty).map(|read| Action::ReadFails(writer, read)));
                }
                (Phase::Ended | Phase::Dead, _) => continue,
            }
            if state.crashes > 0 {
                actions.push(Action::Crash(writer));
                actions.extend(phase.puts().map(|_| Action::ArriveAndCrash(writer)));
            }
        }
        actions.extend((0..state.late.len()).map(Action::ArriveLate));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let costs = matches!(
            action,
            Action::ArriveTwice(_)
                | Action::Lose(_)
                | Action::Delay(_)
                | Action::ArriveUnheard(_)
                | Action::ReadFails(..)
                | Action::GiveUp(_)
        );
        state.faults -= u8::from(costs);
        match action {
            Action::Look(writer) => {
                let base = state.log.len() as u8;
                (state.bases[writer], state.seen[writer]) = (base, base);
                state.writers[writer].0 = Phase::Commits(LoopState::new(u64::from(base) + 1));
                self.go_on(&mut state, writer);
            }
            Action::ArriveLate(at) => {
                let (commit, version, base) = state.late.remove(at);
                self.put(&mut state, commit, version, base);
            }
            Action::Crash(writer) | Action::ArriveAndCrash(writer) => {
                state.crashes -= 1;
                let (base, commit) = (last.bases[writer], last.writers[writer].1);
                if let Some(at) = last.writers[writer].0.puts() {
                    match action {
                        Action::ArriveAndCrash(_) => drop(self.put(&mut state, commit, at, base)),
                        _ => state.delay(commit, at, base),
                    }
                }
                state.writers[writer].0 = Phase::Dead;
                (state.bases[writer], state.seen[writer]) = (0, 0);
            }
            Action::Read(writer) => self.read(&mut state, writer, u8::MAX),
            Action::ReadFails(writer, most) => self.read(&mut state, writer, most),
            Action::Arrive(writer)
            | Action::ArriveUnheard(writer)
            | Action::ArriveTwice(writer)
            | Action::Lose(writer)
            | Action::Delay(writer)
            | Action::GiveUp(writer) => {
                let (at, commit) = (last.writers[writer].0.puts()?, last.writers[writer].1);
                let base = last.bases[writer];
                let answer = match action {
                    Action::Arrive(_) => match self.put(&mut state, commit, at, base) {
                        true => PutAnswer::Created,
                        false => PutAnswer::Exists,
                    },
                    Action::ArriveTwice(_) => {
                        self.put(&mut state, commit, at, base);
                        PutAnswer::Exists
                    }
                    Action::ArriveUnheard(_) => {
                        self.put(&mut state, commit, at, base);
                        PutAnswer::Unknown(())
                    }
                    Action::Lose(_) => PutAnswer::Unknown(()),
                    Action::Delay(_) => {
                        state.delay(commit, at, base);
                        PutAnswer::Unknown(())
                    }
                    // Instead of the put, which is the first thing that is done: nothing was sent.
                    _ => {
                        if let Phase::Commits(commit_loop) = &mut state.writers[writer].0 {
                            commit_loop.cancel();
                        }
                        self.go_on(&mut state, writer);
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
            Property::<Self>::always("one commit per version", |_, state| state.wrong != Some(Wrong::Replaced)),
            Property::<Self>::always("the log has no gap", |_, state| state.wrong != Some(Wrong::Gap)),
            Property::<Self>::always("no commit follows one that it must not", |_, state| {
                state.wrong != Some(Wrong::Anomaly)
            }),
            Property::<Self>::always("no commit stands twice", |_, state| {
                (0..state.told.len() as u8).all(|commit| state.log.iter().filter(|c| **c == commit).count() <= 1)
            }),
            Property::<Self>::always("what is acknowledged stands there", |_, state| {
                state.told.iter().enumerate().all(|(commit, told)| match told {
                    Told::Committed(at) => state.log.get(usize::from(*at) - 1) == Some(&(commit as u8)),
                    Told::Nothing | Told::NotMade | Told::Unknown => true,
                })
            }),
            Property::<Self>::always("what is refused does not stand", |_, state| {
                state.log.iter().all(|commit| state.told[usize::from(*commit)] != Told::NotMade)
            }),
            Property::<Self>::always("no version is tried before the one below it was read", |_, state| {
                let mut writers = state.writers.iter().zip(state.seen);
                writers.all(|((phase, _), seen)| phase.puts().is_none_or(|at| at == seen + 1))
            }),
            Property::<Self>::always("nobody is stuck", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.have_ended()
            }),
            Property::<Self>::eventually("every writer ends", |_, state| state.have_ended()),
            Property::<Self>::sometimes("all is committed", |_, state| state.log.len() == WRITERS * 3),
            Property::<Self>::sometimes("an unknown commit stands", |_, state| {
                state.log.iter().any(|commit| state.told[usize::from(*commit)] == Told::Unknown)
            }),
            Property::<Self>::sometimes("a dead writer's commit stands", |_, state| {
                state.writers.iter().any(|(phase, commit)| *phase == Phase::Dead && state.log.contains(commit))
            }),
        ]
    }
}

impl State {
    /// The same, but for the order of versions that nobody will look at again.
    fn told_apart(&self) -> Self {
        let newest = self.log.len();
        let active = self.writers.iter().zip(self.bases).filter(|((phase, _), _)| matches!(phase, Phase::Commits(_)));
        let oldest = active.map(|(_, base)| base).chain(self.late.iter().map(|(_, _, base)| *base)).min();
        let mut state = self.clone();
        state.log[..oldest.map_or(newest, usize::from)].sort_unstable();
        for told in &mut state.told {
            *told = if matches!(told, Told::Committed(_)) { Told::Committed(1) } else { *told };
        }
        state
    }

    fn have_ended(&self) -> bool {
        self.writers.iter().all(|(phase, _)| matches!(phase, Phase::Ended | Phase::Dead))
    }

    /// A put goes on without its sender, unless it comes too late already.
    fn delay(&mut self, commit: Commit, at: u8, base: u8) {
        if usize::from(at) > self.log.len() {
            self.late.push((commit, at, base));
            self.late.sort_unstable();
        }
    }
}

/// Which operation may follow which, from the documentation's table.
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
        // Where rows are tracked, whoever marks rows follows whoever moves them.
        operations.map(|winner| row[column(winner)] == "✓" || row[column(winner)].ends_with("(rows tracked: ✓)"))
    })
}

#[test]
fn the_rules_are_those_of_the_documentation() {
    assert_eq!(rules(OF_ROWS), [[false, true, true], [true, false, true], [false, false, false]]);
    assert_eq!(rules(OF_FILES), [[true, true, true], [false, false, false], [true, false, false]]);
}

#[test]
fn every_state_of_the_commit_loop_is_sound() {
    for (budget, operations) in [((1, 1), OF_FILES), ((2, 0), OF_FILES), ((1, 1), OF_ROWS)] {
        let start = Instant::now();
        let checked =
            Loop::new(Fault::None, budget, operations).checker().symmetry_fn(State::told_apart).spawn_dfs().join();
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
        let expected = ["all is committed", "an unknown commit stands", "a dead writer's commit stands"];
        let possible = [true, budget.0 > 1, budget.1 > 0];
        for property in checked.model().properties() {
            let found = checked.discovery(property.name);
            let wanted = expected.iter().zip(possible).any(|(name, is_possible)| *name == property.name && is_possible);
            assert_eq!(found.is_some(), wanted, "{}: {:?}", property.name, found.map(stateright::Path::into_actions));
        }
    }
}

/// The property that a fault breaks.
#[track_caller]
fn is_noticed(fault: Fault, expected: &'static str) {
    let checked = Loop::new(fault, (2, 0), OF_FILES)
        .checker()
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([expected])))
        .spawn_bfs()
        .join();
    let path = checked.discovery(expected).unwrap_or_else(|| panic!("{fault:?} does not break: {expected}"));
    eprintln!("{fault:?} breaks `{expected}` by {:?}", path.into_actions());
}

#[test]
fn faults_are_noticed() {
    is_noticed(Fault::StoreOverwrites, "one commit per version");
    is_noticed(Fault::StoreOverwrites, "what is acknowledged stands there");
    is_noticed(Fault::WinnersAreNotRead, "no version is tried before the one below it was read");
    is_noticed(Fault::WinnersAreNotJudged, "no commit follows one that it must not");
    is_noticed(Fault::OwnCommitIsForeign, "no commit stands twice");
    is_noticed(Fault::ExistingIsForeign, "what is refused does not stand");
    is_noticed(Fault::UnknownIsCreated, "what is acknowledged stands there");
}
