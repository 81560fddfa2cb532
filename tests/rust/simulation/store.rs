//! The simulated store, and the requests to it.
//!
//! A request waits until the scheduler picks it. Then the store carries it out or loses it. The answer is picked later, and
//! is delivered or lost. Requests overtake each other, answers are outdated when they arrive, and a put may be carried out
//! long after its sender got an unknown outcome, or was killed.

use std::collections::BTreeMap;

use bytes::Bytes;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::log::name::commit_name;
use deltic_protocol::log::segment::LogFile;
use deltic_store::Put;
use futures::channel::oneshot;

use crate::random::Random;

/// A request of a process to the store.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Put {
        version: u64,
        transaction: usize,
        lines: Bytes,
    },
    Read {
        version: u64,
    },
    List,
    /// Only a faulty committer sends it.
    DeleteCommit {
        version: u64,
    },
    /// Lists all files outside the log.
    ListFiles,
    /// Asks whether a file outside the log exists.
    Open {
        path: String,
    },
    /// A vacuum deletes a file outside the log.
    DeleteFile {
        path: String,
        basis: VacuumBasis,
    },
}

/// The reads that a deletion of a vacuum is based on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VacuumBasis {
    /// When the retention begins.
    pub(crate) cutoff_ms: i64,
    /// The newest version that the vacuum has read.
    pub(crate) newest_read: u64,
}

/// A file outside the log.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) modified_ms: i64,
    /// Empty for data files: the referee has their rows.
    pub(crate) bytes: Vec<u8>,
}

/// Start of the virtual clock, in milliseconds since the Unix epoch.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;

#[derive(Debug)]
pub(crate) enum Answer {
    Put(Result<Put>),
    Read(Result<Option<Bytes>>),
    List(Result<Vec<LogFile>>),
    Deleted,
    Files(Result<Vec<(String, i64)>>),
    Opened(Result<bool>),
}

/// A pending request or answer.
#[derive(Debug)]
struct InFlight {
    process: usize,
    request: Request,
    not_before: u64,
    answer: Option<Answer>,
    /// `None` if no caller waits for the answer.
    caller: Option<oneshot::Sender<Answer>>,
}

/// An effect of a step of the store, for the referee and the scheduler.
#[derive(Debug)]
pub(crate) enum Event {
    /// A put created a version, or, in a broken store, replaced it.
    Landed {
        version: u64,
        transaction: usize,
        lines: Bytes,
    },
    /// A commit was deleted.
    CommitDeleted(u64),
    /// A vacuum deleted a file.
    FileDeleted {
        path: String,
        file: Stored,
        basis: VacuumBasis,
    },
    /// A process got its answer.
    Answered(usize),
    Nothing,
}

/// How often the store misbehaves, per thousand requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultRates {
    pub(crate) requests: usize,
    /// Listings that lack the newest commits.
    pub(crate) stale_listings: usize,
    /// Whether puts replace existing versions. Only for a test of the referee.
    pub(crate) overwrites: bool,
}

impl FaultRates {
    pub(crate) const NONE: Self = Self { requests: 0, stale_listings: 0, overwrites: false };
}

/// Counts of events, by name.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

#[derive(Debug)]
pub(crate) struct Store {
    /// Lines and time of each commit.
    pub(crate) log: BTreeMap<u64, (Bytes, u64)>,
    /// Data files and deletion vector files.
    pub(crate) files: BTreeMap<String, Stored>,
    in_flight: Vec<InFlight>,
    pub(crate) fault_rates: FaultRates,
    pub(crate) now: u64,
    pub(crate) counts: Counts,
    /// Descriptions of the steps, if wanted.
    pub(crate) trace: Option<Vec<String>>,
}

impl Store {
    pub(crate) fn new(fault_rates: FaultRates, traced: bool) -> Self {
        let trace = traced.then(Vec::new);
        Self {
            log: BTreeMap::new(),
            files: BTreeMap::new(),
            in_flight: Vec::new(),
            fault_rates,
            now: 0,
            counts: Counts::new(),
            trace,
        }
    }

    pub(crate) fn record(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>6} ms  {}", self.now, what()));
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        if what.is_empty() {
            return;
        }
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn send(&mut self, process: usize, request: Request, not_before: u64) -> oneshot::Receiver<Answer> {
        self.record(|| format!("process {process} sends {}", describe_request(&request)));
        let (caller, answer) = oneshot::channel();
        self.in_flight.push(InFlight { process, request, not_before, answer: None, caller: Some(caller) });
        answer
    }

    /// Virtual time, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        EPOCH_MS + self.now as i64
    }

    /// Puts a file outside the log.
    pub(crate) fn put_file(&mut self, path: &str, bytes: Vec<u8>) {
        self.files.insert(path.to_owned(), Stored { modified_ms: self.now_ms(), bytes });
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Picks a pending request or answer, and carries it out, delivers or loses it.
    pub(crate) fn step(&mut self, random: &mut Random) -> Event {
        let soonest = self.in_flight.iter().map(|f| f.not_before).min().unwrap_or_default();
        self.now = (self.now + random.below(4) as u64).max(soonest);
        let ready: Vec<usize> =
            (0..self.in_flight.len()).filter(|at| self.in_flight[*at].not_before <= self.now).collect();
        let at = random.pick(&ready);
        let mut flight = self.in_flight.swap_remove(at);
        if flight.caller.as_ref().is_none_or(oneshot::Sender::is_canceled) {
            return self.without_caller(flight, random);
        }
        let fault = random.chance(self.fault_rates.requests);
        let Some(answer) = flight.answer.take() else { return self.carry_out(flight, fault, random) };
        let answer = match answer {
            Answer::Put(Ok(put)) if fault => {
                self.count("puts whose answer was lost");
                self.record(|| format!("the answer to {} ({put:?}) is lost", describe_request(&flight.request)));
                Answer::Put(Ok(Put::Unknown(lost())))
            }
            other => other,
        };
        self.deliver(flight, answer)
    }

    /// A request whose sender was killed or got an unknown outcome. A put may still be carried out.
    fn without_caller(&mut self, flight: InFlight, random: &mut Random) -> Event {
        match flight {
            InFlight { request: Request::Put { version, transaction, lines }, answer: None, .. }
                if random.chance(700) =>
            {
                self.count("puts carried out after their sender stopped waiting");
                self.put(version, transaction, lines).1
            }
            _ => Event::Nothing,
        }
    }

    /// Carries out a request.
    fn carry_out(&mut self, mut flight: InFlight, fault: bool, random: &mut Random) -> Event {
        let request = flight.request.clone();
        let (answer, event) = match request {
            Request::Put { version, transaction, lines } if fault => {
                return self.faulty_put(flight, (version, transaction, lines), random);
            }
            Request::Put { version, transaction, lines } => {
                let (put, event) = self.put(version, transaction, lines);
                (Answer::Put(Ok(put)), event)
            }
            Request::Read { version } => (self.read(version, fault, random), Event::Nothing),
            Request::List => (Answer::List(self.list(fault, random)), Event::Nothing),
            Request::DeleteCommit { version } => {
                self.record(|| format!("version {version} is deleted"));
                let removed = self.log.remove(&version).map_or(Event::Nothing, |_| Event::CommitDeleted(version));
                (Answer::Deleted, removed)
            }
            Request::ListFiles if fault => (Answer::Files(Err(unreachable())), Event::Nothing),
            Request::ListFiles => {
                let files = self.files.iter().map(|(path, file)| (path.clone(), file.modified_ms)).collect();
                (Answer::Files(Ok(files)), Event::Nothing)
            }
            Request::Open { .. } if fault => (Answer::Opened(Err(unreachable())), Event::Nothing),
            Request::Open { path } => (Answer::Opened(Ok(self.files.contains_key(&path))), Event::Nothing),
            Request::DeleteFile { path, basis } => {
                let gone = self.files.remove(&path);
                let event = gone.map_or(Event::Nothing, |file| Event::FileDeleted { path, file, basis });
                (Answer::Deleted, event)
            }
        };
        flight.answer = Some(answer);
        self.in_flight.push(flight);
        event
    }

    /// A put that goes wrong.
    fn faulty_put(&mut self, mut flight: InFlight, put: (u64, usize, Bytes), random: &mut Random) -> Event {
        let (version, transaction, lines) = put;
        let kind = random.below(6);
        let what = ["503", "409", "lost", "delayed", "refused", "sent twice"][kind];
        self.record(|| format!("{}: {what}", describe_request(&flight.request)));
        match kind {
            0..3 => {
                self.count(["puts answered with 503", "puts answered with 409", "puts that were lost"][kind]);
                self.deliver(flight, Answer::Put(Ok(Put::Unknown(lost()))))
            }
            3 => {
                self.count("puts that were delayed");
                let not_before = self.now + random.below(400) as u64;
                let request = flight.request.clone();
                self.in_flight.push(InFlight {
                    process: flight.process,
                    request,
                    not_before,
                    answer: None,
                    caller: None,
                });
                self.deliver(flight, Answer::Put(Ok(Put::Unknown(lost()))))
            }
            4 => {
                self.count("puts that were refused");
                self.deliver(flight, Answer::Put(Err(Error::storage(true, "refused"))))
            }
            _ => {
                self.count("puts that were sent twice");
                let (_, first) = self.put(version, transaction, lines.clone());
                let (again, _) = self.put(version, transaction, lines);
                flight.answer = Some(Answer::Put(Ok(again)));
                self.in_flight.push(flight);
                first
            }
        }
    }

    fn put(&mut self, version: u64, transaction: usize, lines: Bytes) -> (Put, Event) {
        if self.log.contains_key(&version) && !self.fault_rates.overwrites {
            self.record(|| format!("version {version} exists (412 to transaction {transaction})"));
            return (Put::Exists, Event::Nothing);
        }
        self.log.insert(version, (lines.clone(), self.now));
        self.record(|| format!("version {version} is transaction {transaction}"));
        (Put::Created, Event::Landed { version, transaction, lines })
    }

    fn read(&mut self, version: u64, fault: bool, random: &mut Random) -> Answer {
        let found = self.log.get(&version).map(|(lines, _)| lines.clone());
        if !fault {
            return Answer::Read(Ok(found));
        }
        if random.chance(500) && found.is_some() {
            self.count("reads that missed an existing commit");
            self.record(|| format!("the read of {version} finds nothing"));
            return Answer::Read(Ok(None));
        }
        self.count("reads that failed");
        self.record(|| format!("the read of {version} fails"));
        Answer::Read(Err(unreachable()))
    }

    /// Lists the log: completely, without its newest commits, or with a gap, as if pages were read during writes.
    fn list(&mut self, fault: bool, random: &mut Random) -> Result<Vec<LogFile>> {
        let name = |(version, (lines, time)): (&u64, &(Bytes, u64))| {
            LogFile::parse(&commit_name(*version), lines.len() as u64, EPOCH_MS + *time as i64)
        };
        let mut found: Vec<LogFile> = self.log.iter().filter_map(name).collect();
        if random.chance(self.fault_rates.stale_listings) && !found.is_empty() {
            self.count("stale listings");
            found.truncate(random.below(found.len() + 1));
            self.record(|| format!("a listing stops before version {}", found.len()));
        } else if fault && found.len() > 2 && random.chance(500) {
            self.count("listings with a gap");
            let missing = found.remove(random.below(found.len() - 1));
            self.record(|| format!("a listing lacks {}", missing.file_name));
        } else if fault {
            self.count("listings that failed");
            return Err(unreachable());
        }
        Ok(found)
    }

    fn deliver(&mut self, flight: InFlight, answer: Answer) -> Event {
        let InFlight { process, request, caller, .. } = flight;
        self.record(|| {
            format!("process {process} gets the answer to {}: {}", describe_request(&request), describe_answer(&answer))
        });
        if let Some(caller) = caller {
            // A killed sender gets no answer.
            let _undelivered = caller.send(answer);
        }
        Event::Answered(process)
    }
}

fn lost() -> Error {
    Error::storage(true, "the answer was lost")
}

fn unreachable() -> Error {
    Error::storage(true, "no connection")
}

fn describe_request(request: &Request) -> String {
    match request {
        Request::Put { version, transaction, .. } => format!("put {version} (transaction {transaction})"),
        Request::Read { version } => format!("read {version}"),
        Request::List => "list".to_owned(),
        Request::DeleteCommit { version } => format!("delete version {version}"),
        Request::ListFiles => "list files".to_owned(),
        Request::Open { path } => format!("open {path}"),
        Request::DeleteFile { path, .. } => format!("delete {path}"),
    }
}

fn describe_answer(answer: &Answer) -> String {
    match answer {
        Answer::Put(Ok(Put::Created)) => "created".to_owned(),
        Answer::Put(Ok(Put::Exists)) => "exists".to_owned(),
        Answer::Put(Ok(Put::Unknown(_))) => "unknown".to_owned(),
        Answer::Read(Ok(found)) => if found.is_some() { "found" } else { "not found" }.to_owned(),
        Answer::List(Ok(found)) => format!("{} files", found.len()),
        Answer::Deleted => "deleted".to_owned(),
        Answer::Files(Ok(found)) => format!("{} files", found.len()),
        Answer::Opened(Ok(found)) => if *found { "found" } else { "not found" }.to_owned(),
        Answer::Put(Err(e))
        | Answer::Read(Err(e))
        | Answer::List(Err(e))
        | Answer::Files(Err(e))
        | Answer::Opened(Err(e)) => format!("error: {e}"),
    }
}
