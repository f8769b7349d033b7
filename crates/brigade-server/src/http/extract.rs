//! Parameters and bodies of requests, with problems instead of the framework's rejections.

use std::error::Error;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::{IntoResponse, Response};
use brigade_model::refusal::Refusal;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body_budget::BodyReservation;
use super::caller::HttpCaller;
use super::problem::Problem;

/// The maximum size of a body.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The maximum size of a body from a caller without a token.
const PUBLIC_BODY_BYTES_MAX: usize = 1024;
/// The maximum nesting of a body, as of most parsers of JSON.
const DEPTH_MAX: usize = 127;
/// The time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body of JSON: of a request, or of a response.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        require_json(request.headers())?;
        parse_json(&read_body_of(request).await?).map(Self)
    }
}

impl<T: Serialize> IntoResponse for JsonBody<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => {
                let kind = HeaderValue::from_static("application/json");
                ([(CONTENT_TYPE, kind)], text).into_response()
            }
            Err(error) => {
                let text = format!("the answer cannot be encoded: {error}");
                Problem::from(Refusal::internal(text)).into_response()
            }
        }
    }
}

/// An optional body of JSON. An empty body and `null` are the default value.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let declared = require_json(request.headers());
        let body = read_body_of(request).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        declared?;
        if body.trim_ascii() == b"null" {
            return Ok(Self(T::default()));
        }
        parse_json(&body).map(Self)
    }
}

/// The parameters of a path.
#[derive(Debug)]
pub(crate) struct ApiPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::from_request_parts(parts, state).await;
        Ok(Self(path.map_err(|rejection| refuse_parameter(&rejection))?.0))
    }
}

/// The parameters of a query.
#[derive(Debug)]
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        Ok(Self(query.map_err(|rejection| refuse_query(&rejection))?.0))
    }
}

/// Returns the refusal of a path whose parameter has another form, in the words of its type.
fn refuse_parameter(rejection: &PathRejection) -> Refusal {
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return Refusal::internal("the route has no parameters");
    };
    Refusal::not_found(match failed.kind() {
        ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message) => {
            message.clone()
        }
        ErrorKind::ParseErrorAtKey { key, value, .. } => {
            format!("{value:?} is not a number, and {key} is one")
        }
        ErrorKind::InvalidUtf8InPathParam { key } => format!("{key} is not UTF-8"),
        _ => "there is no such path; /docs lists them".to_owned(),
    })
}

/// Returns the refusal of a query, without the phrase of the framework.
fn refuse_query(rejection: &QueryRejection) -> Refusal {
    let text = rejection.source().map_or_else(|| rejection.body_text(), ToString::to_string);
    // The path of an unknown field is its name, which the text has too.
    let start = text.find(": unknown field").map_or(0, |colon| colon + 2);
    Refusal::invalid(format!("the query is wrong: {}", &text[start..]))
}

/// Reads the whole body of a request.
async fn read_body_of(request: Request) -> Result<Bytes, Problem> {
    // Only a request with a token has a caller.
    let caller = request.extensions().get::<HttpCaller>().cloned();
    let (mut parts, body) = request.into_parts();
    let reservation = take_reservation(&mut parts)?;
    match caller {
        Some(caller) => caller.while_valid(read_body(body, BODY_BYTES_MAX, &reservation)).await,
        None => read_body(body, PUBLIC_BODY_BYTES_MAX, &reservation).await,
    }
}

/// Removes the reservation of a request for the memory of its body. The layer that made it holds it
/// until the route has answered.
pub(crate) fn take_reservation(parts: &mut Parts) -> Result<BodyReservation, Problem> {
    let reservation = parts.extensions.remove::<BodyReservation>();
    reservation.ok_or_else(|| Refusal::internal("the request has no memory for its body").into())
}

/// Reads a whole body, within its limits of size and time.
pub(crate) async fn read_body(
    body: Body,
    bytes_max: usize,
    reservation: &BodyReservation,
) -> Result<Bytes, Problem> {
    let collected = collect_body(Limited::new(body, bytes_max), reservation);
    let read = tokio::time::timeout(BODY_TIMEOUT, collected).await;
    let timed_out = |_| {
        let secs = BODY_TIMEOUT.as_secs();
        let text = format!("the body did not arrive within {secs} seconds");
        Problem::with_status(StatusCode::REQUEST_TIMEOUT, Refusal::limit(text))
    };
    let collected = read.map_err(timed_out)?;
    collected.map_err(|error| {
        let error = match error {
            BodyError::NoMemory(refusal) => return refusal.into(),
            BodyError::Unreadable(error) => error,
        };
        if error.downcast_ref::<LengthLimitError>().is_some() {
            let text = format!("the body has more than {bytes_max} bytes");
            return Problem::with_status(StatusCode::PAYLOAD_TOO_LARGE, Refusal::limit(text));
        }
        Refusal::invalid(format!("the body cannot be read: {error}")).into()
    })
}

enum BodyError {
    NoMemory(Refusal),
    Unreadable(BoxError),
}

/// Reads a body, and reserves the memory of each part when it arrives.
async fn collect_body(
    mut body: Limited<Body>,
    reservation: &BodyReservation,
) -> Result<Bytes, BodyError> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(BodyError::Unreadable)?;
        if let Ok(data) = frame.into_data() {
            reservation.add(data.len()).map_err(BodyError::NoMemory)?;
            collected.extend_from_slice(&data);
        }
    }
    Ok(collected.freeze())
}

/// Parses a body of JSON, which is an object.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::invalid("the body is not a JSON object").into());
    }
    if json_depth(body) > DEPTH_MAX {
        let text = format!("the body is nested in more than {DEPTH_MAX} levels");
        return Err(Refusal::invalid(text).into());
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("the body is wrong: {error}")).into())
}

/// Returns the levels of nesting. Values that are stored as text are not parsed, and must not be
/// deeper than others can read.
fn json_depth(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut is_string = false;
    let mut is_escaped = false;
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => depth += 1,
            b']' | b'}' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let refusal = Refusal::invalid("send JSON, with Content-Type: application/json");
    Err(Problem::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nesting_of_json_is_counted_outside_of_strings() {
        for (text, depth) in [
            ("1", 0),
            (r#"{"a": [1, {"b": 2}], "c": [[]]}"#, 3),
            (r#"["[[[", "\"[[", "\\\\"]"#, 1),
            ("]]][", 1),
        ] {
            assert_eq!(json_depth(text.as_bytes()), depth, "{text}");
        }
    }
}
