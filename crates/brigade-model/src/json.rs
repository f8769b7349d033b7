//! JSON as text that is known to be well-formed. It is shared and not parsed again.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// The maximum size of one payload in bytes: a job's arguments, a result, a message, a recorded
/// step.
pub const PAYLOAD_MAX: usize = 1024 * 1024;

/// One JSON value as compact text.
///
/// It serializes to that value itself in JSON, so that forwarding a body does not wrap it again. In
/// the binary form of a store it is a string.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Arc::deserialize(deserializer).map(Self);
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(raw.get().into()))
    }
}

/// Reads an optional value that is omitted when absent, so that an explicit `null` is a value.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

impl Json {
    /// Returns the shared `null`, which is the most common value.
    pub fn null() -> Self {
        static NULL: OnceLock<Json> = OnceLock::new();
        NULL.get_or_init(|| Self("null".into())).clone()
    }

    /// Encodes a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Refusal> {
        let text = serde_json::to_string(value)
            .map_err(|e| Refusal::invalid(format!("the value is not JSON: {e}")))?;
        Self::within_cap(text)
    }

    /// Parses foreign text. Text that is malformed or too large is refused.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > PAYLOAD_MAX {
            return Err(too_large(text.len()));
        }
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|e| Refusal::invalid(format!("malformed JSON: {e}")))?;
        Self::within_cap(raw.get().to_owned())
    }

    fn within_cap(text: String) -> Result<Self, Refusal> {
        match text.len() {
            bytes if bytes > PAYLOAD_MAX => Err(too_large(bytes)),
            _ if text == "null" => Ok(Self::null()),
            _ => Ok(Self(text.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_str(&self.0)
            .map_err(|e| Refusal::invalid(format!("the JSON does not match its type: {e}")))
    }
}

fn too_large(bytes: usize) -> Refusal {
    Refusal::invalid(format!(
        "it has {bytes} bytes; the maximum is {PAYLOAD_MAX}; put it into a file and name that"
    ))
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
    fn a_forwarded_value_is_not_wrapped() {
        let body = Json::of(&vec![1, 2]).unwrap();
        assert_eq!(Json::of(&body).unwrap(), body);
        let wrapped = Json::of(&(&body, "x")).unwrap();
        assert_eq!(wrapped.as_str(), "[[1,2],\"x\"]");
        assert_eq!(wrapped.decode::<(Json, String)>().unwrap().0, body);
        let bytes = rmp_serde::to_vec_named(&body).unwrap();
        assert_eq!(rmp_serde::from_slice::<Json>(&bytes).unwrap(), body);
    }

    #[test]
    fn foreign_text_is_checked() {
        assert_eq!(Json::parse(" {\"a\": 1} ").unwrap().as_str(), "{\"a\": 1}");
        assert!(Json::parse("{").unwrap_err().message.contains("malformed JSON"));
        assert!(Json::parse("1 2").is_err());
        let big = format!("\"{}\"", "x".repeat(PAYLOAD_MAX));
        assert!(Json::parse(&big).unwrap_err().message.contains("the maximum is"));
        assert!(Json::of(&big).is_err());
    }
}
