//! Arrow data between Rust and any Python library, without copies: the Arrow PyCapsule interface.
//!
//! [`export`] gives, [`import`] takes, [`feed`] runs what consumes what was taken. Whatever has `__arrow_c_stream__` or
//! `__arrow_c_array__` is accepted as data, and what deltic returns has them too. Streams are lazy both ways: a batch is
//! made when it is asked for.
//!
//! All `unsafe` of the project is in [`import`], where C pointers that another library made are followed, and in
//! [`loans`], where it is seen when their memory is given back.
//! Proved by the round trips in the modules and, against real libraries, in `tests/python/test_bridge.py`.

mod capsules;
mod export;
mod feed;
mod import;
mod loans;

pub(crate) use export::{ArrowBatch, ArrowSchema, ArrowStream};
pub(crate) use feed::{Batches, run_fed};
pub(crate) use import::{reader_from_py, schema_from_py};
pub(crate) use loans::return_loans_at_exit;
