//! Objects that are read from JSON objects only.
//!
//! A derived reader also takes an array as the fields in their order, which no schema of the API
//! allows.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Reads an object.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    JsonObject::deserialize(deserializer).map(|JsonObject(value)| value)
}

/// Reads an object that may be absent or `null`.
pub(super) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let read = Option::<JsonObject<T>>::deserialize(deserializer)?;
    Ok(read.map(|JsonObject(value)| value))
}

struct JsonObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use crate::http::{LimitsBody, NewTaskBody};

    #[test]
    fn an_array_is_no_object() {
        let process = |more: &str| {
            let text = format!(r#"{{"kind":"process","shell":"a","cwd":"/",{more}}}"#);
            serde_json::from_str::<NewTaskBody>(&text)
        };
        process(r#""limits":{"tokens":1},"sandbox":null,"env":{"A":{"from":"B"}}"#)
            .expect("a task");
        for wrong in [
            r#""limits":[]"#,
            r#""sandbox":[]"#,
            r#""resources":[1]"#,
            r#""terminal":[80,24]"#,
            r#""env":{"A":["B"]}"#,
        ] {
            assert!(process(wrong).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<LimitsBody>(r#"{"stall":[1]}"#).is_err());
    }
}
