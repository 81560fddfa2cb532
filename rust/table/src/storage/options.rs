//! The options a caller passes along with a location: which keys exist, and which values must stay secret.
//!
//! Keys are those of the `object_store` crate (the ones users of other Delta clients know), in any case, plus
//! `deltic.*`. A key nobody knows is refused: a misspelled credential would otherwise surface as "access denied".
//!
//! Invariant: text that leaves through [`Options::redact`] holds no option value, environment credential, user info or
//! URL query. Proved by `secrets_stay_out_of_texts` in the storage tests.

use std::collections::HashMap;

use deltic_protocol::error::mask_urls;
use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

use super::location::Location;
use crate::error::{Error, Result};

/// Whether writes to a local disk wait until they would survive a power cut: `full` (default) or `none`.
const DURABILITY: &str = "deltic.durability";
/// The environment's word on the same, used when the option is absent.
const DURABILITY_VARIABLE: &str = "DELTIC_DURABILITY";

/// How commits to a table on S3 exclude each other: `conditional` puts (default), or turns taken through `dynamodb`.
const LOG_STORE: &str = "deltic.s3.log_store";
/// What the options of the DynamoDB table begin with.
const DYNAMODB: &str = "deltic.s3.dynamodb.";
/// The table's name if none is given: that of delta-spark.
const LOCK_TABLE: &str = "delta_log";

/// Keys to suggest for one that is not known; the crate that knows them all cannot list them.
const SUGGESTIONS: &[&str] = &[
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_region",
    "aws_default_region",
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_allow_http",
    "aws_virtual_hosted_style_request",
    "aws_conditional_put",
    "aws_skip_signature",
    "aws_role_arn",
    "aws_server_side_encryption",
    "aws_sse_kms_key_id",
    "azure_storage_account_name",
    "azure_storage_account_key",
    "azure_storage_sas_token",
    "azure_storage_client_id",
    "azure_storage_client_secret",
    "azure_storage_tenant_id",
    "azure_storage_endpoint",
    "azure_storage_use_emulator",
    "azure_use_azure_cli",
    "google_service_account",
    "google_service_account_key",
    "google_application_credentials",
    "google_bearer_token",
    "google_skip_signature",
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "timeout",
    "proxy_url",
    "user_agent",
    "deltic.durability",
    "deltic.s3.log_store",
    "deltic.s3.dynamodb.table",
    "deltic.s3.dynamodb.region",
    "deltic.s3.dynamodb.endpoint",
    "deltic.s3.dynamodb.access_key_id",
    "deltic.s3.dynamodb.secret_access_key",
    "deltic.s3.dynamodb.session_token",
];

/// Longest piece of a server's answer worth repeating in a message.
const LONGEST_TEXT: usize = 500;
/// Shorter values are words of their own in too many messages.
const SHORTEST_SECRET: usize = 6;

/// Checked options. Holds secrets, so it has no `Debug`.
#[derive(Clone)]
pub(super) struct Options {
    /// Key in lower case, and value.
    pairs: Vec<(String, String)>,
    /// Whether local writes are synced.
    pub(super) durable: bool,
    /// Whether commits on S3 take turns through DynamoDB.
    pub(super) takes_turns: bool,
}

/// The options with the secrets that stood in the URL of a location, which go before.
pub(super) fn with_secrets(mut given: HashMap<String, String>, location: &Location) -> HashMap<String, String> {
    if let Some(sas) = &location.sas {
        given.retain(|key, _| !matches!(key.to_ascii_lowercase().parse(), Ok(AzureConfigKey::SasKey)));
        given.insert("azure_storage_sas_token".to_owned(), sas.clone());
    }
    given
}

impl Options {
    /// Checks every key and the values deltic itself understands.
    pub(super) fn parse(given: &HashMap<String, String>) -> Result<Self> {
        let mut pairs: Vec<(String, String)> =
            given.iter().map(|(key, value)| (key.to_ascii_lowercase(), value.clone())).collect();
        // Two spellings of one key would otherwise win in the map's order, differently each time.
        pairs.sort();
        if let Some(unknown) = pairs.iter().map(|(key, _)| key).find(|key| !is_known(key)) {
            return Err(Error::invalid(format!(
                "no storage backend has an option '{unknown}'; did you mean {}?",
                nearest(unknown).join(" or ")
            )));
        }
        let option = pairs.iter().find(|(key, _)| key == DURABILITY).map(|(_, value)| value.clone());
        let durable = match option.or_else(|| std::env::var(DURABILITY_VARIABLE).ok()).as_deref() {
            None | Some("full") => true,
            Some("none") => false,
            Some(other) => {
                return Err(Error::invalid(format!("{DURABILITY} must be 'full' or 'none', not '{other}'")));
            }
        };
        let takes_turns = match pairs.iter().find(|(key, _)| key == LOG_STORE).map(|(_, value)| value.as_str()) {
            None | Some("conditional") => false,
            Some("dynamodb") => true,
            Some(other) => {
                return Err(Error::invalid(format!("{LOG_STORE} must be 'conditional' or 'dynamodb', not '{other}'")));
            }
        };
        if let Some((key, _)) = pairs.iter().find(|(key, _)| key.starts_with(DYNAMODB) && !takes_turns) {
            return Err(Error::invalid(format!("{key} needs {LOG_STORE} = 'dynamodb'")));
        }
        Ok(Self { pairs, durable, takes_turns })
    }

    /// The value of `deltic.s3.dynamodb.<name>`.
    pub(super) fn dynamodb(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(key, _)| key.strip_prefix(DYNAMODB) == Some(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Name of the DynamoDB table.
    pub(super) fn lock_table(&self) -> &str {
        self.dynamodb("table").unwrap_or(LOCK_TABLE)
    }

    /// The pairs whose keys parse as `K`, in a fixed order.
    pub(super) fn keys_of<K: std::str::FromStr>(&self) -> impl Iterator<Item = (K, &str)> {
        self.pairs.iter().filter_map(|(key, value)| Some((key.parse().ok()?, value.as_str())))
    }

    /// `text` without credentials, and short enough for a message.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut text = mask_urls(condense(text));
        for name in ["sig=", "signature=", "token=", "credential=", "bearer ", "basic "] {
            text = mask_after(&text, name);
        }
        let from_environment = std::env::vars_os().filter_map(|(key, value)| {
            let key = key.to_str()?.to_ascii_lowercase();
            let cloud = ["aws_", "azure_", "google_"].iter().any(|prefix| key.starts_with(prefix));
            cloud.then_some((key, value.to_str()?.to_owned()))
        });
        for (_, value) in self.pairs.iter().cloned().chain(from_environment).filter(|(key, _)| is_secret(key)) {
            for form in forms(&value).into_iter().filter(|form| form.len() >= SHORTEST_SECRET) {
                text = text.replace(&form, "***");
            }
        }
        if text.len() > LONGEST_TEXT {
            let end = (0..=LONGEST_TEXT).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        text
    }
}

fn is_known(key: &str) -> bool {
    (key.starts_with("deltic.") && SUGGESTIONS.contains(&key))
        || key.parse::<AmazonS3ConfigKey>().is_ok()
        || key.parse::<AzureConfigKey>().is_ok()
        || key.parse::<GoogleConfigKey>().is_ok()
        || key.parse::<ClientConfigKey>().is_ok()
}

fn is_secret(key: &str) -> bool {
    let words = ["secret", "token", "key", "password", "sas", "credential", "proxy_url", "service_account"];
    !key.ends_with("_enabled") && words.iter().any(|word| key.contains(word))
}

/// The ways in which a server may repeat a secret: as it is, encoded, and the signature of a shared access token alone.
fn forms(secret: &str) -> Vec<String> {
    let encoded = percent_encoding::utf8_percent_encode(secret, percent_encoding::NON_ALPHANUMERIC).to_string();
    let mut forms = vec![secret.to_owned(), encoded];
    for signature in secret.split('&').filter_map(|pair| pair.trim_start_matches('?').strip_prefix("sig=")) {
        forms.push(percent_encoding::percent_decode_str(signature).decode_utf8_lossy().into_owned());
        forms.push(signature.to_owned());
    }
    forms
}

/// The three known keys that take the fewest edits.
fn nearest(key: &str) -> Vec<String> {
    // Distance is quadratic in the length; no real key is longer.
    let key: String = key.chars().take(64).collect();
    let mut known: Vec<&str> = SUGGESTIONS.to_vec();
    known.sort_by_key(|candidate| edits(&key, candidate));
    known.into_iter().take(3).map(|candidate| format!("'{candidate}'")).collect()
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let cost = (diagonal + usize::from(x != y)).min(left + 1).min(*slot + 1);
            diagonal = *slot;
            *slot = cost;
            left = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// The code and message of a store's XML answer, which may otherwise echo the whole signed request.
fn condense(text: &str) -> String {
    let inner = |tag: &str| {
        let start = text.find(&format!("<{tag}>"))? + tag.len() + 2;
        let rest = text.get(start..)?;
        rest.get(..rest.find("</")?)
    };
    match (text.find('<'), inner("Code"), inner("Message")) {
        (Some(start), Some(code), Some(message)) => {
            format!("{}{code}: {message}", text.get(..start).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

/// Replaces what follows each `name` (in any case), up to the end of that value.
fn mask_after(text: &str, name: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    while let Some(found) = lower.get(from..).and_then(|rest| rest.find(name)) {
        let start = from + found + name.len();
        let rest = text.get(start..).unwrap_or_default();
        let length = rest.find(|c: char| c.is_whitespace() || "&\"'<>,;)".contains(c)).unwrap_or(rest.len());
        out.push_str(text.get(from..start).unwrap_or_default());
        out.push_str("***");
        from = start + length;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}
