//! JSON as text that is known to be well formed: shared, not parsed again.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The most bytes in one payload: a job's arguments, a result, a message, a recorded step.
pub const PAYLOAD_MAX: usize = 1024 * 1024;

/// One JSON value as compact text.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Arc<str>);

impl Json {
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Encodes a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Refusal> {
        let text = serde_json::to_string(value)
            .map_err(|e| Refusal::invalid(format!("the value is not JSON: {e}")))?;
        Self::within_cap(text)
    }

    /// Takes text from outside: refused when it is not JSON or too large.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > PAYLOAD_MAX {
            return Err(too_large(text.len()));
        }
        let raw: &serde_json::value::RawValue = serde_json::from_str(text)
            .map_err(|e| Refusal::invalid(format!("malformed JSON: {e}")))?;
        Self::within_cap(raw.get().to_owned())
    }

    fn within_cap(text: String) -> Result<Self, Refusal> {
        if text.len() > PAYLOAD_MAX { Err(too_large(text.len())) } else { Ok(Self(text.into())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_str(&self.0)
            .map_err(|e| Refusal::invalid(format!("the JSON does not fit: {e}")))
    }
}

fn too_large(bytes: usize) -> Refusal {
    Refusal::invalid(format!("the payload has {bytes} bytes; {PAYLOAD_MAX} is the most"))
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_checked() {
        assert_eq!(Json::parse(" {\"a\": 1} ").unwrap().as_str(), "{\"a\": 1}");
        assert!(Json::parse("{").unwrap_err().message.contains("malformed JSON"));
        assert!(Json::parse("1 2").is_err());
        let big = format!("\"{}\"", "x".repeat(PAYLOAD_MAX));
        assert!(Json::parse(&big).unwrap_err().message.contains("is the most"));
        assert!(Json::of(&big).is_err());
    }
}
