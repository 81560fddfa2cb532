//! Per-file statistics: collecting them while writing, reading them for skipping.
//!
//! PROTOCOL.md: "Per-file Statistics".

pub mod collect;
pub mod read;
mod values;
