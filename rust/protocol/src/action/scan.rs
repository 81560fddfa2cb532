//! File actions from lines of JSON, read in place.
//!
//! Most of a log is `add` and `remove` lines of one form. They are scanned once, and members are borrowed from the line; only
//! strings with escapes are copied, and statistics, the longest member by far, not even then. Anything unusual
//! (another first key, a member twice, a number that is not a plain integer, a broken escape) is left to the full parser,
//! which accepts or explains it.
//!
//! Invariant: what is read here is what the full parser reads (`action::properties::both_parsers_agree`).

use std::borrow::Cow;

use super::file_line::{FileLine, Texts};
use crate::json::{Escapes, Quoted, Scanner, unescape, unquote};

/// Kinds of file actions that are read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Add,
    Remove,
}

/// Memory that is used again for each line.
#[derive(Default)]
pub(super) struct Scratch<'a> {
    /// Entries of a map.
    entries: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>,
    text: String,
}

impl<'a> Scratch<'a> {
    /// Takes back the memory of a line that is no longer needed.
    pub(super) fn take_back(&mut self, line: FileLine<'a>) {
        if let Some(Texts(entries)) = line.partition_values {
            self.entries = entries;
        }
    }
}

/// The file action of a line, if it has the usual form.
pub(super) fn file_action<'a>(line: &'a str, scratch: &mut Scratch<'a>) -> Option<(Kind, FileLine<'a>)> {
    let (kind, inside) = match line.strip_prefix("{\"add\":") {
        Some(inside) => (Kind::Add, inside),
        None => (Kind::Remove, line.strip_prefix("{\"remove\":")?),
    };
    let mut json = Scanner::new(inside);
    let action = members(&mut json, scratch)?;
    // The line's own object ends here.
    json.key(false)?.is_none().then_some(())?;
    json.is_at_end().then_some((kind, action))
}

fn members<'a>(json: &mut Scanner<'a>, scratch: &mut Scratch<'a>) -> Option<FileLine<'a>> {
    json.open()?;
    let mut action = FileLine::default();
    let (mut seen, mut first) = (0_u16, true);
    while let Some(key) = json.key(first)? {
        first = false;
        let Some(member) = number_of(&key) else {
            json.value()?;
            continue;
        };
        (seen & (1 << member) == 0).then(|| seen |= 1 << member)?;
        if json.peek()? == b'n' {
            // No file has no path.
            (json.value()? == "null" && member != PATH).then_some(())?;
            continue;
        }
        match member {
            PATH => action.path = json.string()?.text()?,
            1 => action.partition_values = Some(texts(json, std::mem::take(&mut scratch.entries))?),
            2 => action.size = Some(integer(json.value()?)?),
            3 => action.modification_time = Some(integer(json.value()?)?),
            4 => action.data_change = Some(json.value()?.parse().ok()?),
            5 => action.quoted_stats = Some(sound(json.string()?, &mut scratch.text)?),
            6 => action.deletion_timestamp = Some(integer(json.value()?)?),
            7 => action.extended_file_metadata = Some(json.value()?.parse().ok()?),
            8 => action.tags = Some(texts(json, Vec::new())?),
            9 => action.deletion_vector = Some(serde_json::from_str(json.value()?).ok()?),
            10 => action.base_row_id = Some(integer(json.value()?)?),
            11 => action.default_row_commit_version = Some(integer(json.value()?)?),
            _ => action.clustering_provider = Some(json.string()?.text()?),
        }
    }
    (seen & 1 << PATH != 0).then_some(action)
}

const PATH: u8 = 0;

fn number_of(member: &str) -> Option<u8> {
    Some(match member {
        "path" => PATH,
        "partitionValues" => 1,
        "size" => 2,
        "modificationTime" => 3,
        "dataChange" => 4,
        "stats" => 5,
        "deletionTimestamp" => 6,
        "extendedFileMetadata" => 7,
        "tags" => 8,
        "deletionVector" => 9,
        "baseRowId" => 10,
        "defaultRowCommitVersion" => 11,
        "clusteringProvider" => 12,
        _ => return None,
    })
}

/// A string as written, if its escapes are valid; a string whose only escapes are quotes always is.
fn sound<'a>(string: Quoted<'a>, scratch: &mut String) -> Option<&'a str> {
    if string.escapes == Escapes::Others {
        unescape(string.literal, scratch)?;
    }
    Some(string.literal)
}

fn integer(value: &str) -> Option<i64> {
    // JSON has no plus sign.
    value.parse().ok().filter(|_| !value.starts_with('+'))
}

/// A map of strings, in memory that has been used before.
fn texts<'a>(json: &mut Scanner<'a>, mut entries: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>) -> Option<Texts<'a>> {
    entries.clear();
    json.open()?;
    let mut first = true;
    while let Some(key) = json.key(first)? {
        first = false;
        let value = match json.value()? {
            "null" => None,
            value => Some(unquote(value)?),
        };
        entries.push((key, value));
    }
    Some(Texts(entries))
}
