//! Reads of the table, with the production code that lists and replays the log.

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
use crate::referee::TableContents;
use crate::store::{Answer, Request};
use crate::table::{AddsByPath, State};

/// Failed reads of the table after which a process gives up.
const READ_ATTEMPTS: usize = 12;

/// A parsed commit.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) commit: CommitActions,
    pub(crate) adds: KeyBatch,
}

/// The table as a process read it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) version: u64,
    pub(crate) protocol: Protocol,
    pub(crate) metadata: Metadata,
    pub(crate) contents: TableContents,
    /// The live files, as the log has them.
    pub(crate) files: AddsByPath,
}

/// The log files and commits that a process caches, as a table handle does.
#[derive(Debug, Default)]
pub(crate) struct LogCache {
    pub(crate) segment: Option<Segment>,
    pub(crate) commits: BTreeMap<u64, (LogFile, Arc<Parsed>)>,
}

impl LogCache {
    /// Reads the table: lists the log, chooses the segment, and replays it. `None` if there is no table.
    pub(crate) async fn read(&mut self, client: &Client, target: Option<u64>) -> Result<Option<View>> {
        let Answer::List(listing) = client.send(Request::List).await else { panic!("unexpected answer") };
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
            let lines = client.fetch(version).await?.ok_or_else(|| Error::not_found("a listed commit is not found"))?;
            let parsed = client.must_succeed(|world| world.parsed(file, &lines))?;
            self.commits.insert(version, (file.clone(), parsed));
        }
        let tail: Vec<&Parsed> = segment.tail.iter().map(|f| self.commits[&f.name.version()].1.as_ref()).collect();
        let view = client.must_succeed(|world| view(&tail, segment.version, world))?;
        client.world().referee.check_read(view.version, &view.contents);
        if target.is_none() {
            self.segment = Some(segment);
        }
        Ok(Some(view))
    }

    pub(crate) async fn read_with_retries(&mut self, client: &Client) -> Option<Option<View>> {
        for _ in 0..READ_ATTEMPTS {
            if let Ok(view) = self.read(client, None).await {
                return Some(view);
            }
        }
        None
    }
}

/// Replays commits, oldest first.
fn view(commits: &[&Parsed], version: u64, world: &World) -> Result<View> {
    let (mut protocol, mut metadata, mut files) = (None, None, AddsByPath::new());
    let (mut replay, mut state, mut highest) = (Replay::new(), State::default(), None);
    for parsed in commits.iter().rev() {
        let commit = &parsed.commit;
        let newest = replay.insert(&parsed.adds);
        for row in newest.set_indices() {
            let add = commit.adds.add(row)?;
            if files.insert(add.path.clone(), add).is_some() {
                return Err(Error::corrupt("a file is in the table twice, with different deletion vectors"));
            }
        }
        replay.insert(&commit.removes);
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
    Ok(View { version, protocol, metadata, contents: TableContents { state, watermark: highest, time }, files })
}

impl View {
    /// The table state on which a commit is prepared.
    pub(crate) fn base(&self) -> TableState {
        TableState {
            version: self.version,
            protocol: self.protocol.clone(),
            metadata: self.metadata.clone(),
            row_id_watermark: self.contents.watermark,
            clustering: vec![],
            timestamp: self.contents.time,
        }
    }

    /// The files of the version in the store: data files and deletion vector files.
    pub(crate) fn stored(&self) -> Vec<String> {
        let vectors = self.files.values().filter_map(|add| vector_file(add.deletion_vector.as_ref()?));
        self.files.keys().cloned().chain(vectors).collect()
    }
}

/// The file of a deletion vector, unless it is inline.
pub(crate) fn vector_file(descriptor: &DeletionVectorDescriptor) -> Option<String> {
    match source(descriptor) {
        Ok(Source::File { path: DeletionVectorPath::Relative(path), .. }) => Some(path),
        _ => None,
    }
}
