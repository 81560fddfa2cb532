//! Writing data files: splitting by partition, naming, encoding.

mod annotations;
mod encoder;
mod input;
pub mod layout;
pub mod partition;
mod pieces;
pub mod plan;
pub(crate) mod unclaimed;
pub mod writer;

pub use input::{conform, identity, incoming};
