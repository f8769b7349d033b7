//! The parts of providers' limits that the nodes of a fleet hold.

use std::time::Duration;

use brigade_model::ids::Time;

use crate::fleet::NodeId;

/// Amounts of the limits of a provider, of one node or of all. An amount that has no limit is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitAmounts {
    /// Calls that run at once.
    pub running: u64,
    /// Requests per minute.
    pub requests: u64,
    /// Tokens per minute.
    pub tokens: u64,
}

impl LimitAmounts {
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// Requests and tokens that can be used at once. They are negative after more was used than expected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateLevels {
    pub requests: f64,
    pub tokens: f64,
}

/// The report of a node about one provider.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitReport {
    pub node: NodeId,
    pub provider: String,
    /// The number of the report. A report that arrives after one with a higher number is ignored.
    pub number: u64,
    /// The limits of all nodes together.
    pub limits: LimitAmounts,
    /// The most that the node uses until it gets a grant.
    pub held: LimitAmounts,
    /// The amounts that the node wants to hold.
    pub wanted: LimitAmounts,
    /// The calls that run or wait, and their tokens.
    pub demand: LimitAmounts,
    /// The levels that the node gives back, of the amounts that it holds no more.
    pub returned: RateLevels,
    /// The time for which the provider refuses calls, as it told this node.
    pub closed_for: Option<Duration>,
}

/// The reply to a report.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitGrant {
    /// The amounts that the node holds from now on: at least `held`, at most `held` or `wanted`.
    pub held: LimitAmounts,
    /// The amounts that nobody holds.
    pub free: LimitAmounts,
    /// The levels that come with the amounts that were added.
    pub added: RateLevels,
    /// The time for which the provider refuses calls, as it told any node.
    pub closed_for: Option<Duration>,
    /// The time of the store.
    pub now: Time,
    /// The number of open nodes.
    pub open_nodes: u64,
    /// The last reports of the open nodes, by ascending id, with this one.
    pub demands: Vec<NodeDemand>,
}

/// The demand of one node for the calls of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDemand {
    pub node: NodeId,
    pub demand: LimitAmounts,
}
