//! `read_events`: reads stored events and follows new ones.

use std::time::Duration;

use brigade_model::ids::Position;
use brigade_model::refusal::Refusal;
use brigade_protocol::requests::{EventItem, ReadEventsRequest};
use brigade_runtime::{FeedSubscription, FeedUpdate};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The longest wait for an event that is already stored.
const NEXT_EVENT_TIMEOUT: Duration = Duration::from_millis(20);

impl RequestHandler for ReadEventsRequest {
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
            let update = if self.follow {
                next.await
            } else {
                match tokio::time::timeout(NEXT_EVENT_TIMEOUT, next).await {
                    Ok(update) => update,
                    // The remaining events may be invisible to this client.
                    Err(_) => continue,
                }
            };
            // A client that follows continues at its position when the runtime is back.
            let shut_down = || Refusal::unavailable("the runtime has shut down");
            let item = match update.ok_or_else(shut_down)?? {
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
                        by: record.by.clone(),
                        event: record.event.clone(),
                    }
                }
                // The protocol has no item for other updates.
                _ => continue,
            };
            items.send(&item).await?;
        }
        Ok(position.max(feed.cursor().0))
    }
}
