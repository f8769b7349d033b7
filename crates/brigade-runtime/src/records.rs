//! Records of the runtime's store, by the runtime's clock.

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, Record, RecordKey, RecordPage, RecordQuery,
    RecordVersion, RemoveRecordResult, Store, StoreError,
};

use crate::clock::Clock;
use crate::error::store_refusal;

/// The most expired records that one put removes, and one step of a prune.
const EXPIRED_PER_PUT: usize = 16;
const EXPIRED_PER_STEP: usize = 500;

/// Small values under a kind and a key, shared by everybody who opens the store. See
/// [`Runtime::records`](crate::Runtime::records).
///
/// A write that fails with [`RefusalKind::Unknown`] may have happened: read the record.
/// [`RefusalKind::Limit`] says that the kind has no place for another record.
///
/// ```
/// use std::time::Duration;
///
/// use brigade_runtime::Runtime;
/// use brigade_store::{ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind};
///
/// const LOGIN: RecordKind = RecordKind::from_static("login-code");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), brigade_model::refusal::Refusal> {
/// let runtime = Runtime::builder().start().await?;
/// let key = RecordKey::new(LOGIN, "5e884898")?;
/// let code = NewRecord::new(key.clone(), "ada")?;
/// let minute = Duration::from_secs(60);
/// let put = runtime.records().put_for(minute, code, ExpectedVersion::Absent).await?;
/// assert!(matches!(put, PutRecordResult::Stored(_)));
/// let taken = runtime.records().take(&key).await?;
/// assert_eq!(taken.map(|record| record.value), Some(b"ada".to_vec()));
/// assert_eq!(runtime.records().take(&key).await?, None);
/// runtime.shutdown().await
/// # }
/// ```
///
/// [`RefusalKind::Unknown`]: brigade_model::refusal::RefusalKind::Unknown
/// [`RefusalKind::Limit`]: brigade_model::refusal::RefusalKind::Limit
#[derive(Clone, Copy, Debug)]
pub struct RuntimeRecords<'a> {
    store: &'a dyn Store,
    clock: &'a dyn Clock,
}

impl<'a> RuntimeRecords<'a> {
    pub(crate) fn new(store: &'a dyn Store, clock: &'a dyn Clock) -> Self {
        Self { store, clock }
    }

    pub async fn get(&self, key: &RecordKey) -> Result<Option<Record>, Refusal> {
        self.store.record(key, self.clock.now()).await.map_err(|e| store_refusal(&e))
    }

    /// Returns a page of the records of one kind, ordered by the bytes of their keys.
    pub async fn list(&self, query: &RecordQuery) -> Result<RecordPage, Refusal> {
        self.store.records(query, self.clock.now()).await.map_err(|e| store_refusal(&e))
    }

    /// Puts a record if the stored one is as expected.
    pub async fn put(
        &self,
        record: &NewRecord,
        expected: ExpectedVersion,
    ) -> Result<PutRecordResult, Refusal> {
        let now = self.clock.now();
        let put = self.store.put_record(record, expected, now).await;
        let put = put.map_err(|e| write_refusal(&e))?;
        if record.expiry().is_some() {
            // Records that expire make up for the rows that they leave behind.
            if let Err(error) = self.store.remove_expired_records(now, EXPIRED_PER_PUT).await {
                tracing::debug!(%error, "expired records could not be removed; a later put will");
            }
        }
        Ok(put)
    }

    /// Puts a record that expires after this time.
    pub async fn put_for(
        &self,
        lifetime: impl Into<Millis>,
        record: NewRecord,
        expected: ExpectedVersion,
    ) -> Result<PutRecordResult, Refusal> {
        let record = record.expires_at(self.clock.now().after(lifetime.into()));
        self.put(&record, expected).await
    }

    /// Removes a record and returns it. Exactly one of several callers gets it.
    pub async fn take(&self, key: &RecordKey) -> Result<Option<Record>, Refusal> {
        match self.remove(key, None).await? {
            RemoveRecordResult::Removed(record) => Ok(Some(record)),
            RemoveRecordResult::Absent | RemoveRecordResult::Conflict(_) => Ok(None),
        }
    }

    /// Removes a record: any version, or only the expected one.
    pub async fn remove(
        &self,
        key: &RecordKey,
        expected: Option<RecordVersion>,
    ) -> Result<RemoveRecordResult, Refusal> {
        let removed = self.store.remove_record(key, expected, self.clock.now()).await;
        removed.map_err(|e| write_refusal(&e))
    }

    /// Removes the rows of all records that have expired by now, in steps between which others can
    /// write. Returns their number.
    pub(crate) async fn remove_expired(&self) -> Result<usize, Refusal> {
        let now = self.clock.now();
        let mut count = 0;
        loop {
            let removed = self.store.remove_expired_records(now, EXPIRED_PER_STEP).await;
            let removed = removed.map_err(|e| store_refusal(&e))?;
            count += removed;
            if removed < EXPIRED_PER_STEP {
                return Ok(count);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the refusal of a write. After a failure of the store the write may have happened.
fn write_refusal(error: &StoreError) -> Refusal {
    match error {
        StoreError::Unavailable(_) => {
            Refusal::unknown(format!("{error}; the record may have changed: read it"))
        }
        error => store_refusal(error),
    }
}
