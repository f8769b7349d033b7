//! The source of a provider's key. The key is read at each call, so a changed file or a renewed
//! token needs no restart. It is never stored.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{ModelError, ModelErrorKind};

/// Larger than any key, so that a file named by mistake is not sent in a header.
const KEY_FILE_MAX: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// An environment variable.
    Env(String),
    /// A file that holds the key and nothing else.
    File(PathBuf),
    /// No key, as for a provider on the same machine.
    None,
}

/// A key. Its `Debug` text hides it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ApiKey(String);

impl KeySource {
    /// Checks that the key can be read; the error says what to do.
    pub fn check(&self) -> Result<(), ModelError> {
        self.read().map(|_| ())
    }

    pub(crate) fn read(&self) -> Result<ApiKey, ModelError> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|_| {
                key_error(format!("set the environment variable {name} to the key"))
            })?,
            Self::File(path) => {
                let shown = path.display();
                let size = std::fs::metadata(path).map(|found| found.len()).unwrap_or(0);
                if size > KEY_FILE_MAX {
                    return Err(key_error(format!(
                        "{shown} is too large for a key; name a file that holds only the key"
                    )));
                }
                std::fs::read_to_string(path)
                    .map_err(|error| key_error(format!("put the key into {shown}: {error}")))?
            }
            Self::None => return Ok(ApiKey::default()),
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(key_error(format!("{self} is empty: put the key there")));
        }
        // The HTTP library's error for an invalid header value would quote the key.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(key_error(format!(
                "{self} holds characters that no key has; store only the key there"
            )));
        }
        Ok(ApiKey(text.to_owned()))
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the environment variable {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::None => f.write_str("no key"),
        }
    }
}

impl ApiKey {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl Debug for ApiKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

fn key_error(message: String) -> ModelError {
    ModelError::new(ModelErrorKind::Auth, message)
}
