//! A server whose disk is full.

use brigade_model::feed_cursor::FeedCursor;
use brigade_postgres::PostgresStore;
use brigade_postgres::test_server::{SMALL_DISK, TestServer};
use brigade_store::{Batch, EventQuery, Store, StoreError};

use crate::late_commits::opening;

/// Sessions whose rows need more space than the pages of the tables still have.
const LARGE: u128 = 2_000;

#[tokio::test]
async fn a_full_disk_refuses_the_batch_whole() {
    let Some(server) = TestServer::start_with_small_disk(64) else {
        println!("skipped: this process cannot mount a small disk");
        return;
    };
    let run = |command: &str| server.execute(&format!("COPY (SELECT 1) TO PROGRAM '{command}'"));
    run(&format!("mkdir -m 700 {SMALL_DISK}/small"));
    server.execute(&format!("CREATE TABLESPACE small LOCATION '{SMALL_DISK}/small'"));
    server.execute("ALTER DATABASE postgres SET default_tablespace = small");
    let store = PostgresStore::open(&server.new_schema().schema("small").unwrap()).await.unwrap();
    let lane = store.open_lane().await.unwrap();
    store.commit(&Batch { lane, sessions: vec![opening(1)], ..Batch::default() }).await.unwrap();
    let sessions: Vec<_> = (2..LARGE).map(opening).collect();
    let large = Batch { lane, sessions, ..Batch::default() };
    let stored = "SELECT count(*) FROM small.sessions";

    run(&format!("dd if=/dev/zero of={SMALL_DISK}/filler bs=4k 2>/dev/null; true"));
    for _ in 0..3 {
        let error = store.commit(&large).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("No space left on device"), "{error}");
        assert_eq!(server.execute(stored), "1");
    }
    run(&format!("rm {SMALL_DISK}/filler"));
    store.commit(&large).await.unwrap();
    assert_eq!(server.execute(stored), (LARGE - 1).to_string());
    let query = EventQuery { session: None, after: FeedCursor::START, limit: 10 * LARGE as usize };
    let events = store.events(&query).await.unwrap().items;
    assert_eq!(events.len(), LARGE as usize - 1, "no position was used twice or lost");
}
