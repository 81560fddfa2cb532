//! Parses the changes of a table that Python requests: JSON, and an Arrow schema if there are columns.

use std::collections::BTreeMap;

use deltic_protocol::alter::{Alteration, MetadataChange};
use deltic_protocol::error::Error;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::arrow::{check_new_geometries, from_arrow_schema};
use deltic_protocol::schema::evolve::{ColumnChange, Position};
use pyo3::prelude::*;
use serde::{Deserialize, Deserializer};

use crate::arrow::schema_from_py;
use crate::errors::Result;

/// A change, by its verb. Columns are passed separately.
#[derive(Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    AddColumns {
        after: Option<String>,
    },
    RenameColumn {
        column: String,
        name: String,
    },
    DropColumns {
        names: Vec<String>,
    },
    AlterColumn {
        column: String,
        nullable: Option<bool>,
        comment: Option<String>,
        #[serde(default, deserialize_with = "given")]
        default: Option<Option<String>>,
        position: Option<String>,
    },
    ReplaceColumns,
    SetProperties {
        properties: BTreeMap<String, String>,
    },
    UnsetProperties {
        names: Vec<String>,
    },
    SetName {
        name: Option<String>,
    },
    SetDescription {
        description: Option<String>,
    },
    DropConstraint {
        name: String,
    },
    ClusterBy {
        columns: Vec<String>,
    },
    Set {
        name: Option<String>,
        description: Option<String>,
        properties: BTreeMap<String, String>,
        unset: Vec<String>,
    },
}

/// A member that may be absent, null or a string.
fn given<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(value).map(Some)
}

/// Parses a change.
pub(crate) fn parse(change: &str, schema: Option<&Bound<'_, PyAny>>) -> Result<Alteration> {
    let request = serde_json::from_str(change);
    let request = request.map_err(|e| Error::invalid("the change is not readable").caused_by(e))?;
    let mut columns: Option<StructType> = match schema {
        Some(schema) => {
            let schema = schema_from_py(schema)?;
            check_new_geometries(schema.fields(), &StructType::default())?;
            Some(from_arrow_schema(&schema)?)
        }
        None => None,
    };
    Ok(match request {
        Request::AddColumns { after } => Alteration::AddColumns { columns: columns.unwrap_or_default().fields, after },
        Request::RenameColumn { column, name } => Alteration::RenameColumn { column, name },
        Request::DropColumns { names } => Alteration::DropColumns(names),
        Request::AlterColumn { column, nullable, comment, default, position } => {
            let data_type = columns.as_mut().and_then(|columns| columns.fields.pop()).map(|field| field.data_type);
            let position = position.as_deref().map(Position::parse).transpose()?;
            Alteration::AlterColumn { column, change: ColumnChange { data_type, nullable, comment, default, position } }
        }
        Request::ReplaceColumns => Alteration::ReplaceColumns(columns.unwrap_or_default()),
        Request::SetProperties { properties } => Alteration::SetProperties(properties),
        Request::UnsetProperties { names } => Alteration::UnsetProperties(names),
        Request::SetName { name } => Alteration::SetName(name),
        Request::SetDescription { description } => Alteration::SetDescription(description),
        Request::DropConstraint { name } => Alteration::DropConstraint(name),
        Request::ClusterBy { columns } => Alteration::ClusterBy(columns),
        Request::Set { name, description, properties, unset } => {
            Alteration::Set(MetadataChange { name, description, schema: columns, properties, unset })
        }
    })
}
