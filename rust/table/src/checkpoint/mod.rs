//! Checkpoints: reading and writing them.

mod chunk;
mod columns;
mod encode;
pub(crate) mod leaf;
mod order;
pub(crate) mod part;
mod pieces;
mod ranges;
pub mod read;
mod runs;
mod sidecars;
pub mod write;
