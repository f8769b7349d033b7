//! The leases: the clock, renewals, pauses, and performers that must not overlap.
//!
//! The fence of `writers` protects rows. It cannot protect the outside: a model call or a command
//! of an old owner must end before the next owner starts its own. Only time orders these two. Time
//! is relative: each state has the ticks that are left, so that the clock needs no end.

pub(crate) mod actions;
pub(crate) mod state;

use stateright::{Model, Property};

use actions::LeaseAction;
use state::{LeaseState, LeasedNode, LeasedSession, NodePhase};

pub(crate) const NO_OVERLAP: &str = "two nodes never perform for one session at once";
pub(crate) const OPEN_WHILE_PERFORMING: &str = "the lane of a node that performs is open";

/// One wrong rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseMutant {
    /// A node counts its lease from the answer of a renewal.
    CountFromAnswer,
    /// A resumed node performs until its timer for halting has run.
    UncheckedResume,
    /// A session is acquired as soon as the lease of its owner is over, without closing the lane.
    AcquireWithoutClosing,
    /// A renewal of a closed lane opens it again.
    RenewalOpensLane,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseModel {
    pub(crate) nodes: usize,
    pub(crate) sessions: usize,
    /// The epochs of a session: one more than its moves.
    pub(crate) epochs: u8,
    /// The length of a lease in ticks.
    pub(crate) ttl: u8,
    /// The ticks before the end of its lease at which a node begins to halt its performers. It has
    /// until the next tick to do so.
    pub(crate) margin: u8,
    /// How often the database's clock jumps forward by one tick.
    pub(crate) jumps: u8,
    pub(crate) mutant: Option<LeaseMutant>,
}

impl Model for LeaseModel {
    type State = LeaseState;
    type Action = LeaseAction;

    fn init_states(&self) -> Vec<LeaseState> {
        let node = LeasedNode {
            is_open: true,
            lease: self.ttl,
            phase: NodePhase::Up,
            belief: self.ttl,
            performs: true,
            renewal: None,
            held: vec![false; self.sessions],
        };
        vec![LeaseState {
            nodes: vec![node; self.nodes],
            sessions: vec![LeasedSession { epoch: 0, owner: None }; self.sessions],
            jumps: 0,
        }]
    }

    fn actions(&self, state: &LeaseState, actions: &mut Vec<LeaseAction>) {
        self.collect_actions(state, actions);
    }

    fn next_state(&self, state: &LeaseState, action: LeaseAction) -> Option<LeaseState> {
        let mut next = state.clone();
        self.perform(&mut next, action);
        if self.mutant.is_none() {
            next.reduce(self.ttl, self.margin);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_OVERLAP, |_, state: &LeaseState| {
                (0..state.sessions.len()).all(|session| {
                    let performs = |node: &&LeasedNode| node.performs_now() && node.held[session];
                    state.nodes.iter().filter(performs).count() <= 1
                })
            }),
            Property::always(OPEN_WHILE_PERFORMING, |_, state: &LeaseState| {
                let has_session = |node: &LeasedNode| node.held.contains(&true);
                let performs = |node: &&LeasedNode| node.performs_now() && has_session(node);
                state.nodes.iter().filter(performs).all(|node| node.is_open)
            }),
            Property::sometimes("a session of a paused node is taken over", |_, state| {
                is_taken_over(state, NodePhase::Paused)
            }),
            Property::sometimes("a node resumes after it has lost a session", |_, state| {
                is_taken_over(state, NodePhase::Up)
            }),
            Property::sometimes("a node performs after a takeover", |_, state: &LeaseState| {
                state.sessions.iter().enumerate().any(|(session, row)| {
                    let performs = |node: &LeasedNode| node.performs_now() && node.held[session];
                    row.epoch > 1 && state.nodes.iter().any(performs)
                })
            }),
            Property::sometimes("a node that has halted is renewed", |model: &Self, state| {
                is_renewed_late(model, state)
            }),
        ]
    }
}

/// Returns true if a node in this phase remembers a session that another node performs.
fn is_taken_over(state: &LeaseState, phase: NodePhase) -> bool {
    state.sessions.iter().enumerate().any(|(session, row)| {
        let Some(owner) = row.owner else { return false };
        let is_old = |(no, node): (usize, &LeasedNode)| {
            no != owner && node.phase == phase && node.held[session] && !node.is_open
        };
        let is_performed = state.nodes[owner].performs_now() && state.nodes[owner].held[session];
        is_performed && state.nodes.iter().enumerate().any(is_old)
    })
}

fn is_renewed_late(model: &LeaseModel, state: &LeaseState) -> bool {
    let has_session = |node: &LeasedNode| node.held.contains(&true);
    let is_late = |node: &LeasedNode| !node.performs && node.lease == model.ttl;
    state.nodes.iter().any(|node| is_late(node) && has_session(node))
}
