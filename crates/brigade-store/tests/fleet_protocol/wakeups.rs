//! Wake-ups: every call of a fleet that lives is answered, although hints are lost and owners die.
//!
//! NOTIFY is a hint. This model shows that no answer depends on it: nodes look at the database from
//! time to time, and when they acquire a session. It has no clock, since a dead node's lane is
//! closed at some time (`leases`), and no lost answers (`writers`).
//!
//! Each action brings the model nearer to its end, and an answered call stays answered. The checker
//! decides `eventually` exactly for such models only.

use stateright::{Model, Property};

pub(crate) const ANSWERED: &str = "every call is answered";
pub(crate) const REPLY_SEEN: &str = "a node that asked sees the reply";

/// One wrong rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeupMutant {
    /// Nodes look at the database only after a hint.
    HintsOnly,
    /// The same, and no hint is ever lost.
    ReliableHintsOnly,
}

#[derive(Clone, Debug)]
pub(crate) struct WakeupModel {
    pub(crate) nodes: usize,
    /// The sessions. Each has one call.
    pub(crate) sessions: usize,
    /// How often nodes release a session at rest.
    pub(crate) releases: u8,
    pub(crate) mutant: Option<WakeupMutant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WakeupState {
    nodes: Vec<WokenNode>,
    sessions: Vec<CalledSession>,
    releases: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WokenNode {
    is_alive: bool,
    is_lane_open: bool,
    /// The sessions of which a hint is on its way to the node.
    hints: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CalledSession {
    owner: Option<usize>,
    call: CallProgress,
    /// The owner of the session has died with the call open.
    is_inherited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CallProgress {
    Absent,
    Open {
        asker: usize,
    },
    /// The owner has read the call and decides it.
    Read {
        asker: usize,
    },
    Answered {
        asker: usize,
    },
    ReplySeen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeupAction {
    /// A node stores a call. A hint goes to every node.
    Ask {
        node: usize,
        session: usize,
    },
    /// A node receives a hint, and looks at the session.
    ReceiveHint {
        node: usize,
        session: usize,
    },
    LoseHint {
        node: usize,
        session: usize,
    },
    /// A node looks at a session without a hint.
    Poll {
        node: usize,
        session: usize,
    },
    /// The owner commits the effect of the call with its answer. A hint goes to every node.
    Answer {
        session: usize,
    },
    Release {
        session: usize,
    },
    Kill {
        node: usize,
    },
    /// A live node closes the lane of a dead one.
    Close {
        node: usize,
    },
}

impl WakeupModel {
    fn has_polls(&self) -> bool {
        self.mutant.is_none()
    }
}

impl WakeupState {
    /// Returns the session as it is after a node has looked at it.
    fn look(&self, node: usize, session: usize) -> CalledSession {
        let mut row = self.sessions[session];
        match row.call {
            CallProgress::Open { asker } => {
                let is_free = row.owner.is_none_or(|owner| !self.nodes[owner].is_lane_open);
                if is_free {
                    row.owner = Some(node);
                }
                // An acquisition loads the session, with its open call.
                if row.owner == Some(node) {
                    row.call = CallProgress::Read { asker };
                }
            }
            CallProgress::Answered { asker } if asker == node => {
                row.call = CallProgress::ReplySeen;
            }
            _ => {}
        }
        row
    }

    fn send_hints(&mut self, session: usize) {
        for node in self.nodes.iter_mut().filter(|node| node.is_alive) {
            node.hints[session] = true;
        }
    }

    /// Forgets what a dead node knew.
    fn kill(&mut self, node: usize) {
        self.nodes[node].is_alive = false;
        self.nodes[node].hints.fill(false);
        for row in &mut self.sessions {
            if let (CallProgress::Read { asker }, true) = (row.call, row.owner == Some(node)) {
                row.call = CallProgress::Open { asker };
                row.is_inherited = true;
            }
        }
    }

    fn is_asker_dead(&self, session: usize) -> bool {
        match self.sessions[session].call {
            CallProgress::Answered { asker } => !self.nodes[asker].is_alive,
            _ => false,
        }
    }
}

impl Model for WakeupModel {
    type State = WakeupState;
    type Action = WakeupAction;

    fn init_states(&self) -> Vec<WakeupState> {
        let node =
            WokenNode { is_alive: true, is_lane_open: true, hints: vec![false; self.sessions] };
        // The first node owns all sessions, which are at rest.
        let session =
            CalledSession { owner: Some(0), call: CallProgress::Absent, is_inherited: false };
        vec![WakeupState {
            nodes: vec![node; self.nodes],
            sessions: vec![session; self.sessions],
            releases: 0,
        }]
    }

    fn actions(&self, state: &WakeupState, actions: &mut Vec<WakeupAction>) {
        let live = state.nodes.iter().filter(|node| node.is_alive).count();
        for (node, memory) in state.nodes.iter().enumerate() {
            if !memory.is_alive {
                if memory.is_lane_open {
                    actions.push(WakeupAction::Close { node });
                }
                continue;
            }
            if live > 1 {
                actions.push(WakeupAction::Kill { node });
            }
            for session in 0..self.sessions {
                if state.sessions[session].call == CallProgress::Absent {
                    actions.push(WakeupAction::Ask { node, session });
                }
                if memory.hints[session] {
                    actions.push(WakeupAction::ReceiveHint { node, session });
                    if self.mutant != Some(WakeupMutant::ReliableHintsOnly) {
                        actions.push(WakeupAction::LoseHint { node, session });
                    }
                }
                let finds_something = state.look(node, session) != state.sessions[session];
                if self.has_polls() && finds_something {
                    actions.push(WakeupAction::Poll { node, session });
                }
            }
        }
        for (session, row) in state.sessions.iter().enumerate() {
            let Some(owner) = row.owner.filter(|owner| state.nodes[*owner].is_alive) else {
                continue;
            };
            match row.call {
                CallProgress::Read { .. } => actions.push(WakeupAction::Answer { session }),
                _ if state.releases < self.releases && state.nodes[owner].is_lane_open => {
                    actions.push(WakeupAction::Release { session });
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, state: &WakeupState, action: WakeupAction) -> Option<WakeupState> {
        let mut next = state.clone();
        match action {
            WakeupAction::Ask { node, session } => {
                next.sessions[session].call = CallProgress::Open { asker: node };
                next.send_hints(session);
            }
            WakeupAction::ReceiveHint { node, session } => {
                next.nodes[node].hints[session] = false;
                next.sessions[session] = state.look(node, session);
            }
            WakeupAction::LoseHint { node, session } => next.nodes[node].hints[session] = false,
            WakeupAction::Poll { node, session } => {
                next.sessions[session] = state.look(node, session);
            }
            WakeupAction::Answer { session } => {
                if let CallProgress::Read { asker } = state.sessions[session].call {
                    next.sessions[session].call = CallProgress::Answered { asker };
                }
                next.send_hints(session);
            }
            WakeupAction::Release { session } => {
                next.sessions[session].owner = None;
                next.releases += 1;
            }
            WakeupAction::Kill { node } => next.kill(node),
            WakeupAction::Close { node } => next.nodes[node].is_lane_open = false,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::eventually(ANSWERED, |_, state: &WakeupState| {
                state.sessions.iter().all(|row| is_answered(row.call))
            }),
            Property::eventually(REPLY_SEEN, |_, state: &WakeupState| {
                (0..state.sessions.len()).all(|session| {
                    let is_seen = state.sessions[session].call == CallProgress::ReplySeen;
                    is_seen || state.is_asker_dead(session)
                })
            }),
            Property::sometimes(
                "the next owner answers a call of a dead one",
                |_, state: &WakeupState| {
                    state.sessions.iter().any(|row| row.is_inherited && is_answered(row.call))
                },
            ),
        ]
    }
}

fn is_answered(call: CallProgress) -> bool {
    matches!(call, CallProgress::Answered { .. } | CallProgress::ReplySeen)
}
