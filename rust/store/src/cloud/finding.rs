//! What an error of the object store crate proves: that the file does not exist, that the request was refused, that it was
//! never sent, or nothing.

use std::error::Error as _;

use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};

use crate::http::answers::refusal;
use crate::http::credentials::no_credentials;

/// What an error of a store proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Missing,
    Taken,
    Denied,
    Unsupported,
    OutOfRange,
    /// The request was refused with this status.
    Refused(u16),
    /// There was no connection, so nothing was sent.
    NotSent,
    /// The key is not possible, so nothing was sent.
    BadKey,
    /// There are no credentials to sign a request, so nothing was sent.
    NoCredentials,
    /// Anything may have happened.
    Nothing,
}

/// Whether S3 gave the condition as the reason, which it does only if the object exists.
pub(crate) fn is_precondition(error: &StoreError) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if matches!(cause.downcast_ref(), Some(StoreError::Precondition { .. } | StoreError::NotModified { .. })) {
            return true;
        }
        source = cause.source();
    }
    matches!(error, StoreError::Precondition { .. })
}

pub(crate) fn finding(error: &StoreError) -> Finding {
    if no_credentials(error).is_some() {
        return Finding::NoCredentials;
    }
    match error {
        StoreError::NotFound { .. } => return Finding::Missing,
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => return Finding::Taken,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => return Finding::Denied,
        StoreError::NotImplemented { .. } => return Finding::Unsupported,
        StoreError::InvalidPath { .. } => return Finding::BadKey,
        _ => {}
    }
    if let Some(refusal) = refusal(error) {
        return match refusal.status {
            416 => Finding::OutOfRange,
            401 | 403 => Finding::Denied,
            status => Finding::Refused(status),
        };
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(http) = cause.downcast_ref::<HttpError>()
            && http.kind() == HttpErrorKind::Connect
        {
            return Finding::NotSent;
        }
        source = cause.source();
    }
    if matches!(error, StoreError::NotSupported { .. }) { Finding::Unsupported } else { Finding::Nothing }
}
