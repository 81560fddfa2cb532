//! Tests of `deltic-protocol`, one module per interface, in one binary since linking is slow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use proptest::test_runner::Config;

mod action;
mod alter;
mod check;
mod collation;
mod commit_loop;
mod conflict;
mod constraint;
mod corpora;
mod deletion_vector;
mod docs_tables;
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

/// The number of random cases. With `DELTIC_PROPERTY_PART=n`, as in `make check`, one in `n` of `count`.
fn cases(count: u32) -> Config {
    let part =
        std::env::var("DELTIC_PROPERTY_PART").map_or(1, |part| part.parse().expect("DELTIC_PROPERTY_PART is a number"));
    Config { cases: count.div_ceil(part), ..Config::default() }
}
