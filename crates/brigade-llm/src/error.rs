//! What can go wrong with a call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A call that came to nothing. Its text has no secret in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ModelError {
    pub kind: ModelErrorKind,
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// When the provider said it wants to be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// Too many requests or tokens.
    RateLimited,
    /// The provider is overloaded or failed inside.
    Server,
    /// The connection could not be made, or was lost before the reply was whole.
    Connection,
    /// No answer, or no next part, in time.
    Timeout,
    /// The reply is not what the provider's protocol says.
    Garbage,
    /// The key is missing, wrong, or may not do this.
    Auth,
    /// The conversation does not fit into the model's window.
    TooLong,
    /// The provider refuses the request as it is.
    Invalid,
    /// There is no money or quota left.
    Exhausted,
}

impl ModelErrorKind {
    /// Whether the same request may fare better a little later.
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
