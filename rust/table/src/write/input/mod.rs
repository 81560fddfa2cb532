//! Checks the rows of a caller, and converts them to the types that the table stores.

pub(crate) mod char_lengths;
pub(super) mod condition;
pub mod conform;
mod conversion;
pub mod identity;
pub mod incoming;
pub mod rules;
mod variants;
