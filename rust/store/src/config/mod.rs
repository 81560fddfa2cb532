//! What a caller, the environment and shared files say of how to reach a store, checked.

pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod profile;
pub(crate) mod settings;
