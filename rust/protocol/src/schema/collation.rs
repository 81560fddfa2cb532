//! Strings with a collation, which are not ordered by their bytes.
//!
//! They are stored like other strings, but their least and greatest values are different.
//!
//! Proved by `stats::collect::strings_of_another_order_have_no_bounds`. The proposal is `collated-string-type`.

use serde_json::Value;

use super::StructField;

/// Column metadata of the proposal, an object with the collation, and of Spark, one with a collation for each path.
const COLLATIONS: [&str; 2] = ["collations", "__COLLATIONS"];

/// The collation that is the order of bytes. A provider's name may precede it, and a version may follow.
const BINARY: &str = "UTF8_BINARY";

/// Whether strings of the column, or inside it, are not ordered by their bytes. Metadata that cannot be
/// read count as a collation.
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
