//! Checkpoints: reading and writing them.

mod columns;
pub(crate) mod part;
pub mod read;
pub mod write;
