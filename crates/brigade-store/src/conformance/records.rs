//! Checks of records: compare-and-set, expiry, single use, pages and bounds.

use std::sync::Arc;

use brigade_model::ids::{Millis, Time};
use tokio::task::JoinSet;

use super::StoreHarness;
use crate::error::StoreError;
use crate::record::{
    ExpectedVersion, NewRecord, PutRecordResult, RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX,
    RECORDS_PER_KIND_MAX, Record, RecordKey, RecordKind, RecordQuery, RecordVersion,
    RemoveRecordResult,
};
use crate::store::{Retention, Store};

const TOKEN: RecordKind = RecordKind::from_static("token");
const CODE: RecordKind = RecordKind::from_static("code");
const NOW: Time = Time(1_000);

/// Keys that a store could confuse, cut or order in another way than by their bytes.
const HOSTILE_KEYS: [&str; 14] = [
    "\0",
    "\0\0",
    "a",
    "a\0",
    "a\0b",
    "A",
    "%",
    "_",
    "a%",
    "'; DROP TABLE records; --",
    "\"",
    "é",
    "e\u{301}",
    "🍳",
];

/// Checks each expected version against a missing, a stored and a removed record.
pub async fn a_put_needs_the_expected_version(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let unknown = ExpectedVersion::Version(RecordVersion(77));
    assert_eq!(put(&store, "one", unknown).await, PutRecordResult::Conflict(None));
    assert_eq!(read(&store, "one", NOW).await, None, "a conflict changes nothing");
    let first = stored(put(&store, "one", ExpectedVersion::Absent).await);
    let found = read(&store, "one", NOW).await.expect("it is stored");
    assert_eq!(found, Record { value: b"one".to_vec(), version: first, expires_at: None });
    for wrong in [ExpectedVersion::Absent, unknown] {
        let conflict = PutRecordResult::Conflict(Some(found.clone()));
        assert_eq!(put(&store, "one", wrong).await, conflict, "{wrong:?}");
        assert_eq!(read(&store, "one", NOW).await.as_ref(), Some(&found), "{wrong:?}");
    }
    let second = stored(put(&store, "one", ExpectedVersion::Version(first)).await);
    let late = put(&store, "one", ExpectedVersion::Version(first)).await;
    assert!(matches!(late, PutRecordResult::Conflict(Some(now)) if now.version == second));
    let third = stored(put(&store, "one", ExpectedVersion::Any).await);
    assert!(first != second && second != third && first != third);
}

/// Checks that a removed and recreated record, also after reopening, has another version.
pub async fn no_version_is_used_twice(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut versions = Vec::new();
    for round in 0..4 {
        for name in ["one", "two"] {
            versions.push(stored(put(&store, name, ExpectedVersion::Absent).await));
        }
        for name in ["one", "two"] {
            let removed = store.remove_record(&key(name), None, NOW).await.expect("a removal");
            assert!(matches!(removed, RemoveRecordResult::Removed(_)), "{removed:?}");
        }
        if round % 2 == 1 {
            store = harness.reopen(store).await;
        }
    }
    let count = versions.len();
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), count);
    let stale = ExpectedVersion::Version(versions[0]);
    stored(put(&store, "one", ExpectedVersion::Absent).await);
    assert!(matches!(put(&store, "one", stale).await, PutRecordResult::Conflict(Some(_))));
}

/// Checks removals of any version, of one version, and of nothing.
pub async fn a_removal_returns_the_record_once(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let one = key("one");
    let remove = |expected| store.remove_record(&one, expected, NOW);
    assert_eq!(remove(None).await.expect("a removal"), RemoveRecordResult::Absent);
    let unknown = Some(RecordVersion(77));
    assert_eq!(remove(unknown).await.expect("a removal"), RemoveRecordResult::Absent);
    for takes_any in [false, true] {
        let version = stored(put(&store, "one", ExpectedVersion::Absent).await);
        stored(put(&store, "other", ExpectedVersion::Any).await);
        let record = read(&store, "one", NOW).await.expect("it is stored");
        let conflict = RemoveRecordResult::Conflict(record.clone());
        assert_eq!(remove(unknown).await.expect("a removal"), conflict);
        assert_eq!(read(&store, "one", NOW).await.as_ref(), Some(&record));
        let expected = (!takes_any).then_some(version);
        let removed = RemoveRecordResult::Removed(record);
        assert_eq!(remove(expected).await.expect("a removal"), removed);
        assert_eq!(remove(expected).await.expect("a removal"), RemoveRecordResult::Absent);
        assert_eq!(read(&store, "one", NOW).await, None);
        assert!(read(&store, "other", NOW).await.is_some());
    }
}

/// Checks each method one millisecond before the expiry and at it.
pub async fn an_expired_record_is_absent_for_every_method(harness: &dyn StoreHarness) {
    let before = Time(4_999);
    let expiry = Time(5_000);
    let store = harness.empty().await;
    let one = key("one");
    let new = new_record(&one, "one").expires_at(expiry);
    let put = store.put_record(&new, ExpectedVersion::Absent, NOW).await.expect("a put");
    let version = stored(put);
    let record = read(&store, "one", before).await.expect("it has not expired");
    assert_eq!(record.expires_at, Some(expiry));
    assert_eq!(keys_of(&store, TOKEN, before).await, ["one"]);
    let put = store.put_record(&new, ExpectedVersion::Absent, before).await.expect("a put");
    assert_eq!(put, PutRecordResult::Conflict(Some(record)));

    assert_eq!(read(&store, "one", expiry).await, None);
    assert!(keys_of(&store, TOKEN, expiry).await.is_empty());
    for expected in [None, Some(version)] {
        let removed = store.remove_record(&one, expected, expiry).await.expect("a removal");
        assert_eq!(removed, RemoveRecordResult::Absent);
    }
    let expected = ExpectedVersion::Version(version);
    let put = store.put_record(&new, expected, expiry).await.expect("a put");
    assert_eq!(put, PutRecordResult::Conflict(None));
    let again = new_record(&one, "again").expires_at(Time(9_000));
    let put = store.put_record(&again, ExpectedVersion::Absent, expiry).await.expect("a put");
    assert_ne!(stored(put), version);
    let record = read(&store, "one", expiry).await.expect("it is stored again");
    assert_eq!(record.value, b"again");

    let dead = new_record(&key("dead"), "dead").expires_at(NOW);
    stored(store.put_record(&dead, ExpectedVersion::Any, NOW).await.expect("a put"));
    assert_eq!(read(&store, "dead", NOW).await, None, "it had expired before the put");
    let last = new_record(&key("last"), "last").expires_at(Time(u64::MAX));
    stored(store.put_record(&last, ExpectedVersion::Any, NOW).await.expect("a put"));
    assert!(read(&store, "last", Time(i64::MAX as u64 - 1)).await.is_some());
}

/// Checks that expired rows go in bounded steps, the oldest first, and that no other record goes.
pub async fn expired_records_go_in_bounded_steps(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    for number in 0..10 {
        let record = new_record(&key(&format!("{number}")), "x").expires_at(Time(2_000 + number));
        stored(store.put_record(&record, ExpectedVersion::Absent, NOW).await.expect("a put"));
    }
    stored(put(&store, "kept", ExpectedVersion::Absent).await);
    let renewed = new_record(&key("0"), "x").expires_at(Time(9_000));
    stored(store.put_record(&renewed, ExpectedVersion::Any, NOW).await.expect("a put"));
    let freed = new_record(&key("1"), "x");
    stored(store.put_record(&freed, ExpectedVersion::Any, NOW).await.expect("a put"));
    store = harness.reopen(store).await;
    let remove = async |now, limit| store.remove_expired_records(Time(now), limit).await;
    assert_eq!(remove(2_001, 100).await.expect("a removal"), 0, "two do not expire now");
    assert_eq!(remove(2_006, 0).await.expect("a removal"), 0);
    assert_eq!(remove(2_006, 3).await.expect("a removal"), 3);
    // At an earlier time, rows show which were removed.
    assert_eq!(keys_of(&store, TOKEN, NOW).await, ["0", "1", "5", "6", "7", "8", "9", "kept"]);
    assert_eq!(remove(2_006, 3).await.expect("a removal"), 2);
    assert_eq!(remove(2_006, 3).await.expect("a removal"), 0);
    assert_eq!(remove(8_000, 100).await.expect("a removal"), 3);
    assert_eq!(keys_of(&store, TOKEN, NOW).await, ["0", "1", "kept"]);
}

/// Checks pages of every size, with keys that could be confused or cut, in the order of bytes.
pub async fn record_pages_are_in_the_order_of_bytes(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let longest = "é".repeat(RECORD_KEY_BYTES_MAX / 2);
    let mut expected: Vec<&str> = HOSTILE_KEYS.into_iter().chain([longest.as_str()]).collect();
    for name in &expected {
        stored(put(&store, name, ExpectedVersion::Absent).await);
        let other = RecordKey::new(CODE, *name).expect("a key");
        let other = NewRecord::new(other, "other").expect("a record");
        stored(store.put_record(&other, ExpectedVersion::Absent, NOW).await.expect("a put"));
    }
    expected.sort_by_key(|name| name.as_bytes());
    for _ in 0..2 {
        for name in &expected {
            let found = read(&store, name, NOW).await.expect("it is stored");
            assert_eq!(found.value, name.as_bytes(), "{name:?}");
        }
        for limit in 1..=expected.len() + 1 {
            assert_eq!(keys_in_pages(&store, TOKEN, limit).await, expected, "pages of {limit}");
        }
        let none = RecordKind::from_static("tok");
        assert!(keys_of(&store, none, NOW).await.is_empty(), "a kind is not a prefix");
        store = harness.reopen(store).await;
    }
    for name in expected {
        let removed = store.remove_record(&key(name), None, NOW).await.expect("a removal");
        assert!(matches!(removed, RemoveRecordResult::Removed(_)), "{name:?}: {removed:?}");
    }
    assert!(keys_of(&store, TOKEN, NOW).await.is_empty());
    assert_eq!(keys_of(&store, CODE, NOW).await.len(), HOSTILE_KEYS.len() + 1);
}

/// Checks that a full page names the next one only if there are more records.
pub async fn the_last_record_page_has_no_next(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let query = RecordQuery::new(TOKEN).limit(2).expect("a size");
    let page = store.records(&query, NOW).await.expect("a page");
    assert!(page.items.is_empty() && page.next.is_none());
    for name in ["a", "b"] {
        stored(put(&store, name, ExpectedVersion::Absent).await);
    }
    let expired = new_record(&key("c"), "c").expires_at(NOW);
    stored(store.put_record(&expired, ExpectedVersion::Any, NOW).await.expect("a put"));
    assert_eq!(store.records(&query, NOW).await.expect("a page").next, None);
    stored(put(&store, "d", ExpectedVersion::Absent).await);
    let page = store.records(&query, NOW).await.expect("a page");
    assert_eq!(page.next.as_deref(), Some("b"));
    let page = store.records(&query.after("b"), NOW).await.expect("a page");
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.items[0].key, "d");
    assert_eq!(page.next, None);
}

/// Checks that values of every size and content come back, also after reopening.
pub async fn records_survive_reopening(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let values = [Vec::new(), every_byte, vec![0xff; RECORD_VALUE_BYTES_MAX]];
    let mut expected = Vec::new();
    for (number, value) in values.into_iter().enumerate() {
        let one = key(&number.to_string());
        let new = NewRecord::new(one.clone(), value.clone()).expect("a record");
        let new = new.expires_at(Time(5_000));
        let put = store.put_record(&new, ExpectedVersion::Absent, NOW).await.expect("a put");
        expected.push((one, Record { value, version: stored(put), expires_at: new.expiry() }));
    }
    for _ in 0..2 {
        for (key, record) in &expected {
            assert!(store.record(key, NOW).await.expect("a read").as_ref() == Some(record));
        }
        store = harness.reopen(store).await;
    }
}

/// Checks the bound of a kind: replacing, other kinds, and places of removed and expired records.
pub async fn a_full_kind_refuses_another_key(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let short = new_record(&key("short"), "x").expires_at(Time(2_000));
    stored(store.put_record(&short, ExpectedVersion::Absent, NOW).await.expect("a put"));
    for number in 1..RECORDS_PER_KIND_MAX {
        stored(put(&store, &number.to_string(), ExpectedVersion::Absent).await);
    }
    let another = new_record(&key("another"), "x");
    let refused = store.put_record(&another, ExpectedVersion::Any, NOW).await;
    let Err(StoreError::TooManyRecords { kind }) = refused else { panic!("{refused:?}") };
    assert_eq!(kind, TOKEN);
    assert_eq!(read(&store, "another", NOW).await, None);
    stored(put(&store, "1", ExpectedVersion::Any).await);
    let other = NewRecord::new(RecordKey::new(CODE, "c").expect("a key"), "c").expect("a record");
    stored(store.put_record(&other, ExpectedVersion::Any, NOW).await.expect("a put"));

    let put_at = async |new: &NewRecord, now| {
        store.put_record(new, ExpectedVersion::Absent, Time(now)).await
    };
    stored(put_at(&another, 2_000).await.expect("an expired record makes place"));
    let more = new_record(&key("more"), "x");
    let refused = put_at(&more, 2_000).await;
    assert!(matches!(refused, Err(StoreError::TooManyRecords { .. })), "{refused:?}");
    store.remove_record(&key("1"), None, NOW).await.expect("a removal");
    stored(put_at(&more, 2_000).await.expect("a removed record makes place"));
}

/// Checks that retention of sessions does not remove records.
pub async fn a_prune_removes_no_record(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    stored(put(&store, "one", ExpectedVersion::Absent).await);
    let retention = Retention { ended: Millis(0), events: Millis(0) };
    store.prune(&retention, Time(u64::MAX)).await.expect("the store prunes");
    assert!(read(&store, "one", NOW).await.is_some());
}

/// Increments a counter from several tasks, each by compare-and-set: no increment is lost.
pub async fn no_concurrent_put_is_lost(harness: &dyn StoreHarness) {
    const WRITERS: u32 = 8;
    const INCREMENTS: u32 = 25;
    let store = harness.empty().await;
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..INCREMENTS {
                increment(&store).await;
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.expect("a writer does not panic");
    }
    let counter = read(&store, "counter", NOW).await.expect("it is stored");
    assert_eq!(decode(&counter), WRITERS * INCREMENTS);
}

async fn increment(store: &Arc<dyn Store>) {
    let counter = key("counter");
    let mut stored = store.record(&counter, NOW).await.expect("a read");
    loop {
        let next = stored.as_ref().map_or(0, decode) + 1;
        let expected = stored
            .map_or(ExpectedVersion::Absent, |record| ExpectedVersion::Version(record.version));
        let new = NewRecord::new(counter.clone(), next.to_string()).expect("a record");
        match store.put_record(&new, expected, NOW).await.expect("a put") {
            PutRecordResult::Stored(_) => return,
            PutRecordResult::Conflict(found) => stored = found,
        }
    }
}

fn decode(counter: &Record) -> u32 {
    let text = std::str::from_utf8(&counter.value).expect("a text");
    text.parse().expect("a number")
}

/// Takes and creates one record from several tasks at once: exactly one of them succeeds.
pub async fn one_of_several_concurrent_callers_gets_a_record(harness: &dyn StoreHarness) {
    const CALLERS: usize = 8;
    let store = harness.empty().await;
    for round in 0..20 {
        let mut creators = JoinSet::new();
        for _ in 0..CALLERS {
            let store = store.clone();
            creators.spawn(async move { put(&store, "code", ExpectedVersion::Absent).await });
        }
        let results = creators.join_all().await;
        let won = results.iter().filter(|result| matches!(result, PutRecordResult::Stored(_)));
        assert_eq!(won.count(), 1, "puts in round {round}");
        let mut takers = JoinSet::new();
        for _ in 0..CALLERS {
            let store = store.clone();
            takers.spawn(async move { store.remove_record(&key("code"), None, NOW).await });
        }
        let results = takers.join_all().await;
        let won = results.iter().filter(|result| match result {
            Ok(RemoveRecordResult::Removed(_)) => true,
            Ok(RemoveRecordResult::Absent) => false,
            other => panic!("{other:?}"),
        });
        assert_eq!(won.count(), 1, "takes in round {round}");
    }
}

/// Reads pages while others put and remove records: those that stay are each on one page.
pub async fn record_pages_are_complete_while_others_write(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let staying: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
    for name in &staying {
        stored(put(&store, name, ExpectedVersion::Absent).await);
    }
    let mut writers = JoinSet::new();
    for writer in 0..2 {
        let store = store.clone();
        writers.spawn(async move {
            for number in 0..200 {
                let name = format!("{:02} of {writer}", number % 50);
                stored(put(&store, &name, ExpectedVersion::Any).await);
                if number % 3 == 0 {
                    store.remove_record(&key(&name), None, NOW).await.expect("a removal");
                }
            }
        });
    }
    let mut is_last = false;
    while !is_last {
        if let Some(done) = writers.try_join_next() {
            done.expect("a writer does not panic");
        }
        is_last = writers.is_empty();
        let keys = keys_in_pages(&store, TOKEN, 7).await;
        assert!(keys.is_sorted_by(|one, next| one < next), "{keys:?}");
        let found: Vec<&String> = keys.iter().filter(|key| key.len() == 2).collect();
        assert_eq!(found, staying.iter().collect::<Vec<_>>());
        tokio::task::yield_now().await;
    }
}

/// Renews a record while others remove what has expired: the renewed record stays.
pub async fn a_renewed_record_is_not_removed_as_expired(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut remover = JoinSet::new();
    for step in 0..100 {
        let expiry = Time(2_000 + step);
        let new = new_record(&key("one"), "one").expires_at(expiry);
        stored(store.put_record(&new, ExpectedVersion::Any, NOW).await.expect("a put"));
        let store = store.clone();
        // At this time every earlier put has expired, and the present one has not.
        let now = Time(expiry.0 - 1);
        let cleaner = store.clone();
        remover.spawn(async move { cleaner.remove_expired_records(now, 10).await });
        assert!(read(&store, "one", now).await.is_some(), "step {step}");
    }
    for removed in remover.join_all().await {
        assert_eq!(removed.expect("a removal"), 0);
    }
}

fn key(name: &str) -> RecordKey {
    RecordKey::new(TOKEN, name).expect("a key")
}

fn new_record(key: &RecordKey, value: &str) -> NewRecord {
    NewRecord::new(key.clone(), value).expect("a record")
}

/// Puts a record whose value is its key.
async fn put(store: &Arc<dyn Store>, name: &str, expected: ExpectedVersion) -> PutRecordResult {
    let new = new_record(&key(name), name);
    store.put_record(&new, expected, NOW).await.expect("a put")
}

#[track_caller]
fn stored(result: PutRecordResult) -> RecordVersion {
    match result {
        PutRecordResult::Stored(version) => version,
        PutRecordResult::Conflict(found) => panic!("a conflict with {found:?}"),
    }
}

async fn read(store: &Arc<dyn Store>, name: &str, now: Time) -> Option<Record> {
    store.record(&key(name), now).await.expect("a read")
}

async fn keys_of(store: &Arc<dyn Store>, kind: RecordKind, now: Time) -> Vec<String> {
    let page = store.records(&RecordQuery::new(kind), now).await.expect("a page");
    page.items.into_iter().map(|item| item.key).collect()
}

async fn keys_in_pages(store: &Arc<dyn Store>, kind: RecordKind, limit: usize) -> Vec<String> {
    let mut keys = Vec::new();
    let mut query = RecordQuery::new(kind).limit(limit).expect("a size");
    loop {
        let page = store.records(&query, NOW).await.expect("a page");
        assert!(page.items.len() <= limit);
        keys.extend(page.items.into_iter().map(|item| item.key));
        let Some(next) = page.next else { return keys };
        assert!(query.after_key().is_none_or(|after| after < next.as_str()), "{keys:?}");
        query = query.after(next);
    }
}
