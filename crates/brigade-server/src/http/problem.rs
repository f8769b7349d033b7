//! Errors as responses.

use axum::response::{IntoResponse, Response};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::http::{ProblemBody, ProblemCode};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

/// An error of a route.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The status, where it is not that of the code.
    status: Option<StatusCode>,
    body: ProblemBody,
}

impl Problem {
    pub(crate) fn unauthenticated(detail: &str) -> Self {
        Self { status: None, body: ProblemBody::new(ProblemCode::Unauthenticated, detail) }
    }

    /// Creates a problem with a status of HTTP for which the taxonomy has no kind of its own. The
    /// status is one of those of the kind.
    pub(crate) fn with_status(status: StatusCode, refusal: Refusal) -> Self {
        debug_assert!(
            ProblemCode::Refused(refusal.kind).statuses().contains(&status.as_u16()),
            "{status} is not in the table of statuses"
        );
        let mut body = ProblemBody::from(refusal);
        body.status = status.as_u16();
        Self { status: Some(status), body }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        if refusal.kind == RefusalKind::Internal {
            tracing::error!(%refusal, "a request failed");
        }
        Self { status: None, body: refusal.into() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.body.status);
        let status = self.status.or(status.ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(&self.body).unwrap_or_default();
        let mut response = (status, text).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_status() {
        let status = |refusal: Refusal| Problem::from(refusal).into_response().status().as_u16();
        assert_eq!(status(Refusal::invalid("x")), 400);
        assert_eq!(status(Refusal::forbidden("x")), 403);
        assert_eq!(status(Refusal::not_found("x")), 404);
        assert_eq!(status(Refusal::conflict("x")), 409);
        assert_eq!(status(Refusal::ended("x")), 409);
        assert_eq!(status(Refusal::limit("x")), 429);
        assert_eq!(status(Refusal::unknown("x")), 500);
        assert_eq!(status(Refusal::internal("x")), 500);
        let unavailable = Problem::from(Refusal::unavailable("x")).into_response();
        assert_eq!(unavailable.status().as_u16(), 503);
        assert_eq!(unavailable.headers()[RETRY_AFTER], "1");
        let missing = Problem::unauthenticated("x").into_response();
        assert_eq!(missing.status().as_u16(), 401);
        assert_eq!(missing.headers()[WWW_AUTHENTICATE], "Bearer");
        assert_eq!(missing.headers()[CONTENT_TYPE], "application/problem+json");
    }
}
