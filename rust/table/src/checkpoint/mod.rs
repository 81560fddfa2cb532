//! Checkpoints: reading and writing them.

mod columns;
mod encode;
pub(crate) mod leaf;
mod order;
pub(crate) mod part;
pub mod read;
mod runs;
mod sidecars;
pub mod write;
