//! The pool of connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};

use crate::error::{Result, corrupt, describe, unavailable};
use crate::options::PostgresOptions;
use crate::tls::TlsConnector;

/// The time that a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

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
        })
    }

    /// Returns a connection for one caller.
    pub(crate) async fn get(&self) -> Result<Connection<'_>> {
        let permit = tokio::time::timeout(ACQUIRE_TIMEOUT, self.permits.clone().acquire_owned());
        let permit = match permit.await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(unavailable("the store is closed")),
            Err(_) => return Err(unavailable("all connections to the database are in use")),
        };
        let client = match self.take_idle() {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Connection { pool: self, client: Some(client), reusable: true, _permit: permit })
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<Client> {
        let connected = self.config.connect(self.tls.clone()).await;
        let (client, connection) = connected
            .map_err(|error| unavailable(format!("cannot connect: {}", describe(&error))))?;
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
    /// False while a transaction is open, so that nobody else gets into it.
    reusable: bool,
    _permit: OwnedSemaphorePermit,
}

impl Connection<'_> {
    /// Runs a statement, in which `{schema}` is the schema.
    pub(crate) async fn query(&self, sql: &str, values: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let sql = sql.replace("{schema}", &self.pool.schema);
        Ok(self.client().query_typed(&sql, values).await?)
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
        Ok(self.client().batch_execute(&sql).await?)
    }

    /// Begins a transaction. Until its end, dropping the connection closes it.
    pub(crate) async fn begin(&mut self, mode: TransactionMode) -> Result<()> {
        self.reusable = false;
        self.execute_script(match mode {
            TransactionMode::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            TransactionMode::Write => "BEGIN",
        })
        .await
    }

    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.execute_script("COMMIT").await?;
        self.reusable = true;
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
        if let Some(client) = self.client.take().filter(|it| self.reusable && !it.is_closed()) {
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

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
