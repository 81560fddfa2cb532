//! Changes of a table that do not change its rows: the request, and the new metadata and protocol.
//!
//! [`alter`] makes one change: it does what is asked ([`columns`], [`properties`]), and [`settle`] adds what follows from it:
//! ids and physical names, records of wider types, other mentions of a column, and features that the protocol needs. Several
//! changes after each other can be one commit. Cases are in `tests/data/text/alter.txt`.
//!
//! PROTOCOL.md: "Change Metadata", "Protocol Evolution", "Column Mapping", "Type Widening".

use std::collections::BTreeMap;

use crate::error::Result;
use crate::schema::evolve::ColumnChange;
use crate::schema::{StructField, StructType};

mod clustering;
mod columns;
mod copied;
mod drop_feature;
mod mentions;
mod properties;
mod restore;
mod settle;
mod step;

pub use clustering::{CLUSTERING_FEATURE, clustering_paths, logical_clustering};
pub use copied::copied;
pub use drop_feature::{
    CHECKPOINT_PROTECTION_VERSION, Droppable, Dropping, OldLog, disabled, find_droppable, renamed_column, uses_feature,
    widened_column, without_feature, without_properties,
};
pub use properties::constraint_key;
pub use restore::restored;
pub use settle::name_new_columns;
pub use step::{Altered, Before, MetadataChange};

/// One change.
#[derive(Debug, Clone)]
pub enum Alteration {
    /// Columns are added, each named by its path: at the end, or one after the other behind a given one.
    AddColumns {
        /// The columns.
        columns: Vec<StructField>,
        /// Where the first one goes.
        after: Option<String>,
    },
    /// A column gets another name.
    RenameColumn {
        /// Its path.
        column: String,
        /// The name.
        name: String,
    },
    /// Columns are dropped.
    DropColumns(Vec<String>),
    /// A column is altered.
    AlterColumn {
        /// Its path.
        column: String,
        /// How.
        change: ColumnChange,
    },
    /// The table gets these columns, in this order. Columns that it has already keep their metadata.
    ReplaceColumns(StructType),
    /// Properties are set.
    SetProperties(BTreeMap<String, String>),
    /// Properties are removed.
    UnsetProperties(Vec<String>),
    /// The table gets a name for people, or has none.
    SetName(Option<String>),
    /// The table gets a description for people, or has none.
    SetDescription(Option<String>),
    /// A CHECK constraint is added. The caller checks the rows that are there.
    AddConstraint {
        /// Its name.
        name: String,
        /// The expression, as SQL.
        expression: String,
    },
    /// A CHECK constraint is removed.
    DropConstraint(String),
    /// The columns by which files are clustered from now on; none turns clustering off.
    ClusterBy(Vec<String>),
    /// Several things at once.
    Set(MetadataChange),
}

/// Makes one change; `unique` returns names that are used nowhere else.
///
/// # Errors
/// `Invalid` if no table may have such metadata, or if this table may not get it; the error says why. `Unsupported` for
/// a feature that deltic does not write.
pub fn alter(before: Before<'_>, alteration: &Alteration, unique: &mut dyn FnMut() -> String) -> Result<Altered> {
    let asked = match alteration {
        Alteration::AddColumns { columns, after } => columns::add(before, columns, after.as_deref())?,
        Alteration::RenameColumn { column, name } => columns::rename(before, column, name)?,
        Alteration::DropColumns(names) => columns::drop_all(before, names)?,
        Alteration::AlterColumn { column, change } => columns::change(before, column, change)?,
        Alteration::ReplaceColumns(schema) => columns::replace_all(before, schema)?,
        Alteration::SetProperties(properties) => properties::set(before, properties)?,
        Alteration::UnsetProperties(keys) => properties::unset(before, keys)?,
        Alteration::SetName(name) => properties::name(before, name.as_deref()),
        Alteration::SetDescription(text) => properties::describe(before, text.as_deref()),
        Alteration::AddConstraint { name, expression } => properties::add_constraint(before, name, expression)?,
        Alteration::DropConstraint(name) => properties::drop_constraint(before, name)?,
        Alteration::ClusterBy(names) => clustering::cluster(before, names)?,
        Alteration::Set(change) => properties::set_all(before, change)?,
    };
    settle::settle(before, asked, unique)
}
