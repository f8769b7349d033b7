//! The rows of the database, and the memory of the nodes.

/// The number of a node, of a lane or of a session, from zero.
pub(crate) type No = usize;

/// One state of the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FleetState {
    pub(crate) lanes: Vec<LaneRow>,
    pub(crate) sessions: Vec<SessionRow>,
    pub(crate) nodes: Vec<Node>,
    /// Requests whose sender has lost its connection. The database may still execute them, at any
    /// time: a backend does not notice that its client has disappeared.
    pub(crate) late: Vec<LateRequest>,
    /// The answers and connections that were lost so far. The model bounds them.
    pub(crate) losses: u8,
    pub(crate) observed: Observed,
}

/// A row of `lanes`: one incarnation of a node. Its head is the number of its events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LaneRow {
    /// A closed lane is never opened again.
    pub(crate) open: bool,
    /// The number of the node's connection for commits. A request with another one is refused.
    pub(crate) connection: u8,
    /// The rows of `events` with this lane. The first one has position 1.
    pub(crate) events: Vec<EventRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EventRow {
    pub(crate) session: No,
    pub(crate) seq: u8,
    /// The epoch of the writer. The table has no such column; the properties need it.
    pub(crate) epoch: u8,
    /// True for the effect of the session's call.
    pub(crate) is_effect: bool,
}

/// A row of `sessions`, with the row of `calls` for this session: the model has one call for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionRow {
    pub(crate) epoch: u8,
    pub(crate) seq: u8,
    pub(crate) call: CallState,
    /// The lane of the owner. A session at rest has none.
    pub(crate) owner: Option<No>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CallState {
    /// The call is not asked yet, or not in this model.
    Absent,
    Open,
    Answered,
    /// No property allows this.
    AnsweredTwice,
}

/// The memory of a node. A killed or paused node is one that does nothing more, or nothing for any
/// length of time: the model has no clock, so it needs no action for either.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    /// `None` after the node has learned that its lane is closed.
    pub(crate) lane: Option<No>,
    /// The sessions that the node has acquired.
    pub(crate) held: Vec<Option<HeldSession>>,
    /// The sessions whose call the node has read and not yet decided.
    pub(crate) inbox: Vec<bool>,
    /// The request whose answer the node has lost. The loop of a node sends nothing else before it
    /// knows what became of it.
    pub(crate) in_doubt: Option<Request>,
}

/// A session in the memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeldSession {
    /// The epoch of the acquisition, never that of a row that was read later.
    pub(crate) epoch: u8,
    pub(crate) seq: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) session: No,
    pub(crate) epoch: u8,
    /// The last event before the request.
    pub(crate) base: u8,
    /// The position that the event gets in the lane: a lane has one writer, which knows its end.
    pub(crate) position: usize,
    pub(crate) connection: u8,
    pub(crate) lane: No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operation {
    /// A commit of one event.
    Append,
    /// A commit of the event that is the effect of the session's call, with the answer.
    AppendAndAnswer,
    /// The owner gives up a session at rest.
    Release,
    /// An acquisition. It uses only the session, its epoch before, and the lane.
    Acquire,
    /// An answer in a transaction of its own. Only a mutant sends it.
    AnswerAlone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Answer {
    Stored,
    LaneClosed,
    /// A newer connection of the node has taken the lane.
    OldConnection,
    Fenced,
    /// Another commit has answered the call.
    AlreadyAnswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LateRequest {
    pub(crate) request: Request,
    /// The sender has concluded that the request was not and will not be stored.
    pub(crate) is_denied: bool,
}

/// Facts about the past that no row has. The actions record them for the properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    /// A node took a commit for stored, and its event is not there.
    pub(crate) false_acknowledgement: bool,
    /// A node took a commit for not stored, and it was stored later.
    pub(crate) false_denial: bool,
    /// The same for a release.
    pub(crate) false_release_denial: bool,
    /// An event was added to a closed lane.
    pub(crate) write_to_closed_lane: bool,
    /// A node whose lane is open was told that it is fenced.
    pub(crate) fenced_with_open_lane: bool,
}

impl FleetState {
    /// Returns the events of a session with their lanes, by their sequence numbers. Events with the
    /// same number stay in the order of the lanes.
    pub(crate) fn events_of(&self, session: No) -> Vec<(No, EventRow)> {
        let mut found = Vec::new();
        for (lane, row) in self.lanes.iter().enumerate() {
            let events = row.events.iter().filter(|event| event.session == session);
            found.extend(events.map(|event| (lane, *event)));
        }
        found.sort_by_key(|(_, event)| event.seq);
        found
    }

    pub(crate) fn is_open(&self, lane: No) -> bool {
        self.lanes[lane].open
    }
}

impl Node {
    pub(crate) fn new(lane: No, sessions: usize) -> Self {
        Self {
            lane: Some(lane),
            held: vec![None; sessions],
            inbox: vec![false; sessions],
            in_doubt: None,
        }
    }

    /// Forgets everything that depends on the lane.
    pub(crate) fn drop_lane(&mut self) {
        self.lane = None;
        self.held.fill(None);
        self.inbox.fill(false);
    }

    pub(crate) fn drop_session(&mut self, session: No) {
        self.held[session] = None;
        self.inbox[session] = false;
    }
}

impl LaneRow {
    pub(crate) fn new() -> Self {
        Self { open: true, connection: 0, events: Vec::new() }
    }
}
