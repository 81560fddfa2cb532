//! Writing data files: splitting by partition, naming, encoding.

pub(crate) mod column_rewrite;
mod format;
mod input;
pub mod layout;
pub mod options;
pub mod partition;
pub(crate) mod pieces;
pub mod plan;
mod setup;
pub(crate) mod unclaimed;
pub mod writer;

pub(crate) use input::char_lengths;
pub use input::{conform, identity, incoming, rules};
