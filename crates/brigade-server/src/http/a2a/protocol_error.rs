//! Refusals as errors of the protocol.

use a2a::{A2AError, error_code, error_reason};
use axum::response::{IntoResponse, Response};
use brigade_model::refusal::{Refusal, RefusalKind};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::http::extract::JsonBody;
use crate::http::problem::Problem;

/// The media type of the binding HTTP+JSON.
const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");

/// Returns the error of a refusal. A task that the caller may not see is not found, as the protocol
/// requires.
pub(crate) fn error_of(refusal: &Refusal) -> A2AError {
    let code = match refusal.kind {
        RefusalKind::NotFound => error_code::TASK_NOT_FOUND,
        RefusalKind::Invalid | RefusalKind::Conflict => error_code::INVALID_PARAMS,
        RefusalKind::Forbidden | RefusalKind::Limit | RefusalKind::Ended => {
            error_code::UNSUPPORTED_OPERATION
        }
        RefusalKind::Unavailable | RefusalKind::Unknown | RefusalKind::Internal => {
            error_code::INTERNAL_ERROR
        }
    };
    A2AError::new(code, refusal.message.clone())
}

/// The binding of a request, which gives its answers their form.
#[derive(Clone, Debug)]
pub(crate) enum ReplyForm {
    /// JSON-RPC, with the id of the request.
    JsonRpc(Value),
    HttpJson,
}

impl ReplyForm {
    /// Returns the object of a result.
    pub(crate) fn wrap(&self, result: Value) -> Value {
        match self {
            Self::JsonRpc(id) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Self::HttpJson => result,
        }
    }

    /// Returns the object of an error.
    pub(crate) fn wrap_error(&self, error: &A2AError) -> Value {
        match self {
            Self::JsonRpc(id) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": error.to_jsonrpc_error() })
            }
            Self::HttpJson => {
                let info = json!({
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": error_reason(error.code),
                    "domain": "a2a-protocol.org",
                    "metadata": {},
                });
                json!({ "error": {
                    "code": error.http_status_code(),
                    "status": status_name(error),
                    "message": error.message,
                    "details": [info],
                } })
            }
        }
    }

    pub(crate) fn respond(&self, result: Result<Value, A2AError>) -> Response {
        let status = match (&result, self) {
            (Err(error), Self::HttpJson) => StatusCode::from_u16(error.http_status_code())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            _ => StatusCode::OK,
        };
        let body = match result {
            Ok(result) => self.wrap(result),
            Err(error) => self.wrap_error(&error),
        };
        let mut response = (status, JsonBody(body)).into_response();
        if matches!(self, Self::HttpJson) {
            response.headers_mut().insert(CONTENT_TYPE, A2A_JSON);
        }
        response
    }
}

/// An answer that is not the result of an operation.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The request did not reach the protocol.
    Http(Problem),
    Protocol(A2AError),
}

impl From<Refusal> for CallFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Protocol(error_of(&refusal))
    }
}

impl From<A2AError> for CallFailure {
    fn from(error: A2AError) -> Self {
        Self::Protocol(error)
    }
}

fn status_name(error: &A2AError) -> &'static str {
    match error.http_status_code() {
        404 => "NOT_FOUND",
        501 => "UNIMPLEMENTED",
        400 => match error.code {
            error_code::INVALID_PARAMS
            | error_code::INVALID_REQUEST
            | error_code::PARSE_ERROR
            | error_code::CONTENT_TYPE_NOT_SUPPORTED => "INVALID_ARGUMENT",
            _ => "FAILED_PRECONDITION",
        },
        _ => "INTERNAL",
    }
}
