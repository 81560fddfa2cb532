//! Conditional puts that hold no more than a few parts in memory.
//!
//! A condition is on one request, and a request has all of its body. So the parts go first, where no reader looks, and
//! the last request, which names them, has the condition: a copy into place ([`Remote::put_by_copy`]: Amazon, Google), or
//! a list of blocks ([`Remote::put_in_blocks`]: Azure). A server may ignore the condition there even if it honours it on a
//! put, so it is seen to refuse one before it is relied on; only Amazon and Google are taken at their word.
//!
//! Proved by `outcomes_of_large_conditional_puts` and `large_conditional_puts_to_azure` in the storage tests.

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::azure_blocks::{Blocks, is_block_missing};
use super::connect::Clients;
use super::finding::{Finding, finding, is_precondition};
use super::remote::{Remote, beside, is_verified, mark_verified};
use super::writer::{CONCURRENT_PARTS, PART};
use crate::error::Result;
use crate::location::Scheme;
use crate::put::{Body, Put};

impl Remote {
    /// Whether the store makes a file of parts at once on the condition that there is none yet. Google and Amazon do; other
    /// servers are seen to refuse it, once per process and bucket.
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
                // Google's interface has one reason for it, S3's also names writers that were at it at once.
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
            Some(blocks) => self.put_in_blocks((clients, blocks), path, body).await,
            None => self.put_by_copy(clients, path, body).await,
        }
    }

    /// The parts go beside, and the store copies the whole into place if nothing is there.
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
            // An upload that was completed by a request whose answer was lost is there no more, either.
            Err(error) if finding(&error) == Finding::Missing => Ok(Put::Unknown(self.fail("write", error))),
            Err(error) => self.outcome(error),
        }
    }

    /// The blocks go to where the file will be, and a list makes it of them if nothing is there.
    async fn put_in_blocks(&self, (clients, blocks): (&Clients, &Blocks), path: &Path, body: Body) -> Result<Put> {
        self.tally().put(body.length);
        let mut parts = parts(body.pieces);
        let first = parts.next().transpose()?.unwrap_or_default();
        let mut list = match blocks.put_block(path, first.clone()).await {
            Ok(block) => vec![block],
            // Blocks of one name have ids of one length. Those that another program left here have another, and one request
            // takes the place of them all.
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
            // Nothing of this list was done. What discarded its blocks is there, or is there no more, and then the caller,
            // who has the text, is the one to begin anew.
            Err(error) if is_block_missing(&error) => match clients.store.head(path).await {
                Ok(_) => Ok(Put::Exists),
                Err(_) => Ok(Put::Unknown(self.fail("write", error))),
            },
            Err(error) => self.outcome(error),
        }
    }
}

/// Pieces, gathered up to the size of a part.
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
