//! Records through the runtime: its clock decides about expiry, and its prunes remove rows.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::{Millis, Time};
use brigade_model::refusal::RefusalKind;
use brigade_runtime::Runtime;
use brigade_store::{
    ExpectedVersion, MemoryStore, NewRecord, PutRecordResult, RECORDS_PER_KIND_MAX, RecordKey,
    RecordKind, RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, Retention,
};
use brigade_testkit::{ManualClock, TestRuntime};

use crate::faulty_store::FaultyStore;

const LOGIN: RecordKind = RecordKind::from_static("login");
const MINUTE: Duration = Duration::from_secs(60);

struct RecordTest {
    store: Arc<MemoryStore>,
    clock: ManualClock,
    runtime: Runtime,
}

impl RecordTest {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let clock = ManualClock::at(TestRuntime::START);
        let builder = Runtime::builder().shared_store(store.clone());
        let runtime = builder.clock(Arc::new(clock.clone())).start().await.unwrap();
        Self { store, clock, runtime }
    }

    async fn put_for_a_minute(&self, name: &str) {
        let put =
            self.runtime.records().put_for(MINUTE, record(name), ExpectedVersion::Absent).await;
        assert!(matches!(put, Ok(PutRecordResult::Stored(_))), "{put:?}");
    }

    /// Returns the keys of all rows, also of expired ones.
    async fn rows(&self) -> Vec<String> {
        let page = self.store.records(&RecordQuery::new(LOGIN), Time(0)).await.unwrap();
        page.items.into_iter().map(|item| item.key).collect()
    }
}

fn key(name: &str) -> RecordKey {
    RecordKey::new(LOGIN, name).unwrap()
}

fn record(name: &str) -> NewRecord {
    NewRecord::new(key(name), name).unwrap()
}

#[tokio::test]
async fn the_clock_of_the_runtime_ends_a_record() {
    let test = RecordTest::new().await;
    let records = test.runtime.records();
    test.put_for_a_minute("one").await;
    test.put_for_a_minute("two").await;
    test.clock.advance(MINUTE - Duration::from_millis(1));
    let expiry = TestRuntime::START.after(Millis::from(MINUTE));
    let found = records.get(&key("one")).await.unwrap().unwrap();
    assert_eq!(found.expires_at, Some(expiry));
    assert_eq!(records.take(&key("two")).await.unwrap().unwrap().value, b"two");
    assert_eq!(records.take(&key("two")).await.unwrap(), None, "it is used once");
    let wrong = Some(RecordVersion(77));
    let conflict = records.remove(&key("one"), wrong).await.unwrap();
    assert_eq!(conflict, RemoveRecordResult::Conflict(found));
    test.clock.advance(Duration::from_millis(1));
    assert_eq!(records.get(&key("one")).await.unwrap(), None);
    assert_eq!(records.take(&key("one")).await.unwrap(), None);
    assert!(records.list(&RecordQuery::new(LOGIN)).await.unwrap().items.is_empty());
    test.put_for_a_minute("one").await;
}

#[tokio::test]
async fn a_prune_removes_every_expired_record() {
    let test = RecordTest::new().await;
    for number in 0..1_200 {
        let expiry = TestRuntime::START.after(Millis::from(MINUTE));
        let new = record(&format!("{number:04}")).expires_at(expiry);
        test.store.put_record(&new, ExpectedVersion::Any, TestRuntime::START).await.unwrap();
    }
    let kept = record("kept");
    test.runtime.records().put(&kept, ExpectedVersion::Absent).await.unwrap();
    let retention = Retention { ended: Millis(u64::MAX), events: Millis(u64::MAX) };
    test.runtime.prune(&retention).await.unwrap();
    assert_eq!(test.rows().await.len(), 100, "nothing has expired: a full page");
    test.clock.advance(MINUTE);
    test.runtime.prune(&retention).await.unwrap();
    assert_eq!(test.rows().await, ["kept"]);
}

#[tokio::test]
async fn records_that_expire_remove_expired_ones() {
    let test = RecordTest::new().await;
    for name in ["one", "two"] {
        test.put_for_a_minute(name).await;
    }
    test.clock.advance(MINUTE);
    let kept = record("kept");
    test.runtime.records().put(&kept, ExpectedVersion::Absent).await.unwrap();
    assert_eq!(test.rows().await, ["kept", "one", "two"]);
    test.put_for_a_minute("three").await;
    assert_eq!(test.rows().await, ["kept", "three"], "no retention was set");
}

#[tokio::test]
async fn refusals_of_records_have_their_kind() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let runtime = Runtime::builder().shared_store(store.clone()).start().await.unwrap();
    let records = runtime.records();
    for number in 0..RECORDS_PER_KIND_MAX {
        let new = record(&number.to_string());
        records.put(&new, ExpectedVersion::Absent).await.unwrap();
    }
    let refusal = records.put(&record("more"), ExpectedVersion::Any).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Limit);
    assert!(refusal.message.contains("10000 records of the kind login"), "{refusal}");
    store.set_full(true);
    let refusal = records.put(&record("0"), ExpectedVersion::Any).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unknown);
    let refusal = records.take(&key("0")).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unknown);
    assert!(records.get(&key("0")).await.unwrap().is_some());
}
