//! Reading checkpoints.

pub(crate) mod action_file;
pub(crate) mod actions;
mod leaves;
pub mod read;
pub(crate) mod rows;
