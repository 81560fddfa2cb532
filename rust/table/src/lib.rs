//! How the bytes of a Delta table move.
//!
//! Asynchronous: reads and writes through [`storage::Storage`], decodes and encodes Parquet, and leaves every decision
//! to `deltic-protocol`.
//!
//! Modules depend on each other in one direction only: `error`, `events`, `footer`, `large`, `once`, `parallel`, `storage`, then
//! `log_reader` and `checkpoint::read`, then `tail`, `file_index`, then `snapshot`, then `history`, `check`, `scan`, `write` and
//! `checkpoint::{write, sidecars}`, then `changes`, `cleanup`, `compaction` and `commit`, then `transaction`, `trail`,
//! `after_commit`, `job`, `draft`, `backfill`. A test reads the imports.

pub mod after_commit;
pub mod backfill;
pub mod changes;
pub mod check;
pub mod checkpoint;
pub mod checkpoint_writer;
pub mod cleanup;
pub mod commit;
pub mod compaction;
pub mod draft;
pub mod error;
pub mod events;
pub mod file_index;
pub mod footer;
pub mod history;
pub mod job;
pub mod log_reader;
mod once;
mod parallel;
pub mod scan;
pub mod snapshot;
pub mod storage;
pub mod tail;
pub mod trail;
pub mod transaction;
pub mod write;
