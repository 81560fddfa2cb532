//! Live files in the order that a checkpoint has them in, in bounded memory.

mod gather;
mod order;
mod ranges;
mod runs;

pub(super) use self::order::Order;
pub(super) use self::runs::Reader;
