//! The user's configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brigade_llm::{Prices, ProviderOptions};
use brigade_server::addresses::most_like;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::span;

/// What can be set, with what holds when it is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// With nobody connected and nothing alive for so long, the daemon leaves. `never` keeps it.
    pub(crate) idle_exit: String,
    /// The most that is kept of each output stream of a command, in bytes.
    pub(crate) output_cap: u64,
    /// Variables of the daemon's environment that commands see beside the usual ones.
    pub(crate) pass_env: Vec<String>,
    /// What reads shell commands.
    pub(crate) shell: PathBuf,
    /// What agents use whose definition names no model: provider/model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Providers of the user's own, and other settings for those that are known, by name.
    pub(crate) providers: BTreeMap<String, ProviderOptions>,
    /// What models cost and how much fits into them, where that is not known.
    pub(crate) prices: Prices,
}

const KEYS: [&str; 7] =
    ["idle_exit", "model", "output_cap", "pass_env", "prices", "providers", "shell"];

impl Default for Config {
    fn default() -> Self {
        Self {
            idle_exit: "10m".to_owned(),
            output_cap: brigade_runtime::processes::options::OUTPUT_CAP,
            pass_env: Vec::new(),
            shell: PathBuf::from("/bin/sh"),
            model: None,
            providers: BTreeMap::new(),
            prices: Prices::default(),
        }
    }
}

impl Config {
    /// The file: `BRIGADE_CONFIG`, else `brigade/config.toml` in the user's configuration directory.
    pub(crate) fn path() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = set("BRIGADE_CONFIG") {
            return Some(path.into());
        }
        Self::folder().map(|base| base.join("brigade/config.toml"))
    }

    /// The user's configuration directory.
    pub(crate) fn folder() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let base = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        base.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))
    }

    pub(crate) fn load() -> Result<Self, Failure> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(Failure::usage(format!("{}: {error}", path.display()))),
        };
        let wrong = |problem: String| {
            Failure::usage(format!("{}: {}", path.display(), problem.trim_end()))
                .hint("`brigade config` shows every key with its value")
        };
        let table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let near = most_like(unknown, KEYS).map(|near| format!("; did you mean {near}?"));
            return Err(wrong(format!("unknown key {unknown}{}", near.unwrap_or_default())));
        }
        let config: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        config.idle().map_err(|problem| wrong(format!("idle_exit: {problem}")))?;
        Ok(config)
    }

    pub(crate) fn idle(&self) -> Result<Option<Duration>, String> {
        if self.idle_exit == "never" {
            return Ok(None);
        }
        span::parse(&self.idle_exit).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_known() {
        let model = Some("ollama/qwen3".to_owned());
        let table = toml::Table::try_from(Config { model, ..Config::default() }).unwrap();
        assert_eq!(table.keys().map(String::as_str).collect::<Vec<_>>(), KEYS);
    }
}
