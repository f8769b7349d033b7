//! Leases, claims and releases beside commits, restarts and lost connections.

use std::time::Duration;

use brigade_model::ids::{Epoch, Lane, Seq, SessionId, Time};
use brigade_model::limits::Limits;
use brigade_model::task_tree::ChangedRows;
use brigade_model::transition::{SessionOpening, open_session};
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::{
    AcquireResult, Batch, CallId, CallTarget, ClaimedSession, Fleet, JoinResult, JoinedNode,
    NewCall, NewNode, NodeId, NodeLoad, SessionBatch, SessionClaim, SessionRelease, Store,
    StoreError,
};
use uuid::Uuid;

use crate::support::SERVER;

const HOUR: Duration = Duration::from_secs(3_600);

async fn open(schema: &str, settings: &str) -> PostgresStore {
    let url = format!("{}?{settings}", SERVER.url());
    let options = PostgresOptions::from_url(&url).unwrap().schema(schema).unwrap();
    PostgresStore::open(&options).await.unwrap()
}

async fn join(store: &PostgresStore, name: &str, lease: Duration) -> JoinedNode {
    let node = NewNode {
        name: name.to_owned(),
        host: "kitchen".to_owned(),
        labels: Vec::new(),
        capacity: None,
        version: "1".to_owned(),
        lease,
        lanes: 1,
    };
    match store.join(&node).await.unwrap() {
        JoinResult::Joined(joined) => joined,
        taken => panic!("{taken:?}"),
    }
}

fn opening(number: u128) -> SessionBatch {
    let (mut tree, record) = open_session(SessionOpening {
        id: id(number),
        name: format!("session {number}").parse().unwrap(),
        limits: Limits::default(),
        at: Time(1_000),
        epoch: Epoch::FIRST,
    });
    let ChangedRows { tasks, messages } = tree.take_dirty();
    let row = tree.row().clone();
    let events = vec![record];
    SessionBatch { row, base: Default::default(), events, tasks, journal: Vec::new(), messages }
}

fn id(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

async fn open_sessions(store: &PostgresStore, lane: Lane, numbers: &[u128]) {
    let sessions = numbers.iter().map(|number| opening(*number)).collect();
    store.commit(&Batch { lane, sessions, ..Batch::default() }).await.unwrap();
}

fn release(lane: Lane, number: u128) -> SessionRelease {
    SessionRelease {
        lane,
        id: id(number),
        epoch: Epoch::FIRST,
        seq: Seq(1),
        next_due: None,
        next_owner: None,
    }
}

async fn claim(store: &PostgresStore, node: &JoinedNode, limit: usize) -> Vec<ClaimedSession> {
    let claim = SessionClaim {
        node: node.node,
        lane: node.lanes[0],
        now: Time(5_000),
        limit,
        skipped: Vec::new(),
    };
    store.claim(&claim).await.unwrap()
}

/// Waits until a statement of a schema waits for a lock.
async fn wait_for_blocked(text: &str) {
    let blocked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{text}%'"
    );
    while SERVER.execute(&blocked) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn closed(store: &PostgresStore) -> Vec<NodeId> {
    store.close_expired().await.unwrap().iter().map(|row| row.id).collect()
}

#[tokio::test]
async fn no_node_is_closed_shortly_after_a_start_or_a_promotion() {
    let store = open("restarted", "").await;
    let day = Duration::from_secs(24 * 3_600);
    let node = join(&store, "a", day).await;
    // The lease is over, and the server has not run for as long as a lease.
    SERVER.execute("UPDATE restarted.nodes SET lease_until = clock_timestamp() - interval '1 s'");
    assert_eq!(closed(&store).await, []);
    // The server is on a timeline that nobody has seen.
    SERVER.execute("UPDATE restarted.meta SET value = 99 WHERE name = 'timeline'");
    assert_eq!(closed(&store).await, []);
    let seen = "SELECT value FROM restarted.meta WHERE name = 'timeline'";
    assert_eq!(SERVER.execute(seen), "1");
    let since = "SELECT value > 0 FROM restarted.meta WHERE name = 'timeline_since'";
    assert_eq!(SERVER.execute(since), "t");
    // The server has run for a lease, and was promoted later.
    SERVER.execute(
        "UPDATE restarted.nodes SET lease_ms = 1000 * floor(extract(epoch FROM \
         clock_timestamp() - pg_postmaster_start_time()))::bigint",
    );
    SERVER
        .execute("UPDATE restarted.meta SET value = value + 3600000 WHERE name = 'timeline_since'");
    assert_eq!(closed(&store).await, []);
    SERVER.execute("UPDATE restarted.meta SET value = 0 WHERE name = 'timeline_since'");
    assert_eq!(closed(&store).await, [node.node]);
    assert_eq!(store.renew(node.node, &NodeLoad::default()).await.unwrap(), None);
}

#[tokio::test]
async fn a_lane_from_before_a_promotion_accepts_no_commit() {
    let store = open("promoted", "").await;
    let node = join(&store, "a", HOUR).await;
    let lane = node.lanes[0];
    open_sessions(&store, lane, &[1]).await;
    assert!(store.renew(node.node, &NodeLoad::default()).await.unwrap().is_some());
    // The server is on another timeline than the lane.
    SERVER.execute("UPDATE promoted.lanes SET timeline = timeline + 1 WHERE timeline > 0");
    let batch = Batch { lane, sessions: vec![opening(2)], ..Batch::default() };
    let refused = store.commit(&batch).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced(_)), "{refused}");
    assert_eq!(store.session(id(2)).await.unwrap(), None);
    assert_eq!(store.renew(node.node, &NodeLoad::default()).await.unwrap(), None);
    // Nobody else takes its session before the node has closed itself, or its lease is over.
    let other = join(&store, "b", HOUR).await;
    assert_eq!(claim(&store, &other, 10).await, []);
    store.close_node(node.node).await.unwrap();
    assert_eq!(claim(&store, &other, 10).await.len(), 1);
    // Numbers that a promoted server may not have received are not given again.
    SERVER.execute("UPDATE promoted.meta SET value = 99 WHERE name = 'timeline'");
    let later = join(&store, "a", HOUR).await;
    assert!(later.node.0 > other.node.0 + 1_000, "{later:?}");
    assert!(later.lanes[0].0 > other.lanes[0].0 + 1_000, "{later:?}");
    assert_eq!(later.history, node.history, "the server has not changed");
    open_sessions(&store, later.lanes[0], &[2]).await;
}

#[tokio::test]
async fn a_renewal_waits_for_no_other_statement() {
    let store = open("renewed", "connections=1").await;
    let node = join(&store, "a", HOUR).await;
    let other = join(&store, "b", Duration::ZERO).await;
    let mut held = SERVER.hold_lock(&format!(
        "SELECT FROM renewed.lanes WHERE lane = {} FOR UPDATE; LOCK TABLE renewed.sessions",
        other.lanes[0].0
    ));
    let load = NodeLoad::default();
    // A read, a commit and a close wait for locks.
    let batch = Batch { lane: other.lanes[0], ..Batch::default() };
    let ids = [id(1)];
    let waiting = async {
        let _ = tokio::join!(store.owners(&ids), store.commit(&batch), store.close_expired());
    };
    tokio::select! {
        () = waiting => panic!("they wait"),
        renewed = async {
            wait_for_blocked("\"renewed\".commit_batch").await;
            wait_for_blocked("\"renewed\".close_expired").await;
            store.renew(node.node, &load).await
        } => assert!(renewed.unwrap().is_some()),
    }
    // A renewal that has to wait itself is given up.
    let mut row = SERVER.hold_lock("SELECT FROM renewed.nodes FOR UPDATE");
    let late = store.renew(node.node, &load).await.unwrap_err();
    assert!(matches!(late, StoreError::Unavailable(_)), "{late}");
    row.release();
    held.release();
    assert!(store.renew(node.node, &load).await.unwrap().is_some());
}

#[tokio::test]
async fn a_close_waits_for_an_acquisition_of_its_lane() {
    let store = open("closing", "").await;
    let node = join(&store, "a", Duration::ZERO).await;
    let other = join(&store, "b", HOUR).await;
    let lane = other.lanes[0];
    open_sessions(&store, lane, &[1]).await;
    assert!(store.release(&release(lane, 1)).await.unwrap());
    // The acquisition has its lane, and waits for the session.
    let mut held = SERVER.hold_lock("SELECT FROM closing.sessions FOR UPDATE");
    let row = opening(1).row;
    let (acquired, closed) = tokio::join!(store.acquire(node.lanes[0], &row), async {
        wait_for_blocked("UPDATE \"closing\".sessions").await;
        let (closed, ()) = tokio::join!(closed(&store), async {
            wait_for_blocked("\"closing\".close_expired").await;
            held.release();
        });
        closed
    });
    assert!(matches!(acquired.unwrap(), AcquireResult::Acquired(_)));
    assert_eq!(closed, [node.node]);
    assert_eq!(claim(&store, &other, 10).await.len(), 1);
}

#[tokio::test]
async fn a_closed_lane_without_sessions_is_not_looked_at_again() {
    let store = open("forgotten", "").await;
    let node = join(&store, "a", Duration::ZERO).await;
    let other = join(&store, "b", HOUR).await;
    open_sessions(&store, node.lanes[0], &[1, 2, 3]).await;
    let unowned = store.open_lane().await.unwrap();
    open_sessions(&store, unowned, &[4]).await;
    assert_eq!(closed(&store).await, [node.node]);
    let lanes = "SELECT string_agg(may_own::text, ' ' ORDER BY lane) FROM forgotten.lanes";
    assert_eq!(claim(&store, &other, 2).await.len(), 2);
    assert_eq!(SERVER.execute(lanes), "true true true");
    // The session of a lane that belongs to no node is claimed, too. That lane may get others.
    assert_eq!(claim(&store, &other, 10).await.len(), 2);
    assert_eq!(SERVER.execute(lanes), "false true true");
    open_sessions(&store, unowned, &[5]).await;
    assert_eq!(claim(&store, &other, 10).await.len(), 1);
}

#[tokio::test]
async fn a_lost_release_is_refused_later() {
    let store = open("released", "").await;
    let node = join(&store, "a", HOUR).await;
    let lane = node.lanes[0];
    open_sessions(&store, lane, &[1]).await;
    let mut held = SERVER.hold_lock("SELECT FROM released.lanes FOR UPDATE");
    let given = release(lane, 1);
    let (lost, ()) = tokio::join!(store.release(&given), async {
        wait_for_blocked("\"released\".release_session").await;
        SERVER.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE wait_event_type = 'Lock' AND query LIKE '%\"released\".release_session%'",
        );
    });
    assert!(matches!(lost.unwrap_err(), StoreError::Unavailable(_)));
    held.release();
    store.refuse_late_commits(lane).await.unwrap();
    assert_eq!(SERVER.execute("SELECT generation FROM released.lanes"), "1");
    // A release of the earlier generation changes nothing.
    let late = format!(
        "SELECT released.release_session({}, 0, '{}', 1, 1, NULL, NULL)",
        lane.0,
        id(1).as_uuid()
    );
    assert_eq!(SERVER.execute(&late), "f");
    assert!(store.release(&given).await.unwrap());
}

/// A claim sees sessions without an owner, and another node acquires them before the claim locks them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_no_session_that_another_node_has_just_acquired() {
    const ROUNDS: usize = 3;
    let store = open("raced", "").await;
    let [owner, claimer] = [join(&store, "a", HOUR).await, join(&store, "b", HOUR).await];
    let lane = owner.lanes[0];
    let numbers: Vec<u128> = (1..=300).collect();
    open_sessions(&store, lane, &numbers).await;
    // Open calls let both nodes want the sessions.
    for number in &numbers {
        let (id, target) = (CallId(Uuid::from_u128(*number)), CallTarget::Session(id(*number)));
        let call = NewCall { id, target, asked_by: owner.node, request: vec![1] };
        assert!(store.ask(&call).await.unwrap());
    }
    for _ in 0..ROUNDS {
        SERVER.execute("UPDATE raced.sessions SET lane = NULL");
        let acquiring = async {
            let mut acquired_sessions = Vec::new();
            // A claim begins with the first one.
            for number in numbers.iter().rev() {
                let row = store.session(id(*number)).await.unwrap().unwrap();
                let acquired = store.acquire(lane, &row).await.unwrap();
                if let AcquireResult::Acquired(acquired) = acquired {
                    acquired_sessions.push((*number, acquired.epoch));
                }
            }
            acquired_sessions
        };
        let claiming = async {
            let mut count = 0;
            loop {
                match claim(&store, &claimer, 300).await.len() {
                    0 => return count,
                    more => count += more,
                }
            }
        };
        let (acquired, claimed) = tokio::join!(acquiring, claiming);
        for (number, epoch) in &acquired {
            let own = SessionRelease { epoch: *epoch, ..release(lane, *number) };
            assert!(store.release(&own).await.unwrap(), "the claim took session {number}");
        }
        assert_eq!(acquired.len() + claimed, numbers.len());
    }
}
