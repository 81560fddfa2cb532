//! The input and the results of a change of metadata: the table before, the requested change, the table after.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::action::{Metadata, Protocol};
use crate::schema::StructType;

/// A table before a change.
#[derive(Debug, Clone, Copy)]
pub struct Before<'a> {
    /// Which clients may read and write it.
    pub protocol: &'a Protocol,
    /// Its metadata.
    pub metadata: &'a Metadata,
    /// Physical paths of the columns by which it is clustered.
    pub clustering: &'a [Vec<String>],
    /// The version that the change makes.
    pub version: u64,
}

/// New values for a table's metadata; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct MetadataChange {
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
    /// The whole schema.
    pub schema: Option<StructType>,
    /// Properties to set.
    pub properties: BTreeMap<String, String>,
    /// Properties to remove.
    pub unset: Vec<String>,
}

/// A requested change, before `settle` adds what follows from it.
pub(super) struct RequestedChange {
    pub(super) metadata: Metadata,
    /// Properties that are set, those that change the protocol included.
    pub(super) properties: BTreeMap<String, String>,
    /// Physical paths of the clustering columns, if they are set.
    pub(super) clustering: Option<Vec<Vec<String>>>,
    pub(super) operation: &'static str,
    pub(super) parameters: Map<String, Value>,
}

/// A table after a change, with the operation and parameters for the history.
#[derive(Debug, Clone)]
pub struct Altered {
    /// The metadata.
    pub metadata: Metadata,
    /// The protocol, if it has to change.
    pub protocol: Option<Protocol>,
    /// Physical paths of the columns by which it is clustered, if they are set.
    pub clustering: Option<Vec<Vec<String>>>,
    /// Name of the operation.
    pub operation: &'static str,
    /// Parameters of the operation.
    pub parameters: Map<String, Value>,
}
