//! Per-file statistics: collecting them while writing, reading them for skipping,
//! turning one form into the other.
//!
//! PROTOCOL.md: "Per-file Statistics".

pub mod collect;
mod leaf;
mod places;
pub mod read;
mod shapes;
pub mod text;
pub mod typed;
mod values;

pub use self::values::near_any_double;
