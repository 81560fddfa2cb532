//! Fetches credentials, within a bounded time. An error says where they were searched, or that they do not fit into a header.
//!
//! Without keys the object store crate asks the metadata service of a cloud's machines. Without an answer it would continue for
//! minutes, and report in the end that something could not be listed.
//!
//! Proved by `a_silent_metadata_service_is_not_waited_for` in the storage tests.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use object_store::gcp::GcpCredential;
use object_store::{CredentialProvider, Error as StoreError};

use crate::config::settings::is_ascii;

/// How long a service of the same machine may take, which would answer at once.
pub(crate) const METADATA_SERVICE_TIMEOUT: Duration = Duration::from_millis(4500);
/// How long a remote service may take, which somebody configured.
pub(crate) const IDENTITY_TIMEOUT: Duration = Duration::from_secs(30);

/// No provider had credentials.
#[derive(Debug)]
pub(crate) struct NoCredentials(String);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCredentials {}

/// What is wrong with the credentials, if an error is about that.
pub(crate) fn no_credentials(error: &StoreError) -> Option<&NoCredentials> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        source = cause.source();
    }
    None
}

/// A credential that goes into headers.
pub(crate) trait Sendable {
    fn is_sendable(&self) -> bool;
}

impl Sendable for AwsCredential {
    fn is_sendable(&self) -> bool {
        is_ascii(&self.key_id) && is_ascii(&self.secret_key) && self.token.as_deref().is_none_or(is_ascii)
    }
}

impl Sendable for AzureCredential {
    fn is_sendable(&self) -> bool {
        match self {
            Self::BearerToken(token) => is_ascii(token),
            Self::SASToken(_) | Self::AccessKey(_) => true,
        }
    }
}

impl Sendable for GcpCredential {
    fn is_sendable(&self) -> bool {
        is_ascii(&self.bearer)
    }
}

/// Fetches credentials by `inner`, with these limits.
pub(crate) struct FetchedCredentials<T> {
    pub(crate) inner: Arc<dyn CredentialProvider<Credential = T>>,
    pub(crate) within: Duration,
    /// Where credentials were searched, and what to do.
    pub(crate) looked_at: &'static str,
}

/// Does not print the credentials.
impl<T> fmt::Debug for FetchedCredentials<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchedCredentials")
    }
}

type Found<'a, T> = Pin<Box<dyn Future<Output = object_store::Result<Arc<T>>> + Send + 'a>>;

impl<T: Sendable + Send + Sync + 'static> CredentialProvider for FetchedCredentials<T> {
    type Credential = T;

    fn get_credential<'life, 'found>(&'life self) -> Found<'found, T>
    where
        'life: 'found,
        Self: 'found,
    {
        Box::pin(async move {
            let none =
                |why: String| StoreError::Unauthenticated { path: String::new(), source: Box::new(NoCredentials(why)) };
            let looked_at = self.looked_at;
            match tokio::time::timeout(self.within, self.inner.get_credential()).await {
                Ok(Ok(credential)) if credential.is_sendable() => Ok(credential),
                Ok(Ok(_)) => Err(none("the credentials have a character in them that cannot be sent".into())),
                Ok(Err(error)) => Err(none(format!("{looked_at} ({error})"))),
                Err(_) => Err(none(format!("{looked_at} (no answer within {} s)", self.within.as_secs_f32()))),
            }
        })
    }
}
