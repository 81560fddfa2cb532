//! File actions from lines of JSON, read in place.
//!
//! Most of a log is `add` and `remove` lines of one shape. They are walked once, members are taken as they stand and only
//! what has escapes is copied. Whatever is out of the ordinary (another first key, a member twice, a number that is no
//! plain integer, a broken escape) is left to the full parser, which accepts or explains it.
//!
//! Invariant: what is read here is what the full parser reads (`action::properties::both_parsers_agree`).

use std::borrow::Cow;

use super::json::{FileLine, Texts};
use crate::json::{Scanner, unescape, unquote};

/// Kinds of file actions that are read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Add,
    Remove,
}

/// The file action of a line, if it is one of the ordinary shape. `scratch` holds the statistics.
pub(super) fn file_action<'a>(line: &'a str, scratch: &'a mut String) -> Option<(Kind, FileLine<'a>)> {
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

fn members<'a>(json: &mut Scanner<'a>, scratch: &'a mut String) -> Option<FileLine<'a>> {
    const MEMBERS: [&str; 13] = [
        "path",
        "partitionValues",
        "size",
        "modificationTime",
        "dataChange",
        "stats",
        "deletionTimestamp",
        "extendedFileMetadata",
        "tags",
        "deletionVector",
        "baseRowId",
        "defaultRowCommitVersion",
        "clusteringProvider",
    ];
    json.open()?;
    let mut action = FileLine::default();
    let (mut seen, mut stats, mut first) = (0_u16, None, true);
    while let Some(key) = json.key(first)? {
        first = false;
        let value = json.value()?;
        let Some(member) = MEMBERS.iter().position(|member| *member == key) else { continue };
        (seen & (1 << member) == 0).then(|| seen |= 1 << member)?;
        if value == "null" {
            // No file has no path.
            (member > 0).then_some(())?;
            continue;
        }
        match member {
            0 => action.path = unquote(value)?,
            1 => action.partition_values = Some(texts(value)?),
            2 => action.size = Some(integer(value)?),
            3 => action.modification_time = Some(integer(value)?),
            4 => action.data_change = Some(value.parse().ok()?),
            5 => stats = Some(value),
            6 => action.deletion_timestamp = Some(integer(value)?),
            7 => action.extended_file_metadata = Some(value.parse().ok()?),
            8 => action.tags = Some(texts(value)?),
            9 => action.deletion_vector = Some(serde_json::from_str(value).ok()?),
            10 => action.base_row_id = Some(integer(value)?),
            11 => action.default_row_commit_version = Some(integer(value)?),
            _ => action.clustering_provider = Some(unquote(value)?),
        }
    }
    if let Some(stats) = stats {
        unescape(stats, scratch)?;
        action.stats = Some(Cow::Borrowed(scratch.as_str()));
    }
    (seen & 1 == 1).then_some(action)
}

fn integer(value: &str) -> Option<i64> {
    // JSON has no plus sign.
    value.parse().ok().filter(|_| !value.starts_with('+'))
}

fn texts(value: &str) -> Option<Texts<'_>> {
    let mut json = Scanner::new(value);
    json.open()?;
    let (mut entries, mut first) = (Vec::new(), true);
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
