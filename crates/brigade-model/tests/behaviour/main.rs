//! What may happen to tasks and what may not, one file per area.

mod approvals_and_questions;
mod conversations;
mod grants;
mod kept;
mod leave;
mod limits;
mod liveness;
mod memory;
mod messages;
mod news;
mod recovery;
mod results;
mod scope;
mod spawn;
mod spawn_rate;
mod stop;
mod support;
mod waiting;
