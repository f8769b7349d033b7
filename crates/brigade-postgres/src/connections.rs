//! The pool of connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};

use crate::error::{Result, corrupt, describe, is_read_only, is_refusal, unavailable};
use crate::options::PostgresOptions;
use crate::tls::TlsConnector;

/// The time that a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a new connection may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The most connections for commits, beside those for other callers.
const COMMITS_MAX: usize = 16;

/// A statement's parameter with its type. Statements are not prepared, so the types are given.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Connections to one database. A connection that fails is closed and replaced.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    config: Config,
    tls: TlsConnector,
    schema_name: String,
    /// The quoted name of the schema.
    schema: String,
    idle: Mutex<Vec<Client>>,
    permits: Arc<Semaphore>,
    /// The permits of commits, which do not wait for readers.
    commit_permits: Arc<Semaphore>,
}

impl ConnectionPool {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self> {
        Ok(Self {
            config: options.config(),
            tls: TlsConnector::new(options.tls())?,
            schema_name: options.schema_name().to_owned(),
            schema: quote_identifier(options.schema_name()),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(options.connections())),
            commit_permits: Arc::new(Semaphore::new(COMMITS_MAX)),
        })
    }

    /// Returns a pool of other connections to the same database.
    pub(crate) fn separate(&self, connections: usize) -> Self {
        Self {
            config: self.config.clone(),
            tls: self.tls.clone(),
            schema_name: self.schema_name.clone(),
            schema: self.schema.clone(),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(connections)),
            commit_permits: Arc::new(Semaphore::new(COMMITS_MAX)),
        }
    }

    /// Returns a connection for one caller.
    pub(crate) async fn get(&self) -> Result<Connection<'_>> {
        self.get_with(&self.permits).await
    }

    /// Returns a connection for a commit.
    pub(crate) async fn get_for_commit(&self) -> Result<Connection<'_>> {
        self.get_with(&self.commit_permits).await
    }

    async fn get_with(&self, permits: &Arc<Semaphore>) -> Result<Connection<'_>> {
        let permit = tokio::time::timeout(ACQUIRE_TIMEOUT, permits.clone().acquire_owned());
        let permit = match permit.await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(unavailable("the store is closed")),
            Err(_) => return Err(unavailable("all connections to the database are in use")),
        };
        let client = match self.take_idle() {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Connection {
            pool: self,
            client: Some(client),
            in_transaction: false,
            is_busy: AtomicBool::new(false),
            _permit: permit,
        })
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<Client> {
        // The driver limits the time of the socket alone.
        let connecting = self.config.connect(self.tls.clone());
        let Ok(connected) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await else {
            return Err(unavailable("cannot connect: the server does not answer"));
        };
        let (client, connection) = connected.map_err(|error| match is_read_only(&error) {
            true => {
                unavailable("the server is read-only, such as a replica; connect to the primary")
            }
            false => unavailable(format!("cannot connect: {}", describe(&error))),
        })?;
        #[expect(clippy::disallowed_methods, reason = "ends when the client is dropped")]
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = describe(&error), "a connection to the database ended");
            }
        });
        Ok(client)
    }
}

/// A connection in the hands of one caller. It returns to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    pool: &'a ConnectionPool,
    /// Taken when the connection is dropped.
    client: Option<Client>,
    /// True while a transaction is open. Nobody else may get into it.
    in_transaction: bool,
    /// True while a statement runs, whose caller may have gone, and after the connection was lost.
    is_busy: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

impl Connection<'_> {
    /// Runs a statement, in which `{schema}` is the schema.
    pub(crate) async fn query(&self, sql: &str, values: &[Parameter<'_>]) -> Result<Vec<Row>> {
        Ok(self.query_raw(sql, values).await?)
    }

    /// Runs a statement and returns the error of the driver.
    pub(crate) async fn query_raw(
        &self,
        sql: &str,
        values: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let sql = sql.replace("{schema}", &self.pool.schema);
        self.is_busy.store(true, Ordering::Relaxed);
        let done = self.client().query_typed(&sql, values).await;
        self.statement_ended(&done);
        done
    }

    /// Lets the connection be used again, unless it was lost. Then the idle ones are closed too,
    /// because they may be lost for the same reason.
    fn statement_ended<T>(&self, done: &Result<T, tokio_postgres::Error>) {
        match done {
            Err(error) if !is_refusal(error) => {
                self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            _ => self.is_busy.store(false, Ordering::Relaxed),
        }
    }

    /// Runs a statement that returns one row.
    pub(crate) async fn query_one(&self, sql: &str, values: &[Parameter<'_>]) -> Result<Row> {
        let row = self.query_first(sql, values).await?;
        row.ok_or_else(|| corrupt("a statement returned no row"))
    }

    /// Runs a statement that returns at most one row.
    pub(crate) async fn query_first(
        &self,
        sql: &str,
        values: &[Parameter<'_>],
    ) -> Result<Option<Row>> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// Runs statements without parameters.
    pub(crate) async fn execute_script(&self, sql: &str) -> Result<()> {
        let sql = sql.replace("{schema}", &self.pool.schema);
        self.is_busy.store(true, Ordering::Relaxed);
        let done = self.client().batch_execute(&sql).await;
        self.statement_ended(&done);
        Ok(done?)
    }

    /// Begins a transaction. Until its end, dropping the connection closes it.
    pub(crate) async fn begin(&mut self, mode: TransactionMode) -> Result<()> {
        self.in_transaction = true;
        self.execute_script(match mode {
            TransactionMode::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            TransactionMode::Write => "BEGIN",
        })
        .await
    }

    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.execute_script("COMMIT").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Returns the name of the schema, not quoted.
    pub(crate) fn schema_name(&self) -> &str {
        &self.pool.schema_name
    }

    fn client(&self) -> &Client {
        self.client.as_ref().unwrap_or_else(|| unreachable!("taken only in drop"))
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let is_reusable = !self.in_transaction && !self.is_busy.load(Ordering::Relaxed);
        if let Some(client) = self.client.take().filter(|it| is_reusable && !it.is_closed()) {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TransactionMode {
    /// Reads that see one state of the database.
    Snapshot,
    Write,
}

pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
