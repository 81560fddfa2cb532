//! Writing checkpoints.

mod assembly;
mod columns;
mod encode;
mod gather;
mod numbers;
mod order;
mod ranges;
mod runs;
mod sidecars;
mod work;
mod write;

pub use self::write::{Written, checkpoint, is_due, of_snapshot};
