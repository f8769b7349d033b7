//! `read_events`: reads stored events and follows new ones.

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
            context.subscribe(self.session.as_deref(), self.place()?).await?;
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
                    position = to.number_in(Lane(0)).max(position);
                    EventItem::gap(&to)
                }
                FeedUpdate::Event(event) => {
                    let Position { lane, no } = event.position;
                    if lane == Lane(0) {
                        position = no;
                    }
                    let record = &event.record;
                    EventItem::Event {
                        position: no,
                        lane,
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
        Ok(position.max(feed.cursor().number_in(Lane(0))))
    }
}
