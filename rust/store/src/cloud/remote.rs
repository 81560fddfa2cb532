//! Buckets, containers and servers, through the object store crate.
//!
//! Keys are used unchanged (`Path::parse`, which does not percent-encode). Errors are classified by what they prove:
//! that the file does not exist, that the request was refused, that it was never sent, or nothing. Messages are stripped of
//! credentials before they enter a message.
//!
//! Invariant: [`Put::Created`] and an error of a conditional put are certain; an uncertain outcome is [`Put::Unknown`].
//! Proved by `conditional_put_outcomes` in the storage tests, against a scripted server.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};

use super::clients::Clients;
use super::connect::Slot;
use super::finding::{Finding, finding, is_precondition};
use crate::config::options::Options;
use crate::counts::Tally;
use crate::dynamodb::LockTable;
use crate::error::{Error, Result};
use crate::failures::short_read;
use crate::http::credentials::no_credentials;
use crate::listing::Entry;
use crate::location::{Location, Scheme};
use crate::pin::{Identity, Pin};
use crate::put::{Body, Put};
use crate::ranges::merge;

/// Ranges closer than this are read by one request: transferring the gap takes about as long as a request's latency.
const GAP: u64 = 1024 * 1024;
/// How many requests of one `get_ranges` run at a time.
const CONCURRENT_RANGES: usize = 16;
/// Conditional puts from this size on are made in parts, if the store can.
const LARGE: u64 = 32 * 1024 * 1024;
/// One bucket, by key. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Remote {
    inner: Arc<Inner>,
}

/// Servers that were tested to refuse a conditional put of an existing file, whole or in parts, by address and bucket.
static VERIFIED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

struct Inner {
    location: Location,
    options: Options,
    tally: Arc<Tally>,
    slot: Slot,
}

impl Remote {
    pub(crate) fn new(location: &Location, options: Options, tally: Arc<Tally>) -> Self {
        let inner = Inner { location: location.clone(), options, tally, slot: Slot::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The DynamoDB table for commits, if the options name one.
    pub(crate) fn lock_table(&self) -> Result<Option<Arc<LockTable>>> {
        Ok(self.clients()?.locks.clone())
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.inner.location.scheme
    }

    pub(super) fn location(&self) -> &Location {
        &self.inner.location
    }

    pub(super) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Whether its requests are sent without credentials.
    #[cfg(test)]
    pub(crate) fn is_anonymous(&self) -> bool {
        self.inner.options.anonymous
    }

    /// Whether it is the same client.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    pub(crate) fn clients(&self) -> Result<Arc<Clients>> {
        self.inner.slot.clients(&self.inner.location, &self.inner.options)
    }

    /// Lists a folder. If the store has pages, it reads no more of them than `most` entries need.
    pub(crate) async fn list(&self, dir: &str, start_at: &str, most: usize) -> Result<Vec<Entry>> {
        let clients = self.clients()?;
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut found = Vec::new();
        let mut keep = |objects: Vec<ObjectMeta>| {
            for object in objects {
                match object.location.as_ref().strip_prefix(&prefix) {
                    Some(name) if !name.is_empty() && !name.contains('/') && name >= start_at => {
                        found.push(entry(name.to_owned(), &object));
                    }
                    _ => {}
                }
            }
        };
        let failed = |e| self.fail("list", e);
        if let Some(pages) = &clients.pages {
            let (mut page_token, mut looked_at): (Option<String>, usize) = (None, 0);
            loop {
                let offset =
                    if clients.offsets { before(start_at).map(|name| format!("{prefix}{name}")) } else { None };
                let delimiter = Some("/".into());
                let options =
                    PaginatedListOptions { offset, delimiter, page_token: page_token.clone(), ..Default::default() };
                self.inner.tally.list();
                let page = pages.list_paginated(Some(&prefix).filter(|p| !p.is_empty()).map(String::as_str), options);
                let page = page.await.map_err(failed)?;
                looked_at += page.result.objects.len() + page.result.common_prefixes.len();
                keep(page.result.objects);
                match page.page_token {
                    None => break,
                    Some(_) if looked_at >= most => break,
                    token if token == page_token => {
                        return Err(Error::storage(
                            false,
                            "the store answers every page of a listing with the same one",
                        ));
                    }
                    token => page_token = token,
                }
            }
        } else {
            self.inner.tally.list();
            let dir = if dir.is_empty() { None } else { Some(key(dir)?) };
            keep(clients.store.list_with_delimiter(dir.as_ref()).await.map_err(failed)?.objects);
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        Ok(found)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Bytes> {
        let clients = self.clients()?;
        let path = key(path)?;
        self.inner.tally.get();
        let read = async { clients.store.get_opts(&path, GetOptions::default()).await?.bytes().await };
        let bytes = read.await.map_err(|e| self.fail("read", e))?;
        self.inner.tally.received(bytes.len());
        Ok(bytes)
    }

    async fn get_span(self, path: Path, range: Range<u64>, pin: Option<Pin>) -> Result<Bytes> {
        if range.is_empty() {
            // No request for an empty range.
            return Ok(Bytes::new());
        }
        let clients = self.clients()?;
        self.inner.tally.get();
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..Default::default() };
        let read = async {
            let result = clients.store.get_opts(&path, options).await?;
            Ok((Identity::of_object(&result.meta, self.scheme()), result.bytes().await?))
        };
        match read.await {
            Ok((found, bytes)) => {
                self.inner.tally.received(bytes.len());
                if let Some(pin) = pin {
                    pin.check(found)?;
                }
                match bytes.len() as u64 == range.end.saturating_sub(range.start) {
                    true => Ok(bytes),
                    false => Err(short_read(&range, range.start.saturating_add(bytes.len() as u64))),
                }
            }
            Err(error) if matches!(finding(&error), Finding::OutOfRange | Finding::Nothing) => {
                // Each store reports a file that is too short in its own way, so the size is requested.
                self.inner.tally.head();
                match clients.store.head(&path).await {
                    Ok(meta) if meta.size < range.end => Err(short_read(&range, meta.size)),
                    Ok(_) | Err(_) => Err(self.fail("read", error)),
                }
            }
            Err(error) => Err(self.fail("read", error)),
        }
    }

    pub(crate) async fn get_ranges(&self, path: &str, wanted: &[Range<u64>], pin: Option<&Pin>) -> Result<Vec<Bytes>> {
        let spans = merge(wanted, GAP);
        let path = key(path)?;
        let span = |span: &Range<u64>| self.clone().get_span(path.clone(), span.clone(), pin.cloned());
        let reads: Vec<_> = spans.spans.iter().map(span).collect();
        let read: Vec<Bytes> = stream::iter(reads).buffered(CONCURRENT_RANGES).try_collect().await?;
        spans.cut(wanted, &read)
    }

    pub(crate) async fn get_suffix(&self, path: &str, length: u64) -> Result<(Bytes, u64)> {
        let path = key(path)?;
        // Azure has no suffix ranges, and no store has empty ones.
        if self.inner.location.scheme != Scheme::Azure && length > 0 {
            let clients = self.clients()?;
            self.inner.tally.get();
            let options = GetOptions { range: Some(GetRange::Suffix(length)), ..Default::default() };
            let read = async {
                let result = clients.store.get_opts(&path, options).await?;
                let size = result.meta.size;
                Ok((result.bytes().await?, size))
            };
            match read.await {
                Ok((bytes, size)) if bytes.len() as u64 == length.min(size) => {
                    self.inner.tally.received(bytes.len());
                    return Ok((bytes, size));
                }
                Ok(_) => {}
                Err(error) => match finding(&error) {
                    Finding::OutOfRange | Finding::Unsupported | Finding::Nothing => {}
                    _ => return Err(self.fail("read", error)),
                },
            }
        }
        let size = self.head(path.as_ref()).await?.size;
        let start = size.saturating_sub(length);
        if start == size {
            return Ok((Bytes::new(), size));
        }
        Ok((self.clone().get_span(path, start..size, None).await?, size))
    }

    pub(crate) async fn head(&self, path: &str) -> Result<Entry> {
        let clients = self.clients()?;
        self.inner.tally.head();
        let meta = clients.store.head(&key(path)?).await.map_err(|e| self.fail("read", e))?;
        Ok(entry(String::new(), &meta))
    }

    pub(crate) async fn put(&self, path: &str, data: impl Into<PutPayload>) -> Result<()> {
        let (clients, data) = (self.clients()?, data.into());
        self.inner.tally.put(data.content_length() as u64);
        clients.store.put(&key(path)?, data).await.map_err(|e| self.fail("write", e))?;
        Ok(())
    }

    pub(crate) async fn put_if_absent(&self, path: &str, body: Body) -> Result<Put> {
        let clients = self.clients()?;
        let path = key(path)?;
        if let Some(server) = &clients.unverified_server {
            self.verify_conditional_put(&clients, server, &path).await?;
        }
        if body.length >= LARGE && self.can_put_in_parts(&clients, &path).await? {
            return self.put_in_parts(&clients, &path, body).await;
        }
        self.inner.tally.put(body.length);
        self.create(&clients, &path, whole(body)?).await
    }

    /// Tests that a server refuses to overwrite a file: one that ignores the condition would silently lose commits. Done
    /// once per process and bucket.
    async fn verify_conditional_put(&self, clients: &Clients, server: &str, path: &Path) -> Result<()> {
        if is_verified(server) {
            return Ok(());
        }
        let (probe, content) = (beside(path, "probe")?, Bytes::from_static(b"{}"));
        // No other writer uses the name, so this can be retried.
        clients.store.put(&probe, content.clone().into()).await.map_err(|e| self.fail("write", e))?;
        let again = self.create(clients, &probe, content.into()).await;
        // A file that stays behind does no harm.
        let _ = clients.once.delete(&probe).await;
        match again? {
            Put::Exists => {
                mark_verified(server);
                Ok(())
            }
            Put::Created => Err(self.cannot_exclude(None)),
            // Nothing was written to the intended file.
            Put::Unknown(error) => Err(error),
        }
    }

    fn cannot_exclude(&self, cause: Option<&StoreError>) -> Error {
        let error = Error::unsupported(
            "conditional put",
            format!(
                "the store behind {} cannot refuse to overwrite a file, so concurrent commits could overwrite each \
                 other; use a store with conditional writes and do not switch them off (aws_conditional_put), or let \
                 writers commit through DynamoDB (deltic.s3.log_store = 'dynamodb')",
                self.inner.location.text
            ),
        );
        match cause {
            Some(cause) => error.caused_by(self.inner.options.redact(&cause.to_string())),
            None => error,
        }
    }

    pub(crate) async fn create(&self, clients: &Clients, path: &Path, data: PutPayload) -> Result<Put> {
        let options = PutOptions { mode: PutMode::Create, ..Default::default() };
        match clients.once.put_opts(path, data, options).await {
            Ok(_) => Ok(Put::Created),
            Err(error) => self.outcome(error),
        }
    }

    /// The outcome of a conditional put that ended with an error.
    pub(crate) fn outcome(&self, error: StoreError) -> Result<Put> {
        match finding(&error) {
            // S3 answers 409 if two conditional writes compete, which does not mean that one of them succeeded.
            Finding::Taken if self.inner.location.scheme == Scheme::S3 && !is_precondition(&error) => {
                Ok(Put::Unknown(self.fail("write", error)))
            }
            Finding::Taken => Ok(Put::Exists),
            Finding::Unsupported | Finding::Refused(501) => Err(self.cannot_exclude(Some(&error))),
            Finding::Refused(408 | 500..) | Finding::Nothing => Ok(Put::Unknown(self.fail("write", error))),
            Finding::Missing
            | Finding::Denied
            | Finding::OutOfRange
            | Finding::Refused(_)
            | Finding::NotSent
            | Finding::BadKey
            | Finding::NoCredentials => Err(self.fail("write", error)),
        }
    }

    pub(crate) fn fail(&self, action: &str, error: StoreError) -> Error {
        let location = self.inner.location.shown(self.inner.options.foreign);
        let failed = match finding(&error) {
            Finding::Missing if action == "read" => return Error::not_found("the file does not exist"),
            Finding::Missing => Error::not_found(format!("could not {action} in {location}: it does not exist")),
            Finding::Denied | Finding::Refused(401 | 403) => Error::storage(
                false,
                format!("could not {action} in {location}: access denied; check the credentials and their permissions"),
            ),
            Finding::BadKey => return Error::corrupt("the path cannot be a key of an object store"),
            Finding::NoCredentials => {
                let why = no_credentials(&error).map(ToString::to_string).unwrap_or_default();
                return Error::storage(
                    false,
                    format!("no credentials found for {location}: {}", self.inner.options.redact(&why)),
                );
            }
            Finding::Unsupported => Error::unsupported(action, format!("{location} cannot {action} this way")),
            Finding::NotSent => {
                Error::storage(true, format!("no connection to {location}; check the endpoint and the network"))
            }
            Finding::Refused(status @ (408 | 429 | 500..)) => {
                Error::storage(true, format!("{location} could not {action} just now (status {status})"))
            }
            Finding::Refused(status) => Error::storage(
                false,
                format!("{location} refused to {action} (status {status}); check the storage options"),
            ),
            Finding::Taken | Finding::OutOfRange | Finding::Nothing => {
                Error::storage(true, format!("{location} failed to {action}"))
            }
        };
        failed.caused_by(self.inner.options.redact(&error.to_string()))
    }
}

/// The key, unchanged. Keys that the crate does not support (control characters, empty segments) are refused.
pub(crate) fn key(path: &str) -> Result<Path> {
    Path::parse(path).map_err(|_| {
        Error::corrupt("the path cannot be a key of an object store: it has a control character or an empty segment")
    })
}

pub(crate) fn entry(name: String, meta: &ObjectMeta) -> Entry {
    Entry { name, size: meta.size, modified_ms: meta.last_modified.timestamp_millis() }
}

/// A name that sorts shortly before `start_at`: listings start after the name that they are
/// given. The caller drops names in between.
fn before(start_at: &str) -> Option<String> {
    let last = start_at.chars().next_back()?;
    let mut name = start_at.get(..start_at.len() - last.len_utf8())?.to_owned();
    if last > ' ' && last <= '~' {
        name.push(char::from(u8::try_from(last).ok()? - 1));
        name.push('~');
    }
    (!name.is_empty()).then_some(name)
}

/// The whole body in memory, since the condition belongs to one request.
fn whole(body: Body) -> Result<PutPayload> {
    Ok(PutPayload::from_iter(body.pieces.collect::<Result<Vec<Bytes>>>()?))
}

/// A unique key, where readers of the log do not look.
pub(crate) fn beside(path: &Path, name: &str) -> Result<Path> {
    let folder = path.as_ref().rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    key(&format!("{folder}.tmp/{name}.{}", uuid::Uuid::new_v4()))
}

/// Whether the server has passed the test.
pub(crate) fn is_verified(server: &str) -> bool {
    // This does not wait: a lock that was held when the process forked stays held in the child.
    VERIFIED.try_lock().is_ok_and(|servers| servers.contains(server))
}

pub(crate) fn mark_verified(server: &str) {
    if let Ok(mut servers) = VERIFIED.try_lock() {
        servers.insert(server.to_owned());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn listings_start_just_before() {
        for (start_at, expected) in [("", None), ("a", Some("`~")), ("01", Some("00~")), ("é", None), ("xé", Some("x"))]
        {
            let name = before(start_at);
            assert_eq!(name.as_deref(), expected, "{start_at}");
            assert!(name.is_none_or(|name| name.as_str() < start_at), "{start_at}");
        }
    }
}
