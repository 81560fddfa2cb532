//! Decodes and encodes Parquet pages of checkpoints directly.
//!
//! A checkpoint has few shapes: numbers and strings in optional structs, and one map of strings. Decoding and encoding
//! only those is cheaper than with the parquet crate, which supports every file. It is synchronous, without I/O.
//!
//! Contract: a result equals that of the parquet crate, or the error is [`decode::Failure::Unsupported`] and the caller uses
//! that crate. Proved by `decode::tests::leaves_are_decoded_as_by_the_general_decoder`, by the tests of the checkpoint writer
//! and by the fuzz target `pages`.
//!
//! The environment variable `DELTIC_DIRECT_PAGES=off`, set when a process starts, turns both off ([`is_enabled`]).

mod bits;
mod chunked_buffer;
pub mod decode;
pub mod encode;
pub mod footer;
pub mod footer_pruning;
pub mod limits;
pub mod pool;
mod snappy;
mod thrift;

use std::sync::LazyLock;

/// The environment variable that turns direct decoding and encoding off, with the value `off`.
const DISABLE_VARIABLE: &str = "DELTIC_DIRECT_PAGES";

/// Whether pages are decoded and encoded directly. If not, everything is [`decode::Failure::Unsupported`].
pub fn is_enabled() -> bool {
    static IS_ENABLED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os(DISABLE_VARIABLE).is_none_or(|value| value != "off"));
    *IS_ENABLED
}
