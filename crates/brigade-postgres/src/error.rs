//! Maps PostgreSQL's errors to [`StoreError`].

use std::error::Error as _;

use brigade_store::{CallId, StoreError};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// A [`StoreError`] that `?` creates from PostgreSQL's errors.
#[derive(Debug)]
pub(crate) struct PostgresError(pub(crate) StoreError);

pub(crate) type Result<T, E = PostgresError> = std::result::Result<T, E>;

/// Raised by the functions of the schema: another writer owns the session.
const FENCED: &str = "BG001";
/// Raised by the functions of the schema: the name of a session is taken.
const NAME_TAKEN: &str = "BG002";
/// Raised by the functions of the schema: a kind of records is full.
pub(crate) const KIND_FULL: &str = "BG003";
/// Raised by the functions of the schema: the events of a day cannot be removed yet.
pub(crate) const DAY_NEEDED: &str = "BG004";
/// Raised by the functions of the schema: calls that a batch answers have a reply, or must exist and were
/// removed.
const CALL_CLOSED: &str = "BG005";

impl From<StoreError> for PostgresError {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        error.0
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = describe(&error);
        let Some(state) = error.code() else { return unavailable(text) };
        if state.code() == NAME_TAKEN {
            // The loop looks for the session of that name, and decides again.
            let name = error.as_db_error().and_then(DbError::detail).and_then(|it| it.parse().ok());
            return match name {
                Some(name) => Self(StoreError::NameTaken(name)),
                None => unavailable(text),
            };
        }
        if state.code() == CALL_CLOSED {
            // The loop drops their waits, and decides the rest again.
            let detail = error.as_db_error().and_then(DbError::detail).unwrap_or_default();
            let calls = detail.split(',').map(|id| id.parse().map(CallId));
            return match calls.collect() {
                Ok(calls) => Self(StoreError::CallClosed { calls }),
                Err(_) => unavailable(text),
            };
        }
        Self(match state.code().get(..2) {
            _ if state.code() == FENCED => StoreError::Fenced(text),
            // A row that exists already comes from another writer.
            _ if *state == SqlState::UNIQUE_VIOLATION => StoreError::Fenced(text),
            // A table, column or function that is not as expected, or a value that cannot be read.
            Some("42" | "22") if *state != SqlState::INSUFFICIENT_PRIVILEGE => {
                StoreError::Corrupt(text)
            }
            _ => StoreError::Unavailable(text),
        })
    }
}

/// Returns whether an error says that a statement was not executed: the server has refused it, and has
/// not ended the connection.
pub(crate) fn is_refusal(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    severity == Some(Severity::Error)
}

/// Returns whether the driver has found no server that accepts writes.
pub(crate) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| {
        // The same kind without a system error is made by the driver, after `SHOW`.
        cause.kind() == std::io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none()
    })
}

/// Returns the message of an error with its cause, which the driver's own text omits.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

pub(crate) fn corrupt(message: impl Into<String>) -> PostgresError {
    PostgresError(StoreError::Corrupt(message.into()))
}

pub(crate) fn unavailable(message: impl Into<String>) -> PostgresError {
    PostgresError(StoreError::Unavailable(message.into()))
}
