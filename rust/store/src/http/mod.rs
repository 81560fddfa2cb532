//! Requests over HTTP to any service: the client, its answers, and credentials that are fetched.

pub(crate) mod answers;
pub(crate) mod client;
pub(crate) mod credentials;
