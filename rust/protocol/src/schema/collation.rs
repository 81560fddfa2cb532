//! Which strings are compared by another order than that of their bytes.
//!
//! How they are stored does not depend on it; what their least and greatest are does.
//!
//! Proved by `stats::collect::strings_of_another_order_have_no_bounds`. The proposal is `collated-string-type`.

use serde_json::Value;

use super::StructField;

/// Column metadata of the proposal, an object with the collation, and of Spark, one with a collation for each path.
const COLLATIONS: [&str; 2] = ["collations", "__COLLATIONS"];

/// The order of bytes, which a provider's name may precede and a version follow.
const BINARY: &str = "UTF8_BINARY";

/// Whether strings of the column, or of something inside it, have another order than that of their bytes. What cannot be
/// read may be one.
pub fn is_collated(field: &StructField) -> bool {
    COLLATIONS.iter().filter_map(|key| field.metadata.get(*key)).any(is_other)
}

fn is_other(collations: &Value) -> bool {
    match collations {
        Value::Object(members) => members.values().any(is_other),
        Value::String(name) => !name.split('.').any(|part| part.eq_ignore_ascii_case(BINARY)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
    }
}
