//! The addresses that a daemon listens on. They are stored, so that the next daemon listens on them
//! too.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_protocol::requests::HttpListenerInfo;
use brigade_store::{ExpectedVersion, NewRecord, RecordKey, RecordKind, RecordQuery};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::a2a::published::{A2aOptions, PublishedAgents};
use super::base_path::BasePath;
use super::listener::Connections;
use super::request_guard::ServedNames;
use super::routes::{HttpState, build_app};
use super::tls::load_tls;
use crate::request_context::DaemonState;

const LISTENER_KIND: RecordKind = RecordKind::from_static("http-listener");

/// The purpose of a listener. There is at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListenerPurpose {
    /// The address that the operator chose.
    Serve,
    /// A port of the loopback interface for the dashboard.
    Dashboard,
}

/// An address to listen on, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenOptions {
    pub purpose: ListenerPurpose,
    pub address: SocketAddr,
    /// Host names beside `localhost` and addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// A proxy in front of this server has the TLS connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind_proxy: bool,
    /// The path at which the proxy serves this server.
    #[serde(default, skip_serializing_if = "BasePath::is_empty")]
    pub base_path: BasePath,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The definitions that are published as agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<A2aOptions>,
}

/// A certificate chain and its key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ListenOptions {
    /// Returns the options of the dashboard: any free port of the loopback interface.
    pub fn dashboard() -> Self {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Self {
            purpose: ListenerPurpose::Dashboard,
            address,
            hosts: Vec::new(),
            behind_proxy: false,
            base_path: BasePath::default(),
            tls: None,
            a2a: None,
        }
    }

    /// Returns options for an address that the operator chose.
    pub fn serve(address: SocketAddr) -> Self {
        Self { purpose: ListenerPurpose::Serve, address, ..Self::dashboard() }
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.address.ip().is_loopback() || self.behind_proxy || self.tls.is_some() {
            return Ok(());
        }
        Err(Refusal::invalid(format!(
            "{} can be reached from other machines: pass --tls-cert and --tls-key, or --behind-proxy if \
             a proxy has the TLS connection",
            self.address
        )))
    }

    /// Returns the URL of the bound address, without a slash at its end.
    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the URL under which other machines reach the listener, if it is known.
    fn public_url(&self) -> Option<String> {
        const HTTPS_PORT: u16 = 443;
        match self.hosts.first() {
            // The proxy has the port of HTTPS.
            Some(host) if self.behind_proxy => Some(format!("https://{host}{}", self.base_path)),
            Some(host) if self.tls.is_some() => Some(match self.address.port() {
                HTTPS_PORT => format!("https://{host}"),
                port => format!("https://{host}:{port}"),
            }),
            None if self.tls.is_some() && !self.address.ip().is_unspecified() => Some(self.url()),
            _ => None,
        }
    }

    fn info(&self) -> HttpListenerInfo {
        HttpListenerInfo {
            url: self.url(),
            public_url: self.public_url(),
            is_for_dashboard: self.purpose == ListenerPurpose::Dashboard,
            agents: self.a2a.as_ref().map(|a2a| a2a.agents.clone()).unwrap_or_default(),
        }
    }

    fn record_key(&self) -> Result<RecordKey, Refusal> {
        let key = match self.purpose {
            ListenerPurpose::Serve => "serve",
            ListenerPurpose::Dashboard => "dashboard",
        };
        Ok(RecordKey::new(LISTENER_KIND, key)?)
    }
}

/// The listeners of a daemon.
#[derive(Debug)]
pub(crate) struct HttpListeners {
    connections: Connections,
    bound: Mutex<Vec<ListenOptions>>,
}

impl HttpListeners {
    pub(crate) fn new(connections_max: usize, shutdown_token: CancellationToken) -> Self {
        let connections = Connections::new(connections_max, shutdown_token);
        Self { connections, bound: Mutex::default() }
    }

    /// Listens, and returns the URL. The dashboard uses any listener of the loopback interface that
    /// is there, except one behind a proxy: its pages have another origin.
    pub(crate) async fn listen(
        &self,
        daemon: &Arc<DaemonState>,
        options: ListenOptions,
    ) -> Result<String, Refusal> {
        options.check()?;
        if let Some(a2a) = &options.a2a {
            a2a.check(&daemon.runtime)?;
        }
        let mut bound = self.bound.lock().await;
        if let Some(listener) = find_bound(&bound, &options)? {
            return Ok(listener.url());
        }
        let options = self.bind(daemon, options).await?;
        let value = serde_json::to_vec(&options)
            .map_err(|error| Refusal::internal(format!("a listener cannot be stored: {error}")))?;
        let record = NewRecord::new(options.record_key()?, value)?;
        daemon.runtime.records().put(&record, ExpectedVersion::Any).await?;
        let url = options.url();
        bound.push(options);
        Ok(url)
    }

    /// Listens on the stored addresses. One that cannot be bound is only logged. With options for
    /// an address that the operator chose, listens there in place of the stored one, or fails.
    pub(crate) async fn restore(
        &self,
        daemon: &Arc<DaemonState>,
        chosen: Option<ListenOptions>,
    ) -> Result<(), Refusal> {
        let has_chosen = chosen.is_some();
        if let Some(chosen) = chosen {
            self.listen(daemon, chosen).await?;
        }
        let page = daemon.runtime.records().list(&RecordQuery::new(LISTENER_KIND)).await?;
        let mut bound = self.bound.lock().await;
        for item in page.items {
            let Ok(options) = serde_json::from_slice::<ListenOptions>(&item.record.value) else {
                tracing::warn!("a stored listener is not understood");
                continue;
            };
            if has_chosen && options.purpose == ListenerPurpose::Serve {
                continue;
            }
            let address = options.address;
            match self.bind(daemon, options).await {
                Ok(options) => bound.push(options),
                Err(error) => tracing::warn!(%address, %error, "the address cannot be bound again"),
            }
        }
        Ok(())
    }

    /// Binds the address and serves it. Returns the options with the bound port.
    async fn bind(
        &self,
        daemon: &Arc<DaemonState>,
        mut options: ListenOptions,
    ) -> Result<ListenOptions, Refusal> {
        let tls = options.tls.as_ref().map(load_tls).transpose()?;
        let failed = |error: std::io::Error| {
            Refusal::unavailable(format!("cannot listen on {}: {error}", options.address))
        };
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        options.address = listener.local_addr().map_err(failed)?;
        let is_https = options.behind_proxy || options.tls.is_some();
        let hosts = options.hosts.clone();
        let names = ServedNames { hosts, is_https, base_path: options.base_path.clone() };
        let published = PublishedAgents {
            agents: options.a2a.iter().flat_map(|a2a| a2a.resolve(&daemon.runtime)).collect(),
            public_url: options.public_url(),
            is_https,
        };
        let state = HttpState::new(daemon.clone(), published);
        self.connections.serve(listener, tls, build_app(state, names));
        Ok(options)
    }

    pub(crate) async fn describe(&self) -> Vec<HttpListenerInfo> {
        self.bound.lock().await.iter().map(ListenOptions::info).collect()
    }

    pub(crate) fn has_connections(&self) -> bool {
        self.connections.has_open()
    }

    /// Waits until all connections have ended, which the shutdown token requests.
    pub(crate) async fn join(&self) {
        self.connections.join().await;
    }
}

fn find_bound<'a>(
    bound: &'a [ListenOptions],
    options: &ListenOptions,
) -> Result<Option<&'a ListenOptions>, Refusal> {
    let found = match options.purpose {
        ListenerPurpose::Dashboard => {
            bound.iter().find(|bound| bound.address.ip().is_loopback() && !bound.behind_proxy)
        }
        ListenerPurpose::Serve => {
            bound.iter().find(|bound| bound.purpose == ListenerPurpose::Serve)
        }
    };
    match found {
        Some(bound) if options.purpose == ListenerPurpose::Serve && bound != options => {
            let address = bound.address;
            Err(Refusal::conflict(format!("this daemon listens on {address} already")))
        }
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public_url(address: &str, host: &str, change: fn(&mut ListenOptions)) -> Option<String> {
        let mut options = ListenOptions::serve(address.parse().expect("an address"));
        options.hosts = host.split_whitespace().map(str::to_owned).collect();
        change(&mut options);
        options.public_url()
    }

    #[test]
    fn the_public_url_has_the_name_that_clients_use() {
        let with_tls = |options: &mut ListenOptions| {
            options.tls = Some(TlsFiles { certificate: PathBuf::new(), key: PathBuf::new() });
        };
        let behind_proxy = |options: &mut ListenOptions| options.behind_proxy = true;
        let at_path = |options: &mut ListenOptions| {
            options.behind_proxy = true;
            options.base_path = "/a".parse().expect("a path");
        };
        let name = "brigade.example other.example";
        for (found, expect) in [
            (public_url("0.0.0.0:7790", name, with_tls), Some("https://brigade.example:7790")),
            (public_url("0.0.0.0:443", name, with_tls), Some("https://brigade.example")),
            (public_url("10.0.0.7:443", "", with_tls), Some("https://10.0.0.7:443")),
            (public_url("0.0.0.0:443", "", with_tls), None),
            (public_url("127.0.0.1:7777", name, behind_proxy), Some("https://brigade.example")),
            (public_url("127.0.0.1:7777", name, at_path), Some("https://brigade.example/a")),
            (public_url("127.0.0.1:7777", "", |_| ()), None),
        ] {
            assert_eq!(found.as_deref(), expect);
        }
    }
}
