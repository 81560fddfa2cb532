//! Splits a text into tokens, one at a time, without storing them.
//!
//! It knows nothing of grammar. In filters the only escape of a string is the doubled quote; in SQL of a table's
//! metadata a string has Spark's escapes. Positions are byte offsets at character boundaries; [`error_at`] makes a message
//! of one, with the surrounding text and a caret.

use super::hint;
use crate::error::{Error, Result};

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    /// A keyword or an unquoted name part.
    Word(&'a str),
    /// A name part in back-ticks, or a filter's in double quotes, without them.
    Quoted(String),
    /// A string literal, without its quotes.
    Text(String),
    /// An unsigned number as spelled, with its suffix.
    Number(&'a str),
    /// Punctuation or an operator.
    Symbol(&'static str),
    /// After the last one.
    End,
}

/// Where the text is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// A caller's filter.
    Filter,
    /// A caller's value or condition of an UPDATE or MERGE, with the strings of a filter.
    Value,
    /// An expression of a table's metadata.
    Sql,
}

impl Dialect {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Value | Self::Sql => "expression",
        }
    }
}

/// Reads tokens from a string.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

/// Longest first, so that `<=>` is not read as `<=` and `>`.
const SYMBOLS: [&str; 21] =
    ["<=>", "==", "<>", "!=", "<=", ">=", "||", "::", "=", "<", ">", "(", ")", ",", ".", "-", "+", "!", "*", "/", "%"];
/// How much text an error message shows on either side of the place.
const WINDOW: usize = 40;

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect) -> Self {
        Self { text, at: 0, dialect }
    }

    /// The token that follows, with the offsets of its beginning and its end.
    pub(super) fn token(&mut self) -> Result<(Token<'a>, usize, usize)> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, start, start)) };
        let second = rest.chars().nth(1);
        let token = match first {
            '\'' => Token::Text(self.quoted('\'', "a string")?),
            '`' => Token::Quoted(self.quoted('`', "a name")?),
            // As in Spark with its default settings.
            '"' if self.dialect == Dialect::Sql => Token::Text(self.quoted('"', "a string")?),
            '"' => Token::Quoted(self.quoted('"', "a name")?),
            c if c.is_ascii_digit() || (c == '.' && second.is_some_and(|d| d.is_ascii_digit())) => {
                Token::Number(self.number()?)
            }
            c if c.is_alphabetic() || c == '_' => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                Token::Word(self.take(end))
            }
            c => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) if rest.starts_with("--") => {
                    return Err(
                        self.error(start, format!("`{symbol}{symbol}` starts a comment, which is not supported"))
                    );
                }
                Some(symbol) => {
                    self.at += symbol.len();
                    Token::Symbol(symbol)
                }
                None => return Err(self.error(start, hint::character(c))),
            },
        };
        Ok((token, start, self.at))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = self.rest().get(..length).unwrap_or_default();
        self.at += taken.len();
        taken
    }

    /// The text up to the closing quote; a doubled quote means one quote.
    fn quoted(&mut self, quote: char, what: &str) -> Result<String> {
        let start = self.at;
        self.at += quote.len_utf8();
        let mut content = String::new();
        loop {
            let escapes = quote != '`' && self.dialect == Dialect::Sql;
            let Some(length) = self.rest().find(|c| c == quote || (escapes && c == '\\')) else {
                let doubled = if quote == '\'' { format!("; {}", hint::DOUBLED) } else { String::new() };
                return Err(self.error(start, format!("the quote that begins {what} here is never closed{doubled}")));
            };
            content.push_str(self.take(length));
            if escapes && self.rest().starts_with('\\') {
                self.escape(&mut content);
                continue;
            }
            self.at += quote.len_utf8();
            if !self.rest().starts_with(quote) {
                return Ok(content);
            }
            self.at += quote.len_utf8();
            content.push(quote);
        }
    }

    /// One escape as Spark reads it: `\n` and similar ones, octal and Unicode numbers; `\%` and `\_` stay as they are.
    fn escape(&mut self, content: &mut String) {
        self.take(1);
        let rest = self.rest();
        let Some(c) = rest.chars().next() else { return content.push('\\') };
        let code = |from: usize, to: usize, radix: u32| {
            let digits = rest.get(from..to).filter(|digits| digits.chars().all(|c| c.is_digit(radix)))?;
            char::from_u32(u32::from_str_radix(digits, radix).ok()?).map(|c| (c, to))
        };
        let unit = |from: usize| rest.get(from..from + 4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
        // Two halves of a character, as Java has it.
        let halves = || {
            let second = rest.get(5..7).filter(|next| *next == "\\u").and_then(|_| unit(7))?;
            let c = char::decode_utf16([unit(1)?, second]).next()?.ok()?;
            (c.len_utf16() == 2).then_some((c, 11))
        };
        let numbered = match c {
            'u' => code(1, 5, 16).or_else(halves),
            'U' => code(1, 9, 16),
            '0' | '1' => code(0, 3, 8),
            _ => None,
        };
        if let Some((c, length)) = numbered {
            content.push(c);
            self.take(length);
            return;
        }
        match c {
            '0' => content.push('\0'),
            'b' => content.push('\u{8}'),
            'n' => content.push('\n'),
            'r' => content.push('\r'),
            't' => content.push('\t'),
            'Z' => content.push('\u{1a}'),
            '%' | '_' => content.extend(['\\', c]),
            c => content.push(c),
        }
        self.take(c.len_utf8());
    }

    /// Digits, a point, digits, an exponent, a suffix.
    fn number(&mut self) -> Result<&'a str> {
        let (rest, start) = (self.rest(), self.at);
        let digits = |from: usize| {
            let tail = rest.get(from..).unwrap_or_default();
            from + tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len())
        };
        let mut end = digits(0);
        if rest.get(end..).is_some_and(|tail| tail.starts_with('.')) {
            end = digits(end + 1);
        }
        let tail = rest.get(end..).unwrap_or_default();
        if tail.starts_with(['e', 'E']) {
            let sign = usize::from(tail.get(1..).is_some_and(|tail| tail.starts_with(['+', '-'])));
            let after = digits(end + 1 + sign);
            if after > end + 1 + sign {
                end = after;
            }
        }
        let letters = |c: char| c.is_alphanumeric() || c == '_';
        let tail = rest.get(end..).unwrap_or_default();
        let suffix = tail.get(..tail.find(|c| !letters(c)).unwrap_or(tail.len())).unwrap_or_default();
        let of_whole = rest.get(..end).is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()));
        match suffix.to_ascii_uppercase().as_str() {
            "L" | "S" | "Y" if of_whole => end += suffix.len(),
            "D" | "F" | "BD" => end += suffix.len(),
            _ => {}
        }
        match rest.get(end..).and_then(|tail| tail.chars().next()) {
            Some(c) if c.is_alphanumeric() || c == '_' => Err(self.error(
                start,
                "a number runs into letters; write it without a suffix, and put a name that begins with a digit in back-ticks",
            )),
            _ => Ok(self.take(end)),
        }
    }

    pub(super) fn error(&self, at: usize, message: impl AsRef<str>) -> Error {
        error_at(self.dialect, self.text, at, message.as_ref())
    }
}

/// An error that shows where in the text it is.
pub(super) fn error_at(dialect: Dialect, text: &str, at: usize, message: &str) -> Error {
    let before = text.get(..at).unwrap_or(text);
    let after = text.get(at..).unwrap_or_default();
    let skipped = before.char_indices().rev().nth(WINDOW - 1).map_or(0, |(i, _)| i);
    let shown = before.get(skipped..).unwrap_or_default();
    let cut = after.char_indices().nth(WINDOW).map_or(after.len(), |(i, _)| i);
    let lead = if skipped > 0 { "…" } else { "" };
    let tail = if cut < after.len() { "…" } else { "" };
    let line: String = [lead, shown, after.get(..cut).unwrap_or_default(), tail]
        .concat()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let caret = " ".repeat(lead.chars().count() + shown.chars().count());
    let position = before.chars().count() + 1;
    Error::invalid(format!("{}, character {position}: {message}\n  {line}\n  {caret}^", dialect.name()))
}
