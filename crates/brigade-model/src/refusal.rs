//! Why something was not done. One taxonomy for every face.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a caller may branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// There is no such session, task, run, call or message.
    NotFound,
    /// It exists, but is not the caller's to see or control.
    Forbidden,
    /// The request itself is wrong.
    Invalid,
    /// It contradicts what is there already: another request under the same key, a name taken.
    Conflict,
    /// A limit stands in the way.
    Limit,
    /// It has ended, or is about to.
    Ended,
    /// Not now: the store fails, the runtime shuts down. Nothing was changed.
    Unavailable,
    /// It may have happened: ask again with the same key.
    Unknown,
    /// A defect of ours.
    Internal,
}

impl fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "not found",
            Self::Forbidden => "forbidden",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Limit => "limit",
            Self::Ended => "ended",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Internal => "internal",
        })
    }
}

/// A command that was not carried out. It changed nothing (but see [`RefusalKind::Unknown`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{kind}: {message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// A lower-case fragment that names what was wrong and what would be right.
    pub message: String,
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        impl Refusal {
            $(pub fn $name(message: impl Into<String>) -> Self {
                Self { kind: RefusalKind::$kind, message: message.into() }
            })*
        }
    };
}

constructors! {
    not_found => NotFound,
    forbidden => Forbidden,
    invalid => Invalid,
    conflict => Conflict,
    limit => Limit,
    ended => Ended,
    unavailable => Unavailable,
    unknown => Unknown,
    internal => Internal,
}
