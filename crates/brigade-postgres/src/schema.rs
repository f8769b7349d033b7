//! The tables, their version, and the checks before a database is changed.

use brigade_store::StoreError;
use tokio_postgres::types::Type;

use crate::connections::{Connection, ConnectionPool, TransactionMode};
use crate::error::{PostgresError, Result, corrupt, unavailable};

/// Each migration leads to the next version. Released migrations do not change, and none breaks the
/// programs of the version before, so that a running fleet can be upgraded.
const MIGRATIONS: &[&str] = &[include_str!("sql/version_1.sql")];

/// The functions of this version.
const FUNCTIONS: &str = include_str!("sql/functions.sql");

/// The oldest server, as its version number.
const SERVER_VERSION_MIN: i32 = 140_000;

/// The name in `meta` of the version of the tables.
const VERSION: &str = "version";

/// The table of the version. It is created first, and whoever migrates locks it.
const META: &str =
    "CREATE TABLE IF NOT EXISTS {schema}.meta(name text PRIMARY KEY, value bigint NOT NULL)";

/// Creates the schema if there is none, and migrates an older one.
pub(crate) async fn open_schema(pool: &ConnectionPool) -> Result<()> {
    let mut connection = pool.get().await?;
    check_server(&connection).await?;
    match read_version(&connection).await? {
        version if version == newest() => return Ok(()),
        version if version > newest() => return Err(newer(version)),
        _ => {}
    }
    // The right to create a schema is not needed if there is one.
    let sql = "SELECT FROM pg_namespace WHERE nspname = $1";
    let found = connection.query(sql, &[(&connection.schema_name(), Type::TEXT)]).await?;
    if found.is_empty() {
        create_once(&connection, "CREATE SCHEMA IF NOT EXISTS {schema}").await?;
    }
    create_once(&connection, META).await?;
    connection.begin(TransactionMode::Write).await?;
    migrate(&connection).await?;
    connection.commit().await
}

/// Creates an object that another node may create at the same time. PostgreSQL then reports a
/// violation, also with `IF NOT EXISTS`.
async fn create_once(connection: &Connection<'_>, sql: &str) -> Result<()> {
    match connection.execute_script(sql).await {
        Err(PostgresError(StoreError::Fenced(_) | StoreError::Corrupt(_))) => {
            connection.execute_script(sql).await
        }
        done => done,
    }
}

pub(crate) async fn check_server(connection: &Connection<'_>) -> Result<()> {
    let sql = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), \
                      current_setting('server_encoding')";
    let row = connection.query_one(sql, &[]).await?;
    let version: i32 = row.try_get(0)?;
    if version < SERVER_VERSION_MIN {
        let (major, least) = (version / 10_000, SERVER_VERSION_MIN / 10_000);
        return Err(unavailable(format!(
            "the server has version {major} of PostgreSQL; version {least} or newer is needed"
        )));
    }
    if row.try_get(1)? {
        return Err(unavailable("the server is a read-only replica; connect to the primary"));
    }
    let encoding: &str = row.try_get(2)?;
    if encoding != "UTF8" {
        return Err(unavailable(format!(
            "the database has the encoding {encoding}; UTF8 is needed"
        )));
    }
    Ok(())
}

/// Returns the version of the tables, or 0 if there are none.
pub(crate) async fn read_version(connection: &Connection<'_>) -> Result<usize> {
    let schema = connection.schema_name();
    let sql = "SELECT count(*) FILTER (WHERE c.relname = 'meta'), count(*) \
               FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')";
    let row = connection.query_one(sql, &[(&schema, Type::TEXT)]).await?;
    let (meta, tables): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let foreign =
        || corrupt(format!("the schema {schema} has tables of another program; name another one"));
    if meta == 0 {
        return if tables == 0 { Ok(0) } else { Err(foreign()) };
    }
    let sql = "SELECT value FROM {schema}.meta WHERE name = $1";
    match connection.query_first(sql, &[(&VERSION, Type::TEXT)]).await {
        Ok(Some(row)) => usize::try_from(row.try_get::<_, i64>(0)?).map_err(|_| foreign()),
        Ok(None) if tables == 1 => Ok(0),
        Err(error @ PostgresError(StoreError::Unavailable(_))) => Err(error),
        Ok(None) | Err(_) => Err(foreign()),
    }
}

/// Creates or migrates the tables. Another node that does the same at the same time waits.
async fn migrate(connection: &Connection<'_>) -> Result<()> {
    connection.execute_script("LOCK TABLE {schema}.meta IN EXCLUSIVE MODE").await?;
    let version = read_version(connection).await?;
    if version > newest() {
        return Err(newer(version));
    }
    for migration in &MIGRATIONS[version..] {
        connection.execute_script(migration).await?;
    }
    connection.execute_script(FUNCTIONS).await?;
    let sql = "INSERT INTO {schema}.meta(name, value) VALUES ($1, $2) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    let version = i64::try_from(newest()).unwrap_or(i64::MAX);
    connection.query(sql, &[(&VERSION, Type::TEXT), (&version, Type::INT8)]).await?;
    Ok(())
}

pub(crate) fn newest() -> usize {
    MIGRATIONS.len()
}

pub(crate) fn newer(version: usize) -> PostgresError {
    StoreError::Newer { subject: format!("the database (version {version} of its tables)") }.into()
}
