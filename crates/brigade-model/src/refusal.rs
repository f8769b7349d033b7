//! Refusals: the reasons for which a command was not executed, in one taxonomy for all interfaces.

use std::convert::Infallible;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a refusal, on which a caller may branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// There is no such session, task, run, call or message.
    NotFound,
    /// It exists, but the caller may not see or control it.
    Forbidden,
    /// The request itself is wrong.
    Invalid,
    /// It contradicts the stored state, such as another request under the same key or a name that
    /// is taken.
    Conflict,
    /// A limit is reached.
    Limit,
    /// It has ended or is ending.
    Ended,
    /// The store fails or the runtime shuts down. Nothing was changed.
    Unavailable,
    /// The command may have been executed. Repeat it with the same key.
    Unknown,
    /// A defect in Brigade.
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

/// A command that was not executed. It changed nothing (but see [`RefusalKind::Unknown`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{kind}: {message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// A lower-case fragment that names the problem and the correct form.
    pub message: String,
}

/// Makes conversions that cannot fail usable beside those that can.
impl From<Infallible> for Refusal {
    fn from(never: Infallible) -> Self {
        match never {}
    }
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
