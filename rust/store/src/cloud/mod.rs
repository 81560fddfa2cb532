//! Buckets, containers and servers, through the object store crate.

mod azure_blocks;
mod clients;
mod connect;
mod copying;
mod delete;
mod finding;
mod in_parts;
pub(crate) mod remote;
mod s3;
mod tree;
pub(crate) mod writer;
