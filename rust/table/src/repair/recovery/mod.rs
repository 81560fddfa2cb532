//! Recovery: the versions after the last readable one are moved out of the log.
//!
//! For a log whose newest version cannot be read, because a commit that it needs is missing or torn. The files of all versions
//! after the last readable one are copied to a folder below `_delta_log/_unreadable` and then deleted from the log.
//!
//! Invariants: a commit counts as torn only if its bytes are no lines of JSON objects; what deltic does not understand is not
//! moved. Nothing is deleted before everything is copied. Commits are deleted last, from the newest to the oldest: after a
//! crash the log either still ends at a version that cannot be read, or it ends at the last readable version and nothing of a
//! later one is left. Proved by `tests/python/test_recovery.py` and `tests/python/test_crashes.py`.
//!
//! PROTOCOL.md: "Delta Log Entries", "Log Compaction Files", "Checkpoints".

mod contents;
mod find;
mod move_aside;

pub(super) use find::{LogEnd, find};
