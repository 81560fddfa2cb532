//! The states of the commit loop: which version is put next, what has to be read before, and how the loop may fail.
//!
//! It knows versions and answers, not actions: [`CommitLoop`](super::CommitLoop) serialises and checks these. It uses only the
//! core language, so that the model check (`tests/model/model.rs`) can compile this file and explore its states.
//!
//! Invariants: version V + 1 is never put before V was read; a commit that may be in the log is never reported as not
//! made; the loop waits before it reads.
//!
//! PROTOCOL.md: "Commit Protocol".

/// What has to be done next. Each step has one answer, a method of [`LoopState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// Check whether the log was cleaned past the base, before a version is put: [`LoopState::base_checked_before_put`].
    CheckBaseBeforePut,
    /// Put this version if it is absent: [`LoopState::put_answered`], or [`LoopState::failed_before_put`].
    Put(u64),
    /// Wait, and decide whether there is another attempt: [`LoopState::waited`].
    Wait,
    /// Read and check the commits from this version on: [`LoopState::read`] for each.
    ReadFrom(u64),
    /// Make this version durable, which was found to be the loop's own: [`LoopState::made_durable`].
    MakeDurable(u64),
    /// Check again whether the log was cleaned past the base, now that this version is put:
    /// [`LoopState::base_checked_after_put`].
    CheckBaseAfterPut(u64),
    /// The commit is this version.
    Done {
        /// Its version.
        version: u64,
        /// Whether it was found in the log rather than acknowledged.
        is_found: bool,
    },
    /// There is no commit, or it is not known whether there is: [`LoopState::into_failure`].
    Failed,
}

/// The answer to a put.
#[derive(Debug)]
pub enum PutAnswer<E> {
    /// The version was made by this put.
    Created,
    /// The version exists.
    Exists,
    /// It is not known whether it was put, or still will be.
    Unknown(E),
    /// It was not put and will not be.
    Refused(E),
}

/// What the log has at a version.
#[derive(Debug)]
pub enum ReadAnswer<E> {
    /// Nothing.
    Nothing,
    /// The loop's own commit.
    Own,
    /// Another commit, which this one may follow.
    CompatibleWinner,
    /// Another commit, which this one must not follow.
    Conflict(E),
    /// It could not be read, so it may be the loop's own.
    Unreadable(E),
}

/// Why it is not known whether a put made its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UnknownReason<E> {
    /// The version exists and was not read. Something on the way may have sent the put twice.
    ExistsButUnread,
    /// The answer was lost.
    Lost(E),
}

/// Why there is no commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure<E> {
    /// The caller wants no further attempt. Nothing was committed.
    Interrupted,
    /// The retry policy gives up. Nothing was committed.
    RaceLost,
    /// The log was cleaned past the base. Nothing was put.
    BaseGone,
    /// Nothing was committed, for this reason.
    Refused(E),
    /// The commit may be in the log.
    Unknown {
        /// Why it is not known.
        reason: UnknownReason<E>,
        /// The error when the commit was looked for.
        error: Option<E>,
    },
    /// The commit is in the log, which was cleaned past its base.
    CommittedPastCleanup,
    /// The commit is in the log, and it is not known whether the log was cleaned past its base.
    Unverified(E),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase<E> {
    CheckBaseBeforePut,
    Put,
    Wait,
    Read {
        /// The version of the last put.
        tried: u64,
        /// Whether there is no further attempt after reading.
        is_last: bool,
    },
    MakeDurable,
    CheckBaseAfterPut {
        is_found: bool,
    },
    Done {
        is_found: bool,
    },
    Failed(Failure<E>),
}

/// The state of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopState<E> {
    phase: Phase<E>,
    /// The version that is put or read next. All below it were read.
    version: u64,
    /// Why it is not known whether a put of `version` has made it, or still will.
    unknown: Option<UnknownReason<E>>,
    is_cancelled: bool,
}

impl<E> LoopState<E> {
    /// The state of a commit whose first attempt makes `version`.
    pub fn new(version: u64) -> Self {
        Self { phase: Phase::CheckBaseBeforePut, version, unknown: None, is_cancelled: false }
    }

    /// What has to be done next. It stays the same until it is answered.
    pub fn step(&self) -> NextStep {
        let version = self.version;
        match &self.phase {
            Phase::CheckBaseBeforePut => NextStep::CheckBaseBeforePut,
            Phase::Put => NextStep::Put(version),
            Phase::Wait => NextStep::Wait,
            Phase::Read { .. } => NextStep::ReadFrom(version),
            Phase::MakeDurable => NextStep::MakeDurable(version),
            Phase::CheckBaseAfterPut { .. } => NextStep::CheckBaseAfterPut(version),
            Phase::Done { is_found } => NextStep::Done { version, is_found: *is_found },
            Phase::Failed(_) => NextStep::Failed,
        }
    }

    /// The failure, if that is how it ended.
    pub fn into_failure(self) -> Option<Failure<E>> {
        match self.phase {
            Phase::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Lets no further attempt begin. One that is under way is finished.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
        if matches!(self.phase, Phase::Put) {
            self.put_unless_cancelled();
        }
    }

    /// Whether the log was cleaned past the base.
    pub fn base_checked_before_put(&mut self, is_gone: Result<bool, E>) {
        match is_gone {
            Ok(false) => self.put_unless_cancelled(),
            Ok(true) => self.fail(Failure::BaseGone),
            Err(error) => self.fail(Failure::Refused(error)),
        }
    }

    /// The attempt failed before its put: it could not be serialised, or its deletion vectors could not be stored.
    pub fn failed_before_put(&mut self, error: E) {
        self.fail(Failure::Refused(error));
    }

    /// What became of the put.
    pub fn put_answered(&mut self, answer: PutAnswer<E>) {
        match answer {
            PutAnswer::Created => return self.phase = Phase::CheckBaseAfterPut { is_found: false },
            PutAnswer::Exists => self.unknown = self.unknown.take().or(Some(UnknownReason::ExistsButUnread)),
            PutAnswer::Unknown(lost) => self.unknown = Some(UnknownReason::Lost(lost)),
            PutAnswer::Refused(error) => return self.fail(Failure::Refused(error)),
        }
        // The loop waits before it reads: with many writers, an attempt that followed a wait would nearly always come too late,
        // and a writer without pauses would win every time.
        self.phase = Phase::Wait;
    }

    /// The wait is over. Without `another` attempt the commits are still read, for one may be the loop's own.
    pub fn waited(&mut self, another: bool) {
        self.phase = Phase::Read { tried: self.version, is_last: !another };
    }

    /// What the log has at the version that was to be read.
    pub fn read(&mut self, found: ReadAnswer<E>) {
        let Phase::Read { tried, is_last } = self.phase else { return };
        match found {
            ReadAnswer::Nothing => {
                // The version that was tried exists: a put of it that is still under way can no longer make it.
                if self.version > tried {
                    self.unknown = None;
                }
                if is_last { self.fail(Failure::RaceLost) } else { self.put_unless_cancelled() }
            }
            ReadAnswer::Own => self.phase = Phase::MakeDurable,
            ReadAnswer::CompatibleWinner => self.version = self.version.saturating_add(1),
            // The version belongs to another commit.
            ReadAnswer::Conflict(error) => self.phase = Phase::Failed(Failure::Refused(error)),
            ReadAnswer::Unreadable(error) if self.version == tried => self.outcome_unknown(error),
            ReadAnswer::Unreadable(error) => self.phase = Phase::Failed(Failure::Refused(error)),
        }
    }

    /// Whether the version that was found is durable.
    pub fn made_durable(&mut self, made_durable: Result<(), E>) {
        match made_durable {
            Ok(()) => self.phase = Phase::CheckBaseAfterPut { is_found: true },
            Err(error) => self.outcome_unknown(error),
        }
    }

    /// Whether the log was cleaned past the base before the version was put.
    pub fn base_checked_after_put(&mut self, is_gone: Result<bool, E>) {
        let Phase::CheckBaseAfterPut { is_found } = self.phase else { return };
        self.phase = match is_gone {
            Ok(false) => Phase::Done { is_found },
            Ok(true) => Phase::Failed(Failure::CommittedPastCleanup),
            Err(error) => Phase::Failed(Failure::Unverified(error)),
        };
    }

    fn put_unless_cancelled(&mut self) {
        match self.is_cancelled {
            true => self.fail(Failure::Interrupted),
            false => self.phase = Phase::Put,
        }
    }

    /// Ends with `failure`, unless a put may have landed.
    fn fail(&mut self, failure: Failure<E>) {
        self.phase = Phase::Failed(match self.unknown.take() {
            Some(reason) => Failure::Unknown { reason, error: None },
            None => failure,
        });
    }

    fn outcome_unknown(&mut self, error: E) {
        let reason = self.unknown.take().unwrap_or(UnknownReason::ExistsButUnread);
        self.phase = Phase::Failed(Failure::Unknown { reason, error: Some(error) });
    }
}
