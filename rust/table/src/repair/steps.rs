//! The steps of a repair: each is one finding, and what is done about it.
//!
//! Proved by `tests/python/test_repair.py`.

use serde::{Serialize, Serializer};

use crate::check::FindingKind;
use crate::error::{Kind, Result};

/// One finding, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairStep {
    /// What is wrong: a checkpoint, `_last_checkpoint`, a checksum, a data file, a deletion vector or the end of the log.
    #[serde(serialize_with = "serialize_name")]
    pub kind: FindingKind,
    /// What is wrong and what is done about it, as sentences.
    pub message: String,
    /// Paths of the files, relative to the table or absolute.
    pub paths: Vec<String>,
    /// Whether the repair fixes it, or would in a dry run.
    pub mends: bool,
}

/// What a repair did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The version that was examined; if the log was recovered, the last readable one.
    pub version: u64,
    /// The version that removes files, if one was committed.
    pub committed: Option<u64>,
    /// The folder to which files of the log were moved, relative to the table, if any were.
    pub moved_to: Option<String>,
    /// The steps in order. Empty if nothing is wrong.
    pub steps: Vec<RepairStep>,
}

/// Kinds of steps that remove files from the table.
pub(super) const FILES: [FindingKind; 2] = [FindingKind::DataFile, FindingKind::DeletionVector];

/// Kinds of steps that write a checkpoint.
pub(super) const CHECKPOINTS: [FindingKind; 2] = [FindingKind::Checkpoint, FindingKind::LastCheckpoint];

fn serialize_name<S: Serializer>(kind: &FindingKind, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

impl Repaired {
    pub(super) fn push(&mut self, kind: FindingKind, message: String, paths: Vec<String>) {
        self.steps.push(RepairStep::new(kind, message, paths, true));
    }

    /// Whether a step of these kinds is to be carried out.
    pub(super) fn mends(&self, kinds: &[FindingKind]) -> bool {
        self.steps.iter().any(|step| step.mends && kinds.contains(&step.kind))
    }

    /// Refuses the steps of these kinds if `verdict` is an error.
    pub(super) fn refuse_kinds(&mut self, kinds: &[FindingKind], verdict: Result<()>) -> Result<()> {
        let why = match verdict {
            Ok(()) => return Ok(()),
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. } | Kind::Invalid) => e,
            Err(e) => return Err(e),
        };
        let is_refused = |step: &&mut RepairStep| step.mends && kinds.contains(&step.kind);
        self.steps.iter_mut().filter(is_refused).for_each(|step| step.refuse(why.message()));
        Ok(())
    }
}

impl RepairStep {
    pub(super) fn new(kind: FindingKind, message: String, paths: Vec<String>, mends: bool) -> Self {
        Self { kind, message, paths, mends }
    }

    pub(super) fn refuse(&mut self, why: &str) {
        self.mends = false;
        self.message = format!("{}. That cannot be done: {why}", self.message);
    }
}
