//! `_delta_log`: what its file names mean, which of them define a version, and the two small files beside them.

pub mod crc;
pub mod expired;
pub mod hint;
pub mod increment;
pub mod listing;
pub mod name;
pub mod segment;

pub use name::LogName;
pub use segment::{Checkpoint, CheckpointKind, LogFile, Segment};
