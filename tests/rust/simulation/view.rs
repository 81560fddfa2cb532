//! What processes read of the table: the log is listed and replayed by the code of readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltic_protocol::action::batch::KeyBatch;
use deltic_protocol::action::json::CommitActions;
use deltic_protocol::action::{CommitInfo, DeletionVectorDescriptor, Metadata, Protocol};
use deltic_protocol::commit::{ROW_TRACKING_DOMAIN, TableState, watermark};
use deltic_protocol::deletion_vector::{DeletionVectorPath, Source, source};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::feature;
use deltic_protocol::log::segment::{LogFile, Segment};
use deltic_protocol::replay::Replay;

use crate::client::{Client, World};
use crate::referee::Seen;
use crate::store::{Answer, Request};
use crate::table::{Known, State};

/// Looks at the table before a process gives up on it.
const LOOKS: usize = 12;

/// A commit as a reader needs it.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) commit: CommitActions,
    pub(crate) adds: KeyBatch,
}

/// What a look at the table gave.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) version: u64,
    pub(crate) protocol: Protocol,
    pub(crate) metadata: Metadata,
    pub(crate) seen: Seen,
    /// The files of the log.
    pub(crate) files: Known,
}

/// What a process remembers of the log, as a handle on a table does.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) segment: Option<Segment>,
    pub(crate) commits: BTreeMap<u64, (LogFile, Arc<Parsed>)>,
}

impl Memory {
    /// Looks at the table: lists the log, chooses what defines a version, and replays it. `None` if there is no table.
    pub(crate) async fn look(&mut self, client: &Client, target: Option<u64>) -> Result<Option<View>> {
        let Answer::List(listing) = client.ask(Request::List).await else { panic!("not what was asked") };
        let listing = listing?;
        let known = self.segment.as_ref().filter(|_| target.is_none());
        let segment = match known.and_then(|known| known.extended(&listing)) {
            Some(segment) => segment,
            None => match Segment::choose(&listing, target, true) {
                Ok(segment) => segment,
                Err(e) if e.is_not_found() => return Ok(None),
                Err(e) => return Err(e),
            },
        };
        for file in &segment.tail {
            let version = file.name.version();
            if self.commits.get(&version).is_some_and(|(known, _)| known == file) {
                continue;
            }
            let lines = client.fetch(version).await?.ok_or_else(|| Error::not_found("a commit vanished"))?;
            let parsed = client.sound(|world| world.parsed(file, &lines))?;
            self.commits.insert(version, (file.clone(), parsed));
        }
        let tail: Vec<&Parsed> = segment.tail.iter().map(|f| self.commits[&f.name.version()].1.as_ref()).collect();
        let view = client.sound(|world| view(&tail, segment.version, world))?;
        client.world().referee.saw(view.version, &view.seen);
        if target.is_none() {
            self.segment = Some(segment);
        }
        Ok(Some(view))
    }

    /// The same, until it works.
    pub(crate) async fn look_until_it_works(&mut self, client: &Client) -> Option<Option<View>> {
        for _ in 0..LOOKS {
            if let Ok(view) = self.look(client, None).await {
                return Some(view);
            }
        }
        None
    }
}

/// The table that these commits, oldest first, leave.
fn view(commits: &[&Parsed], version: u64, world: &World) -> Result<View> {
    let (mut protocol, mut metadata, mut files) = (None, None, Known::new());
    let (mut replay, mut state, mut highest) = (Replay::new(), State::default(), None);
    for parsed in commits.iter().rev() {
        let commit = &parsed.commit;
        let newest = replay.remember(&parsed.adds);
        for row in newest.set_indices() {
            let add = commit.adds.add(row)?;
            if files.insert(add.path.clone(), add).is_some() {
                return Err(Error::corrupt("a file is there twice, with different deletion vectors"));
            }
        }
        replay.remember(&commit.removes);
        protocol = protocol.or_else(|| commit.protocol.clone());
        metadata = metadata.or_else(|| commit.metadata.clone());
        for txn in &commit.txns {
            state.apps.entry(txn.app_id.clone()).or_insert(txn.version);
        }
        for domain in &commit.domains {
            match domain.domain.as_str() {
                ROW_TRACKING_DOMAIN => highest = highest.or(Some(watermark(&domain.configuration)?)),
                name => drop(state.domains.entry(name.to_owned()).or_insert_with(|| domain.configuration.clone())),
            }
        }
    }
    let missing = || Error::corrupt("the log has neither protocol nor metadata");
    let (protocol, metadata) = (protocol.ok_or_else(missing)?, metadata.ok_or_else(missing)?);
    state.features = feature::supported(&protocol);
    state.properties = metadata.configuration.clone();
    state.files = world.referee.rows_of(files.keys().cloned()).map_err(Error::internal)?;
    for (path, add) in &files {
        let rows = state.files.get_mut(path).into_iter().flatten();
        let gone = add.deletion_vector.as_ref().map(|vector| world.vector(vector)).transpose()?.unwrap_or_default();
        (0..).zip(rows).filter(|(at, _)| gone.contains(*at)).for_each(|(_, row)| *row = None);
    }
    let info = commits.last().and_then(|parsed| parsed.commit.commit_info.as_ref());
    let time = info.and_then(CommitInfo::in_commit_timestamp);
    Ok(View { version, protocol, metadata, seen: Seen { state, watermark: highest, time }, files })
}

impl View {
    /// The table as far as commits depend on it.
    pub(crate) fn base(&self) -> TableState {
        TableState {
            version: self.version,
            protocol: self.protocol.clone(),
            metadata: self.metadata.clone(),
            row_id_watermark: self.seen.watermark,
            clustering: vec![],
            timestamp: self.seen.time,
        }
    }

    /// The files in the store that its rows are in: data files, and those of deletion vectors.
    pub(crate) fn stored(&self) -> Vec<String> {
        let vectors = self.files.values().filter_map(|add| vector_file(add.deletion_vector.as_ref()?));
        self.files.keys().cloned().chain(vectors).collect()
    }
}

/// The file that a vector is in, if it is in one.
pub(crate) fn vector_file(descriptor: &DeletionVectorDescriptor) -> Option<String> {
    match source(descriptor) {
        Ok(Source::File { path: DeletionVectorPath::Relative(path), .. }) => Some(path),
        _ => None,
    }
}
