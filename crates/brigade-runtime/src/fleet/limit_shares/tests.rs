//! Tests of the division: a table, and properties over random demands.

use brigade_model::ids::Time;
use brigade_store::RateLevels;

use super::*;

#[test]
fn a_limit_is_divided_by_demand() {
    for (limit, demands, expected) in [
        (16, &[][..], &[][..]),
        (16, &[0, 0], &[0, 0]),
        (16, &[5, 0], &[16, 0]),
        (16, &[100, 100], &[8, 8]),
        (16, &[300, 100], &[12, 4]),
        // A small demand gets one at least.
        (16, &[1_000, 1], &[15, 1]),
        (10, &[1, 1, 1], &[4, 3, 3]),
        (2, &[0, 7, 1], &[0, 1, 1]),
        (0, &[1, 1], &[0, 0]),
        (u64::MAX, &[u64::MAX, u64::MAX], &[u64::MAX / 2 + 1, u64::MAX / 2]),
    ] {
        assert_eq!(divide_limit(limit, demands, 0), expected, "{limit} {demands:?}");
    }
}

#[test]
fn nodes_take_turns_when_there_is_not_one_call_for_each() {
    let turns: Vec<_> = (0..4).map(|turn| divide_limit(2, &[9, 0, 1, 5], turn)).collect();
    assert_eq!(turns, [[1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1], [1, 0, 1, 0]]);
}

#[test]
fn calls_above_the_demand_stay_free_for_idle_nodes() {
    for (limit, demands, open, expected) in [
        (16, &[1, 0][..], 2, &[8, 0][..]),
        (16, &[4, 4], 4, &[6, 6]),
        (16, &[16, 0], 2, &[16, 0]),
        (16, &[30, 0], 2, &[16, 0]),
        (16, &[24, 8], 2, &[12, 4]),
        (1, &[1, 1], 2, &[1, 0]),
    ] {
        assert_eq!(divide_calls(limit, demands, open, 0), expected, "{limit} {demands:?}");
    }
}

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

#[test]
fn shares_are_never_above_the_limit_and_follow_the_demand() {
    for seed in 1..=3_000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let limit = random.below(100);
        let most = [2, 10, 1_000][usize::try_from(seed % 3).unwrap()];
        let count = 1 + random.below(8);
        let demands: Vec<u64> = (0..count).map(|_| random.below(most)).collect();
        let turn = random.below(10);
        let wanting = demands.iter().filter(|demand| **demand > 0).count() as u64;
        let seen = format!("seed {seed}: {limit} {demands:?} turn {turn}");

        let shares = divide_limit(limit, &demands, turn);
        assert_eq!(
            shares.iter().sum::<u64>(),
            if wanting > 0 { limit } else { 0 }.min(limit),
            "{seen}"
        );
        let calls = divide_calls(limit, &demands, count, turn);
        assert!(calls.iter().sum::<u64>() <= limit, "{seen}: {calls:?}");
        for shares in [&shares, &calls] {
            for (one, (demand, share)) in demands.iter().zip(shares).enumerate() {
                assert!(*share == 0 || *demand > 0, "{seen}: {shares:?}");
                if wanting <= limit {
                    assert_eq!(*share > 0, *demand > 0, "{seen}: {shares:?}");
                    for (other, share_of_other) in demands.iter().zip(shares) {
                        assert!(
                            other > demand || share_of_other <= &(share + 1),
                            "{seen}: {one} {shares:?}"
                        );
                    }
                }
            }
        }
        // Every node with demand has a turn within as many turns as there are of them.
        let mut all = vec![0; demands.len()];
        for turn in 0..wanting.max(1) {
            for (sum, share) in all.iter_mut().zip(divide_limit(limit, &demands, turn)) {
                *sum += share;
            }
        }
        let is_served = |(demand, sum): (&u64, &u64)| *demand == 0 || *sum > 0 || limit == 0;
        assert!(demands.iter().zip(&all).all(is_served), "{seen}: {all:?}");
    }
}

#[test]
fn nodes_that_know_the_same_demands_divide_without_overlap() {
    let limits = LimitAmounts { running: 16, requests: 60, tokens: 90_000 };
    let demand = |running, tokens| LimitAmounts { running, requests: running, tokens };
    let demands = [
        NodeDemand { node: NodeId(1), demand: demand(30, 60_000) },
        NodeDemand { node: NodeId(2), demand: demand(0, 0) },
        NodeDemand { node: NodeId(3), demand: demand(10, 120_000) },
    ];
    let grant = LimitGrant {
        held: LimitAmounts::default(),
        free: LimitAmounts::default(),
        added: RateLevels::default(),
        closed_for: None,
        now: Time(25_000),
        open_nodes: 4,
        demands: demands.to_vec(),
    };
    let known = ProviderDemands::of(&grant);
    let share = |number: usize| known.share(limits, demands[number].node, demands[number].demand);
    assert_eq!(share(0), LimitAmounts { running: 12, requests: 45, tokens: 30_000 });
    assert_eq!(share(1), LimitAmounts::default());
    assert_eq!(share(2), LimitAmounts { running: 4, requests: 15, tokens: 60_000 });
    assert_eq!(known.opening_turn(NodeId(1)), (0, 2));
    assert_eq!(known.opening_turn(NodeId(2)), (1, 3));
    assert_eq!(known.opening_turn(NodeId(3)), (1, 2));
}
