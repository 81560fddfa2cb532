//! Writing data files: splitting by partition, naming, encoding.

pub mod layout;
pub mod partition;
pub mod writer;
