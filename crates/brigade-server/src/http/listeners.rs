//! The addresses that a daemon listens on. They are stored, so that the next daemon listens on them
//! too.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_store::{ExpectedVersion, NewRecord, RecordKey, RecordKind, RecordQuery};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::listener::Connections;
use super::request_guard::ServedNames;
use super::routes::{HttpState, build_app};
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
        }
    }

    /// Returns options for an address that the operator chose.
    pub fn serve(address: SocketAddr) -> Self {
        Self { purpose: ListenerPurpose::Serve, address, ..Self::dashboard() }
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.address.ip().is_loopback() || self.behind_proxy {
            return Ok(());
        }
        Err(Refusal::invalid(format!(
            "{} can be reached from other machines: pass --behind-proxy if a proxy has the TLS connection, \
             or listen on 127.0.0.1",
            self.address
        )))
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

    /// Listens, and returns the bound address. The dashboard uses any listener of the loopback
    /// interface that is there.
    pub(crate) async fn listen(
        &self,
        daemon: &Arc<DaemonState>,
        options: ListenOptions,
    ) -> Result<SocketAddr, Refusal> {
        options.check()?;
        let mut bound = self.bound.lock().await;
        if let Some(address) = find_bound(&bound, &options)? {
            return Ok(address);
        }
        let options = self.bind(daemon, options).await?;
        let value = serde_json::to_vec(&options)
            .map_err(|error| Refusal::internal(format!("a listener cannot be stored: {error}")))?;
        let record = NewRecord::new(options.record_key()?, value)?;
        daemon.runtime.records().put(&record, ExpectedVersion::Any).await?;
        let address = options.address;
        bound.push(options);
        Ok(address)
    }

    /// Listens on the stored addresses. One that cannot be bound is only logged.
    pub(crate) async fn restore(&self, daemon: &Arc<DaemonState>) -> Result<(), Refusal> {
        let page = daemon.runtime.records().list(&RecordQuery::new(LISTENER_KIND)).await?;
        let mut bound = self.bound.lock().await;
        for item in page.items {
            let Ok(options) = serde_json::from_slice::<ListenOptions>(&item.record.value) else {
                tracing::warn!("a stored listener is not understood");
                continue;
            };
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
        let failed = |error: std::io::Error| {
            Refusal::unavailable(format!("cannot listen on {}: {error}", options.address))
        };
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        options.address = listener.local_addr().map_err(failed)?;
        let names = ServedNames { hosts: options.hosts.clone(), is_https: options.behind_proxy };
        self.connections.serve(listener, build_app(HttpState::new(daemon.clone()), names));
        Ok(options)
    }

    pub(crate) fn has_connections(&self) -> bool {
        self.connections.has_open()
    }

    /// Waits until all connections have ended, which the shutdown token requests.
    pub(crate) async fn join(&self) {
        self.connections.join().await;
    }
}

fn find_bound(
    bound: &[ListenOptions],
    options: &ListenOptions,
) -> Result<Option<SocketAddr>, Refusal> {
    let found = match options.purpose {
        ListenerPurpose::Dashboard => bound.iter().find(|bound| bound.address.ip().is_loopback()),
        ListenerPurpose::Serve => {
            bound.iter().find(|bound| bound.purpose == ListenerPurpose::Serve)
        }
    };
    match found {
        Some(bound) if options.purpose == ListenerPurpose::Serve && bound != options => {
            let address = bound.address;
            Err(Refusal::conflict(format!("this daemon listens on {address} already")))
        }
        found => Ok(found.map(|bound| bound.address)),
    }
}
