//! Copies of whole stores: several lanes, refusals, and copies that do not end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::event::FeedItem;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Millis, SessionId, Time};
use brigade_model::task_tree::SessionState;
use brigade_postgres::{PostgresCopySource, PostgresCopyTarget, PostgresOptions, PostgresStore};
use brigade_sqlite::{SqliteCopySource, SqliteCopyTarget, SqliteStore};
use brigade_store::conformance::StoreHarness;
use brigade_store::conformance::feed::moved_sessions_are_read_in_order;
use brigade_store::conformance::fixture::{
    check_fixture, check_fixture_authors, check_fixture_records, write_fixture,
};
use brigade_store::store_copy::{
    CopyError, CopySource, CopyTable, CopyTarget, PAGE_ROWS, TableDigest, copy_store, digest_table,
};
use brigade_store::{
    AcquireResult, Batch, BoxFuture, EventQuery, JoinResult, NewNode, Retention, SessionBatch,
    SessionClaim, Store, StoreError,
};
use tempfile::TempDir;

use crate::late_commits::opening;
use crate::support::SERVER;

async fn open_file(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path).unwrap())
}

async fn open_schema(options: &PostgresOptions) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(options).await.unwrap())
}

async fn copy_to_schema(from: &Path, to: &PostgresOptions) -> Vec<TableDigest> {
    let source = SqliteCopySource::open(from).unwrap();
    let target = PostgresCopyTarget::create(to, false).await.unwrap();
    copy_store(&source, &target, |_, _| {}).await.unwrap()
}

async fn copy_to_file(from: &PostgresOptions, to: &Path) -> Vec<TableDigest> {
    let source = PostgresCopySource::open(from).await.unwrap();
    let target = SqliteCopyTarget::create(to, false).unwrap();
    copy_store(&source, &target, |_, _| {}).await.unwrap()
}

/// Writes the fixture into a new file.
async fn create_fixture(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("fixture.db");
    write_fixture(&open_file(&path).await).await;
    path
}

fn rows_of(digests: &[TableDigest], table: CopyTable) -> u64 {
    digests.iter().find(|digest| digest.table == table).unwrap().rows
}

/// Reads the pages of a feed from a place on.
async fn read_feed(
    store: &Arc<dyn Store>,
    session: Option<SessionId>,
    after: &FeedCursor,
    limit: usize,
) -> Vec<FeedItem> {
    let mut query = EventQuery { session, after: after.clone(), limit };
    let mut found = Vec::new();
    loop {
        let page = store.events(&query).await.unwrap();
        if page.items.is_empty() {
            return found;
        }
        found.extend(page.items);
        query.after = page.read_to;
    }
}

/// Checks that two stores have the same events behind each place that a reader of the first one gets to.
async fn check_same_feed(first: &Arc<dyn Store>, second: &Arc<dyn Store>) {
    assert_eq!(first.cursor().await.unwrap(), second.cursor().await.unwrap());
    let sessions: Vec<SessionId> =
        first.sessions().await.unwrap().iter().map(|row| row.id).collect();
    let mut query = EventQuery { session: None, after: FeedCursor::START, limit: 2 };
    loop {
        let all = read_feed(second, None, &query.after, 3).await;
        for session in &sessions {
            let expected = read_feed(first, Some(*session), &query.after, 3).await;
            let found = read_feed(second, Some(*session), &query.after, 3).await;
            assert_eq!(expected, found, "after {}", query.after);
            let of_all = all.iter().filter(|item| item.record.session == *session);
            assert!(expected.iter().eq(of_all), "after {}", query.after);
        }
        let page = first.events(&query).await.unwrap();
        assert_eq!(page.gap_to, second.events(&query).await.unwrap().gap_to);
        if page.items.is_empty() {
            return;
        }
        query.after = page.read_to;
    }
}

#[tokio::test]
async fn a_node_claims_the_sessions_of_a_copy() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let file = open_file(&path).await;
    let lane = file.open_lane().await.unwrap();
    let sessions = vec![opening(1_001), opening(1_002)];
    file.commit(&Batch { lane, sessions, ..Batch::default() }).await.unwrap();
    drop(file);
    let options = SERVER.new_schema();
    copy_to_schema(&path, &options).await;
    let schema = open_schema(&options).await;
    let node = NewNode {
        name: "one".into(),
        host: "kitchen".into(),
        labels: Vec::new(),
        capacity: None,
        version: "1".into(),
        lease: Duration::from_secs(60),
        lanes: 1,
    };
    let fleet = schema.fleet().unwrap();
    let JoinResult::Joined(joined) = fleet.join(&node).await.unwrap() else { panic!("not joined") };
    let claim = SessionClaim {
        node: joined.node,
        lane: joined.lanes[0],
        now: Time(0),
        limit: 1_000,
        skipped: Vec::new(),
    };
    let claimed = fleet.claim(&claim).await.unwrap();
    let sessions = schema.sessions().await.unwrap();
    let open = sessions.iter().filter(|row| row.state != SessionState::Closed).count();
    assert_eq!(open, 2);
    assert_eq!(claimed.len(), open);
}

#[tokio::test]
async fn a_copy_has_everything_and_goes_on() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let options = SERVER.new_schema();
    let there = copy_to_schema(&path, &options).await;
    for table in [CopyTable::Sessions, CopyTable::Runs, CopyTable::Journal, CopyTable::Messages] {
        assert!(rows_of(&there, table) > 0, "{}", table.name());
    }
    assert_eq!((rows_of(&there, CopyTable::Records), rows_of(&there, CopyTable::Lanes)), (3, 1));
    let (file, schema) = (open_file(&path).await, open_schema(&options).await);
    check_fixture(&schema).await;
    check_fixture_records(&schema).await;
    check_fixture_authors(&schema).await;
    check_same_feed(&file, &schema).await;
    for row in file.sessions().await.unwrap() {
        let (here, there) = tokio::join!(file.load(row.id), schema.load(row.id));
        assert!(here.unwrap().unwrap().into_tree() == there.unwrap().unwrap().into_tree());
    }
    // A node continues in a lane of its own.
    let lane = schema.open_lane().await.unwrap();
    assert_eq!(lane, Lane(1));
    for row in schema.sessions().await.unwrap() {
        let acquired = schema.acquire(lane, &row).await.unwrap();
        assert!(matches!(acquired, AcquireResult::Acquired(it) if it.epoch == row.epoch.next()));
    }
    let back = dir.path().join("back.db");
    copy_to_file(&options, &back).await;
    let back = open_file(&back).await;
    assert_eq!(back.sessions().await.unwrap(), schema.sessions().await.unwrap());
    assert_eq!(back.open_lane().await.unwrap(), Lane(0));
}

/// A harness that remembers the schema of its store.
#[derive(Default)]
struct OneSchema(Mutex<Option<PostgresOptions>>);

impl StoreHarness for OneSchema {
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let options = SERVER.new_schema();
        *self.0.lock().unwrap() = Some(options.clone());
        Box::pin(async move {
            let store = open_schema(&options).await;
            store.open_lane().await.unwrap();
            store
        })
    }

    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(std::future::ready(store))
    }
}

/// Creates a schema whose sessions moved between several lanes.
async fn create_lanes() -> PostgresOptions {
    let harness = OneSchema::default();
    moved_sessions_are_read_in_order(&harness).await;
    harness.0.into_inner().unwrap().unwrap()
}

#[tokio::test]
async fn cursors_of_several_lanes_stay_valid_in_a_file() {
    let dir = TempDir::new().unwrap();
    let options = create_lanes().await;
    let path = dir.path().join("lanes.db");
    let first = copy_to_file(&options, &path).await;
    assert!(rows_of(&first, CopyTable::Lanes) > 2);
    let schema = open_schema(&options).await;
    check_same_feed(&schema, &open_file(&path).await).await;
    // The file goes on in a lane of its own, after the events of all others.
    let store = open_file(&path).await;
    let lane = store.open_lane().await.unwrap();
    let before = store.cursor().await.unwrap();
    assert!(before.positions().iter().all(|position| position.lane < lane));
    for row in store.sessions().await.unwrap() {
        add_event(&store, lane, row.id).await;
        add_event(&store, lane, row.id).await;
    }
    let added = read_feed(&store, None, &before, 1).await;
    assert_eq!(added.len(), 6);
    let numbers: Vec<u64> = added.iter().map(|item| item.position.no).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert!(added.iter().all(|item| item.position.lane == lane));
    drop(store);
    // Both ways, also after a prune that removed the beginning of each lane.
    let there = SERVER.new_schema();
    copy_to_schema(&path, &there).await;
    check_same_feed(&open_schema(&there).await, &open_file(&path).await).await;
    check_same_feed(&open_file(&path).await, &open_schema(&there).await).await;
    let retention = Retention { ended: Millis(u64::MAX), events: Millis(0) };
    let pruned = open_file(&path).await.prune(&retention, Time(1_006)).await.unwrap();
    assert!(pruned.events > 2, "{pruned:?}");
    let there = SERVER.new_schema();
    let digests = copy_to_schema(&path, &there).await;
    assert!(rows_of(&digests, CopyTable::Events) > 6);
    check_same_feed(&open_schema(&there).await, &open_file(&path).await).await;
    let back = dir.path().join("back.db");
    assert_eq!(copy_to_file(&there, &back).await, digests);
    check_same_feed(&open_file(&path).await, &open_file(&back).await).await;
    let pruned = open_file(&back).await.prune(&retention, Time(u64::MAX / 4)).await.unwrap();
    assert_eq!(pruned.events, rows_of(&digests, CopyTable::Events));
    let end = open_file(&path).await.cursor().await.unwrap();
    assert_eq!(open_file(&back).await.cursor().await.unwrap(), end);
}

async fn add_event(store: &Arc<dyn Store>, lane: Lane, id: SessionId) {
    add_events(store, lane, id, 1).await;
}

/// Commits the first event of a session some more times, with the next numbers.
async fn add_events(store: &Arc<dyn Store>, lane: Lane, id: SessionId, count: usize) {
    let mut row = store.session(id).await.unwrap().unwrap();
    let query = EventQuery { session: Some(id), after: FeedCursor::START, limit: 1 };
    let event = store.events(&query).await.unwrap().items.remove(0).record;
    let base = row.seq;
    let mut events = Vec::new();
    for _ in 0..count {
        row.seq = row.seq.next();
        let mut event = event.clone();
        Arc::make_mut(&mut event).seq = row.seq;
        events.push(event);
    }
    let part = SessionBatch {
        row,
        base,
        events,
        tasks: Vec::new(),
        journal: Vec::new(),
        messages: Vec::new(),
    };
    store.commit(&Batch { lane, sessions: vec![part], ..Batch::default() }).await.unwrap();
}

#[tokio::test]
async fn events_that_a_prune_removed_are_not_copied() {
    let dir = TempDir::new().unwrap();
    let options = create_lanes().await;
    let schema = open_schema(&options).await;
    let all = read_feed(&schema, None, &FeedCursor::START, 100).await;
    let retention = Retention { ended: Millis(u64::MAX), events: Millis(0) };
    let last = all.iter().map(|item| item.record.at).max().unwrap();
    let times = [all[all.len() / 4].record.at, Time(last.0 - 2), last];
    for (number, time) in times.into_iter().enumerate() {
        let pruned = schema.prune(&retention, time).await.unwrap();
        assert!(pruned.events > 0, "{number}");
        let path = dir.path().join(format!("{number}.db"));
        let digests = copy_to_file(&options, &path).await;
        let stored = read_feed(&schema, None, &FeedCursor::START, 100).await;
        assert_eq!(rows_of(&digests, CopyTable::Events), stored.len() as u64);
        check_same_feed(&schema, &open_file(&path).await).await;
        let there = SERVER.new_schema();
        assert_eq!(copy_to_schema(&path, &there).await, digests);
        check_same_feed(&schema, &open_schema(&there).await).await;
    }
}

#[tokio::test]
async fn lanes_longer_than_a_page_are_copied() {
    let dir = TempDir::new().unwrap();
    let options = create_lanes().await;
    let schema = open_schema(&options).await;
    let row = schema.sessions().await.unwrap().remove(1);
    for _ in 0..2 {
        let lane = schema.open_lane().await.unwrap();
        let row = schema.session(row.id).await.unwrap().unwrap();
        schema.acquire(lane, &row).await.unwrap();
        add_events(&schema, lane, row.id, 2 * PAGE_ROWS).await;
        // The end of a lane is not the end of a page.
        add_events(&schema, lane, row.id, 7).await;
    }
    let path = dir.path().join("long.db");
    let digests = copy_to_file(&options, &path).await;
    assert!(rows_of(&digests, CopyTable::Events) > 4 * PAGE_ROWS as u64 + 14);
    let there = SERVER.new_schema();
    assert_eq!(copy_to_schema(&path, &there).await, digests);
    let expected = read_feed(&schema, Some(row.id), &FeedCursor::START, 100).await;
    for copy in [open_file(&path).await, open_schema(&there).await] {
        assert!(read_feed(&copy, Some(row.id), &FeedCursor::START, 100).await == expected);
        let all = read_feed(&copy, None, &FeedCursor::START, 700).await;
        assert_eq!(all.len() as u64, rows_of(&digests, CopyTable::Events));
    }
}

#[tokio::test]
async fn a_target_with_a_store_is_refused_and_not_changed() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let options = SERVER.new_schema();
    drop(open_schema(&options).await);
    for restart in [false, true] {
        let refused = PostgresCopyTarget::create(&options, restart).await.unwrap_err();
        assert!(matches!(refused, CopyError::TargetNotEmpty(_)), "{refused}");
        let before = std::fs::read(&path).unwrap();
        let refused = SqliteCopyTarget::create(&path, restart).unwrap_err();
        assert!(matches!(refused, CopyError::TargetNotEmpty(_)), "{refused}");
        assert!(refused.to_string().contains("fixture.db"), "{refused}");
        assert!(std::fs::read(&path).unwrap() == before, "the file has changed");
    }
    drop(open_schema(&options).await);
}

#[tokio::test]
async fn a_source_that_is_not_there_is_not_created() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("nothing.db");
    let missing = SqliteCopySource::open(&path).unwrap_err();
    assert!(matches!(missing, CopyError::NoSource(_)), "{missing}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    let options = SERVER.new_schema().schema("no_source").unwrap();
    let missing = PostgresCopySource::open(&options).await.unwrap_err();
    assert!(matches!(missing, CopyError::NoSource(_)), "{missing}");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'no_source'";
    assert_eq!(SERVER.execute(schemas), "0");
}

#[tokio::test]
async fn a_source_in_use_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let owner = open_file(&path).await;
    let refused = SqliteCopySource::open(&path).unwrap_err();
    assert!(matches!(refused, CopyError::Store(StoreError::Locked { .. })), "{refused}");
    drop(owner);
    let options = SERVER.new_schema().schema("in_use").unwrap();
    drop(open_schema(&options).await);
    SERVER.execute(
        "INSERT INTO in_use.nodes(name, host, lease_until, labels, format, version) \
         VALUES ('grill', 'kitchen-1', now(), '{}', 1, '1')",
    );
    let refused = PostgresCopySource::open(&options).await.unwrap_err();
    assert!(matches!(refused, CopyError::Store(StoreError::Locked { .. })), "{refused}");
    assert!(refused.to_string().contains("the node grill on kitchen-1"), "{refused}");
}

#[tokio::test]
async fn a_write_during_the_copy_is_an_error() {
    let dir = TempDir::new().unwrap();
    let options = create_lanes().await;
    let store = open_schema(&options).await;
    let lane = store.open_lane().await.unwrap();
    let row = store.sessions().await.unwrap().remove(0);
    let source = PostgresCopySource::open(&options).await.unwrap();
    let path = dir.path().join("changed.db");
    let target = SqliteCopyTarget::create(&path, false).unwrap();
    let before = source.state_mark().await.unwrap();
    store.acquire(lane, &row).await.unwrap();
    let acquired = source.state_mark().await.unwrap();
    assert_ne!(acquired, before);
    let writing = WritingSource { source: &source, store: &store, lane, id: row.id };
    let error = copy_store(&writing, &target, |_, _| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::SourceChanged), "{error}");
    drop(target);
    check_incomplete_file(&path);
}

/// A source to which somebody commits when its last table is read.
struct WritingSource<'a> {
    source: &'a PostgresCopySource,
    store: &'a Arc<dyn Store>,
    lane: Lane,
    id: SessionId,
}

impl CopySource for WritingSource<'_> {
    fn state_mark(&self) -> brigade_store::StoreFuture<'_, String> {
        self.source.state_mark()
    }

    fn rows<'a>(
        &'a self,
        table: CopyTable,
        after: Option<&'a [brigade_store::store_copy::CopyValue]>,
    ) -> brigade_store::StoreFuture<'a, Vec<brigade_store::store_copy::CopyRow>> {
        Box::pin(async move {
            if table == CopyTable::Records {
                add_event(self.store, self.lane, self.id).await;
            }
            self.source.rows(table, after).await
        })
    }
}

/// Checks that no way of opening takes an incomplete copy for a store.
fn check_incomplete_file(path: &Path) {
    let before = std::fs::read(path).unwrap();
    for opened in [
        SqliteStore::open(path),
        SqliteStore::open_read_only(path),
        SqliteStore::open_immutable(path),
    ] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
        assert!(error.to_string().contains("an incomplete copy"), "{error}");
    }
    let refused = SqliteCopySource::open(path).unwrap_err();
    assert!(refused.to_string().contains("an incomplete copy"), "{refused}");
    let refused = SqliteCopyTarget::create(path, false).unwrap_err();
    assert!(matches!(refused, CopyError::TargetIncomplete(_)), "{refused}");
    assert!(std::fs::read(path).unwrap() == before, "the file has changed");
}

async fn check_incomplete_schema(options: &PostgresOptions) {
    let error = PostgresStore::open(options).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    assert!(error.to_string().contains("an incomplete copy"), "{error}");
    let refused = PostgresCopySource::open(options).await.unwrap_err();
    assert!(refused.to_string().contains("an incomplete copy"), "{refused}");
    let refused = PostgresCopyTarget::create(options, false).await.unwrap_err();
    assert!(matches!(refused, CopyError::TargetIncomplete(_)), "{refused}");
}

/// Copies the rows up to a table, as a copy that is killed there.
async fn copy_in_part(source: &dyn CopySource, target: &dyn CopyTarget, end: CopyTable) {
    for table in CopyTable::ALL {
        let rows = source.rows(table, None).await.unwrap();
        if !rows.is_empty() {
            target.write(table, rows).await.unwrap();
        }
        if table == end {
            return;
        }
    }
}

#[tokio::test]
async fn an_incomplete_copy_is_no_store_and_starts_over() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let options = SERVER.new_schema();
    let source = SqliteCopySource::open(&path).unwrap();
    for end in [CopyTable::Counters, CopyTable::Events, CopyTable::Records] {
        let target = PostgresCopyTarget::create(&options, true).await.unwrap();
        copy_in_part(&source, &target, end).await;
        drop(target);
        check_incomplete_schema(&options).await;
    }
    let target = PostgresCopyTarget::create(&options, true).await.unwrap();
    let digests = copy_store(&source, &target, |_, _| {}).await.unwrap();
    check_fixture(&open_schema(&options).await).await;
    let back = dir.path().join("back.db");
    let source = PostgresCopySource::open(&options).await.unwrap();
    for end in [CopyTable::Counters, CopyTable::Events, CopyTable::Records] {
        let target = SqliteCopyTarget::create(&back, true).unwrap();
        copy_in_part(&source, &target, end).await;
        drop(target);
        check_incomplete_file(&back);
    }
    let target = SqliteCopyTarget::create(&back, true).unwrap();
    assert_eq!(copy_store(&source, &target, |_, _| {}).await.unwrap(), digests);
    drop(target);
    check_fixture(&open_file(&back).await).await;
}

#[tokio::test]
async fn a_damaged_target_does_not_become_a_store() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let options = SERVER.new_schema().schema("damaged").unwrap();
    let source = SqliteCopySource::open(&path).unwrap();
    let damages = [
        ("messages", "UPDATE damaged.messages SET unread = NOT unread WHERE no = 1"),
        (
            "journal",
            "DELETE FROM damaged.journal WHERE seq = (SELECT max(seq) FROM damaged.journal)",
        ),
        ("sessions", "UPDATE damaged.sessions SET epoch = epoch + 1"),
        ("events", "UPDATE damaged.events SET author = 'x' WHERE pos = 3"),
    ];
    for (table, damage) in damages {
        let target = PostgresCopyTarget::create(&options, true).await.unwrap();
        let error = copy_store(&source, &target, |table, _| {
            if table == CopyTable::Records {
                SERVER.execute(damage);
            }
        });
        let error = error.await.unwrap_err();
        let CopyError::Different { source_rows, .. } = &error else { panic!("{error}") };
        assert_eq!(source_rows.table.name(), table);
        check_incomplete_schema(&options).await;
    }
}

#[tokio::test]
async fn only_the_last_of_two_copies_ends() {
    let dir = TempDir::new().unwrap();
    let path = create_fixture(&dir).await;
    let options = SERVER.new_schema();
    let source = SqliteCopySource::open(&path).unwrap();
    let first = PostgresCopyTarget::create(&options, false).await.unwrap();
    let second = PostgresCopyTarget::create(&options, true).await.unwrap();
    let error = first.finish().await.unwrap_err();
    assert!(matches!(error, StoreError::Fenced(_)), "{error}");
    check_incomplete_schema(&options).await;
    copy_store(&source, &second, |_, _| {}).await.unwrap();
    check_fixture(&open_schema(&options).await).await;
}

#[tokio::test]
async fn large_rows_make_short_pages() {
    use brigade_store::{ExpectedVersion, NewRecord, RecordKey, RecordKind};
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("large.db");
    let store = open_file(&path).await;
    for number in 0..150 {
        let kind = RecordKind::from_static(if number % 2 == 0 { "a-b" } else { "ab" });
        let key = RecordKey::new(kind, format!("key {number}")).unwrap();
        let record = NewRecord::new(key, vec![number; 60_000]).unwrap();
        store.put_record(&record, ExpectedVersion::Absent, Time(1)).await.unwrap();
    }
    drop(store);
    let options = SERVER.new_schema();
    copy_to_schema(&path, &options).await;
    let (here, there) =
        (SqliteCopySource::open(&path).unwrap(), PostgresCopySource::open(&options).await.unwrap());
    let first = here.rows(CopyTable::Records, None).await.unwrap();
    assert!(first.len() < 100, "{}", first.len());
    assert!(first == there.rows(CopyTable::Records, None).await.unwrap());
    let (here, there) = (
        digest_table(&here, CopyTable::Records).await.unwrap(),
        digest_table(&there, CopyTable::Records).await.unwrap(),
    );
    assert_eq!((here.rows, &here), (150, &there));
}
