//! `read_events`: reads stored events and follows new ones.

use std::sync::Arc;

use brigade_model::event::Event;
use brigade_model::event_author::EventAuthor;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position, Seq, Time};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::Call;

/// The longest text of a place. It names thousands of lanes.
const CURSOR_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReadEventsRequest {
    /// The session; `None` is all sessions, only for the operator.
    #[serde(default)]
    pub session: Option<String>,
    /// The position in lane 0 after which to read; 0 starts at the oldest stored event.
    #[serde(default)]
    pub after: u64,
    /// The place after which to read, in place of `after`, as the text of a [`FeedCursor`]. Only for a
    /// store with several lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Continues with new events.
    #[serde(default)]
    pub follow: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventItem {
    Event {
        /// The position in its lane.
        position: u64,
        #[serde(default, skip_serializing_if = "is_first_lane")]
        lane: Lane,
        session: String,
        seq: Seq,
        at: Time,
        /// The author of the command that the event was decided for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<EventAuthor>>,
        event: Event,
    },
    /// Events up to this position in lane 0 are no longer stored.
    Gap {
        to: u64,
        /// The place up to which events are no longer stored, if the store has several lanes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
}

impl ReadEventsRequest {
    /// Sets the place after which to read.
    pub fn set_place(&mut self, place: &FeedCursor) {
        self.after = place.number_in(Lane(0));
        // A daemon whose store has one lane may be too old to know the cursor.
        self.cursor = has_several_lanes(place).then(|| place.to_string());
    }

    /// Returns the place after which to read.
    pub fn place(&self) -> Result<FeedCursor, Refusal> {
        match &self.cursor {
            Some(text) if text.len() > CURSOR_BYTES_MAX => {
                Err(Refusal::limit("the place of events names too many lanes"))
            }
            Some(text) => {
                text.parse().map_err(|_| Refusal::invalid("this is not a place of events"))
            }
            None => Ok(Position { lane: Lane(0), no: self.after }.into()),
        }
    }
}

impl EventItem {
    /// Returns the item for events up to this place that are no longer stored.
    pub fn gap(to: &FeedCursor) -> Self {
        let cursor = has_several_lanes(to).then(|| to.to_string());
        Self::Gap { to: to.number_in(Lane(0)), cursor }
    }

    /// Moves a place behind this item.
    pub fn advance(&self, place: &mut FeedCursor) {
        match self {
            Self::Event { position, lane, .. } => {
                place.advance(Position { lane: *lane, no: *position });
            }
            Self::Gap { to, cursor } => {
                place.advance(Position { lane: Lane(0), no: *to });
                if let Some(cursor) = cursor.as_ref().and_then(|text| text.parse().ok()) {
                    place.advance_to(&cursor);
                }
            }
        }
    }
}

fn has_several_lanes(place: &FeedCursor) -> bool {
    place.positions().iter().any(|position| position.lane != Lane(0))
}

fn is_first_lane(lane: &Lane) -> bool {
    *lane == Lane(0)
}

impl Call for ReadEventsRequest {
    /// The position in lane 0 to continue from.
    type Reply = u64;
    type Item = EventItem;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(text: &str) -> FeedCursor {
        text.parse().expect("a place")
    }

    #[test]
    fn a_place_is_sent_and_read_back() {
        for (text, cursor) in
            [("0", None), ("17", None), ("3,2:5", Some("3,2:5")), ("1:4", Some("1:4"))]
        {
            let mut request = ReadEventsRequest::default();
            request.set_place(&place_of(text));
            assert_eq!(request.cursor.as_deref(), cursor, "{text}");
            assert_eq!(request.place(), Ok(place_of(text)));
            let mut place = FeedCursor::START;
            EventItem::gap(&place_of(text)).advance(&mut place);
            assert_eq!(place, place_of(text));
        }
        let wrong = ReadEventsRequest { cursor: Some("soup".into()), ..Default::default() };
        assert!(wrong.place().is_err());
        let long = Some("1:1,".repeat(CURSOR_BYTES_MAX));
        assert!(ReadEventsRequest { cursor: long, ..Default::default() }.place().is_err());
    }

    #[test]
    fn an_item_of_the_first_lane_is_as_before() {
        let gap = serde_json::to_string(&EventItem::gap(&place_of("7"))).expect("JSON");
        assert_eq!(gap, r#"{"gap":{"to":7}}"#);
    }
}
