//! What has happened, and what happens.

use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::ids::{Position, Seq, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::{FeedSubscription, FeedUpdate};
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender};
use crate::request_context::RequestContext;

/// How long an event that is there already may take to come.
const NEXT_EVENT_TIMEOUT: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReadEventsRequest {
    /// All of them, when there is none; for the operator only.
    #[serde(default)]
    pub session: Option<String>,
    /// After this position; from the oldest that is kept, when it is zero.
    #[serde(default)]
    pub after: u64,
    /// Go on with what comes.
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
    /// Events up to this position are no longer kept.
    Gap {
        to: u64,
    },
}

impl Call for ReadEventsRequest {
    /// The position to ask on from.
    type Reply = u64;
    type Item = EventItem;

    async fn handle(
        self,
        desk: &RequestContext,
        items: &ItemSender<EventItem>,
    ) -> Result<u64, Refusal> {
        let last = desk.runtime().position();
        let mut feed: FeedSubscription =
            desk.subscribe(self.session.as_deref(), Position(self.after)).await?;
        let mut position = self.after;
        while self.follow || feed.cursor() < last {
            let next = feed.next();
            let message = if self.follow {
                next.await?
            } else {
                match tokio::time::timeout(NEXT_EVENT_TIMEOUT, next).await {
                    Ok(message) => message?,
                    // What is left may be events that this client does not see.
                    Err(_) => continue,
                }
            };
            let happened = match message {
                FeedUpdate::Gap { to } => {
                    position = to.0;
                    EventItem::Gap { to: to.0 }
                }
                FeedUpdate::Event(item) => {
                    position = item.position.0;
                    if !self.follow && item.position > last {
                        break;
                    }
                    let record = &item.record;
                    let session = desk.session_name(record.session).await?;
                    let (seq, at, event) = (record.seq, record.at, record.event.clone());
                    EventItem::Event { position, session, seq, at, event }
                }
            };
            items.send(&happened).await?;
        }
        Ok(position.max(feed.cursor().0))
    }
}
