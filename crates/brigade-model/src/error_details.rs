//! The error with which work or one of its steps failed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{Json, present};
use crate::plain_text::PlainText;
use crate::truncate::head_chars;

/// The maximum length of an error's kind in characters.
pub const ERROR_KIND_MAX: usize = 64;

/// An error of work: its message, and data for the program that reads it.
///
/// An error with only a message is stored as a text, any other as an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorDetails {
    pub message: Arc<str>,
    /// The kind of error in one line, such as `card_declined`, for a program to branch on.
    pub kind: Option<Arc<str>>,
    /// Data of the error. Its size has the bound of every [`Json`].
    pub payload: Option<Json>,
    /// True if a retry is useless.
    pub fatal: bool,
}

impl ErrorDetails {
    /// Creates an error with only a message.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// Sets the kind: one line of at most [`ERROR_KIND_MAX`] visible characters. A longer text is
    /// truncated, and a blank one is none.
    pub fn with_kind(mut self, kind: &str) -> Self {
        let line = PlainText::line(kind);
        let kind = head_chars(line.as_str().trim(), ERROR_KIND_MAX).trim_end();
        self.kind = (!kind.is_empty()).then(|| kind.into());
        self
    }

    pub fn with_payload(mut self, payload: Json) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Marks the error as one that a retry does not help.
    #[must_use]
    pub fn into_fatal(mut self) -> Self {
        self.fatal = true;
        self
    }

    fn is_message_only(&self) -> bool {
        self.kind.is_none() && self.payload.is_none() && !self.fatal
    }
}

/// Renders an error and its causes as one text, the error first.
pub fn render_error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl fmt::Display for ErrorDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.kind {
            Some(kind) => write!(f, " [{kind}]"),
            None => Ok(()),
        }
    }
}

impl From<&str> for ErrorDetails {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for ErrorDetails {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<Arc<str>> for ErrorDetails {
    fn from(message: Arc<str>) -> Self {
        Self::new(message)
    }
}

/// The form of an error that has more than a message.
#[derive(Serialize, Deserialize)]
struct ErrorObject {
    message: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Arc<str>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    payload: Option<Json>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fatal: bool,
}

impl Serialize for ErrorDetails {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_message_only() {
            return self.message.serialize(serializer);
        }
        let Self { message, kind, payload, fatal } = self.clone();
        ErrorObject { message, kind, payload, fatal }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ErrorDetails {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ErrorVisitor)
    }
}

struct ErrorVisitor;

impl<'de> Visitor<'de> for ErrorVisitor {
    type Value = ErrorDetails;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message of an error, or an object with its details")
    }

    fn visit_str<E: serde::de::Error>(self, message: &str) -> Result<ErrorDetails, E> {
        Ok(ErrorDetails::new(message))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ErrorDetails, A::Error> {
        let ErrorObject { message, kind, payload, fatal } =
            ErrorObject::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ErrorDetails { message, kind, payload, fatal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;

    fn full() -> ErrorDetails {
        let payload = Json::parse("{\"code\": 51}").unwrap();
        ErrorDetails::new("declined").with_kind("card_declined").with_payload(payload).into_fatal()
    }

    /// An error with a cause.
    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Self>>);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &dyn Error)
        }
    }

    #[test]
    fn an_error_is_rendered_with_all_its_causes() {
        let first = Caused("no gas", None);
        let second = Caused("the oven is cold", Some(Box::new(first)));
        let error = Caused("no bread", Some(Box::new(second)));
        assert_eq!(render_error_chain(&error), "no bread: the oven is cold: no gas");
    }

    #[test]
    fn a_message_alone_is_a_text() {
        let failure = Failure::error("burnt");
        assert_eq!(serde_json::to_string(&failure).unwrap(), "{\"error\":\"burnt\"}");
        assert_eq!(failure.to_string(), "error: burnt");
        let old = rmp_serde::to_vec_named(&[("error", "burnt")]).unwrap();
        // A stored variant is a map with one key.
        let old: &[u8] = &[&[0x81], &old[2..]].concat();
        assert_eq!(rmp_serde::from_slice::<Failure>(old).unwrap(), failure);
        assert_eq!(rmp_serde::to_vec_named(&failure).unwrap(), old);
    }

    #[test]
    fn details_are_an_object() {
        let failure = Failure::from(full());
        let text = serde_json::to_string(&failure).unwrap();
        let expected = "{\"error\":{\"message\":\"declined\",\"kind\":\"card_declined\",\
                        \"payload\":{\"code\": 51},\"fatal\":true}}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        let packed = rmp_serde::to_vec_named(&failure).unwrap();
        assert_eq!(rmp_serde::from_slice::<Failure>(&packed).unwrap(), failure);
        assert_eq!(failure.to_string(), "error: declined [card_declined]");
    }

    #[test]
    fn a_payload_of_null_is_a_payload_and_unknown_fields_are_skipped() {
        let null = ErrorDetails::new("x").with_payload(Json::null());
        let text = serde_json::to_string(&null).unwrap();
        assert_eq!(serde_json::from_str::<ErrorDetails>(&text).unwrap(), null);
        let newer = "{\"message\":\"x\",\"retry_after\":[1]}";
        assert_eq!(serde_json::from_str::<ErrorDetails>(newer).unwrap(), ErrorDetails::new("x"));
        assert!(serde_json::from_str::<ErrorDetails>("7").is_err());
    }

    #[test]
    fn a_kind_is_one_bounded_line() {
        let kind = |text: &str| ErrorDetails::new("x").with_kind(text).kind;
        assert_eq!(kind(" card\ndeclined ").as_deref(), Some("card declined"));
        assert_eq!(kind(" \u{200b}"), None);
        let long = kind(&"k".repeat(1_000)).unwrap();
        assert!(long.chars().count() <= ERROR_KIND_MAX, "{long}");
    }
}
