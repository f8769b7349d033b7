//! What a server is, as a configuration has it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secrets::ValueSource;

/// How the names of headers end that carry what others must not see.
const CREDENTIALS: [&str; 5] = ["authorization", "cookie", "token", "secret", "key"];

/// So that `SERVER__TOOL` has room for the tool.
const NAME_MAX: usize = 32;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const CALL_TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A server, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "McpServerFields", into = "McpServerFields")]
pub struct McpServerConfig {
    pub transport: McpTransport,
    pub timeouts: McpTimeouts,
    /// Whether it is believed which of its tools only look and which may be called twice. One that
    /// is not has every interrupted call told as "effect unknown".
    pub trusts_hints: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// A program of ours, spoken to over its standard streams.
    Stdio {
        program: String,
        arguments: Vec<String>,
        env: BTreeMap<String, ValueSource>,
        /// An absolute path.
        cwd: Option<PathBuf>,
    },
    /// A service, spoken to over streamable HTTP.
    Http { url: String, bearer: Option<ValueSource>, headers: BTreeMap<String, ValueSource> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpTimeouts {
    /// Until it has said who it is and which tools it has.
    pub start: Duration,
    /// Of one call, from its last sign of progress.
    pub call: Duration,
    /// Of one call in all, however much progress it tells of.
    pub call_total: Duration,
}

impl Default for McpTimeouts {
    fn default() -> Self {
        Self { start: START_TIMEOUT, call: CALL_TIMEOUT, call_total: CALL_TOTAL_TIMEOUT }
    }
}

/// What is wrong with a server's settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server {name:?}: {problem}")]
pub struct McpServerError {
    pub name: String,
    pub problem: String,
}

impl McpServerConfig {
    /// A program with its arguments.
    pub fn stdio<T: Into<String>>(
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        Self::of(McpTransport::Stdio {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: None,
        })
    }

    pub fn http(url: impl Into<String>) -> Self {
        Self::of(McpTransport::Http { url: url.into(), bearer: None, headers: BTreeMap::new() })
    }

    fn of(how: McpTransport) -> Self {
        Self { transport: how, timeouts: McpTimeouts::default(), trusts_hints: true }
    }

    /// A variable of a program's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<ValueSource>) -> Self {
        if let McpTransport::Stdio { env, .. } = &mut self.transport {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// The token that a service wants.
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

    /// What no type can say.
    pub fn check(&self) -> Result<(), String> {
        let McpTimeouts { start, call, call_total: call_most } = self.timeouts;
        if [start, call, call_most].contains(&Duration::ZERO) {
            return Err("a timeout of nothing leaves no time for an answer".to_owned());
        }
        match &self.transport {
            McpTransport::Stdio { program, cwd, env, .. } => {
                if program.is_empty() {
                    return Err("`command` is empty; write [\"program\", \"argument\"]".to_owned());
                }
                if let Some(cwd) = cwd.as_ref().filter(|cwd| cwd.is_relative()) {
                    return Err(format!("`cwd`: {} is no absolute path", cwd.display()));
                }
                env.iter().try_for_each(|(name, value)| check_setting(name, value))
            }
            McpTransport::Http { url, bearer, headers } => {
                check_url(url, bearer.is_some() || headers.iter().any(is_credential))?;
                bearer.iter().try_for_each(|bearer| check_setting("bearer", bearer))?;
                headers.iter().try_for_each(|(name, value)| check_setting(name, value))
            }
        }
    }
}

/// A name from which tools can be named: no `__` in it, which stands before the tool.
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
        "no name: a letter, then letters, digits, `-` or single `_`, {NAME_MAX} at most, with no \
         `_` at the end"
    );
    Err(McpServerError { name: name.chars().take(100).collect(), problem })
}

fn check_setting(name: &str, value: &ValueSource) -> Result<(), String> {
    match value {
        // A daemon is at home elsewhere than whoever wrote the name of the file.
        ValueSource::File { file } if file.is_relative() => {
            Err(format!("`{name}`: {} is no absolute path", file.display()))
        }
        ValueSource::Env { env } if env.is_empty() => Err(format!("`{name}`: `env` names nothing")),
        _ => Ok(()),
    }
}

fn check_url(url: &str, with_secret: bool) -> Result<(), String> {
    let parsed: ::http::Uri = url.parse().map_err(|_| format!("{url:?} is no address"))?;
    match (parsed.scheme_str(), parsed.host()) {
        (Some("https"), Some(_)) => Ok(()),
        (Some("http"), Some(host)) if is_loopback(host) || !with_secret => Ok(()),
        (Some("http"), Some(_)) => {
            Err("a token is sent to other machines over https only".to_owned())
        }
        _ => Err(format!("{url:?} is no address; it begins with https:// or http://")),
    }
}

/// A header that says who we are: by reference, or by a name that only such headers have.
pub(super) fn is_credential((name, value): (&String, &ValueSource)) -> bool {
    let name = name.to_ascii_lowercase();
    value.is_reference() || CREDENTIALS.iter().any(|credential| name.ends_with(credential))
}

pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// A server as its table in a file has it.
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
        let usual = McpTimeouts::default();
        let timeouts = McpTimeouts {
            start: parse_timeout("start_timeout", fields.start_timeout, usual.start)?,
            call: parse_timeout("call_timeout", fields.call_timeout, usual.call)?,
            call_total: parse_timeout("call_most", fields.call_total_timeout, usual.call_total)?,
        };
        let how = match (fields.url, fields.command) {
            (Some(url), command) => {
                if !command.is_empty() || !fields.env.is_empty() || fields.cwd.is_some() {
                    return Err("with `url` there is no `command`, `env` or `cwd`".to_owned());
                }
                McpTransport::Http { url, bearer: fields.bearer, headers: fields.headers }
            }
            (None, command) => {
                if fields.bearer.is_some() || !fields.headers.is_empty() {
                    return Err("`bearer` and `headers` belong to a `url`".to_owned());
                }
                let mut words = command.into_iter();
                let program = words.next().ok_or("it has neither `command` nor `url`")?;
                McpTransport::Stdio {
                    program,
                    arguments: words.collect(),
                    env: fields.env,
                    cwd: fields.cwd,
                }
            }
        };
        let server =
            Self { transport: how, timeouts, trusts_hints: fields.trust_hints.unwrap_or(true) };
        server.check()?;
        Ok(server)
    }
}

impl From<McpServerConfig> for McpServerFields {
    fn from(server: McpServerConfig) -> Self {
        let usual = McpTimeouts::default();
        let McpTimeouts { start, call, call_total: call_most } = server.timeouts;
        let told = |span: Duration, usual: Duration| {
            (span != usual).then(|| humantime::format_duration(span).to_string())
        };
        let fields = Self {
            start_timeout: told(start, usual.start),
            call_timeout: told(call, usual.call),
            call_total_timeout: told(call_most, usual.call_total),
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

fn parse_timeout(field: &str, text: Option<String>, usual: Duration) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(usual) };
    humantime::parse_duration(&text)
        .map_err(|_| format!("`{field}`: {text:?} is no span of time, such as 90s or 10m"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: serde_json::Value) -> Result<McpServerConfig, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_is_read_as_it_is_written() {
        for fields in [
            json!({"command": ["npx", "-y", "server"], "env": {"TOKEN": {"env": "MY_TOKEN"},
                "LEVEL": "debug"}, "cwd": "/srv"}),
            json!({"url": "https://mcp.example/mcp", "bearer": {"file": "/secrets/token"},
                "headers": {"x-team": "kitchen"}, "call_timeout": "5m", "trust_hints": false}),
        ] {
            let server = read(fields.clone()).unwrap();
            assert_eq!(serde_json::to_value(&server).unwrap(), fields);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (fields, part) in [
            (json!({}), "neither `command` nor `url`"),
            (json!({"command": []}), "neither `command` nor `url`"),
            (json!({"command": [""]}), "`command` is empty"),
            (json!({"command": ["a"], "url": "https://b"}), "no `command`"),
            (json!({"command": ["a"], "bearer": {"env": "X"}}), "belong to a `url`"),
            (json!({"command": ["a"], "cwd": "here"}), "no absolute path"),
            (json!({"command": ["a"], "env": {"T": {"file": "token"}}}), "no absolute path"),
            (json!({"url": "mcp.example"}), "no address"),
            (json!({"url": "http://mcp.example", "bearer": {"env": "T"}}), "over https only"),
            (json!({"url": "http://b.example", "headers": {"X-Api-Key": "k"}}), "over https only"),
            (json!({"url": "https://a", "call_timeout": "soon"}), "no span of time"),
            (json!({"url": "https://a", "call_timeout": "0s"}), "leaves no time"),
            (json!({"url": "https://a", "tokn": "x"}), "unknown field `tokn`"),
        ] {
            let problem = read(fields.clone()).unwrap_err();
            assert!(problem.contains(part), "{fields}: {problem}");
        }
        read(json!({"url": "http://127.0.0.1:1/mcp", "bearer": {"env": "T"}})).unwrap();
        read(json!({"url": "http://[::1]:1/mcp", "bearer": {"env": "T"}})).unwrap();
    }

    #[test]
    fn a_name_leaves_no_doubt_where_the_tool_begins() {
        for name in ["github", "my-docs", "a_b2"] {
            check_name(name).unwrap();
        }
        for name in ["", "1st", "a__b", "a_", "a b", "a.b", "é", &"a".repeat(33)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
