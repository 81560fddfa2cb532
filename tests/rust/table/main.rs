//! Tests of `deltic-table`, one module per interface, in one binary since linking is slow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod added_rows;
mod backfill;
mod builder;
mod changes;
mod checkpoint;
mod cleanup;
mod compaction;
mod corpora;
mod corpus;
mod count;
mod distributed_rows;
mod dml;
mod file_index;
mod history;
mod incoming;
mod interrupted;
mod merge;
mod moved_rows;
mod nested;
mod optimize;
mod optimize_intervals;
mod pages;
mod plan;
mod progress;
mod read;
mod restore;
mod sample;
mod snapshot;
mod storage;
mod transaction;
mod write;
