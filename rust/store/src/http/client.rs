//! The HTTP client of the remote stores.
//!
//! `object_store` builds one from the same options, but without a setting for redirects. This one follows them
//! within a server, and to other servers only if no secret is sent. It never sends
//! `Referer`, since the URL may have a signature. Proved by the tests in `redirects.rs` of the storage tests.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use object_store::client::HttpClient;
use object_store::{ClientConfigKey as Key, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, ClientBuilder, NoProxy, Proxy};
use url::{Origin, Url};

use crate::config::settings::duration;

/// A longer chain of redirects counts as a loop.
const MAX_REDIRECTS: usize = 10;

/// Which redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// Those to the same scheme, host and port. Others are passed on as answers.
    SameServer,
    /// Those to any server.
    Anywhere,
}

/// A client with TLS, by ring.
pub(crate) fn http_client(options: &ClientOptions, redirects: Redirects) -> object_store::Result<HttpClient> {
    // It is for the whole process, so only the first call installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = builder(options).and_then(|builder| Ok(builder.redirect(policy(redirects)).build()?));
    client.map(HttpClient::new).map_err(|source| object_store::Error::Generic { store: "HTTP", source })
}

fn policy(redirects: Redirects) -> Policy {
    let follow = move |attempt: Attempt<'_>| {
        let is_same = attempt.previous().first().map(Url::origin) == Some(attempt.url().origin());
        match redirects {
            _ if attempt.previous().len() > MAX_REDIRECTS => attempt.error("too many redirects"),
            Redirects::SameServer if !is_same => attempt.stop(),
            _ => attempt.follow(),
        }
    };
    Policy::custom(follow)
}

/// The server of a redirect that was not followed, without anything secret.
pub(crate) fn server_of(address: &str) -> Option<String> {
    match Url::parse(address).ok()?.origin() {
        origin @ Origin::Tuple(..) => Some(origin.ascii_serialization()),
        Origin::Opaque(_) => None,
    }
}

type Span = fn(ClientBuilder, Duration) -> ClientBuilder;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A builder with every setting that `object_store` has for a client.
fn builder(options: &ClientOptions) -> Result<ClientBuilder, Failure> {
    let value = |key| options.get_config_value(&key);
    let is_set = |key| value(key).as_deref() == Some("true");
    let span = |key| value(key).map(|value| duration(&value)).transpose();
    let mut builder = ClientBuilder::new()
        .referer(false)
        // Responses must have the stored sizes.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(value(Key::UserAgent).unwrap_or_else(|| concat!("deltic/", env!("CARGO_PKG_VERSION")).to_owned()))
        .https_only(!is_set(Key::AllowHttp))
        .http2_keep_alive_while_idle(is_set(Key::Http2KeepAliveWhileIdle))
        .danger_accept_invalid_certs(is_set(Key::AllowInvalidCertificates));
    if let Some(address) = value(Key::ProxyUrl) {
        builder = through_proxy(builder, &address, value(Key::ProxyCaCertificate), value(Key::ProxyExcludes))?;
    }
    if is_set(Key::NoSystemCertificates) {
        builder = builder.tls_certs_only([]);
    }
    let spans: [(Key, Span); 6] = [
        (Key::Timeout, ClientBuilder::timeout),
        (Key::ConnectTimeout, ClientBuilder::connect_timeout),
        (Key::ReadTimeout, ClientBuilder::read_timeout),
        (Key::PoolIdleTimeout, |builder, span| builder.pool_idle_timeout(span)),
        (Key::Http2KeepAliveInterval, |builder, span| builder.http2_keep_alive_interval(span)),
        (Key::Http2KeepAliveTimeout, ClientBuilder::http2_keep_alive_timeout),
    ];
    for (key, set) in spans {
        if let Some(span) = span(key)? {
            builder = set(builder, span);
        }
    }
    if let Some(most) = number(value(Key::PoolMaxIdlePerHost))? {
        builder = builder.pool_max_idle_per_host(most);
    }
    if let Some(size) = number::<u32>(value(Key::Http2MaxFrameSize))? {
        builder = builder.http2_max_frame_size(size);
    }
    if is_set(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    if is_set(Key::RandomizeAddresses) {
        builder = builder.dns_resolver(Rotated);
    }
    Ok(builder)
}

fn number<T: FromStr>(given: Option<String>) -> Result<Option<T>, Failure>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    Ok(given.map(|value| value.parse()).transpose()?)
}

fn through_proxy(
    builder: ClientBuilder,
    address: &str,
    certificate: Option<String>,
    excludes: Option<String>,
) -> Result<ClientBuilder, Failure> {
    let proxy = Proxy::all(address)?.no_proxy(excludes.and_then(|hosts| NoProxy::from_string(&hosts)));
    let certificate = certificate.map(|pem| Certificate::from_pem(pem.as_bytes())).transpose()?;
    Ok(builder.tls_certs_merge(certificate).proxy(proxy))
}

/// Begins with a random one of a server's addresses, to spread connections over all.
struct Rotated;

impl Resolve for Rotated {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let mut found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let at = usize::from(uuid::Uuid::new_v4().as_bytes()[0]).checked_rem(found.len()).unwrap_or_default();
            found.rotate_left(at);
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
