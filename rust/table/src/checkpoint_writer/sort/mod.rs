//! Brings live files into the order in which a checkpoint lists them, in bounded memory.

mod gather;
mod order;
mod ranges;
mod runs;

pub(super) use self::order::Order;
pub(super) use self::runs::LiveFileReader;
