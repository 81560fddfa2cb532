//! Reading JSON in place: no tree, no copy, no recursion.
//!
//! A [`Scanner`] reads the members of objects. Unwanted values are skipped by their brackets and quotes alone, many
//! bytes at a time. Values are returned as JSON for the caller to parse. Skipping a value shows only that it ends, not
//! that it is well-formed; a caller that needs that must parse it.
//!
//! Invariants: never reads past the end; takes linear time, whatever the nesting.

mod blocks;

use std::borrow::Cow;

pub(crate) use self::blocks::{Escapes, end_of_plain, length_of_bare};
use self::blocks::{behind_bracket, end_of_string, is_plain_inside, next_quote, without_escapes};

/// A position in a JSON text. If a method returns `None`, the text does not have the expected form; stop then.
#[derive(Debug, Clone)]
pub struct Scanner<'t> {
    text: &'t str,
    at: usize,
    /// Whether the text is the inside of a JSON string, so that each quote has a backslash before it.
    is_inside: bool,
}

/// A string or another value as written, with its quotes; inside a JSON string, without the backslash of the last quote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quoted<'t> {
    pub(crate) literal: &'t str,
    /// Its position in the scanned text.
    pub(crate) start: usize,
    pub(crate) escapes: Escapes,
}

/// A key that needs no escapes, as written, with its quotes and the colon.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    plain: String,
    /// The key as written inside a JSON string.
    inside: String,
}

impl Key {
    /// `None` if the key needs escapes.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let has_escapes = name.bytes().any(|b| matches!(b, b'"' | b'\\') || b < b' ');
        (!has_escapes).then(|| Self { plain: format!("\"{name}\":"), inside: format!("\\\"{name}\\\":") })
    }
}

impl<'t> Scanner<'t> {
    /// A scanner at the beginning of a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0, is_inside: false }
    }

    /// A scanner at the beginning of the value of a JSON string, given the inside of the string; `None` if that must be
    /// unescaped to be read.
    pub(crate) fn of_inside(inside: &'t str) -> Option<Self> {
        is_plain_inside(inside.as_bytes()).then_some(Self { text: inside, at: 0, is_inside: true })
    }

    /// The text that positions refer to.
    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    /// Steps into an object.
    pub fn open(&mut self) -> Option<()> {
        (self.peek()? == b'{').then(|| self.at += 1)
    }

    /// The key of the next member; its value is read next. `Some(None)` after the last member; then the object is left.
    pub fn key(&mut self, first: bool) -> Option<Option<Cow<'t, str>>> {
        match self.peek()? {
            b'}' => {
                self.at += 1;
                return Some(None);
            }
            b',' if !first => {
                self.at += 1;
                self.peek()?;
            }
            _ if !first => return None,
            _ => {}
        }
        let key = self.string()?.text()?;
        (self.peek()? == b':').then(|| self.at += 1)?;
        Some(Some(key))
    }

    /// Skips the key of the next member if it is `key` without spaces around it; otherwise does nothing.
    pub(crate) fn skip_key(&mut self, first: bool, key: &Key) -> bool {
        let literal = if self.is_inside { &key.inside } else { &key.plain };
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let member = if first { Some(rest) } else { rest.strip_prefix(b",") };
        let found = member.is_some_and(|member| member.starts_with(literal.as_bytes()));
        if found {
            self.at += usize::from(!first) + literal.len();
        }
        found
    }

    /// The next value, which is a string.
    pub(crate) fn string(&mut self) -> Option<Quoted<'t>> {
        if self.is_inside {
            return self.string_inside();
        }
        (self.peek()? == b'"').then_some(())?;
        let (end, escapes) = end_of_string(self.text.as_bytes(), self.at + 1)?;
        let start = self.at;
        self.at = end + 1;
        Some(Quoted { literal: self.text.get(start..=end)?, start, escapes })
    }

    /// The next value, which is a string between quotes with backslashes.
    fn string_inside(&mut self) -> Option<Quoted<'t>> {
        (self.peek()? == b'\\').then_some(())?;
        let start = self.at + 1;
        let end = next_quote(self.text.as_bytes(), start + 1)?;
        self.at = end + 1;
        Some(Quoted { literal: self.text.get(start..end)?, start, escapes: Escapes::None })
    }

    /// The text of the next value, with its quotes or brackets.
    pub fn value(&mut self) -> Option<&'t str> {
        self.quoted_or_not().map(|value| value.literal)
    }

    /// The next value as written, with the escapes of a string.
    pub(crate) fn quoted_or_not(&mut self) -> Option<Quoted<'t>> {
        let first = self.peek()?;
        if first == b'"' || (first == b'\\' && self.is_inside) {
            return self.string();
        }
        let start = self.at;
        match first {
            b'{' => self.step_over(b'{', b'}')?,
            b'[' => self.step_over(b'[', b']')?,
            _ => {
                let rest = self.text.as_bytes().get(start..)?;
                let end = rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'));
                self.at += end.unwrap_or(rest.len());
            }
        }
        let literal = self.text.get(start..self.at).filter(|literal| !literal.is_empty())?;
        Some(Quoted { literal, start, escapes: Escapes::None })
    }

    /// Leaves the object whose members are being read.
    pub fn leave(&mut self) -> Option<()> {
        self.close(b'{', b'}')
    }

    /// Whether nothing but space is left.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Whether the text ends as an object does.
    pub(crate) fn ends_with_bracket(&self) -> bool {
        self.text.ends_with('}')
    }

    /// The next byte that is not a space.
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                other => return Some(*other),
            }
        }
        None
    }

    fn step_over(&mut self, open: u8, close: u8) -> Option<()> {
        self.at += 1;
        self.close(open, close)
    }

    /// Goes to the position after the bracket that closes the open one. Other pairs of its kind and strings are skipped.
    fn close(&mut self, open: u8, close: u8) -> Option<()> {
        self.at = behind_bracket(self.text.as_bytes(), self.at, open, close, self.is_inside)?;
        Some(())
    }
}

impl<'t> Quoted<'t> {
    /// Its value; `None` if its escapes are invalid.
    pub(crate) fn text(&self) -> Option<Cow<'t, str>> {
        match self.escapes {
            Escapes::None => match self.literal.strip_prefix('"') {
                Some(rest) => rest.get(..rest.len().checked_sub(1)?).map(Cow::Borrowed),
                None => Some(Cow::Borrowed(self.literal)),
            },
            Escapes::Quotes | Escapes::Others => unquote(self.literal),
        }
    }
}

/// Puts the value of a quoted string into `out`, replacing its contents; `None` if its escapes are invalid, or it is not
/// quoted.
pub fn unescape(quoted: &str, out: &mut String) -> Option<()> {
    let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !without_escapes(inside, out) {
        *out = serde_json::from_str(quoted).ok()?;
    }
    Some(())
}

/// The value of a quoted string; `None` if its escapes are invalid, or it is not quoted.
pub fn unquote(quoted: &str) -> Option<Cow<'_, str>> {
    let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}
