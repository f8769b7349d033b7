//! Records of the store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::ops::Bound;

use brigade_model::ids::Time;

use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::record::{
    ExpectedVersion, NewRecord, PutRecordResult, RECORDS_PER_KIND_MAX, Record, RecordItem,
    RecordKey, RecordKind, RecordPage, RecordQuery, RecordVersion, RemoveRecordResult,
};
use crate::record_store::RecordStore;
use crate::store::StoreFuture;

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryRecords {
    kinds: BTreeMap<RecordKind, BTreeMap<String, Record>>,
    /// The records that expire, by their expiry.
    expiring: BTreeSet<(Time, RecordKey)>,
    last_version: u64,
}

impl RecordStore for MemoryStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>> {
        let found = self.lock_records().get(key, now).cloned();
        Box::pin(ready(Ok(found)))
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage> {
        let page = self.lock_records().page(query, now);
        Box::pin(ready(Ok(page)))
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult> {
        let result = self.lock_records().put(record, expected, now);
        Box::pin(ready(result))
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult> {
        let result = self.lock_records().remove(key, expected, now);
        Box::pin(ready(Ok(result)))
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize> {
        let removed = self.lock_records().remove_expired(now, limit, |_| true);
        Box::pin(ready(Ok(removed)))
    }
}

impl MemoryRecords {
    fn get(&self, key: &RecordKey, now: Time) -> Option<&Record> {
        let stored = self.kinds.get(key.kind())?.get(key.key());
        stored.filter(|record| !record.is_expired(now))
    }

    fn page(&self, query: &RecordQuery, now: Time) -> RecordPage {
        let Some(kind) = self.kinds.get(query.kind()) else { return RecordPage::default() };
        let start = query.after_key().map_or(Bound::Unbounded, Bound::Excluded);
        let found = kind.range::<str, _>((start, Bound::Unbounded));
        let items = found
            .filter(|(_, record)| !record.is_expired(now))
            .take(query.page_size() + 1)
            .map(|(key, record)| RecordItem { key: key.clone(), record: record.clone() });
        RecordPage::from_items(items.collect(), query)
    }

    fn put(
        &mut self,
        new: &NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> Result<PutRecordResult, StoreError> {
        let key = new.key();
        let stored = self.get(key, now);
        if !expected.allows(stored.map(|record| record.version)) {
            return Ok(PutRecordResult::Conflict(stored.cloned()));
        }
        self.delete(key);
        let count = self.kinds.get(key.kind()).map_or(0, BTreeMap::len);
        if count >= RECORDS_PER_KIND_MAX
            && self.remove_expired(now, 1, |expired| expired.kind() == key.kind()) == 0
        {
            return Err(StoreError::TooManyRecords { kind: key.kind().clone() });
        }
        self.last_version += 1;
        let version = RecordVersion(self.last_version);
        let expires_at = new.expiry();
        let record = Record { value: new.value().to_vec(), version, expires_at };
        let kind = self.kinds.entry(key.kind().clone()).or_default();
        kind.insert(key.key().to_owned(), record);
        self.expiring.extend(expires_at.map(|expires_at| (expires_at, key.clone())));
        Ok(PutRecordResult::Stored(version))
    }

    fn remove(
        &mut self,
        key: &RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> RemoveRecordResult {
        let Some(stored) = self.get(key, now) else { return RemoveRecordResult::Absent };
        if expected.is_some_and(|version| stored.version != version) {
            return RemoveRecordResult::Conflict(stored.clone());
        }
        self.delete(key).map_or(RemoveRecordResult::Absent, RemoveRecordResult::Removed)
    }

    fn remove_expired(
        &mut self,
        now: Time,
        limit: usize,
        is_chosen: impl Fn(&RecordKey) -> bool,
    ) -> usize {
        let expired = self.expiring.iter().take_while(|(expires_at, _)| *expires_at <= now);
        let chosen = expired.map(|(_, key)| key).filter(|key| is_chosen(key)).take(limit);
        let chosen: Vec<RecordKey> = chosen.cloned().collect();
        for key in &chosen {
            self.delete(key);
        }
        chosen.len()
    }

    fn delete(&mut self, key: &RecordKey) -> Option<Record> {
        let kind = self.kinds.get_mut(key.kind())?;
        let record = kind.remove(key.key())?;
        if kind.is_empty() {
            self.kinds.remove(key.kind());
        }
        if let Some(expires_at) = record.expires_at {
            self.expiring.remove(&(expires_at, key.clone()));
        }
        Some(record)
    }
}
