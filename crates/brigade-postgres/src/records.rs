//! Records: each method is one statement.

use brigade_model::ids::Time;
use brigade_store::columns::to_i64;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RECORDS_PER_KIND_MAX, Record, RecordItem,
    RecordKey, RecordPage, RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, StoreError,
    StoreFuture,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::{Connection, Parameter};
use crate::error::{KIND_FULL, Result, corrupt};
use crate::read::to_u64;
use crate::store::PostgresStore;

impl RecordStore for PostgresStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move { Ok(record(&self.connection().await?, key, now).await?) })
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage> {
        Box::pin(async move { Ok(records(&self.connection().await?, query, now).await?) })
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult> {
        Box::pin(
            async move { Ok(put_record(&self.connection().await?, record, expected, now).await?) },
        )
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult> {
        Box::pin(
            async move { Ok(remove_record(&self.connection().await?, key, expected, now).await?) },
        )
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move { Ok(remove_expired(&self.connection().await?, now, limit).await?) })
    }
}

async fn record(connection: &Connection<'_>, key: &RecordKey, now: Time) -> Result<Option<Record>> {
    let sql = "SELECT version, expires_at, value FROM {schema}.records \
               WHERE kind = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)";
    let values: [Parameter<'_>; 3] = [
        (&key.kind().as_str(), Type::TEXT),
        (&key.key().as_bytes(), Type::BYTEA),
        (&to_i64(now.0), Type::INT8),
    ];
    let row = connection.query_first(sql, &values).await?;
    row.map(|row| read_record(&row, 0)).transpose()
}

async fn records(
    connection: &Connection<'_>,
    query: &RecordQuery,
    now: Time,
) -> Result<RecordPage> {
    let sql = "SELECT key, version, expires_at, value FROM {schema}.records \
               WHERE kind = $1 AND key > $2 AND (expires_at IS NULL OR expires_at > $3) \
               ORDER BY key LIMIT $4";
    // No key is empty, so every key follows the empty one.
    let values: [Parameter<'_>; 4] = [
        (&query.kind().as_str(), Type::TEXT),
        (&query.after_key().unwrap_or_default().as_bytes(), Type::BYTEA),
        (&to_i64(now.0), Type::INT8),
        (&to_i64(query.page_size() as u64 + 1), Type::INT8),
    ];
    let rows = connection.query(sql, &values).await?;
    let items = rows.iter().map(|row| {
        let key = String::from_utf8(row.try_get(0)?)
            .map_err(|_| corrupt(format!("the key of a record of kind {}", query.kind())))?;
        Ok(RecordItem { key, record: read_record(row, 1)? })
    });
    Ok(RecordPage::from_items(items.collect::<Result<_>>()?, query))
}

async fn put_record(
    connection: &Connection<'_>,
    new: &NewRecord,
    expected: ExpectedVersion,
    now: Time,
) -> Result<PutRecordResult> {
    let expected = match expected {
        ExpectedVersion::Any => None,
        ExpectedVersion::Absent => Some(0),
        ExpectedVersion::Version(version) => Some(to_i64(version.0)),
    };
    let kind = new.key().kind();
    let sql = "SELECT * FROM {schema}.put_record($1, $2, $3, $4, $5, $6, $7)";
    let values: [Parameter<'_>; 7] = [
        (&kind.as_str(), Type::TEXT),
        (&new.key().key().as_bytes(), Type::BYTEA),
        (&new.value(), Type::BYTEA),
        (&new.expiry().map(|time| to_i64(time.0)), Type::INT8),
        (&expected, Type::INT8),
        (&to_i64(now.0), Type::INT8),
        (&to_i64(RECORDS_PER_KIND_MAX as u64), Type::INT8),
    ];
    let put = connection.query_one(sql, &values).await;
    let row = put.map_err(|error| match error.0 {
        StoreError::Unavailable(text) if text.contains(KIND_FULL) => {
            StoreError::TooManyRecords { kind: kind.clone() }
        }
        other => other,
    })?;
    let version: Option<i64> = row.try_get(1)?;
    Ok(match (row.try_get(0)?, version) {
        (true, Some(version)) => PutRecordResult::Stored(RecordVersion(to_u64(version)?)),
        (false, Some(_)) => PutRecordResult::Conflict(Some(read_record(&row, 1)?)),
        (_, None) => PutRecordResult::Conflict(None),
    })
}

async fn remove_record(
    connection: &Connection<'_>,
    key: &RecordKey,
    expected: Option<RecordVersion>,
    now: Time,
) -> Result<RemoveRecordResult> {
    let sql = "SELECT * FROM {schema}.remove_record($1, $2, $3, $4)";
    let values: [Parameter<'_>; 4] = [
        (&key.kind().as_str(), Type::TEXT),
        (&key.key().as_bytes(), Type::BYTEA),
        (&expected.map(|version| to_i64(version.0)), Type::INT8),
        (&to_i64(now.0), Type::INT8),
    ];
    let Some(row) = connection.query_first(sql, &values).await? else {
        return Ok(RemoveRecordResult::Absent);
    };
    let record = read_record(&row, 1)?;
    Ok(match row.try_get(0)? {
        true => RemoveRecordResult::Removed(record),
        // Without an expected version, another caller has put it again at the same moment.
        false if expected.is_none() => RemoveRecordResult::Absent,
        false => RemoveRecordResult::Conflict(record),
    })
}

async fn remove_expired(connection: &Connection<'_>, now: Time, limit: usize) -> Result<usize> {
    // A record that somebody renews at this moment is locked, and stays.
    let sql = "DELETE FROM {schema}.records AS r USING ( \
                   SELECT kind, key FROM {schema}.records WHERE expires_at <= $1 \
                   ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED) AS expired \
               WHERE r.kind = expired.kind AND r.key = expired.key RETURNING 1";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = [(&to_i64(now.0) as _, Type::INT8), (&limit as _, Type::INT8)];
    Ok(connection.query(sql, &values).await?.len())
}

/// Reads the columns `version, expires_at, value` from a column on.
fn read_record(row: &Row, first: usize) -> Result<Record> {
    let expires_at: Option<i64> = row.try_get(first + 1)?;
    Ok(Record {
        version: RecordVersion(to_u64(row.try_get(first)?)?),
        expires_at: expires_at.map(to_u64).transpose()?.map(Time),
        value: row.try_get(first + 2)?,
    })
}
