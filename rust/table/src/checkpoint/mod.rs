//! Reading checkpoints.

pub(crate) mod actions;
mod leaves;
pub(crate) mod part;
pub mod read;
pub(crate) mod rows;
