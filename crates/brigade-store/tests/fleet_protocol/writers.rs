//! The writers: acquisitions, the fence, commits in doubt and calls.
//!
//! This model has no clock. A lane may be closed at any time, so the result holds for every clock:
//! what is stored is right even if a lease is cut short. `leases` adds the clock, for side effects.

pub(crate) mod actions;
pub(crate) mod mutant;
pub(crate) mod properties;
mod reduction;
pub(crate) mod state;

use stateright::{Model, Property};

use actions::WriterAction;
use mutant::WriterMutant;
use state::{CallState, FleetState, LaneRow, Node, Observed, SessionRow};

/// The size of a model. Every behaviour within it is visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterBounds {
    pub(crate) nodes: usize,
    pub(crate) sessions: usize,
    /// The epochs of a session: one more than its moves.
    pub(crate) epochs: u8,
    /// The events of a session. Each is a commit of its own.
    pub(crate) events: u8,
    /// The sessions that have a call, from the first one.
    pub(crate) calls: usize,
    /// The answers and connections that are lost.
    pub(crate) losses: u8,
    /// The incarnations of all nodes. With more than one for each node, nodes join again.
    pub(crate) lanes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct WriterModel {
    pub(crate) bounds: WriterBounds,
    /// The wrong rules of a mutant; none for the protocol itself.
    pub(crate) mutants: Vec<WriterMutant>,
    /// Visits one of several states that behave alike.
    pub(crate) is_reduced: bool,
}

impl WriterModel {
    fn has(&self, mutant: WriterMutant) -> bool {
        self.mutants.contains(&mutant)
    }
}

impl Model for WriterModel {
    type State = FleetState;
    type Action = WriterAction;

    fn init_states(&self) -> Vec<FleetState> {
        let session = SessionRow { epoch: 0, seq: 0, call: CallState::Absent, owner: None };
        let WriterBounds { nodes, sessions, .. } = self.bounds;
        vec![FleetState {
            lanes: vec![LaneRow::new(); nodes],
            sessions: vec![session; sessions],
            nodes: (0..nodes).map(|lane| Node::new(lane, sessions)).collect(),
            late: Vec::new(),
            losses: 0,
            observed: Observed::default(),
        }]
    }

    fn actions(&self, state: &FleetState, actions: &mut Vec<WriterAction>) {
        self.collect_actions(state, actions);
    }

    fn next_state(&self, state: &FleetState, action: WriterAction) -> Option<FleetState> {
        let mut next = state.clone();
        self.perform(&mut next, action);
        if self.is_reduced {
            reduction::reduce(&mut next, self.bounds.calls);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(&self.bounds)
    }
}
