//! The tables, their version, and the checks before a database is changed.

use brigade_store::StoreError;
use tokio_postgres::types::Type;

use crate::connections::{Connection, ConnectionPool, TransactionMode};
use crate::error::{PostgresError, Result, corrupt, unavailable};

/// Each migration leads to the next version. Released migrations do not change, and none breaks the
/// programs of the version before, so that a running fleet can be upgraded.
const MIGRATIONS: &[&str] = &[
    include_str!("sql/version_1.sql"),
    include_str!("sql/version_2.sql"),
    include_str!("sql/version_3.sql"),
];

/// The functions of this version.
const FUNCTIONS: [&str; 3] = [
    include_str!("sql/functions.sql"),
    include_str!("sql/fleet.sql"),
    include_str!("sql/limits.sql"),
];

/// The oldest server, as its version number.
const SERVER_VERSION_MIN: i32 = 140_000;

/// The name in `meta` of the version of the tables. It is negative while a copy fills them, so that no
/// program opens them as a store.
const VERSION: &str = "version";

/// The name in `meta` of the token of the copy that fills the tables.
const COPY_TOKEN: &str = "copy";

/// The table of the version. It is created first, and whoever migrates locks it.
const META: &str =
    "CREATE TABLE IF NOT EXISTS {schema}.meta(name text PRIMARY KEY, value bigint NOT NULL)";

/// Creates the schema if there is none, and migrates an older one.
pub(crate) async fn open_schema(pool: &ConnectionPool) -> Result<()> {
    let mut connection = pool.get().await?;
    check_server(&connection).await?;
    match read_content(&connection).await?.version()? {
        version if version == newest() => return Ok(()),
        version if version > newest() => return Err(newer(version)),
        _ => {}
    }
    create_meta(&connection).await?;
    connection.begin(TransactionMode::Write).await?;
    migrate(&connection).await?;
    connection.commit().await
}

/// Creates the schema and the table of the version, if there are none.
async fn create_meta(connection: &Connection<'_>) -> Result<()> {
    // The right to create a schema is not needed if there is one.
    let sql = "SELECT FROM pg_namespace WHERE nspname = $1";
    let found = connection.query(sql, &[(&connection.schema_name(), Type::TEXT)]).await?;
    if found.is_empty() {
        create_once(connection, "CREATE SCHEMA IF NOT EXISTS {schema}").await?;
    }
    create_once(connection, META).await
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

/// The content of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaContent {
    /// No tables, or only that of the version.
    Nothing,
    /// A store with tables of this version.
    Store(usize),
    /// Tables of this version that a copy fills or has not filled to the end.
    IncompleteCopy(usize),
}

impl SchemaContent {
    /// Returns the version of the tables, or 0 if there are none. Refuses an incomplete copy.
    fn version(self) -> Result<usize> {
        match self {
            Self::Nothing => Ok(0),
            Self::Store(version) => Ok(version),
            Self::IncompleteCopy(_) => Err(corrupt(
                "the schema has an incomplete copy; remove its tables, or repeat the copy with \
                 --restart",
            )),
        }
    }
}

/// Returns the version of the tables, or 0 if there are none.
pub(crate) async fn read_version(connection: &Connection<'_>) -> Result<usize> {
    read_content(connection).await?.version()
}

/// Examines a schema without a change.
pub(crate) async fn read_content(connection: &Connection<'_>) -> Result<SchemaContent> {
    let schema = connection.schema_name();
    let sql = "SELECT count(*) FILTER (WHERE c.relname = 'meta'), count(*) \
               FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')";
    let row = connection.query_one(sql, &[(&schema, Type::TEXT)]).await?;
    let (meta, tables): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let foreign =
        || corrupt(format!("the schema {schema} has tables of another program; name another one"));
    if meta == 0 {
        return if tables == 0 { Ok(SchemaContent::Nothing) } else { Err(foreign()) };
    }
    let sql = "SELECT value FROM {schema}.meta WHERE name = $1";
    match connection.query_first(sql, &[(&VERSION, Type::TEXT)]).await {
        Ok(Some(row)) => {
            let version: i64 = row.try_get(0)?;
            let number = usize::try_from(version.unsigned_abs()).map_err(|_| foreign())?;
            Ok(match version {
                0 => SchemaContent::Nothing,
                1.. => SchemaContent::Store(number),
                _ => SchemaContent::IncompleteCopy(number),
            })
        }
        Ok(None) if tables == 1 => Ok(SchemaContent::Nothing),
        Err(error @ PostgresError(StoreError::Unavailable(_))) => Err(error),
        Ok(None) | Err(_) => Err(foreign()),
    }
}

/// Creates or migrates the tables. Another node that does the same at the same time waits.
async fn migrate(connection: &Connection<'_>) -> Result<()> {
    connection.execute_script("LOCK TABLE {schema}.meta IN EXCLUSIVE MODE").await?;
    let version = read_content(connection).await?.version()?;
    create_tables(connection, version).await?;
    set_meta(connection, VERSION, newest_number()).await
}

/// Creates the tables and functions, from those of a version on.
async fn create_tables(connection: &Connection<'_>, version: usize) -> Result<()> {
    let Some(migrations) = MIGRATIONS.get(version..) else { return Err(newer(version)) };
    for migration in migrations {
        connection.execute_script(migration).await?;
    }
    for functions in FUNCTIONS {
        connection.execute_script(functions).await?;
    }
    Ok(())
}

async fn set_meta(connection: &Connection<'_>, name: &str, value: i64) -> Result<()> {
    let sql = "INSERT INTO {schema}.meta(name, value) VALUES ($1, $2) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.query(sql, &[(&name, Type::TEXT), (&value, Type::INT8)]).await?;
    Ok(())
}

/// Creates empty tables for a copy, which nobody opens as a store before [`finish_copy`]. With `restart`,
/// an incomplete copy is emptied. Returns the token of the copy, or the content that is in the way.
pub(crate) async fn create_copy(
    pool: &ConnectionPool,
    restart: bool,
) -> Result<std::result::Result<i64, SchemaContent>> {
    let mut connection = pool.get().await?;
    check_server(&connection).await?;
    let is_allowed = |content: SchemaContent| match content {
        SchemaContent::Nothing => true,
        SchemaContent::IncompleteCopy(_) => restart,
        SchemaContent::Store(_) => false,
    };
    let content = read_content(&connection).await?;
    if !is_allowed(content) {
        return Ok(Err(content));
    }
    create_meta(&connection).await?;
    connection.begin(TransactionMode::Write).await?;
    connection.execute_script("LOCK TABLE {schema}.meta IN EXCLUSIVE MODE").await?;
    let content = read_content(&connection).await?;
    match content {
        SchemaContent::IncompleteCopy(version) if restart => {
            create_tables(&connection, version).await?;
            connection.execute_script(EMPTY_TABLES).await?;
        }
        SchemaContent::Nothing => create_tables(&connection, 0).await?,
        _ => return Ok(Err(content)),
    }
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let token: i64 = connection.query_one(sql, &[]).await?.try_get(0)?;
    set_meta(&connection, COPY_TOKEN, token).await?;
    set_meta(&connection, VERSION, -newest_number()).await?;
    connection.commit().await?;
    Ok(Ok(token))
}

/// Removes all rows of an incomplete copy.
const EMPTY_TABLES: &str = "TRUNCATE {schema}.lanes, {schema}.sessions, {schema}.tasks, \
    {schema}.key_marks, {schema}.runs, {schema}.journal, {schema}.messages, {schema}.events, \
    {schema}.event_spans, {schema}.records RESTART IDENTITY; \
    ALTER SEQUENCE {schema}.record_versions RESTART";

/// Makes a complete copy a store. Fails if another copy has begun in the meantime.
pub(crate) async fn finish_copy(pool: &ConnectionPool, token: i64) -> Result<()> {
    let mut connection = pool.get().await?;
    connection.begin(TransactionMode::Write).await?;
    connection.execute_script("LOCK TABLE {schema}.meta IN EXCLUSIVE MODE").await?;
    let sql = "DELETE FROM {schema}.meta WHERE name = $1 AND value = $2 RETURNING 1";
    let values = [(&COPY_TOKEN as _, Type::TEXT), (&token as _, Type::INT8)];
    if connection.query(sql, &values).await?.is_empty() {
        return Err(StoreError::Fenced("another copy to the schema has begun".into()).into());
    }
    set_meta(&connection, VERSION, newest_number()).await?;
    connection.commit().await
}

pub(crate) fn newest() -> usize {
    MIGRATIONS.len()
}

fn newest_number() -> i64 {
    i64::try_from(newest()).unwrap_or(i64::MAX)
}

pub(crate) fn newer(version: usize) -> PostgresError {
    StoreError::Newer { subject: format!("the database (version {version} of its tables)") }.into()
}
