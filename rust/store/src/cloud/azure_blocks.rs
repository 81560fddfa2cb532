//! Azure's way to send a file in parts: blocks, and then a list of them.
//!
//! Blocks that no list names are invisible, and belong to the blob's name rather than to a writer. So each has an id of
//! its own (the library draws 128 bits for it), and whatever makes the blob discards the blocks of all others. Those that
//! stay because nothing was made are gone after a week by themselves: there is nothing to clean. They must not be in the way
//! of a conditional put by the next writer, though, so [`Blocks::are_fair`] looks before the first are sent.
//!
//! The library has no condition for a list. [`IfAbsent`] puts it on the list's request where that leaves, and signs the
//! request anew if the signature covers its headers: a shared key's does, tokens are sent as they are.
//!
//! Proved by `large_conditional_puts_to_azure` in the storage tests and, on a real server, by their conformance suite.

use std::fmt;
use std::sync::Arc;

use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpService};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, PutMode, PutPayload, Result};

use super::answers::{ResponseFuture, refusal};
use super::finding::{Finding, finding};

/// Sends blocks and lists to one container.
pub(crate) struct Blocks {
    /// Whose container it is.
    pub(crate) server: String,
    /// Repeats failed requests, for a block may come twice.
    pub(crate) repeating: Arc<dyn MultipartStore>,
    /// Does not, and connects through [`IfAbsent`].
    pub(crate) once: Arc<dyn MultipartStore>,
}

impl Blocks {
    pub(crate) async fn put_block(&self, path: &Path, data: PutPayload) -> Result<PartId> {
        self.repeating.put_part(path, &String::new(), 0, data).await
    }

    /// Makes the blob of its blocks if there is none yet.
    pub(crate) async fn put_list(&self, path: &Path, blocks: Vec<PartId>) -> Result<()> {
        self.once.complete_multipart(path, &String::new(), blocks).await.map(drop)
    }

    /// Tries at an unused name whether blocks leave it free for a conditional put, and whether a list of blocks then
    /// leaves the file alone. Without repetitions: a server that knows no blocks need not be asked often.
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

/// Whether a list was refused since blocks that it names are not there: another writer made the blob meanwhile.
pub(crate) fn is_block_missing(error: &object_store::Error) -> bool {
    refusal(error).is_some_and(|refusal| refusal.status == 400 && refusal.names("InvalidBlockList"))
}

/// Connects, or is connected, so that each list of blocks is put only if the blob is absent.
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

/// Without the credentials.
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
