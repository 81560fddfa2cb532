//! Checked settings for accessing a store, from the caller, the environment and shared files.

pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod profile;
pub(crate) mod settings;
