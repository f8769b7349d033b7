//! Reports the state of a database as far as a store depends on it. Changes nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brigade_store::StoreError;
use tokio_postgres::types::Type;

use crate::connections::{Connection, ConnectionPool, TransactionMode};
use crate::error::Result;
use crate::options::PostgresOptions;
use crate::schema::{check_server, newer, newest, read_version};

/// The privileges on each table that a store needs.
const TABLE_PRIVILEGES: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// The tables whose partitions a store creates, which needs their owner.
const PARTITIONED_TABLES: [&str; 2] = ["events", "event_spans"];

/// The state of a database as far as a [`PostgresStore`](crate::PostgresStore) depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseReport {
    /// The version of the server, such as `16.4`.
    pub server_version: String,
    pub schema: String,
    pub tables: TableState,
    /// Missing rights to write or to create partitions, such as `UPDATE on tasks`.
    pub missing_rights: Vec<String>,
    /// The setting `synchronous_commit`. With `off`, a crash of the server loses acknowledged commits.
    pub synchronous_commit: String,
    /// True if a commit waits for a standby. Otherwise the promotion of a standby can lose
    /// acknowledged commits.
    pub has_synchronous_standby: bool,
    /// Timeouts of the server, the database or the role that apply to commits.
    pub timeouts: Vec<DatabaseTimeout>,
    /// True if a pooler hands out another connection for each transaction. Notifications
    /// (`LISTEN`) do not arrive through such a pooler.
    pub is_transaction_pooled: bool,
    pub clock_skew: ClockSkew,
}

/// The tables of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// There are none: a store creates them when it is opened.
    Absent,
    /// Tables of an earlier version: a store migrates them when it is opened.
    Older {
        version: usize,
        newest: usize,
    },
    Current {
        version: usize,
    },
}

/// A timeout that ends statements or transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseTimeout {
    /// The name of the setting.
    pub name: String,
    pub timeout: Duration,
}

/// The difference between the clock of the database and that of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    /// The time of the database minus the time of this machine.
    pub millis: i64,
    /// The most by which the measured value is wrong: half the time of the query.
    pub error_millis: i64,
}

impl DatabaseReport {
    /// Connects to a database and reports its state.
    ///
    /// The errors are those of [`PostgresStore::open`](crate::PostgresStore::open): no server, a wrong
    /// password, a read-only replica, and tables of another program or of a newer version.
    pub async fn inspect(options: &PostgresOptions) -> Result<Self, StoreError> {
        let pool = ConnectionPool::new(options)?;
        Ok(inspect_with(&pool).await?)
    }
}

async fn inspect_with(pool: &ConnectionPool) -> Result<DatabaseReport> {
    let connection = pool.get().await?;
    check_server(&connection).await?;
    let tables = match read_version(&connection).await? {
        0 => TableState::Absent,
        version if version > newest() => return Err(newer(version)),
        version if version == newest() => TableState::Current { version },
        version => TableState::Older { version, newest: newest() },
    };
    let sql = "SELECT current_setting('server_version'), current_setting('synchronous_commit'), \
                      current_setting('synchronous_standby_names') <> ''";
    let row = connection.query_one(sql, &[]).await?;
    let synchronous_commit: String = row.try_get(1)?;
    let waits_for_standby = !matches!(synchronous_commit.as_str(), "off" | "local");
    Ok(DatabaseReport {
        server_version: row.try_get(0)?,
        schema: connection.schema_name().to_owned(),
        tables,
        missing_rights: find_missing_rights(&connection).await?,
        has_synchronous_standby: waits_for_standby && row.try_get::<_, bool>(2)?,
        synchronous_commit,
        timeouts: read_timeouts(&connection).await?,
        is_transaction_pooled: is_transaction_pooled(pool, &connection).await?,
        clock_skew: measure_clock_skew(&connection).await?,
    })
}

async fn find_missing_rights(connection: &Connection<'_>) -> Result<Vec<String>> {
    let schema = [(&connection.schema_name() as _, Type::TEXT)];
    let sql = "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') \
               FROM pg_namespace WHERE nspname = $1";
    let Some(row) = connection.query_first(sql, &schema).await? else {
        let sql =
            "SELECT has_database_privilege(current_database(), 'CREATE'), current_database()::text";
        let row = connection.query_one(sql, &[]).await?;
        let database: String = row.try_get(1)?;
        let missing =
            (!row.try_get::<_, bool>(0)?).then(|| format!("CREATE on database {database}"));
        return Ok(missing.into_iter().collect());
    };
    let mut missing = Vec::new();
    for (column, right) in ["USAGE", "CREATE"].into_iter().enumerate() {
        if !row.try_get::<_, bool>(column)? {
            missing.push(format!("{right} on schema {}", connection.schema_name()));
        }
    }
    // The rights on a partition are not needed: statements name the table that it belongs to.
    let sql = "SELECT c.relname::text, p.privilege \
               FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace, \
                    unnest($2) WITH ORDINALITY AS p(privilege, number) \
               WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition \
                 AND NOT has_table_privilege(c.oid, p.privilege) \
               ORDER BY c.relname, p.number";
    let privileges = (&&TABLE_PRIVILEGES[..] as _, Type::TEXT_ARRAY);
    for row in connection.query(sql, &[schema[0].clone(), privileges]).await? {
        let (table, privilege): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        missing.push(format!("{privilege} on {table}"));
    }
    let sql = "SELECT c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relname = ANY ($2) AND NOT pg_has_role(c.relowner, 'USAGE') \
               ORDER BY c.relname";
    let partitioned = (&&PARTITIONED_TABLES[..] as _, Type::TEXT_ARRAY);
    for row in connection.query(sql, &[schema[0].clone(), partitioned]).await? {
        missing.push(format!("ownership of {} (to create partitions)", row.try_get::<_, &str>(0)?));
    }
    Ok(missing)
}

/// Reads the timeouts that can refuse a commit. The function of commits turns `lock_timeout` off.
async fn read_timeouts(connection: &Connection<'_>) -> Result<Vec<DatabaseTimeout>> {
    let sql = "SELECT name::text, setting::bigint FROM pg_settings \
               WHERE name IN ('statement_timeout', 'transaction_timeout', \
                              'idle_in_transaction_session_timeout') \
                 AND setting::bigint > 0 ORDER BY name";
    let mut timeouts = Vec::new();
    for row in connection.query(sql, &[]).await? {
        let millis = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default();
        let timeout = Duration::from_millis(millis);
        timeouts.push(DatabaseTimeout { name: row.try_get(0)?, timeout });
    }
    Ok(timeouts)
}

/// Returns true if a connection has another backend while a transaction of a second one holds the
/// first backend.
async fn is_transaction_pooled(pool: &ConnectionPool, connection: &Connection<'_>) -> Result<bool> {
    let before = read_backend(connection).await?;
    // The permits of commits are others, so this does not wait for `connection`.
    let mut second = pool.get_for_commit().await?;
    second.begin(TransactionMode::Snapshot).await?;
    read_backend(&second).await?;
    let after = read_backend(connection).await?;
    second.commit().await?;
    Ok(before != after)
}

async fn read_backend(connection: &Connection<'_>) -> Result<i32> {
    Ok(connection.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?)
}

async fn measure_clock_skew(connection: &Connection<'_>) -> Result<ClockSkew> {
    let before = now_millis();
    let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let database: i64 = connection.query_one(sql, &[]).await?.try_get(0)?;
    let after = now_millis();
    let error_millis = (after - before) / 2;
    Ok(ClockSkew { millis: database - before - error_millis, error_millis })
}

fn now_millis() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the clock of the machine is what is measured")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
