//! Uploads to Azure in parts: blocks, and then a list of them.
//!
//! Blocks that no list names are invisible, and belong to the blob's name, not to a writer. So each has an id of
//! its own (128 random bits, by the library), and the request that makes the blob discards all other blocks. Blocks that
//! stay because no blob was made expire after a week, so nothing has to be deleted. But they must not make
//! a conditional put of the next writer fail, so [`Blocks::are_fair`] checks that before the first ones are sent.
//!
//! The library has no condition for a list. [`IfAbsent`] adds it to the request of the list just before it is sent, and
//! signs the request again if the signature covers its headers, as with a shared key; tokens are sent unchanged.
//!
//! Proved by `large_conditional_puts_to_azure` in the storage tests and, on a real server, by their conformance suite.

use std::fmt;
use std::sync::Arc;

use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpService};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, PutMode, PutPayload, Result};

use super::finding::{Finding, finding};
use crate::http::answers::{ResponseFuture, refusal};

/// Sends blocks and lists to one container.
pub(crate) struct Blocks {
    /// The server and container, by its address.
    pub(crate) server: String,
    /// Retries failed requests, since a block may be sent twice.
    pub(crate) repeating: Arc<dyn MultipartStore>,
    /// Does not retry, and connects through [`IfAbsent`].
    pub(crate) once: Arc<dyn MultipartStore>,
}

impl Blocks {
    pub(crate) async fn put_block(&self, path: &Path, data: PutPayload) -> Result<PartId> {
        self.repeating.put_part(path, &String::new(), 0, data).await
    }

    /// Makes the blob from its blocks if it does not exist yet.
    pub(crate) async fn put_list(&self, path: &Path, blocks: Vec<PartId>) -> Result<()> {
        self.once.complete_multipart(path, &String::new(), blocks).await.map(drop)
    }

    /// Tests with an unused name whether blocks leave it free for a conditional put, and whether a list of blocks then
    /// does not replace the file. There are no retries, since a server may not support blocks.
    pub(crate) async fn are_fair(&self, put: &dyn ObjectStore, path: &Path) -> bool {
        let (id, data) = (String::new(), PutPayload::from_static(b"{}"));
        if self.once.put_part(path, &id, 0, data.clone()).await.is_err()
            || put.put_opts(path, data.clone(), PutMode::Create.into()).await.is_err()
        {
            return false;
        }
        let Ok(block) = self.once.put_part(path, &id, 0, data).await else { return false };
        self.put_list(path, vec![block]).await.is_err_and(|error| finding(&error) == Finding::Taken)
    }
}

/// Whether a list was refused because its blocks do not exist: another writer made the blob meanwhile.
pub(crate) fn is_block_missing(error: &object_store::Error) -> bool {
    refusal(error).is_some_and(|refusal| refusal.status == 400 && refusal.names("InvalidBlockList"))
}

/// Adds the condition to each list of blocks that the blob does not exist.
pub(crate) struct IfAbsent<T> {
    inner: T,
    credentials: AzureCredentialProvider,
}

impl<T> IfAbsent<T> {
    pub(crate) fn new(inner: T, credentials: AzureCredentialProvider) -> Self {
        Self { inner, credentials }
    }

    async fn condition(&self, request: &mut HttpRequest) -> std::result::Result<(), HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Request, error);
        let any = "*".parse().map_err(|error| HttpError::new(HttpErrorKind::Request, error))?;
        request.headers_mut().insert("if-none-match", any);
        let signature = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        let signed_by = signature.and_then(|text| text.strip_prefix("SharedKey ")?.split_once(':'));
        if let Some(account) = signed_by.map(|(account, _)| account.to_owned()) {
            let credential = self.credentials.get_credential().await.map_err(failed)?;
            request.headers_mut().remove("authorization");
            AzureAuthorizer::new(&credential, &account).try_authorize(request).map_err(failed)?;
        }
        Ok(())
    }
}

/// Does not print the credentials.
impl<T> fmt::Debug for IfAbsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IfAbsent")
    }
}

impl<T: HttpConnector> HttpConnector for IfAbsent<T> {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let inner = self.inner.connect(options)?;
        Ok(HttpClient::new(IfAbsent { inner, credentials: self.credentials.clone() }))
    }
}

impl HttpService for IfAbsent<HttpClient> {
    fn call<'life, 'answer>(&'life self, mut request: HttpRequest) -> ResponseFuture<'answer>
    where
        'life: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            if request.uri().query().unwrap_or_default().split('&').any(|pair| pair == "comp=blocklist") {
                self.condition(&mut request).await?;
            }
            self.inner.execute(request).await
        })
    }
}
