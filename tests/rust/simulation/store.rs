//! The store of the log, and the requests to it.
//!
//! A request waits until the scheduler picks it. Then it is carried out or not, and its answer is picked later and
//! arrives or not. Anything may happen in between: requests overtake each other, answers are outdated when they arrive,
//! and a put may be carried out long after its sender got an unknown outcome, or was killed.

use std::collections::BTreeMap;

use bytes::Bytes;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::log::name::commit_name;
use deltic_protocol::log::segment::LogFile;
use deltic_store::Put;
use futures::channel::oneshot;

use crate::random::Random;

/// What a process asks of the store.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Put {
        version: u64,
        born: usize,
        lines: Bytes,
    },
    Read {
        version: u64,
    },
    List,
    /// No committer may ask for it.
    Delete {
        version: u64,
    },
    /// All files that are not in the log.
    ListFiles,
    /// Whether such a file is there, for who reads it.
    Open {
        path: String,
    },
    /// A vacuum takes such a file.
    Discard {
        path: String,
        goes_by: GoesBy,
    },
}

/// What a vacuum goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoesBy {
    /// When its retention begins.
    pub(crate) cutoff_ms: i64,
    /// The newest version that it has seen.
    pub(crate) seen: u64,
}

/// A file that is not in the log.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) modified_ms: i64,
    /// What is in it, if those are deletion vectors.
    pub(crate) bytes: Vec<u8>,
}

/// When a simulation begins, in milliseconds since the epoch.
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

/// A request on its way, or its answer.
#[derive(Debug)]
struct Flight {
    process: usize,
    request: Request,
    not_before: u64,
    answer: Option<Answer>,
    /// `None` when nobody waits any more.
    caller: Option<oneshot::Sender<Answer>>,
}

/// Something that the store did, which the referee looks at.
#[derive(Debug)]
pub(crate) enum Event {
    /// A put made, or with a broken store replaced, a version.
    Landed {
        version: u64,
        born: usize,
        lines: Bytes,
    },
    /// A visible commit was removed.
    Removed(u64),
    /// A vacuum took a file.
    Discarded {
        path: String,
        file: Stored,
        goes_by: GoesBy,
    },
    /// A process has its answer.
    Heard(usize),
    Nothing,
}

/// How often the store misbehaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Misbehaviour per thousand requests.
    pub(crate) faults: usize,
    /// Listings per thousand that are late.
    pub(crate) late_listings: usize,
    /// Whether a put replaces what is there. No table survives that.
    pub(crate) overwrites: bool,
}

impl Weather {
    pub(crate) const GOOD: Self = Self { faults: 0, late_listings: 0, overwrites: false };
}

/// What went wrong on purpose, by name.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) log: BTreeMap<u64, (Bytes, u64)>,
    /// Data files, and files of deletion vectors.
    pub(crate) files: BTreeMap<String, Stored>,
    flights: Vec<Flight>,
    pub(crate) weather: Weather,
    pub(crate) now: u64,
    pub(crate) counts: Counts,
    /// What happened, if anybody wants to know.
    pub(crate) trace: Option<Vec<String>>,
}

impl Store {
    pub(crate) fn new(weather: Weather, traced: bool) -> Self {
        let trace = traced.then(Vec::new);
        Self {
            log: BTreeMap::new(),
            files: BTreeMap::new(),
            flights: Vec::new(),
            weather,
            now: 0,
            counts: Counts::new(),
            trace,
        }
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
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
        self.say(|| format!("process {process} sends {}", told(&request)));
        let (caller, answer) = oneshot::channel();
        self.flights.push(Flight { process, request, not_before, answer: None, caller: Some(caller) });
        answer
    }

    /// Its clock.
    pub(crate) fn now_ms(&self) -> i64 {
        EPOCH_MS + self.now as i64
    }

    /// Puts a file that is not in the log.
    pub(crate) fn keep(&mut self, path: &str, bytes: Vec<u8>) {
        self.files.insert(path.to_owned(), Stored { modified_ms: self.now_ms(), bytes });
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Lets something happen to a request.
    pub(crate) fn step(&mut self, random: &mut Random) -> Event {
        let soonest = self.flights.iter().map(|f| f.not_before).min().unwrap_or_default();
        self.now = (self.now + random.below(4) as u64).max(soonest);
        let ready: Vec<usize> = (0..self.flights.len()).filter(|at| self.flights[*at].not_before <= self.now).collect();
        let at = random.pick(&ready);
        let mut flight = self.flights.swap_remove(at);
        if flight.caller.as_ref().is_none_or(oneshot::Sender::is_canceled) {
            return self.unheard(flight, random);
        }
        let fault = random.chance(self.weather.faults);
        let Some(answer) = flight.answer.take() else { return self.arrive(flight, fault, random) };
        let answer = match answer {
            Answer::Put(Ok(put)) if fault => {
                self.count("answers of puts that were lost");
                self.say(|| format!("the answer to {} ({put:?}) is lost", told(&flight.request)));
                Answer::Put(Ok(Put::Unknown(lost())))
            }
            other => other,
        };
        self.deliver(flight, answer)
    }

    /// A request whose sender was killed, or got an unknown outcome. It may still be carried out.
    fn unheard(&mut self, flight: Flight, random: &mut Random) -> Event {
        match flight {
            Flight { request: Request::Put { version, born, lines }, answer: None, .. } if random.chance(700) => {
                self.count("puts that arrived when nobody waited");
                self.put(version, born, lines).1
            }
            _ => Event::Nothing,
        }
    }

    /// A request arrives.
    fn arrive(&mut self, mut flight: Flight, fault: bool, random: &mut Random) -> Event {
        let request = flight.request.clone();
        let (answer, event) = match request {
            Request::Put { version, born, lines } if fault => {
                return self.misput(flight, (version, born, lines), random);
            }
            Request::Put { version, born, lines } => {
                let (put, event) = self.put(version, born, lines);
                (Answer::Put(Ok(put)), event)
            }
            Request::Read { version } => (self.read(version, fault, random), Event::Nothing),
            Request::List => (Answer::List(self.list(fault, random)), Event::Nothing),
            Request::Delete { version } => {
                self.say(|| format!("{version} is deleted"));
                let removed = self.log.remove(&version).map_or(Event::Nothing, |_| Event::Removed(version));
                (Answer::Deleted, removed)
            }
            Request::ListFiles if fault => (Answer::Files(Err(unreachable())), Event::Nothing),
            Request::ListFiles => {
                let files = self.files.iter().map(|(path, file)| (path.clone(), file.modified_ms)).collect();
                (Answer::Files(Ok(files)), Event::Nothing)
            }
            Request::Open { .. } if fault => (Answer::Opened(Err(unreachable())), Event::Nothing),
            Request::Open { path } => (Answer::Opened(Ok(self.files.contains_key(&path))), Event::Nothing),
            Request::Discard { path, goes_by } => {
                let gone = self.files.remove(&path);
                let event = gone.map_or(Event::Nothing, |file| Event::Discarded { path, file, goes_by });
                (Answer::Deleted, event)
            }
        };
        flight.answer = Some(answer);
        self.flights.push(flight);
        event
    }

    /// A put that does not go as it should.
    fn misput(&mut self, mut flight: Flight, put: (u64, usize, Bytes), random: &mut Random) -> Event {
        let (version, born, lines) = put;
        let kind = random.below(6);
        let what = ["503 at the door", "409 for two at once", "lost on the way", "slow", "refused", "sent twice"][kind];
        self.say(|| format!("{}: {what}", told(&flight.request)));
        match kind {
            0..3 => {
                self.count(["puts answered with 503", "puts answered with 409", "puts that were lost"][kind]);
                self.deliver(flight, Answer::Put(Ok(Put::Unknown(lost()))))
            }
            3 => {
                self.count("puts that nobody waited for");
                let waits = self.now + random.below(400) as u64;
                let request = flight.request.clone();
                self.flights.push(Flight {
                    process: flight.process,
                    request,
                    not_before: waits,
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
                self.count("puts that something on the way repeated");
                let (_, first) = self.put(version, born, lines.clone());
                let (again, _) = self.put(version, born, lines);
                flight.answer = Some(Answer::Put(Ok(again)));
                self.flights.push(flight);
                first
            }
        }
    }

    fn put(&mut self, version: u64, born: usize, lines: Bytes) -> (Put, Event) {
        if self.log.contains_key(&version) && !self.weather.overwrites {
            self.say(|| format!("{version} stays what it is (412 to transaction {born})"));
            return (Put::Exists, Event::Nothing);
        }
        self.log.insert(version, (lines.clone(), self.now));
        self.say(|| format!("{version} is transaction {born}"));
        (Put::Created, Event::Landed { version, born, lines })
    }

    fn read(&mut self, version: u64, fault: bool, random: &mut Random) -> Answer {
        let found = self.log.get(&version).map(|(lines, _)| lines.clone());
        if !fault {
            return Answer::Read(Ok(found));
        }
        if random.chance(500) && found.is_some() {
            self.count("reads that missed what was there");
            self.say(|| format!("the read of {version} misses it"));
            return Answer::Read(Ok(None));
        }
        self.count("reads that failed");
        self.say(|| format!("the read of {version} fails"));
        Answer::Read(Err(unreachable()))
    }

    /// All of the log; or what was there some time ago; or with a hole, as by pages read while others write.
    fn list(&mut self, fault: bool, random: &mut Random) -> Result<Vec<LogFile>> {
        let name = |(version, (lines, time)): (&u64, &(Bytes, u64))| {
            LogFile::parse(&commit_name(*version), lines.len() as u64, EPOCH_MS + *time as i64)
        };
        let mut found: Vec<LogFile> = self.log.iter().filter_map(name).collect();
        if random.chance(self.weather.late_listings) && !found.is_empty() {
            self.count("listings that were late");
            found.truncate(random.below(found.len() + 1));
            self.say(|| format!("a listing stops before version {}", found.len()));
        } else if fault && found.len() > 2 && random.chance(500) {
            self.count("listings with a hole");
            let hole = found.remove(random.below(found.len() - 1));
            self.say(|| format!("a listing lacks {}", hole.file_name));
        } else if fault {
            self.count("listings that failed");
            return Err(unreachable());
        }
        Ok(found)
    }

    fn deliver(&mut self, flight: Flight, answer: Answer) -> Event {
        let Flight { process, request, caller, .. } = flight;
        self.say(|| format!("process {process} hears of {}: {}", told(&request), heard(&answer)));
        if let Some(caller) = caller {
            // A killed sender gets no answer.
            let _unheard = caller.send(answer);
        }
        Event::Heard(process)
    }
}

fn lost() -> Error {
    Error::storage(true, "the answer was lost")
}

fn unreachable() -> Error {
    Error::storage(true, "no connection")
}

fn told(request: &Request) -> String {
    match request {
        Request::Put { version, born, .. } => format!("put {version} (transaction {born})"),
        Request::Read { version } => format!("read {version}"),
        Request::List => "list".to_owned(),
        Request::Delete { version } => format!("delete {version}"),
        Request::ListFiles => "list files".to_owned(),
        Request::Open { path } => format!("open {path}"),
        Request::Discard { path, .. } => format!("discard {path}"),
    }
}

fn heard(answer: &Answer) -> String {
    match answer {
        Answer::Put(Ok(Put::Created)) => "created".to_owned(),
        Answer::Put(Ok(Put::Exists)) => "exists".to_owned(),
        Answer::Put(Ok(Put::Unknown(_))) => "unknown".to_owned(),
        Answer::Read(Ok(found)) => if found.is_some() { "found" } else { "not there" }.to_owned(),
        Answer::List(Ok(found)) => format!("{} files", found.len()),
        Answer::Deleted => "deleted".to_owned(),
        Answer::Files(Ok(found)) => format!("{} files", found.len()),
        Answer::Opened(Ok(found)) => if *found { "found" } else { "not there" }.to_owned(),
        Answer::Put(Err(e))
        | Answer::Read(Err(e))
        | Answer::List(Err(e))
        | Answer::Files(Err(e))
        | Answer::Opened(Err(e)) => format!("error: {e}"),
    }
}
