//! Conditional puts of large files, with no more than a few parts in memory.
//!
//! A condition belongs to one request, which has the whole body. So the parts are uploaded first, where no reader looks, and
//! the last request has the condition: a copy to the final name ([`Remote::put_by_copy`]: Amazon, Google), or
//! a list of blocks ([`Remote::put_in_blocks`]: Azure). A server may ignore that condition even if it honours the condition
//! of a put, so it is tested before it is relied on; only Amazon and Google are trusted.
//!
//! Proved by `outcomes_of_large_conditional_puts` and `large_conditional_puts_to_azure` in the storage tests.

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::azure_blocks::{Blocks, is_block_missing};
use super::clients::Clients;
use super::finding::{Finding, finding, is_precondition};
use super::remote::{Remote, beside, is_verified, mark_verified};
use super::writer::{CONCURRENT_PARTS, PART};
use crate::error::Result;
use crate::location::Scheme;
use crate::put::{Body, Put};

impl Remote {
    /// Whether the store can make a file of parts atomically, on the condition that it does not exist. Google and Amazon
    /// can; other servers are tested once per process and bucket.
    pub(crate) async fn can_put_in_parts(&self, clients: &Clients, path: &Path) -> Result<bool> {
        let server = match (self.scheme(), &clients.unverified_server, &clients.blocks) {
            (Scheme::Azure, _, Some(blocks)) => &blocks.server,
            (Scheme::S3 | Scheme::Gcs, Some(server), _) => server,
            (Scheme::S3 | Scheme::Gcs, None, _) => return Ok(true),
            _ => return Ok(false),
        };
        let server = format!("{server} parts");
        if is_verified(&server) {
            return Ok(true);
        }
        let probe = beside(path, "probe")?;
        let refuses = match &clients.blocks {
            Some(blocks) => blocks.are_fair(&*clients.once, &probe).await,
            None => {
                let put = clients.store.put(&probe, Bytes::from_static(b"{}").into()).await;
                put.map_err(|e| self.fail("write", e))?;
                let copied = clients.once.copy_if_not_exists(&probe, &probe).await;
                // Google's interface has only this reason; S3's may also mean concurrent writers.
                let is_named = |error: &_| self.scheme() == Scheme::Gcs || is_precondition(error);
                copied.is_err_and(|error| finding(&error) == Finding::Taken && is_named(&error))
            }
        };
        let _ = clients.once.delete(&probe).await;
        if refuses {
            mark_verified(&server);
        }
        Ok(refuses)
    }

    pub(crate) async fn put_in_parts(&self, clients: &Clients, path: &Path, body: Body) -> Result<Put> {
        match &clients.blocks {
            Some(blocks) => self.put_in_blocks(clients, blocks, path, body).await,
            None => self.put_by_copy(clients, path, body).await,
        }
    }

    /// Uploads the parts under another name, and lets the store copy the file to its name, if that is free.
    async fn put_by_copy(&self, clients: &Clients, path: &Path, body: Body) -> Result<Put> {
        let temporary = beside(path, path.filename().unwrap_or_default())?;
        let mut writer = self.writer(temporary.clone());
        for piece in body.pieces {
            let written = match piece {
                Ok(piece) => writer.write(piece).await,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                let _ = writer.abort().await;
                return Err(error);
            }
        }
        writer.finish().await?;
        self.tally().put(0);
        let copied = clients.once.copy_if_not_exists(&temporary, path).await;
        let _ = clients.store.delete(&temporary).await;
        match copied {
            Ok(()) => Ok(Put::Created),
            // The upload may also be missing because a request completed it whose answer was lost.
            Err(error) if finding(&error) == Finding::Missing => Ok(Put::Unknown(self.fail("write", error))),
            Err(error) => self.outcome(error),
        }
    }

    /// Uploads blocks under the name of the file, and a list, which makes the file if it does not exist.
    async fn put_in_blocks(&self, clients: &Clients, blocks: &Blocks, path: &Path, body: Body) -> Result<Put> {
        self.tally().put(body.length);
        let mut parts = parts(body.pieces);
        let first = parts.next().transpose()?.unwrap_or_default();
        let mut list = match blocks.put_block(path, first.clone()).await {
            Ok(block) => vec![block],
            // Blocks of one name must have ids of the same length. If another program left blocks with another length, one put
            // replaces them all.
            Err(error) if finding(&error) == Finding::Refused(400) => {
                let mut whole: Vec<Bytes> = first.into_iter().collect();
                for part in parts {
                    whole.extend(part?);
                }
                return self.create(clients, path, whole.into_iter().collect()).await;
            }
            Err(error) => return Err(self.fail("write", error)),
        };
        let send = |part: Result<PutPayload>| async move {
            blocks.put_block(path, part?).await.map_err(|e| self.fail("write", e))
        };
        let rest: Vec<_> = stream::iter(parts).map(send).buffered(CONCURRENT_PARTS).try_collect().await?;
        list.extend(rest);
        match blocks.put_list(path, list).await {
            Ok(()) => Ok(Put::Created),
            // The list had no effect. The file that discarded its blocks exists, or not any more; then the caller,
            // who has the content, must begin again.
            Err(error) if is_block_missing(&error) => match clients.store.head(path).await {
                Ok(_) => Ok(Put::Exists),
                Err(_) => Ok(Put::Unknown(self.fail("write", error))),
            },
            Err(error) => self.outcome(error),
        }
    }
}

/// Joins pieces up to the size of a part.
fn parts(mut pieces: impl Iterator<Item = Result<Bytes>>) -> impl Iterator<Item = Result<PutPayload>> {
    std::iter::from_fn(move || {
        let (mut part, mut size) = (Vec::new(), 0);
        while size < PART
            && let Some(piece) = pieces.next()
        {
            match piece {
                Ok(piece) => {
                    size += piece.len();
                    part.push(piece);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        (size > 0).then(|| Ok(part.into_iter().collect()))
    })
}
