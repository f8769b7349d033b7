//! Errors of model calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A failed call. Its text contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ModelError {
    pub kind: ModelErrorKind,
    pub message: String,
    /// The HTTP status, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The time that the provider asked callers to wait before the next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// Too many requests or tokens.
    RateLimited,
    /// The provider is overloaded or had an internal error.
    Server,
    /// The connection failed, or was lost before the reply was complete.
    Connection,
    /// No reply, or no next part, in time.
    Timeout,
    /// The reply violates the provider's protocol.
    Garbage,
    /// The key is missing, wrong, or lacks permission.
    Auth,
    /// The conversation does not fit into the model's context window.
    TooLong,
    /// The provider rejects the request as invalid.
    Invalid,
    /// No money or quota remains.
    Exhausted,
}

impl ModelErrorKind {
    /// Returns true if the same request may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::RateLimited | Self::Server | Self::Connection | Self::Timeout | Self::Garbage => {
                true
            }
            Self::Auth | Self::TooLong | Self::Invalid | Self::Exhausted => false,
        }
    }
}

impl ModelError {
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None }
    }
}
