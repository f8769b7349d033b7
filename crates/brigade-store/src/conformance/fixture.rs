//! A stored session that used every feature of the model: the content of databases that are kept to
//! test migrations.

use brigade_model::task::StoredTask;
use std::collections::BTreeMap;
use std::sync::Arc;

use brigade_model::event_author::CallerOrigin;
use brigade_model::ids::{Lane, Time};

use super::folding::{CommitCheck, RowWriter, check_folded, fold};
use super::scenario::{limits, play_scenario};
use super::writer::{ORIGIN, SessionWriter, all_events, session_id};
use crate::record::{ExpectedVersion, NewRecord, Record, RecordKey, RecordKind, RecordQuery};
use crate::store::{Store, TaskQuery};

const FIXTURE_SESSION: u128 = 1;

const FIXTURE_KIND: RecordKind = RecordKind::from_static("fixture");

/// Keys of records, which are also their values.
const FIXTURE_KEYS: [&str; 3] = ["\0 and '", "one", "zwölf"];

/// The expiry of the last record of the fixture.
const FIXTURE_EXPIRY: Time = Time(5_000);

/// Writes the session and the records into an empty store.
pub async fn write_fixture(store: &Arc<dyn Store>) {
    let writer = SessionWriter::open(store, FIXTURE_SESSION, limits()).await;
    play_scenario(writer, None).await;
    for key in FIXTURE_KEYS {
        let key = RecordKey::new(FIXTURE_KIND, key).expect("a key");
        let mut new = NewRecord::new(key.clone(), key.key()).expect("a record");
        if Some(&key.key()) == FIXTURE_KEYS.last() {
            new = new.expires_at(FIXTURE_EXPIRY);
        }
        store.put_record(&new, ExpectedVersion::Absent, Time(1)).await.expect("a put");
    }
}

/// Reads the records that [`write_fixture`] stored. Versions before the first with records have
/// none.
pub async fn check_fixture_records(store: &Arc<dyn Store>) {
    for (now, count) in [(Time(FIXTURE_EXPIRY.0 - 1), 3), (FIXTURE_EXPIRY, 2)] {
        let page = store.records(&RecordQuery::new(FIXTURE_KIND), now).await.expect("a page");
        let keys: Vec<&str> = page.items.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys, FIXTURE_KEYS[..count]);
        for item in page.items {
            assert_eq!(item.record.value, item.key.as_bytes());
            let key = RecordKey::new(FIXTURE_KIND, item.key).expect("a key");
            let found: Option<Record> = store.record(&key, now).await.expect("a read");
            assert_eq!(found, Some(item.record));
        }
    }
}

/// Checks the authors of the events that [`write_fixture`] stored. Versions before the first with
/// authors have none.
pub async fn check_fixture_authors(store: &Arc<dyn Store>) {
    let id = session_id(FIXTURE_SESSION);
    let events = all_events(&**store, Some(id)).await.expect("events are read");
    let mut kinds: Vec<&str> = Vec::new();
    for author in events.iter().filter_map(|record| record.by.as_deref()) {
        assert_eq!(author.origin.as_ref().map(CallerOrigin::as_str), Some(ORIGIN));
        kinds.push(author.kind.as_str());
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, ["client", "operator", "task"]);
    assert!(events.iter().any(|record| record.by.is_none()), "a report has no author");
}

/// Reads everything that [`write_fixture`] of an earlier version stored. Checks that its rows equal
/// its events, applied by this version.
pub async fn check_fixture(store: &Arc<dyn Store>) {
    let id = session_id(FIXTURE_SESSION);
    let events = all_events(&**store, Some(id)).await.expect("events are read");
    let tree = fold(&events);
    let now = tree.row().now;
    let writer = SessionWriter {
        store: store.clone(),
        lane: Lane::default(),
        tree,
        now,
        journals: BTreeMap::new(),
        check: CommitCheck::Nothing,
    };
    check_folded(&writer, RowWriter::EarlierVersion).await;
    let tasks = store.tasks(id, &TaskQuery::default()).await.expect("tasks are read");
    assert!(tasks.len() > 10, "the scenario has many tasks");
    for StoredTask { no, row } in tasks {
        let journal = store.journal(id, no).await.expect("a journal is read");
        assert_eq!(journal.len(), row.journal_len as usize, "the journal of {no}");
    }
}
