//! The feed: a reader that sees every event of a session once and in order.
//!
//! A commit begins with the lock of its lane's row, so that the order of positions in a lane is the
//! order in which its events become visible. Between lanes there is no such order: the reader reads
//! each lane with a query of its own, and may find the newer lane first.

use stateright::{Model, Property};

pub(crate) const IN_ORDER: &str = "the feed returns the events of a session in order, each once";
pub(crate) const NONE_LOST: &str = "the feed returns every event before its cursor";
pub(crate) const NEVER_STUCK: &str = "the reader can read on while there are unread events";
pub(crate) const ALL_READ: &str = "the feed returns all events";

/// One wrong rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedMutant {
    /// Events have no `after`.
    NoAfter,
    /// Only a session's first event in a lane has `after`, and none when the session comes back.
    AfterOnFirstVisit,
    /// The cursor is a serial number that an event gets when its transaction begins.
    SerialCursor,
}

#[derive(Clone, Debug)]
pub(crate) struct FeedModel {
    pub(crate) lanes: usize,
    pub(crate) sessions: usize,
    /// How often a session moves to another lane.
    pub(crate) moves: u8,
    /// The events of a session.
    pub(crate) events: u8,
    pub(crate) mutant: Option<FeedMutant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FeedState {
    lanes: Vec<FeedLane>,
    sessions: Vec<WrittenSession>,
    reader: Reader,
    /// The last serial number. Only a mutant counts.
    serial: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct FeedLane {
    /// Visible events. The first one has position 1.
    events: Vec<FeedEvent>,
    /// The events of a transaction that holds the lock of the lane and is not committed.
    uncommitted: Vec<FeedEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FeedEvent {
    session: usize,
    seq: u8,
    /// The session's event before this one, if it is in another lane.
    after: Option<Place>,
    serial: u8,
}

/// The position of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    lane: usize,
    position: usize,
}

/// The columns `seq`, `last_lane` and `last_pos` of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct WrittenSession {
    seq: u8,
    last: Option<Place>,
    moves: u8,
    /// A transaction holds the lock of the row.
    is_locked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reader {
    /// For each lane, the position of the last event that was read.
    cursor: Vec<usize>,
    /// The cursor of the mutant with serial numbers.
    serial: u8,
    /// For each session, the sequence numbers in the order in which they were returned.
    returned: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FeedAction {
    /// The owner of these sessions begins a commit with one event of each. A session whose last
    /// event is in another lane has moved.
    Begin { lane: usize, sessions: Vec<usize> },
    /// The events of a lane's transaction become visible at once.
    Commit { lane: usize },
    /// The reader reads the next event of a lane, unless it must hold the lane back.
    Read { lane: usize },
    /// The reader of the mutant reads the next event of all lanes.
    ReadBySerial,
}

impl FeedModel {
    fn can_write(&self, state: &FeedState, lane: usize, session: usize) -> bool {
        let row = &state.sessions[session];
        let is_move = row.last.is_some_and(|last| last.lane != lane);
        !row.is_locked && row.seq < self.events && (!is_move || row.moves < self.moves)
    }

    fn begin(&self, state: &mut FeedState, lane: usize, sessions: &[usize]) {
        for session in sessions {
            let position = state.lanes[lane].events.len() + state.lanes[lane].uncommitted.len() + 1;
            let row = &mut state.sessions[*session];
            let moved_from = row.last.filter(|last| last.lane != lane);
            row.moves += u8::from(moved_from.is_some());
            row.seq += 1;
            row.last = Some(Place { lane, position });
            row.is_locked = true;
            let is_visited = state.lanes[lane].events.iter().any(|it| it.session == *session);
            let after = match self.mutant {
                Some(FeedMutant::NoAfter | FeedMutant::SerialCursor) => None,
                Some(FeedMutant::AfterOnFirstVisit) if is_visited => None,
                _ => moved_from,
            };
            state.serial += u8::from(self.reads_by_serial());
            let seq = row.seq;
            let event = FeedEvent { session: *session, seq, after, serial: state.serial };
            state.lanes[lane].uncommitted.push(event);
        }
    }

    fn reads_by_serial(&self) -> bool {
        self.mutant == Some(FeedMutant::SerialCursor)
    }
}

impl FeedState {
    fn unread(&self, lane: usize) -> Option<&FeedEvent> {
        self.lanes[lane].events.get(self.reader.cursor[lane])
    }

    /// Returns true if the next event of a lane is there and its `after` is read.
    fn can_read(&self, lane: usize) -> bool {
        self.unread(lane).is_some_and(|event| {
            event.after.is_none_or(|after| self.reader.cursor[after.lane] >= after.position)
        })
    }

    fn visible(&self) -> impl Iterator<Item = &FeedEvent> {
        self.lanes.iter().flat_map(|lane| &lane.events)
    }

    /// Returns the visible events before the cursor.
    fn read_events(&self, model: &FeedModel) -> Vec<&FeedEvent> {
        if model.reads_by_serial() {
            return self.visible().filter(|event| event.serial <= self.reader.serial).collect();
        }
        let lanes = self.lanes.iter().zip(&self.reader.cursor);
        lanes.flat_map(|(lane, position)| &lane.events[..*position]).collect()
    }

    fn next_by_serial(&self) -> Option<FeedEvent> {
        let unread = self.visible().filter(|event| event.serial > self.reader.serial);
        unread.min_by_key(|event| event.serial).copied()
    }
}

impl Model for FeedModel {
    type State = FeedState;
    type Action = FeedAction;

    fn init_states(&self) -> Vec<FeedState> {
        vec![FeedState {
            lanes: vec![FeedLane::default(); self.lanes],
            sessions: vec![WrittenSession::default(); self.sessions],
            reader: Reader {
                cursor: vec![0; self.lanes],
                serial: 0,
                returned: vec![Vec::new(); self.sessions],
            },
            serial: 0,
        }]
    }

    fn actions(&self, state: &FeedState, actions: &mut Vec<FeedAction>) {
        for lane in 0..self.lanes {
            if !state.lanes[lane].uncommitted.is_empty() {
                actions.push(FeedAction::Commit { lane });
                continue;
            }
            let writable = |session: &usize| self.can_write(state, lane, *session);
            let writable: Vec<usize> = (0..self.sessions).filter(writable).collect();
            let one = writable.iter().map(|session| vec![*session]);
            actions.extend(one.map(|sessions| FeedAction::Begin { lane, sessions }));
            if writable.len() > 1 {
                actions.push(FeedAction::Begin { lane, sessions: writable });
            }
        }
        if self.reads_by_serial() {
            actions.extend(state.next_by_serial().map(|_| FeedAction::ReadBySerial));
            return;
        }
        let readable = (0..self.lanes).filter(|lane| state.can_read(*lane));
        actions.extend(readable.map(|lane| FeedAction::Read { lane }));
    }

    fn next_state(&self, state: &FeedState, action: FeedAction) -> Option<FeedState> {
        let mut next = state.clone();
        match action {
            FeedAction::Begin { lane, sessions } => self.begin(&mut next, lane, &sessions),
            FeedAction::Commit { lane } => {
                let events = std::mem::take(&mut next.lanes[lane].uncommitted);
                for event in &events {
                    next.sessions[event.session].is_locked = false;
                }
                next.lanes[lane].events.extend(events);
            }
            FeedAction::Read { lane } => {
                let event = *state.unread(lane)?;
                next.reader.cursor[lane] += 1;
                next.reader.returned[event.session].push(event.seq);
            }
            FeedAction::ReadBySerial => {
                let event = state.next_by_serial()?;
                next.reader.serial = event.serial;
                next.reader.returned[event.session].push(event.seq);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(IN_ORDER, |_, state: &FeedState| {
                state.reader.returned.iter().all(|returned| is_counting(returned))
            }),
            Property::always(NONE_LOST, |model: &Self, state: &FeedState| {
                let is_returned =
                    |it: &FeedEvent| state.reader.returned[it.session].contains(&it.seq);
                state.read_events(model).into_iter().all(is_returned)
            }),
            Property::always(NEVER_STUCK, |model: &Self, state: &FeedState| {
                let mut lanes = 0..model.lanes;
                let mut unread = (0..model.lanes).filter(|lane| state.unread(*lane).is_some());
                model.reads_by_serial()
                    || unread.next().is_none()
                    || lanes.any(|lane| state.can_read(lane))
            }),
            Property::eventually(ALL_READ, |model: &Self, state: &FeedState| {
                let all = usize::from(model.events);
                state.reader.returned.iter().all(|returned| returned.len() == all)
            }),
            Property::sometimes("a session moves twice and is read to its end", |model, state| {
                is_read_across_lanes(model, state)
            }),
            Property::sometimes("the reader holds a lane back", |model: &Self, state| {
                (0..model.lanes).any(|lane| is_held_back(state, lane))
            }),
        ]
    }
}

fn is_counting(returned: &[u8]) -> bool {
    returned.iter().zip(1..).all(|(seq, expected)| *seq == expected)
}

fn is_read_across_lanes(model: &FeedModel, state: &FeedState) -> bool {
    let rows = state.sessions.iter().zip(&state.reader.returned);
    let mut rows = rows.map(|(row, returned)| (row.moves, returned.len()));
    rows.any(|it| it == (model.moves, usize::from(model.events)))
}

fn is_held_back(state: &FeedState, lane: usize) -> bool {
    state.unread(lane).is_some() && !state.can_read(lane)
}
