//! Headers with a meaning of their own: `Prefer`, `Idempotency-Key`, `Range`.

use std::time::Duration;

use axum::extract::FromRequestParts;
use brigade_model::refusal::Refusal;
use http::header::{HeaderMap, RANGE};
use http::request::Parts;

use super::problem::Problem;

/// The longest wait of one request.
const WAIT_SECS_MAX: u64 = 600;

/// The time of `Prefer: wait=SECONDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreferWait(pub(crate) Option<Duration>);

impl<S: Send + Sync> FromRequestParts<S> for PreferWait {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(parse_wait(&parts.headers)?))
    }
}

/// The header `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotencyHeader(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut keys = parts.headers.get_all("idempotency-key").iter();
        let Some(key) = keys.next() else { return Ok(Self(None)) };
        let key = std::str::from_utf8(key.as_bytes());
        let key = key.map_err(|_| Refusal::invalid("the Idempotency-Key is not UTF-8"))?;
        if keys.next().is_some() {
            return Err(Refusal::invalid("send one Idempotency-Key").into());
        }
        Ok(Self(Some(key.to_owned())))
    }
}

/// One range of bytes. Other units and several ranges read as no range, which HTTP allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// From a position to another one, which is included, or to the end.
    From { first: u64, last: Option<u64> },
    /// The last bytes.
    Suffix(u64),
}

/// The header `Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeHeader(pub(crate) Option<ByteRange>);

impl<S: Send + Sync> FromRequestParts<S> for RangeHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let range = parts.headers.get(RANGE).and_then(|range| range.to_str().ok());
        Ok(Self(range.and_then(ByteRange::parse)))
    }
}

impl ByteRange {
    fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (first, last) {
            ("", last) => parse_digits(last).map(Self::Suffix),
            (first, "") => Some(Self::From { first: parse_digits(first)?, last: None }),
            (first, last) => {
                let first = parse_digits(first)?;
                let last = parse_digits(last)?;
                (first <= last).then_some(Self::From { first, last: Some(last) })
            }
        }
    }
}

/// Parses digits alone: a number may be written with a sign, a position may not.
fn parse_digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

fn parse_wait(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    for header in headers.get_all("prefer") {
        let preferences = header.to_str().unwrap_or_default().split(',');
        for preference in preferences {
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            if !name.trim().eq_ignore_ascii_case("wait") {
                continue;
            }
            let secs = parse_digits(value.trim().trim_matches('"'));
            let secs = secs.filter(|secs| *secs <= WAIT_SECS_MAX);
            let wrong = || {
                Refusal::invalid(format!("write Prefer: wait=SECONDS, from 0 to {WAIT_SECS_MAX}"))
            };
            return Ok(Some(Duration::from_secs(secs.ok_or_else(wrong)?)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_wait_is_one_of_several_preferences() {
        let parse = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(value));
            parse_wait(&headers)
        };
        assert_eq!(parse("respond-async, Wait=5"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(parse("wait=\"600\""), Ok(Some(Duration::from_secs(600))));
        assert_eq!(parse("return=minimal"), Ok(None));
        for wrong in ["wait", "wait=", "wait=601", "wait=-1", "wait=+1", "wait=1.5", "wait=x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("wait=99999999999999999999").is_err());
    }

    #[test]
    fn only_one_range_of_bytes_is_understood() {
        let from = |first, last| Some(ByteRange::From { first, last });
        assert_eq!(ByteRange::parse("bytes=3-"), from(3, None));
        assert_eq!(ByteRange::parse("Bytes= 3-9"), from(3, Some(9)));
        assert_eq!(ByteRange::parse("bytes=-7"), Some(ByteRange::Suffix(7)));
        for other in ["", "bytes", "lines=1-2", "bytes=1-2,4-5", "bytes=9-3", "bytes=-", "bytes=a-"]
        {
            assert_eq!(ByteRange::parse(other), None, "{other}");
        }
    }
}
