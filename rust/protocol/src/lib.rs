//! The Delta protocol: parses the files of a log, and makes every decision about a table.
//!
//! Pure and synchronous: no I/O, no async, no clock, no randomness, no Python. Every decision that deltic makes about a
//! table (which files define a version, which actions are live, what a predicate can skip, whether a commit may
//! follow another) is a function in this crate, over data that the caller has read.
//!
//! Modules depend on each other in one direction only, in the order that `PROTOCOL` in `tests/python/test_tidy.py` lists. That
//! test reads the imports and fails on one that goes against the order.

pub mod action;
pub mod alter;
pub mod check;
pub mod commit;
pub mod constraint;
pub mod deletion_vector;
pub mod error;
pub mod expression;
pub mod feature;
pub mod json;

pub mod log;
pub mod log_bounds;
pub mod predicate;
pub mod property;
pub mod prune;
pub mod replay;
pub mod row_merge;
pub mod row_update;
pub mod scalar;
pub mod schema;
pub mod stats;
pub mod validation;
