//! The steps that nodes and database take, one transaction at a time.

use super::mutant::WriterMutant;
use super::state::{
    Answer, CallState, EventRow, FleetState, HeldSession, LaneRow, LateRequest, No, Node,
    Operation, Request, SessionRow,
};
use super::{WriterBounds, WriterModel};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterAction {
    /// Some node closes a lane: the fence. Its lease is over by the database's clock, or the clock
    /// is wrong. Stored data must be right in both cases, so a lane may be closed at any time.
    Close { lane: No },
    /// A node learns, from a refused renewal, that its lane is closed. It drops its sessions.
    LearnOfClosing { node: No },
    /// A node without a lane opens one, as a new incarnation.
    Join { node: No },
    /// A node takes a session that has no owner, or whose owner has a closed lane. Acquisitions
    /// have a connection of their own: a node that loses one does not wait for it.
    Acquire { node: No, session: No, delivery: Delivery },
    /// A client asks a node that does not own the session: the call becomes a row.
    Ask { session: No },
    /// The owner of a session reads its call. The result of a read may be old: the call may be
    /// answered since.
    ReadCall { node: No, session: No },
    /// A node sends a request for a session that it holds. The node waits for the answer and its
    /// memory does not change, so that a request that travels for a long time is the same as one
    /// that is sent later. Only a lost connection lets the node continue.
    Send { node: No, session: No, operation: Operation, delivery: Delivery },
    /// The database executes a request whose sender has lost its connection.
    ExecuteLate { index: usize },
    /// A node resolves its request in doubt, on a new connection.
    Resolve { node: No },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The database executes the request, and the node receives the answer.
    Answered,
    /// The database executes the request, and the connection is lost before the answer.
    AnswerLost,
    /// The connection is lost, and the database executes the request later or never.
    Late,
}

impl WriterModel {
    /// Collects the steps that are possible now.
    pub(crate) fn collect_actions(&self, state: &FleetState, actions: &mut Vec<WriterAction>) {
        let open_lanes = (0..state.lanes.len()).filter(|lane| state.is_open(*lane));
        actions.extend(open_lanes.map(|lane| WriterAction::Close { lane }));
        for (session, row) in state.sessions.iter().enumerate() {
            if row.call == CallState::Absent && session < self.bounds.calls {
                actions.push(WriterAction::Ask { session });
            }
        }
        actions.extend((0..state.late.len()).map(|index| WriterAction::ExecuteLate { index }));
        for node in 0..state.nodes.len() {
            self.collect_node_actions(state, node, actions);
        }
    }

    fn collect_node_actions(&self, state: &FleetState, node: No, actions: &mut Vec<WriterAction>) {
        let WriterBounds { events, epochs, losses, lanes, .. } = self.bounds;
        let memory = &state.nodes[node];
        let Some(lane) = memory.lane else {
            if state.lanes.len() < lanes {
                actions.push(WriterAction::Join { node });
            }
            return;
        };
        let deliveries: &[Delivery] = match state.losses < losses {
            true => &[Delivery::Answered, Delivery::AnswerLost, Delivery::Late],
            false => &[Delivery::Answered],
        };
        for session in 0..state.sessions.len() {
            let row = &state.sessions[session];
            if row.epoch < epochs && self.can_acquire(state, node, session) {
                let acquire = |delivery| WriterAction::Acquire { node, session, delivery };
                actions.extend(deliveries.iter().copied().map(acquire));
            }
            let Some(held) = memory.held[session] else { continue };
            if row.call != CallState::Absent && !memory.inbox[session] {
                actions.push(WriterAction::ReadCall { node, session });
            }
            if memory.in_doubt.is_some() {
                continue;
            }
            for delivery in deliveries.iter().copied() {
                let send = |operation| WriterAction::Send { node, session, operation, delivery };
                match memory.inbox[session] {
                    true if held.seq < events => actions.push(send(Operation::AppendAndAnswer)),
                    false if held.seq < events => actions.push(send(Operation::Append)),
                    _ => {}
                }
                actions.push(send(Operation::Release));
                let has_effect = state.lanes[lane].events.iter().any(|event| event.is_effect);
                let is_due = has_effect && row.call == CallState::Open;
                if self.has(WriterMutant::AnswerAlone) && is_due {
                    actions.push(send(Operation::AnswerAlone));
                }
            }
        }
        if memory.in_doubt.is_some() {
            actions.push(WriterAction::Resolve { node });
        } else if !state.is_open(lane) {
            actions.push(WriterAction::LearnOfClosing { node });
        }
    }

    /// Returns true if a node acquires a session. An acquisition whose answer was lost leaves a
    /// session whose owner does not know it, so a node also acquires what has its own lane and is
    /// not in its memory.
    pub(crate) fn can_acquire(&self, state: &FleetState, node: No, session: No) -> bool {
        let memory = &state.nodes[node];
        let Some(lane) = memory.lane.filter(|lane| state.is_open(*lane)) else { return false };
        if memory.held[session].is_some() {
            return false;
        }
        match state.sessions[session].owner {
            None => true,
            Some(owner) if owner == lane => !self.has(WriterMutant::NoSecondAcquisition),
            Some(owner) => !state.is_open(owner),
        }
    }

    /// Carries out one step.
    pub(crate) fn perform(&self, state: &mut FleetState, action: WriterAction) {
        match action {
            WriterAction::Close { lane } => state.lanes[lane].open = false,
            WriterAction::LearnOfClosing { node } => state.nodes[node].drop_lane(),
            WriterAction::Join { node } => {
                state.nodes[node] = Node::new(state.lanes.len(), state.sessions.len());
                state.lanes.push(LaneRow::new());
            }
            WriterAction::Acquire { node, session, delivery } => {
                self.acquire(state, node, session, delivery);
            }
            WriterAction::Ask { session } => state.sessions[session].call = CallState::Open,
            WriterAction::ReadCall { node, session } => state.nodes[node].inbox[session] = true,
            WriterAction::Send { node, session, operation, delivery } => {
                if let Some(request) = create_request(state, node, session, operation) {
                    self.deliver(state, node, request, delivery);
                }
            }
            WriterAction::ExecuteLate { index } => {
                let late = state.late.remove(index);
                let answer = self.execute(state, late.request);
                if late.is_denied && answer == Answer::Stored {
                    match late.request.operation {
                        Operation::Release => state.observed.false_release_denial = true,
                        _ => state.observed.false_denial = true,
                    }
                }
            }
            WriterAction::Resolve { node } => {
                if let Some(request) = state.nodes[node].in_doubt.take() {
                    self.resolve(state, node, request);
                }
            }
        }
    }

    fn acquire(&self, state: &mut FleetState, node: No, session: No, delivery: Delivery) {
        let Some(lane) = state.nodes[node].lane else { return };
        let epoch = state.sessions[session].epoch;
        let operation = Operation::Acquire;
        let request =
            Request { operation, session, epoch, base: 0, position: 0, connection: 0, lane };
        match delivery {
            Delivery::Answered => {
                self.execute_acquisition(state, request);
                let row = &state.sessions[session];
                let held = HeldSession { epoch: row.epoch, seq: row.seq };
                state.nodes[node].held[session] = Some(held);
                return;
            }
            Delivery::AnswerLost => {
                self.execute_acquisition(state, request);
            }
            Delivery::Late => add_late(state, request),
        }
        state.losses += 1;
    }

    /// `UPDATE sessions SET owner, epoch = epoch + 1`, if the lane of the acquiring node is open
    /// and the epoch is still the one that the node has read.
    fn execute_acquisition(&self, state: &mut FleetState, request: Request) -> Answer {
        if !state.is_open(request.lane) {
            return Answer::LaneClosed;
        }
        let row = state.sessions[request.session];
        let is_free = row.owner.is_none_or(|owner| owner == request.lane || !state.is_open(owner));
        let is_same = row.epoch == request.epoch || self.has(WriterMutant::AcquireWithoutEpoch);
        if !is_free || !is_same || row.epoch == self.bounds.epochs {
            return Answer::Fenced;
        }
        if !self.has(WriterMutant::EpochFromRow) {
            state.sessions[request.session].owner = Some(request.lane);
            state.sessions[request.session].epoch += 1;
        }
        Answer::Stored
    }

    fn deliver(&self, state: &mut FleetState, node: No, request: Request, delivery: Delivery) {
        match delivery {
            Delivery::Answered => {
                let answer = self.execute(state, request);
                self.receive(state, node, request, answer);
                return;
            }
            Delivery::AnswerLost => {
                self.execute(state, request);
            }
            Delivery::Late => add_late(state, request),
        }
        state.losses += 1;
        state.nodes[node].in_doubt = Some(request);
    }

    /// The function in the database. It holds the lock of the lane's row from its first statement
    /// to its end, so that closing the lane is before or after it.
    fn execute(&self, state: &mut FleetState, request: Request) -> Answer {
        if request.operation == Operation::Acquire {
            return self.execute_acquisition(state, request);
        }
        let lane = &state.lanes[request.lane];
        if !lane.open && !self.has(WriterMutant::NoLaneCheck) {
            return Answer::LaneClosed;
        }
        if lane.connection != request.connection {
            return Answer::OldConnection;
        }
        let row = &mut state.sessions[request.session];
        if !self.is_writer(row, &request) {
            return Answer::Fenced;
        }
        match request.operation {
            Operation::Release => {
                row.owner = None;
                return Answer::Stored;
            }
            Operation::AnswerAlone => {
                row.call = answer_call(row.call);
                return Answer::Stored;
            }
            Operation::AppendAndAnswer if !self.has(WriterMutant::AnswerAlone) => {
                if row.call != CallState::Open && !self.has(WriterMutant::NoCallCheck) {
                    return Answer::AlreadyAnswered;
                }
                row.call = answer_call(row.call);
            }
            Operation::AppendAndAnswer | Operation::Append | Operation::Acquire => {}
        }
        row.seq += 1;
        state.observed.write_to_closed_lane |= !lane.open;
        state.lanes[request.lane].events.push(EventRow {
            session: request.session,
            seq: request.base + 1,
            epoch: request.epoch,
            is_effect: request.operation == Operation::AppendAndAnswer,
        });
        Answer::Stored
    }

    /// Compares owner, epoch and seq.
    fn is_writer(&self, row: &SessionRow, request: &Request) -> bool {
        let is_owner = row.owner == Some(request.lane)
            || self.has(WriterMutant::NoOwnerCheck)
            || self.has(WriterMutant::EpochFromRow);
        let is_epoch = row.epoch == request.epoch || self.has(WriterMutant::NoEpochCheck);
        let is_base = row.seq == request.base || self.has(WriterMutant::NoSeqCheck);
        is_owner && is_epoch && is_base
    }

    fn receive(&self, state: &mut FleetState, node: No, request: Request, answer: Answer) {
        match answer {
            Answer::Stored => self.acknowledge(state, node, request),
            Answer::LaneClosed | Answer::OldConnection => state.nodes[node].drop_lane(),
            Answer::Fenced => {
                state.observed.fenced_with_open_lane |= state.is_open(request.lane);
                state.nodes[node].drop_session(request.session);
            }
            Answer::AlreadyAnswered => {}
        }
    }

    /// Continues after a request that the node takes for stored: only now a client hears of it.
    fn acknowledge(&self, state: &mut FleetState, node: No, request: Request) {
        let memory = &mut state.nodes[node];
        match request.operation {
            Operation::Release => memory.drop_session(request.session),
            Operation::AnswerAlone | Operation::Acquire => {}
            Operation::Append | Operation::AppendAndAnswer => {
                let held = HeldSession { epoch: request.epoch, seq: request.base + 1 };
                memory.held[request.session] = Some(held);
                let stored = state.lanes[request.lane].events.get(request.position - 1);
                let is_there = stored.is_some_and(|event| {
                    event.session == request.session && event.seq == request.base + 1
                });
                state.observed.false_acknowledgement |= !is_there;
            }
        }
    }

    /// Takes the lane for the new connection, `UPDATE lanes SET connection = connection + 1`, and
    /// then looks for the event. The update waits for a commit that is being executed, and the
    /// database refuses one that arrives later. Without it, "not there" could become wrong at any
    /// time.
    fn resolve(&self, state: &mut FleetState, node: No, request: Request) {
        if !self.has(WriterMutant::NoConnectionCheck) {
            state.lanes[request.lane].connection += 1;
        }
        let row = &state.sessions[request.session];
        let is_stored = match request.operation {
            // The owner alone can release the session, and nobody else can acquire it before.
            Operation::Release => row.owner != Some(request.lane) || row.epoch != request.epoch,
            Operation::AnswerAlone => row.call != CallState::Open,
            _ if self.has(WriterMutant::DoubtBySeq) => row.seq > request.base,
            _ => state.lanes[request.lane].events.len() >= request.position,
        };
        if is_stored {
            self.acknowledge(state, node, request);
            return;
        }
        for late in &mut state.late {
            late.is_denied |= late.request == request;
        }
    }
}

fn add_late(state: &mut FleetState, request: Request) {
    state.late.push(LateRequest { request, is_denied: false });
    state.late.sort_unstable();
}

fn create_request(
    state: &mut FleetState,
    node: No,
    session: No,
    operation: Operation,
) -> Option<Request> {
    let memory = &mut state.nodes[node];
    let lane = memory.lane?;
    let held = memory.held[session]?;
    memory.inbox[session] = false;
    let row = &state.lanes[lane];
    Some(Request {
        operation,
        session,
        epoch: held.epoch,
        base: held.seq,
        position: row.events.len() + 1,
        connection: row.connection,
        lane,
    })
}

fn answer_call(call: CallState) -> CallState {
    match call {
        CallState::Absent | CallState::Open => CallState::Answered,
        CallState::Answered | CallState::AnsweredTwice => CallState::AnsweredTwice,
    }
}
