//! Strings with a collation, which are not compared by their bytes.
//!
//! They are stored like other strings, but other strings are equal, and their least and greatest values are different.
//!
//! Proved by `stats::collect::strings_of_another_order_have_no_bounds` and
//! `collation::conditions_on_strings_with_a_collation_are_refused`. The proposal is `collated-string-type`.

use serde_json::Value;

use super::{DataType, StructField, StructType, path};
use crate::error::{Error, Result};

/// Column metadata of the proposal, an object with the collation, and of Spark, one with a collation for each path.
const COLLATIONS: [&str; 2] = ["collations", "__COLLATIONS"];

/// The collation that is the order of bytes. A provider's name may precede it, and a version may follow.
const BINARY: &str = "UTF8_BINARY";

/// Whether strings of the column, or inside it, are not ordered by their bytes. Metadata that cannot be
/// read count as a collation.
pub fn is_collated(field: &StructField) -> bool {
    own_collation(field).is_some()
}

/// The collation of the column at a path of exact names, or of strings inside it, other than the order of bytes.
pub fn collation_of(schema: &StructType, path: &[String]) -> Option<String> {
    let (name, rest) = path.split_first()?;
    let field = schema.fields.get(schema.index_of(name)?)?;
    match (&field.data_type, rest) {
        (_, []) => collation_inside(field),
        (DataType::Struct(inner), rest) => own_collation(field).or_else(|| collation_of(inner, rest)),
        _ => own_collation(field),
    }
}

/// Refuses a comparison with the column at a path of exact names, if it has a collation: bytes would give other rows.
///
/// # Errors
/// `Unsupported`, naming the column and the collation.
pub fn check_compared(schema: &StructType, path: &[String]) -> Result<()> {
    let Some(collation) = collation_of(schema, path) else { return Ok(()) };
    let message = format!(
        "column {} has the collation {collation}, and deltic compares strings only by their bytes, which gives other rows; \
         evaluate this in Spark, or read without a filter on this column and filter the rows; only tests for NULL and \
         functions such as length work on it",
        path::print(path)
    );
    Err(Error::unsupported("collations", message))
}

/// As written in the metadata.
fn own_collation(field: &StructField) -> Option<String> {
    COLLATIONS.iter().filter_map(|key| field.metadata.get(*key)).find_map(other)
}

fn collation_inside(field: &StructField) -> Option<String> {
    own_collation(field).or_else(|| collation_in_type(&field.data_type))
}

fn collation_in_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Struct(inner) => inner.fields.iter().find_map(collation_inside),
        DataType::Array(array) => collation_in_type(&array.element),
        DataType::Map(map) => collation_in_type(&map.key).or_else(|| collation_in_type(&map.value)),
        DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => None,
    }
}

fn other(collations: &Value) -> Option<String> {
    match collations {
        Value::Object(members) => members.values().find_map(other),
        Value::String(name) => {
            let is_binary = name.split('.').any(|part| part.eq_ignore_ascii_case(BINARY));
            (!is_binary).then(|| name.clone())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Some(collations.to_string()),
    }
}
