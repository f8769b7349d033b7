//! `read_events`: reads stored events and follows new ones.

use std::sync::Arc;

use brigade_model::event::Event;
use brigade_model::event_author::EventAuthor;
use brigade_model::ids::{Seq, Time};
use serde::{Deserialize, Serialize};

use crate::call::Call;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReadEventsRequest {
    /// The session; `None` is all sessions, only for the operator.
    #[serde(default)]
    pub session: Option<String>,
    /// The position after which to read; 0 starts at the oldest stored event.
    #[serde(default)]
    pub after: u64,
    /// Continues with new events.
    #[serde(default)]
    pub follow: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventItem {
    Event {
        position: u64,
        session: String,
        seq: Seq,
        at: Time,
        /// The author of the command that the event was decided for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<EventAuthor>>,
        event: Event,
    },
    /// Events up to this position are no longer stored.
    Gap { to: u64 },
}

impl Call for ReadEventsRequest {
    /// The position to continue from.
    type Reply = u64;
    type Item = EventItem;
}
