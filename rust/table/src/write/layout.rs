//! The path of a data file, in the store and in the log.
//!
//! A partitioned table's files are in Hive-style directories, `column=value/…`, with the characters escaped that
//! Hive and Spark escape, and every byte beyond ASCII. Readers must not rely on them, so tables with random
//! prefixes, and values too long for a directory's name, do without them. The log has the percent-encoded URI of the
//! storage key: a `%` in a directory is `%25` there. Decoding the log's path gives the key.
//!
//! Invariant: the key is ASCII, and the log has it in the form of `java.net.URI` (`write::paths`). delta-spark's VACUUM
//! compares strings: it would delete a live file whose path is spelled differently.
//!
//! PROTOCOL.md: "Data Files", "Add File and Remove File".

use std::fmt::Write;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use uuid::Uuid;

use super::partition::PartitionKey;

/// The form of null in a directory name.
pub const NULL_DIRECTORY: &str = "__HIVE_DEFAULT_PARTITION__";

/// The most bytes of a name in file systems.
const LONGEST_NAME: usize = 255;

/// The most bytes of partition directories. A key of an object store has at most 1024; the rest is for the table's location
/// and the file name.
const LONGEST_DIRECTORIES: usize = 512;

/// Characters that `java.net.URI` quotes in a path. Keys that deltic makes are ASCII.
const NOT_IN_URI: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The two spellings of a data file's path relative to the table's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPath {
    /// The path for the store.
    pub key: String,
    /// The path for `add.path`.
    pub log: String,
}

impl DataPath {
    /// The file `name` of `partition`, in the partition's directories or, if given, after a `prefix` instead.
    pub fn new(partition: &PartitionKey, prefix: Option<&str>, name: &str) -> Self {
        let key = match (prefix, partition_directories(partition)) {
            (Some(prefix), _) if !prefix.is_empty() => format!("{prefix}/{name}"),
            (_, Some(directories)) => format!("{directories}{name}"),
            (_, None) => name.to_owned(),
        };
        let log = encode_add_path(&key);
        Self { key, log }
    }

    /// The same below a folder, if there is one.
    #[must_use]
    pub fn below(self, folder: Option<&str>) -> Self {
        match folder {
            Some(folder) => Self { key: format!("{folder}/{}", self.key), log: format!("{folder}/{}", self.log) },
            None => self,
        }
    }
}

/// Percent-encodes a file's path for `add.path`, in the form of `java.net.URI`: delta-spark's VACUUM compares these strings.
pub fn encode_add_path(key: &str) -> String {
    let mut path = String::with_capacity(key.len());
    let mut bytes = [0; 4];
    for c in key.chars() {
        match c.is_ascii() || c.is_control() || c.is_whitespace() {
            true => path.extend(utf8_percent_encode(c.encode_utf8(&mut bytes), NOT_IN_URI)),
            false => path.push(c),
        }
    }
    path
}

/// A unique file name, in the form that Spark uses for files of a kind.
pub fn file_name((kind, number): (&str, usize), id: Uuid, codec: &str) -> String {
    let codec = if codec.is_empty() { String::new() } else { format!(".{codec}") };
    format!("{kind}-{number:05}-{id}.c000{codec}.parquet")
}

/// An id for the name of a file, with this first half if it is given.
pub(super) fn file_id(first_half: Option<u64>) -> Uuid {
    let random = Uuid::new_v4();
    match first_half {
        Some(first_half) => Uuid::from_u64_pair(first_half, random.as_u64_pair().1),
        None => random,
    }
}

/// The first half of a transaction's id, by which its files are found; none of ids that are no UUIDs.
pub fn id_prefix(txn_id: &str) -> Option<u64> {
    Uuid::parse_str(txn_id).ok().map(|id| id.as_u64_pair().0)
}

/// Whether a file with rows, or a change file, has an id with this first half in its name.
pub fn has_id_prefix(path: &str, first_half: u64) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let numbered = name.strip_prefix("part-").or_else(|| name.strip_prefix("cdc-"));
    let numbered = numbered.filter(|rest| rest.ends_with(".parquet"));
    let id = numbered.and_then(|rest| rest.split_once('-')).and_then(|(_, id)| id.get(..36));
    id.and_then(id_prefix) == Some(first_half)
}

/// `length` random characters, from as many ids as needed, that spread files over an object store's key space.
pub fn random_prefix(ids: impl Iterator<Item = Uuid>, length: u8) -> String {
    let length = usize::from(length);
    let mut prefix = String::with_capacity(length);
    for id in ids {
        if prefix.len() >= length {
            break;
        }
        prefix.push_str(&id.simple().to_string());
    }
    prefix.truncate(length);
    prefix
}

/// `column=value/` for each partition column; `None` if a store would refuse the length.
fn partition_directories(partition: &PartitionKey) -> Option<String> {
    let mut directories = String::new();
    for (name, value) in partition.entries() {
        let start = directories.len();
        escape(name, &mut directories);
        directories.push('=');
        match value {
            Some(value) => escape(value, &mut directories),
            None => directories.push_str(NULL_DIRECTORY),
        }
        if directories.len() - start > LONGEST_NAME {
            return None;
        }
        directories.push('/');
    }
    (directories.len() <= LONGEST_DIRECTORIES).then_some(directories)
}

/// `column=value/` for each column, as in Hive and Spark: characters beyond ASCII are not escaped, and the length is not
/// limited.
pub(crate) fn hive_folder<'a>(partition: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut folder = String::new();
    for (name, value) in partition {
        escape_if(name, &mut folder, is_special);
        folder.push('=');
        escape_if(value.unwrap_or(NULL_DIRECTORY), &mut folder, is_special);
        folder.push('/');
    }
    folder
}

/// Escapes what Hive and Spark do not allow in a partition directory's name, and each byte beyond ASCII.
fn escape(string: &str, out: &mut String) {
    escape_if(string, out, |c| is_special(c) || !c.is_ascii());
}

fn escape_if(string: &str, out: &mut String, is_escaped: impl Fn(char) -> bool) {
    let mut bytes = [0; 4];
    for c in string.chars() {
        if is_escaped(c) {
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a String does not fail.
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
}

/// Whether Hive and Spark escape a character.
fn is_special(c: char) -> bool {
    c.is_ascii_control()
        || matches!(c, '"' | '#' | '%' | '\'' | '*' | '/' | ':' | '=' | '?' | '\\' | '{' | '[' | ']' | '^')
}
