//! The readiness of a process: the condition under which it can be used.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::truncate::truncate_chars;

/// The condition under which a process counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReadinessCheck {
    /// A line of its output matches this regular expression.
    Output(Arc<str>),
    /// This TCP port of the loopback address accepts a connection.
    Port(u16),
    /// This URL of the loopback address answers with a status from 200 to 299.
    Http(Arc<str>),
}

impl ReadinessCheck {
    /// The maximum length of a regular expression in bytes.
    pub const PATTERN_BYTES_MAX: usize = 1024;
    /// The maximum length of a URL in bytes.
    pub const URL_BYTES_MAX: usize = 2048;

    /// Returns the check that a request names in fields, of which it gives exactly one.
    pub fn from_fields(
        output: Option<&str>,
        port: Option<u16>,
        http: Option<&str>,
    ) -> Result<Self, Refusal> {
        let check = match (output, port, http) {
            (Some(pattern), None, None) => Self::Output(pattern.into()),
            (None, Some(port), None) => Self::Port(port),
            (None, None, Some(url)) => Self::Http(url.into()),
            _ => {
                return Err(Refusal::invalid(
                    "`ready` has exactly one of the fields `output`, `port` and `http`",
                ));
            }
        };
        check.check().map(|()| check)
    }

    /// Returns whether the process is asked over the network.
    pub fn needs_network(&self) -> bool {
        match self {
            Self::Output(_) => false,
            Self::Port(_) | Self::Http(_) => true,
        }
    }

    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Output(pattern) if pattern.is_empty() => {
                Err(Refusal::invalid("the readiness pattern is empty"))
            }
            Self::Output(pattern) if pattern.len() > Self::PATTERN_BYTES_MAX => {
                let max = Self::PATTERN_BYTES_MAX;
                Err(Refusal::invalid(format!("the readiness pattern is longer than {max} bytes")))
            }
            Self::Output(_) => Ok(()),
            Self::Port(0) => {
                Err(Refusal::invalid("the readiness port is 0; give one from 1 to 65535"))
            }
            Self::Port(_) => Ok(()),
            Self::Http(url) if url.len() > Self::URL_BYTES_MAX => {
                let max = Self::URL_BYTES_MAX;
                Err(Refusal::invalid(format!("the readiness URL is longer than {max} bytes")))
            }
            Self::Http(url) if !url.starts_with("http://") => {
                let shown = truncate_chars(url, 200);
                Err(Refusal::invalid(format!(
                    "the readiness URL {shown:?} does not begin with http://"
                )))
            }
            Self::Http(_) => Ok(()),
        }
    }
}

impl fmt::Display for ReadinessCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(pattern) => write!(f, "a line of output matches {pattern:?}"),
            Self::Port(port) => write!(f, "port {port} accepts a connection"),
            Self::Http(url) => write!(f, "{url} answers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_bounded() {
        let long = "a".repeat(ReadinessCheck::PATTERN_BYTES_MAX + 1);
        for check in [
            ReadinessCheck::Output("".into()),
            ReadinessCheck::Output(long.into()),
            ReadinessCheck::Port(0),
            ReadinessCheck::Http("https://localhost/".into()),
        ] {
            assert!(check.check().is_err(), "{check}");
        }
        assert!(ReadinessCheck::Output("^ready$".into()).check().is_ok());
    }
}
