//! What has happened, and what happens.

use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::ids::{Position, Seq, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::{FeedMessage, Subscription};
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items};
use crate::desk::Desk;

/// How long an event that is there already may take to come.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Events {
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
pub enum Happened {
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

impl Ask for Events {
    /// The position to ask on from.
    type Done = u64;
    type Item = Happened;

    async fn answer(self, desk: &Desk, items: &Items<Happened>) -> Result<u64, Refusal> {
        let last = desk.runtime().position();
        let mut feed: Subscription =
            desk.feed(self.session.as_deref(), Position(self.after)).await?;
        let mut position = self.after;
        while self.follow || feed.cursor() < last {
            let next = feed.next();
            let message = if self.follow {
                next.await?
            } else {
                match tokio::time::timeout(LOOK, next).await {
                    Ok(message) => message?,
                    // What is left may be events that this client does not see.
                    Err(_) => continue,
                }
            };
            let happened = match message {
                FeedMessage::Gap { to } => {
                    position = to.0;
                    Happened::Gap { to: to.0 }
                }
                FeedMessage::Event(item) => {
                    position = item.position.0;
                    if !self.follow && item.position > last {
                        break;
                    }
                    let record = &item.record;
                    let session = desk.session_name(record.tree).await?;
                    let (seq, at, event) = (record.seq, record.at, record.event.clone());
                    Happened::Event { position, session, seq, at, event }
                }
            };
            items.send(&happened).await?;
        }
        Ok(position.max(feed.cursor().0))
    }
}
