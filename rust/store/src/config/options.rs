//! The options that a caller passes with a location: checks them, and keeps their secrets out of messages.
//!
//! Keys are those of the `object_store` crate, as in other Delta clients, in any case, and those in
//! `names.rs`.
//!
//! Invariant: text from [`Options::redact`] has no option value, environment credential, user info or
//! URL query, and is short and printable. Proved by `secrets_stay_out_of_texts` in the storage tests.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use deltic_protocol::error::mask_urls;
use object_store::azure::AzureConfigKey;
use object_store::{BackoffConfig, RetryConfig};

use super::names::{self, ALLOW_FOREIGN_PATHS, DURABILITY, DYNAMODB, LOG_STORE};
use super::settings::{self, Form, of_environment, variable};
use crate::error::{Error, Result};
use crate::location::Location;

/// The environment variable for durability, used if the option is absent.
const DURABILITY_VARIABLE: &str = "DELTIC_DURABILITY";
/// The environment variables for commits through DynamoDB, by the names of delta-rs: a process that shares its environment must
/// commit in the same way.
const LOCKING_VARIABLE: &str = "AWS_S3_LOCKING_PROVIDER";
const LOCK_TABLE_VARIABLE: &str = "DELTA_DYNAMO_TABLE_NAME";

/// The default name of the DynamoDB table, as in delta-spark.
const LOCK_TABLE: &str = "delta_log";

/// The longest part of a server's answer in a message.
const MAX_ANSWER_LENGTH: usize = 500;
/// Shorter values are not masked, since they occur in too many messages.
const MIN_SECRET_LENGTH: usize = 6;

/// Checked options. They have secrets, so there is no `Debug`.
#[derive(Clone)]
pub(crate) struct Options {
    /// Keys in lower case, and values.
    pairs: Vec<(String, String)>,
    /// Whether local writes are synced.
    pub(crate) durable: bool,
    /// Whether commits on S3 go through DynamoDB.
    pub(crate) commits_through_dynamodb: bool,
    /// Whether a log may name files that are not in the table's own store.
    pub(crate) allow_foreign_paths: bool,
    /// Whether the store was named by a log, not by the caller.
    pub(crate) foreign: bool,
    /// Whether no credentials are sent.
    pub(crate) anonymous: bool,
    /// Whether no request is sent.
    pub(crate) offline: bool,
    /// Secrets from files.
    found: Arc<OnceLock<Vec<String>>>,
}

/// The options with the secrets in the URL of a location, which take precedence.
pub(crate) fn with_secrets(mut given: HashMap<String, String>, location: &Location) -> HashMap<String, String> {
    if let Some(sas) = &location.sas {
        given.retain(|key, _| !matches!(key.to_ascii_lowercase().parse(), Ok(AzureConfigKey::SasKey)));
        given.insert("azure_storage_sas_token".to_owned(), sas.clone());
    }
    given
}

impl Options {
    /// Checks every key and every value.
    pub(crate) fn parse(given: &HashMap<String, String>) -> Result<Self> {
        let pairs = checked(given)?;
        let option = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let durable = match option(DURABILITY).map(str::to_owned).or_else(|| variable(DURABILITY_VARIABLE)).as_deref() {
            None | Some("full") => true,
            Some("none") => false,
            Some(_) => return Err(Error::invalid(format!("{DURABILITY} must be 'full' or 'none'"))),
        };
        let commits_through_dynamodb = match option(LOG_STORE) {
            None => variable(LOCKING_VARIABLE).as_deref() == Some("dynamodb"),
            Some("conditional") => false,
            Some("dynamodb") => true,
            Some(_) => return Err(Error::invalid(format!("{LOG_STORE} must be 'conditional' or 'dynamodb'"))),
        };
        if let Some((key, _)) = pairs.iter().find(|(key, _)| key.starts_with(DYNAMODB) && !commits_through_dynamodb) {
            return Err(Error::invalid(format!("{key} needs {LOG_STORE} = 'dynamodb'")));
        }
        let allow_foreign_paths = option(ALLOW_FOREIGN_PATHS) == Some("true");
        let options = Self {
            pairs,
            durable,
            commits_through_dynamodb,
            allow_foreign_paths,
            foreign: false,
            anonymous: false,
            offline: false,
            found: Arc::default(),
        };
        options.retries()?;
        Ok(options)
    }

    /// The options for a store that a log names. `anonymous`: its server is named only by the log, too.
    pub(crate) fn for_foreign(&self, anonymous: bool) -> Self {
        Self { commits_through_dynamodb: false, foreign: true, anonymous, ..self.clone() }
    }

    /// Whether both open a store with the same credentials and settings.
    pub(crate) fn opens_as(&self, other: &Self) -> bool {
        let sorted = |options: &Self| {
            let mut pairs = options.pairs.clone();
            pairs.sort_unstable();
            pairs
        };
        self.anonymous == other.anonymous && sorted(self) == sorted(other)
    }

    /// The value of an option of deltic's own.
    pub(crate) fn own(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// How requests are retried.
    pub(crate) fn retries(&self) -> Result<RetryConfig> {
        let mut retry = RetryConfig::default();
        let duration = |name| self.own(name).and_then(|value| settings::duration(value).ok());
        if let Some(count) = self.own(names::MAX_RETRIES).and_then(|value| value.parse().ok()) {
            retry.max_retries = count;
        }
        if let Some(longest) = duration(names::RETRY_TIMEOUT) {
            retry.retry_timeout = longest;
        }
        let BackoffConfig { mut init_backoff, mut max_backoff, mut base } = retry.backoff;
        let (first, longest) = (duration(names::INIT_BACKOFF), duration(names::MAX_BACKOFF));
        init_backoff = first.unwrap_or(init_backoff.min(longest.unwrap_or(init_backoff)));
        max_backoff = longest.unwrap_or(max_backoff.max(init_backoff));
        if let Some(factor) = self.own(names::BACKOFF_BASE).and_then(|value| value.parse().ok()) {
            base = factor;
        }
        if max_backoff < init_backoff {
            return Err(Error::invalid(format!(
                "the storage option '{}' must not be less than '{}'",
                names::MAX_BACKOFF,
                names::INIT_BACKOFF
            )));
        }
        retry.backoff = BackoffConfig { init_backoff, max_backoff, base };
        Ok(retry)
    }

    /// The settings of the environment and of the caller, which take precedence.
    pub(crate) fn settings<K: std::str::FromStr>(&self, prefix: &str) -> Result<Vec<(K, String)>> {
        let environment = if self.offline { Vec::new() } else { of_environment::<K>(prefix)? };
        let environment = environment.into_iter().map(|(key, _, value)| (key, value));
        Ok(environment.chain(self.keys_of().map(|(key, value): (K, &str)| (key, value.to_owned()))).collect())
    }

    /// Also keeps these secrets, which are not options, out of messages.
    pub(crate) fn keep_secret(&self, secrets: Vec<String>) {
        // If this was called before, it was with the same secrets.
        let _ = self.found.set(secrets);
    }

    /// The value of `deltic.s3.dynamodb.<name>`.
    pub(crate) fn dynamodb(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(key, _)| key.strip_prefix(DYNAMODB) == Some(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The name of the DynamoDB table.
    pub(crate) fn lock_table(&self) -> String {
        self.dynamodb("table").map_or_else(|| variable(LOCK_TABLE_VARIABLE).unwrap_or(LOCK_TABLE.into()), str::to_owned)
    }

    /// The pairs whose keys parse as `K`, in a fixed order.
    pub(crate) fn keys_of<K: std::str::FromStr>(&self) -> impl Iterator<Item = (K, &str)> {
        self.pairs.iter().filter_map(|(key, value)| Some((key.parse().ok()?, value.as_str())))
    }

    /// `text` without credentials and control characters, and short enough for a message.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = mask_urls(printable(condense(text)));
        for name in ["sig=", "signature=", "token=", "credential=", "password=", "secret=", "bearer ", "basic "] {
            text = mask_after(&text, name);
        }
        for name in ["token", "secret", "password", "key"] {
            for form in [format!("{name}\":\""), format!("{name}\": \"")] {
                text = mask_after(&text, &form);
            }
        }
        let from_environment = std::env::vars_os().filter_map(|(key, value)| {
            let key = key.to_str()?.to_ascii_lowercase();
            let cloud = ["aws_", "azure_", "google_"].iter().any(|prefix| key.starts_with(prefix));
            cloud.then_some((key, value.to_str()?.trim().to_owned()))
        });
        let given = self.pairs.iter().cloned().chain(from_environment).filter(|(key, _)| is_secret(key));
        let found = self.found.get().into_iter().flatten().cloned();
        for value in given.map(|(_, value)| value).chain(found) {
            for form in forms(&value).into_iter().filter(|form| form.len() >= MIN_SECRET_LENGTH) {
                text = text.replace(&form, "***");
            }
        }
        if text.len() > MAX_ANSWER_LENGTH {
            let end = (0..=MAX_ANSWER_LENGTH).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        text
    }
}

/// The options by deltic's names, in a fixed order, without those that are empty or have no effect.
fn checked(given: &HashMap<String, String>) -> Result<Vec<(String, String)>> {
    let mut given: Vec<(String, &str)> =
        given.iter().map(|(key, value)| (key.trim().to_ascii_lowercase(), value.as_str())).collect();
    // If a key is given in two spellings, the result must not depend on the order of the map.
    given.sort();
    let mut pairs = Vec::with_capacity(given.len());
    for (key, value) in given {
        let name = names::canonical(&key);
        if !names::is_known(name) {
            return Err(names::unknown(&key));
        }
        let forms: Vec<Form> = match names::own_form(name) {
            Some(form) => vec![form],
            None => settings::forms(name),
        };
        let value = settings::check(&key, value, &forms)?;
        if let Some(value) = value.filter(|_| !names::is_without_effect(name)) {
            pairs.push((name.to_owned(), value));
        }
    }
    pairs.sort();
    Ok(pairs)
}

/// Replaces control characters, and those that change the direction of text, by blanks, and a page of HTML by a note.
fn printable(text: String) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    let mut text: String = text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect();
    let lower = text.to_ascii_lowercase();
    if let Some(start) = ["<!doctype html", "<html"].iter().filter_map(|tag| lower.find(tag)).min() {
        text.truncate(start);
        text.push_str("(a page of HTML)");
    }
    text
}

fn is_secret(key: &str) -> bool {
    let words = ["secret", "token", "key", "password", "sas", "credential", "proxy_url", "service_account"];
    !["_enabled", "_file"].iter().any(|end| key.ends_with(end)) && words.iter().any(|word| key.contains(word))
}

/// The forms in which a message may have a secret: unchanged, encoded, only the signature of a shared access token, and
/// the parts of a key that is a JSON object.
fn forms(secret: &str) -> Vec<String> {
    let encoded = percent_encoding::utf8_percent_encode(secret, percent_encoding::NON_ALPHANUMERIC).to_string();
    let mut forms = vec![secret.to_owned(), encoded];
    for signature in secret.split('&').filter_map(|pair| pair.trim_start_matches('?').strip_prefix("sig=")) {
        forms.push(percent_encoding::percent_decode_str(signature).decode_utf8_lossy().into_owned());
        forms.push(signature.to_owned());
    }
    if secret.starts_with('{')
        && let Ok(key) = serde_json::from_str::<HashMap<String, serde_json::Value>>(secret)
    {
        forms.extend(key.into_values().filter_map(|value| value.as_str().map(str::to_owned)));
    }
    forms
}

/// The code and message in a store's XML answer, which could otherwise repeat the whole signed request.
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
