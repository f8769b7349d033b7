//! Refusals that report an error of the store or the end of the runtime.

use brigade_model::refusal::Refusal;
use brigade_store::StoreError;

pub(crate) fn store_refusal(error: &StoreError) -> Refusal {
    let message = error.to_string();
    match error {
        StoreError::TooManyRecords { .. } => Refusal::limit(message),
        StoreError::Corrupt(_) => Refusal::internal(message),
        _ => Refusal::unavailable(message),
    }
}

/// Returns the refusal of a runtime that has shut down or is shutting down.
pub(crate) fn shutdown_refusal() -> Refusal {
    Refusal::unavailable("the runtime has shut down")
}

/// Returns the refusal of a request for a session that another runtime has taken. It is of a kind that
/// nobody repeats here.
pub(crate) fn lost_session_refusal() -> Refusal {
    Refusal::conflict("another runtime has taken this session")
}

/// Returns the refusal of a request that only the owner of a session can decide.
pub(crate) fn owned_elsewhere_refusal() -> Refusal {
    Refusal::unavailable("another node owns this session; try again")
}

/// Returns the refusal of a request whose turn the store refuses again and again. Nothing of it is stored.
pub(crate) fn refused_turn_refusal() -> Refusal {
    Refusal::unavailable("the store refuses the requests of this moment; try again")
}

/// Returns the refusal of a wait whose caller may no longer wait.
pub(crate) fn cancelled_refusal() -> Refusal {
    Refusal::forbidden("the wait was cancelled")
}

/// Returns the refusal for a command whose result is unknown, since the runtime ended meanwhile.
pub(crate) fn in_doubt_refusal() -> Refusal {
    Refusal::unknown("it may have happened; ask again with the same key")
}
