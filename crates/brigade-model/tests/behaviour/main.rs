//! Behaviour of the state machine, one file per area.

mod approvals_and_questions;
mod authors;
mod away;
mod conversations;
mod grants;
mod inbox;
mod kept;
mod limits;
mod liveness;
mod memory;
mod message_keys;
mod messages;
mod parts;
mod recovery;
mod remaining_budgets;
mod results;
mod retries;
mod runtime_slots;
mod scope;
mod spawn;
mod spawn_rate;
mod state_times;
mod stop;
mod support;
mod waiting;
mod worktrees;
