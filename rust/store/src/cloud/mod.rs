//! Buckets, containers and servers, through the object store crate.

pub(crate) mod answers;
mod azure_blocks;
mod connect;
pub(crate) mod credentials;
mod delete;
mod finding;
mod in_parts;
pub(crate) mod remote;
mod tree;
pub(crate) mod writer;
