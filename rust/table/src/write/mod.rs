//! Writing data files: splitting by partition, naming, encoding.

mod annotations;
mod columns;
mod encoder;
mod input;
pub mod layout;
pub mod options;
pub mod partition;
mod pieces;
pub mod plan;
mod setup;
mod sort;
pub(crate) mod unclaimed;
pub mod writer;

pub use input::{conform, identity, incoming, rules};
