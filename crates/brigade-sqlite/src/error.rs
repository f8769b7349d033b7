//! Maps SQLite's errors to [`StoreError`].

use brigade_store::StoreError;
use rusqlite::ErrorCode;
use rusqlite::types::FromSqlError;

/// A [`StoreError`] that `?` creates from SQLite's errors.
#[derive(Debug)]
pub(crate) struct SqliteError(pub(crate) StoreError);

pub(crate) type Result<T, E = SqliteError> = std::result::Result<T, E>;

impl From<StoreError> for SqliteError {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<SqliteError> for StoreError {
    fn from(error: SqliteError) -> Self {
        error.0
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        Self(match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationInterrupted
                | ErrorCode::AuthorizationForStatementDenied,
            ) => StoreError::Unavailable(text),
            // A row that exists already comes from another writer.
            Some(ErrorCode::ConstraintViolation) => StoreError::Fenced(text),
            _ => StoreError::Corrupt(text),
        })
    }
}

impl From<FromSqlError> for SqliteError {
    fn from(error: FromSqlError) -> Self {
        corrupt(error.to_string())
    }
}

pub(crate) fn corrupt(message: impl Into<String>) -> SqliteError {
    SqliteError(StoreError::Corrupt(message.into()))
}

pub(crate) fn unavailable(message: impl Into<String>) -> SqliteError {
    SqliteError(StoreError::Unavailable(message.into()))
}
