//! Regular expressions that mean the same in Java and in Rust.
//!
//! RLIKE needs only whether there is a match. Functions that need its position accept fewer: repeating a part that may be
//! empty is refused, since Java and Rust differ in its groups, and a `$` before a line break at the end is an error of the
//! row.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Captures, Regex};
use regex_syntax::hir::{Hir, HirKind};

use crate::error::{Error, Result};

/// A compiled regular expression, for whether there is a match.
#[derive(Debug, Clone)]
pub(crate) struct Regular {
    compiled: Regex,
}

impl PartialEq for Regular {
    fn eq(&self, other: &Self) -> bool {
        self.compiled.as_str() == other.compiled.as_str()
    }
}

impl Regular {
    /// Whether some part of the text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }
}

/// A compiled regular expression, for the positions of matches.
#[derive(Debug)]
pub(crate) struct Spans {
    compiled: Regex,
    /// Whether there is a `$`.
    has_end: bool,
}

const LINE_ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

impl Spans {
    fn check(&self, text: &str) -> Result<(), String> {
        match self.has_end && text.ends_with(LINE_ENDS) {
            true => Err("a `$` of a regular expression stands before the line break at the end of the string, too, \
                         which is not supported; remove the line break, as rtrim does, or the `$`"
                .to_owned()),
            false => Ok(()),
        }
    }

    /// A group of the first match: empty if it is not part of it, `None` without a match.
    ///
    /// # Errors
    /// If there is a match and no such group.
    pub(crate) fn first<'t>(&self, text: &'t str, group: i32) -> Result<Option<&'t str>, String> {
        self.check(text)?;
        let Some(found) = self.compiled.captures(text) else { return Ok(None) };
        match usize::try_from(group) {
            Ok(at) if at < found.len() => Ok(Some(found.get(at).map_or("", |part| part.as_str()))),
            _ => Err(format!("the regular expression has {} groups, and no group {group}", found.len() - 1)),
        }
    }

    /// Every match. As in Java, and unlike in Rust, an empty match may directly follow another match.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(crate) fn each(
        &self,
        text: &str,
        visit: &mut dyn FnMut(&Captures<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.check(text)?;
        let mut at = 0;
        while let Some(found) = self.compiled.captures_at(text, at) {
            visit(&found)?;
            let Some(all) = found.get(0) else { return Ok(()) };
            at = all.end();
            if all.is_empty() {
                match text.get(at..).and_then(|rest| rest.chars().next()) {
                    None => return Ok(()),
                    // In Java it is two characters, and there may be a match between them.
                    Some(c) if c.len_utf16() > 1 => {
                        return Err(format!(
                            "a regular expression matches nothing before {c:?}, which is not supported"
                        ));
                    }
                    Some(c) => at += c.len_utf8(),
                }
            }
        }
        Ok(())
    }
}

/// Writes the replacement of a match: `$1` is a group, a backslash makes the next character an ordinary one.
///
/// # Errors
/// If there is no such group.
pub(crate) fn expand(replacement: &str, found: &Captures<'_>, made: &mut String) -> Result<(), String> {
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => made.push(chars.next().ok_or("a replacement ends in a backslash")?),
            '$' => {
                let mut next_digit = |most: Option<usize>| {
                    let digit = chars.peek().and_then(|c| c.to_digit(10))? as usize;
                    let group = most.map_or(digit, |group| group.saturating_mul(10).saturating_add(digit));
                    if most.is_some() && group >= found.len() {
                        return None;
                    }
                    chars.next();
                    Some(group)
                };
                let mut group = next_digit(None).ok_or("a `$` of a replacement stands before no number of a group")?;
                while let Some(longer) = next_digit(Some(group)) {
                    group = longer;
                }
                if group >= found.len() {
                    return Err(format!("the replacement names group {group}, and there are {}", found.len() - 1));
                }
                made.push_str(found.get(group).map_or("", |part| part.as_str()));
            }
            c => made.push(c),
        }
    }
    Ok(())
}

/// Compiles a regular expression.
///
/// # Errors
/// `Invalid` if it is none, or if only Java has its syntax, such as look-around and back references.
pub(crate) fn compile(pattern: &str) -> Result<Regular> {
    // Java's `$` also matches before a line break at the end.
    let java = translated(pattern, r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z")?;
    Ok(Regular { compiled: built(&java.text)? })
}

/// Compiles a regular expression of which the positions of matches are needed.
///
/// # Errors
/// As [`compile`]; also if it repeats a part that may be empty.
pub(crate) fn compile_spans(pattern: &str) -> Result<Spans> {
    let java = translated(pattern, r"\z")?;
    let compiled = built(&java.text)?;
    let tree = regex_syntax::parse(&java.text).map_err(|e| refused(&e.to_string()))?;
    if repeats_nothing(&tree) {
        return Err(refused("it repeats a part that may be empty"));
    }
    Ok(Spans { compiled, has_end: java.has_end })
}

fn repeats_nothing(tree: &Hir) -> bool {
    match tree.kind() {
        HirKind::Repetition(repetition) => {
            repetition.sub.properties().minimum_len() == Some(0) || repeats_nothing(&repetition.sub)
        }
        HirKind::Capture(capture) => repeats_nothing(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(repeats_nothing),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => false,
    }
}

fn refused(why: &str) -> Error {
    Error::invalid(format!("this regular expression is not supported: {why}"))
}

fn built(java: &str) -> Result<Regex> {
    let built = regex::RegexBuilder::new(java).size_limit(1 << 20).build();
    built.map_err(|e| refused(e.to_string().lines().last().unwrap_or_default()))
}

/// A regular expression in Rust's terms.
struct Translated {
    text: String,
    has_end: bool,
}

/// The last item of an expression, as far as it decides whether a quantifier may follow.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Part,
    Quantifier,
    LazyQuantifier,
}

impl Last {
    /// The state after one more character. A quantifier of a quantifier means different things in Java and Rust.
    fn then(self, c: char) -> Result<Self> {
        match (self, c) {
            (Self::Part, '*' | '+' | '?') | (_, '}') => Ok(Self::Quantifier),
            (Self::Quantifier, '?') => Ok(Self::LazyQuantifier),
            (Self::Quantifier | Self::LazyQuantifier, '*' | '+' | '?' | '{') => {
                Err(refused(&format!("a quantifier stands before `{c}`; write a group")))
            }
            _ => Ok(Self::Part),
        }
    }
}

/// Java's expression in Rust's syntax; `end` replaces `$`.
fn translated(pattern: &str, end: &str) -> Result<Translated> {
    let mut translator = Translator {
        chars: pattern.chars().peekable(),
        java: Translated { text: String::new(), has_end: false },
        end,
        open_classes: 0,
        before: None,
        last: Last::Part,
        after_end: false,
    };
    while let Some(c) = translator.chars.next() {
        translator.translate(c)?;
    }
    Ok(translator.java)
}

/// The state between two characters of a pattern.
struct Translator<'p> {
    /// The characters that are left.
    chars: Peekable<Chars<'p>>,
    java: Translated,
    end: &'p str,
    /// How many character classes are open.
    open_classes: u32,
    /// The character before, unless it was escaped.
    before: Option<char>,
    last: Last,
    /// Whether only `)` followed the last `$`.
    after_end: bool,
}

impl Translator<'_> {
    fn translate(&mut self, c: char) -> Result<()> {
        if self.open_classes == 0 {
            self.last = self.last.then(c)?;
            // Java's `$` may be followed by a line break that it does not consume.
            if self.after_end && !matches!(c, ')' | '|') {
                return Err(refused("something follows a `$`"));
            }
            self.after_end = c == '$' || (self.after_end && c == ')');
        }
        if c == '\\' {
            self.escape()?;
        } else {
            self.check(c)?;
            self.write(c);
        }
        // An escaped bracket is an ordinary character.
        self.before = (c != '\\').then_some(c);
        Ok(())
    }

    /// Translates the character after a backslash.
    fn escape(&mut self) -> Result<()> {
        let escaped = self.chars.next().ok_or_else(|| refused("it ends in a backslash"))?;
        let text = &mut self.java.text;
        match escaped {
            // Java's classes have only ASCII.
            'd' => text.push_str("[0-9]"),
            'D' => text.push_str("[^0-9]"),
            'w' => text.push_str("[a-zA-Z0-9_]"),
            'W' => text.push_str("[^a-zA-Z0-9_]"),
            's' => text.push_str(r"[ \t\n\x0b\f\r]"),
            'S' => text.push_str(r"[^ \t\n\x0b\f\r]"),
            'n' | 'r' | 't' | 'f' => text.extend(['\\', escaped]),
            letter if letter.is_alphanumeric() => return Err(refused(&format!("it has `\\{letter}`"))),
            other => text.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
        Ok(())
    }

    /// Refuses what Java and Rust understand differently.
    fn check(&mut self, c: char) -> Result<()> {
        let following = self.chars.peek().copied();
        let is_in_class = self.open_classes > 0;
        match (c, following) {
            ('(', Some('?')) if !is_in_class && self.chars.clone().nth(1) == Some(':') => Ok(()),
            ('(', Some('?')) | ('+' | '*' | '?' | '}', Some('+')) => {
                Err(refused(&format!("it has `{c}{}`", following.unwrap_or_default())))
            }
            ('&', Some('&')) | ('-', Some('-')) | ('~', Some('~')) if is_in_class => {
                Err(refused(&format!("a class has `{c}{c}`")))
            }
            // Rust has named classes here, and a bracket that needs no backslash; Java has neither.
            ('[', Some(':')) if is_in_class => Err(refused("a class has `[:`")),
            (']', _) if self.before == Some('[') || (self.before == Some('^') && self.java.text.ends_with("[^")) => {
                Err(refused("a class begins with `]`; write `\\]`"))
            }
            ('{', Some(',')) if !is_in_class => Err(refused("it has `{,`; write `{0,`")),
            _ => Ok(()),
        }
    }

    /// Writes a character that is not escaped.
    fn write(&mut self, c: char) {
        let text = &mut self.java.text;
        match c {
            // Java's `.` knows more line ends.
            '.' if self.open_classes == 0 => text.push_str(r"[^\n\r\x{85}\x{2028}\x{2029}]"),
            '$' if self.open_classes == 0 => {
                self.java.has_end = true;
                text.push_str(self.end);
            }
            _ => {
                match c {
                    '[' => self.open_classes += 1,
                    ']' => self.open_classes = self.open_classes.saturating_sub(1),
                    _ => {}
                }
                text.push(c);
            }
        }
    }
}
