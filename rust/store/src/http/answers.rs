//! Answers of servers, before the object store crate gets them.
//!
//! Refusals become [`Refusal`], a type that can be distinguished from a lost connection without reading messages. Of the
//! body of a failure only the beginning is read. Proved by `refusals` and `bodies_of_failures` in the storage tests.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use futures::stream::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use url::Url;

use super::client::{Redirects, http_client, server_of};
use crate::config::options::Options;
use crate::events::TARGET;

/// How many bytes of a failure's body are read.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// A server's answer that it did not carry out a request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    body: String,
}

impl Refusal {
    /// Whether the answer has this code.
    pub(crate) fn names(&self, code: &str) -> bool {
        self.body.contains(code)
    }
}

/// The answer behind an error.
pub(crate) fn refusal(error: &object_store::Error) -> Option<&Refusal> {
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

/// Turns failures that the library would report as text into [`Refusal`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connector {
    /// Also failures that the library would retry, for a client without retries.
    every_failure: bool,
    /// Answers every request with 404, without sending it.
    offline: bool,
    redirects: Redirects,
}

impl Connector {
    pub(crate) fn new(options: &Options, every_failure: bool) -> Self {
        Self { every_failure, offline: options.offline, redirects: Redirects::SameServer }
    }

    /// For a server that gets no credentials.
    pub(crate) fn redirected_anywhere(self) -> Self {
        Self { redirects: Redirects::Anywhere, ..self }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        let client = http_client(options, self.redirects)?;
        Ok(HttpClient::new(Service { client, every_failure: self.every_failure, offline: self.offline }))
    }
}

#[derive(Debug)]
struct Service {
    client: HttpClient,
    every_failure: bool,
    offline: bool,
}

/// The URL of a request is not valid.
#[derive(Debug)]
struct NoAddress;

impl fmt::Display for NoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings make no valid URL")
    }
}

impl std::error::Error for NoAddress {}

pub(crate) type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Service {
    fn call<'life, 'answer>(&'life self, request: HttpRequest) -> ResponseFuture<'answer>
    where
        'life: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            // The library panics on a URL that it cannot parse again.
            if Url::parse(&request.uri().to_string()).is_err() {
                return Err(HttpError::new(HttpErrorKind::Unknown, NoAddress));
            }
            if self.offline {
                let mut response = HttpResponse::new(Bytes::new().into());
                *response.status_mut() =
                    404_u16.try_into().map_err(|_| HttpError::new(HttpErrorKind::Unknown, NoAddress))?;
                return Ok(response);
            }
            let asked = LoggedRequest::of(&request, self.every_failure);
            let response = match self.client.execute(request).await {
                Ok(response) => response,
                Err(error) => {
                    asked.lost("there was no answer");
                    return Err(error);
                }
            };
            let status = response.status().as_u16();
            if let Some(server) = redirected_to(&response) {
                let body = format!("it redirects to {server}; redirects to another server are not followed");
                return Err(HttpError::new(HttpErrorKind::Unknown, Refusal { status, body }));
            }
            if status < 400 {
                return Ok(response);
            }
            let refused = match status {
                // The library treats these specially.
                404 | 409 | 412 => false,
                // The library retries these.
                408 | 429 | 500..=599 => {
                    asked.lost(&format!("the server answered with status {status}"));
                    self.every_failure
                }
                _ => status < 500,
            };
            let (parts, body) = response.into_parts();
            let body = beginning(body).await;
            if !refused {
                return Ok(HttpResponse::from_parts(parts, body.into()));
            }
            let body = String::from_utf8_lossy(&body).into_owned();
            Err(HttpError::new(HttpErrorKind::Unknown, Refusal { status, body }))
        })
    }
}

/// A request in the form of the log: method and URL, without anything that could be a secret.
struct LoggedRequest(Option<String>);

impl LoggedRequest {
    /// `is_last`: the request is not retried.
    fn of(request: &HttpRequest, is_last: bool) -> Self {
        let is_told = !is_last && log::log_enabled!(target: TARGET, log::Level::Info);
        let shown = || {
            let (method, address) = (request.method(), request.uri());
            let port = address.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
            let (scheme, host) = (address.scheme_str().unwrap_or_default(), address.host().unwrap_or_default());
            format!("{method} {scheme}://{host}{port}{}", address.path())
        };
        Self(is_told.then(shown))
    }

    /// Logs that it will be sent again, if it may be retried.
    fn lost(&self, why: &str) {
        if let Self(Some(shown)) = self {
            log::info!(target: TARGET, "{shown}: {why}; the request is sent again as far as retries are left");
        }
    }
}

/// The server of a redirect that was not followed.
fn redirected_to(response: &HttpResponse) -> Option<String> {
    let location = response.headers().get("location").filter(|_| response.status().is_redirection())?;
    Some(location.to_str().ok().and_then(server_of).unwrap_or_else(|| "nowhere".to_owned()))
}

/// The beginning of a failure's body: enough for a message.
async fn beginning(body: HttpResponseBody) -> Bytes {
    let (mut pieces, mut read) = (body.bytes_stream(), Vec::new());
    while read.len() < MAX_BODY_BYTES
        && let Some(Ok(piece)) = pieces.next().await
    {
        read.extend_from_slice(piece.get(..piece.len().min(MAX_BODY_BYTES - read.len())).unwrap_or_default());
    }
    read.into()
}
