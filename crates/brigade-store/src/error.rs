//! The errors of a store.

use brigade_model::name::SessionName;

use crate::fleet::CallId;
use crate::record::{RECORDS_PER_KIND_MAX, RecordKind};

/// An error of a store. Each variant exists because some caller branches on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A failure that may pass: busy, out of space, an IO error. The store is unchanged, except
    /// that [`crate::Store::commit`] may have written the whole batch, and that a put or removal of
    /// a record may have happened.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another writer owns the session. The caller must stop writing to it.
    #[error("another writer owns the session: {0}")]
    Fenced(String),
    /// A batch that answers calls which have a reply, or which must exist and were removed. Its own replies
    /// have consumed nothing.
    #[error("{} of the calls that the batch answers have a reply or were removed", calls.len())]
    CallClosed { calls: Vec<CallId> },
    /// Another session of this name is open or closing.
    #[error("there is a session named {0}")]
    NameTaken(SessionName),
    /// Another process owns the store.
    #[error("the store is in use by {holder}; stop it first, or open the store read-only")]
    Locked { holder: String },
    /// Data that a newer version of Brigade wrote.
    #[error("{subject} was written by a newer version; upgrade this program (nothing was changed)")]
    Newer { subject: String },
    /// Data that an earlier version of Brigade wrote and that this one does not read.
    #[error(
        "{subject} was written by an earlier version; move it away or delete it (nothing was changed)"
    )]
    Older { subject: String },
    /// Data that is damaged or is not a store.
    #[error("the store is damaged or not a store: {0}")]
    Corrupt(String),
    /// A write to a store that was opened read-only.
    #[error("the store was opened read-only")]
    ReadOnly,
    /// A put of one record more than a kind may have.
    #[error(
        "there are {RECORDS_PER_KIND_MAX} records of the kind {kind}, and no more can be stored; \
         remove some first"
    )]
    TooManyRecords { kind: RecordKind },
}
