//! A table is made equal to a version: the same table to an older one (RESTORE), or a table at another location (CLONE).
//!
//! Both make one commit that names existing files. Files are compared as logical files (`files`): a path with the id of its
//! deletion vector. Both commit by a [`Transaction`](crate::transaction::builder::Transaction).
//!
//! Invariant: a file that the new commit adds was seen to exist; one that is missing is left out and reported. For the
//! newest version of a table, and for files that are live in the table itself, this is taken for granted.
//!
//! Proved by `tests/rust/table/restore.rs`, `tests/python/test_restore.py`, `tests/python/test_clone.py` and
//! `tests/interop/test_restore.py`.
//!
//! PROTOCOL.md: "Add File and Remove File", "Deletion Vectors".

mod clone;
mod copy;
mod files;
mod restore;

pub use clone::{CloneMode, CloneOptions, ClonePlan, clone, plan_clone};
pub use restore::{RestoreOptions, RestoreTo, Restored, restore};
