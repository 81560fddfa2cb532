//! Per-file statistics: collecting them while writing, reading them for skipping,
//! turning one form into the other.
//!
//! PROTOCOL.md: "Per-file Statistics".

mod bounding_box;
pub mod collect;
pub mod json;
mod leaf;
pub mod read;
mod spans;
mod templates;
pub mod typed;
mod values;

pub use self::values::near_any_double;
