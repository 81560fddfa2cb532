//! `_last_checkpoint`: a hint to the newest checkpoint.
//!
//! It is only a hint. If anything is wrong with it (syntax, types, checksum, duplicate keys), it is ignored, and its
//! content is used only after the listing shows the checkpoint. Its copies of the checkpoint's content (schema,
//! actions, sidecars) are compared with the checkpoint, never used instead of it.
//!
//! Invariants: a serialised hint parses, with a checksum (`log::properties::hints_round_trip`); no bytes make parsing
//! panic or recurse beyond [`MAX_DEPTH`] (`log::properties::hostile_bytes`).
//!
//! PROTOCOL.md: "Last Checkpoint File", "Last Checkpoint File Schema", "JSON checksum".

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use md5::{Digest, Md5};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::name::MAX_VERSION;
use crate::action::Sidecar;
use crate::error::{Error, Result};

/// How deep the JSON may nest.
const MAX_DEPTH: usize = 128;

/// How many times longer than the JSON its canonical form may be. Paths repeat in every leaf below them, so a long key
/// over a long array would otherwise grow with the square of the file's size.
const MAX_GROWTH: usize = 32;

/// How long the file may be. A longer one only costs a listing of the whole log.
const MAX_BYTES: usize = 1024 * 1024;

const CHECKSUM: &str = "checksum";

/// Why a file has no canonical form.
const INVALID_JSON: &str = "is not valid JSON";
const REPEATED_KEY: &str = "repeats a key";
const TOO_DEEP: &str = "nests too deep";
const TOO_LONG: &str = "has a canonical form that is too long";

/// The newest checkpoint, as its writer recorded it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastCheckpoint {
    /// The version the checkpoint holds.
    pub version: u64,
    /// Number of actions in it; -1 when unknown.
    #[serde(default = "unknown")]
    pub size: i64,
    /// Number of files, when it is a multi-part one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_in_bytes: Option<i64>,
    /// Number of `add` actions in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_of_add_files: Option<i64>,
    /// Schema of its Parquet files, in the form of a `schemaString` but not quoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_schema: Option<Value>,
    /// Free metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// Contents of a UUID-named checkpoint, copied so that readers need not open it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v2_checkpoint: Option<UuidCheckpointHint>,
    /// MD5 of the canonical form of the rest. Filled by [`LastCheckpoint::parse`], ignored by
    /// [`LastCheckpoint::to_json`], which computes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// What the hint says about a UUID-named checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UuidCheckpointHint {
    /// File name in the log's folder.
    pub path: String,
    /// Bytes.
    pub size_in_bytes: i64,
    /// Milliseconds since the epoch.
    pub modification_time: i64,
    /// Every action that is not about a file; absent when the writer left them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_file_actions: Option<Vec<Value>>,
    /// The sidecars; absent when the writer left them out, empty when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar_files: Option<Vec<Sidecar>>,
}

fn unknown() -> i64 {
    -1
}

impl LastCheckpoint {
    /// Parses the file.
    ///
    /// # Errors
    /// `Corrupt` with what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            let message = format!("_last_checkpoint has {} bytes; the limit is {MAX_BYTES}", bytes.len());
            return Err(Error::corrupt(message));
        }
        let json = std::str::from_utf8(bytes);
        let json = json.map_err(|e| Error::corrupt("_last_checkpoint is not UTF-8").caused_by(e))?;
        // The members could otherwise stand in an array, in order.
        if !json.trim_start().starts_with('{') {
            return Err(Error::corrupt("_last_checkpoint is not a JSON object"));
        }
        let hint = serde_json::from_str::<Self>(json);
        let hint = hint.map_err(|e| Error::corrupt("_last_checkpoint cannot be parsed").caused_by(e))?;
        let pairs = canonical_pairs(json).map_err(|why| Error::corrupt(format!("_last_checkpoint {why}")))?;
        let matches = hint.checksum.as_ref().is_none_or(|stored| {
            // The protocol sorts by path, delta-spark by path and value together, which differs for arrays of more
            // than ten plain values. Either way the bytes are the ones that were written.
            [Order::Path, Order::Pair]
                .into_iter()
                .any(|order| md5_hex(&join(&pairs, order)).eq_ignore_ascii_case(stored))
        });
        if !matches {
            return Err(Error::corrupt("the checksum of _last_checkpoint does not match its contents"));
        }
        if hint.version > MAX_VERSION {
            return Err(Error::corrupt(format!(
                "_last_checkpoint has the version {}, which is too large",
                hint.version
            )));
        }
        Ok(hint)
    }

    /// Serialises the file as JSON, with its checksum.
    pub fn to_json(&self) -> String {
        let mut hint = Self { checksum: None, ..self.clone() };
        let plain = json_of(&hint);
        hint.checksum = canonical_pairs(&plain).ok().map(|pairs| md5_hex(&join(&pairs, Order::Path)));
        json_of(&hint)
    }
}

fn json_of(hint: &LastCheckpoint) -> String {
    // Serialising fails only on map keys that are no string, and there are none.
    serde_json::to_string(hint).unwrap_or_default()
}

/// The canonical form of a JSON text, of which the checksum is computed: `path=value` pairs without the top-level
/// `checksum`, sorted by path. `None` when it is not JSON, repeats a key or nests too deep.
pub fn canonical(text: &str) -> Option<String> {
    canonical_pairs(text).ok().map(|pairs| join(&pairs, Order::Path))
}

/// The checksum of a JSON text: MD5 of its [`canonical`] form, in lower-case hexadecimal.
pub fn checksum(text: &str) -> Option<String> {
    canonical(text).map(|form| md5_hex(&form))
}

#[derive(Clone, Copy)]
enum Order {
    Path,
    Pair,
}

fn join(pairs: &[(String, String)], order: Order) -> String {
    let mut pairs: Vec<(&str, String)> =
        pairs.iter().map(|(path, value)| (path.as_str(), format!("{path}={value}"))).collect();
    match order {
        Order::Path => pairs.sort(),
        Order::Pair => pairs.sort_by(|a, b| a.1.cmp(&b.1)),
    }
    pairs.into_iter().map(|(_, pair)| pair).collect::<Vec<_>>().join(",")
}

fn md5_hex(text: &str) -> String {
    Md5::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The pairs of the canonical form, or why there is none.
fn canonical_pairs(json: &str) -> Result<Vec<(String, String)>, &'static str> {
    let root: &RawValue = serde_json::from_str(json).map_err(|_| INVALID_JSON)?;
    let mut leaves = Leaves { pairs: Vec::new(), budget: json.len().saturating_mul(MAX_GROWTH) };
    leaves.collect(root, "", 0)?;
    let checksum = quoted(CHECKSUM);
    leaves.pairs.retain(|(path, _)| *path != checksum);
    Ok(leaves.pairs)
}

/// The `path`, `value` pairs found so far, and how many more bytes values and paths may have.
struct Leaves {
    pairs: Vec<(String, String)>,
    budget: usize,
}

impl Leaves {
    /// Collects the leaves below `value`. Numbers keep the digits they are written in, hence the raw values.
    fn collect(&mut self, value: &RawValue, path: &str, depth: usize) -> Result<(), &'static str> {
        if depth > MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        self.budget = self.budget.checked_sub(path.len()).ok_or(TOO_LONG)?;
        let below = |segment: &str| if path.is_empty() { segment.to_owned() } else { format!("{path}+{segment}") };
        match value.get().bytes().next() {
            Some(b'{') => {
                let members: Members<'_> = serde_json::from_str(value.get()).map_err(|_| REPEATED_KEY)?;
                members.0.iter().try_for_each(|(key, member)| self.collect(member, &below(&quoted(key)), depth + 1))
            }
            Some(b'[') => {
                let elements: Elements<'_> = serde_json::from_str(value.get()).map_err(|_| INVALID_JSON)?;
                let mut elements = elements.0.iter().enumerate();
                elements.try_for_each(|(i, element)| self.collect(element, &below(&i.to_string()), depth + 1))
            }
            Some(b'"') => {
                let string: String = serde_json::from_str(value.get()).map_err(|_| INVALID_JSON)?;
                self.leaf(path, quoted(&string))
            }
            _ => self.leaf(path, value.get().to_owned()),
        }
    }

    fn leaf(&mut self, path: &str, value: String) -> Result<(), &'static str> {
        self.budget = self.budget.checked_sub(value.len()).ok_or(TOO_LONG)?;
        self.pairs.push((path.to_owned(), value));
        Ok(())
    }
}

/// A key or text, percent-encoded but for the unreserved characters, between quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out.push('"');
    out
}

/// Members of an object; a key that comes twice is an error.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object without duplicate keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut seen = BTreeSet::new();
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !seen.insert(key.clone()) {
                        return Err(de::Error::custom("duplicate key"));
                    }
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Elements of an array.
struct Elements<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementsVisitor;
        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element::<&'de RawValue>()? {
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }
        deserializer.deserialize_seq(ElementsVisitor)
    }
}
