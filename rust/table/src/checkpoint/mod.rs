//! Reading checkpoints. Start with `read`, then `action_file`.
//!
//! `read` knows the kinds of checkpoints and their actions; `action_file` one Parquet file, its footer and its row groups;
//! `leaves` the columns of that file; `rows` its rows in batches; `actions` the types of actions in them.
//!
//! Invariant: the actions equal those of the commits that the checkpoint stands for
//! (`checkpoint::a_checkpoint_keeps_the_state`).
//!
//! PROTOCOL.md: "Checkpoints", "Checkpoint Schema".

pub(crate) mod action_file;
pub(crate) mod actions;
mod leaves;
pub mod read;
pub(crate) mod rows;
