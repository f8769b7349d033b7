//! Encodes rows for stores on disk: MessagePack with named fields.
//!
//! The decoder skips fields that a newer version added. An unknown variant is an error: refusing a
//! task is safer than guessing its state.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;

pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    rmp_serde::to_vec_named(value)
        .map_err(|e| StoreError::Corrupt(format!("a value cannot be encoded: {e}")))
}

/// Appends the encoded value to `buffer`, so that one buffer serves many rows.
pub fn encode_into<T: Serialize>(buffer: &mut Vec<u8>, value: &T) -> Result<(), StoreError> {
    rmp_serde::encode::write_named(buffer, value)
        .map_err(|e| StoreError::Corrupt(format!("a value cannot be encoded: {e}")))
}

/// Decodes a row. `subject` names the row in an error and is rendered only there.
pub fn decode<T: DeserializeOwned>(subject: impl Display, bytes: &[u8]) -> Result<T, StoreError> {
    rmp_serde::from_slice(bytes).map_err(|e| {
        let message = e.to_string();
        if message.contains("unknown variant") {
            StoreError::Newer { subject: format!("{subject} ({message})") }
        } else {
            StoreError::Corrupt(format!("{subject}: {message}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Today {
        a: u32,
        #[serde(default)]
        b: Option<String>,
    }

    #[derive(Serialize)]
    struct Tomorrow {
        c: Vec<u8>,
        b: Option<String>,
        a: u32,
    }

    #[derive(Serialize)]
    struct Yesterday {
        a: u32,
    }

    #[derive(Serialize, Deserialize, Debug)]
    enum Known {
        One,
    }

    #[derive(Serialize)]
    enum Grown {
        Two { x: u32 },
    }

    #[test]
    fn newer_and_older_structs_are_read() {
        let tomorrow = Tomorrow { c: vec![1, 2], b: Some("x".into()), a: 7 };
        let read: Today = decode("row", &encode(&tomorrow).unwrap()).unwrap();
        assert_eq!(read, Today { a: 7, b: Some("x".into()) });
        let read: Today = decode("row", &encode(&Yesterday { a: 7 }).unwrap()).unwrap();
        assert_eq!(read, Today { a: 7, b: None });
    }

    #[test]
    fn an_unknown_variant_is_refused_as_newer() {
        let bytes = encode(&Grown::Two { x: 1 }).unwrap();
        let error = decode::<Known>("task 3", &bytes).unwrap_err();
        assert!(matches!(error, StoreError::Newer { .. }), "{error}");
        assert!(error.to_string().contains("task 3"), "{error}");
    }

    #[test]
    fn garbage_is_refused_as_damage() {
        let error = decode::<Today>("task 3", b"\xc1nonsense").unwrap_err();
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    }
}
