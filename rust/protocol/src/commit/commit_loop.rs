//! The commit loop: a prepared commit goes into the log, after every commit that won before it.
//!
//! Put the next version if it is absent. Created: done. Exists, or unknown: read the commits from there on. If one has
//! our transaction id, it is ours. If there is none, put the same version again. Otherwise each winner is checked in order, the
//! commit is rebased on it, and the version after the last one is put at once. [`LoopState`] decides which step comes next;
//! this module serialises, parses and checks.
//!
//! No I/O, clock or randomness: the driver does what [`CommitLoop::next`] says and reports the outcome. The driver of a table,
//! the simulation and, of the states, the model check drive this one implementation.
//!
//! PROTOCOL.md: "Commit Protocol".

use std::sync::Arc;

use bytes::Bytes;

use super::attempt::SerializedCommit;
use super::conflict::{refuse, refuse_lost_file};
use super::marked::{AddedFiles, AddedRows, MarkedFile, MovedRows, WinnerRows};
use super::prepared::{Committed, Failed, FirstAttempt, PreparedCommit, committed_but_unreadable, unknown_outcome};
use super::state::{Failure, LoopState, NextStep, PutAnswer, ReadAnswer, UnknownReason};
use crate::action::batch::Origin;
use crate::action::json::{CommitActions, Wanted, parse_commit};
use crate::action::lines::Lines;
use crate::action::{CommitInfo, DeletionVectorDescriptor};
use crate::deletion_vector::DeletionVector;
use crate::error::{Conflict, Error, Kind, Result};
use crate::log::name::{LOG_DIR, commit_name};

/// Most missed commits that are read at once.
const CONCURRENT_READS: usize = 16;

/// What the driver has to do next.
#[derive(Debug)]
pub enum Step {
    /// Check whether the log was cleaned past `version`: then neither `base` nor `version` is there, and the log has later
    /// versions. Answer with [`CommitLoop::base_checked_before_put`].
    CheckBaseBeforePut {
        /// The version that the commit was prepared on.
        base: u64,
        /// The version after it.
        version: u64,
    },
    /// Put `version` if it is absent. Answer with [`CommitLoop::put_answered`].
    Put {
        /// The version to make.
        version: u64,
        /// The lines of the commit.
        lines: Lines,
    },
    /// Store deletion vectors, in one file. Answer with [`CommitLoop::vectors_stored`].
    StoreVectors {
        /// The vectors.
        vectors: Vec<DeletionVector>,
    },
    /// Read deletion vectors of a winner. Answer with [`CommitLoop::vectors_read`].
    ReadVectors {
        /// Where they are.
        descriptors: Vec<DeletionVectorDescriptor>,
    },
    /// Find rows that a winner moved to other files. Answer with [`CommitLoop::moved_rows_found`].
    FindMovedRows {
        /// The rows, and where they may be.
        moved: Arc<MovedRows>,
    },
    /// Search the rows of files that a winner added. Answer with [`CommitLoop::added_rows_searched`].
    SearchAddedRows {
        /// The files, and what is searched.
        added: Arc<AddedRows>,
    },
    /// Wait. Answer with [`CommitLoop::waited`].
    Wait {
        /// How many puts there were.
        attempts: u32,
    },
    /// Read up to `count` commits from `version` on. Answer with [`CommitLoop::read`] for each, until it wants no more.
    ReadFrom {
        /// The first of them.
        version: u64,
        /// How many to read at once.
        count: usize,
    },
    /// Make `version` durable, which was found after an unknown outcome. Answer with [`CommitLoop::made_durable`].
    MakeDurable {
        /// The commit's version.
        version: u64,
    },
    /// Check whether the log was cleaned past `base` and then past `version`, which was put. Answer with
    /// [`CommitLoop::base_checked_after_put`].
    CheckBaseAfterPut {
        /// The version that the commit builds on.
        base: u64,
        /// The commit's version.
        version: u64,
    },
    /// The loop has ended.
    Done(Box<Committed>),
    /// The loop has ended.
    Failed(Failed),
}

/// One commit on its way into the log.
#[derive(Debug)]
pub struct CommitLoop {
    prepared: PreparedCommit,
    state: LoopState<Error>,
    first: FirstAttempt,
    attempts: u32,
    /// Number of winners that were checked.
    winners_checked: usize,
    /// A winner that cannot be checked before files are read.
    in_progress: Option<WinnerInProgress>,
    /// The commit that was put last, or was found in the log.
    written: Option<SerializedCommit>,
}

/// A winner, and what has to be read before it can be checked.
#[derive(Debug)]
struct WinnerInProgress {
    winner: CommitActions,
    /// The deletion vectors that are still to be read.
    descriptors: Vec<DeletionVectorDescriptor>,
    /// The rows that are still to be found.
    moved: Option<Arc<MovedRows>>,
    /// The files that are still to be searched.
    added: Option<Arc<AddedRows>>,
    /// What was read.
    rows: WinnerRows,
}

impl WinnerInProgress {
    /// What has to be read next; `None` if everything was read.
    fn step(&self) -> Option<Step> {
        match (self.descriptors.is_empty(), &self.moved, &self.added) {
            (false, ..) => Some(Step::ReadVectors { descriptors: self.descriptors.clone() }),
            (true, Some(moved), _) => Some(Step::FindMovedRows { moved: Arc::clone(moved) }),
            (true, None, Some(added)) => Some(Step::SearchAddedRows { added: Arc::clone(added) }),
            (true, None, None) => None,
        }
    }
}

impl CommitLoop {
    /// The loop of a prepared commit.
    ///
    /// # Errors
    /// `Invalid` if it mentions a file twice, `Corrupt` if a property that it needs is malformed.
    pub fn new(prepared: PreparedCommit) -> Result<Self> {
        let first = prepared.first_attempt()?;
        let state = LoopState::new(first.version);
        Ok(Self { prepared, state, first, attempts: 0, winners_checked: 0, in_progress: None, written: None })
    }

    /// What has to be done next, at this time.
    pub fn next(&mut self, now_ms: i64) -> Step {
        if let Some(step) = self.in_progress.as_ref().and_then(WinnerInProgress::step) {
            return step;
        }
        loop {
            let base_that_may_be_cleaned = self.prepared.base_that_may_be_cleaned(now_ms);
            match (self.state.step(), base_that_may_be_cleaned) {
                (NextStep::CheckBaseBeforePut, Some(base)) => {
                    return Step::CheckBaseBeforePut { base, version: self.prepared.pending.version() };
                }
                (NextStep::CheckBaseAfterPut(version), Some(base)) => return Step::CheckBaseAfterPut { base, version },
                // `base` is too young for log cleanup to delete it, so nothing has to be checked.
                (NextStep::CheckBaseBeforePut, None) => self.state.base_checked_before_put(Ok(false)),
                (NextStep::CheckBaseAfterPut(_), None) => self.state.base_checked_after_put(Ok(false)),
                (NextStep::Put(version), _) => {
                    if let Some(vectors) = self.prepared.pending.marked.unstored() {
                        return Step::StoreVectors { vectors };
                    }
                    match self.serialize_attempt(now_ms) {
                        Ok(lines) => return Step::Put { version, lines },
                        Err(error) => self.state.failed_before_put(error),
                    }
                }
                (NextStep::Wait, _) => return Step::Wait { attempts: self.attempts },
                (NextStep::ReadFrom(version), _) => {
                    // As many at once as were checked already: usually few were missed, and many are not read one by one.
                    return Step::ReadFrom { version, count: self.winners_checked.clamp(1, CONCURRENT_READS) };
                }
                (NextStep::MakeDurable(version), _) => return Step::MakeDurable { version },
                (NextStep::Done { .. }, _) => return self.done(),
                (NextStep::Failed, _) => return self.failed(),
            }
        }
    }

    /// Lets no further attempt begin. One that is under way is finished.
    pub fn cancel(&mut self) {
        self.state.cancel();
    }

    /// Whether the log was cleaned past the version that is to be put.
    pub fn base_checked_before_put(&mut self, is_gone: Result<bool>) {
        self.state.base_checked_before_put(is_gone);
    }

    /// What became of the put.
    pub fn put_answered(&mut self, answer: PutAnswer<Error>) {
        if !matches!(answer, PutAnswer::Created) {
            self.written = None;
        }
        self.state.put_answered(answer);
    }

    /// The wait is over, and there is `another` attempt or not.
    pub fn waited(&mut self, another: bool) {
        self.state.waited(another);
    }

    /// The commit at the version that was to be read, or at the one after those that were read since; `None` if there is none.
    /// Returns whether the version after it is to be read, too.
    pub fn read(&mut self, commit: Result<Option<Bytes>>) -> bool {
        let NextStep::ReadFrom(version) = self.state.step() else { return false };
        let answer = match commit {
            Ok(Some(lines)) => self.check_winner(version, &lines),
            Ok(None) => Some(ReadAnswer::Nothing),
            Err(error) => Some(ReadAnswer::Unreadable(error)),
        };
        match answer {
            Some(answer) => self.state.read(answer),
            // Files have to be read before the winner can be checked.
            None => return false,
        }
        matches!(self.state.step(), NextStep::ReadFrom(_))
    }

    /// The outcome of storing vectors: their descriptors.
    pub fn vectors_stored(&mut self, stored: Result<Vec<DeletionVectorDescriptor>>) {
        if let Err(error) = stored.and_then(|places| self.prepared.pending.marked.stored(places)) {
            self.state.failed_before_put(error);
        }
    }

    /// The vectors that were to be read, in their order.
    pub fn vectors_read(&mut self, vectors: Result<Vec<DeletionVector>>) {
        let Some(mut in_progress) = self.in_progress.take() else { return };
        let read = vectors.map(|vectors| {
            let ids = in_progress.descriptors.drain(..).map(|descriptor| descriptor.unique_id());
            in_progress.rows.vectors = ids.zip(vectors).collect();
            in_progress
        });
        self.check_once_read(read);
    }

    /// The files with the rows that were to be found; `None` if not every row was found. If a file cannot be read, the removed
    /// file is a conflict, as in a table that does not track rows.
    pub fn moved_rows_found(&mut self, found: Result<Option<Vec<MarkedFile>>>) {
        let Some(in_progress) = self.in_progress.take() else { return };
        let first_path =
            in_progress.moved.as_ref().and_then(|moved| moved.from.first()).map(|file| file.add.path.clone());
        let found = found.map_err(|error| {
            if is_of_the_store(&error) {
                return error;
            }
            refuse_lost_file(&first_path.unwrap_or_default()).caused_by(error)
        });
        self.check_once_read(found.map(|found| WinnerInProgress {
            moved: None,
            rows: WinnerRows { moved: found.unwrap_or_default(), ..in_progress.rows },
            ..in_progress
        }));
    }

    /// The path of a file with a row that makes one of the predicates TRUE; `None` if there is none. If a file cannot be read, it
    /// counts as having such a row.
    pub fn added_rows_searched(&mut self, found: Result<Option<String>>) {
        let Some(in_progress) = self.in_progress.take() else { return };
        let first = in_progress.added.as_ref().and_then(|added| added.files.first()).map(|file| file.path.clone());
        let conflict = |path: String| refuse(Conflict::ConcurrentAppend, &format!("for example {path}"));
        let searched = match found {
            Ok(None) => Ok(()),
            Ok(Some(path)) => Err(conflict(path)),
            Err(error) if is_of_the_store(&error) => Err(error),
            Err(error) => Err(conflict(first.unwrap_or_default()).caused_by(error)),
        };
        self.check_once_read(searched.map(|()| WinnerInProgress {
            added: None,
            rows: WinnerRows { no_added_row_matches: true, ..in_progress.rows },
            ..in_progress
        }));
    }

    /// Checks the winner, unless more has to be read.
    fn check_once_read(&mut self, read: Result<WinnerInProgress>) {
        let NextStep::ReadFrom(version) = self.state.step() else { return };
        let answer = match read {
            Ok(in_progress) => self.check_or_wait(in_progress, version),
            // Whatever could be read, the version belongs to another writer.
            Err(error) => Some(ReadAnswer::Conflict(error.at_version(version))),
        };
        if let Some(answer) = answer {
            self.state.read(answer);
        }
    }

    /// How a winner affects this commit, by what has been read for it so far; `None` if more has to be read.
    fn check_or_wait(&mut self, mut in_progress: WinnerInProgress, version: u64) -> Option<ReadAnswer<Error>> {
        if in_progress.step().is_none()
            && !in_progress.rows.no_added_row_matches
            && let Err(error) = self.judge_added_files(&mut in_progress, version)
        {
            return Some(ReadAnswer::Conflict(error));
        }
        if in_progress.step().is_some() {
            self.in_progress = Some(in_progress);
            return None;
        }
        Some(self.rebase_on(&in_progress.winner, &in_progress.rows, version))
    }

    /// Whether rows of the files that the winner added have to be searched. They are not if the winner conflicts anyway.
    fn judge_added_files(&self, in_progress: &mut WinnerInProgress, version: u64) -> Result<()> {
        let (pending, winner, rows) = (&self.prepared.pending, &in_progress.winner, &mut in_progress.rows);
        match pending.added_files(winner, rows).map_err(|e| e.at_version(version))? {
            AddedFiles::ByStatistics => {}
            AddedFiles::Irrelevant => rows.no_added_row_matches = true,
            AddedFiles::Search(added) => {
                let if_none_matches = WinnerRows { no_added_row_matches: true, ..rows.clone() };
                let may_follow = pending.clone().check_and_rebase(winner, &if_none_matches, version).is_ok();
                in_progress.added = may_follow.then(|| Arc::new(added));
            }
        }
        Ok(())
    }

    /// Whether the version that was found is durable.
    pub fn made_durable(&mut self, made_durable: Result<()>) {
        self.state.made_durable(made_durable);
    }

    /// Whether the log was cleaned past the version that was put.
    pub fn base_checked_after_put(&mut self, is_gone: Result<bool>) {
        self.state.base_checked_after_put(is_gone);
    }

    fn serialize_attempt(&mut self, now_ms: i64) -> Result<Lines> {
        self.attempts = self.attempts.saturating_add(1);
        let written = self.prepared.serialize_attempt(self.first, now_ms)?;
        let lines = written.lines.clone();
        self.written = Some(written);
        Ok(lines)
    }

    /// Reads the actions of a winner: whether it is this commit itself, and else how it affects this commit. `None` if more
    /// has to be read.
    fn check_winner(&mut self, version: u64, lines: &Bytes) -> Option<ReadAnswer<Error>> {
        let with_context = |e: Error| e.at_version(version).in_file(format!("{LOG_DIR}/{}", commit_name(version)));
        let winner = match parse_commit(lines, Origin::Commit(version), Wanted::All) {
            Ok(winner) => winner,
            Err(error) => return Some(ReadAnswer::Unreadable(with_context(error))),
        };
        if winner.commit_info.as_ref().and_then(CommitInfo::txn_id) == Some(self.prepared.txn_id.as_str()) {
            let written = Lines::of(lines)
                .and_then(|lines| Ok(SerializedCommit { non_file_lines: lines.non_file_lines()?, lines }));
            return Some(match written {
                Ok(written) => {
                    self.written = Some(written);
                    ReadAnswer::Own
                }
                Err(error) => ReadAnswer::Unreadable(error),
            });
        }
        let pending = &self.prepared.pending;
        let wanted = pending.vectors_needed(&winner).and_then(|wanted| Ok((wanted, pending.moved_rows(&winner)?)));
        match wanted {
            Ok((descriptors, moved)) => {
                let (moved, rows) = (moved.map(Arc::new), WinnerRows::default());
                self.check_or_wait(WinnerInProgress { winner, descriptors, moved, added: None, rows }, version)
            }
            Err(error) => Some(ReadAnswer::Conflict(with_context(error))),
        }
    }

    fn rebase_on(&mut self, winner: &CommitActions, rows: &WinnerRows, version: u64) -> ReadAnswer<Error> {
        match self.prepared.pending.check_and_rebase(winner, rows, version) {
            Ok(()) => {
                self.winners_checked += 1;
                ReadAnswer::CompatibleWinner
            }
            Err(error) => ReadAnswer::Conflict(error),
        }
    }

    fn done(&mut self) -> Step {
        let committed = match self.written.take() {
            Some(written) => self.prepared.committed(written, self.attempts, self.first.version),
            None => Err(Error::internal("the commit loop was polled after it ended")),
        };
        match committed {
            Ok(committed) => Step::Done(Box::new(committed)),
            Err(error) => Step::Failed(Failed::Unknown(error)),
        }
    }

    fn failed(&mut self) -> Step {
        let version = self.prepared.pending.version();
        let base = version.saturating_sub(1);
        let (attempts, txn_id) = (self.attempts, &self.prepared.txn_id);
        let state = std::mem::replace(&mut self.state, LoopState::new(version));
        let failed = match state.into_failure() {
            None => Failed::Unknown(Error::internal("the failure of a commit was requested that has not failed")),
            Some(Failure::Interrupted) => Failed::NotWritten(interrupted(attempts)),
            Some(Failure::RaceLost) => Failed::NotWritten(race_lost(attempts)),
            Some(Failure::BaseGone) => Failed::NotWritten(base_gone(base).at_version(version)),
            Some(Failure::Refused(error)) => Failed::NotWritten(error),
            // That a commit cannot be understood says more than a lost answer.
            Some(Failure::Unknown { error: Some(error), .. }) if !matches!(error.kind(), Kind::Storage { .. }) => {
                Failed::Unknown(error)
            }
            // Never retryable: running the write again may do it twice.
            Some(Failure::Unknown { reason, .. }) => {
                let source = match reason {
                    UnknownReason::ExistsButUnread => unread(version),
                    UnknownReason::Lost(error) => error,
                };
                Failed::Unknown(unknown_outcome(txn_id, attempts, source))
            }
            Some(Failure::CommittedPastCleanup) => {
                let why =
                    format!("log cleanup has deleted version {base}, which it is based on, and the log goes on later");
                Failed::Unknown(committed_but_unreadable(version, txn_id, &why))
            }
            Some(Failure::Unverified(error)) => Failed::Unknown(unknown_outcome(txn_id, attempts, error)),
        };
        Step::Failed(failed)
    }
}

/// Whether the error says nothing of the files that were to be read.
fn is_of_the_store(error: &Error) -> bool {
    matches!(error.kind(), Kind::Interrupted | Kind::Storage { .. } | Kind::Internal)
}

fn base_gone(base: u64) -> Error {
    let message = format!(
        "log cleanup deleted version {base}, which the commit is based on; nothing was committed. \
         Start again from the newest version"
    );
    Error::storage(false, message)
}

fn unread(version: u64) -> Error {
    let message =
        format!("version {version} exists but could not be read, so it may be this commit or another writer's");
    Error::storage(true, message)
}

fn race_lost(attempts: u32) -> Error {
    let message = format!(
        "other writers committed first; nothing was committed (attempts: {attempts}). Retry, or raise max_attempts"
    );
    Error::storage(true, message)
}

fn interrupted(attempts: u32) -> Error {
    Error::interrupted(format!("interrupted: nothing was committed (attempts: {attempts})"))
}
