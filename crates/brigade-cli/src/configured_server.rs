//! The servers of the command line, as a flag, a variable or the configuration names them.
//!
//! ```text
//! --server > --state > BRIGADE_SERVER > BRIGADE_STATE, or a task > `server` of the configuration
//! ```
//!
//! The word `local` is the daemon of this machine. The token comes from a variable or a file. That of
//! the configuration goes to the servers of the configuration only.

use std::path::PathBuf;

use brigade_protocol::remote_daemon::{RemoteDaemon, StreamOpener};
use serde::{Deserialize, Serialize};

use crate::exit_code::CliError;
use crate::server_stream::HttpServer;
use crate::server_token::TokenSource;
use crate::server_url::ServerUrl;

/// The variable that names servers, with commas between them.
pub(crate) const SERVER_VARIABLE: &str = "BRIGADE_SERVER";

/// The name of this machine's daemon among servers.
const LOCAL: &str = "local";

/// The table `server` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// The URLs. Servers of one fleet stand for each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) urls: Vec<String>,
    /// The file with the token, unless a variable has it or names another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

impl ServerConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        for url in self.urls.iter().filter(|url| *url != LOCAL) {
            url.parse::<ServerUrl>().map_err(|problem| format!("urls: {problem}"))?;
        }
        match &self.token_file {
            Some(file) if file.is_relative() => {
                Err("token_file: it is not an absolute path".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The places that can name servers, and those that name the daemon of a state directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerSources<'a> {
    pub(crate) flag: &'a [String],
    pub(crate) has_state_flag: bool,
    pub(crate) variable: Option<&'a str>,
    /// A variable names a state directory, or this process is part of a task.
    pub(crate) has_local_daemon: bool,
    pub(crate) config: &'a ServerConfig,
}

/// The servers that the user has chosen. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSetting {
    pub(crate) urls: Vec<ServerUrl>,
    token_file: Option<PathBuf>,
}

impl ServerSetting {
    /// Returns the chosen servers; `None` is the daemon of this machine.
    pub(crate) fn resolve(sources: &ServerSources<'_>) -> Result<Option<Self>, CliError> {
        if !sources.flag.is_empty() {
            if sources.has_state_flag {
                let text = "--server and --state name two daemons; give one of them";
                return Err(CliError::usage(text));
            }
            return Self::parse(sources.flag, None, "--server");
        }
        if sources.has_state_flag {
            return Ok(None);
        }
        if let Some(variable) = sources.variable {
            let urls: Vec<String> = variable.split(',').map(|url| url.trim().to_owned()).collect();
            return Self::parse(&urls, None, SERVER_VARIABLE);
        }
        let ServerConfig { urls, token_file } = sources.config;
        if sources.has_local_daemon || urls.is_empty() {
            return Ok(None);
        }
        Self::parse(urls, token_file.clone(), "server.urls")
    }

    fn parse(
        texts: &[String],
        token_file: Option<PathBuf>,
        source: &str,
    ) -> Result<Option<Self>, CliError> {
        if texts == [LOCAL] {
            return Ok(None);
        }
        let parse = |text: &String| {
            text.parse().map_err(|problem| CliError::usage(format!("{source}: {problem}")))
        };
        let urls = texts.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Some(Self { urls, token_file }))
    }

    /// Returns the client's side of these servers.
    pub(crate) fn to_remote_daemon(&self) -> RemoteDaemon {
        RemoteDaemon::new(self.urls.iter().map(|url| self.new_opener(url)).collect())
    }

    /// Returns the client's side of each server alone.
    pub(crate) fn to_single_daemons(&self) -> impl Iterator<Item = (&ServerUrl, RemoteDaemon)> {
        self.urls.iter().map(|url| (url, RemoteDaemon::new(vec![self.new_opener(url)])))
    }

    fn new_opener(&self, url: &ServerUrl) -> Box<dyn StreamOpener> {
        let token = TokenSource::from_env(self.token_file.clone());
        Box::new(HttpServer::new(url.clone(), token))
    }

    /// Returns the URLs with commas between them.
    pub(crate) fn shown_urls(&self) -> String {
        let urls: Vec<&str> = self.urls.iter().map(ServerUrl::as_str).collect();
        urls.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &[&str] = &[];

    fn resolve(change: impl FnOnce(&mut ServerSources<'_>)) -> Vec<String> {
        resolve_flag(&[], change)
    }

    fn resolve_flag(flag: &[&str], change: impl FnOnce(&mut ServerSources<'_>)) -> Vec<String> {
        let flag: Vec<String> = flag.iter().map(|url| (*url).to_owned()).collect();
        let config = ServerConfig {
            urls: vec!["https://config".to_owned()],
            token_file: Some("/token".into()),
        };
        let mut sources = ServerSources {
            flag: &flag,
            has_state_flag: false,
            variable: None,
            has_local_daemon: false,
            config: &config,
        };
        change(&mut sources);
        let setting = ServerSetting::resolve(&sources).expect("a setting");
        setting.map_or_else(Vec::new, |setting| {
            let token = setting.token_file.map(|file| file.display().to_string());
            setting.urls.iter().map(|url| url.as_str().to_owned()).chain(token).collect()
        })
    }

    #[test]
    fn the_nearest_place_names_the_daemon() {
        let variable = Some("https://a, https://b/");
        assert_eq!(resolve(|_| ()), ["https://config", "/token"]);
        assert_eq!(resolve(|it| it.has_local_daemon = true), HERE);
        assert_eq!(resolve(|it| it.variable = variable), ["https://a", "https://b"]);
        assert_eq!(resolve(|it| it.variable = Some("local")), HERE);
        let both = |it: &mut ServerSources<'_>| {
            it.variable = variable;
            it.has_local_daemon = true;
        };
        assert_eq!(resolve(both), ["https://a", "https://b"]);
        let state = |it: &mut ServerSources<'_>| {
            it.variable = variable;
            it.has_state_flag = true;
        };
        assert_eq!(resolve(state), HERE);
        let flag = resolve_flag(&["https://flag"], |it| it.variable = variable);
        assert_eq!(flag, ["https://flag"]);
        assert_eq!(resolve_flag(&["local"], |it| it.variable = variable), HERE);
    }

    #[test]
    fn two_daemons_are_refused() {
        let sources = ServerSources {
            flag: &["https://flag".to_owned()],
            has_state_flag: true,
            variable: None,
            has_local_daemon: false,
            config: &ServerConfig::default(),
        };
        let error = ServerSetting::resolve(&sources).expect_err("two daemons");
        assert!(error.message_contains("--state"), "{error:?}");
    }
}
