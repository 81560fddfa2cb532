//! What a repair finds, step by step, and which of that it mends.
//!
//! Proved by `tests/python/test_repair.py`.

use serde::Serialize;

use crate::check::FindingKind;
use crate::error::{Kind, Result};

/// One thing that is wrong, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairStep {
    /// What it is about: `checkpoint`, `last_checkpoint`, `checksum`, `data_file` or `deletion_vector`.
    pub kind: String,
    /// What is wrong and what is done, for a person.
    pub message: String,
    /// The files, relative to the table or absolute.
    pub paths: Vec<String>,
    /// Whether it is mended, or would be.
    pub mends: bool,
}

/// What a repair did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The version that was looked at.
    pub version: u64,
    /// The version that files left, if one was committed.
    pub committed: Option<u64>,
    /// In the order in which they are taken; empty when all is well.
    pub steps: Vec<RepairStep>,
}

/// Steps that take files out of the table.
pub(super) const FILES: [FindingKind; 2] = [FindingKind::DataFile, FindingKind::DeletionVector];

/// Steps that write a checkpoint.
pub(super) const CHECKPOINTS: [FindingKind; 2] = [FindingKind::Checkpoint, FindingKind::LastCheckpoint];

impl Repaired {
    pub(super) fn push(&mut self, kind: FindingKind, message: String, paths: Vec<String>) {
        self.steps.push(RepairStep::new(kind, message, paths, true));
    }

    /// Whether anything of these kinds is to be mended.
    pub(super) fn mends(&self, kinds: &[FindingKind]) -> bool {
        self.steps.iter().any(|step| step.mends && kinds.iter().any(|kind| kind.name() == step.kind))
    }

    pub(super) fn refuse_kinds(&mut self, kinds: &[FindingKind], verdict: Result<()>) -> Result<()> {
        let why = match verdict {
            Ok(()) => return Ok(()),
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. } | Kind::Invalid) => e,
            Err(e) => return Err(e),
        };
        let is_meant = |step: &&mut RepairStep| step.mends && kinds.iter().any(|kind| kind.name() == step.kind);
        self.steps.iter_mut().filter(is_meant).for_each(|step| step.refuse(why.message()));
        Ok(())
    }
}

impl RepairStep {
    pub(super) fn new(kind: FindingKind, message: String, paths: Vec<String>, mends: bool) -> Self {
        Self { kind: kind.name().to_owned(), message, paths, mends }
    }

    pub(super) fn refuse(&mut self, why: &str) {
        self.mends = false;
        self.message = format!("{}. That cannot be done: {why}", self.message);
    }
}
