//! Random faults at every request to the store, dead and silent nodes, and moves. Each seed is one run.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_runtime::{FeedUpdate, Runtime};
use brigade_store::{EventQuery, Store, TaskQuery};
use brigade_testkit::{ConnectionCondition, NodeConnection};

use crate::support::*;

const NODES: [&str; 3] = ["one", "two", "three"];
const SESSIONS: usize = 4;
const ROUNDS: usize = 12;

/// A source of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
}

/// A node that can be started again.
struct ChaosNode {
    name: &'static str,
    runtime: Option<Runtime>,
    connection: std::sync::Arc<NodeConnection>,
}

/// A spawn that was acknowledged, or may have happened.
struct AskedSpawn {
    session: String,
    key: String,
    acknowledged: Option<TaskNo>,
}

fn is_expected(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown)
}

/// Lets three nodes work on a few sessions with faults, then checks what clients were told against
/// what is stored.
async fn run(seed: u64) {
    let fleet = TestFleet::new();
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut nodes = Vec::new();
    for name in NODES {
        let TestNode { runtime, connection } = fleet.node(name).await;
        connection.set_faults(seed ^ random.below(u64::MAX), 30, Duration::from_millis(20));
        nodes.push(ChaosNode { name, runtime: Some(runtime), connection });
    }
    let mut asked = Vec::new();
    for round in 0..ROUNDS {
        disturb(&fleet, &mut nodes, &mut random).await;
        for request in 0..6 {
            let number = random.below(SESSIONS as u64);
            let node = &nodes[usize::try_from(random.below(3)).unwrap()];
            let Some(runtime) = &node.runtime else { continue };
            let session = format!("session {number}");
            let key = format!("{round}/{request}");
            let spawn = async {
                let seconds = 1 + number * 2;
                let session = runtime.session(&session).await?;
                session.spawn(WORK.with(seconds).key(key.as_str())).await.map(|task| task.no())
            };
            let result = tokio::time::timeout(40 * SECOND, spawn).await;
            let acknowledged = match result {
                Ok(Ok(no)) => Some(no),
                Ok(Err(refusal)) => {
                    assert!(is_expected(&refusal), "seed {seed}: {refusal}");
                    None
                }
                Err(_) => None,
            };
            asked.push(AskedSpawn { session, key, acknowledged });
        }
        tokio::time::sleep(Duration::from_millis(random.below(8_000))).await;
    }
    for node in &mut nodes {
        node.connection.set(ConnectionCondition::Works);
        node.connection.set_faults(0, 0, Duration::ZERO);
        if node.runtime.is_none() {
            node.runtime = Some(fleet.start(node.name, node.connection.clone(), |b| b).await);
        }
    }
    tokio::time::sleep(120 * SECOND).await;
    let acknowledged = asked.iter().filter(|spawn| spawn.acknowledged.is_some()).count();
    println!("seed {seed}: {acknowledged} of {} spawns acknowledged, {}", asked.len(), fleet.work);
    check(&fleet, &nodes, &asked, seed).await;
}

/// Ends, silences or restores a node.
async fn disturb(fleet: &TestFleet, nodes: &mut [ChaosNode], random: &mut Random) {
    let at = usize::try_from(random.below(3)).unwrap();
    let alive = nodes.iter().filter(|node| node.runtime.is_some()).count();
    let node = &mut nodes[at];
    match random.below(6) {
        0 if alive > 1 => node.runtime = None,
        1 => node.connection.set(ConnectionCondition::Hangs),
        2 => node.connection.set(ConnectionCondition::Cut),
        3 | 4 => node.connection.set(ConnectionCondition::Works),
        _ => {}
    }
    for node in nodes.iter_mut().filter(|node| node.runtime.is_none()) {
        if random.below(2) == 0 {
            // A start needs the store.
            node.connection.set(ConnectionCondition::Works);
            let seed = random.below(u64::MAX);
            node.connection.set_faults(0, 0, Duration::ZERO);
            node.runtime = Some(fleet.start(node.name, node.connection.clone(), |b| b).await);
            node.connection.set_faults(seed, 30, Duration::from_millis(20));
        }
    }
}

async fn check(fleet: &TestFleet, nodes: &[ChaosNode], asked: &[AskedSpawn], seed: u64) {
    fleet.work.check();
    // Nothing is lost and nothing is there twice.
    for row in fleet.store.sessions().await.unwrap() {
        let tasks = fleet.store.tasks(row.id, &TaskQuery::default()).await.unwrap();
        for spawn in asked.iter().filter(|spawn| spawn.session == row.name.as_str()) {
            let has_key = |key: &str| spawn.key == key;
            let with_key = tasks
                .iter()
                .filter(|task| task.row.spec.key.as_ref().is_some_and(|key| has_key(key.as_str())));
            let numbers: Vec<TaskNo> = with_key.map(|task| task.no).collect();
            assert!(numbers.len() <= 1, "seed {seed}: {} is there twice", spawn.key);
            if let Some(no) = spawn.acknowledged {
                assert_eq!(numbers, [no], "seed {seed}: {} of {}", spawn.key, spawn.session);
            }
        }
        for task in &tasks {
            assert!(
                !task.row.is_alive(),
                "seed {seed}: {} is {:?}",
                task.address(),
                task.row.state
            );
        }
        check_events(fleet, row.id, seed).await;
        // Every node collects the results, each of them once.
        let mut collected = 0;
        for node in nodes {
            let runtime = node.runtime.as_ref().unwrap();
            let session = runtime.session(row.name.as_str()).await.unwrap();
            let results = session.wait_uncollected(WaitMode::All).await.unwrap();
            collected += results.iter().filter(|result| !result.collected_before).count();
        }
        assert_eq!(collected, tasks.len(), "seed {seed}: results of {}", row.name);
    }
    let mut last: std::collections::BTreeMap<SessionId, u64> = Default::default();
    let runtime = nodes[0].runtime.as_ref().unwrap();
    tokio::time::sleep(SECOND).await;
    let end = runtime.cursor();
    let mut feed = runtime.subscribe(FeedCursor::START);
    while let Some(FeedUpdate::Event(item)) = feed.next_until(&end).await.unwrap() {
        let last = last.entry(item.record.session).or_default();
        assert_eq!(item.record.seq.0, *last + 1, "seed {seed}");
        *last += 1;
    }
}

/// Checks that the events of a session have no gap, and that each epoch has one lane.
async fn check_events(fleet: &TestFleet, session: SessionId, seed: u64) {
    let query = EventQuery { session: Some(session), after: FeedCursor::START, limit: usize::MAX };
    let page = fleet.store.events(&query).await.unwrap();
    let mut numbers: Vec<u64> = page.items.iter().map(|item| item.record.seq.0).collect();
    numbers.sort_unstable();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "seed {seed}: events of {session}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_nothing_happens_twice() {
    for seed in 1..=30 {
        run(seed).await;
    }
}

/// One run with a seed from the environment, or a fresh one, which is printed.
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_with_a_fresh_seed() {
    let fresh = || u64::from(std::process::id()) << 20 | 1;
    let seed = std::env::var("BRIGADE_FLEET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(fresh);
    println!("BRIGADE_FLEET_SEED={seed}");
    run(seed).await;
}
