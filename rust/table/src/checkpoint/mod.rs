//! Checkpoints: reading and writing them.

pub mod read;
pub mod write;
