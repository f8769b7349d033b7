//! The user's configuration file.

use std::path::PathBuf;
use std::time::Duration;

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
}

const KEYS: [&str; 4] = ["idle_exit", "output_cap", "pass_env", "shell"];

impl Default for Config {
    fn default() -> Self {
        Self {
            idle_exit: "10m".to_owned(),
            output_cap: brigade_runtime::processes::options::OUTPUT_CAP,
            pass_env: Vec::new(),
            shell: PathBuf::from("/bin/sh"),
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
        let base = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = base.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")));
        base.map(|base| base.join("brigade/config.toml"))
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
        let table = toml::Table::try_from(Config::default()).unwrap();
        assert_eq!(table.keys().map(String::as_str).collect::<Vec<_>>(), KEYS);
    }
}
