//! The format of a data file: its columns, their encodings, the order of its rows, and the Parquet bytes.

mod annotations;
mod columns;
pub(super) mod copied;
pub(super) mod encoder;
mod infer;
pub(super) mod layout;
mod shred;
mod sort;
