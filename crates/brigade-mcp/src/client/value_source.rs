//! Values for servers, by reference where they are secret.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Larger than any token, so that a file named by mistake is not sent in a header.
const VALUE_FILE_MAX: u64 = 64 * 1024;

/// A value, or its source. It is read for each connection and never stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum ValueSource {
    /// The value itself.
    Plain(String),
    /// An environment variable.
    Env { env: String },
    /// A file that holds the value and nothing else.
    File { file: PathBuf },
}

impl ValueSource {
    pub fn env(name: impl Into<String>) -> Self {
        Self::Env { env: name.into() }
    }

    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { file: path.into() }
    }

    pub(super) fn is_reference(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    pub(super) fn read(&self) -> Result<String, String> {
        match self {
            Self::Plain(value) => Ok(value.clone()),
            Self::Env { env } => match std::env::var(env) {
                Ok(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
                _ => Err(format!("the environment variable {env} is not set")),
            },
            Self::File { file } => {
                let shown = file.display();
                let size = std::fs::metadata(file).map_or(0, |found| found.len());
                if size > VALUE_FILE_MAX {
                    return Err(format!(
                        "{shown} is too large for a secret; name a file that holds only the secret"
                    ));
                }
                match std::fs::read_to_string(file) {
                    Ok(text) if text.trim().is_empty() => Err(format!("{shown} is empty")),
                    Ok(text) => Ok(text.trim().to_owned()),
                    Err(error) => Err(format!("{shown}: {error}")),
                }
            }
        }
    }
}

/// Hides plain values, because a configuration may contain a secret.
impl Debug for ValueSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("[value]"),
            Self::Env { env } => write!(f, "${env}"),
            Self::File { file } => write!(f, "{}", file.display()),
        }
    }
}

impl From<&str> for ValueSource {
    fn from(value: &str) -> Self {
        Self::Plain(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_text_hides_the_value() {
        let plain = ValueSource::from("hunter2-hunter2");
        assert_eq!(format!("{plain:?}"), "[value]");
    }

    #[test]
    fn an_unreadable_reference_names_its_source() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        assert!(ValueSource::file(&file).read().unwrap_err().contains("token"));
        std::fs::write(&file, "\n").unwrap();
        assert!(ValueSource::file(&file).read().unwrap_err().contains("is empty"));
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(ValueSource::file(&file).read().unwrap(), "abc");
        let missing = ValueSource::env("BRIGADE_TEST_NO_SUCH_TOKEN").read().unwrap_err();
        assert!(missing.contains("BRIGADE_TEST_NO_SUCH_TOKEN"), "{missing}");
    }
}
