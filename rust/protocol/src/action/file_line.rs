//! A file action as parsed from its line of JSON. Strings without escapes are borrowed from the line.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::loose::{self, Literal, Text};

/// `add` or `remove`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileLine<'a> {
    #[serde(borrow, deserialize_with = "loose::borrowed")]
    pub(super) path: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) partition_values: Option<Texts<'a>>,
    #[serde(default, deserialize_with = "loose::whole")]
    pub(super) size: Option<i64>,
    #[serde(default, deserialize_with = "loose::whole")]
    pub(super) modification_time: Option<i64>,
    #[serde(default, deserialize_with = "loose::whole")]
    pub(super) deletion_timestamp: Option<i64>,
    #[serde(default, deserialize_with = "loose::flag")]
    pub(super) data_change: Option<bool>,
    #[serde(default, deserialize_with = "loose::flag")]
    pub(super) extended_file_metadata: Option<bool>,
    #[serde(borrow, default, deserialize_with = "loose::borrowed_or_null")]
    pub(super) stats: Option<Cow<'a, str>>,
    /// The statistics as the JSON string of the line, if they were not parsed.
    #[serde(skip)]
    pub(super) quoted_stats: Option<&'a str>,
    #[serde(borrow, default)]
    pub(super) tags: Option<Texts<'a>>,
    #[serde(borrow, default)]
    pub(super) deletion_vector: Option<DeletionVectorLine<'a>>,
    #[serde(default, deserialize_with = "loose::whole")]
    pub(super) base_row_id: Option<i64>,
    #[serde(default, deserialize_with = "loose::whole")]
    pub(super) default_row_commit_version: Option<i64>,
    #[serde(borrow, default, deserialize_with = "loose::borrowed_or_null")]
    pub(super) clustering_provider: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeletionVectorLine<'a> {
    #[serde(borrow, deserialize_with = "loose::borrowed")]
    pub(super) storage_type: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "loose::borrowed")]
    pub(super) path_or_inline_dv: Cow<'a, str>,
    #[serde(default, deserialize_with = "loose::whole32")]
    pub(super) offset: Option<i32>,
    #[serde(deserialize_with = "loose::needed32")]
    pub(super) size_in_bytes: i32,
    #[serde(deserialize_with = "loose::needed")]
    pub(super) cardinality: i64,
}

/// A map of strings as a list, in the order of the line.
pub(super) struct Texts<'a>(pub(super) Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, Option<Literal<'de>>>()? {
                    entries.push((key.0, value.map(|v| v.0)));
                }
                Ok(Texts(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The range of `part` in `whole`; `None` if `part` is not a slice of it.
pub(super) fn place_in(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len()).filter(|end| *end <= whole.len())?;
    Some(start..end)
}
