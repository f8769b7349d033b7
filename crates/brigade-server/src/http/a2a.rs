//! Agents for programs that speak A2A 1.0: a definition is an agent, an agent task is a task.
//!
//! ```text
//! routes/a2a ─ AgentCall ─┬─ incoming_message, message_record ─ start, answer, message
//!   (JSON-RPC, HTTP+JSON) └─ task_status, task_history ─ TaskWatch ─ update_stream
//! ```
//!
//! - [`published`]: the definitions that a listener publishes; [`agent_card`]: their cards.
//! - [`agent_call`]: the operations of the protocol, for one caller and one agent.
//!   [`task_list`]: pages of tasks.
//! - [`incoming_message`]: the content of a message. [`message_delivery`]: its delivery to a task.
//!   [`message_record`]: its effect, decided once.
//! - [`task_status`], [`task_history`]: a task as the protocol shows it.
//! - [`task_watch`], [`update_stream`]: its changes, and the response that follows them.
//! - [`protocol_error`]: refusals as errors of the protocol.
//!
//! The types of the protocol come from the crate `a2a-lf`, which only this module and its routes
//! know.

pub(crate) mod agent_call;
pub(crate) mod agent_card;
pub(crate) mod incoming_message;
pub(crate) mod message_delivery;
pub(crate) mod message_record;
pub(crate) mod protocol_error;
pub(crate) mod published;
pub(crate) mod task_history;
pub(crate) mod task_list;
pub(crate) mod task_status;
pub(crate) mod task_watch;
pub(crate) mod update_stream;
