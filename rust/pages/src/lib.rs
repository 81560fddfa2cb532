//! Parquet pages of checkpoints, decoded and encoded directly.
//!
//! A checkpoint has few shapes: numbers and strings in optional structs, and one map of strings. Decoding and encoding
//! those alone costs a fraction of what the parquet crate takes, which has to serve every file. Synchronous; no I/O.
//!
//! Contract: a result equals that of the parquet crate, or it is [`decode::Failure::Unsupported`] and the caller uses
//! that crate. Proved by `decode::tests::leaves_are_decoded_as_by_the_general_decoder`, by the tests of the checkpoint writer
//! and by the fuzz target `pages`.
//!
//! Environment: `DELTIC_DIRECT_PAGES=off` when a process starts turns both off ([`is_enabled`]).

mod bits;
pub mod decode;
pub mod encode;
pub mod footer;
pub mod limits;
pub mod narrow;
mod pieces;
pub mod pool;
mod thrift;

use std::sync::LazyLock;

/// The environment variable that turns direct decoding and encoding off, with the value `off`.
pub const SWITCH: &str = "DELTIC_DIRECT_PAGES";

/// Whether pages are decoded and encoded directly. Where they are not, everything is [`decode::Failure::Unsupported`].
pub fn is_enabled() -> bool {
    static IS_ENABLED: LazyLock<bool> = LazyLock::new(|| std::env::var_os(SWITCH).is_none_or(|value| value != "off"));
    *IS_ENABLED
}
