//! The commit loop as a state machine, and every state it can be in: three writers, each with the same three operations
//! in another order, over a store that loses requests and answers, repeats puts, lands them late and lists late.
//!
//! Which operation may follow which is asked of the conflict rules: the table in `docs/commit-protocol.md`, which is made
//! by them and compared with them by a test. The rest is the loop of `rust/table/src/transaction.rs`. A simulation
//! (`tests/rust/simulation`) runs that very code, but not in every order.
//!
//! Misbehaviour is bounded, so that there is an end.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

const WRITERS: usize = 3;

/// As the table of the documentation calls them.
const OPERATIONS: [&str; 3] = ["append to `a`", "update `p = 'a'`", "optimize `a`"];

/// Each writer does each operation once, in its own order.
const ORDER: [[usize; 3]; WRITERS] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];

/// One writer's one operation: `writer * 3 + step`.
type Commit = u8;

fn kind(commit: Commit) -> usize {
    ORDER[usize::from(commit) / 3][usize::from(commit) % 3]
}

/// What a writer is about to hear or do. Versions are counted from 1; 0 is the table as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// To look at the table.
    Looks,
    /// Has put `at`, and the store has not seen it yet.
    Puts {
        at: u8,
        seen: u8,
        unknown: bool,
    },
    /// To read the versions after `seen`, having tried `at`.
    Reads {
        at: u8,
        seen: u8,
        unknown: bool,
    },
    /// Has done what it had to do.
    Ended,
    Dead,
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
    fn new(fault: Fault, budget: (u8, u8)) -> Self {
        Self { fault, budget, follows: rules() }
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
        state.bases[writer] = 0;
        (*phase, *commit) = if *commit % 3 == 2 { (Phase::Ended, *commit) } else { (Phase::Looks, *commit + 1) };
    }

    /// Reads and judges versions until one is not there, or so many.
    fn read(&self, state: &mut State, writer: usize, most: u8) {
        let (Phase::Reads { at, mut seen, unknown }, own) = state.writers[writer] else { return };
        for _ in 0..most {
            match state.log.get(usize::from(seen)).copied() {
                // None is there: the version is tried, perhaps again.
                None => {
                    let unknown = unknown && at == seen + 1;
                    state.writers[writer].0 = Phase::Puts { at: seen + 1, seen, unknown };
                    return;
                }
                Some(found) if found == own && self.fault != Fault::OwnCommitIsForeign => {
                    return Self::end(state, writer, Told::Committed(seen + 1));
                }
                Some(winner) if self.may_follow(own, winner) || self.fault == Fault::WinnersAreNotJudged => seen += 1,
                Some(_) => return Self::end(state, writer, Told::NotMade),
            }
        }
        Self::fail(state, writer, (at, seen, unknown));
    }

    /// After an answer that is not `created`, or none: the winners are read.
    fn lost(&self, state: &mut State, writer: usize, (at, seen): (u8, u8), unknown: bool, unheard: bool) {
        state.writers[writer].0 = match self.fault {
            Fault::UnknownIsCreated if unheard => return Self::end(state, writer, Told::Committed(at)),
            Fault::WinnersAreNotRead => Phase::Puts { at: at + 1, seen, unknown },
            _ => Phase::Reads { at, seen, unknown },
        };
    }

    /// What is said of a commit that ends without a version: unknown, if a put of the version after the last one that
    /// was read may have landed.
    fn fail(state: &mut State, writer: usize, (at, seen, unknown): (u8, u8, bool)) {
        let told = if unknown && at == seen + 1 { Told::Unknown } else { Told::NotMade };
        Self::end(state, writer, told);
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
            match phase {
                Phase::Looks => {
                    actions.push(Action::Look(writer));
                }
                Phase::Puts { .. } => {
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
                Phase::Reads { seen, .. } => {
                    actions.push(Action::Read(writer));
                    let there = (state.log.len() as u8).saturating_sub(*seen);
                    actions.extend((0..=there).filter(|_| faulty).map(|read| Action::ReadFails(writer, read)));
                }
                Phase::Ended | Phase::Dead => continue,
            }
            if state.crashes > 0 {
                actions.push(Action::Crash(writer));
                let puts = matches!(phase, Phase::Puts { .. });
                actions.extend(puts.then_some(Action::ArriveAndCrash(writer)));
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
                state.bases[writer] = base;
                state.writers[writer].0 = Phase::Puts { at: base + 1, seen: base, unknown: false };
            }
            Action::ArriveLate(at) => {
                let (commit, version, base) = state.late.remove(at);
                self.put(&mut state, commit, version, base);
            }
            Action::Crash(writer) | Action::ArriveAndCrash(writer) => {
                state.crashes -= 1;
                let (base, commit) = (last.bases[writer], last.writers[writer].1);
                if let Phase::Puts { at, .. } = last.writers[writer].0 {
                    match action {
                        Action::ArriveAndCrash(_) => drop(self.put(&mut state, commit, at, base)),
                        _ => state.delay(commit, at, base),
                    }
                }
                state.writers[writer].0 = Phase::Dead;
                state.bases[writer] = 0;
            }
            Action::Read(writer) => self.read(&mut state, writer, u8::MAX),
            Action::ReadFails(writer, most) => self.read(&mut state, writer, most),
            Action::Arrive(writer)
            | Action::ArriveUnheard(writer)
            | Action::ArriveTwice(writer)
            | Action::Lose(writer)
            | Action::Delay(writer)
            | Action::GiveUp(writer) => {
                let (Phase::Puts { at, seen, unknown }, commit) = last.writers[writer] else { return None };
                let base = last.bases[writer];
                let exists_is_unknown = unknown || self.fault != Fault::ExistingIsForeign;
                match action {
                    Action::Arrive(_) => match self.put(&mut state, commit, at, base) {
                        true => Self::end(&mut state, writer, Told::Committed(at)),
                        false => self.lost(&mut state, writer, (at, seen), exists_is_unknown, false),
                    },
                    Action::ArriveTwice(_) => {
                        self.put(&mut state, commit, at, base);
                        self.lost(&mut state, writer, (at, seen), exists_is_unknown, false);
                    }
                    Action::ArriveUnheard(_) => {
                        self.put(&mut state, commit, at, base);
                        self.lost(&mut state, writer, (at, seen), true, true);
                    }
                    Action::Lose(_) => self.lost(&mut state, writer, (at, seen), true, true),
                    Action::Delay(_) => {
                        state.delay(commit, at, base);
                        self.lost(&mut state, writer, (at, seen), true, true);
                    }
                    // Instead of the put, which is the first thing that is done: nothing was sent.
                    _ => Self::fail(&mut state, writer, (at, seen, unknown)),
                }
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
                state.writers.iter().all(|(phase, _)| match phase {
                    Phase::Puts { at, seen, .. } => *at == seen + 1,
                    _ => true,
                })
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
        let active = self
            .writers
            .iter()
            .zip(self.bases)
            .filter(|((phase, _), _)| matches!(phase, Phase::Puts { .. } | Phase::Reads { .. }));
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
fn rules() -> [[bool; 3]; 3] {
    let page = include_str!("../../docs/commit-protocol.md");
    let table =
        page.split_once("<!-- matrix: generated -->\n").unwrap().1.split_once("<!-- matrix: end -->").unwrap().0;
    let cells =
        |line: &'static str| -> Vec<&'static str> { line.trim_matches('|').split(" | ").map(str::trim).collect() };
    let mut lines = table.lines();
    let winners = cells(lines.next().unwrap());
    let column = |name: &str| winners.iter().position(|winner| *winner == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.skip(1).map(cells).collect();
    OPERATIONS.map(|own| {
        let row = rows.iter().find(|row| row[0] == format!("**{own}**")).unwrap();
        OPERATIONS.map(|winner| row[column(winner)] == "✓")
    })
}

#[test]
fn the_rules_are_those_of_the_documentation() {
    assert_eq!(rules(), [[true, true, true], [false, false, false], [true, false, false]]);
}

#[test]
fn every_state_of_the_commit_loop_is_sound() {
    for budget in [(1, 1), (2, 0)] {
        let start = Instant::now();
        let checked = Loop::new(Fault::None, budget).checker().symmetry_fn(State::told_apart).spawn_dfs().join();
        eprintln!(
            "{} faults, {} crashes: {} states ({} distinct), {} steps deep, in {:.1} s",
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
    let checked = Loop::new(fault, (2, 0))
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
