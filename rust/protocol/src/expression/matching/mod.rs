//! Strings matched with patterns: those of LIKE, and regular expressions.

pub(crate) mod like;
pub(crate) mod regex;
