//! Writing checkpoints.

mod assembly;
mod columns;
mod encode;
mod numbers;
mod sidecars;
mod sort;
mod work;
mod write;

pub(crate) use self::sidecars::MAX_REUSED_AGE_MS;
pub(crate) use self::work::young_tombstones;
pub use self::write::{WrittenCheckpoint, checkpoint, is_due, of_snapshot};
