//! Opens the clients of a bucket from a location, the environment and options, once per process.
//!
//! Two clients share one set of credentials. One retries requests that failed in transit, which is right for anything
//! idempotent; the other sends each request once, for conditional puts.
//!
//! Connections do not survive a `fork`, so a client is bound to the process that opened it.
//! Proved by `conditional_put_outcomes` and `refusals` in the storage tests, and below.

use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider, S3CopyIfNotExists};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig, StaticCredentialProvider};

use super::answers::Connector;
use super::azure_blocks::{Blocks, IfAbsent};
use super::credentials::{FAR, Fetched, NEAR};
use crate::config::names::PROFILE;
use crate::config::options::Options;
use crate::config::profile::Profile;
use crate::config::settings::{Form, check, variable};
use crate::dynamodb::LockTable;
use crate::error::{Error, Result};
use crate::location::{Location, Scheme};

/// Stores in memory, by name, for the life of the process.
static MEMORY: LazyLock<Mutex<std::collections::HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// Where credentials were searched, and what to do.
const LOOKED_FOR_S3: &str = "looked at the storage options and the environment (aws_access_key_id, \
    aws_secret_access_key), the profile (aws_profile, ~/.aws/credentials, ~/.aws/config), and the metadata service of \
    the container or machine; pass keys or a profile, or set aws_skip_signature to 'true' for a public bucket";
const LOOKED_FOR_AZURE: &str = "looked at the storage options and the environment (azure_storage_account_key, \
    azure_storage_sas_token, azure_storage_client_id with azure_storage_client_secret and azure_storage_tenant_id), and \
    the metadata service of the machine; pass one of them, set azure_use_azure_cli to 'true', or azure_skip_signature \
    to 'true' for a public container";
const LOOKED_FOR_GOOGLE: &str = "looked at the storage options and the environment (google_service_account, \
    google_application_credentials), the file of `gcloud auth application-default login`, and the metadata service of \
    the machine; pass one of them, or set google_skip_signature to 'true' for a public bucket";

/// How many files one request deletes at most: what the interfaces of Amazon and Azure allow.
const DELETES_OF_S3: usize = 1000;
const DELETES_OF_AZURE: usize = 256;

/// Open clients of one bucket.
pub(crate) struct Clients {
    pid: u32,
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

/// Clients that are opened on first use, in each process.
#[derive(Default)]
pub(crate) struct Slot(RwLock<Option<Arc<Clients>>>);

impl Slot {
    /// The clients of this process.
    ///
    /// Never waits for the lock: one that another thread held during a `fork` stays held in the child. Opening is
    /// synchronous, so at most one needless set of clients per thread is thrown away.
    pub(crate) fn clients(&self, location: &Location, options: &Options) -> Result<Arc<Clients>> {
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
                // Closing the parent's connections would use a runtime that did not survive the fork.
                std::mem::forget(slot.replace(opened.clone()));
                Ok(opened)
            }
        }
    }
}

fn open(location: &Location, options: &Options, pid: u32) -> Result<Clients> {
    let opened = match location.scheme {
        Scheme::S3 => open_s3(location, options)?,
        Scheme::Azure => open_azure(location, options)?,
        Scheme::Gcs => open_gcs(location, options)?,
        Scheme::Http => open_http(location, options)?,
        Scheme::Memory => {
            let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            let store = stores.entry(location.base.clone()).or_default().clone();
            Ok(Clients::new(store.clone(), store, None, false))
        }
        Scheme::Local => return Err(Error::internal("the local disk has no client")),
    };
    let mut clients = opened.map_err(|e| {
        let why = options.redact(&e.to_string());
        let shown = location.shown(options.foreign);
        Error::invalid(format!("{shown} cannot be opened; check the storage options: {why}"))
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
        Self { pid: 0, store, once, pages, deletes: 1, offsets, unverified_server: None, blocks: None, locks: None }
    }
}

/// No retries: the caller decides what an uncertain outcome means.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn paged<S: ObjectStore + PaginatedListStore>(store: S, once: S, offsets: bool) -> Clients {
    let store = Arc::new(store);
    Clients::new(store.clone(), Arc::new(once), Some(store), offsets)
}

fn open_s3(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    let (settings, fetch) = s3_settings(options)?;
    let mut builder = AmazonS3Builder::new().with_retry(options.retries()?);
    let mut endpoints = [None, None];
    for (key, value) in settings {
        match key {
            AmazonS3ConfigKey::Endpoint => endpoints[0] = Some(value.clone()),
            AmazonS3ConfigKey::S3Endpoint => endpoints[1] = Some(value.clone()),
            _ => {}
        }
        builder = builder.with_config(key, value);
    }
    let [general, of_s3] = endpoints;
    let endpoint = of_s3.or(general);
    let allow_http = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let allow_http = allow_http.as_deref() == Some("true");
    if endpoint.as_deref().is_some_and(|url| url.starts_with("http://")) && !allow_http {
        return Err(Error::invalid("the S3 endpoint is plain http; set the option aws_allow_http to 'true' to use it"));
    }
    let deletes = match builder.get_config_value(&AmazonS3ConfigKey::DisableBulkDelete).as_deref() {
        Some("true") => 1,
        _ => DELETES_OF_S3,
    };
    let builder = builder.with_url(&location.base);
    let table = match options.takes_turns {
        true => Some(lock_table(&builder, options, allow_http)?),
        false => None,
    };
    let unverified_server = endpoint
        .filter(|url| !is_below(url, &["amazonaws.com", "amazonaws.com.cn"]))
        .map(|url| format!("{url} {}", location.base));
    Ok((|| {
        let builder = match fetch {
            Some((within, looked_at)) => {
                let inner = builder.clone().with_http_connector(Connector::new(options, false)).build()?;
                let inner = inner.credentials().clone();
                builder.with_credentials(Arc::new(Fetched { inner, within, looked_at }))
            }
            None => builder,
        };
        let store = builder.clone().with_http_connector(Connector::new(options, false)).build()?;
        let credentials = store.credentials().clone();
        let once = builder
            .with_credentials(credentials.clone())
            // Each of its requests is sent only once, too, and only the last one has the condition.
            .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
            .with_http_connector(Connector::new(options, true))
            .with_retry(no_retries())
            .build()?;
        let locks = match table {
            Some((region, endpoint)) => {
                let credentials = lock_credentials(options).unwrap_or(credentials);
                Some(Arc::new(LockTable::open(options, (&options.lock_table(), region, endpoint), credentials)?))
            }
            None => None,
        };
        Ok(Clients { unverified_server, locks, deletes, ..paged(store, once, true) })
    })())
}

/// How long to wait for credentials that have to be fetched, and where they are searched.
type Fetch = Option<(Duration, &'static str)>;

/// The settings of the environment, of a profile, and of the caller, which take precedence.
fn s3_settings(options: &Options) -> Result<(Vec<(AmazonS3ConfigKey, String)>, Fetch)> {
    use AmazonS3ConfigKey as Key;
    let mut settings = options.settings::<Key>("AWS_")?;
    if options.anonymous {
        settings.retain(|(key, _)| matches!(key, Key::Client(_)));
        settings.push((Key::SkipSignature, "true".into()));
        return Ok((settings, None));
    }
    let given: Vec<Key> = options.keys_of().map(|(key, _)| key).collect();
    let names_profile = options.own(PROFILE).is_some();
    let mine = settings.len() - given.len();
    let is_static = |key: &Key| matches!(key, Key::AccessKeyId | Key::SecretAccessKey | Key::Token);
    let is_fetched = |key: &Key| matches!(key, Key::WebIdentityTokenFile | Key::ContainerCredentialsRelativeUri);
    let mut at = 0;
    settings.retain(|(key, _)| {
        // Keys of two pairs must not be mixed.
        let is_replaced = is_static(key) && (names_profile || given.iter().any(is_static));
        at += 1;
        at > mine || !(is_replaced || names_profile && is_fetched(key))
    });
    let has = |settings: &[(Key, String)], wanted: Key| settings.iter().any(|(key, _)| *key == wanted);
    let skips = settings.iter().rev().find(|(key, _)| *key == Key::SkipSignature).is_some_and(|(_, v)| v == "true");
    let mut has_keys = has(&settings, Key::AccessKeyId) || has(&settings, Key::SecretAccessKey);
    let has_role = has(&settings, Key::WebIdentityTokenFile) && has(&settings, Key::RoleArn);
    let needs_keys = names_profile || !(skips || has_keys || has_role);
    let has_region = has(&settings, Key::Region) || has(&settings, Key::DefaultRegion);
    let profile = match (needs_keys, has_region) {
        (true, _) if names_profile || !options.offline => Profile::load(options)?,
        // If nothing else is needed of the profile, it need not be complete, and its endpoint may be for other keys.
        (false, false) if !options.offline => Profile::load(options).ok().flatten().map(|mut profile| {
            profile.endpoint = None;
            profile
        }),
        _ => None,
    };
    if let Some(mut profile) = profile {
        let wants_keys = needs_keys && !has_keys && !skips;
        if let Some(keys) = if wants_keys { profile.take_keys()? } else { None } {
            options.keep_secret([Some(keys.secret.clone()), keys.token.clone()].into_iter().flatten().collect());
            settings.extend([(Key::AccessKeyId, keys.id), (Key::SecretAccessKey, keys.secret)]);
            settings.extend(keys.token.map(|token| (Key::Token, token)));
            has_keys = true;
        }
        if let Some(region) = profile.region.filter(|_| !has_region) {
            settings.push((Key::Region, region));
        }
        if let Some(endpoint) = profile.endpoint.filter(|_| !has(&settings, Key::Endpoint)) {
            settings.extend((!has(&settings, Key::S3Endpoint)).then_some((Key::Endpoint, endpoint)));
        }
    }
    // The environment's endpoint for S3 would otherwise override the general one that the caller gave.
    if given.contains(&Key::Endpoint) && !given.contains(&Key::S3Endpoint) {
        settings.retain(|(key, _)| *key != Key::S3Endpoint);
    }
    let fetch = match (skips || has_keys, has_role) {
        (true, _) => None,
        (false, true) => Some((FAR, "looked at the web identity token that the settings name")),
        (false, false) => Some((NEAR, LOOKED_FOR_S3)),
    };
    Ok((settings, fetch))
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
    let endpoint = match (endpoint, variable("AWS_ENDPOINT_URL_DYNAMODB")) {
        (Some(endpoint), _) => endpoint,
        (None, Some(endpoint)) => check("AWS_ENDPOINT_URL_DYNAMODB (environment)", &endpoint, &[Form::Url])?
            .ok_or_else(|| Error::internal("a variable that is not empty has no value"))?,
        (None, None) => {
            let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://dynamodb.{region}.amazonaws.com{suffix}")
        }
    };
    if endpoint.starts_with("http://") && !allow_http {
        return Err(Error::invalid(
            "the DynamoDB endpoint is plain http; set the option aws_allow_http to 'true' to use it",
        ));
    }
    Ok((region, endpoint + "/"))
}

/// Separate credentials for DynamoDB.
fn lock_credentials(options: &Options) -> Option<AwsCredentialProvider> {
    let text = |name| options.dynamodb(name).map(str::to_owned);
    let (key_id, secret_key) = (text("access_key_id")?, text("secret_access_key")?);
    Some(Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token: text("session_token") })))
}

/// The settings, without credentials if none are to be sent.
fn azure_settings(options: &Options) -> Result<Vec<(AzureConfigKey, String)>> {
    use AzureConfigKey as Key;
    let mut settings = options.settings::<Key>("AZURE_")?;
    if let Some(endpoint) = variable("IDENTITY_ENDPOINT").filter(|_| !options.offline) {
        let endpoint = check("IDENTITY_ENDPOINT (environment)", &endpoint, &[Form::Url])?;
        settings.splice(0..0, endpoint.map(|endpoint| (Key::MsiEndpoint, endpoint)));
    }
    if options.anonymous {
        settings.retain(|(key, _)| matches!(key, Key::Client(_)));
        settings.push((Key::SkipSignature, "true".into()));
    }
    if options.offline {
        // These would run a program.
        settings.retain(|(key, _)| !matches!(key, Key::UseAzureCli | Key::CredentialType));
    }
    Ok(settings)
}

fn open_azure(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    use AzureConfigKey as Key;
    let settings = azure_settings(options)?;
    let mut builder = MicrosoftAzureBuilder::new().with_retry(options.retries()?);
    for (key, value) in settings {
        builder = builder.with_config(key, value);
    }
    let is = |key: Key| builder.get_config_value(&key).as_deref() == Some("true");
    let has = |key: Key| builder.get_config_value(&key).is_some();
    // The emulator cannot begin a listing at a name.
    let emulator = is(Key::UseEmulator);
    let fetch = match emulator || is(Key::SkipSignature) || has(Key::AccessKey) || has(Key::SasKey) || has(Key::Token) {
        true => None,
        false if has(Key::ClientId) || is(Key::UseAzureCli) || has(Key::FabricTokenServiceUrl) => {
            Some((FAR, "looked at the identity that the settings name"))
        }
        false => Some((NEAR, LOOKED_FOR_AZURE)),
    };
    let [endpoint, account] = [Key::Endpoint, Key::AccountName].map(|key| builder.get_config_value(&key));
    let server = format!("{endpoint:?} {account:?} {}", location.base);
    let builder = builder.with_url(&location.base);
    Ok((|| {
        let builder = match fetch {
            Some((within, looked_at)) => {
                let inner = builder.clone().with_http_connector(Connector::new(options, false)).build()?;
                let inner = inner.credentials().clone();
                builder.with_credentials(Arc::new(Fetched { inner, within, looked_at }))
            }
            None => builder,
        };
        let store = Arc::new(builder.clone().with_http_connector(Connector::new(options, false)).build()?);
        let credentials = store.credentials().clone();
        let once = builder
            .with_credentials(credentials.clone())
            .with_http_connector(IfAbsent::new(Connector::new(options, true), credentials))
            .with_retry(no_retries())
            .build()?;
        let once = Arc::new(once);
        let blocks = Blocks { server, repeating: store.clone(), once: once.clone() };
        Ok(Clients {
            blocks: Some(blocks),
            deletes: DELETES_OF_AZURE,
            ..Clients::new(store.clone(), once, Some(store), !emulator)
        })
    })())
}

fn open_gcs(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    use GoogleConfigKey as Key;
    let mut settings = options.settings::<Key>("GOOGLE_")?;
    if let Some(path) = variable("SERVICE_ACCOUNT").filter(|_| !options.offline) {
        let path = check("SERVICE_ACCOUNT (environment)", &path, &[Form::File])?;
        settings.splice(0..0, path.map(|path| (Key::ServiceAccount, path)));
    }
    if options.anonymous {
        settings.retain(|(key, _)| matches!(key, Key::Client(_)));
        settings.push((Key::SkipSignature, "true".into()));
    }
    // If the key of a service account is given in both ways, the caller's takes precedence over the environment's.
    let given: Vec<Key> = options.keys_of().map(|(key, _)| key).collect();
    for (one, other) in [(Key::ServiceAccount, Key::ServiceAccountKey), (Key::ServiceAccountKey, Key::ServiceAccount)] {
        if given.contains(&one) && !given.contains(&other) {
            settings.retain(|(key, _)| *key != other);
        }
    }
    let skips = settings.iter().rev().find(|(key, _)| *key == Key::SkipSignature).is_some_and(|(_, v)| v == "true");
    let has_token = settings.iter().any(|(key, _)| *key == Key::BearerToken);
    let mut builder = GoogleCloudStorageBuilder::new().with_retry(options.retries()?);
    for (key, value) in settings {
        builder = builder.with_config(key, value);
    }
    let names_account = [Key::ServiceAccount, Key::ServiceAccountKey, Key::ApplicationCredentials]
        .into_iter()
        .any(|key| builder.get_config_value(&key).is_some());
    let fetch = match (skips || has_token, names_account || has_default_credentials()) {
        (true, _) => None,
        (false, true) => Some((FAR, "looked at the account that the settings or Google's own file name")),
        (false, false) => Some((NEAR, LOOKED_FOR_GOOGLE)),
    };
    let builder = builder.with_url(&location.base);
    let server = google_server(&builder);
    if let Some(server) = &server {
        check("google_base_url (or gcs_base_url of the service account's key)", server, &[Form::Url])?;
    }
    let server = server.filter(|url| !is_below(url, &["googleapis.com"]));
    let unverified_server = server.map(|url| format!("{url} {}", location.base));
    Ok((|| {
        let builder = match fetch {
            Some((within, looked_at)) => {
                let inner = builder.clone().with_http_connector(Connector::new(options, false)).build()?;
                let inner = inner.credentials().clone();
                builder.with_credentials(Arc::new(Fetched { inner, within, looked_at }))
            }
            None => builder,
        };
        let store = builder.clone().with_http_connector(Connector::new(options, false)).build()?;
        let once = builder
            .with_credentials(store.credentials().clone())
            .with_http_connector(Connector::new(options, true))
            .with_retry(no_retries())
            .build()?;
        Ok(Clients { unverified_server, ..paged(store, once, true) })
    })())
}

/// Whether there is a credentials file of Google's own tool.
fn has_default_credentials() -> bool {
    let file = ".config/gcloud/application_default_credentials.json";
    std::env::home_dir().is_some_and(|home| home.join(file).is_file())
}

/// The server that the options or the service account's key name instead of Google's.
fn google_server(builder: &GoogleCloudStorageBuilder) -> Option<String> {
    let option = |key: GoogleConfigKey| builder.get_config_value(&key);
    option(GoogleConfigKey::BaseUrl).or_else(|| {
        let of_file = || std::fs::read_to_string(option(GoogleConfigKey::ServiceAccount)?).ok();
        let key = option(GoogleConfigKey::ServiceAccountKey).or_else(of_file)?;
        let key: serde_json::Value = serde_json::from_str(&key).ok()?;
        key.get("gcs_base_url")?.as_str().map(str::to_owned)
    })
}

fn open_http(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    let is_plain = location.base.starts_with("http://");
    let settings: Vec<(ClientConfigKey, &str)> = options.keys_of().collect();
    let allows = ["allow_http", "aws_allow_http", "azure_allow_http", "google_allow_http"]
        .iter()
        .any(|name| options.own(name) == Some("true"));
    if is_plain && options.foreign && !allows {
        return Err(Error::invalid(format!(
            "the log names a file at {}, which is plain http; set the storage option allow_http to 'true' to read it",
            location.base
        )));
    }
    let retry = options.retries()?;
    let build = |connector, retry| {
        let mut builder = HttpBuilder::new().with_url(&location.base).with_http_connector(connector).with_retry(retry);
        for (key, value) in &settings {
            builder = builder.with_config(*key, *value);
        }
        if is_plain {
            builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
        }
        builder.build()
    };
    Ok((|| {
        let store = Arc::new(build(Connector::new(options, false).redirected_anywhere(), retry)?);
        let once = Arc::new(build(Connector::new(options, true).redirected_anywhere(), no_retries())?);
        Ok(Clients::new(store, once, None, false))
    })())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_a_log_names_gets_no_credentials() {
        let given = [
            ("aws_access_key_id", "id"),
            ("aws_secret_access_key", "secret"),
            ("aws_session_token", "token"),
            ("aws_endpoint", "https://there"),
            ("timeout", "9s"),
        ];
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let options = Options::parse(&given).unwrap();
        let (settings, fetch) = s3_settings(&options.for_foreign(true)).unwrap();
        assert!(fetch.is_none());
        for (key, _) in &settings {
            assert!(matches!(key, AmazonS3ConfigKey::Client(_) | AmazonS3ConfigKey::SkipSignature), "{key:?}");
        }
        assert!(settings.iter().any(|(key, value)| *key == AmazonS3ConfigKey::SkipSignature && value == "true"));
        let (settings, _) = s3_settings(&options.for_foreign(false)).unwrap();
        assert!(settings.iter().any(|(key, value)| *key == AmazonS3ConfigKey::Token && value == "token"));
    }

    #[test]
    fn another_account_of_azure_that_a_log_names_gets_no_credentials() {
        let given = [
            ("azure_storage_account_name", "account"),
            ("azure_storage_account_key", "c2VzYW1l"),
            ("azure_storage_sas_token", "sv=2024-11-04&sig=c2VzYW1l"),
            ("azure_storage_token", "bearer"),
            ("azure_storage_client_secret", "secret"),
            ("azure_storage_endpoint", "https://there"),
            ("timeout", "9s"),
        ];
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let options = Options::parse(&given).unwrap();
        let settings = azure_settings(&options.for_foreign(true)).unwrap();
        for (key, _) in &settings {
            assert!(matches!(key, AzureConfigKey::Client(_) | AzureConfigKey::SkipSignature), "{key:?}");
        }
        assert!(settings.iter().any(|(key, value)| *key == AzureConfigKey::SkipSignature && value == "true"));
        let settings = azure_settings(&options.for_foreign(false)).unwrap();
        for (key, expected) in
            [(AzureConfigKey::SasKey, "sv=2024-11-04&sig=c2VzYW1l"), (AzureConfigKey::Token, "bearer")]
        {
            assert!(settings.iter().any(|(found, value)| *found == key && value == expected), "{key:?}");
        }
    }

    #[test]
    fn clients_of_another_process_are_left_alone() {
        let location = Location::parse("s3://bucket").unwrap();
        let options = Options::parse(&std::collections::HashMap::new()).unwrap();
        let slot = Slot::default();
        let mine = slot.clients(&location, &options).unwrap();
        assert!(Arc::ptr_eq(&mine, &slot.clients(&location, &options).unwrap()));

        let parent = Arc::new(open(&location, &options, std::process::id() + 1).unwrap());
        *slot.0.write().unwrap() = Some(parent.clone());
        let fresh = slot.clients(&location, &options).unwrap();
        assert_eq!(fresh.pid, std::process::id());
        assert!(Arc::ptr_eq(&fresh, &slot.clients(&location, &options).unwrap()));
        assert_eq!(Arc::strong_count(&parent), 2, "the parent's connections are not closed");

        let held = slot.0.write().unwrap();
        assert_eq!(slot.clients(&location, &options).unwrap().pid, std::process::id(), "a held lock is no obstacle");
        drop(held);
    }
}
