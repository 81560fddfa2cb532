//! Behaviour of `deltic-protocol`, one module per boundary, in one binary (linking is the slow part).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod action;
mod alter;
mod check;
mod commit_loop;
mod conflict;
mod constraint;
mod corpora;
mod deletion_vector;
mod evolve;
mod expression;
mod feature;
mod lines;
mod log;
mod log_bounds;
mod predicate;
mod prune;
mod replay;
mod restore;
mod row_merge;
mod row_update;
mod scalar;
mod schema;
mod stats;
mod stats_read;
mod validation;
