//! Behaviour of `deltic-table`, one module per boundary, in one binary (linking is the slow part).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod changes;
mod corpus;
mod read;
mod storage;
mod write;
