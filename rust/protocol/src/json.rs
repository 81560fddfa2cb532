//! Looking into JSON text in place: no tree, no copy, no recursion.
//!
//! A [`Scanner`] walks the members of objects; what the caller does not want is stepped over by its brackets and quotes
//! alone, many bytes at a time. Values come out as the text they are, to be read by whoever knows their type. Stepping
//! over a value proves only that it ends, not that it is well-formed; whoever must know that parses it.
//!
//! Invariants: never reads past the text, never takes time that grows faster than the text, whatever its nesting.

use std::borrow::Cow;

use memchr::{memchr2, memchr3};

/// A position in a JSON text. `None` from any method means that the text is not what was asked for; stop then.
#[derive(Debug, Clone)]
pub struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    /// At the beginning of a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Steps into an object.
    pub fn open(&mut self) -> Option<()> {
        (self.peek()? == b'{').then(|| self.at += 1)
    }

    /// The key of the next member, its value next; `Some(None)` behind the last one, with the object left.
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
        let key = unquote(self.quoted()?)?;
        (self.peek()? == b':').then(|| self.at += 1)?;
        Some(Some(key))
    }

    /// The text of the next value, quotes and brackets with it.
    pub fn value(&mut self) -> Option<&'t str> {
        match self.peek()? {
            b'"' => self.quoted(),
            b'{' => self.bracketed(b'{', b'}'),
            b'[' => self.bracketed(b'[', b']'),
            _ => {
                let rest = self.text.as_bytes().get(self.at..)?;
                let end = rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'));
                let from = self.at;
                self.at += end.unwrap_or(rest.len());
                (self.at > from).then(|| self.text.get(from..self.at)).flatten()
            }
        }
    }

    /// Steps out of the object whose members are being read.
    pub fn leave(&mut self) -> Option<()> {
        self.close(b'{', b'}')
    }

    /// Whether nothing but space is left.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// The next byte that is no space.
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

    fn quoted(&mut self) -> Option<&'t str> {
        let from = self.at;
        (self.text.as_bytes().get(from) == Some(&b'"')).then_some(())?;
        self.at += 1;
        self.rest_of_string()?;
        self.text.get(from..self.at)
    }

    /// To behind the quote that ends the string.
    fn rest_of_string(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        loop {
            let found = self.at + memchr2(b'"', b'\\', bytes.get(self.at..)?)?;
            if bytes.get(found) == Some(&b'"') {
                self.at = found + 1;
                return Some(());
            }
            self.at = found + 2;
        }
    }

    fn bracketed(&mut self, open: u8, close: u8) -> Option<&'t str> {
        let from = self.at;
        self.at += 1;
        self.close(open, close)?;
        self.text.get(from..self.at)
    }

    /// To behind the bracket that closes what is open, others of its kind and strings stepped over.
    fn close(&mut self, open: u8, close: u8) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut depth = 1_usize;
        while depth > 0 {
            let found = self.at + memchr3(b'"', open, close, bytes.get(self.at..)?)?;
            self.at = found + 1;
            match bytes.get(found) {
                Some(b'"') => self.rest_of_string()?,
                Some(byte) if *byte == open => depth += 1,
                _ => depth -= 1,
            }
        }
        Some(())
    }
}

/// Puts what a quoted text says into `out`, in place of what is there; `None` if its escapes are broken, or it is not
/// quoted.
pub fn unescape(quoted: &str, out: &mut String) -> Option<()> {
    let mut rest = quoted.strip_prefix('"')?.strip_suffix('"')?;
    out.clear();
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(rest.get(..at)?);
        let plain = match rest.as_bytes().get(at + 1)? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            // Surrogates come in pairs, and are rare.
            _ => {
                *out = serde_json::from_str(quoted).ok()?;
                return Some(());
            }
        };
        out.push(plain);
        rest = rest.get(at + 2..)?;
    }
    out.push_str(rest);
    Some(())
}

/// What a quoted text says; `None` if its escapes are broken, or it is not quoted.
pub fn unquote(quoted: &str) -> Option<Cow<'_, str>> {
    let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}
