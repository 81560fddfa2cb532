//! How a client of a bucket comes to be: from a location, the environment and options, once per process.
//!
//! Two clients share one set of credentials. One repeats requests that failed on the way, which is right for anything
//! idempotent; the other sends each request once, for conditional puts. Refusals of a server become [`Refusal`], a
//! type that can be told from a lost connection without reading messages.
//!
//! Connections do not survive a `fork`, so a client is bound to the process that opened it.
//! Proved by `conditional_put_outcomes` and `refusals` in the storage tests, and below.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, TryLockError};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider, S3CopyIfNotExists};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig, StaticCredentialProvider};

use super::azure_blocks::{Blocks, IfAbsent};
use super::dynamodb::LockTable;
use super::location::{Location, Scheme};
use super::options::Options;
use crate::error::{Error, Result};

/// Stores in memory, by name, for the life of the process.
static MEMORY: LazyLock<Mutex<std::collections::HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// Open clients of one bucket.
pub(super) struct Clients {
    pid: u32,
    /// Repeats failed requests.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Sends each request once.
    pub(super) once: Arc<dyn ObjectStore>,
    /// Lists one folder page by page from a given name, where the store can.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// Whether pages can start at a name.
    pub(super) offsets: bool,
    /// A server of S3's or Google's interface that is not theirs, by address and bucket: it may ignore what it does not
    /// know.
    pub(super) stranger: Option<String>,
    /// How large files go to Azure.
    pub(super) blocks: Option<Blocks>,
    /// Through which writers take turns, if that is wanted.
    pub(super) locks: Option<LockTable>,
}

/// Clients that open on first use, anew in every process.
#[derive(Default)]
pub(super) struct Slot(RwLock<Option<Arc<Clients>>>);

impl Slot {
    /// The clients of this process.
    ///
    /// Never waits for the lock: one that another thread held during a `fork` stays held in the child. Opening is
    /// synchronous, so at most one needless set of clients per thread is thrown away.
    pub(super) fn clients(&self, location: &Location, options: &Options) -> Result<Arc<Clients>> {
        let pid = std::process::id();
        let current = match self.0.try_read() {
            Ok(slot) => slot.clone(),
            Err(TryLockError::Poisoned(slot)) => slot.into_inner().clone(),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(clients) = current.filter(|clients| clients.pid == pid) {
            return Ok(clients);
        }
        let opened = Arc::new(open(location, options, pid)?);
        let mut slot = match self.0.try_write() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(opened),
        };
        match &*slot {
            Some(other) if other.pid == pid => Ok(other.clone()),
            _ => {
                // Closing the parent's connections would talk to a runtime that did not survive the fork.
                std::mem::forget(slot.replace(opened.clone()));
                Ok(opened)
            }
        }
    }
}

fn open(location: &Location, options: &Options, pid: u32) -> Result<Clients> {
    let opened = match location.scheme {
        Scheme::S3 => open_s3(location, options)?,
        Scheme::Azure => open_azure(location, options),
        Scheme::Gcs => open_gcs(location, options),
        Scheme::Http => open_http(location, options),
        Scheme::Memory => {
            let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            let store = stores.entry(location.base.clone()).or_default().clone();
            Ok(Clients::new(store.clone(), store, None, false))
        }
        Scheme::Local => return Err(Error::internal("the local disk has no client")),
    };
    let mut clients = opened.map_err(|e| {
        let why = options.redact(&e.to_string());
        Error::invalid(format!("{} cannot be opened; check the storage options: {why}", location.text))
    })?;
    clients.pid = pid;
    Ok(clients)
}

impl Clients {
    fn new(
        store: Arc<dyn ObjectStore>,
        once: Arc<dyn ObjectStore>,
        pages: Option<Arc<dyn PaginatedListStore>>,
        offsets: bool,
    ) -> Self {
        Self { pid: 0, store, once, pages, offsets, stranger: None, blocks: None, locks: None }
    }
}

/// Retries for nothing: the caller decides what an uncertain outcome means.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn paged<S: ObjectStore + PaginatedListStore>(store: S, once: S, offsets: bool) -> Clients {
    let store = Arc::new(store);
    Clients::new(store.clone(), Arc::new(once), Some(store), offsets)
}

fn open_s3(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    let mut builder = AmazonS3Builder::from_env();
    let mut s3_endpoint = None;
    for (key, value) in options.keys_of::<AmazonS3ConfigKey>() {
        match key {
            AmazonS3ConfigKey::Endpoint => s3_endpoint = s3_endpoint.or(Some(value)),
            AmazonS3ConfigKey::S3Endpoint => s3_endpoint = Some(value),
            _ => {}
        }
        builder = builder.with_config(key, value);
    }
    // The environment's endpoint for S3 alone would otherwise win over the general one that the caller gave.
    if let Some(endpoint) = s3_endpoint {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let allow_http = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let allow_http = allow_http.as_deref() == Some("true");
    if endpoint.as_deref().is_some_and(|url| url.starts_with("http://")) && !allow_http {
        return Err(Error::invalid("the S3 endpoint is plain http; set the option aws_allow_http to 'true' to use it"));
    }
    let builder = builder.with_url(&location.base);
    let table = match options.takes_turns {
        true => Some(lock_table(&builder, options, allow_http)?),
        false => None,
    };
    let stranger = endpoint
        .filter(|url| !is_below(url, &["amazonaws.com", "amazonaws.com.cn"]))
        .map(|url| format!("{url} {}", location.base));
    Ok((|| {
        let store = builder.clone().with_http_connector(Connector { every_failure: false }).build()?;
        let credentials = store.credentials().clone();
        let once = builder
            .with_credentials(credentials.clone())
            // Each of its requests is sent once, too, and only the last has the condition.
            .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
            .with_http_connector(Connector { every_failure: true })
            .with_retry(no_retries())
            .build()?;
        let locks = match table {
            Some((region, endpoint)) => {
                let credentials = lock_credentials(options).unwrap_or(credentials);
                Some(LockTable::open(options, (options.lock_table(), region, endpoint), credentials)?)
            }
            None => None,
        };
        Ok(Clients { stranger, locks, ..paged(store, once, true) })
    })())
}

/// Whether an endpoint is in one of these domains.
fn is_below(endpoint: &str, domains: &[&str]) -> bool {
    let host = url::Url::parse(endpoint).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    domains.iter().any(|domain| host.strip_suffix(domain).is_some_and(|name| name.ends_with('.')))
}

/// Region and endpoint of DynamoDB.
fn lock_table(builder: &AmazonS3Builder, options: &Options, allow_http: bool) -> Result<(String, String)> {
    let region = options.dynamodb("region").map(str::to_owned);
    let region = region.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Region)).ok_or_else(|| {
        Error::invalid("the region of the DynamoDB table is not known; set deltic.s3.dynamodb.region")
    })?;
    let endpoint = options.dynamodb("endpoint").map(str::to_owned);
    let endpoint = endpoint.or_else(|| std::env::var("AWS_ENDPOINT_URL_DYNAMODB").ok()).unwrap_or_else(|| {
        let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
        format!("https://dynamodb.{region}.amazonaws.com{suffix}")
    });
    match url::Url::parse(&endpoint).map(|url| url.scheme().to_owned()).as_deref() {
        Ok("https") => {}
        Ok("http") if allow_http => {}
        Ok("http") => {
            return Err(Error::invalid(
                "the DynamoDB endpoint is plain http; set the option aws_allow_http to 'true' to use it",
            ));
        }
        _ => return Err(Error::invalid("deltic.s3.dynamodb.endpoint must be a URL: https://host")),
    }
    Ok((region, endpoint.trim_end_matches('/').to_owned() + "/"))
}

/// Credentials for DynamoDB alone.
fn lock_credentials(options: &Options) -> Option<AwsCredentialProvider> {
    let text = |name| options.dynamodb(name).map(str::to_owned);
    let (key_id, secret_key) = (text("access_key_id")?, text("secret_access_key")?);
    Some(Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token: text("session_token") })))
}

fn open_azure(location: &Location, options: &Options) -> object_store::Result<Clients> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in options.keys_of::<AzureConfigKey>() {
        builder = builder.with_config(key, value);
    }
    // The emulator knows no start of a listing.
    let emulator = builder.get_config_value(&AzureConfigKey::UseEmulator).as_deref() == Some("true");
    let [endpoint, account] =
        [AzureConfigKey::Endpoint, AzureConfigKey::AccountName].map(|key| builder.get_config_value(&key));
    let server = format!("{endpoint:?} {account:?} {}", location.base);
    let builder = builder.with_url(&location.base);
    let store = Arc::new(builder.clone().with_http_connector(Connector { every_failure: false }).build()?);
    let credentials = store.credentials().clone();
    let once = builder
        .with_credentials(credentials.clone())
        .with_http_connector(IfAbsent::new(Connector { every_failure: true }, credentials))
        .with_retry(no_retries())
        .build()?;
    let once = Arc::new(once);
    let blocks = Blocks { server, repeating: store.clone(), once: once.clone() };
    Ok(Clients { blocks: Some(blocks), ..Clients::new(store.clone(), once, Some(store), !emulator) })
}

fn open_gcs(location: &Location, options: &Options) -> object_store::Result<Clients> {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (key, value) in options.keys_of::<GoogleConfigKey>() {
        builder = builder.with_config(key, value);
    }
    let builder = builder.with_url(&location.base);
    let server = google_server(&builder).filter(|url| !is_below(url, &["googleapis.com"]));
    let stranger = server.map(|url| format!("{url} {}", location.base));
    let store = builder.clone().with_http_connector(Connector { every_failure: false }).build()?;
    let once = builder
        .with_credentials(store.credentials().clone())
        .with_http_connector(Connector { every_failure: true })
        .with_retry(no_retries())
        .build()?;
    Ok(Clients { stranger, ..paged(store, once, true) })
}

/// The server that the options or the service account's key name, in place of Google's.
fn google_server(builder: &GoogleCloudStorageBuilder) -> Option<String> {
    let option = |key: GoogleConfigKey| builder.get_config_value(&key);
    option(GoogleConfigKey::BaseUrl).or_else(|| {
        let of_file = || std::fs::read_to_string(option(GoogleConfigKey::ServiceAccount)?).ok();
        let key = option(GoogleConfigKey::ServiceAccountKey).or_else(of_file)?;
        let key: serde_json::Value = serde_json::from_str(&key).ok()?;
        key.get("gcs_base_url")?.as_str().map(str::to_owned)
    })
}

fn open_http(location: &Location, options: &Options) -> object_store::Result<Clients> {
    let build = |connector, retry| {
        let mut builder = HttpBuilder::new().with_url(&location.base).with_http_connector(connector).with_retry(retry);
        if location.base.starts_with("http://") {
            builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
        }
        for (key, value) in options.keys_of::<ClientConfigKey>() {
            builder = builder.with_config(key, value);
        }
        builder.build()
    };
    let store = Arc::new(build(Connector { every_failure: false }, RetryConfig::default())?);
    let once = Arc::new(build(Connector { every_failure: true }, no_retries())?);
    Ok(Clients::new(store, once, None, false))
}

/// A server's answer that it did not do what it was asked.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    body: String,
}

impl Refusal {
    /// Whether the answer has this code.
    pub(super) fn names(&self, code: &str) -> bool {
        self.body.contains(code)
    }
}

/// The answer behind an error.
pub(super) fn refusal(error: &object_store::Error) -> Option<&Refusal> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(refusal) = cause.downcast_ref() {
            return Some(refusal);
        }
        source = cause.source();
    }
    None
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with status {}: {}", self.status, self.body)
    }
}

impl std::error::Error for Refusal {}

/// Turns answers that the library would pass on as text into [`Refusal`].
#[derive(Debug, Clone, Copy)]
struct Connector {
    /// Also those that the library repeats, for a client that repeats nothing.
    every_failure: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service { client, every_failure: self.every_failure }))
    }
}

#[derive(Debug)]
struct Service {
    client: HttpClient,
    every_failure: bool,
}

pub(super) type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Service {
    fn call<'life, 'answer>(&'life self, request: HttpRequest) -> Answer<'answer>
    where
        'life: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            let response = self.client.execute(request).await?;
            let status = response.status().as_u16();
            let refused = match status {
                // The library gives these a meaning of their own.
                404 | 409 | 412 => false,
                // These it repeats.
                408 | 429 | 500..=599 => self.every_failure,
                400..=499 => true,
                _ => false,
            };
            if !refused {
                return Ok(response);
            }
            let body = response.into_body().bytes().await.unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            Err(HttpError::new(HttpErrorKind::Unknown, Refusal { status, body }))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_another_process_are_left_alone() {
        let location = Location::parse("s3://bucket").unwrap();
        let options = Options::parse(&std::collections::HashMap::new()).unwrap();
        let slot = Slot::default();
        let mine = slot.clients(&location, &options).unwrap();
        assert!(Arc::ptr_eq(&mine, &slot.clients(&location, &options).unwrap()));

        let parent = Arc::new(open(&location, &options, std::process::id() + 1).unwrap());
        *slot.0.write().unwrap() = Some(parent.clone());
        let anew = slot.clients(&location, &options).unwrap();
        assert_eq!(anew.pid, std::process::id());
        assert!(Arc::ptr_eq(&anew, &slot.clients(&location, &options).unwrap()));
        assert_eq!(Arc::strong_count(&parent), 2, "the parent's connections are not closed");

        let held = slot.0.write().unwrap();
        assert_eq!(slot.clients(&location, &options).unwrap().pid, std::process::id(), "a held lock is no obstacle");
        drop(held);
    }
}
