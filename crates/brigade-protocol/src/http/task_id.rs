//! The id of a task across all sessions.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

/// The id of a task: the id of its session, a point, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub session: SessionId,
    pub no: TaskNo,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.session, self.no)
    }
}

impl FromStr for TaskId {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parts = text.split_once('.');
        let id = parts.and_then(|(session, no)| {
            let is_number = no.bytes().all(|byte| byte.is_ascii_digit());
            let session = SessionId::from_uuid(Uuid::try_parse(session).ok()?);
            let no = TaskNo::new(no.parse().ok().filter(|_| is_number)?)?;
            Some(Self { session, no })
        });
        id.ok_or_else(|| {
            Refusal::not_found("this is not the id of a task: it is the id of its session, a point, and its number")
        })
    }
}

impl PartialSchema for TaskId {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let text = text.description(Some("The id of a task: its session's, a point, its number."));
        text.examples(["019a92b4-7c51-7c3e-9d0b-4f0d6c1f2a3b.3"]).into()
    }
}

impl ToSchema for TaskId {
    fn name() -> Cow<'static, str> {
        "TaskId".into()
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|refusal: Refusal| serde::de::Error::custom(refusal.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_session_and_number() {
        let text = "019a92b4-7c51-7c3e-9d0b-4f0d6c1f2a3b.3";
        let id: TaskId = text.parse().expect("an id");
        assert_eq!(id.to_string(), text);
        assert_eq!(id.no.get(), 3);
        let session = &text[..36];
        for wrong in ["", ".", "3", ".3", session] {
            assert!(wrong.parse::<TaskId>().is_err(), "{wrong}");
        }
        for number in ["0", "-1", "+3", "x", "3.4", "99999999999", " 3"] {
            assert!(format!("{session}.{number}").parse::<TaskId>().is_err(), "{number}");
        }
    }
}
