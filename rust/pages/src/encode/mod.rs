//! Encodes column chunks directly from Arrow arrays, for the leaves that are most of a checkpoint.
//!
//! These are paths, statistics and numbers inside optional structs. No levels are made if every row has a value, each string is
//! copied once, pages are compressed in the same memory one after another, and numbers that are mostly distinct are not looked
//! up in a dictionary. All other leaves are left to the parquet crate.
//!
//! Invariant: a chunk is read as one of the parquet crate would be, bounds included
//! (the tests of the checkpoint writer compare them).
//!
//! Parquet format: "Column chunks", "Nested Encoding", "Data Pages", "Statistics".

mod column;
mod hybrid;
mod numbers;
mod page;
mod snappy;
mod strings;
mod tree;
mod values;

pub use self::column::{ColumnWriter, Kind, kind_of_number};
pub use self::page::PageCompressor;
pub use self::tree::{KindOf, Tree, WriterSlot};
pub use self::values::{BOUND_BYTES, DICTIONARY_BYTES, PAGE_BYTES};
