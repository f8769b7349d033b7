//! Crashes at writes of records: each write has happened whole or not at all.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;

use brigade_model::ids::Time;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::Runtime;
use brigade_store::{
    ExpectedVersion, MemoryStore, NewRecord, PutRecordResult, Record, RecordKey, RecordKind,
    RecordStore, RemoveRecordResult, Store,
};
use brigade_testkit::{CrashStore, CutMode, CutPoint, cut_everywhere};

const CODE: RecordKind = RecordKind::from_static("code");
const NOW: Time = Time(1_000);

fn key() -> RecordKey {
    RecordKey::new(CODE, "k").unwrap()
}

fn record(value: &str) -> NewRecord {
    NewRecord::new(key(), value).unwrap()
}

fn cut(durable: bool, mode: CutMode) -> Option<CutPoint> {
    Some(CutPoint { commit: 0, durable, mode })
}

/// Runs a call until the store crashes in it.
async fn crash_in<T>(store: &CrashStore, call: impl Future<Output = T>) {
    tokio::select! {
        biased;
        () = store.wait_crashed() => {}
        _ = call => panic!("the call returned"),
    }
}

#[tokio::test]
async fn a_put_cut_by_a_crash_is_whole_or_absent() {
    for durable in [false, true] {
        let memory = Arc::new(MemoryStore::new());
        let store = CrashStore::new(memory.clone(), cut(durable, CutMode::Crash));
        let new = record("mine");
        crash_in(&store, store.put_record(&new, ExpectedVersion::Absent, NOW)).await;
        let found = memory.record(&key(), NOW).await.unwrap();
        assert_eq!(found.is_some(), durable);
        // The caller repeats its put, and finds its own value if it has happened.
        match memory.put_record(&new, ExpectedVersion::Absent, NOW).await.unwrap() {
            PutRecordResult::Stored(_) => assert!(!durable),
            PutRecordResult::Conflict(other) => {
                assert!(durable);
                assert_eq!(other.unwrap().value, new.value());
            }
        }
    }
}

#[tokio::test]
async fn a_take_cut_by_a_crash_is_not_repeated() {
    for durable in [false, true] {
        let memory = Arc::new(MemoryStore::new());
        memory.put_record(&record("code"), ExpectedVersion::Absent, NOW).await.unwrap();
        let store = CrashStore::new(memory.clone(), cut(durable, CutMode::Crash));
        crash_in(&store, store.remove_record(&key(), None, NOW)).await;
        let again = memory.remove_record(&key(), None, NOW).await.unwrap();
        assert_eq!(matches!(again, RemoveRecordResult::Removed(_)), !durable, "{again:?}");
        let last = memory.remove_record(&key(), None, NOW).await.unwrap();
        assert_eq!(last, RemoveRecordResult::Absent);
    }
}

#[tokio::test]
async fn nothing_is_written_after_the_crash() {
    let memory = Arc::new(MemoryStore::new());
    let store = CrashStore::new(memory.clone(), cut(false, CutMode::Crash));
    let expired = record("expired").expires_at(NOW);
    memory.put_record(&expired, ExpectedVersion::Any, NOW).await.unwrap();
    let new = record("mine");
    crash_in(&store, store.put_record(&new, ExpectedVersion::Any, NOW)).await;
    crash_in(&store, store.put_record(&new, ExpectedVersion::Any, NOW)).await;
    crash_in(&store, store.remove_expired_records(NOW, 10)).await;
    let found = memory.record(&key(), Time(0)).await.unwrap();
    assert_eq!(found.map(|record| record.value), Some(b"expired".to_vec()));
}

#[tokio::test]
async fn a_failed_write_is_in_doubt() {
    for durable in [false, true] {
        let memory = Arc::new(MemoryStore::new());
        let store = CrashStore::new(memory.clone(), cut(durable, CutMode::Fail));
        let runtime = Runtime::builder().shared_store(store).start().await.unwrap();
        let refusal = runtime.records().put(&record("mine"), ExpectedVersion::Any).await;
        assert_eq!(refusal.unwrap_err().kind, RefusalKind::Unknown);
        assert_eq!(runtime.records().get(&key()).await.unwrap().is_some(), durable);
        runtime.shutdown().await.unwrap();

        memory.put_record(&record("code"), ExpectedVersion::Any, NOW).await.unwrap();
        let store = CrashStore::new(memory, cut(durable, CutMode::Fail));
        let runtime = Runtime::builder().shared_store(store).start().await.unwrap();
        let refusal = runtime.records().take(&key()).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Unknown);
        assert_eq!(runtime.records().get(&key()).await.unwrap().is_some(), !durable);
        runtime.shutdown().await.unwrap();
    }
}

/// Counts to three by compare-and-set. A crash neither loses nor repeats a step.
async fn count_to_three(store: Arc<dyn Store>) -> Vec<u8> {
    loop {
        let stored = store.record(&key(), NOW).await.unwrap();
        let value = stored.as_ref().map_or(Vec::new(), |record| record.value.clone());
        if value.len() == 3 {
            return value;
        }
        let expected = |record: Record| ExpectedVersion::Version(record.version);
        let expected = stored.map_or(ExpectedVersion::Absent, expected);
        let next = NewRecord::new(key(), [value, vec![b'x']].concat()).unwrap();
        store.put_record(&next, expected, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_put_is_a_commit_for_cut_everywhere() {
    assert_eq!(cut_everywhere(count_to_three).await, 6, "each put is cut before and after");
}
