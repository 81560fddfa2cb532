//! Whether a SQL expression mentions a column, decided by its tokens alone: the functions need not be known.
//!
//! It may find too many columns, never too few: a name in double quotes, which may be a string, counts.

use crate::schema::is_same_name;

/// Whether `sql` mentions the column at `path`, a field inside it, or a column that it is inside of.
pub(super) fn mentions(sql: &str, path: &[String]) -> bool {
    chains(sql).iter().any(|chain| {
        let mut names = chain.iter().zip(path);
        let is_top = names.next().is_some_and(|(name, part)| is_same_name(name, part));
        // Fields inside arrays and maps can be written in several ways.
        is_top
            && names
                .take_while(|(_, part)| !PARTS.contains(&part.as_str()))
                .all(|(name, part)| is_same_name(name, part))
    })
}

const PARTS: [&str; 3] = ["element", "key", "value"];

/// The names, with dots between their parts, that are neither functions nor types of literals.
fn chains(sql: &str) -> Vec<Vec<String>> {
    let (mut chains, mut rest) = (Vec::new(), sql);
    while let Some(first) = rest.chars().next() {
        if first == '\'' {
            rest = quoted(rest, '\'').1;
            continue;
        }
        let Some((name, after)) = name(rest) else {
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        };
        // A raw string has no escapes.
        if let (true, Some(quote @ ('\'' | '"'))) = (name.eq_ignore_ascii_case("r"), after.chars().next()) {
            rest = after.get(1..).and_then(|raw| raw.split_once(quote)).map_or("", |(_, rest)| rest);
            continue;
        }
        let mut chain = vec![name];
        rest = after.trim_start();
        while let Some((name, after)) = rest.strip_prefix('.').and_then(|rest| self::name(rest.trim_start())) {
            chain.push(name);
            rest = after.trim_start();
        }
        if !rest.starts_with(['(', '\'']) {
            chains.push(chain);
        }
    }
    chains
}

/// A name at the beginning, and the text after it.
fn name(text: &str) -> Option<(String, &str)> {
    let first = text.chars().next()?;
    if matches!(first, '`' | '"') {
        return Some(quoted(text, first));
    }
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    if !is_inside(first) {
        return None;
    }
    let end = text.find(|c| !is_inside(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    Some((name.to_owned(), rest))
}

/// The text between quotes, in which two quotes mean one, and the text after it. In strings a backslash is an escape.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote != '`' => content.extend(chars.next().map(|(_, escaped)| escaped)),
            c if c == quote => match chars.next_if(|(_, next)| *next == quote) {
                Some(_) => content.push(quote),
                None => return (content, text.get(at.saturating_add(quote.len_utf8())..).unwrap_or_default()),
            },
            c => content.push(c),
        }
    }
    (content, "")
}
