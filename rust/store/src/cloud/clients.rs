//! The open clients of one bucket, and what their constructors have in common.

use std::sync::Arc;
use std::time::Duration;

use object_store::list::PaginatedListStore;
use object_store::{CredentialProvider, ObjectStore, RetryConfig};

use super::azure_blocks::Blocks;
use crate::dynamodb::LockTable;
use crate::http::credentials::{FetchedCredentials, Sendable};

/// Open clients of one bucket.
pub(crate) struct Clients {
    pub(super) pid: u32,
    /// Retries failed requests.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Sends each request once.
    pub(crate) once: Arc<dyn ObjectStore>,
    /// Lists one folder page by page from a given name, if the store can.
    pub(crate) pages: Option<Arc<dyn PaginatedListStore>>,
    /// How many files one request can delete.
    pub(crate) deletes: usize,
    /// Whether pages can start at a name.
    pub(crate) offsets: bool,
    /// A server with S3's or Google's interface that is not theirs, by address and bucket: it may ignore conditions that it
    /// does not support.
    pub(crate) unverified_server: Option<String>,
    /// Uploads of large files to Azure.
    pub(crate) blocks: Option<Blocks>,
    /// The DynamoDB table for commits, if the options name one.
    pub(crate) locks: Option<Arc<LockTable>>,
}

impl Clients {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        once: Arc<dyn ObjectStore>,
        pages: Option<Arc<dyn PaginatedListStore>>,
        offsets: bool,
    ) -> Self {
        Self { pid: 0, store, once, pages, deletes: 1, offsets, unverified_server: None, blocks: None, locks: None }
    }
}

/// No retries: the caller decides what an uncertain outcome means.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

pub(super) fn paged<S: ObjectStore + PaginatedListStore>(store: S, once: S, offsets: bool) -> Clients {
    let store = Arc::new(store);
    Clients::new(store.clone(), Arc::new(once), Some(store), offsets)
}

/// How long to wait for credentials that have to be fetched, and where they are searched.
pub(super) type Fetch = Option<(Duration, &'static str)>;

/// A builder whose credentials are fetched within the limits of `fetch`. `of`: the credentials of a client of the builder;
/// `set`: the builder with others.
pub(super) fn with_fetched<B, T: Sendable + Send + Sync + 'static>(
    builder: B,
    fetch: Fetch,
    of: impl FnOnce(&B) -> object_store::Result<Arc<dyn CredentialProvider<Credential = T>>>,
    set: impl FnOnce(B, Arc<dyn CredentialProvider<Credential = T>>) -> B,
) -> object_store::Result<B> {
    let Some((within, looked_at)) = fetch else { return Ok(builder) };
    let inner = of(&builder)?;
    Ok(set(builder, Arc::new(FetchedCredentials { inner, within, looked_at })))
}

/// Leaves only settings of the HTTP client, and sends requests without a signature.
pub(super) fn unsigned<K>(settings: &mut Vec<(K, String)>, is_client: impl Fn(&K) -> bool, skip_signature: K) {
    settings.retain(|(key, _)| is_client(key));
    settings.push((skip_signature, "true".into()));
}

/// Whether an endpoint is in one of these domains.
pub(super) fn is_below(endpoint: &str, domains: &[&str]) -> bool {
    let host = url::Url::parse(endpoint).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    domains.iter().any(|domain| host.strip_suffix(domain).is_some_and(|name| name.ends_with('.')))
}
