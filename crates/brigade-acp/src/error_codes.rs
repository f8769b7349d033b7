//! Refusals of the daemon as errors of the protocol.

use agent_client_protocol::Error;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::ClientError;

/// The error codes of JSON-RPC and ACP that are used here.
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
const RESOURCE_NOT_FOUND: i32 = -32002;

/// The reason why a part of a turn failed.
#[derive(Debug)]
pub(crate) enum TurnError {
    /// The editor cannot be reached, which ends the turn.
    Editor(Error),
    /// The daemon refused a request or was lost. The agent may be alive.
    Daemon(Refusal),
}

impl From<Error> for TurnError {
    fn from(error: Error) -> Self {
        Self::Editor(error)
    }
}

impl From<Refusal> for TurnError {
    fn from(refusal: Refusal) -> Self {
        Self::Daemon(refusal)
    }
}

impl From<TurnError> for Error {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Editor(error) => error,
            TurnError::Daemon(refusal) => refusal_error(&refusal),
        }
    }
}

/// Returns true if no daemon replied, so that the same request may succeed later.
pub(crate) fn is_outage(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown)
}

/// Returns true if the stream ended with its daemon, so that the next daemon can continue it. A daemon
/// that sends wrong frames, or refuses the stream, does so again.
pub(crate) fn is_lost_stream(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(refusal) => is_outage(refusal),
        ClientError::Malformed(_)
        | ClientError::VersionMismatch { .. }
        | ClientError::NotPermitted(_)
        | ClientError::NotServed(_) => false,
        _ => true,
    }
}

/// Returns the error of a refused request.
pub(crate) fn refusal_error(refusal: &Refusal) -> Error {
    let code = match refusal.kind {
        RefusalKind::NotFound => RESOURCE_NOT_FOUND,
        RefusalKind::Invalid => INVALID_PARAMS,
        RefusalKind::Conflict | RefusalKind::Forbidden => INVALID_REQUEST,
        _ => INTERNAL_ERROR,
    };
    Error::new(code, refusal.message.clone())
}

/// Returns the error of wrong parameters.
pub(crate) fn invalid_params(problem: impl Into<String>) -> Error {
    Error::new(INVALID_PARAMS, problem)
}

/// Returns the error of a request that does not fit the state of the session.
pub(crate) fn invalid_request(problem: impl Into<String>) -> Error {
    Error::new(INVALID_REQUEST, problem)
}

/// Returns the error of a session that does not exist.
pub(crate) fn unknown_session(id: &str) -> Error {
    Error::new(RESOURCE_NOT_FOUND, format!("there is no session {id:?}"))
}

/// Returns the error of a failed run, with the text of the failure.
pub(crate) fn failed_run(text: impl Into<String>) -> Error {
    Error::new(INTERNAL_ERROR, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_daemon_is_followed_again() {
        let repeated = [
            ClientError::Lost,
            ClientError::NotReceived,
            ClientError::Refused(Refusal::unavailable("it shuts down")),
        ];
        for error in repeated {
            assert!(is_lost_stream(&error), "{error}");
        }
        let last = [
            ClientError::Malformed("not JSON".into()),
            ClientError::VersionMismatch { daemon: "9".into(), problem: "too new".into() },
            ClientError::Refused(Refusal::not_found("no such task")),
        ];
        for error in last {
            assert!(!is_lost_stream(&error), "{error}");
        }
    }
}
