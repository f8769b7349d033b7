//! Why a store did not do what it was asked.

/// A variant exists where some caller does something different about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It may work later: busy, out of space, an IO error. Nothing was changed, or, from
    /// [`crate::Store::commit`], either nothing or all of it.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another writer has the tree: this one must let go of it.
    #[error("another writer owns the session: {0}")]
    Fenced(String),
    /// Another process owns the store.
    #[error("the store is in use by {holder}; stop it first, or open the store read-only")]
    Locked { holder: String },
    /// Written by a newer version of Brigade.
    #[error("{subject} was written by a newer version; upgrade this program (nothing was changed)")]
    Newer { subject: String },
    /// Written by a version of Brigade whose data this one does not read.
    #[error("{subject} was written by an earlier version; move it away or delete it (nothing was changed)")]
    Older { subject: String },
    /// What is there is not a store, or is damaged.
    #[error("the store is damaged or not a store: {0}")]
    Corrupt(String),
    /// Opened for reading only.
    #[error("the store was opened read-only")]
    ReadOnly,
}
