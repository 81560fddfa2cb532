//! The one error type, shaped by what the caller can do next.
//!
//! An [`Error`] is a [`Kind`], a message for people, and the place where it happened (table, log version, file).
//! Code decides by the kind, never by the message. A new kind is justified only if a caller would act
//! differently on it. A message must never have credentials: in the names of files, whether from a log or from a caller,
//! URLs are shown without user info and query. Nor may a message have control characters of names in a log: see
//! [`printable`].

use std::error::Error as StdError;
use std::fmt;

/// Result with deltic's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what a caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The table or file does not exist: create it, or ask for another.
    NotFound,
    /// The table exists and the version asked for cannot be read: ask for another.
    VersionNotFound {
        /// The oldest version that can be read, where it is known.
        earliest: Option<u64>,
        /// The newest one, where it is known.
        latest: Option<u64>,
    },
    /// There is a table where one was to be created: use it, or choose another place.
    TableExists,
    /// The table needs these features (or this operation needs something) that deltic does not have.
    Unsupported {
        /// Names of features as in the table's protocol, or a short name of the operation that is missing.
        features: Vec<String>,
    },
    /// Bytes in storage violate the protocol: repair or restore the table.
    Corrupt,
    /// The caller's input is wrong: change the call.
    Invalid,
    /// Another commit won and this one may not follow it: re-read and decide again.
    Conflict(Conflict),
    /// The store failed.
    Storage {
        /// Whether trying the same call again may succeed.
        retryable: bool,
    },
    /// The caller cancelled the operation: call it again if it is still wanted.
    Interrupted,
    /// A defect in deltic.
    Internal,
}

/// Why a commit may not follow the one that won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The winner added files that this commit should have read.
    ConcurrentAppend,
    /// The winner removed a file that this commit read.
    ConcurrentDeleteRead,
    /// The winner removed a file that this commit removes too.
    ConcurrentDeleteDelete,
    /// The winner changed the table's metadata.
    MetadataChanged,
    /// The winner changed the table's protocol.
    ProtocolChanged,
    /// The winner advanced an application transaction or metadata domain that this commit depends on.
    ConcurrentTransaction,
}

impl Conflict {
    /// What happened, and what the caller can do.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::ConcurrentAppend => {
                "another writer added files to the part of the table that this commit has read; \
                 run the operation again on the new version"
            }
            Self::ConcurrentDeleteRead => {
                "another writer removed files that this commit has read; run the operation again on the new version"
            }
            Self::ConcurrentDeleteDelete => {
                "another writer removed a file that this commit removes too; \
                 run the operation again on the new version"
            }
            Self::MetadataChanged => {
                "another writer changed the table's schema or properties; check them and write again"
            }
            Self::ProtocolChanged => {
                "another writer created the table or changed its protocol; open it again and write again"
            }
            Self::ConcurrentTransaction => {
                "another run of the same application committed at the same time; \
                 check which of its batches are in the table"
            }
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConcurrentAppend => "ConcurrentAppend",
            Self::ConcurrentDeleteRead => "ConcurrentDeleteRead",
            Self::ConcurrentDeleteDelete => "ConcurrentDeleteDelete",
            Self::MetadataChanged => "MetadataChanged",
            Self::ProtocolChanged => "ProtocolChanged",
            Self::ConcurrentTransaction => "ConcurrentTransaction",
        })
    }
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    message: String,
    table: Option<String>,
    version: Option<u64>,
    path: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Why an operation failed, and where. One pointer wide.
#[derive(Debug)]
pub struct Error(Box<Inner>);

impl Error {
    /// An error of `kind` with a message that says what was wrong and what to do.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = printable(mask_urls(message.into()));
        Self(Box::new(Inner { kind, message, table: None, version: None, path: None, source: None }))
    }

    /// The table or file does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// The table exists, and the version does not; with the oldest and the newest version that can be read, if known.
    pub fn version_not_found(message: impl Into<String>, earliest: Option<u64>, latest: Option<u64>) -> Self {
        Self::new(Kind::VersionNotFound { earliest, latest }, message)
    }

    /// There is a table where one was to be created.
    pub fn table_exists() -> Self {
        Self::new(Kind::TableExists, "there is a table already; append to it, or choose another location")
    }

    /// Bytes from storage that violate the protocol.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message)
    }

    /// The caller's mistake.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// Something deltic does not do, by its name.
    pub fn unsupported(feature: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported { features: vec![feature.into()] }, message)
    }

    /// The store failed.
    pub fn storage(retryable: bool, message: impl Into<String>) -> Self {
        Self::new(Kind::Storage { retryable }, message)
    }

    /// The caller cancelled the operation.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Kind::Interrupted, message)
    }

    /// A defect in deltic.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Adds the table's location, unless one is known already.
    #[must_use]
    pub fn in_table(mut self, table: impl Into<String>) -> Self {
        self.0.table.get_or_insert_with(|| printable_name(mask_urls(table.into())));
        self
    }

    /// Adds the log version, unless one is known already.
    #[must_use]
    pub fn at_version(mut self, version: u64) -> Self {
        self.0.version.get_or_insert(version);
        self
    }

    /// Adds the file, unless one is known already.
    #[must_use]
    pub fn in_file(mut self, path: impl Into<String>) -> Self {
        self.0.path.get_or_insert_with(|| printable_name(mask_urls(path.into())));
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The message alone, without place and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The table's location, when known; printable.
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }

    /// The log version, when known.
    pub fn version(&self) -> Option<u64> {
        self.0.version
    }

    /// The file, relative to the table or absolute, when known; printable.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// Whether this is [`Kind::NotFound`].
    pub fn is_not_found(&self) -> bool {
        self.0.kind == Kind::NotFound
    }

    /// Whether this is [`Kind::Corrupt`].
    pub fn is_corrupt(&self) -> bool {
        self.0.kind == Kind::Corrupt
    }

    /// Whether this is [`Kind::VersionNotFound`].
    pub fn is_version_not_found(&self) -> bool {
        matches!(self.0.kind, Kind::VersionNotFound { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        f.write_str(&e.message)?;
        let mut place = Vec::new();
        if let Some(table) = &e.table {
            place.push(format!("table {table}"));
        }
        if let Some(version) = e.version {
            place.push(format!("version {version}"));
        }
        if let Some(path) = &e.path {
            place.push(format!("file {path}"));
        }
        if !place.is_empty() {
            write!(f, " [{}]", place.join(", "))?;
        }
        if let Some(source) = &e.source {
            write!(f, ": {}", printable(source.to_string()))?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

impl From<arrow_schema::ArrowError> for Error {
    /// Arrow kernels get their input from deltic, so an unexplained failure is a defect.
    /// Code that decodes untrusted bytes maps the error to [`Kind::Corrupt`] itself.
    /// An error of deltic that was passed through an Arrow interface is returned unchanged.
    fn from(source: arrow_schema::ArrowError) -> Self {
        let source: Box<dyn StdError + Send + Sync> = match source {
            arrow_schema::ArrowError::ExternalError(inner) => match inner.downcast::<Self>() {
                Ok(error) => return *error,
                Err(other) => other,
            },
            other => other.into(),
        };
        Self::internal("an Arrow kernel failed").caused_by(source)
    }
}

/// Cuts user info and query out of every URL in `text`.
pub fn mask_urls(text: String) -> String {
    if !text.contains("://") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>()`".contains(c)).unwrap_or(after.len());
        let (url, tail) = after.split_at(end);
        let authority_end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (authority, path) = url.split_at(authority_end);
        // In `abfss://container@account` the part before `@` is a name, not a secret.
        let azure = ["abfs://", "abfss://", "az://", "adl://"].iter().any(|scheme| before.ends_with(scheme));
        match authority.rsplit_once('@') {
            Some((_, host)) if !azure => {
                out.push_str("***@");
                out.push_str(host);
            }
            _ => out.push_str(authority),
        }
        match path.split_once('?') {
            Some((path, _)) => {
                out.push_str(path);
                out.push_str("?***");
            }
            None => out.push_str(path),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// The text with characters that are not printable written as `\x1b` or `\u202e`: foreign names could move a terminal's
/// cursor or reverse the direction of the text. Line ends stay if two blanks follow, as in the excerpt of an expression.
pub fn printable(text: String) -> String {
    escaped(text, |rest| rest.starts_with("\n  "))
}

/// As [`printable`], in one line.
pub fn printable_name(text: String) -> String {
    escaped(text, |_| false)
}

fn escaped(text: String, keeps_line_end: fn(&str) -> bool) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            ' '..='~' => out.push(c),
            '\n' if text.get(at..).is_some_and(keeps_line_end) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Tested behind another character, because a combining character alone is always escaped.
            _ if !c.is_control() && String::from_iter(['a', c]).escape_debug().count() == 2 => out.push(c),
            '\u{80}'..='\u{ff}' | '\0'..='\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            '\u{100}'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            '\u{10000}'.. => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_in_an_error() {
        let name = "a\x1b[2J\0\u{9b}\u{202e}\u{e0001}\u{a0}\r\n\tb\u{7f}";
        let escaped = r"a\x1b[2J\x00\x9b\u202e\U000e0001\xa0\r\n\tb\x7f";
        let error = Error::corrupt(name).in_table(name).in_file(name).caused_by(name);
        assert_eq!(error.message(), escaped);
        assert_eq!((error.table(), error.path()), (Some(escaped), Some(escaped)));
        assert_eq!(error.to_string(), format!("{escaped} [table {escaped}, file {escaped}]: {escaped}"));
        let plain = "\"caf\u{e9}\" e\u{301} \u{65e5}\u{672c} '\u{1f600}' \\ and\n  an excerpt";
        assert_eq!(Error::corrupt(plain).to_string(), plain);
        assert_eq!(printable_name(plain.to_owned()), plain.replace('\n', "\\n"));
    }

    #[test]
    fn no_word_of_an_error_says_how_to_get_in() {
        let url = "https://user:secret@host/t/f.parquet?sig=secret";
        let error = Error::invalid(format!("such as {url}, and more")).in_table(url).in_file(url);
        assert_eq!(error.message(), "such as https://***@host/t/f.parquet?*** and more");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}
