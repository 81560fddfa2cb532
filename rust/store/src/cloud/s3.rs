//! Opens the clients of a bucket of S3, and of the DynamoDB table for its commits.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider, S3CopyIfNotExists};
use object_store::{ClientConfigKey, StaticCredentialProvider};

use super::clients::{Clients, Fetch, is_below, no_retries, paged, unsigned, with_fetched};
use crate::config::names::PROFILE;
use crate::config::options::Options;
use crate::config::profile::Profile;
use crate::config::settings::{Form, check, variable};
use crate::dynamodb::LockTable;
use crate::error::{Error, Result};
use crate::http::answers::Connector;
use crate::http::credentials::{IDENTITY_TIMEOUT, METADATA_SERVICE_TIMEOUT};
use crate::location::Location;

/// Where credentials were searched, and what to do.
const LOOKED_FOR_S3: &str = "looked at the storage options and the environment (aws_access_key_id, \
    aws_secret_access_key), the profile (aws_profile, ~/.aws/credentials, ~/.aws/config), and the metadata service of \
    the container or machine; pass keys or a profile, or set aws_skip_signature to 'true' for a public bucket";
/// How many files one request deletes at most: what the interface of Amazon allows.
const MAX_DELETES_OF_S3: usize = 1000;

pub(super) fn open_s3(location: &Location, options: &Options) -> Result<object_store::Result<Clients>> {
    let (settings, fetch) = s3_settings(options)?;
    let endpoint = s3_endpoint(&settings);
    let mut builder = AmazonS3Builder::new().with_retry(options.retries()?);
    for (key, value) in settings {
        builder = builder.with_config(key, value);
    }
    let allow_http = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let allow_http = allow_http.as_deref() == Some("true");
    if endpoint.as_deref().is_some_and(|url| url.starts_with("http://")) && !allow_http {
        return Err(Error::invalid("the S3 endpoint is plain http; set the option aws_allow_http to 'true' to use it"));
    }
    let deletes = match builder.get_config_value(&AmazonS3ConfigKey::DisableBulkDelete).as_deref() {
        Some("true") => 1,
        _ => MAX_DELETES_OF_S3,
    };
    let builder = builder.with_url(&location.base);
    let table = match options.commits_through_dynamodb {
        true => Some(lock_table(&builder, options, allow_http)?),
        false => None,
    };
    let unverified_server = endpoint
        .filter(|url| !is_below(url, &["amazonaws.com", "amazonaws.com.cn"]))
        .map(|url| format!("{url} {}", location.base));
    let clients = build_s3(builder, options, fetch, table);
    Ok(clients.map(|clients| Clients { unverified_server, deletes, ..clients }))
}

/// The endpoint that the client uses.
fn s3_endpoint(settings: &[(AmazonS3ConfigKey, String)]) -> Option<String> {
    let last = |wanted: AmazonS3ConfigKey| settings.iter().rev().find(|(key, _)| *key == wanted);
    let endpoint = last(AmazonS3ConfigKey::S3Endpoint).or_else(|| last(AmazonS3ConfigKey::Endpoint));
    endpoint.map(|(_, url)| url.clone())
}

/// `table`: region and endpoint of DynamoDB, if commits go through it.
fn build_s3(
    builder: AmazonS3Builder,
    options: &Options,
    fetch: Fetch,
    table: Option<(String, String)>,
) -> object_store::Result<Clients> {
    let open = |builder: &AmazonS3Builder| builder.clone().with_http_connector(Connector::new(options, false)).build();
    let builder =
        with_fetched(builder, fetch, |of| Ok(open(of)?.credentials().clone()), AmazonS3Builder::with_credentials)?;
    let store = open(&builder)?;
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
            Some(Arc::new(LockTable::open(options, options.lock_table(), region, endpoint, credentials)?))
        }
        None => None,
    };
    Ok(Clients { locks, ..paged(store, once, true) })
}

/// The settings of the environment, of a profile, and of the caller, which take precedence.
pub(super) fn s3_settings(options: &Options) -> Result<(Vec<(AmazonS3ConfigKey, String)>, Fetch)> {
    use AmazonS3ConfigKey as Key;
    let mut settings = options.settings::<Key>("AWS_")?;
    if options.anonymous {
        unsigned(&mut settings, |key| matches!(key, Key::Client(_)), Key::SkipSignature);
        return Ok((settings, None));
    }
    let given: Vec<Key> = options.keys_of().map(|(key, _)| key).collect();
    let names_profile = options.own(PROFILE).is_some();
    drop_replaced_keys(&mut settings, &given, names_profile);
    let has = |wanted: Key| settings.iter().any(|(key, _)| *key == wanted);
    let skips = settings.iter().rev().find(|(key, _)| *key == Key::SkipSignature).is_some_and(|(_, v)| v == "true");
    let mut has_keys = has(Key::AccessKeyId) || has(Key::SecretAccessKey);
    let has_role = has(Key::WebIdentityTokenFile) && has(Key::RoleArn);
    let needs_keys = names_profile || !(skips || has_keys || has_role);
    let has_region = has(Key::Region) || has(Key::DefaultRegion);
    let profile = match (needs_keys, has_region) {
        (true, _) if names_profile || !options.offline => Profile::load(options)?,
        // If nothing else is needed of the profile, it need not be complete, and its endpoint may be for other keys.
        (false, false) if !options.offline => Profile::load(options).ok().flatten().map(|mut profile| {
            profile.endpoint = None;
            profile
        }),
        _ => None,
    };
    if let Some(profile) = profile {
        let wants_keys = needs_keys && !has_keys && !skips;
        has_keys |= add_profile(&mut settings, profile, wants_keys, options)?;
    }
    // The environment's endpoint for S3 would otherwise override the general one that the caller gave.
    if given.contains(&Key::Endpoint) && !given.contains(&Key::S3Endpoint) {
        settings.retain(|(key, _)| *key != Key::S3Endpoint);
    }
    let fetch = match (skips || has_keys, has_role) {
        (true, _) => None,
        (false, true) => Some((IDENTITY_TIMEOUT, "looked at the web identity token that the settings name")),
        (false, false) => Some((METADATA_SERVICE_TIMEOUT, LOOKED_FOR_S3)),
    };
    Ok((settings, fetch))
}

/// Removes keys of the environment if the caller gives others or names a profile: keys of two pairs must not be mixed.
/// `given`: the settings of the caller, which are the last ones.
fn drop_replaced_keys(
    settings: &mut Vec<(AmazonS3ConfigKey, String)>,
    given: &[AmazonS3ConfigKey],
    names_profile: bool,
) {
    use AmazonS3ConfigKey as Key;
    let is_static = |key: &Key| matches!(key, Key::AccessKeyId | Key::SecretAccessKey | Key::Token);
    let is_fetched = |key: &Key| matches!(key, Key::WebIdentityTokenFile | Key::ContainerCredentialsRelativeUri);
    let of_environment = settings.len() - given.len();
    let mut at = 0;
    settings.retain(|(key, _)| {
        let is_replaced = is_static(key) && (names_profile || given.iter().any(is_static));
        at += 1;
        at > of_environment || !(is_replaced || names_profile && is_fetched(key))
    });
}

/// Adds what a profile has and the settings lack. Returns whether it has keys, and these are wanted.
fn add_profile(
    settings: &mut Vec<(AmazonS3ConfigKey, String)>,
    mut profile: Profile,
    wants_keys: bool,
    options: &Options,
) -> Result<bool> {
    use AmazonS3ConfigKey as Key;
    let has = |settings: &[(Key, String)], wanted: Key| settings.iter().any(|(key, _)| *key == wanted);
    let keys = if wants_keys { profile.take_keys()? } else { None };
    let has_keys = keys.is_some();
    if let Some(keys) = keys {
        options.keep_secret([Some(keys.secret.clone()), keys.token.clone()].into_iter().flatten().collect());
        settings.extend([(Key::AccessKeyId, keys.id), (Key::SecretAccessKey, keys.secret)]);
        settings.extend(keys.token.map(|token| (Key::Token, token)));
    }
    let has_region = has(settings, Key::Region) || has(settings, Key::DefaultRegion);
    if let Some(region) = profile.region.filter(|_| !has_region) {
        settings.push((Key::Region, region));
    }
    if let Some(endpoint) = profile.endpoint.filter(|_| !has(settings, Key::Endpoint)) {
        settings.extend((!has(settings, Key::S3Endpoint)).then_some((Key::Endpoint, endpoint)));
    }
    Ok(has_keys)
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
    let value = |name| options.dynamodb(name).map(str::to_owned);
    let (key_id, secret_key) = (value("access_key_id")?, value("secret_access_key")?);
    Some(Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token: value("session_token") })))
}
