//! Records: reads, and writes of one transaction each.

use brigade_model::ids::Time;
use brigade_store::columns::to_i64;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RECORDS_PER_KIND_MAX, Record, RecordItem,
    RecordKey, RecordKind, RecordPage, RecordQuery, RecordStore, RecordVersion, RemoveRecordResult,
    StoreError, StoreFuture,
};
use rusqlite::{Connection, Row, params};

use crate::error::{Result, corrupt};
use crate::read::{ReadTransaction, read_u64};
use crate::store::SqliteStore;
use crate::write::SqliteWriter;

impl RecordStore for SqliteStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move { self.with_reader(|reader| reader.record(key, now)) })
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage> {
        Box::pin(async move { self.with_reader(|reader| reader.records(query, now)) })
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult> {
        Box::pin(async move { self.with_writer(|writer| writer.put_record(record, expected, now)) })
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult> {
        Box::pin(async move { self.with_writer(|writer| writer.remove_record(key, expected, now)) })
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move { self.with_writer(|writer| writer.remove_expired(now, limit)) })
    }
}

/// A stored record with the key of its row. It may have expired.
struct StoredRecord {
    id: i64,
    record: Record,
}

impl ReadTransaction<'_> {
    fn record(&self, key: &RecordKey, now: Time) -> Result<Option<Record>> {
        if !self.has_records()? {
            return Ok(None);
        }
        let stored = find_record(&self.tx, key)?.map(|stored| stored.record);
        Ok(stored.filter(|record| !record.is_expired(now)))
    }

    fn records(&self, query: &RecordQuery, now: Time) -> Result<RecordPage> {
        if !self.has_records()? {
            return Ok(RecordPage::default());
        }
        let sql = "SELECT version, expires_at, value, key FROM records INDEXED BY records_key \
                   WHERE kind = ?1 AND key > ?2 AND (expires_at IS NULL OR expires_at > ?3) \
                   ORDER BY key LIMIT ?4";
        let mut statement = self.tx.prepare_cached(sql)?;
        // No key is empty, so every key follows the empty one.
        let after = query.after_key().unwrap_or_default().as_bytes();
        let limit = to_i64(query.page_size() as u64 + 1);
        let kind = query.kind().as_str();
        let mut rows = statement.query(params![kind, after, to_i64(now.0), limit])?;
        let mut items = Vec::new();
        while let Some(row) = rows.next()? {
            let record = read_record(row)?;
            let key = String::from_utf8(row.get(3)?);
            let key = key.map_err(|_| corrupt(format!("the key of a record of kind {kind}")))?;
            items.push(RecordItem { key, record });
        }
        Ok(RecordPage::from_items(items, query))
    }

    /// Returns false for a file of an earlier version, which is open for reading only.
    fn has_records(&self) -> Result<bool> {
        self.has_schema_object("records")
    }
}

impl SqliteWriter {
    fn put_record(
        &mut self,
        new: &NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> Result<PutRecordResult> {
        let tx = self.begin()?;
        let key = new.key();
        let stored = find_record(&tx, key)?;
        let current = stored.as_ref().map(|stored| &stored.record);
        let current = current.filter(|record| !record.is_expired(now));
        if !expected.allows(current.map(|record| record.version)) {
            return Ok(PutRecordResult::Conflict(current.cloned()));
        }
        let version = next_version(&tx)?;
        let expires_at = new.expiry().map(|time| to_i64(time.0));
        match stored {
            Some(stored) => {
                let sql = "UPDATE records SET version = ?2, expires_at = ?3, value = ?4 \
                           WHERE id = ?1";
                let row = params![stored.id, to_i64(version.0), expires_at, new.value()];
                tx.prepare_cached(sql)?.execute(row)?;
            }
            None => {
                check_count(&tx, key.kind(), now)?;
                let sql = "INSERT INTO records(kind, key, version, expires_at, value) \
                           VALUES(?1, ?2, ?3, ?4, ?5)";
                let kind = key.kind().as_str();
                let bytes = key.key().as_bytes();
                let row = params![kind, bytes, to_i64(version.0), expires_at, new.value()];
                tx.prepare_cached(sql)?.execute(row)?;
            }
        }
        tx.commit()?;
        Ok(PutRecordResult::Stored(version))
    }

    fn remove_record(
        &mut self,
        key: &RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> Result<RemoveRecordResult> {
        let tx = self.begin()?;
        let stored = find_record(&tx, key)?.filter(|stored| !stored.record.is_expired(now));
        let Some(StoredRecord { id, record }) = stored else {
            return Ok(RemoveRecordResult::Absent);
        };
        if expected.is_some_and(|version| record.version != version) {
            return Ok(RemoveRecordResult::Conflict(record));
        }
        tx.prepare_cached("DELETE FROM records WHERE id = ?1")?.execute([id])?;
        tx.commit()?;
        Ok(RemoveRecordResult::Removed(record))
    }

    fn remove_expired(&mut self, now: Time, limit: usize) -> Result<usize> {
        let tx = self.begin()?;
        let sql = "DELETE FROM records WHERE id IN \
                   (SELECT id FROM records INDEXED BY records_expiring \
                    WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
        let limit = to_i64(limit as u64);
        let removed = tx.prepare_cached(sql)?.execute([to_i64(now.0), limit])?;
        tx.commit()?;
        Ok(removed)
    }
}

fn find_record(conn: &Connection, key: &RecordKey) -> Result<Option<StoredRecord>> {
    let sql = "SELECT version, expires_at, value, id FROM records WHERE kind = ?1 AND key = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![key.kind().as_str(), key.key().as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(StoredRecord { id: row.get(3)?, record: read_record(row)? }))
}

/// Reads the columns `version, expires_at, value`.
fn read_record(row: &Row<'_>) -> Result<Record> {
    let version = RecordVersion(read_u64(row, 0)?);
    let expires_at = match row.get::<_, Option<i64>>(1)? {
        Some(_) => Some(Time(read_u64(row, 1)?)),
        None => None,
    };
    Ok(Record { value: row.get(2)?, version, expires_at })
}

fn next_version(conn: &Connection) -> Result<RecordVersion> {
    let sql = "UPDATE meta SET value = value + 1 WHERE name = 'record_version' RETURNING value";
    let version: i64 = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    let version =
        u64::try_from(version).map_err(|_| corrupt("a version of records is negative"))?;
    Ok(RecordVersion(version))
}

/// Refuses one more record than a kind may have. An expired one makes place.
fn check_count(conn: &Connection, kind: &RecordKind, now: Time) -> Result<()> {
    let sql = "SELECT count(*) FROM records INDEXED BY records_key WHERE kind = ?1";
    let count: i64 = conn.prepare_cached(sql)?.query_row([kind.as_str()], |row| row.get(0))?;
    if count < RECORDS_PER_KIND_MAX as i64 {
        return Ok(());
    }
    let sql = "DELETE FROM records WHERE id = (SELECT id FROM records INDEXED BY records_expiring \
               WHERE expires_at <= ?2 AND kind = ?1 ORDER BY expires_at LIMIT 1)";
    match conn.prepare_cached(sql)?.execute(params![kind.as_str(), to_i64(now.0)])? {
        0 => Err(StoreError::TooManyRecords { kind: kind.clone() }.into()),
        _ => Ok(()),
    }
}
