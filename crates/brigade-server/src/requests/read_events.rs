//! `read_events`: reads stored events and follows new ones.

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position};
use brigade_model::refusal::Refusal;
use brigade_protocol::requests::{EventItem, ReadEventsRequest};
use brigade_runtime::{FeedSubscription, FeedUpdate};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ReadEventsRequest {
    async fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<EventItem>,
    ) -> Result<u64, Refusal> {
        let last = context.runtime().cursor();
        let mut feed: FeedSubscription =
            context.subscribe(self.session.as_deref(), cursor_of(self.after)).await?;
        let mut position = self.after;
        loop {
            // A client that follows continues at its position when the runtime is back.
            let shut_down = || Refusal::unavailable("the runtime has shut down");
            let update = match self.follow {
                true => feed.next().await.ok_or_else(shut_down)??,
                false => match feed.next_until(&last).await? {
                    Some(update) => update,
                    None => break,
                },
            };
            let item = match update {
                FeedUpdate::Gap { to } => {
                    position = number_of(&to);
                    EventItem::Gap { to: position }
                }
                FeedUpdate::Event(event) => {
                    position = event.position.no;
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
        Ok(position.max(number_of(&feed.cursor())))
    }
}

/// Returns the place behind an event, by its number. The store of a daemon has one lane.
fn cursor_of(no: u64) -> FeedCursor {
    Position { lane: Lane(0), no }.into()
}

fn number_of(cursor: &FeedCursor) -> u64 {
    cursor.number_in(Lane(0))
}
