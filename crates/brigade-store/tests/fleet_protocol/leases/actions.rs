//! The steps of the clock, of nodes and of the database.

use super::state::{LeaseState, NodePhase, Renewal, RenewalProgress};
use super::{LeaseModel, LeaseMutant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseAction {
    /// Time passes for the database and for all nodes, also for paused ones. It waits for nodes
    /// that are about to halt their performers: a running node is in time.
    Tick,
    /// The database's clock jumps forward: a step of the clock, or a failover to another machine.
    JumpDatabaseClock,
    SendRenewal {
        node: usize,
    },
    /// The database executes a renewal. It renews every lane that is open, also one that is late.
    ExecuteRenewal {
        node: usize,
    },
    ReceiveRenewal {
        node: usize,
    },
    /// The renewal or its answer is lost.
    LoseRenewal {
        node: usize,
    },
    /// A node halts its performers, a margin before its lease ends.
    Halt {
        node: usize,
    },
    Pause {
        node: usize,
    },
    Resume {
        node: usize,
    },
    /// Some node closes a lane whose lease is over by the database's clock.
    Close {
        node: usize,
    },
    Acquire {
        node: usize,
        session: usize,
    },
    /// A node releases a session at rest, which has no performer that runs.
    Release {
        node: usize,
        session: usize,
    },
}

impl LeaseModel {
    pub(crate) fn collect_actions(&self, state: &LeaseState, actions: &mut Vec<LeaseAction>) {
        let must_halt = |no: &usize| {
            let node = &state.nodes[*no];
            node.performs_now() && node.belief <= self.margin
        };
        if !(0..state.nodes.len()).any(|no| must_halt(&no)) {
            actions.push(LeaseAction::Tick);
        }
        if state.jumps < self.jumps {
            actions.push(LeaseAction::JumpDatabaseClock);
        }
        for node in 0..state.nodes.len() {
            let memory = &state.nodes[node];
            if memory.is_open && memory.lease == 0 {
                actions.push(LeaseAction::Close { node });
            }
            if memory.renewal.is_some_and(|it| it.progress == RenewalProgress::Sent) {
                actions.push(LeaseAction::ExecuteRenewal { node });
            }
            if memory.phase == NodePhase::Ended {
                continue;
            }
            if memory.phase == NodePhase::Paused {
                actions.push(LeaseAction::Resume { node });
                continue;
            }
            actions.push(LeaseAction::Pause { node });
            if must_halt(&node) {
                actions.push(LeaseAction::Halt { node });
            }
            match memory.renewal {
                None => actions.push(LeaseAction::SendRenewal { node }),
                Some(renewal) => {
                    actions.push(LeaseAction::LoseRenewal { node });
                    if renewal.progress != RenewalProgress::Sent {
                        actions.push(LeaseAction::ReceiveRenewal { node });
                    }
                }
            }
            for session in 0..state.sessions.len() {
                if memory.held[session] {
                    actions.push(LeaseAction::Release { node, session });
                } else if self.can_acquire(state, node, session) {
                    actions.push(LeaseAction::Acquire { node, session });
                }
            }
        }
    }

    fn can_acquire(&self, state: &LeaseState, node: usize, session: usize) -> bool {
        let row = &state.sessions[session];
        let is_free = row.owner.is_none_or(|owner| {
            let is_over = state.nodes[owner].lease == 0;
            let is_lapsed = is_over && self.mutant == Some(LeaseMutant::AcquireWithoutClosing);
            owner != node && (!state.nodes[owner].is_open || is_lapsed)
        });
        state.nodes[node].is_open && row.epoch < self.epochs && is_free
    }

    pub(crate) fn perform(&self, state: &mut LeaseState, action: LeaseAction) {
        match action {
            LeaseAction::Tick => self.tick(state),
            LeaseAction::JumpDatabaseClock => {
                state.jumps += 1;
                for node in &mut state.nodes {
                    node.lease = node.lease.saturating_sub(1);
                }
            }
            LeaseAction::SendRenewal { node } => {
                let renewal = Renewal { age: 0, progress: RenewalProgress::Sent };
                state.nodes[node].renewal = Some(renewal);
            }
            LeaseAction::ExecuteRenewal { node } => self.execute_renewal(state, node),
            LeaseAction::ReceiveRenewal { node } => self.receive_renewal(state, node),
            LeaseAction::LoseRenewal { node } => state.nodes[node].renewal = None,
            LeaseAction::Halt { node } => state.nodes[node].performs = false,
            LeaseAction::Pause { node } => state.nodes[node].phase = NodePhase::Paused,
            LeaseAction::Resume { node } => {
                let memory = &mut state.nodes[node];
                memory.phase = NodePhase::Up;
                // Each effect of a performer is behind a look at the clock.
                if self.mutant != Some(LeaseMutant::UncheckedResume) {
                    memory.performs &= memory.belief > self.margin;
                }
            }
            LeaseAction::Close { node } => state.nodes[node].is_open = false,
            LeaseAction::Acquire { node, session } => {
                state.sessions[session].owner = Some(node);
                state.sessions[session].epoch += 1;
                state.nodes[node].held[session] = true;
            }
            LeaseAction::Release { node, session } => {
                state.nodes[node].held[session] = false;
                // The commit of a closed lane is refused; the node drops the session all the same.
                let row = &mut state.sessions[session];
                if row.owner == Some(node) && state.nodes[node].is_open {
                    row.owner = None;
                }
            }
        }
    }

    fn tick(&self, state: &mut LeaseState) {
        for node in &mut state.nodes {
            node.lease = node.lease.saturating_sub(1);
            node.belief = node.belief.saturating_sub(1);
            if let Some(renewal) = &mut node.renewal {
                renewal.age = self.ttl.min(renewal.age + 1);
            }
        }
    }

    fn execute_renewal(&self, state: &mut LeaseState, node: usize) {
        let row = &mut state.nodes[node];
        row.is_open |= self.mutant == Some(LeaseMutant::RenewalOpensLane);
        let progress = match row.is_open {
            true => {
                row.lease = self.ttl;
                RenewalProgress::Renewed
            }
            false => RenewalProgress::Refused,
        };
        row.renewal = row.renewal.map(|renewal| Renewal { progress, ..renewal });
    }

    fn receive_renewal(&self, state: &mut LeaseState, node: usize) {
        let memory = &mut state.nodes[node];
        let Some(renewal) = memory.renewal.take() else { return };
        if renewal.progress == RenewalProgress::Refused {
            memory.end();
            return;
        }
        let age = match self.mutant {
            Some(LeaseMutant::CountFromAnswer) => 0,
            _ => renewal.age,
        };
        memory.belief = memory.belief.max(self.ttl - age);
        memory.performs = memory.belief > self.margin;
    }
}
