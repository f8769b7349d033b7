//! The division of a provider's limits among nodes.

use brigade_store::{LimitAmounts, LimitGrant, NodeDemand, NodeId};

/// The time after which another node has its turn, if there are more nodes with demand than calls may run.
const TURN_SECONDS: u64 = 10;

/// The nodes that want calls of a provider, as the last exchange showed them.
#[derive(Clone, Debug)]
pub(super) struct ProviderDemands {
    nodes: Vec<NodeDemand>,
    open_nodes: u64,
    turn: u64,
}

impl ProviderDemands {
    pub(super) fn of(grant: &LimitGrant) -> Self {
        Self {
            nodes: grant.demands.clone(),
            open_nodes: grant.open_nodes,
            turn: grant.now.0 / 1000 / TURN_SECONDS,
        }
    }

    /// Returns the share of a node that has a demand.
    pub(super) fn share(
        &self,
        limits: LimitAmounts,
        own: NodeId,
        demand: LimitAmounts,
    ) -> LimitAmounts {
        let mut nodes: Vec<NodeDemand> =
            self.nodes.iter().filter(|other| other.node != own).copied().collect();
        let place = nodes.partition_point(|other| other.node < own);
        nodes.insert(place, NodeDemand { node: own, demand });
        let demands = |amount: fn(&LimitAmounts) -> u64| -> Vec<u64> {
            nodes.iter().map(|node| amount(&node.demand)).collect()
        };
        let running = demands(|it| it.running);
        let open = self.open_nodes.max(nodes.len() as u64);
        LimitAmounts {
            running: divide_calls(limits.running, &running, open, self.turn)[place],
            requests: divide_limit(limits.requests, &demands(|it| it.requests), self.turn)[place],
            tokens: divide_limit(limits.tokens, &demands(|it| it.tokens), self.turn)[place],
        }
    }

    /// Returns the number of nodes with demand, and of those before this one.
    pub(super) fn opening_turn(&self, own: NodeId) -> (u32, u32) {
        let wanting = self.nodes.iter().filter(|it| it.demand.running > 0 && it.node != own);
        let earlier = wanting.clone().filter(|other| other.node < own).count();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        (number(earlier), number(wanting.count() + 1))
    }
}

/// Divides calls that may run at once. If there are enough for all, each node gets what it wants and an
/// equal part of the others, for its next calls. The parts of nodes without demand stay free, so that their
/// first calls need not wait for another node.
fn divide_calls(limit: u64, demands: &[u64], open_nodes: u64, turn: u64) -> Vec<u64> {
    let sum = demands.iter().fold(0, |sum: u64, demand| sum.saturating_add(*demand));
    if sum > limit {
        return divide_limit(limit, demands, turn);
    }
    let spare = (limit - sum) / open_nodes.max(1);
    demands.iter().map(|demand| if *demand == 0 { 0 } else { demand + spare }).collect()
}

/// Divides a limit by demand. The shares of nodes with demand are the whole limit. Each of them gets at least
/// one; if the limit is smaller than their number, they take turns.
fn divide_limit(limit: u64, demands: &[u64], turn: u64) -> Vec<u64> {
    let wanting: Vec<usize> = (0..demands.len()).filter(|node| demands[*node] > 0).collect();
    let mut shares = vec![0; demands.len()];
    let count = wanting.len() as u64;
    if count >= limit {
        for place in 0..limit {
            let node = turn.wrapping_add(place) % count;
            shares[wanting[usize::try_from(node).unwrap_or_default()]] = 1;
        }
        return shares;
    }
    if count == 0 {
        return shares;
    }
    let spread = u128::from(limit - count);
    let sum: u128 = wanting.iter().map(|node| u128::from(demands[*node])).sum();
    let mut remaining = limit - count;
    let mut remainders = Vec::with_capacity(wanting.len());
    for node in wanting {
        let part = spread * u128::from(demands[node]);
        let whole = u64::try_from(part / sum).unwrap_or(u64::MAX);
        shares[node] = 1 + whole;
        remaining -= whole;
        remainders.push((part % sum, node));
    }
    // The largest remainders are rounded up.
    remainders.sort_by_key(|(remainder, node)| (std::cmp::Reverse(*remainder), *node));
    for (_, node) in remainders.into_iter().take(usize::try_from(remaining).unwrap_or(usize::MAX)) {
        shares[node] += 1;
    }
    shares
}

#[cfg(test)]
mod tests;
