//! Checkpoints: reading and writing them.

mod assembly;
mod chunk;
mod columns;
mod encode;
mod gather;
pub(crate) mod leaf;
pub(crate) mod memory;
mod numbers;
mod order;
pub(crate) mod part;
mod pieces;
mod ranges;
pub mod read;
mod rows;
mod runs;
mod sidecars;
pub mod write;
