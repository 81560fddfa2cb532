//! LIKE patterns: `%` is any string, `_` any one character, an escape takes the meaning from the one after it.
//!
//! A pattern is split once; common shapes run as Arrow kernels, the rest as a matcher that backtracks only to the
//! latest `%` and so needs no stack.

use arrow_array::{BooleanArray, Scalar as Datum, StringArray};
use arrow_string::like::{contains, ends_with, starts_with};

use crate::error::{Error, Result};

/// A pattern ready to match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    One,
    Many,
}

impl Pattern {
    /// The escape when none is written.
    pub const ESCAPE: char = '\\';

    /// Splits a pattern.
    ///
    /// # Errors
    /// `Invalid` if an escape stands before anything but `%`, `_` or itself.
    pub fn new(pattern: &str, escape: Option<char>) -> Result<Self> {
        let escape = escape.unwrap_or(Self::ESCAPE);
        let mut parts: Vec<Part> = Vec::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            let literal = match c {
                c if c == escape => match chars.next() {
                    Some(escaped) if escaped == escape || escaped == '%' || escaped == '_' => escaped,
                    Some(_) | None => {
                        return Err(Error::invalid(format!(
                            "in a pattern the escape `{escape}` must stand before `%`, `_` or itself; \
                             double it, or choose another one with ESCAPE"
                        )));
                    }
                },
                '%' => {
                    if parts.last() != Some(&Part::Many) {
                        parts.push(Part::Many);
                    }
                    continue;
                }
                '_' => {
                    parts.push(Part::One);
                    continue;
                }
                c => c,
            };
            match parts.last_mut() {
                Some(Part::Text(text)) => text.push(literal),
                _ => parts.push(Part::Text(literal.to_string())),
            }
        }
        Ok(Self { parts })
    }

    /// The only text that matches, if there is only one.
    pub fn exact(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether every text matches.
    pub fn is_any(&self) -> bool {
        self.parts == [Part::Many]
    }

    /// What every matching text begins with; empty if nothing in particular.
    pub fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            Some(Part::One | Part::Many) | None => "",
        }
    }

    /// Whether everything that begins with [`Pattern::prefix`] matches.
    pub fn is_prefix(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::Text(_), Part::Many] | [Part::Many])
    }

    /// Whether `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to go on after the latest `%`, and how much of the text it has taken so far.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            let advanced = match self.parts.get(part) {
                None if rest.is_empty() => return true,
                None => None,
                Some(Part::Many) => {
                    part += 1;
                    if part == self.parts.len() {
                        return true;
                    }
                    retry = Some((part, at));
                    continue;
                }
                Some(Part::One) => rest.chars().next().map(char::len_utf8),
                Some(Part::Text(expected)) => rest.starts_with(expected.as_str()).then_some(expected.len()),
            };
            match (advanced, retry) {
                (Some(length), _) => {
                    part += 1;
                    at += length;
                }
                (None, Some((after, taken))) => {
                    let Some(skipped) = text.get(taken..).and_then(|rest| rest.chars().next()) else { return false };
                    let taken = taken + skipped.len_utf8();
                    retry = Some((after, taken));
                    (part, at) = (after, taken);
                }
                (None, None) => return false,
            }
        }
    }

    /// [`Pattern::matches`] for every row; NULL for NULL.
    pub(crate) fn matches_all(&self, texts: &StringArray) -> Result<BooleanArray> {
        let datum = |text: &str| Datum::new(StringArray::from_iter_values([text]));
        Ok(match self.parts.as_slice() {
            [Part::Text(text), Part::Many] => starts_with(texts, &datum(text))?,
            [Part::Many, Part::Text(text)] => ends_with(texts, &datum(text))?,
            [Part::Many, Part::Text(text), Part::Many] => contains(texts, &datum(text))?,
            _ => BooleanArray::from_unary(texts, |text| self.matches(text)),
        })
    }
}
