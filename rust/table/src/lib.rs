//! How the bytes of a Delta table move.
//!
//! Asynchronous: reads and writes through [`storage::Storage`], decodes and encodes Parquet, and leaves every decision
//! to `deltic-protocol`.
//!
<<<<<<< HEAD
//! Modules depend on each other in one direction only: `error`, `storage`, then `log_reader` and `checkpoint`, then
//! `snapshot`, then `scan` and `write`, then `commit`, `transaction`, `job`. A test reads the imports.
=======
//! Modules depend on each other in one direction only: `error`, `storage`, `footer`, then `log_reader` and `checkpoint`, then
//! `snapshot`, then `scan` and `write`, then `commit`, `transaction`, `table`. A test reads the imports.
>>>>>>> read

pub mod checkpoint;
pub mod commit;
pub mod error;
pub mod footer;
<<<<<<< HEAD
pub mod history;
pub mod job;
=======
>>>>>>> read
pub mod log_reader;
pub mod scan;
pub mod snapshot;
pub mod storage;
pub mod transaction;
pub mod write;
