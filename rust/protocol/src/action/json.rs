//! Actions as lines of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A map of texts; numbers and booleans that foreign writers leave unquoted become their text, nulls are left out.
pub(super) fn text_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?.unwrap_or_default();
    let text = |value: Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    };
    Ok(map.into_iter().filter_map(|(key, value)| Some((key, text(value)?))).collect())
}
