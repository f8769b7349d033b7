//! The user's configuration file.

use brigade_model::duration::parse_duration;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use brigade_llm::{KeySource, PriceTable, ProviderOptions};
use brigade_mcp::client::{McpServerConfig, check_name};
use brigade_protocol::daemon_launcher::CONFIG_VARIABLE;
use serde::{Deserialize, Serialize};

use crate::config_error;
use crate::config_values::{
    SharedWorkspaces, deserialize_count, deserialize_size, is_variable_name,
};
use crate::configured_limits::{LimitConfig, check_limits};
use crate::configured_node::NodeConfig;
use crate::configured_notifiers::NotifySetting;
use crate::configured_server::ServerConfig;
use crate::configured_store::StoreSetting;
use crate::exit_code::CliError;
use crate::telemetry::TelemetryConfig;

/// The configuration. A missing key has its default value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UserConfig {
    /// The daemon shuts down after this time without clients and alive tasks; `never` disables
    /// that.
    pub(crate) idle_exit: String,
    /// The most tasks that run at once, in all workspaces together. Without it there is no limit.
    #[serde(deserialize_with = "deserialize_count", skip_serializing_if = "Option::is_none")]
    pub(crate) max_running: Option<NonZeroU32>,
    /// The age at which ended tasks and events are removed; `never` removes none.
    pub(crate) retention: String,
    /// The longest time that a shutdown waits for running tasks.
    pub(crate) drain: String,
    /// Bytes kept of each output stream of a process.
    #[serde(deserialize_with = "deserialize_size")]
    pub(crate) output_cap: u64,
    /// Variables of the daemon's environment that processes get beside the usual ones.
    pub(crate) pass_env: Vec<String>,
    /// The shell for command lines. Default: bash if installed, else /bin/sh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shell: Option<PathBuf>,
    /// Workspaces in which MCP clients control each other's tasks and the operator's: all, or
    /// these.
    #[serde(skip_serializing_if = "SharedWorkspaces::is_none")]
    pub(crate) shared: SharedWorkspaces,
    /// The model of agents whose definition names none: provider/model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The store of the daemon: `sqlite`, the URL of a PostgreSQL database, or the file of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<StoreSetting>,
    /// The daemon as a node of a fleet, if its store is on PostgreSQL.
    #[serde(skip_serializing_if = "NodeConfig::is_default")]
    pub(crate) node: NodeConfig,
    /// The servers that the command line uses in place of this machine's daemon.
    #[serde(skip_serializing_if = "ServerConfig::is_default")]
    pub(crate) server: ServerConfig,
    /// Providers by name: new ones, and settings of known ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) providers: BTreeMap<String, ProviderOptions>,
    /// Limits of providers by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) limits: BTreeMap<String, LimitConfig>,
    /// MCP servers by name, for the tools of agents.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mcp_servers: BTreeMap<String, McpServerConfig>,
    /// The receivers of notifications: one command, or tables by name.
    #[serde(skip_serializing_if = "NotifySetting::is_default")]
    pub(crate) notify: NotifySetting,
    /// Prices and context sizes of models that Brigade does not know.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) prices: PriceTable,
    /// The receiver of spans.
    #[serde(skip_serializing_if = "TelemetryConfig::is_default")]
    pub(crate) telemetry: TelemetryConfig,
}

/// Returns the configuration file that the environment names.
fn config_path_from_env() -> Option<PathBuf> {
    std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn has_config_path_from_env() -> bool {
    config_path_from_env().is_some()
}

const KEYS: [&str; 18] = [
    "drain",
    "idle_exit",
    "limits",
    "max_running",
    "mcp_servers",
    "model",
    "node",
    "notify",
    "output_cap",
    "pass_env",
    "prices",
    "providers",
    "retention",
    "server",
    "shared",
    "shell",
    "store",
    "telemetry",
];

/// The longest drain. A longer one is a mistake.
const DRAIN_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest retention. A longer one is a mistake, or means `never`.
const RETENTION_MAX: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// The fields of providers, servers, prices and notifiers, in the order in which they are printed.
const FIELDS: [&str; 31] = [
    "kind",
    "base_url",
    "key",
    "allow_http",
    "extra",
    "calls",
    "requests_per_minute",
    "tokens_per_minute",
    "command",
    "url",
    "env",
    "cwd",
    "bearer",
    "headers",
    "start_timeout",
    "call_timeout",
    "call_total_timeout",
    "trust_hints",
    "price",
    "context",
    "max_output",
    "url_file",
    "secret_file",
    "secret_env",
    "on",
    "tasks",
    "sessions",
    "timeout",
    "first_pause",
    "max_pause",
    "give_up_after",
];

fn is_default(prices: &PriceTable) -> bool {
    *prices == PriceTable::default()
}

/// Renders a key as TOML, with quotes if it needs them.
fn render_toml_key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    toml::Value::String(name.to_owned()).to_string()
}

impl Default for UserConfig {
    fn default() -> Self {
        Self {
            idle_exit: "10m".to_owned(),
            max_running: None,
            retention: "never".to_owned(),
            drain: "0s".to_owned(),
            output_cap: brigade_runtime::processes::options::DEFAULT_OUTPUT_CAP,
            pass_env: Vec::new(),
            shell: None,
            shared: SharedWorkspaces::default(),
            model: None,
            store: None,
            node: NodeConfig::default(),
            server: ServerConfig::default(),
            providers: BTreeMap::new(),
            limits: BTreeMap::new(),
            mcp_servers: BTreeMap::new(),
            notify: NotifySetting::default(),
            prices: PriceTable::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl UserConfig {
    /// Returns the configuration file: `BRIGADE_CONFIG`, else `brigade/config.toml` in the user's
    /// configuration directory.
    pub(crate) fn path() -> Option<PathBuf> {
        if let Some(path) = config_path_from_env() {
            return Some(path);
        }
        Self::config_dir().map(|base| base.join("brigade/config.toml"))
    }

    /// Returns the user's configuration directory.
    pub(crate) fn config_dir() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let base = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        base.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))
    }

    pub(crate) fn load() -> Result<Self, CliError> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound && has_config_path_from_env() =>
            {
                let problem = format!("{}: there is no such file", path.display());
                return Err(CliError::usage(problem)
                    .with_hint(format!("the variable {CONFIG_VARIABLE} names it")));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(CliError::usage(format!("{}: {error}", path.display()))),
        };
        let wrong = |problem: String| {
            CliError::usage(format!("{}: {}", path.display(), problem.trim_end()))
                .with_hint("`brigade config` shows every key with its value")
        };
        let names = [&KEYS[..], &FIELDS[..]].concat();
        let unreadable = |error| wrong(config_error::describe(&error, &text, &names));
        let table: toml::Table = toml::from_str(&text).map_err(unreadable)?;
        if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(wrong(config_error::unknown_name(unknown, &KEYS)));
        }
        let config: Self = toml::from_str(&text).map_err(unreadable)?;
        config.idle_timeout().map_err(|problem| wrong(format!("idle_exit: {problem}")))?;
        config.retention_age().map_err(|problem| wrong(format!("retention: {problem}")))?;
        config.drain_timeout().map_err(|problem| wrong(format!("drain: {problem}")))?;
        if let Some(store) = &config.store {
            store.check().map_err(|problem| wrong(format!("store: {problem}")))?;
        }
        config.node.options().map_err(|problem| wrong(format!("node: {problem}")))?;
        config.server.check().map_err(|problem| wrong(format!("server.{problem}")))?;
        for (name, options) in &config.providers {
            if let KeySource::File(file) = &options.key
                && file.is_relative()
            {
                // The daemon has another working directory. The text is not quoted: it may be the
                // key itself.
                return Err(wrong(format!("providers.{name}.key: `file` is not an absolute path")));
            }
            if let KeySource::Env(variable) = &options.key
                && !is_variable_name(variable)
            {
                return Err(wrong(format!(
                    "providers.{name}.key: `env` is not the name of a variable"
                )));
            }
            options.check().map_err(|error| wrong(format!("providers.{name}: {error}")))?;
        }
        config.notify.notifiers().map_err(|problem| wrong(format!("notify: {problem}")))?;
        check_limits(&config.limits, &config.providers).map_err(wrong)?;
        for name in config.mcp_servers.keys() {
            check_name(name).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(config)
    }

    /// Renders the configuration as TOML, with each inner table on one line.
    pub(crate) fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let providers = BTreeMap::new();
        let limits = BTreeMap::new();
        let mcp_servers = BTreeMap::new();
        let prices = PriceTable::default();
        let notify = match &self.notify {
            NotifySetting::Command(_) => self.notify.clone(),
            NotifySetting::Notifiers(_) => NotifySetting::default(),
        };
        let plain = Self { providers, limits, mcp_servers, notify, prices, ..self.clone() };
        let mut text = toml::to_string(&plain)?;
        let table = toml::Table::try_from(self)?;
        for part in ["providers", "limits", "mcp_servers", "notify", "prices"] {
            let entries = table.get(part).and_then(toml::Value::as_table);
            for (name, entry) in entries.into_iter().flatten() {
                text.push_str(&format!("\n[{part}.{}]\n", render_toml_key(name)));
                let mut fields: Vec<_> = entry.as_table().into_iter().flatten().collect();
                fields.sort_by_key(|(field, _)| FIELDS.iter().position(|known| known == field));
                for (field, value) in fields {
                    if value.as_table().is_none_or(|table| !table.is_empty()) {
                        text.push_str(&format!("{} = {value}\n", render_toml_key(field)));
                    }
                }
            }
        }
        Ok(text)
    }

    /// Returns true if clients control each other's tasks in this workspace.
    pub(crate) fn is_shared(&self, workspace: &str) -> bool {
        match &self.shared {
            SharedWorkspaces::All(all) => *all,
            SharedWorkspaces::These(names) => names.iter().any(|name| name == workspace),
        }
    }

    pub(crate) fn idle_timeout(&self) -> Result<Option<Duration>, String> {
        if self.idle_exit == "never" {
            return Ok(None);
        }
        parse_duration(&self.idle_exit).map(Some)
    }

    /// Returns the age at which ended tasks and events are removed; `None` is never.
    pub(crate) fn retention_age(&self) -> Result<Option<Duration>, String> {
        if self.retention == "never" {
            return Ok(None);
        }
        let age = parse_duration(&self.retention)?;
        if age.as_millis() == 0 {
            return Err("0 would remove each task as it ends; write a time such as 30d, or never"
                .to_owned());
        }
        if age > RETENTION_MAX {
            return Err("it is longer than 36500d; write never".to_owned());
        }
        Ok(Some(age))
    }

    /// Returns the longest drain before a shutdown; `None` is no drain.
    pub(crate) fn drain_timeout(&self) -> Result<Option<Duration>, String> {
        let timeout = parse_duration(&self.drain)?;
        if timeout > DRAIN_MAX {
            return Err("it is longer than 1d".to_owned());
        }
        Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"idle_exit = "10m"
max_running = 8
retention = "30d"
drain = "30s"
output_cap = 8388608
pass_env = []
shell = "/bin/sh"
shared = ["/home/me/project"]
model = "local/qwen3"
store = "postgres://ada@db1,db2/kitchen?sslmode=verify-full"

[node]
name = "kitchen-1"
labels = ["gpu"]
loops = 2

[server]
urls = ["https://kitchen-1.example", "https://kitchen-2.example"]
token_file = "/home/me/.secrets/brigade"

[telemetry]
endpoint = "http://localhost:4318"

[providers.local]
kind = "openai-chat"
base_url = "http://localhost:8000/v1"
key = "none"

[providers.openai]
kind = "openai"
key = { file = "/home/me/.secrets/openai" }

[limits.openai]
calls = 8
requests_per_minute = 500
tokens_per_minute = 200000

[mcp_servers.docs]
url = "https://mcp.example.com/mcp"
bearer = { env = "DOCS_TOKEN" }

[mcp_servers.github]
command = ["npx", "-y", "server"]
env = { TOKEN = { file = "/home/me/.secrets/github" } }
call_timeout = "5m"

[notify.desktop]
command = ["notify-send", "Brigade"]
on = ["ended", "approval"]
tasks = "all"

[prices."local/qwen3*"]
price = { input = 0.1, output = 0.4 }
context = 131072
"#;

    #[test]
    fn every_key_is_known() {
        let config: UserConfig = toml::from_str(ALL).unwrap();
        let table = toml::Table::try_from(config).unwrap();
        assert_eq!(table.keys().map(String::as_str).collect::<Vec<_>>(), KEYS);
    }

    #[test]
    fn settings_of_the_runtime_are_checked() {
        let max = |text: &str| toml::from_str::<UserConfig>(&format!("max_running = {text}"));
        assert_eq!(max("1").unwrap().max_running, NonZeroU32::new(1));
        assert_eq!(max("4294967295").unwrap().max_running, NonZeroU32::new(u32::MAX));
        for wrong in ["0", "-1", "4294967296", "9223372036854775807", "1.5", "\"secret\"", "[]"] {
            let error = max(wrong).unwrap_err().to_string();
            assert!(error.contains("from 1 to 4294967295"), "{wrong}: {error}");
        }
        let retention = |text: &str| {
            UserConfig { retention: text.to_owned(), ..UserConfig::default() }.retention_age()
        };
        assert_eq!(retention("never"), Ok(None));
        assert_eq!(retention("1ms"), Ok(Some(Duration::from_millis(1))));
        for wrong in ["0", "0.1ms", "-1d", "36501d", "1e9d", "99999999999999999999d", ""] {
            assert!(retention(wrong).is_err(), "{wrong}");
        }
        let drain = |text: &str| {
            UserConfig { drain: text.to_owned(), ..UserConfig::default() }.drain_timeout()
        };
        assert_eq!(drain("0s"), Ok(None));
        assert_eq!(drain("1d"), Ok(Some(DRAIN_MAX)));
        for wrong in ["-1s", "25h", "99999999999999999999d", "never", ""] {
            assert!(drain(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_has_an_optional_unit() {
        let cap = |text: &str| toml::from_str::<UserConfig>(&format!("output_cap = {text}"));
        for (text, bytes) in [("65536", 65_536), ("\"64K\"", 65_536), ("\"1G\"", 1 << 30)] {
            assert_eq!(cap(text).unwrap().output_cap, bytes, "{text}");
        }
        for wrong in ["\"secret\"", "-1", "1.5", "true", "[]", "\"99999999999T\""] {
            let error = cap(wrong).unwrap_err().to_string();
            assert!(error.contains("such as \"64M\""), "{wrong}: {error}");
        }
    }

    #[test]
    fn the_documented_configuration_is_valid() {
        let page = include_str!("../../../docs/command.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let config: UserConfig = toml::from_str(text).unwrap();
        assert_eq!((config.providers.len(), config.model.is_some()), (3, true));
        assert_eq!(config.mcp_servers.len(), 2);
        assert!(config.prices.facts("local/qwen3-32b").price.is_some());
        assert_eq!(toml::from_str::<UserConfig>(&config.to_toml().unwrap()).unwrap(), config);
    }

    #[test]
    fn the_documented_mcp_servers_are_valid() {
        let page = include_str!("../../../docs/mcp-servers.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let config: UserConfig = toml::from_str(text).unwrap();
        assert_eq!(config.mcp_servers.len(), 2);
        assert_eq!(toml::from_str::<UserConfig>(&config.to_toml().unwrap()).unwrap(), config);
    }

    #[test]
    fn a_rendered_configuration_is_read_back_unchanged() {
        let config: UserConfig = toml::from_str(ALL).unwrap();
        assert_eq!(config.to_toml().unwrap(), ALL);
        let command: UserConfig = toml::from_str("notify = [\"true\"]").unwrap();
        let text = command.to_toml().unwrap();
        assert_eq!(toml::from_str::<UserConfig>(&text).unwrap(), command, "{text}");
        let plain = UserConfig::default().to_toml().unwrap();
        assert_eq!(toml::from_str::<UserConfig>(&plain).unwrap(), UserConfig::default());
    }
}
