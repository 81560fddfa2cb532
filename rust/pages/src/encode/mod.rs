//! Column chunks encoded straight from Arrow arrays, for the leaves that are most of a checkpoint.
//!
//! Paths, statistics and numbers inside optional structs: no levels are made where every row has a value, each string is
//! copied once, pages are compressed in the same memory one after another, and numbers that do not repeat are not looked
//! up in a dictionary. All other leaves are left to the general encoder.
//!
//! Invariant: what is read from a chunk, bounds included, is what the general encoder would have written
//! (the tests of the checkpoint writer compare both).
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
