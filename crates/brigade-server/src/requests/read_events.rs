//! `read_events`: reads stored events and follows new ones.

use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::ids::{Position, Seq, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::{FeedSubscription, FeedUpdate};
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender};
use crate::request_context::RequestContext;

/// The longest wait for an event that is already stored.
const NEXT_EVENT_TIMEOUT: Duration = Duration::from_millis(20);

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
        event: Event,
    },
    /// Events up to this position are no longer stored.
    Gap {
        to: u64,
    },
}

impl Call for ReadEventsRequest {
    /// The position to continue from.
    type Reply = u64;
    type Item = EventItem;

    async fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<EventItem>,
    ) -> Result<u64, Refusal> {
        let last = context.runtime().position();
        let mut feed: FeedSubscription =
            context.subscribe(self.session.as_deref(), Position(self.after)).await?;
        let mut position = self.after;
        while self.follow || feed.cursor() < last {
            let next = feed.next();
            let message = if self.follow {
                next.await?
            } else {
                match tokio::time::timeout(NEXT_EVENT_TIMEOUT, next).await {
                    Ok(message) => message?,
                    // The remaining events may be invisible to this client.
                    Err(_) => continue,
                }
            };
            let item = match message {
                FeedUpdate::Gap { to } => {
                    position = to.0;
                    EventItem::Gap { to: to.0 }
                }
                FeedUpdate::Event(event) => {
                    position = event.position.0;
                    if !self.follow && event.position > last {
                        break;
                    }
                    let record = &event.record;
                    EventItem::Event {
                        position,
                        session: context.session_name(record.session).await?,
                        seq: record.seq,
                        at: record.at,
                        event: record.event.clone(),
                    }
                }
            };
            items.send(&item).await?;
        }
        Ok(position.max(feed.cursor().0))
    }
}
