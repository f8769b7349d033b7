//! The server, its schemas, and what it says about them.

use std::collections::BTreeMap;
use std::time::Duration;

use brigade_postgres::test_server::TestServer;
use brigade_postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::BenchResult;

/// A private server and a connection of the superuser.
pub(crate) struct BenchDatabase {
    server: TestServer,
    pub(crate) client: Client,
    _connection: JoinSet<()>,
}

/// Counters of a schema.
#[derive(Debug, Default)]
pub(crate) struct SchemaCounters {
    /// The rows that were inserted, and updated, by table.
    pub(crate) inserted: BTreeMap<String, f64>,
    pub(crate) updated: BTreeMap<String, f64>,
}

impl BenchDatabase {
    pub(crate) async fn start() -> BenchResult<Self> {
        let server = TestServer::start_durable();
        let (client, connections) = connect(&server.url()).await?;
        let row = client
            .query_one(
                "SELECT current_setting('server_version'), current_setting('fsync'), \
                     current_setting('synchronous_commit'), current_setting('data_directory')",
                &[],
            )
            .await?;
        let [version, fsync, commit, dir]: [&str; 4] =
            [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?];
        println!(
            "PostgreSQL {version}, fsync = {fsync}, synchronous_commit = {commit}, {} cores, {} loops \
             per node, {}",
            std::thread::available_parallelism()?,
            crate::loops()?,
            describe_disk(dir)?
        );
        Ok(Self { server, client, _connection: connections })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Creates the tables in a schema.
    pub(crate) async fn create_schema(&self, name: &str) -> BenchResult<()> {
        drop(PostgresStore::open(&options(&self.url(), name)?).await?);
        Ok(())
    }

    pub(crate) async fn drop_schema(&self, name: &str) -> BenchResult<()> {
        Ok(self.client.batch_execute(&format!("DROP SCHEMA {name} CASCADE")).await?)
    }

    /// Makes each commit wait longer before it is synced, whatever else commits. New connections do so.
    pub(crate) async fn set_commit_wait(&self, wait: Duration) -> BenchResult<()> {
        let micros = wait.as_micros();
        for sql in [
            &*format!("ALTER SYSTEM SET commit_delay = {micros}"),
            "ALTER SYSTEM SET commit_siblings = 0",
            "SELECT pg_reload_conf()",
        ] {
            self.client.batch_execute(sql).await?;
        }
        Ok(())
    }

    /// Returns the processes of the server.
    pub(crate) async fn server_processes(&self) -> BenchResult<Vec<u32>> {
        let rows = self.client.query("SELECT pid FROM pg_stat_activity", &[]).await?;
        rows.iter().map(|row| Ok(u32::try_from(row.try_get::<_, i32>(0)?)?)).collect()
    }

    /// Writes everything that is in memory, so that a round does not pay for the one before.
    pub(crate) async fn checkpoint(&self) -> BenchResult<()> {
        Ok(self.client.batch_execute("CHECKPOINT").await?)
    }

    pub(crate) async fn number(&self, sql: &str) -> BenchResult<f64> {
        let row = self.client.query_one(&format!("SELECT ({sql})::float8"), &[]).await?;
        Ok(row.try_get::<_, Option<f64>>(0)?.unwrap_or_default())
    }

    /// Returns the bytes of the log so far.
    pub(crate) async fn log_bytes(&self) -> BenchResult<f64> {
        self.number("pg_current_wal_insert_lsn() - '0/0'").await
    }

    /// Returns the bytes of a table with its indexes and partitions.
    pub(crate) async fn table_bytes(&self, schema: &str, table: &str) -> BenchResult<f64> {
        // The tree of a table without partitions is empty.
        let sql = format!(
            "SELECT coalesce((SELECT sum(pg_total_relation_size(relid)) \
                              FROM pg_partition_tree('{schema}.{table}')), \
                             pg_total_relation_size('{schema}.{table}'))"
        );
        self.number(&sql).await
    }

    /// Returns the counters of a schema. A server process reports them within seconds, and at its end.
    pub(crate) async fn counters(&self, schema: &str) -> BenchResult<SchemaCounters> {
        let rows = self
            .client
            .query(
                "SELECT regexp_replace(relname::text, '_(d?[0-9]+|default)$', ''), \
                     sum(n_tup_ins)::float8, sum(n_tup_upd)::float8 \
                 FROM pg_stat_user_tables WHERE schemaname = $1 GROUP BY 1",
                &[&schema],
            )
            .await?;
        let mut counters = SchemaCounters::default();
        for row in rows {
            counters.inserted.insert(row.try_get(0)?, row.try_get(1)?);
            counters.updated.insert(row.try_get(0)?, row.try_get(2)?);
        }
        Ok(counters)
    }
}

impl SchemaCounters {
    pub(crate) fn inserted(&self, table: &str) -> f64 {
        self.inserted.get(table).copied().unwrap_or_default()
    }

    pub(crate) fn updated(&self, table: &str) -> f64 {
        self.updated.get(table).copied().unwrap_or_default()
    }

    /// Returns the rows that were written since.
    pub(crate) fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let tables = self.inserted.keys();
        let written = |it: &Self, table: &str| it.inserted(table) + it.updated(table);
        let changed =
            tables.map(|table| (table.clone(), written(self, table) - written(before, table)));
        changed.filter(|(_, rows)| *rows > 0.0).collect()
    }
}

pub(crate) fn options(url: &str, schema: &str) -> BenchResult<PostgresOptions> {
    Ok(PostgresOptions::from_url(url)?.schema(schema)?)
}

/// Connects without the store. The set ends the connection.
pub(crate) async fn connect(url: &str) -> BenchResult<(Client, JoinSet<()>)> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let mut connections = JoinSet::new();
    connections.spawn(async move {
        let _ = connection.await;
    });
    Ok((client, connections))
}

/// Returns the file system and the device of a directory, and the time of one sync there.
fn describe_disk(dir: &str) -> BenchResult<String> {
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let mut found = ("", "an unknown device", "");
    for line in mounts.lines() {
        let mut words = line.split(' ');
        if let (Some(device), Some(path), Some(kind)) = (words.next(), words.next(), words.next())
            && dir.starts_with(path)
            && path.len() >= found.0.len()
        {
            found = (path, device, kind);
        }
    }
    Ok(format!("{} on {}", found.2, found.1))
}
