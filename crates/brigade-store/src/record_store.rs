//! The contract of records: small values under a kind and a key, for everybody who opens the store.

use std::fmt::Debug;

use brigade_model::ids::Time;

use crate::record::{
    ExpectedVersion, NewRecord, PutRecordResult, Record, RecordKey, RecordPage, RecordQuery,
    RecordVersion, RemoveRecordResult,
};
use crate::store::StoreFuture;

/// Records with compare-and-set and expiry. They belong to no session, are part of no batch, and
/// make no event.
///
/// Each method is one atomic step: of several concurrent calls for one record, each sees the whole
/// effect of those before it and nothing of those after it. A read sees every put and removal that
/// returned before it began.
///
/// `now` is the caller's time. For a method, a record has expired when its expiry is `now` or
/// earlier. It is absent then, also if the store still has its row.
///
/// After `Ok`, a put or removal survives a crash. After an error or a crash it has happened whole
/// or not at all, and [`RecordStore::record`] shows which. An unchanged version means that it has
/// not happened.
///
/// ```
/// use brigade_model::ids::Time;
/// use brigade_store::{
///     ExpectedVersion, MemoryStore, NewRecord, PutRecordResult, RecordKey, RecordKind,
///     RecordStore, RemoveRecordResult,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let key = RecordKey::new(RecordKind::from_static("login-code"), "5e884898")?;
/// let code = NewRecord::new(key.clone(), "ada")?.expires_at(Time(60_000));
/// let put = store.put_record(&code, ExpectedVersion::Absent, Time(0)).await?;
/// assert!(matches!(put, PutRecordResult::Stored(_)));
///
/// // The code is used once.
/// let first = store.remove_record(&key, None, Time(59_999)).await?;
/// assert!(matches!(first, RemoveRecordResult::Removed(record) if record.value == b"ada"));
/// let second = store.remove_record(&key, None, Time(59_999)).await?;
/// assert_eq!(second, RemoveRecordResult::Absent);
/// # Ok(())
/// # }
/// ```
pub trait RecordStore: Debug + Send + Sync + 'static {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>>;

    /// Returns a page of the records of one kind, ordered by the bytes of their keys.
    ///
    /// A record that is there from the first page to the last is on exactly one of them. A record
    /// that is put or removed meanwhile is on one page or on none.
    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage>;

    /// Puts a record if the stored one is as expected, and replaces its value, version and expiry.
    ///
    /// A record that has expired by `now` is absent at once. Its put needs the expected version
    /// all the same.
    ///
    /// A kind has at most [`RECORDS_PER_KIND_MAX`] records. The store refuses one more with
    /// [`StoreError::TooManyRecords`]. Expired records do not count. A store that several
    /// processes write may exceed the number by that of concurrent puts.
    ///
    /// After a crash, a caller that expected [`ExpectedVersion::Absent`] finds its own value in the
    /// conflict if the put has happened.
    ///
    /// [`RECORDS_PER_KIND_MAX`]: crate::RECORDS_PER_KIND_MAX
    /// [`StoreError::TooManyRecords`]: crate::StoreError::TooManyRecords
    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult>;

    /// Removes a record and returns it: any version, or only the expected one.
    ///
    /// Exactly one of several concurrent calls gets the record, so this takes a record of single
    /// use. A crash between the removal and the reply loses such a record: no second call gets it.
    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult>;

    /// Removes the rows of at most `limit` expired records, those that expired first before the
    /// others, and returns their number. No other method returns another result for it.
    ///
    /// The runtime calls it in each prune and after each put of a record that expires. After a
    /// crash, the next call removes the rest.
    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize>;
}
