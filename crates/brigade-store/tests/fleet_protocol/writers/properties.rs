//! The promises of the protocol about stored data.

use stateright::Property;

use super::state::{CallState, EventRow, FleetState, LaneRow, No};
use super::{WriterBounds, WriterModel};

pub(crate) const ONE_LANE_PER_EPOCH: &str = "one lane writes for an epoch of a session";
pub(crate) const CONTIGUOUS_SEQ: &str = "the seq of a session is contiguous";
pub(crate) const EPOCHS_IN_ORDER: &str = "the epochs of a session's events never fall";
pub(crate) const ACKNOWLEDGED_IS_STORED: &str = "an acknowledged commit is stored";
pub(crate) const DENIED_IS_NOT_STORED: &str = "a commit found missing is never stored";
pub(crate) const DENIED_RELEASE: &str = "a release found missing is never executed";
pub(crate) const CLOSED_LANE_IS_FINAL: &str = "a closed lane gets no event";
pub(crate) const ONE_EFFECT: &str = "a call has at most one effect";
pub(crate) const ONE_ANSWER: &str = "a call has at most one answer";
pub(crate) const ANSWER_WITH_EFFECT: &str = "a call is answered exactly when its effect is stored";
pub(crate) const HELD_OR_FREE: &str = "a session is held or can be acquired";
pub(crate) const FENCED_ONLY_BY_CLOSING: &str = "a node with an open lane is not fenced";

/// Returns the properties that a model of this size can have.
pub(crate) fn all(bounds: &WriterBounds) -> Vec<Property<WriterModel>> {
    let mut all = promises();
    all.extend(moves());
    if bounds.calls > 0 {
        all.push(Property::sometimes("a later owner answers a call", |_, state: &FleetState| {
            let mut events = state.lanes.iter().flat_map(|lane| &lane.events);
            events.any(|event| event.is_effect && event.epoch > 1)
        }));
    }
    if bounds.losses > 0 {
        all.extend(doubts());
    }
    all
}

fn promises() -> Vec<Property<WriterModel>> {
    vec![
        Property::always(ONE_LANE_PER_EPOCH, |_, state: &FleetState| {
            each_session(state, |session| {
                let events = state.events_of(session);
                events.iter().all(|(lane, event)| {
                    let is_same = |other: &&(No, _)| epoch_of(other) == event.epoch;
                    events.iter().filter(is_same).all(|(other, _)| other == lane)
                })
            })
        }),
        Property::always(CONTIGUOUS_SEQ, |_, state: &FleetState| {
            each_session(state, |session| {
                let events = state.events_of(session);
                let numbers = events.iter().map(|(_, event)| event.seq);
                numbers.eq(1..=state.sessions[session].seq)
            })
        }),
        Property::always(EPOCHS_IN_ORDER, |_, state: &FleetState| {
            each_session(state, |session| {
                state.events_of(session).is_sorted_by_key(|(_, event)| event.epoch)
            })
        }),
        Property::always(ACKNOWLEDGED_IS_STORED, |_, state: &FleetState| {
            !state.observed.false_acknowledgement
        }),
        Property::always(DENIED_IS_NOT_STORED, |_, state: &FleetState| {
            !state.observed.false_denial
        }),
        Property::always(DENIED_RELEASE, |_, state: &FleetState| {
            !state.observed.false_release_denial
        }),
        Property::always(CLOSED_LANE_IS_FINAL, |_, state: &FleetState| {
            !state.observed.write_to_closed_lane
        }),
        Property::always(ONE_EFFECT, |_, state: &FleetState| {
            each_session(state, |session| count_effects(state, session) <= 1)
        }),
        Property::always(ONE_ANSWER, |_, state: &FleetState| {
            state.sessions.iter().all(|row| row.call != CallState::AnsweredTwice)
        }),
        Property::always(ANSWER_WITH_EFFECT, |_, state: &FleetState| {
            each_session(state, |session| {
                let is_answered = state.sessions[session].call >= CallState::Answered;
                is_answered == (count_effects(state, session) > 0)
            })
        }),
        Property::always(HELD_OR_FREE, is_held_or_free),
        Property::always(FENCED_ONLY_BY_CLOSING, |_, state: &FleetState| {
            !state.observed.fenced_with_open_lane
        }),
    ]
}

/// The model is not vacuous.
fn moves() -> [Property<WriterModel>; 2] {
    [
        Property::sometimes("a session moves to another lane", |_, state: &FleetState| {
            (0..state.sessions.len()).any(|session| count_lanes(state, session) > 1)
        }),
        Property::sometimes("a session leaves a lane and returns", |_, state: &FleetState| {
            (0..state.sessions.len()).any(|session| {
                let events = state.events_of(session);
                events
                    .windows(2)
                    .any(|pair| pair[0].0 == pair[1].0 && pair[0].1.epoch + 1 < pair[1].1.epoch)
            })
        }),
    ]
}

fn doubts() -> [Property<WriterModel>; 2] {
    [
        Property::sometimes("a commit in doubt is stored", |_, state: &FleetState| {
            any_in_doubt(state, |is_there| is_there)
        }),
        Property::sometimes("a commit in doubt is not stored", |_, state: &FleetState| {
            any_in_doubt(state, |is_there| !is_there)
        }),
    ]
}

fn each_session(state: &FleetState, holds: impl Fn(No) -> bool) -> bool {
    (0..state.sessions.len()).all(holds)
}

fn epoch_of(event: &&(No, EventRow)) -> u8 {
    event.1.epoch
}

fn count_effects(state: &FleetState, session: No) -> usize {
    let events = state.lanes.iter().flat_map(|lane| &lane.events);
    events.filter(|event| event.session == session && event.is_effect).count()
}

fn count_lanes(state: &FleetState, session: No) -> usize {
    let has_event = |lane: &&LaneRow| lane.events.iter().any(|event| event.session == session);
    state.lanes.iter().filter(has_event).count()
}

fn any_in_doubt(state: &FleetState, is_example: impl Fn(bool) -> bool) -> bool {
    state
        .nodes
        .iter()
        .filter_map(|node| node.in_doubt)
        .any(|request| is_example(state.lanes[request.lane].events.len() >= request.position))
}

/// Every session is in the memory of its owner, or free for a node with an open lane. Otherwise it
/// would wait until its owner ends.
fn is_held_or_free(model: &WriterModel, state: &FleetState) -> bool {
    let is_open = |node: &No| state.nodes[*node].lane.is_some_and(|lane| state.is_open(lane));
    let mut live = (0..state.nodes.len()).filter(is_open).peekable();
    let is_fleet_alive = live.peek().is_some();
    let live: Vec<No> = live.collect();
    !is_fleet_alive
        || each_session(state, |session| {
            live.iter().any(|node| {
                state.nodes[*node].held[session].is_some()
                    || model.can_acquire(state, *node, session)
            })
        })
}
