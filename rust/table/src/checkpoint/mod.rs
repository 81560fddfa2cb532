//! Checkpoints: reading and writing them.

mod part;
pub mod read;
pub mod write;
