//! Hints between nodes, by NOTIFY and LISTEN. A hint may be lost, so nodes also poll.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config};

use crate::connections::{CONNECT_TIMEOUT, ConnectionPool, quote_identifier};
use crate::error::{Result, describe, unavailable};
use crate::options::PostgresOptions;
use crate::tls::TlsConnector;

/// The time that a hint may take. It is useless later, since nodes poll.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest and the longest pause before LISTEN is tried again.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The hints of one store.
#[derive(Debug)]
pub(crate) struct Hints {
    channel: String,
    /// The payload of this store's hints, which it ignores itself.
    sender: String,
    /// The number of hints that were wanted.
    wanted: AtomicU64,
    /// The number of those that a sent one stands for. Locked while one is sent.
    sent: Mutex<u64>,
    /// The number of hints of other stores.
    received: watch::Sender<u64>,
    /// The connection for LISTEN; `None` if it is turned off.
    listen: Option<ListenTarget>,
    listener: OnceLock<Listener>,
}

#[derive(Clone, Debug)]
struct ListenTarget {
    config: Config,
    tls: TlsConnector,
}

/// The task that listens. It ends with the store.
#[derive(Debug)]
struct Listener(AbortHandle);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Hints {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self> {
        let listen = match options.listen_options() {
            Some(listen) => Some(ListenTarget {
                config: listen.config(),
                tls: TlsConnector::new(listen.tls())?,
            }),
            None => None,
        };
        Ok(Self {
            channel: format!("brigade:{}", options.schema_name()),
            sender: format!("{:016x}", random_number()),
            wanted: AtomicU64::new(0),
            sent: Mutex::default(),
            received: watch::Sender::default(),
            listen,
            listener: OnceLock::new(),
        })
    }

    /// Sends a hint. Callers that come while one is being sent share the next one.
    pub(crate) async fn send(&self, pool: &ConnectionPool) -> Result<()> {
        let number = self.wanted.fetch_add(1, Ordering::Relaxed) + 1;
        let mut sent = self.sent.lock().await;
        if *sent >= number {
            return Ok(());
        }
        *sent = self.wanted.load(Ordering::Relaxed);
        let sending = async {
            let connection = pool.get().await?;
            let values = [(&self.channel as _, Type::TEXT), (&self.sender as _, Type::TEXT)];
            connection.query("SELECT pg_notify($1, $2)", &values).await
        };
        match tokio::time::timeout(SEND_TIMEOUT, sending).await {
            Ok(sent) => sent.map(|_| ()),
            Err(_) => Err(unavailable("the database does not answer")),
        }
    }

    /// Waits for a hint of another store that arrives from now on.
    pub(crate) async fn next(&self) {
        let Some(target) = &self.listen else { return pending().await };
        let mut received = self.received.subscribe();
        self.listener.get_or_init(|| self.start_listener(target));
        if received.changed().await.is_err() {
            // The sender is a part of this value.
            pending().await
        }
    }

    fn start_listener(&self, target: &ListenTarget) -> Listener {
        let listening = Listening {
            target: target.clone(),
            channel: self.channel.clone(),
            own: self.sender.clone(),
            received: self.received.clone(),
            was_connected: false,
            failures: 0,
        };
        #[expect(clippy::disallowed_methods, reason = "ends when the store is dropped")]
        Listener(tokio::spawn(listening.run()).abort_handle())
    }
}

/// The state of the task that listens.
struct Listening {
    target: ListenTarget,
    channel: String,
    own: String,
    received: watch::Sender<u64>,
    was_connected: bool,
    /// The failures since the last connection that listened.
    failures: u32,
}

impl Listening {
    async fn run(mut self) {
        loop {
            let Err(reason) = self.listen().await;
            if self.failures == 0 {
                tracing::warn!(reason, "cannot listen for hints of other nodes; polling goes on");
            }
            self.failures = self.failures.saturating_add(1);
            tokio::time::sleep(retry_pause(self.failures)).await;
        }
    }

    /// Connects, and listens until the connection is lost.
    async fn listen(&mut self) -> Result<Infallible, String> {
        let connecting = self.target.config.connect(self.target.tls.clone());
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let connected = connected.map_err(|_| "the server does not answer".to_owned())?;
        let (client, mut connection) = connected.map_err(|error| describe(&error))?;
        let sql = format!("LISTEN {}", quote_identifier(&self.channel));
        let mut listening = pin!(client.batch_execute(&sql));
        let mut is_listening = false;
        loop {
            tokio::select! {
                done = &mut listening, if !is_listening => {
                    done.map_err(|error| describe(&error))?;
                    is_listening = true;
                    self.failures = 0;
                    if std::mem::replace(&mut self.was_connected, true) {
                        // Hints may have been lost meanwhile.
                        self.wake();
                    }
                }
                message = poll_fn(|context| connection.poll_message(context)) => match message {
                    Some(Ok(AsyncMessage::Notification(hint))) if hint.payload() != self.own => {
                        self.wake();
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(describe(&error)),
                    None => return Err("the connection was closed".to_owned()),
                },
            }
        }
    }

    fn wake(&self) {
        self.received.send_modify(|number| *number += 1);
    }
}

/// Returns a pause that grows with the number of failures, and differs between nodes.
fn retry_pause(failures: u32) -> Duration {
    let longest = RETRY_MIN.saturating_mul(1 << failures.min(10)).min(RETRY_MAX);
    let half = longest / 2;
    let share = u32::try_from(random_number() % 1_000).unwrap_or(0);
    half + half * share / 1_000
}

fn random_number() -> u64 {
    RandomState::new().hash_one(())
}
