//! Notifications: calls of the operator's commands and URLs for outcomes, questions and approvals.
//!
//! ```text
//! feed ─> feed_reader ─> pending_notification (a record) ─> sender ─> command or webhook
//!             └─ then: the place in the feed (a record)        └─ then: removes the record
//! ```
//!
//! A record exists before the place in the feed moves behind its event, and until its delivery
//! succeeded. So a crash repeats a delivery and loses none. Modules in reading order:
//!
//! - [`notifier`]: a receiver as configured, and its selection of events.
//! - [`notification`]: the JSON that a receiver gets.
//! - `feed_reader`, `feed_place`: creates pending notifications, and stores the place in the feed.
//! - `pending_notification`: a notification on its way to one receiver, and dead letters.
//! - `sender`, `send_queue`, [`retry_policy`]: makes the attempts, at most a few at a time.
//! - `command_delivery`, `webhook_delivery`, [`webhook`]: one attempt with a command or a URL.
//! - `sender_lease`: the one node of a fleet that sends.
//! - `service`: the life of all this in a daemon.

mod command_delivery;
mod feed_place;
mod feed_reader;
pub mod notification;
pub mod notifier;
mod pending_notification;
pub mod retry_policy;
mod send_queue;
mod sender;
mod sender_lease;
pub(crate) mod service;
pub mod webhook;
mod webhook_delivery;
