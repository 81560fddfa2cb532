//! Checks checkpoints: the hint to the newest one, checkpoints that lack parts, and the checkpoint against the commits
//! before it.
//!
//! PROTOCOL.md: "Last Checkpoint File Schema", "Checkpoints".

use std::collections::BTreeSet;

use deltic_protocol::action::Sidecar;
use deltic_protocol::check::{VersionRecord, file_differences, state_differences};
use deltic_protocol::log::hint::LastCheckpoint;
use deltic_protocol::log::name::{LAST_CHECKPOINT, LogName};
use deltic_protocol::log::segment::{Checkpoint, LogFile, Segment, checkpoints, incomplete_checkpoints};
use futures::stream::TryStreamExt;

use super::{Checker, FindingKind, files_of, state_of};
use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::error::{Error, Kind, Result};
use crate::log::log_file_path;
use crate::snapshot::Snapshot;

impl Checker<'_> {
    /// Compares `_last_checkpoint` with the checkpoints that are there.
    pub(super) async fn hint(&mut self) -> Result<()> {
        let bytes = match self.log.read(LAST_CHECKPOINT).await {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => return Ok(()),
            Err(e) => return Err(e),
        };
        let hint = match LastCheckpoint::parse(&bytes) {
            Ok(hint) => hint,
            Err(e) => {
                self.about_hint(format!("the hint is ignored: {e}"));
                return Ok(());
            }
        };
        let checkpoints = checkpoints(&self.listing);
        if let Some((newest, _)) = checkpoints.last_key_value().filter(|(newest, _)| **newest > hint.version) {
            let version = hint.version;
            self.about_hint(format!(
                "the hint is stale: it names version {version}, the newest checkpoint is {newest}"
            ));
        }
        if let Some(parts) = hint.parts {
            let of_set = |f: &&LogFile| matches!(f.name, LogName::CheckpointMultiPart { version, parts: p, .. } if (version, p) == (hint.version, parts));
            let found = self.listing.iter().filter(of_set).count();
            if usize::try_from(parts) != Ok(found) {
                let version = hint.version;
                self.about_hint(format!("{found} of the {parts} parts of the checkpoint of version {version} exist"));
            }
        }
        match checkpoints.get(&hint.version) {
            Some(checkpoint) => self.hinted(&hint, checkpoint).await,
            None => {
                let version = hint.version;
                self.about_hint(format!("it names the checkpoint of version {version}, which is not in the log"));
                Ok(())
            }
        }
    }

    /// Compares the fields of the hint with the checkpoint.
    async fn hinted(&mut self, hint: &LastCheckpoint, checkpoint: &Checkpoint) -> Result<()> {
        if let Some(named) = &hint.v2_checkpoint {
            match self.listing.iter().find(|file| file.file_name == named.path).map(|file| file.size) {
                None => self.about_hint(format!("the checkpoint {} that it names is not in the log", named.path)),
                Some(size) if named.size_in_bytes >= 0 && u64::try_from(named.size_in_bytes) != Ok(size) => {
                    let in_hint = named.size_in_bytes;
                    self.about_hint(format!("`v2Checkpoint.sizeInBytes` is {in_hint}, the file has {size} bytes"));
                }
                Some(_) => {}
            }
        }
        let counted = match OpenCheckpoint::open(self.log, checkpoint).await {
            Ok(open) => {
                self.hinted_sidecars(hint, checkpoint, &open);
                count(checkpoint, &open).await
            }
            Err(e) => Err(e),
        };
        let counts = match counted {
            Ok(counts) => counts,
            Err(e) if matches!(e.kind(), Kind::Storage { .. }) => return Err(e),
            Err(e) => {
                self.about_hint(format!("the checkpoint of version {} cannot be read: {e}", hint.version));
                return Ok(());
            }
        };
        let in_hint = [
            ("size", Some(hint.size).filter(|size| *size >= 0), counts.actions, "actions"),
            ("sizeInBytes", hint.size_in_bytes, counts.bytes, "bytes"),
            ("numOfAddFiles", hint.num_of_add_files, counts.adds, "add actions"),
        ];
        for (member, in_hint, actual, unit) in in_hint {
            if in_hint.is_some_and(|in_hint| u64::try_from(in_hint) != Ok(actual)) {
                let in_hint = in_hint.unwrap_or_default();
                self.about_hint(format!("`{member}` is {in_hint}, the checkpoint has {actual} {unit}"));
            }
        }
        Ok(())
    }

    /// Compares the sidecars that the hint lists with those of the checkpoint that it names.
    fn hinted_sidecars(&mut self, hint: &LastCheckpoint, checkpoint: &Checkpoint, open: &OpenCheckpoint) {
        let Some(named) = &hint.v2_checkpoint else { return };
        let Some(in_hint) = &named.sidecar_files else { return };
        let pairs = |sidecars: &[Sidecar]| -> BTreeSet<(String, i64)> {
            sidecars.iter().map(|sidecar| (sidecar.path.clone(), sidecar.size_in_bytes)).collect()
        };
        if checkpoint.files.iter().any(|file| file.file_name == named.path)
            && pairs(in_hint) != pairs(open.sidecar_actions())
        {
            self.about_hint(format!("`v2Checkpoint.sidecarFiles` are not those that {} names", named.path));
        }
    }

    fn about_hint(&mut self, message: String) {
        self.findings.add(FindingKind::LastCheckpoint, message, Some(log_file_path(LAST_CHECKPOINT)));
    }

    /// Finds multi-part checkpoints that lack parts.
    pub(super) fn incomplete(&mut self) {
        for (version, parts, found) in incomplete_checkpoints(&self.listing) {
            let message =
                format!("{found} of the {parts} parts of a checkpoint of version {version} exist; readers skip it");
            self.findings.add(FindingKind::Checkpoint, message, None);
        }
    }

    /// Compares the checkpoint that the version is read from with the commits before it, if all of them are still there.
    pub(super) async fn checkpoint(&mut self) -> Result<()> {
        let Some(checkpoint) = self.snapshot.segment().checkpoint.clone() else { return Ok(()) };
        let Some(mut commits) = self.without(&checkpoint) else { return Ok(()) };
        commits.checksum = None;
        let compared = async {
            let commits = Snapshot::load_segment(self.log, commits).await?;
            let alone = Segment {
                version: checkpoint.version,
                checkpoint: Some(checkpoint.clone()),
                tail: Vec::new(),
                checksum: None,
                commits: Vec::new(),
            };
            let alone = Snapshot::load_segment(self.log, alone).await?;
            let states = (state_of(&alone).await?, state_of(&commits).await?);
            let files = (files_of(&alone).await?, files_of(&commits).await?);
            Ok::<_, Error>((states, files))
        };
        let path = checkpoint.files.first().map(|file| log_file_path(&file.file_name));
        let (states, files) = match compared.await {
            Ok(records) => records,
            Err(e) if matches!(e.kind(), Kind::Storage { .. } | Kind::Internal) => return Err(e),
            Err(e) => {
                let message = format!("the checkpoint cannot be compared with the commits before it: {e}");
                self.findings.add(FindingKind::Checkpoint, message, path);
                return Ok(());
            }
        };
        let (checkpoint_name, commits_name) = ("the checkpoint", "the commits");
        let states = (
            VersionRecord { name: checkpoint_name, content: &states.0 },
            VersionRecord { name: commits_name, content: &states.1 },
        );
        for sentence in state_differences(states.0, states.1) {
            self.findings.add(FindingKind::Checkpoint, sentence, path.clone());
        }
        let files = (
            VersionRecord { name: checkpoint_name, content: &files.0 },
            VersionRecord { name: commits_name, content: &files.1 },
        );
        for (path, sentence) in file_differences(files.0, files.1) {
            self.findings.add(FindingKind::Checkpoint, sentence, Some(path));
        }
        Ok(())
    }

    /// The segment of the checkpoint's version from commits alone, or, if the first ones are gone, from an older checkpoint.
    fn without(&self, checkpoint: &Checkpoint) -> Option<Segment> {
        let choose = |keep: &dyn Fn(&LogFile) -> bool| {
            let listing: Vec<LogFile> = self.listing.iter().filter(|file| keep(file)).cloned().collect();
            Segment::choose(&listing, Some(checkpoint.version), false).ok()
        };
        choose(&|file| !file.name.is_checkpoint())
            .or_else(|| choose(&|file| !file.name.is_checkpoint() || file.name.version() < checkpoint.version))
    }
}

struct Counts {
    actions: u64,
    adds: u64,
    bytes: u64,
}

async fn count(checkpoint: &Checkpoint, open: &OpenCheckpoint) -> Result<Counts> {
    let columns = AddColumns { members: vec!["path"], ..AddColumns::default() };
    let adds = open.adds(&columns).try_fold(0, |sum, batch| async move { Ok(sum + batch.len() as u64) }).await?;
    let removes = open.removes().try_fold(0, |sum, (keys, _)| async move { Ok(sum + keys.len() as u64) }).await?;
    let state = open.non_file_actions();
    let others = state.txns.len() + state.domains.len() + open.sidecars().len();
    let single = [state.protocol.is_some(), state.metadata.is_some(), state.checkpoint_metadata.is_some()];
    let single = single.iter().filter(|is_present| **is_present).count();
    let bytes = checkpoint.files.iter().map(|f| f.size).chain(open.sidecars().iter().map(|(_, size)| *size));
    Ok(Counts { actions: (others + single) as u64 + adds + removes, adds, bytes: bytes.fold(0, u64::saturating_add) })
}
