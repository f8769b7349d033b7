//! Checks of the parts of providers' limits that nodes hold.

use std::collections::BTreeMap;
use std::time::Duration;

use super::FleetHarness;
use super::fleet_nodes::FleetNode;
use crate::fleet::NodeId;
use crate::provider_limits::{LimitAmounts, LimitGrant, LimitReport, NodeDemand, RateLevels};

const LIMITS: LimitAmounts = LimitAmounts { running: 10, requests: 60, tokens: 6_000 };

fn amounts(running: u64, requests: u64, tokens: u64) -> LimitAmounts {
    LimitAmounts { running, requests, tokens }
}

/// Returns a report of a node that holds an amount and wants another one.
fn report(node: &FleetNode, number: u64, held: LimitAmounts, wanted: LimitAmounts) -> LimitReport {
    LimitReport {
        node: node.id,
        provider: "anthropic".to_owned(),
        number,
        limits: LIMITS,
        held,
        wanted,
        demand: wanted,
        returned: RateLevels::default(),
        closed_for: None,
    }
}

async fn exchange(node: &FleetNode, report: &LimitReport) -> Option<LimitGrant> {
    node.fleet().exchange_limits(report).await.expect("an exchange")
}

async fn grant(node: &FleetNode, report: &LimitReport) -> LimitGrant {
    exchange(node, report).await.expect("the report counts")
}

/// Checks that a node gets what nobody holds, and gives up only what it says.
pub async fn nodes_hold_no_more_than_the_limits(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let a = FleetNode::join(&store, "a").await;
    let b = FleetNode::join(&harness.another_handle(&store).await, "b").await;
    let zero = LimitAmounts::default();
    let given = grant(&a, &report(&a, 1, zero, amounts(7, 60, 1_000))).await;
    assert_eq!(given.held, amounts(7, 60, 1_000));
    assert_eq!(given.free, amounts(3, 0, 5_000));
    assert_eq!((given.open_nodes, given.closed_for), (2, None));
    let given = grant(&b, &report(&b, 1, zero, amounts(9, 9, 9_000))).await;
    assert_eq!(given.held, amounts(3, 0, 5_000));
    assert_eq!(given.free, zero);
    let demands = [
        NodeDemand { node: a.id, demand: amounts(7, 60, 1_000) },
        NodeDemand { node: b.id, demand: amounts(9, 9, 9_000) },
    ];
    assert_eq!(given.demands, demands);
    // Nothing is taken from a node that wants less than it holds.
    let given = grant(&a, &report(&a, 2, amounts(7, 60, 1_000), zero)).await;
    assert_eq!((given.held, given.free), (amounts(7, 60, 1_000), zero));
    let given = grant(&a, &report(&a, 3, amounts(2, 20, 0), amounts(2, 20, 0))).await;
    assert_eq!((given.held, given.free), (amounts(2, 20, 0), amounts(5, 40, 1_000)));
    let given = grant(&b, &report(&b, 2, amounts(3, 0, 5_000), amounts(9, 9, 9_000))).await;
    assert_eq!((given.held, given.free), (amounts(8, 9, 6_000), amounts(0, 31, 0)));
    // Another provider has limits of its own.
    let other = LimitReport { provider: "openai".into(), ..report(&b, 1, zero, amounts(9, 9, 9)) };
    assert_eq!(grant(&b, &other).await.held, amounts(9, 9, 9));
    // Smaller limits take nothing away, and grant nothing more.
    let limits = amounts(4, 4, 4);
    let less = LimitReport { limits, ..report(&b, 3, amounts(8, 9, 6_000), amounts(9, 9, 9_000)) };
    assert_eq!(grant(&b, &less).await.held, amounts(8, 9, 6_000));
}

/// Checks that the part of a closed node is free, and that it gets nothing more.
pub async fn a_closed_node_holds_nothing(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let a = FleetNode::join_briefly(&store, "a").await;
    let b = FleetNode::join(&store, "b").await;
    let zero = LimitAmounts::default();
    assert_eq!(grant(&a, &report(&a, 1, zero, LIMITS)).await.held, LIMITS);
    assert_eq!(grant(&b, &report(&b, 1, zero, LIMITS)).await.held, zero);
    a.expire(harness, &b).await;
    let given = grant(&b, &report(&b, 2, zero, LIMITS)).await;
    assert_eq!((given.held, given.open_nodes), (LIMITS, 1));
    assert_eq!(given.demands, [NodeDemand { node: b.id, demand: LIMITS }]);
    assert_eq!(exchange(&a, &report(&a, 2, LIMITS, LIMITS)).await, None);
    let unknown = LimitReport { node: NodeId(9_999), ..report(&a, 1, zero, LIMITS) };
    assert_eq!(exchange(&a, &unknown).await, None);
    assert_eq!(grant(&b, &report(&b, 3, LIMITS, LIMITS)).await.held, LIMITS);
}

/// Checks that a report that arrives late is ignored.
pub async fn an_outdated_report_changes_nothing(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let a = FleetNode::join(&store, "a").await;
    let b = FleetNode::join(&store, "b").await;
    let zero = LimitAmounts::default();
    let late = report(&a, 1, zero, zero);
    let given = grant(&a, &report(&a, 2, zero, amounts(10, 0, 0))).await;
    assert_eq!(given.held, amounts(10, 0, 0));
    assert_eq!(exchange(&a, &late).await, None);
    assert_eq!(exchange(&a, &report(&a, 2, zero, zero)).await, None);
    assert_eq!(grant(&b, &report(&b, 1, zero, LIMITS)).await.held.running, 0);
}

/// Checks that a closing by one node reaches all, and that the later end counts.
pub async fn a_closing_is_seen_by_all_nodes(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let a = FleetNode::join(&store, "a").await;
    let b = FleetNode::join(&harness.another_handle(&store).await, "b").await;
    let zero = LimitAmounts::default();
    let closing = |number, seconds| LimitReport {
        closed_for: Some(Duration::from_secs(seconds)),
        ..report(&a, number, zero, zero)
    };
    let is_about = |grant: LimitGrant, seconds: u64| {
        let closed = grant.closed_for.expect("it is closed");
        let most = Duration::from_secs(seconds);
        assert!(closed <= most && closed + Duration::from_secs(30) > most, "{closed:?}");
    };
    is_about(grant(&a, &closing(1, 300)).await, 300);
    is_about(grant(&b, &report(&b, 1, zero, zero)).await, 300);
    is_about(grant(&a, &closing(2, 200)).await, 300);
    is_about(grant(&b, &report(&b, 2, zero, zero)).await, 300);
    is_about(grant(&a, &closing(3, 400)).await, 400);
    is_about(grant(&b, &report(&b, 3, zero, zero)).await, 400);
}

/// Checks that an amount comes with its part of the level, once.
pub async fn levels_are_moved_and_not_multiplied(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let a = FleetNode::join(&store, "a").await;
    let b = FleetNode::join(&store, "b").await;
    let zero = LimitAmounts::default();
    // Everything is there at first, and each part of an amount brings its part of the level.
    let given = grant(&a, &report(&a, 1, zero, amounts(0, 15, 6_000))).await.added;
    assert!((given.requests - 15.0).abs() < 0.1, "{given:?}");
    assert!((given.tokens - 6_000.0).abs() < 0.1, "{given:?}");
    // The node has used half of its tokens and returns the others with two thirds of its amount.
    let returned = RateLevels { requests: 0.0, tokens: 2_000.0 };
    let less = amounts(0, 15, 2_000);
    let added = grant(&a, &LimitReport { returned, ..report(&a, 2, less, less) }).await.added;
    assert_eq!(added, RateLevels::default());
    let given = grant(&b, &report(&b, 1, zero, amounts(0, 45, 4_000))).await.added;
    assert!((given.requests - 45.0).abs() < 0.1, "{given:?}");
    // Some tokens may have been refilled since: 67 in a second.
    assert!((2_000.0..3_000.0).contains(&given.tokens), "{given:?}");
    // A debt moves, too.
    let returned = RateLevels { requests: -100.0, tokens: -100_000.0 };
    let debt = LimitReport { returned, ..report(&b, 2, zero, zero) };
    assert_eq!(grant(&b, &debt).await.added, RateLevels::default());
    let given = grant(&b, &report(&b, 3, zero, amounts(0, 45, 4_000))).await.added;
    assert!(given.requests < 0.0 && given.tokens < 0.0, "{given:?}");
}

/// Checks with random reports that nodes never hold more than the limits together, and that levels stay
/// within the amounts.
pub async fn random_exchanges_stay_within_the_limits(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(FleetNode::join(&store, name).await);
    }
    let mut held: BTreeMap<NodeId, LimitAmounts> = BTreeMap::new();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % (most + 1)
    };
    for number in 1..=150 {
        let node = &nodes[usize::try_from(below(2)).expect("a small number")];
        let before = held.get(&node.id).copied().unwrap_or_default();
        let less = amounts(below(before.running), below(before.requests), below(before.tokens));
        let wanted = amounts(below(12), below(70), below(7_000));
        let given = grant(node, &report(node, number, less, wanted)).await;
        held.insert(node.id, given.held);
        let sum = |amount: fn(&LimitAmounts) -> u64| held.values().map(amount).sum::<u64>();
        let sums = amounts(sum(|it| it.running), sum(|it| it.requests), sum(|it| it.tokens));
        let free = given.free;
        let all = amounts(
            sums.running + free.running,
            sums.requests + free.requests,
            sums.tokens + free.tokens,
        );
        assert_eq!(all, LIMITS, "report {number}");
        assert!(given.held.running <= less.running.max(wanted.running), "report {number}");
        assert!(given.added.tokens <= given.held.tokens as f64 + 0.1, "report {number}");
    }
}
