//! Objects that are read from JSON objects only.
//!
//! A derived reader also takes an array as the fields in their order, which no schema of the API
//! allows.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Implements the reader and the writer of types that derive both with `remote = "Self"`. The reader
/// takes an object only.
macro_rules! json_objects {
    ($($body:ident),* $(,)?) => {
        $(impl $crate::http::json_object::ObjectFields for $body {
            fn read_fields<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                $body::deserialize(deserializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $body {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::http::json_object::read_object(deserializer)
            }
        }

        impl serde::Serialize for $body {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $body::serialize(self, serializer)
            }
        })*
    };
}

pub(super) use json_objects;

/// A type with a derived reader.
pub(super) trait ObjectFields: Sized {
    /// Reads the fields, from an object or from an array.
    fn read_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Reads an object.
pub(super) fn read_object<'de, D: Deserializer<'de>, T: ObjectFields>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: ObjectFields> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::read_fields(MapAccessDeserializer::new(map))
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
        for wrong in [r#"{"stall":[1]}"#, "[1]"] {
            assert!(serde_json::from_str::<LimitsBody>(wrong).is_err(), "{wrong}");
        }
    }
}
