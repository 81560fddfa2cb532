//! Checks the values of settings from options, the environment and profiles.
//!
//! The object store crate puts settings into URLs and headers, and panics on some that do not fit there. So each is checked
//! before: surrounding blanks are removed, an empty value counts as absent, and an invalid one is refused with
//! the name of the setting. Messages never have the value, which may be a secret.
//!
//! Proved by the fuzz target `settings` and by `settings_are_checked` in the storage tests.

use std::ops::RangeInclusive;
use std::time::Duration;

use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use url::Url;

use crate::error::{Error, Result};
use crate::location::is_host;

/// The longest duration; hyper adds durations to the current time, where a very long one would overflow.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest value that is not the content of a file.
const MAX_VALUE_LENGTH: usize = 16 * 1024;

/// The form of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// Any single line.
    Line,
    /// Several lines: a certificate, the key of a service account.
    Lines,
    /// The path of a regular file: reading a pipe or a device may never end.
    File,
    /// A string for a header or a query.
    Ascii,
    /// A part of a host name: a region, an account.
    Label,
    /// A part of a URL's path.
    Segment,
    /// The path of a URL.
    UrlPath,
    /// The address of a server.
    Url,
    Flag,
    Count(RangeInclusive<u64>),
    Decimal,
    Duration,
}

/// The forms that the value of a known key must have: one for each store that knows the key.
pub(crate) fn forms(key: &str) -> Vec<Form> {
    let mut forms = Vec::new();
    if let Ok(key) = key.parse() {
        forms.push(of_s3(key));
    }
    if let Ok(key) = key.parse() {
        forms.push(of_azure(key));
    }
    if let Ok(key) = key.parse() {
        forms.push(of_google(key));
    }
    if let Ok(key) = key.parse() {
        forms.push(of_client(key));
    }
    forms
}

fn of_s3(key: AmazonS3ConfigKey) -> Form {
    use AmazonS3ConfigKey as Key;
    match key {
        Key::Region | Key::DefaultRegion => Form::Label,
        Key::Endpoint | Key::S3Endpoint | Key::StsEndpoint | Key::MetadataEndpoint => Form::Url,
        Key::ContainerCredentialsFullUri => Form::Url,
        Key::ContainerCredentialsRelativeUri => Form::UrlPath,
        Key::ContainerAuthorizationTokenFile | Key::WebIdentityTokenFile => Form::File,
        Key::ImdsV1Fallback | Key::VirtualHostedStyleRequest | Key::S3Express | Key::UnsignedPayload => Form::Flag,
        Key::SkipSignature | Key::DisableTagging | Key::DisableBulkDelete => Form::Flag,
        Key::Encryption(_) if key.as_ref() == "aws_sse_bucket_key_enabled" => Form::Flag,
        Key::Client(key) => of_client(key),
        _ => Form::Ascii,
    }
}

fn of_azure(key: AzureConfigKey) -> Form {
    use AzureConfigKey as Key;
    match key {
        Key::AccountName => Form::Label,
        Key::AuthorityId => Form::Segment,
        Key::Endpoint | Key::MsiEndpoint | Key::AuthorityHost | Key::FabricTokenServiceUrl => Form::Url,
        Key::UseEmulator | Key::UseFabricEndpoint | Key::UseAzureCli | Key::SkipSignature => Form::Flag,
        Key::DisableTagging => Form::Flag,
        Key::FederatedTokenFile => Form::File,
        Key::Client(key) => of_client(key),
        _ => Form::Ascii,
    }
}

fn of_google(key: GoogleConfigKey) -> Form {
    use GoogleConfigKey as Key;
    match key {
        Key::ServiceAccount | Key::ApplicationCredentials => Form::File,
        Key::ServiceAccountKey => Form::Lines,
        Key::BaseUrl => Form::Url,
        Key::SkipSignature => Form::Flag,
        Key::Client(key) => of_client(key),
        _ => Form::Ascii,
    }
}

fn of_client(key: ClientConfigKey) -> Form {
    use ClientConfigKey as Key;
    match key {
        Key::AllowHttp | Key::AllowInvalidCertificates | Key::NoSystemCertificates => Form::Flag,
        Key::Http1Only | Key::Http2Only | Key::Http2KeepAliveWhileIdle | Key::RandomizeAddresses => Form::Flag,
        Key::ConnectTimeout | Key::ReadTimeout | Key::Timeout | Key::PoolIdleTimeout => Form::Duration,
        Key::Http2KeepAliveInterval | Key::Http2KeepAliveTimeout => Form::Duration,
        Key::PoolMaxIdlePerHost => Form::Count(0..=1_000_000),
        // The range that HTTP/2 allows.
        Key::Http2MaxFrameSize => Form::Count(16_384..=16_777_215),
        Key::ProxyCaCertificate => Form::Lines,
        _ => Form::Ascii,
    }
}

/// The value in the form of the clients, or `None` if it is empty.
///
/// # Errors
/// `Invalid`, with `name` and what the value must be.
pub(crate) fn check(name: &str, value: &str, forms: &[Form]) -> Result<Option<String>> {
    let mut value = value.trim().to_owned();
    if value.is_empty() {
        return Ok(None);
    }
    let has_lines = forms.contains(&Form::Lines);
    if value.chars().any(|c| c.is_control() && !(has_lines && "\r\n\t".contains(c))) {
        return Err(refuse(name, "has a line end or another control character in it"));
    }
    if value.len() > MAX_VALUE_LENGTH && !has_lines {
        return Err(refuse(name, "is too long"));
    }
    for form in forms {
        value = form.read(&value).map_err(|why| refuse(name, why))?;
    }
    Ok(Some(value))
}

fn refuse(name: &str, why: &str) -> Error {
    Error::invalid(format!("the storage option '{name}' {why}"))
}

impl Form {
    fn read(&self, value: &str) -> Result<String, &'static str> {
        let kept = || Ok(value.to_owned());
        match self {
            Self::Line | Self::Lines => kept(),
            // A missing file is reported when it is opened.
            Self::File if std::fs::metadata(value).is_ok_and(|metadata| !metadata.is_file()) => {
                Err("must be the path of a file")
            }
            Self::File => kept(),
            Self::Ascii if is_ascii(value) => kept(),
            Self::Ascii => Err("has a character in it that is not ASCII"),
            Self::Label if is_label(value) => kept(),
            Self::Label => Err("must be letters, digits and '-' only"),
            Self::Segment if value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) => kept(),
            Self::Segment => Err("must be letters, digits, '-' and '.' only"),
            Self::UrlPath if value.starts_with('/') && is_ascii(value) && !value.contains(' ') => kept(),
            Self::UrlPath => Err("must be the path of a URL, which begins with '/'"),
            Self::Url => url(value),
            Self::Flag => flag(value).map(|flag| flag.to_string()).ok_or("must be 'true' or 'false'"),
            Self::Count(range) => match value.parse::<u64>() {
                Ok(count) if range.contains(&count) => Ok(count.to_string()),
                Ok(_) => Err("is a number out of range"),
                Err(_) => Err("must be a whole number"),
            },
            Self::Decimal => match value.parse::<f64>() {
                // The next pause is random, between the first one and this many times the last one.
                Ok(number) if (1.1..=100.0).contains(&number) => Ok(number.to_string()),
                _ => Err("must be a number from 1.1 to 100"),
            },
            Self::Duration => duration(value).map(|duration| format!("{}ms", duration.as_millis())),
        }
    }
}

/// Whether a value can be in a header.
pub(crate) fn is_ascii(value: &str) -> bool {
    value.bytes().all(|b| (b' '..=b'~').contains(&b))
}

/// Whether a name can be a part of a host name.
pub(crate) fn is_label(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        && Url::parse(&format!("https://{name}.{name}x.example.com")).is_ok()
}

/// A boolean in the forms that clients accept.
pub(crate) fn flag(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Some(true),
        "0" | "false" | "off" | "no" | "n" => Some(false),
        _ => None,
    }
}

fn url(value: &str) -> Result<String, &'static str> {
    const WHAT: &str = "must be a URL that begins with http:// or https://";
    let url = Url::parse(value).map_err(|_| WHAT)?;
    if !["http", "https"].contains(&url.scheme()) || !value.contains("://") || url.host_str().is_none_or(str::is_empty)
    {
        return Err(WHAT);
    }
    if !url.host_str().is_some_and(is_host) {
        return Err("has a host with other characters than letters, digits, '-', '_' and '.'");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a name or a password, which are not sent; give credentials as options of their own");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must be a URL without '?' and '#'");
    }
    if !is_ascii(url.as_str()) || url.path().contains(['|', '^', '`', '{', '}', '\\', '"', '<', '>']) {
        return Err("has a character in it that a URL cannot have");
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// A sum of numbers with units, such as `1m 30s`.
pub(crate) fn duration(value: &str) -> Result<Duration, &'static str> {
    const WHAT: &str = "must be a duration with a unit, as '30s', '500ms' or '2m'";
    let (mut total, mut rest) = (0_u128, value.trim());
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(WHAT)?;
        let (number, after) = rest.split_at_checked(digits).ok_or(WHAT)?;
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters).ok_or(WHAT)?;
        let millis: u128 = match unit {
            "ms" | "msec" | "millis" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            _ => return Err(WHAT),
        };
        let number: u64 = number.parse().map_err(|_| WHAT)?;
        total = total.saturating_add(u128::from(number) * millis);
        rest = after.trim_start();
    }
    let millis = u64::try_from(total).map_err(|_| "must be at most a day")?;
    match Duration::from_millis(millis) {
        Duration::ZERO => Err("must be longer than nothing; leave it out for the default"),
        duration if duration > MAX_DURATION => Err("must be at most a day"),
        duration => Ok(duration),
    }
}

/// Settings in the environment with this prefix, by names in lower case.
///
/// # Errors
/// `Invalid` if one that the store knows is not valid.
pub(crate) fn of_environment<K: std::str::FromStr>(prefix: &str) -> Result<Vec<(K, String, String)>> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(prefix)) else { continue };
        let lower = name.to_ascii_lowercase();
        let Ok(key) = lower.parse::<K>() else { continue };
        let shown = format!("{name} (environment)");
        let value = value.to_str().ok_or_else(|| refuse(&shown, "is not UTF-8"))?;
        if let Some(value) = check(&shown, value, &forms(&lower))? {
            found.push((key, lower, value));
        }
    }
    // Sorted, since the environment has no order.
    found.sort_by(|a, b| a.1.cmp(&b.1));
    Ok(found)
}

/// An environment variable, if it is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
