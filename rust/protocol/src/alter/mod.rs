//! Changes of a table that leave its rows as they are: what is asked, and the metadata and protocol that follow.
//!
//! [`alter`] takes one step: it does what is asked ([`columns`], [`properties`]) and [`settle`]s what follows from that:
//! ids and physical names, records of wider types, what mentions a column, and the features that the protocol needs. Several
//! steps after each other are one commit. Cases are in `tests/data/text/alter.txt`.
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

pub use clustering::{CLUSTERING_FEATURE, clustering_paths};
pub use copied::copied;
pub use drop_feature::{
    Droppable, PROTECTION, disabled, find_droppable, renamed_column, widened_column, without_feature,
};
pub use properties::constraint_key;
pub use restore::restored;
pub use settle::name_new_columns;
pub use step::{Altered, Before, MetadataChange};

/// One change.
#[derive(Debug, Clone)]
pub enum Alteration {
    /// Columns are added, each named by its path: behind the others, or one after the other after a given one.
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
    /// Columns go.
    DropColumns(Vec<String>),
    /// A column is altered.
    AlterColumn {
        /// Its path.
        column: String,
        /// How.
        change: ColumnChange,
    },
    /// These are the columns, in this order; those that are there keep what is said of them.
    ReplaceColumns(StructType),
    /// Properties are set.
    SetProperties(BTreeMap<String, String>),
    /// Properties are taken away.
    UnsetProperties(Vec<String>),
    /// The table gets a name for people, or has none.
    SetName(Option<String>),
    /// The table gets a description for people, or has none.
    SetDescription(Option<String>),
    /// Rows must make an expression TRUE from now on. Whether those that are there do is for the caller to see.
    AddConstraint {
        /// Its name.
        name: String,
        /// The expression, as SQL.
        expression: String,
    },
    /// Rows need not do so any more.
    DropConstraint(String),
    /// The columns by which files are laid out from now on; none for no more.
    ClusterBy(Vec<String>),
    /// Several things at once.
    Set(MetadataChange),
}

/// Takes one step; `unique` gives names that are used nowhere else.
///
/// # Errors
/// `Invalid` if no table may have such metadata or go to it from what it has, naming what is in the way; `Unsupported` for
/// a feature that deltic does not follow.
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
