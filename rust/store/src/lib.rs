//! The storage of a table: one contract for a local disk, buckets, containers, web servers and memory.
//!
//! Why not use the object store crate directly? A Delta log has three requirements beyond its interface. First, a
//! commit is a `put_if_absent`, and after a network failure it is unknown whether it succeeded: this third outcome,
//! [`Put::Unknown`], is a value here, and such a request is not retried without the caller. Second, a listing starts
//! at a version, so that its cost depends on the newer files. Third, handles survive a `fork`: they have the configuration,
//! and open connections on first use, per process.
//!
//! Paths are *literal* references, which are not encoded: relative to the root (they cannot leave it) or absolute (shallow
//! clones); [`decode_path`] makes one from the text of a log. The contents of files do not matter here. Only this crate
//! uses `object_store`. The contract is [`conformance::check`], which the storage tests run against every backend.
//!
//! PROTOCOL.md: "Delta Log Entries", "Add File and Remove File" (path).

use deltic_protocol::error;

mod cloud;
pub mod compute_threads;
mod config;
pub mod conformance;
mod counts;
pub mod dynamodb;
mod error_context;
pub mod events;
mod failures;
mod file_writer;
mod http;
mod listing;
mod local;
mod location;
pub mod parallel;
mod pin;
mod put;
mod ranges;
mod stop;
mod storage;
mod syncing;

pub use counts::Counts;
pub use failures::no_memory;
pub use file_writer::FileWriter;
pub use listing::{FileMeta, Listed};
pub use location::decode_path;
pub use pin::Pin;
pub use put::{Body, Put};
pub use stop::Stop;
pub use storage::Storage;
pub use syncing::Syncing;
