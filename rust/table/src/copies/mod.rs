//! A table becomes what a version was: the same table again (RESTORE), or another one elsewhere (CLONE).
//!
//! Both make one commit of files that exist. Files are compared as logical files (`files`): a path with the id of its
//! deletion vector. Nothing here commits but by a [`Transaction`](crate::transaction::builder::Transaction).
//!
//! Invariant: what the log names after it was seen to exist, or is left out and said to be missing. Of the newest version of
//! a table, and of files that are live in the table itself, that is taken for granted.
//!
//! Proved by `tests/rust/table/restore.rs`, `tests/python/test_restore.py`, `tests/python/test_clone.py` and
//! `tests/interop/test_restore.py`.
//!
//! PROTOCOL.md: "Add File and Remove File", "Deletion Vectors".

mod clone;
mod copy;
mod files;
mod restore;

pub use clone::{CloneMode, CloneOptions, clone};
pub use restore::{RestoreOptions, RestoreTo, Restored, restore};
