//! Writing data files: splitting by partition, naming, encoding.

mod char_lengths;
pub mod conform;
mod conversion;
mod encoder;
pub mod incoming;
pub mod layout;
pub mod partition;
mod pieces;
pub mod plan;
mod unclaimed;
pub mod writer;
