//! Claims read by an index, however many sessions there are.

use std::sync::LazyLock;
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_postgres::PostgresStore;
use brigade_postgres::test_server::TestServer;
use brigade_store::{Fleet, JoinResult, JoinedNode, NewNode, SessionClaim};

/// A server of its own: `VACUUM` keeps rows that a transaction of another test may see.
static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

/// The number of sessions that no claim may read.
const OTHERS: u32 = 20_000;

/// The most pages of tables and indexes that a claim of a few sessions reads.
const PAGES_MAX: u64 = 400;

async fn join(store: &PostgresStore, name: &str) -> JoinedNode {
    let node = NewNode {
        name: name.to_owned(),
        host: "kitchen".to_owned(),
        labels: Vec::new(),
        capacity: None,
        version: "1".to_owned(),
        lease: Duration::from_secs(3_600),
        lanes: 1,
    };
    match store.join(&node).await.unwrap() {
        JoinResult::Joined(joined) => joined,
        taken => panic!("{taken:?}"),
    }
}

/// Adds sessions with numbers from `first` on.
fn add_sessions(first: u32, count: u32, columns: &str, values: &str) {
    SERVER.execute(&format!(
        "INSERT INTO plans.sessions(id, name, state, epoch, seq, last_lane, last_pos, opened_at, body, {columns}) \
         SELECT lpad(to_hex(n), 32, '0')::uuid, 'session ' || n, 0, 1, 1, 0, 1, 0, repeat('x', 200)::bytea, {values} \
         FROM generate_series({first}, {first} + {count} - 1) AS n"
    ));
}

/// Returns the pages that a claim reads, as `EXPLAIN` counts them. An earlier claim of the connection has
/// read the catalog. Both are reverted.
async fn claim_pages(node: &JoinedNode, most: u32) -> u64 {
    let claim =
        format!("plans.claim_sessions({}, {}, 1000, {most}, '{{}}')", node.node, node.lanes[0].0);
    let text = SERVER.execute(&format!(
        "BEGIN; SAVEPOINT before; DO $$ BEGIN PERFORM FROM {claim}; END $$; ROLLBACK TO before; \
         EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM {claim}"
    ));
    // The server reverts them after `psql` has ended, and skips locked sessions until then.
    let running = "SELECT count(*) FROM pg_stat_activity \
                   WHERE query LIKE '%plans.claim_sessions%' AND pid <> pg_backend_pid()";
    while SERVER.execute(running) != "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = |name: &str| -> u64 {
        let rest = text.split_once(&format!("\"{name}\": ")).expect(name).1;
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

#[tokio::test]
async fn a_claim_reads_few_pages() {
    let options = SERVER.new_schema().schema("plans").unwrap();
    let store = PostgresStore::open(&options).await.unwrap();
    let node = join(&store, "a").await;
    let other = join(&store, "b").await;
    let dead = join(&store, "c").await;
    let own = other.lanes[0].0;
    add_sessions(1, OTHERS, "lane", &own.to_string());
    add_sessions(OTHERS + 1, OTHERS, "next_due", "5000 + n");
    add_sessions(2 * OTHERS + 1, OTHERS, "lane", &dead.lanes[0].0.to_string());
    add_sessions(3 * OTHERS + 1, OTHERS, "next_owner", &other.node.to_string());
    SERVER.execute("ANALYZE plans.sessions");
    // The statistics say that a quarter of the sessions is in the lane of the dead node.
    SERVER.execute(&format!(
        "UPDATE plans.sessions SET lane = {own} WHERE lane = {}",
        dead.lanes[0].0
    ));
    SERVER.execute("VACUUM plans.sessions");
    store.close_node(dead.node).await.unwrap();
    let pages = claim_pages(&node, 100).await;
    assert!(pages < PAGES_MAX, "{pages} pages without a session to claim");
    let first = 4 * OTHERS + 1;
    add_sessions(first, 1, "next_due", "10");
    add_sessions(first + 1, 1, "lane", &dead.lanes[0].0.to_string());
    add_sessions(first + 2, 1, "next_owner", &node.node.to_string());
    add_sessions(first + 3, 1, "lane", "NULL");
    SERVER.execute(&format!(
        "UPDATE plans.lanes SET may_own = true; \
         INSERT INTO plans.calls(id, session, asked_by, request) \
         SELECT id, key, {}, '' FROM plans.sessions WHERE name = 'session {}'",
        node.node,
        first + 3
    ));
    let pages = claim_pages(&node, 100).await;
    assert!(pages < PAGES_MAX, "{pages} pages");
    let claim = SessionClaim {
        node: node.node,
        lane: node.lanes[0],
        now: Time(1_000),
        limit: 100,
        skipped: Vec::new(),
    };
    let claimed = store.claim(&claim).await.unwrap();
    let numbers: Vec<u128> = claimed.iter().map(|it| it.id.as_uuid().as_u128()).collect();
    assert_eq!(numbers, [3, 0, 1, 2].map(|offset| u128::from(first) + offset));
}
