//! The metadata and protocol of a clone: those of the source, under an id of its own.
//!
//! Properties about the source's versions are not copied: the version from which commits have timestamps, and the protected
//! checkpoints. A table that was there keeps its id, name and description, and the properties that its own history needs.
//!
//! Cases are in `tests/rust/protocol/restore.rs`.
//!
//! PROTOCOL.md: "Change Metadata", "Column Mapping", "In-Commit Timestamps".

use super::CHECKPOINT_PROTECTION_VERSION;
use super::restore::{keep, keep_largest_id, keep_times};
use crate::action::{Metadata, Protocol};
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;

/// Protocol and metadata of a copy of `source` with a new `id`, which replaces the table that is there, if there is one. No
/// protocol if that table's stays.
///
/// # Errors
/// `Invalid` if columns of the two are mapped in other ways, `Corrupt` for a property that cannot be read, `Unsupported` if
/// deltic could not write the table.
pub fn copied(
    source: (&Protocol, &Metadata),
    target: Option<(&Protocol, &Metadata)>,
    id: String,
) -> Result<(Option<Protocol>, Metadata)> {
    let mut metadata = Metadata { id, name: None, description: None, ..source.1.clone() };
    metadata.configuration.remove(CHECKPOINT_PROTECTION_VERSION);
    let protocol = match target {
        None => {
            keep_times(&Metadata { configuration: Default::default(), ..metadata.clone() }, &mut metadata)?;
            source.0.clone()
        }
        Some((protocol, there)) => {
            let modes = [&metadata, there].map(|metadata| Properties::of(metadata).column_mapping_mode());
            let [from, to] = modes;
            let (from, to) = (from?.as_str(), to?.as_str());
            if from != to {
                let message = format!(
                    "columns are mapped by `{from}` in the cloned table and by `{to}` in the existing one \
                     (`delta.columnMapping.mode`), and a clone does not change that; clone to another location"
                );
                return Err(Error::invalid(message));
            }
            metadata = Metadata {
                id: there.id.clone(),
                name: there.name.clone(),
                description: there.description.clone(),
                ..metadata
            };
            keep_largest_id(there, &mut metadata)?;
            keep(there, &mut metadata, CHECKPOINT_PROTECTION_VERSION);
            keep_times(there, &mut metadata)?;
            feature::merged(protocol, source.0)
        }
    };
    feature::check_writable(&protocol, &metadata, &*metadata.schema()?)?;
    let stays = target.is_some_and(|(there, _)| *there == protocol);
    Ok(((!stays).then_some(protocol), metadata))
}
