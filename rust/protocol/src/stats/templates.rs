//! Caches the byte layout of statistics JSON, so that strings with the same keys need no parsing.
//!
//! A writer serialises the statistics of all files in the same way. So the bytes between the values of one string (a template)
//! are compared with the next strings; if all are equal, the values are located without parsing. A string that fits no
//! template is parsed, and its template is learned, less and less often if that does not help.
//!
//! Invariant: for a string with a known template, the positions are those that parsing finds
//! (`stats_read::earlier_files_do_not_change_bounds`).

use super::spans::{Member, NUM_RECORDS, TIGHT_BOUNDS, Tree, ValueSpan, ValueSpans, number_of};
use crate::json::{Escapes, Scanner, end_of_plain, length_of_bare};

/// How many templates are kept: columns that are null in some files make further templates.
const MAX_TEMPLATES: usize = 4;
/// Maximum number of strings that are parsed before another template is learned.
const MAX_RETRY_AFTER: u32 = 255;
/// A string with more values or more levels has no template.
const MAX_VALUES: usize = 4096;
const MAX_LEVELS: usize = 64;

/// The templates of the last strings, the last one first.
#[derive(Default)]
pub(super) struct StatsTemplates {
    known: Vec<StatsTemplate>,
    /// Number of strings that are parsed before a template is tried or learned again.
    retry_after: u32,
    /// The previous such number.
    last_backoff: u32,
}

struct StatsTemplate {
    /// The bytes before each value, one after the other, then the bytes after the last value.
    literals: String,
    steps: Vec<Step>,
}

struct Step {
    /// Where the bytes before the value end in `literals`.
    until: usize,
    /// Its last bytes, to compare them at once.
    end: End,
    /// Which statistic the value is, if one is wanted.
    number: Option<usize>,
    is_quoted: bool,
}

impl StatsTemplates {
    /// Records the spans of the wanted values; `None` if the text has none of the templates. Some may be recorded even then.
    pub(super) fn find(&mut self, text: &str, spans: &mut ValueSpans) -> Option<()> {
        if self.retry_after > 0 {
            return None;
        }
        let at = self.known.iter().position(|template| {
            spans.clear();
            template.find(text, spans).is_some()
        })?;
        if let Some(templates) = self.known.get_mut(..=at) {
            templates.rotate_right(1);
        }
        self.last_backoff = 0;
        Some(())
    }

    /// Learns the template of a well-formed string that has none of the known templates.
    pub(super) fn learn(&mut self, json: Scanner<'_>, tree: &Tree) {
        if self.retry_after > 0 {
            self.retry_after -= 1;
            return;
        }
        self.last_backoff = (2 * self.last_backoff + 1).min(MAX_RETRY_AFTER);
        self.retry_after = self.last_backoff / 2;
        if let Some(template) = StatsTemplate::of(json, tree) {
            self.known.truncate(MAX_TEMPLATES - 1);
            self.known.insert(0, template);
        }
    }
}

impl StatsTemplate {
    /// `None` if the string has a value that parsing would decide by more than its position.
    fn of(mut json: Scanner<'_>, tree: &Tree) -> Option<Self> {
        let text = json.text();
        let mut template = Self { literals: String::new(), steps: Vec::new() };
        let mut from = 0;
        template.learn(&mut json, &mut from, Below::File(tree), MAX_LEVELS)?;
        template.literals.push_str(text.get(from..)?);
        Some(template)
    }

    /// The members of an object; `from` is where the last value ended.
    fn learn(&mut self, json: &mut Scanner<'_>, from: &mut usize, within: Below<'_>, levels: usize) -> Option<()> {
        json.open()?;
        let mut first = true;
        while let Some(key) = json.key(first)? {
            first = false;
            let below = within.child(&key);
            if json.peek()? == b'{' {
                // An object in place of a value has no template.
                (!matches!(below, Below::Value(_)) && levels > 0).then_some(())?;
                self.learn(json, from, below, levels - 1)?;
                continue;
            }
            let value = json.quoted_or_not()?;
            let is_quoted = value.literal.starts_with('"');
            let is_plain = value.escapes == Escapes::None
                && (is_quoted || length_of_bare(value.literal.as_bytes()) == value.literal.len());
            let number = match below {
                Below::Value(number) => Some(number),
                Below::Nothing => None,
                Below::File(_) | Below::Member(..) => return None,
            };
            let is_second = number.is_some() && self.steps.iter().any(|step| step.number == number);
            (is_plain && !is_second && self.steps.len() < MAX_VALUES).then_some(())?;
            let quote = usize::from(is_quoted);
            let literal = json.text().get(*from..value.start + quote)?;
            self.literals.push_str(literal);
            self.steps.push(Step { until: self.literals.len(), end: End::of(literal.as_bytes()), number, is_quoted });
            *from = value.start + value.literal.len() - quote;
        }
        Some(())
    }

    fn find(&self, text: &str, spans: &mut ValueSpans) -> Option<()> {
        let (bytes, literals) = (text.as_bytes(), self.literals.as_bytes());
        let (mut at, mut from) = (0, 0);
        for step in &self.steps {
            let literal = literals.get(from..step.until)?;
            at += literal.len();
            from = step.until;
            step.end.is_of(literal, bytes.get(..at)?).then_some(())?;
            let value = bytes.get(at..)?;
            let span = if step.is_quoted {
                let length = end_of_plain(value)?;
                at += length;
                // Its quotes, escaped or not, belong to the literals around it.
                ValueSpan::plain(at - length - 1, length + 2)
            } else {
                let length = Some(length_of_bare(value)).filter(|length| *length > 0)?;
                at += length;
                if value.get(..length) == Some(b"null") {
                    continue;
                }
                ValueSpan::plain(at - length, length)
            };
            if let Some(number) = step.number {
                spans.put(number, span);
            }
        }
        (bytes.get(at..) == literals.get(from..)).then_some(())
    }
}

/// The kind of an object's members.
#[derive(Clone, Copy)]
enum Below<'t> {
    File(&'t Tree),
    Member(&'t Tree, Member),
    /// The statistic of this number.
    Value(usize),
    /// Members that are not wanted.
    Nothing,
}

impl<'t> Below<'t> {
    fn child(self, key: &str) -> Self {
        match self {
            Self::File(tree) => match (key, Member::of(key)) {
                (_, Some(member)) => Self::Member(tree, member),
                ("numRecords", None) => Self::Value(NUM_RECORDS),
                ("tightBounds", None) => Self::Value(TIGHT_BOUNDS),
                (_, None) => Self::Nothing,
            },
            Self::Member(tree, member) => match tree.child(key).map(|tree| (tree, tree.leaf)) {
                Some((_, Some(leaf))) => Self::Value(number_of(leaf, member)),
                Some((tree, None)) => Self::Member(tree, member),
                None => Self::Nothing,
            },
            Self::Value(_) | Self::Nothing => Self::Nothing,
        }
    }
}

/// The end of a string: its last sixteen bytes, or all of them if it is shorter.
struct End {
    bytes: u128,
    mask: u128,
}

impl End {
    fn of(literal: &[u8]) -> Self {
        let (mut bytes, mut mask) = (0, 0);
        for byte in literal.iter().rev().take(size_of::<u128>()).rev() {
            bytes = bytes >> 8 | u128::from(*byte) << 120;
            mask = mask >> 8 | 0xff << 120;
        }
        Self { bytes, mask }
    }

    /// Whether a text ends with this literal. Most literals are short, and there is one before each value.
    fn is_of(&self, literal: &[u8], text: &[u8]) -> bool {
        let last = text.last_chunk().map(|last| (u128::from_le_bytes(*last) ^ self.bytes) & self.mask);
        last.is_none_or(|last| last == 0)
            && (last.is_some() && literal.len() <= size_of::<u128>() || ends_with(text, literal))
    }
}

/// Kept out of line, because it is seldom called.
#[cold]
fn ends_with(text: &[u8], literal: &[u8]) -> bool {
    text.ends_with(literal)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::leaf::Leaf;
    use super::*;
    use crate::schema::PrimitiveType;

    /// What is found of `a` and `s.b` in `text` once the template of `first` is known: `None` where that is not its template.
    fn found(first: &str, text: &str) -> Option<String> {
        let leaf = |path: &[&str]| Leaf {
            path: path.iter().map(|name| (*name).to_owned()).collect(),
            data_type: PrimitiveType::Long,
            was_float: false,
        };
        let leaves = [leaf(&["a"]), leaf(&["s", "b"])];
        let (mut templates, mut spans) = (StatsTemplates::default(), ValueSpans::new(leaves.len(), 1));
        templates.learn(Scanner::new(first), &Tree::new(&leaves));
        templates.find(text, &mut spans)?;
        let value = |number| spans.values(number, &[text]).flatten().find_map(|found| found.quoted());
        let value = |number| value(number).map_or("-", |value| value.literal);
        Some((0..8).map(value).collect::<Vec<_>>().join(" "))
    }

    const FIRST: &str = r#"{"numRecords":5,"minValues":{"x":"y","a":1,"s":{"b":2}},"nullCount":{"a":0}}"#;

    #[test]
    fn values_are_found_between_what_is_known() {
        let text = r#"{"numRecords":60,"minValues":{"x":"","a":-1.5,"s":{"b":null}},"nullCount":{"a":12}}"#;
        assert_eq!(found(FIRST, text).unwrap(), "60 - -1.5 - 12 - - -");
        assert_eq!(found(FIRST, FIRST).unwrap(), "5 - 1 - 0 2 - -");
    }

    #[test]
    fn inside_of_a_string_too() {
        let inside = |text: &str| text.replace('"', "\\\"");
        let (first, text) = (inside(FIRST), inside(&FIRST.replace("\"y\"", "\"other\"").replace(":1", ":17")));
        let leaves = [Leaf { path: vec!["x".to_owned()], data_type: PrimitiveType::String, was_float: false }];
        let (mut templates, mut spans) = (StatsTemplates::default(), ValueSpans::new(1, 1));
        templates.learn(Scanner::of_inside(&first).unwrap(), &Tree::new(&leaves));
        templates.find(&text, &mut spans).unwrap();
        let value = spans.values(number_of(0, Member::Min), &[&text]).next().unwrap().unwrap().quoted().unwrap();
        assert_eq!((value.literal, value.text().unwrap().as_ref()), ("\"other\\", "other"));
    }

    #[test]
    fn other_templates_are_not_found() {
        for (from, to) in [
            ("\"y\"", "null"),
            ("\"y\"", r#""a\"b""#),
            (":1", ":[1]"),
            (":1", ": 1"),
            (":1", ":"),
            ("\"a\":0", ""),
            ("}}", "}} "),
            ("\"b\"", "\"c\""),
            ("}}", "}"),
        ] {
            assert_eq!(found(FIRST, &FIRST.replacen(from, to, 1)), None, "{from} is {to}");
        }
    }

    #[test]
    fn what_is_judged_by_more_than_its_position_has_no_template() {
        for text in [
            r#"{"numRecords":{}}"#,
            r#"{"minValues":1}"#,
            r#"{"minValues":{"s":1}}"#,
            r#"{"minValues":{"a":{}}}"#,
            r#"{"x":[]}"#,
            r#"{"x":"a\"b"}"#,
            r#"{"numRecords":1,"numRecords":1}"#,
            r#"{"x":1"#,
        ] {
            assert_eq!(found(text, text), None, "{text}");
        }
    }
}
