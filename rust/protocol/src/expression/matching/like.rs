//! LIKE patterns: `%` is any string, `_` any one character, an escape makes the next character an ordinary one.
//!
//! A pattern is parsed once. Common forms run as Arrow kernels, others as a matcher that backtracks only to the
//! latest `%` and so needs no stack.

use arrow_array::{BooleanArray, Scalar as Datum, StringArray};
use arrow_string::like::{contains, ends_with, starts_with};

use crate::error::{Error, Result};

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// `_`
    AnyCharacter,
    /// `%`
    AnyString,
}

impl Pattern {
    /// The escape when none is written.
    pub const ESCAPE: char = '\\';

    /// Parses a pattern.
    ///
    /// # Errors
    /// `Invalid` if an escape stands before anything but `%`, `_` or itself.
    pub fn new(pattern: &str, escape: Option<char>) -> Result<Self> {
        let escape = escape.unwrap_or(Self::ESCAPE);
        let mut tokens: Vec<Token> = Vec::new();
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
                    if tokens.last() != Some(&Token::AnyString) {
                        tokens.push(Token::AnyString);
                    }
                    continue;
                }
                '_' => {
                    tokens.push(Token::AnyCharacter);
                    continue;
                }
                c => c,
            };
            match tokens.last_mut() {
                Some(Token::Literal(text)) => text.push(literal),
                _ => tokens.push(Token::Literal(literal.to_string())),
            }
        }
        Ok(Self { tokens })
    }

    /// The only text that matches, if there is only one.
    pub fn exact(&self) -> Option<&str> {
        match self.tokens.as_slice() {
            [] => Some(""),
            [Token::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether every text matches.
    pub fn is_any(&self) -> bool {
        self.tokens == [Token::AnyString]
    }

    /// The common beginning of all matching texts; may be empty.
    pub fn prefix(&self) -> &str {
        match self.tokens.first() {
            Some(Token::Literal(text)) => text,
            Some(Token::AnyCharacter | Token::AnyString) | None => "",
        }
    }

    /// Whether everything that begins with [`Pattern::prefix`] matches.
    pub fn is_prefix(&self) -> bool {
        matches!(self.tokens.as_slice(), [Token::Literal(_), Token::AnyString] | [Token::AnyString])
    }

    /// Whether `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to go on after the latest `%`, and how much of the text it has taken so far.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            let advanced = match self.tokens.get(part) {
                None if rest.is_empty() => return true,
                None => None,
                Some(Token::AnyString) => {
                    part += 1;
                    if part == self.tokens.len() {
                        return true;
                    }
                    retry = Some((part, at));
                    continue;
                }
                Some(Token::AnyCharacter) => rest.chars().next().map(char::len_utf8),
                Some(Token::Literal(expected)) => rest.starts_with(expected.as_str()).then_some(expected.len()),
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
        Ok(match self.tokens.as_slice() {
            [Token::Literal(text), Token::AnyString] => starts_with(texts, &datum(text))?,
            [Token::AnyString, Token::Literal(text)] => ends_with(texts, &datum(text))?,
            [Token::AnyString, Token::Literal(text), Token::AnyString] => contains(texts, &datum(text))?,
            _ => BooleanArray::from_unary(texts, |text| self.matches(text)),
        })
    }
}
