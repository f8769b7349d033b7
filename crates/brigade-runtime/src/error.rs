//! How a store's trouble looks to a caller.

use brigade_model::refusal::Refusal;
use brigade_store::StoreError;

pub(crate) fn store_refusal(error: &StoreError) -> Refusal {
    let message = error.to_string();
    match error {
        StoreError::Unavailable(_) | StoreError::Locked { .. } | StoreError::ReadOnly => {
            Refusal::unavailable(message)
        }
        StoreError::Fenced(_) | StoreError::Newer { .. } | StoreError::Older { .. } => Refusal::unavailable(message),
        StoreError::Corrupt(_) => Refusal::internal(message),
    }
}

/// The runtime is gone, or on its way out.
pub(crate) fn shutdown_refusal() -> Refusal {
    Refusal::unavailable("the runtime has shut down")
}

/// The runtime went away while it may have been at it.
pub(crate) fn in_doubt_refusal() -> Refusal {
    Refusal::unknown("it may have happened; ask again with the same key")
}
