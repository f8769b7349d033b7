//! The configuration of a server.

use brigade_model::duration::{format_duration, parse_duration};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brigade_model::truncate::truncate_chars;
use serde::{Deserialize, Serialize};

use super::value_source::ValueSource;

/// Suffixes of the names of headers that carry credentials.
const CREDENTIALS: [&str; 5] = ["authorization", "cookie", "token", "secret", "key"];

/// The maximum length of a name, so that `SERVER__TOOL` has space for the tool.
const NAME_MAX: usize = 32;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const CALL_TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A server and its transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "McpServerFields", into = "McpServerFields")]
pub struct McpServerConfig {
    pub transport: McpTransport,
    pub timeouts: McpTimeouts,
    /// True if the server's hints are trusted: which of its tools only read, and which can be
    /// repeated. Without trust, every interrupted call is reported as "effect unknown".
    pub trusts_hints: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpTransport {
    /// A local program, over its standard streams.
    Stdio {
        program: String,
        arguments: Vec<String>,
        env: BTreeMap<String, ValueSource>,
        /// An absolute path.
        cwd: Option<PathBuf>,
    },
    /// A service, over streamable HTTP.
    Http { url: String, bearer: Option<ValueSource>, headers: BTreeMap<String, ValueSource> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpTimeouts {
    /// The time for the handshake and for the list of tools.
    pub start: Duration,
    /// The time of one call since its last progress notification.
    pub call: Duration,
    /// The total time of one call, whatever its progress.
    pub call_total: Duration,
}

impl Default for McpTimeouts {
    fn default() -> Self {
        Self { start: START_TIMEOUT, call: CALL_TIMEOUT, call_total: CALL_TOTAL_TIMEOUT }
    }
}

/// An error in a server's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server {name:?}: {problem}")]
pub struct McpServerError {
    pub name: String,
    pub problem: String,
}

impl McpServerConfig {
    /// Configures a program with its arguments.
    pub fn stdio<T: Into<String>>(
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        Self::new(McpTransport::Stdio {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: None,
        })
    }

    pub fn http(url: impl Into<String>) -> Self {
        Self::new(McpTransport::Http { url: url.into(), bearer: None, headers: BTreeMap::new() })
    }

    fn new(transport: McpTransport) -> Self {
        Self { transport, timeouts: McpTimeouts::default(), trusts_hints: true }
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<ValueSource>) -> Self {
        if let McpTransport::Stdio { env, .. } = &mut self.transport {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// Sets the token for a service.
    #[must_use]
    pub fn bearer(mut self, token: impl Into<ValueSource>) -> Self {
        if let McpTransport::Http { bearer, .. } = &mut self.transport {
            *bearer = Some(token.into());
        }
        self
    }

    #[must_use]
    pub fn timeouts(self, timeouts: McpTimeouts) -> Self {
        Self { timeouts, ..self }
    }

    #[must_use]
    pub fn distrusting_hints(self) -> Self {
        Self { trusts_hints: false, ..self }
    }

    /// Checks the values.
    pub fn check(&self) -> Result<(), String> {
        let McpTimeouts { start, call, call_total } = self.timeouts;
        if [start, call, call_total].contains(&Duration::ZERO) {
            return Err("a timeout is 0; give it a positive duration".to_owned());
        }
        match &self.transport {
            McpTransport::Stdio { program, cwd, env, .. } => {
                if program.is_empty() {
                    return Err("`command` is empty; write [\"program\", \"argument\"]".to_owned());
                }
                if let Some(cwd) = cwd.as_ref().filter(|cwd| cwd.is_relative()) {
                    return Err(format!(
                        "`cwd`: {} is not absolute; write an absolute path",
                        cwd.display()
                    ));
                }
                env.iter().try_for_each(|(name, value)| check_setting(name, value))
            }
            McpTransport::Http { url, bearer, headers } => {
                check_url(
                    url,
                    bearer.is_some()
                        || headers.iter().any(|(name, value)| is_credential(name, value)),
                )?;
                bearer.iter().try_for_each(|bearer| check_setting("bearer", bearer))?;
                headers.iter().try_for_each(|(name, value)| check_setting(name, value))
            }
        }
    }
}

/// Checks the name of a server. It contains no `__`, which separates it from the tool's name.
pub fn check_name(name: &str) -> Result<(), McpServerError> {
    let is_name = name.len() <= NAME_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        && !name.contains("__")
        && !name.ends_with('_');
    if is_name {
        return Ok(());
    }
    let problem = format!(
        "use a letter, then letters, digits, `-` or single `_`, at most {NAME_MAX} characters, with no \
         `_` at the end"
    );
    Err(McpServerError { name: truncate_chars(name, 100), problem })
}

fn check_setting(name: &str, value: &ValueSource) -> Result<(), String> {
    match value {
        // The daemon's working directory differs from that of the configuration's author.
        ValueSource::File { file } if file.is_relative() => {
            Err(format!("`{name}`: {} is not absolute; write an absolute path", file.display()))
        }
        ValueSource::Env { env } if env.is_empty() => {
            Err(format!("`{name}`: `env` is empty; name a variable"))
        }
        _ => Ok(()),
    }
}

fn check_url(url: &str, with_secret: bool) -> Result<(), String> {
    let parsed: ::http::Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
    match (parsed.scheme_str(), parsed.host()) {
        (Some("https"), Some(_)) => Ok(()),
        (Some("http"), Some(host)) if is_loopback(host) || !with_secret => Ok(()),
        (Some("http"), Some(_)) => {
            Err("a token is sent to other machines over https only; use an https URL".to_owned())
        }
        _ => Err(format!("{url:?} is not a URL; begin it with https:// or http://")),
    }
}

/// Returns true if the header carries a credential: a value by reference, or a name of such
/// headers.
pub(super) fn is_credential(name: &str, value: &ValueSource) -> bool {
    let name = name.to_ascii_lowercase();
    value.is_reference() || CREDENTIALS.iter().any(|credential| name.ends_with(credential))
}

pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The fields of a server's table in a file.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct McpServerFields {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, ValueSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bearer: Option<ValueSource>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, ValueSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_total_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_hints: Option<bool>,
}

impl TryFrom<McpServerFields> for McpServerConfig {
    type Error = String;

    fn try_from(fields: McpServerFields) -> Result<Self, String> {
        let defaults = McpTimeouts::default();
        let timeouts = McpTimeouts {
            start: parse_timeout("start_timeout", fields.start_timeout, defaults.start)?,
            call: parse_timeout("call_timeout", fields.call_timeout, defaults.call)?,
            call_total: parse_timeout(
                "call_total_timeout",
                fields.call_total_timeout,
                defaults.call_total,
            )?,
        };
        let transport = match (fields.url, fields.command) {
            (Some(url), command) => {
                if !command.is_empty() || !fields.env.is_empty() || fields.cwd.is_some() {
                    return Err("remove `command`, `env` and `cwd`, which do not apply to a `url`"
                        .to_owned());
                }
                McpTransport::Http { url, bearer: fields.bearer, headers: fields.headers }
            }
            (None, command) => {
                if fields.bearer.is_some() || !fields.headers.is_empty() {
                    return Err(
                        "remove `bearer` and `headers`, which apply only to a `url`".to_owned()
                    );
                }
                let mut words = command.into_iter();
                let program = words.next().ok_or("set `command` or `url`")?;
                McpTransport::Stdio {
                    program,
                    arguments: words.collect(),
                    env: fields.env,
                    cwd: fields.cwd,
                }
            }
        };
        let server = Self { transport, timeouts, trusts_hints: fields.trust_hints.unwrap_or(true) };
        server.check()?;
        Ok(server)
    }
}

impl From<McpServerConfig> for McpServerFields {
    fn from(server: McpServerConfig) -> Self {
        let defaults = McpTimeouts::default();
        let McpTimeouts { start, call, call_total } = server.timeouts;
        let render = |timeout: Duration, default: Duration| {
            (timeout != default).then(|| format_duration(timeout))
        };
        let fields = Self {
            start_timeout: render(start, defaults.start),
            call_timeout: render(call, defaults.call),
            call_total_timeout: render(call_total, defaults.call_total),
            trust_hints: (!server.trusts_hints).then_some(false),
            ..Self::default()
        };
        match server.transport {
            McpTransport::Stdio { program, arguments, env, cwd } => {
                let command = std::iter::once(program).chain(arguments).collect();
                Self { command, env, cwd, ..fields }
            }
            McpTransport::Http { url, bearer, headers } => {
                Self { url: Some(url), bearer, headers, ..fields }
            }
        }
    }
}

fn parse_timeout(field: &str, text: Option<String>, default: Duration) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(default) };
    parse_duration(&text).map_err(|problem| format!("`{field}`: {problem}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: serde_json::Value) -> Result<McpServerConfig, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn a_configuration_round_trips() {
        for fields in [
            json!({"command": ["npx", "-y", "server"], "env": {"TOKEN": {"env": "MY_TOKEN"},
                "LEVEL": "debug"}, "cwd": "/srv"}),
            json!({"url": "https://mcp.example/mcp", "bearer": {"file": "/secrets/token"},
                "headers": {"x-team": "docs"}, "call_timeout": "5m", "trust_hints": false}),
        ] {
            let server = read(fields.clone()).unwrap();
            assert_eq!(serde_json::to_value(&server).unwrap(), fields);
        }
    }

    #[test]
    fn invalid_configurations_are_refused() {
        for (fields, part) in [
            (json!({}), "set `command` or `url`"),
            (json!({"command": []}), "set `command` or `url`"),
            (json!({"command": [""]}), "`command` is empty"),
            (json!({"command": ["a"], "url": "https://b"}), "remove `command`"),
            (json!({"command": ["a"], "bearer": {"env": "X"}}), "apply only to a `url`"),
            (json!({"command": ["a"], "cwd": "here"}), "not absolute"),
            (json!({"command": ["a"], "env": {"T": {"file": "token"}}}), "not absolute"),
            (json!({"url": "mcp.example"}), "not a URL"),
            (json!({"url": "http://mcp.example", "bearer": {"env": "T"}}), "over https only"),
            (json!({"url": "http://b.example", "headers": {"X-Api-Key": "k"}}), "over https only"),
            (json!({"url": "https://a", "call_timeout": "soon"}), "not a duration"),
            (json!({"url": "https://a", "call_timeout": "0s"}), "is 0"),
            (json!({"url": "https://a", "tokn": "x"}), "unknown field `tokn`"),
        ] {
            let problem = read(fields.clone()).unwrap_err();
            assert!(problem.contains(part), "{fields}: {problem}");
        }
        read(json!({"url": "http://127.0.0.1:1/mcp", "bearer": {"env": "T"}})).unwrap();
        read(json!({"url": "http://[::1]:1/mcp", "bearer": {"env": "T"}})).unwrap();
    }

    #[test]
    fn a_name_cannot_be_confused_with_the_tool() {
        for name in ["github", "my-docs", "a_b2"] {
            check_name(name).unwrap();
        }
        for name in ["", "1st", "a__b", "a_", "a b", "a.b", "é", &"a".repeat(33)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
