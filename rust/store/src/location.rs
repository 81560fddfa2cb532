//! Locations: the root of a table that a caller names, and the files that a log names.
//!
//! There are two kinds of text. A caller gives a *URI* (percent-encoded) or a plain local path (literal). A log has a
//! URI reference, which [`decode_path`] turns into a *literal* reference: from then on a `%20` is those three
//! characters of the key. There is no I/O here.
//!
//! Invariants: a relative reference never leaves the root; `parse(location.text)` names the same place as `location`;
//! `text` holds no user info, query or secret. Proved by `locations`, `references` and `decoding` in the storage tests.
//!
//! PROTOCOL.md: "Add File and Remove File" (path).

use object_store::ObjectStoreScheme;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use url::{Position, Url};

use crate::error::{Error, Kind, Result};

/// The characters of a literal key that are encoded in a URI.
pub(super) const IN_URI: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    // In a caller's text this would be a pattern.
    .add(b'*')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The kind of a location, by which its client is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Local,
    Memory,
    S3,
    Azure,
    Gcs,
    Http,
}

/// A parsed root.
#[derive(Clone)]
pub(super) struct Location {
    pub(super) scheme: Scheme,
    /// The normalised text for messages, without credentials or a trailing slash.
    pub(super) text: String,
    /// The URL of the bucket, container or server: one client is used for everything below it.
    pub(super) base: String,
    /// The literal key below `base`, or an absolute path of the local disk; no trailing slash.
    pub(super) root: String,
    /// The shared access signature in the URL, if any.
    pub(super) sas: Option<String>,
}

impl Location {
    /// Parses the root of a table that a caller names.
    pub(super) fn parse(uri: &str) -> Result<Self> {
        if uri.trim().is_empty() {
            return Err(Error::invalid("the location is empty; give a path or a URL"));
        }
        if is_windows_path(uri) {
            return Err(Error::invalid(
                "the location is a Windows path, which this system does not know; give the path as it is here (in WSL \
                 /mnt/c/... for C:\\...), or file:///path",
            ));
        }
        if uri.contains('*') {
            return Err(Error::invalid(
                "the location has a '*': deltic opens one table, not a pattern of paths; give the folder that holds \
                 _delta_log. In a URL (file:///path) write %2A if '*' is part of a name",
            ));
        }
        match split_scheme(uri) {
            None => Self::local(uri),
            Some((scheme, rest)) => match scheme.as_str() {
                "file" => Self::local(&decode(file_path(rest)?)?),
                "memory" => Self::memory(rest),
                "s3" | "s3a" | "gs" | "az" | "adl" | "azure" | "abfs" | "abfss" | "http" | "https" => Self::cloud(uri),
                other => Err(Error::unsupported(
                    other,
                    format!("deltic has no storage for '{other}:' locations; {}", instead_of(other)),
                )),
            },
        }
    }

    fn local(path: &str) -> Result<Self> {
        if path.contains('\0') {
            return Err(Error::invalid("a path cannot contain a NUL character"));
        }
        let absolute = std::path::absolute(path)
            .map_err(|e| Error::invalid("the relative path has no absolute form: no current folder").caused_by(e))?;
        let absolute = absolute.to_str().ok_or_else(|| Error::invalid("the current folder's name is not UTF-8"))?;
        let mut segments: Vec<&str> = Vec::new();
        for segment in absolute.split('/') {
            match segment {
                "" | "." => {}
                // As in a shell, the parent of the root is the root.
                ".." => drop(segments.pop()),
                name => segments.push(name),
            }
        }
        let root = format!("/{}", segments.join("/"));
        let text = match root.contains('*') {
            true => format!("file://{}", utf8_percent_encode(&root, IN_URI)),
            false => root.clone(),
        };
        Ok(Self { scheme: Scheme::Local, text, base: "file://".into(), root, sas: None })
    }

    fn memory(rest: &str) -> Result<Self> {
        let rest = rest.strip_prefix("//").ok_or_else(|| Error::invalid("write memory://name"))?;
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(Error::invalid("a store in memory needs a name: memory://name"));
        }
        let root = normal(&decode(path)?, false)?;
        let base = format!("memory://{name}");
        Ok(Self { scheme: Scheme::Memory, text: join_text(&base, &root), base, root, sas: None })
    }

    fn cloud(uri: &str) -> Result<Self> {
        let (url, query) = checked_url(uri)?;
        let (scheme, path) = scheme_and_root(&url)?;
        let sas = signature(scheme, query)?;
        check_credentials(scheme, &url)?;
        check_bucket(scheme, &url)?;
        let root = path.as_ref().to_owned();
        // If the bucket is part of the path, the crate's key has one segment less than the URL.
        let in_url = decode(url.path())?.split('/').filter(|s| !s.is_empty()).count();
        let bucket = if in_url > path.parts_count() { url.path().split('/').find(|s| !s.is_empty()) } else { None };
        let with_bucket = |origin: &str| match bucket {
            Some(bucket) => format!("{origin}/{bucket}"),
            None => origin.to_owned(),
        };
        let base = with_bucket(&url[..Position::BeforePath]);
        let base = base.strip_prefix("s3a://").map(|rest| format!("s3://{rest}")).unwrap_or(base);
        let shown = with_bucket(&url[..Position::BeforePath]);
        Ok(Self { scheme, text: join_text(&shown, &root), base, root, sas })
    }

    /// Resolves a literal reference, which is relative to this root or absolute.
    pub(super) fn resolve(&self, reference: &str) -> Result<Target> {
        if let Some((scheme, rest)) = split_scheme(reference) {
            if scheme == "file" {
                let path = file_path(rest).map_err(from_log)?;
                return Ok(Target::Local(self.local_key(path)?));
            }
            let there = Self::named(reference)?;
            return Ok(match there.base == self.base {
                true => Target::Here(there.root),
                false => Target::Elsewhere(Box::new(there)),
            });
        }
        if let Some(path) = reference.strip_prefix('/') {
            return Ok(match self.scheme {
                Scheme::Local => Target::Local(self.local_key(reference)?),
                // As in Hadoop, a path without a scheme stays in the table's own file system.
                Scheme::Memory | Scheme::S3 | Scheme::Azure | Scheme::Gcs | Scheme::Http => {
                    Target::Here(normal(path, false)?)
                }
            });
        }
        let local = self.scheme == Scheme::Local;
        let below = normal(reference, local)?;
        let key = match (self.root.is_empty() || self.root == "/", below.is_empty()) {
            (_, true) => self.root.clone(),
            (true, false) => format!("{}{below}", self.root),
            (false, false) => format!("{}/{below}", self.root),
        };
        Ok(if local { Target::Local(key) } else { Target::Here(key) })
    }

    /// The location that an absolute literal reference names.
    pub(super) fn named(reference: &str) -> Result<Self> {
        Self::parse(&encode_uri(reference)).map_err(from_log)
    }

    /// `base` with the scheme that was given, without secrets.
    pub(super) fn base_as_given(&self) -> &str {
        let key = utf8_percent_encode(&self.root, IN_URI).to_string();
        self.text.strip_suffix(key.as_str()).unwrap_or(&self.base).trim_end_matches('/')
    }

    /// Its text in messages. A query in a path of a log is part of the name there, and may be a signature.
    pub(super) fn shown(&self, is_foreign: bool) -> &str {
        if is_foreign { &self.base } else { &self.text }
    }

    /// The server that the location itself names, if it names one: otherwise the settings decide.
    pub(super) fn server(&self) -> Option<String> {
        let url = Url::parse(&self.base).ok()?;
        let names_server = match url.scheme() {
            "http" | "https" => true,
            "abfs" | "abfss" | "az" => !url.username().is_empty(),
            _ => false,
        };
        names_server.then(|| format!("{}:{}", url.host_str().unwrap_or_default(), url.port().unwrap_or_default()))
    }

    /// Azure's account and container; the account only if the location names it.
    pub(super) fn container(&self) -> Option<(Option<String>, String)> {
        let url = Url::parse(&self.base).ok().filter(|_| self.scheme == Scheme::Azure)?;
        // Accounts of Fabric differ from those of the same name in Azure.
        let account = |host: &str| match host.split_once('.')? {
            (name, "blob.core.windows.net" | "dfs.core.windows.net") => Some(name.to_owned()),
            _ => Some(host.replace(".dfs.", ".blob.")),
        };
        let host = url.host_str().unwrap_or_default();
        Some(match (url.scheme(), url.username()) {
            ("https", _) => (account(host), url.path().trim_matches('/').to_owned()),
            (_, "") => (None, host.to_owned()),
            (_, container) => (account(host), container.to_owned()),
        })
    }

    /// An absolute path of the local disk, which only a table on it may name: the log of a table in a
    /// bucket must not name files of its reader.
    fn local_key(&self, path: &str) -> Result<String> {
        match self.scheme {
            Scheme::Local | Scheme::Memory => Ok(format!("/{}", normal(path, true)?)),
            Scheme::S3 | Scheme::Azure | Scheme::Gcs | Scheme::Http => Err(Error::unsupported(
                "local file of a remote table",
                "the log of a remote table names a file on the local disk; it is not read",
            )),
        }
    }
}

/// A URL without its query, and the query. The URL may have a secret, so messages never repeat it.
fn checked_url(uri: &str) -> Result<(Url, Option<String>)> {
    let mut url = Url::parse(uri).map_err(|_| Error::invalid("the location is not a valid URL"))?;
    if url.host_str().unwrap_or_default().is_empty() {
        let scheme = url.scheme();
        return Err(Error::invalid(format!("the location names no bucket or host; write {scheme}://name/path")));
    }
    // Escapes in a host are decoded, which could change the host: an invalid one is refused.
    if !is_host(url.host_str().unwrap_or_default()) {
        return Err(Error::invalid("the host in the location may have only letters, digits, '-', '_' and '.'"));
    }
    if url.fragment().is_some() {
        return Err(Error::invalid("the location has a '#'; write it as %23 if it is part of a name"));
    }
    let query = url.query().map(str::to_owned);
    url.set_query(None);
    Ok((url, query))
}

/// The kind of a URL, and the key of its root below the bucket.
fn scheme_and_root(url: &Url) -> Result<(Scheme, object_store::path::Path)> {
    let (scheme, root) = ObjectStoreScheme::parse(url).map_err(|_| {
        Error::invalid(
            "the location's path cannot be a key: it has an empty segment ('//'), a control character or is not UTF-8",
        )
    })?;
    let scheme = match scheme {
        ObjectStoreScheme::AmazonS3 => Scheme::S3,
        ObjectStoreScheme::MicrosoftAzure => Scheme::Azure,
        ObjectStoreScheme::GoogleCloudStorage => Scheme::Gcs,
        ObjectStoreScheme::Http => Scheme::Http,
        _ => return Err(Error::internal("a scheme without a storage")),
    };
    Ok((scheme, root))
}

/// The shared access signature in the query of a URL: the only query that a location may have.
fn signature(scheme: Scheme, query: Option<String>) -> Result<Option<String>> {
    match query {
        Some(query) if !(scheme == Scheme::Azure && query.contains("sig=")) => Err(Error::invalid(
            "the location has a query ('?…'); pass credentials as options, and write '?' as %3F in a name",
        )),
        query => Ok(query),
    }
}

/// Refuses credentials in a URL. The user name of one of Azure is its container.
fn check_credentials(scheme: Scheme, url: &Url) -> Result<()> {
    let user_info = !url.username().is_empty() || url.password().is_some();
    let allowed = match scheme {
        Scheme::Http if user_info => {
            return Err(Error::invalid(
                "the location contains a name and password, which deltic does not send to web servers; serve the \
                 table without them, or from a store with credentials of its own",
            ));
        }
        Scheme::Azure => url.password().is_none(),
        Scheme::Local | Scheme::Memory | Scheme::S3 | Scheme::Gcs | Scheme::Http => !user_info,
    };
    if allowed {
        Ok(())
    } else {
        Err(Error::invalid("the location contains credentials; pass them as options instead"))
    }
}

fn check_bucket(scheme: Scheme, url: &Url) -> Result<()> {
    if matches!(scheme, Scheme::S3 | Scheme::Gcs) && !is_bucket(url.host_str().unwrap_or_default()) {
        return Err(Error::invalid("the bucket in the location may have only letters, digits, '-', '_' and '.'"));
    }
    if scheme == Scheme::Http || !matches!(url.scheme(), "http" | "https") {
        return Ok(());
    }
    // The crate takes the first non-empty segment for the bucket, which may not be the bucket after normalising.
    if url.path().starts_with("//") {
        return Err(Error::invalid("the location has an empty segment ('//') in place of the bucket or container"));
    }
    let first = url.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    if decode(first)?.contains('/') {
        return Err(Error::invalid("the location has a '%2F' in place of the bucket or container; write '/'"));
    }
    Ok(())
}

/// The result of resolving a reference.
pub(super) enum Target {
    /// An absolute path of the local disk.
    Local(String),
    /// A key below the table's own base.
    Here(String),
    /// Another bucket, container or server.
    Elsewhere(Box<Location>),
}

/// Turns a path of the log (a percent-encoded URI, relative to the table's root or absolute) into the
/// literal reference that [`Storage`](super::Storage) takes.
///
/// An invalid escape (`100%`, `%zz`) is kept unchanged, for writers that do not encode.
pub fn decode_path(add_path: &str) -> Result<String> {
    if add_path.is_empty() {
        return Err(Error::corrupt("the log names a file without a name"));
    }
    if let Some((scheme, rest)) = split_scheme(add_path) {
        // The authority is not encoded; only the part after it is.
        let start = match rest.strip_prefix("//") {
            Some(after) => 2 + after.find('/').unwrap_or(after.len()),
            None => 0,
        };
        let (authority, path) = rest.split_at_checked(start).unwrap_or((rest, ""));
        return Ok(format!("{scheme}:{authority}{}", decode(path).map_err(from_log)?));
    }
    let literal = decode(add_path).map_err(from_log)?;
    let absolute = |path: &str| path.starts_with('/') || split_scheme(path).is_some();
    // A path that looks absolute only after decoding is still relative.
    if absolute(&literal) && !absolute(add_path) { Ok(format!("./{literal}")) } else { Ok(literal) }
}

/// Advice for a table in a store that deltic does not support.
fn instead_of(scheme: &str) -> &'static str {
    match scheme {
        "dbfs" => {
            "Databricks keeps the files in a bucket: give its s3://, abfss:// or gs:// location (DESCRIBE DETAIL shows it), \
             or inside a cluster the path below /dbfs"
        }
        "hdfs" | "viewfs" | "webhdfs" | "maprfs" => {
            "mount the file system (hdfs-fuse, NFS gateway) and give the path, or read it with Spark"
        }
        "uc" | "unity" | "glue" | "hive" => {
            "deltic opens tables by location, not by a catalog's name: give the location"
        }
        "wasb" | "wasbs" => "give the location as abfss://container@account.dfs.core.windows.net/path",
        "s3n" => "give the location as s3://bucket/path",
        "gcs" => "give the location as gs://bucket/path",
        "lakefs" => "give the location of its S3 gateway as s3://repository/branch/path, with aws_endpoint",
        _ => "use a path, or file, s3, s3a, az, abfs, abfss, adl, gs, memory, http or https",
    }
}

/// Whether it begins with a drive letter or a share.
fn is_windows_path(uri: &str) -> bool {
    let mut chars = uri.chars();
    let (first, second, third) = (chars.next(), chars.next(), chars.next());
    let is_drive = first.is_some_and(|c| c.is_ascii_alphabetic()) && second == Some(':');
    uri.starts_with("\\\\") || is_drive && matches!(third, Some('\\' | '/'))
}

/// Whether it can be a host name or address.
pub(super) fn is_host(name: &str) -> bool {
    let is_v6 = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok());
    is_v6 || name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether a name can be that of a bucket, and part of a host name.
fn is_bucket(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && Url::parse(&format!("https://{name}.example.com")).is_ok()
}

/// The scheme (in lower case) and the rest after the colon. One letter is a drive, and a colon without a slash is part of a
/// name.
pub(super) fn split_scheme(uri: &str) -> Option<(String, &str)> {
    let (scheme, rest) = uri.split_once(':')?;
    let valid = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (valid && rest.starts_with('/')).then(|| (scheme.to_ascii_lowercase(), rest))
}

/// The path of a `file:` URI, given the part after the colon.
fn file_path(rest: &str) -> Result<&str> {
    let Some(after) = rest.strip_prefix("//") else { return Ok(rest) };
    let slash = after.find('/').ok_or_else(|| Error::invalid("a file URL needs an absolute path: file:///path"))?;
    match after.split_at_checked(slash) {
        Some(("" | "localhost", path)) => Ok(path),
        _ => Err(Error::invalid("a file URL cannot name another host: write file:///path")),
    }
}

/// A URI from a literal absolute reference.
fn encode_uri(literal: &str) -> String {
    let authority = literal.find("://").map_or(0, |at| at + 3);
    let path = literal.get(authority..).and_then(|rest| rest.find('/')).map_or(literal.len(), |at| authority + at);
    let (head, tail) = literal.split_at_checked(path).unwrap_or((literal, ""));
    format!("{head}{}", utf8_percent_encode(tail, IN_URI))
}

fn join_text(base: &str, root: &str) -> String {
    if root.is_empty() { base.to_owned() } else { format!("{base}/{}", utf8_percent_encode(root, IN_URI)) }
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| Error::invalid("a percent-encoded path does not decode to UTF-8"))?.into_owned())
}

/// An invalid name in a log means a corrupt table, not an invalid argument.
fn from_log(error: Error) -> Error {
    if *error.kind() == Kind::Invalid { Error::corrupt(error.message()) } else { error }
}

/// Resolves `.` and `..` and drops a trailing slash. On a disk `a//b` is `a/b`; in a bucket they are two keys, of
/// which the client does not support the first.
fn normal(path: &str, local: bool) -> Result<String> {
    let mut segments: Vec<&str> = Vec::new();
    let path = path.strip_suffix('/').unwrap_or(path);
    for segment in path.split('/') {
        match segment {
            "" if local || path.is_empty() => {}
            "" => return Err(Error::corrupt("a file's path has an empty segment ('//')")),
            "." => {}
            ".." => {
                segments.pop().ok_or_else(|| Error::corrupt("a file's path leads out of its root by '..'"))?;
            }
            name if name.contains('\0') => return Err(Error::corrupt("a file's path contains a NUL character")),
            name => segments.push(name),
        }
    }
    Ok(segments.join("/"))
}
