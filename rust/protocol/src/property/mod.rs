//! Properties of tables: what each means, and which values it takes.

mod interval;
mod properties;
mod table;

pub use interval::parse_interval;
pub use properties::{
    CheckpointPolicy, Compression, InCommitTimestamps, IsolationLevel, PageVersion, Properties, RowTracking,
};
pub use table::{PROPERTIES, Property, check_settable, check_unset, is_instruction, stored};
pub(crate) use table::{check_exclusive, check_manifests};
