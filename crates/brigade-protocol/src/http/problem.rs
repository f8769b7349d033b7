//! An error of the HTTP API: the problem details of RFC 9457.

use std::fmt;

use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error, sent as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// The reference page of the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// Open: `not_found`, `forbidden`, `invalid`, `conflict`, `limit`, `ended`, `unavailable`,
    /// `unknown`, `internal`, `unauthenticated`.
    pub code: String,
    /// The problem and the correct form.
    pub detail: String,
}

/// The code of a problem: the kind of a refusal, or a missing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    Refused(RefusalKind),
    Unauthenticated,
}

impl ProblemCode {
    /// All codes, in the order of their status.
    pub const ALL: [Self; 10] = [
        Self::Refused(RefusalKind::Invalid),
        Self::Unauthenticated,
        Self::Refused(RefusalKind::Forbidden),
        Self::Refused(RefusalKind::NotFound),
        Self::Refused(RefusalKind::Conflict),
        Self::Refused(RefusalKind::Ended),
        Self::Refused(RefusalKind::Limit),
        Self::Refused(RefusalKind::Unknown),
        Self::Refused(RefusalKind::Internal),
        Self::Refused(RefusalKind::Unavailable),
    ];

    /// Returns the usual status of the code.
    pub fn status(self) -> u16 {
        self.statuses()[0]
    }

    /// Returns all statuses of the code, the usual one first. The others are those for which HTTP has
    /// a status of its own. This is the only table of them.
    pub fn statuses(self) -> &'static [u16] {
        let kind = match self {
            Self::Unauthenticated => return &[401],
            Self::Refused(kind) => kind,
        };
        match kind {
            RefusalKind::Invalid => &[400, 405, 415, 416],
            RefusalKind::Forbidden => &[403, 421],
            RefusalKind::NotFound => &[404],
            RefusalKind::Conflict | RefusalKind::Ended => &[409],
            RefusalKind::Limit => &[429, 408, 413, 431],
            RefusalKind::Unknown | RefusalKind::Internal => &[500],
            RefusalKind::Unavailable => &[503],
        }
    }

    fn title(self) -> &'static str {
        let kind = match self {
            Self::Unauthenticated => return "The request has no valid token.",
            Self::Refused(kind) => kind,
        };
        match kind {
            RefusalKind::Invalid => "The request is wrong.",
            RefusalKind::Forbidden => "The caller may not do this.",
            RefusalKind::NotFound => "There is no such thing.",
            RefusalKind::Conflict => "The request contradicts the stored state.",
            RefusalKind::Ended => "The task has ended or is ending.",
            RefusalKind::Limit => "A limit is reached.",
            RefusalKind::Unknown => "The request may have been executed.",
            RefusalKind::Internal => "Brigade has a defect.",
            RefusalKind::Unavailable => "The server cannot answer now.",
        }
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Refused(RefusalKind::NotFound) => "not_found",
            Self::Refused(RefusalKind::Forbidden) => "forbidden",
            Self::Refused(RefusalKind::Invalid) => "invalid",
            Self::Refused(RefusalKind::Conflict) => "conflict",
            Self::Refused(RefusalKind::Limit) => "limit",
            Self::Refused(RefusalKind::Ended) => "ended",
            Self::Refused(RefusalKind::Unavailable) => "unavailable",
            Self::Refused(RefusalKind::Unknown) => "unknown",
            Self::Refused(RefusalKind::Internal) => "internal",
        })
    }
}

impl ProblemBody {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/docs#{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.to_string(),
            detail: detail.into(),
        }
    }
}

impl From<Refusal> for ProblemBody {
    fn from(refusal: Refusal) -> Self {
        Self::new(ProblemCode::Refused(refusal.kind), refusal.message)
    }
}
