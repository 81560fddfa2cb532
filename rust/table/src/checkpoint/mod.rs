//! Checkpoints: reading and writing them.

mod columns;
mod part;
pub mod read;
pub mod write;
