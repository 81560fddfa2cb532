//! Arrow data between Rust and any Python library, without copies: the Arrow PyCapsule interface.
//!
//! [`export`] hands arrays to Python, [`import`] receives them, and [`feed`] runs consumers of imported streams. Objects with
//! `__arrow_c_stream__` or `__arrow_c_array__` are accepted as data, and the objects that deltic returns have these methods
//! too. Streams are lazy both ways: a batch is made when it is pulled.
//!
//! All `unsafe` of the project is in [`import`], which follows C pointers of other libraries, in [`imported_arrays`], which
//! counts imported arrays until they are released, and in [`gil`], which releases the GIL while a C stream is awaited.
//! Proved by the round trips in the modules and, against real libraries, in `tests/python/test_bridge.py`.

mod capsules;
mod export;
mod feed;
mod gil;
mod import;
mod imported_arrays;

pub(crate) use export::{ArrowBatch, ArrowSchema, ArrowStream};
pub(crate) use feed::{Batches, consume_batches};
pub(crate) use gil::find_thread_state;
pub(crate) use import::{check_announced, reader_from_py, schema_from_py};
pub(crate) use imported_arrays::wait_for_arrays_at_exit;
