//! Opens the clients of a bucket from a location, the environment and options, once per process.
//!
//! Two clients share one set of credentials. One retries requests that failed in transit, which is right for anything
//! idempotent; the other sends each request once, for conditional puts.
//!
//! Connections do not survive a `fork`, so a client is bound to the process that opened it.
//! Proved by `conditional_put_outcomes` and `refusals` in the storage tests, and below.

use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, TryLockError};

use object_store::ClientConfigKey;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::memory::InMemory;

use super::azure_blocks::{Blocks, IfAbsent};
use super::clients::{Clients, Fetch, is_below, no_retries, paged, unsigned, with_fetched};
use super::s3::open_s3;
use crate::config::options::Options;
use crate::config::settings::{Form, check, variable};
use crate::error::{Error, Result};
use crate::http::answers::Connector;
use crate::http::credentials::{IDENTITY_TIMEOUT, METADATA_SERVICE_TIMEOUT};
use crate::location::{Location, Scheme};

/// Stores in memory, by name, for the life of the process.
static MEMORY: LazyLock<Mutex<std::collections::HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// Where credentials were searched, and what to do.
const LOOKED_FOR_AZURE: &str = "looked at the storage options and the environment (azure_storage_account_key, \
    azure_storage_sas_token, azure_storage_client_id with azure_storage_client_secret and azure_storage_tenant_id), and \
    the metadata service of the machine; pass one of them, set azure_use_azure_cli to 'true', or azure_skip_signature \
    to 'true' for a public container";
const LOOKED_FOR_GOOGLE: &str = "looked at the storage options and the environment (google_service_account, \
    google_application_credentials), the file of `gcloud auth application-default login`, and the metadata service of \
    the machine; pass one of them, or set google_skip_signature to 'true' for a public bucket";

/// How many files one request deletes at most: what the interface of Azure allows.
const MAX_DELETES_OF_AZURE: usize = 256;

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

/// The settings, without credentials if none are to be sent.
fn azure_settings(options: &Options) -> Result<Vec<(AzureConfigKey, String)>> {
    use AzureConfigKey as Key;
    let mut settings = options.settings::<Key>("AZURE_")?;
    prepend_variable(&mut settings, options, "IDENTITY_ENDPOINT", Form::Url, Key::MsiEndpoint)?;
    if options.anonymous {
        unsigned(&mut settings, |key| matches!(key, Key::Client(_)), Key::SkipSignature);
    }
    if options.offline {
        // These would run a program.
        settings.retain(|(key, _)| !matches!(key, Key::UseAzureCli | Key::CredentialType));
    }
    Ok(settings)
}

/// Puts the value of a variable that has no prefix before all settings, which override it.
fn prepend_variable<K>(
    settings: &mut Vec<(K, String)>,
    options: &Options,
    name: &str,
    form: Form,
    key: K,
) -> Result<()> {
    let Some(value) = variable(name).filter(|_| !options.offline) else { return Ok(()) };
    let value = check(&format!("{name} (environment)"), &value, &[form])?;
    settings.splice(0..0, value.map(|value| (key, value)));
    Ok(())
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
            Some((IDENTITY_TIMEOUT, "looked at the identity that the settings name"))
        }
        false => Some((METADATA_SERVICE_TIMEOUT, LOOKED_FOR_AZURE)),
    };
    let [endpoint, account] = [Key::Endpoint, Key::AccountName].map(|key| builder.get_config_value(&key));
    let server = format!("{endpoint:?} {account:?} {}", location.base);
    let builder = builder.with_url(&location.base);
    Ok(build_azure(builder, options, fetch, server, !emulator))
}

/// `server`: what identifies the account. `offsets`: whether a listing can start at a name.
fn build_azure(
    builder: MicrosoftAzureBuilder,
    options: &Options,
    fetch: Fetch,
    server: String,
    offsets: bool,
) -> object_store::Result<Clients> {
    let open =
        |builder: &MicrosoftAzureBuilder| builder.clone().with_http_connector(Connector::new(options, false)).build();
    let builder = with_fetched(
        builder,
        fetch,
        |of| Ok(open(of)?.credentials().clone()),
        MicrosoftAzureBuilder::with_credentials,
    )?;
    let store = Arc::new(open(&builder)?);
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
        deletes: MAX_DELETES_OF_AZURE,
        ..Clients::new(store.clone(), once, Some(store), offsets)
    })
}

fn open_gcs(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    use GoogleConfigKey as Key;
    let settings = google_settings(options)?;
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
        (false, true) => Some((IDENTITY_TIMEOUT, "looked at the account that the settings or Google's own file name")),
        (false, false) => Some((METADATA_SERVICE_TIMEOUT, LOOKED_FOR_GOOGLE)),
    };
    let builder = builder.with_url(&location.base);
    let server = google_server(&builder);
    if let Some(server) = &server {
        check("google_base_url (or gcs_base_url of the service account's key)", server, &[Form::Url])?;
    }
    let server = server.filter(|url| !is_below(url, &["googleapis.com"]));
    let unverified_server = server.map(|url| format!("{url} {}", location.base));
    Ok(build_gcs(builder, options, fetch).map(|clients| Clients { unverified_server, ..clients }))
}

/// The settings, without credentials if none are to be sent.
fn google_settings(options: &Options) -> Result<Vec<(GoogleConfigKey, String)>> {
    use GoogleConfigKey as Key;
    let mut settings = options.settings::<Key>("GOOGLE_")?;
    prepend_variable(&mut settings, options, "SERVICE_ACCOUNT", Form::File, Key::ServiceAccount)?;
    if options.anonymous {
        unsigned(&mut settings, |key| matches!(key, Key::Client(_)), Key::SkipSignature);
    }
    // If the key of a service account is given in both ways, the caller's takes precedence over the environment's.
    let given: Vec<Key> = options.keys_of().map(|(key, _)| key).collect();
    for (one, other) in [(Key::ServiceAccount, Key::ServiceAccountKey), (Key::ServiceAccountKey, Key::ServiceAccount)] {
        if given.contains(&one) && !given.contains(&other) {
            settings.retain(|(key, _)| *key != other);
        }
    }
    Ok(settings)
}

fn build_gcs(builder: GoogleCloudStorageBuilder, options: &Options, fetch: Fetch) -> object_store::Result<Clients> {
    let open = |builder: &GoogleCloudStorageBuilder| {
        builder.clone().with_http_connector(Connector::new(options, false)).build()
    };
    let builder = with_fetched(
        builder,
        fetch,
        |of| Ok(open(of)?.credentials().clone()),
        GoogleCloudStorageBuilder::with_credentials,
    )?;
    let store = open(&builder)?;
    let once = builder
        .with_credentials(store.credentials().clone())
        .with_http_connector(Connector::new(options, true))
        .with_retry(no_retries())
        .build()?;
    Ok(paged(store, once, true))
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
    let store = build(Connector::new(options, false).redirected_anywhere(), retry);
    let once = build(Connector::new(options, true).redirected_anywhere(), no_retries());
    Ok(store.and_then(|store| Ok(Clients::new(Arc::new(store), Arc::new(once?), None, false))))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use object_store::aws::AmazonS3ConfigKey;

    use super::*;
    use crate::cloud::s3::s3_settings;

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
