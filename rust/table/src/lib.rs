//! Reads and writes Delta tables: scans, transactions, maintenance.
//!
//! This layer is asynchronous: it reads and writes through [`deltic_store::Storage`], and decodes and encodes Parquet.
//! Decisions of the Delta protocol are made in `deltic-protocol`.
//!
//! Modules depend on each other in one direction only, in the order that `TABLE` in `tests/python/test_tidy.py` lists. That
//! test reads the imports and fails on one that goes against the order.

pub mod backfill;
pub mod changes;
pub mod check;
pub mod checkpoint;
pub mod checkpoint_writer;
pub mod cleanup;
pub mod commit;
pub mod committers;
pub mod compaction;
pub mod convert;
pub mod copies;
pub mod detail;
pub mod dml;
pub mod drop_feature;
pub mod envelope;
pub mod error;
pub mod events;
pub mod file_index;
pub mod footer;
pub mod history;
pub mod log;
pub mod maintenance;
pub mod manifests;
mod once;
pub mod post_commit;
pub mod progress;
pub mod purge;
pub mod repair;
mod rewrite;
pub mod scan;
mod shredded;
pub mod snapshot;
pub mod table;
pub mod transaction;
mod variant_extent;
mod vector_file;
pub mod write;

use deltic_store::{compute_threads, parallel};
