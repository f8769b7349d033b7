//! Leases in the database and in the memory of the nodes.

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseState {
    pub(crate) nodes: Vec<LeasedNode>,
    pub(crate) sessions: Vec<LeasedSession>,
    /// The jumps of the database's clock so far.
    pub(crate) jumps: u8,
}

/// A row of `lanes` and the node that it belongs to. A node that has lost its lane does not join
/// again here: a new incarnation is a new node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeasedNode {
    /// Column `open` of the lane.
    pub(crate) is_open: bool,
    /// The ticks until `lease_until` by the database's clock. A lane with zero may be closed.
    pub(crate) lease: u8,
    pub(crate) phase: NodePhase,
    /// The ticks that the node believes to have, by its own clock.
    pub(crate) belief: u8,
    /// The performers of its sessions are not halted.
    pub(crate) performs: bool,
    pub(crate) renewal: Option<Renewal>,
    /// The sessions that the node has acquired.
    pub(crate) held: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum NodePhase {
    Up,
    /// Stopped by SIGSTOP, a debugger or a suspended machine. Its clock goes on. A killed node is a
    /// paused one that is never resumed.
    Paused,
    /// The node knows that its lane is closed.
    Ended,
}

/// A renewal that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Renewal {
    /// The ticks since it was sent, up to the length of a lease.
    pub(crate) age: u8,
    pub(crate) progress: RenewalProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RenewalProgress {
    Sent,
    Renewed,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeasedSession {
    pub(crate) epoch: u8,
    pub(crate) owner: Option<usize>,
}

impl LeasedNode {
    /// Returns true if performers of the node can have effects at this moment.
    pub(crate) fn performs_now(&self) -> bool {
        self.performs && self.phase == NodePhase::Up
    }

    /// Forgets everything that depends on the lane.
    pub(crate) fn end(&mut self) {
        self.phase = NodePhase::Ended;
        self.belief = 0;
        self.performs = false;
        self.renewal = None;
        self.held.fill(false);
    }

    /// Makes nodes equal that behave alike by the rules without a fault.
    fn reduce(&mut self, ttl: u8, margin: u8) {
        // The performers of a paused node are halted when it resumes, and then only a new renewal
        // counts.
        let is_running = self.performs_now();
        if !is_running && self.belief <= margin {
            self.performs = false;
            self.belief = 0;
        }
        if !self.is_open {
            self.lease = 0;
        }
        // An answer that is as old as a lease changes nothing, and a renewal of a closed lane only
        // tells the node what the next one tells it, too.
        self.renewal = self.renewal.filter(|renewal| match renewal.progress {
            RenewalProgress::Sent => self.is_open,
            RenewalProgress::Renewed => renewal.age < ttl,
            RenewalProgress::Refused => true,
        });
    }
}

impl LeaseState {
    /// Replaces a state by one that behaves alike, so that fewer are visited. Only the model
    /// without a fault is reduced.
    pub(crate) fn reduce(&mut self, ttl: u8, margin: u8) {
        for node in &mut self.nodes {
            node.reduce(ttl, margin);
        }
        self.rename();
    }

    /// Sorts sessions and nodes.
    fn rename(&mut self) {
        let key = |session: usize| {
            let holders = self.nodes.iter().filter(|node| node.held[session]).count();
            (self.sessions[session].epoch, self.sessions[session].owner.is_some(), holders)
        };
        let mut order: Vec<usize> = (0..self.sessions.len()).collect();
        order.sort_by_key(|session| key(*session));
        self.sessions = order.iter().map(|old| self.sessions[*old]).collect();
        for node in &mut self.nodes {
            node.held = order.iter().map(|old| node.held[*old]).collect();
        }

        let mut nodes: Vec<(LeasedNode, Vec<bool>, usize)> = Vec::new();
        for (no, node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            let owned = self.sessions.iter().map(|row| row.owner == Some(no)).collect();
            nodes.push((node, owned, no));
        }
        nodes.sort_unstable();
        for session in &mut self.sessions {
            let position = |old: usize| nodes.iter().position(|(_, _, no)| *no == old);
            session.owner = session.owner.and_then(position);
        }
        self.nodes = nodes.into_iter().map(|(node, _, _)| node).collect();
    }
}
