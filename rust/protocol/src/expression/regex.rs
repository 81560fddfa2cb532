//! Regular expressions of RLIKE: those that Java and Rust read alike.

use regex::Regex;

use crate::error::{Error, Result};

/// A regular expression ready to match.
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
    pub(super) fn matches(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }
}

/// Compiles a regular expression.
///
/// # Errors
/// `Invalid` if it is none, or one of Java's alone: with groups that look around or refer back.
pub(super) fn compile(pattern: &str) -> Result<Regular> {
    let refused = |why: String| Error::invalid(format!("RLIKE does not read this regular expression: {why}"));
    let mut java = String::new();
    // Java's classes know ASCII alone, and its `.` and `$` more line ends.
    let lines = r"\n\r\x{85}\x{2028}\x{2029}";
    let (mut chars, mut in_class) = (pattern.chars().peekable(), 0_u32);
    while let Some(c) = chars.next() {
        let following = chars.peek().copied();
        match (c, following) {
            ('\\', Some(escaped)) => {
                chars.next();
                match escaped {
                    'd' => java.push_str("[0-9]"),
                    'D' => java.push_str("[^0-9]"),
                    'w' => java.push_str("[a-zA-Z0-9_]"),
                    'W' => java.push_str("[^a-zA-Z0-9_]"),
                    's' => java.push_str(r"[ \t\n\x0b\f\r]"),
                    'S' => java.push_str(r"[^ \t\n\x0b\f\r]"),
                    'n' | 'r' | 't' | 'f' => java.extend(['\\', escaped]),
                    letter if letter.is_alphanumeric() => {
                        return Err(refused(format!("`\\{letter}` is not supported")));
                    }
                    other => java.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
                }
            }
            ('\\', None) => return Err(refused("it ends in a backslash".to_owned())),
            ('(', Some('?')) | ('+' | '*' | '?' | '}', Some('+')) => {
                return Err(refused(format!("`{c}{}` is not supported", following.unwrap_or_default())));
            }
            ('&', Some('&')) | ('-', Some('-')) | ('~', Some('~')) if in_class > 0 => {
                return Err(refused(format!("`{c}{c}` is not supported in a class")));
            }
            ('.', _) if in_class == 0 => java.push_str(&format!("[^{lines}]")),
            ('$', _) if in_class == 0 => java.push_str(&format!(r"(?:\r\n|[{lines}])?\z")),
            ('[', _) => {
                in_class += 1;
                java.push(c);
            }
            (']', _) => {
                in_class = in_class.saturating_sub(1);
                java.push(c);
            }
            _ => java.push(c),
        }
    }
    let built = regex::RegexBuilder::new(&java).size_limit(1 << 20).build();
    let compiled = built.map_err(|e| refused(e.to_string().lines().last().unwrap_or_default().to_owned()))?;
    Ok(Regular { compiled })
}
