//! An operation of several commits. If it is interrupted between them, the commits that were made remain, and the error
//! says which these are.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::retry::RetryPolicy;
use crate::error::{Error, Kind, replacing};

/// The maximum number of versions that a message names one by one.
const MAX_NAMED: usize = 10;

/// The retry policy of such commits. It records the versions that they make.
pub(crate) struct CommitSeries<'a> {
    retry: &'a dyn RetryPolicy,
    versions: Mutex<Vec<u64>>,
}

impl<'a> CommitSeries<'a> {
    /// A series that goes on after the commits of these versions.
    pub(crate) fn after(versions: &[u64], retry: &'a dyn RetryPolicy) -> Self {
        Self { retry, versions: Mutex::new(versions.to_vec()) }
    }

    /// Names the versions that were committed in the error of an interruption. Other errors stay as they are.
    pub(crate) fn name_committed_versions(&self, error: Error) -> Error {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        match remaining(&versions) {
            Some(remaining) if *error.kind() == Kind::Interrupted => {
                let message = format!("interrupted: {remaining}; call it again to continue");
                replacing(&error, Error::interrupted(message))
            }
            Some(_) | None => error,
        }
    }
}

impl RetryPolicy for CommitSeries<'_> {
    fn start(&self) {
        self.retry.start();
    }

    fn now_ms(&self) -> i64 {
        self.retry.now_ms()
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        self.retry.back_off(attempts)
    }

    fn is_cancelled(&self) -> bool {
        self.retry.is_cancelled()
    }

    fn committed(&self, version: u64) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).push(version);
        self.retry.committed(version);
    }
}

/// The commits that remain, in words; `None` if there are none.
fn remaining(versions: &[u64]) -> Option<String> {
    let (last, others) = versions.split_last()?;
    match others {
        [] => Some(format!("version {last} was committed and remains")),
        [first, ..] if versions.len() > MAX_NAMED => {
            Some(format!("{} versions from {first} to {last} were committed and remain", versions.len()))
        }
        _ => {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            Some(format!("versions {} and {last} were committed and remain", others.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::remaining;

    #[test]
    fn versions_are_named_unless_they_are_many() {
        let said = |versions: &[u64]| remaining(versions).unwrap_or_default();
        assert_eq!(said(&[]), "");
        assert_eq!(said(&[4]), "version 4 was committed and remains");
        assert_eq!(said(&[4, 5, 7]), "versions 4, 5 and 7 were committed and remain");
        let many: Vec<u64> = (3..14).collect();
        assert_eq!(said(&many), "11 versions from 3 to 13 were committed and remain");
    }
}
