//! Values of the configuration with forms of their own.

use std::num::NonZeroU32;

use brigade_model::sandbox::parse_bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Deserializes a number of bytes, or a size such as `"64M"`.
pub(crate) fn deserialize_size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SizeField {
        Bytes(u64),
        Text(String),
    }
    // The error must not quote the file.
    let wrong = || D::Error::custom("write a number of bytes, or a size such as \"64M\"");
    match SizeField::deserialize(from).map_err(|_| wrong())? {
        SizeField::Bytes(bytes) => Ok(bytes),
        SizeField::Text(text) => parse_bytes(&text).map_err(|_| wrong()),
    }
}

/// Deserializes a number of tasks.
pub(crate) fn deserialize_count<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<NonZeroU32>, D::Error> {
    // The error must not quote the file.
    let wrong = || {
        let max = u32::MAX;
        D::Error::custom(format!(
            "write a whole number from 1 to {max}; for no limit, omit the key"
        ))
    };
    let count = i64::deserialize(from).map_err(|_| wrong())?;
    let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
    count.map(Some).ok_or_else(wrong)
}

/// Returns true for a valid name of an environment variable.
pub(crate) fn is_variable_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// `true`, or a list of workspaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum SharedWorkspaces {
    All(bool),
    These(Vec<String>),
}

impl Default for SharedWorkspaces {
    fn default() -> Self {
        Self::All(false)
    }
}

impl SharedWorkspaces {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
