//! Buckets, containers and servers, through the object store crate.

pub(crate) mod answers;
mod azure_blocks;
pub(crate) mod client;
mod connect;
mod copying;
pub(crate) mod credentials;
mod delete;
mod finding;
mod in_parts;
pub(crate) mod remote;
mod tree;
pub(crate) mod writer;
