//! Nodes of a fleet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiTime;

/// The largest difference between the clocks of a node and of the store that is no cause for a warning.
const CLOCK_SKEW_MAX_MS: u64 = 1_000;

/// A node of the fleet: a server that shares its store with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeBody {
    /// The name, unique among the nodes that have not ended.
    pub name: String,
    /// The machine on which it runs.
    pub host: String,
    /// Open: `running`, `draining`, `expired` (its lease is over, and others take its sessions), `ended`.
    pub state: String,
    /// The time until others take its sessions, unless it renews its lease.
    pub lease_remaining_ms: u64,
    /// The sessions that it owns.
    pub owned_sessions: u64,
    /// The tasks that run on it, as of the last renewal of its lease.
    pub running_tasks: u64,
    /// Its clock minus the clock of the store.
    pub clock_skew_ms: i64,
    /// The clocks differ by more than a second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_skew_warning: bool,
    pub version: String,
    /// The labels that sessions can require.
    pub labels: Vec<String>,
    /// The most sessions that it claims. Absent for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    pub joined_at: ApiTime,
    /// The node that answers.
    pub own: bool,
}

impl NodeBody {
    /// Returns true if a clock that differs by this much from the store's deserves a warning.
    pub fn is_skew_excessive(skew_ms: i64) -> bool {
        skew_ms.unsigned_abs() > CLOCK_SKEW_MAX_MS
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NodeList)]
pub struct NodeListBody {
    /// The server is a node of a fleet. Without a fleet there are no items.
    pub fleet: bool,
    /// The nodes that run, by name, then those that ended in the last day.
    pub items: Vec<NodeBody>,
}

/// A request to a node to claim no more sessions and to give up those at rest, or the end of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = DrainRequest)]
pub struct DrainRequestBody {
    /// False lets the node claim sessions again.
    #[schema(default = true)]
    pub draining: bool,
}

impl Default for DrainRequestBody {
    fn default() -> Self {
        Self { draining: true }
    }
}

/// A request to give a session to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MoveRequest)]
pub struct MoveRequestBody {
    /// The name of the node.
    pub node: String,
}

/// The labels that a node must have to own a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RequiredLabelsRequest)]
pub struct RequiredLabelsRequestBody {
    /// They replace the earlier ones. Each node has the labels `node=NAME` and `host=HOST`.
    pub labels: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_may_differ_by_a_second() {
        for (skew_ms, expected) in
            [(0, false), (1_000, false), (-1_000, false), (1_001, true), (i64::MIN, true)]
        {
            assert_eq!(NodeBody::is_skew_excessive(skew_ms), expected, "{skew_ms}");
        }
    }
}
