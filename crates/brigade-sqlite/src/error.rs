//! What SQLite's errors mean to a caller.

use brigade_store::StoreError;
use rusqlite::ErrorCode;
use rusqlite::types::FromSqlError;

/// A [`StoreError`] into which `?` turns SQLite's errors.
#[derive(Debug)]
pub(crate) struct SqliteError(pub(crate) StoreError);

pub(crate) type Result<T, E = SqliteError> = std::result::Result<T, E>;

impl From<StoreError> for SqliteError {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<SqliteError> for StoreError {
    fn from(fault: SqliteError) -> Self {
        fault.0
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
            // A row that is there already was written by somebody else.
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

pub(crate) fn corrupt(what: impl Into<String>) -> SqliteError {
    SqliteError(StoreError::Corrupt(what.into()))
}

pub(crate) fn unavailable(what: impl Into<String>) -> SqliteError {
    SqliteError(StoreError::Unavailable(what.into()))
}
