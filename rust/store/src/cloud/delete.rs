//! Deletes one file, or many in one request.
//!
//! Proved by [`crate::conformance::check`] and by `each_deletion_has_an_outcome` in the storage tests.

use std::error::Error as _;
use std::panic::AssertUnwindSafe;

use futures::future::FutureExt;
use futures::stream::{self, StreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};

use super::clients::Clients;
use super::finding::{Finding, finding};
use super::remote::{Remote, key};
use crate::error::{Error, Result};

/// How many requests run at a time.
const CONCURRENT_DELETES: usize = 16;

impl Remote {
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let (clients, path) = (self.clients()?, key(path)?);
        self.tally().delete();
        self.deleted(clients.store.delete(&path).await)
    }

    /// Deletes files. Returns an outcome for each, in their order.
    pub(crate) async fn delete_many(&self, paths: &[String]) -> Vec<Result<()>> {
        let clients = match self.clients() {
            Ok(clients) => clients,
            Err(e) => return of_each(paths.len(), &e),
        };
        let mut outcomes: Vec<Result<()>> = Vec::with_capacity(paths.len());
        let mut keys = Vec::with_capacity(paths.len());
        for path in paths {
            outcomes.push(key(path).map(|key| keys.push(key)));
        }
        let clients = &*clients;
        let requests: Vec<_> =
            keys.chunks(clients.deletes.max(1)).map(|keys| self.delete_together(clients, keys)).collect();
        let deleted: Vec<_> = stream::iter(requests).buffered(CONCURRENT_DELETES).collect().await;
        let mut deleted = deleted.into_iter().flatten();
        for outcome in &mut outcomes {
            if outcome.is_ok() {
                *outcome = deleted.next().unwrap_or_else(|| Err(Error::internal("a deletion has no outcome")));
            }
        }
        outcomes
    }

    /// Deletes files by one request.
    async fn delete_together(&self, clients: &Clients, keys: &[Path]) -> Vec<Result<()>> {
        self.tally().delete();
        let paths: Vec<_> = keys.iter().cloned().map(Ok).collect();
        let answers = clients.store.delete_stream(stream::iter(paths).boxed()).collect::<Vec<_>>();
        // The library may panic on an invalid answer about a file.
        let Ok(answers) = AssertUnwindSafe(answers).catch_unwind().await else {
            return of_each(
                keys.len(),
                &Error::storage(false, "the store's answer to a deletion cannot be understood"),
            );
        };
        if answers.len() == keys.len() {
            return answers.into_iter().map(|answer| self.deleted(answer.map(drop))).collect();
        }
        let failed = answers.into_iter().find_map(std::result::Result::err);
        let error = failed.map(|e| self.fail("delete", e));
        of_each(keys.len(), &error.unwrap_or_else(|| Error::storage(false, "the store left deletions unanswered")))
    }

    /// A file that does not exist counts as deleted.
    fn deleted(&self, answer: object_store::Result<()>) -> Result<()> {
        match answer.map_err(by_code) {
            Err(error) if finding(&error) != Finding::Missing => Err(self.fail("delete", error)),
            _ => Ok(()),
        }
    }
}

/// Classifies the answer for one file of many, whose code the library has in a message.
fn by_code(error: StoreError) -> StoreError {
    let code = match &error {
        StoreError::Generic { source, .. } => source.to_string(),
        _ => return error,
    };
    let has = |codes: &[&str]| codes.iter().any(|name| code.ends_with(&format!("(code: {name})")));
    let (path, source) = (String::new(), error);
    if has(&["NoSuchKey", "404"]) {
        return StoreError::NotFound { path, source: source.into() };
    }
    match has(&["AccessDenied", "403"]) {
        true => StoreError::PermissionDenied { path, source: source.into() },
        false => source,
    }
}

/// An error for each of `count` files.
fn of_each(count: usize, error: &Error) -> Vec<Result<()>> {
    let cause = error.source().map(ToString::to_string);
    let again = || {
        let again = Error::new(error.kind().clone(), error.message());
        match &cause {
            Some(cause) => again.caused_by(cause.clone()),
            None => again,
        }
    };
    (0..count).map(|_| Err(again())).collect()
}
