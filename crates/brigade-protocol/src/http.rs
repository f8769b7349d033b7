//! The types of the HTTP API. Their names without `Body` are the names of the OpenAPI schemas.
//!
//! - [`api_time`], [`task_id`]: times and ids as text. [`problem`]: an error.
//! - [`access`]: tokens and logins. [`session`], [`task`]: what there is.
//! - [`change`]: the feed. [`live_stream`]: output while it is produced.
//!
//! A field that is documented as open may get further values. An absent value is omitted, never
//! `null`.

pub mod access;
pub mod api_time;
pub mod change;
pub mod live_stream;
pub mod problem;
pub mod session;
pub mod task;
pub mod task_id;

pub use access::{
    LoginBody, LoginRequestBody, NewTokenBody, TokenBody, TokenListBody, TokenRequestBody,
    TokenScope, WhoAmIBody,
};
pub use api_time::ApiTime;
pub use change::{ChangeBody, ChangeListBody, change_types};
pub use live_stream::{AgentOutputBody, CursorBody, DroppedOutputBody, ProcessOutputBody};
pub use problem::{ProblemBody, ProblemCode};
pub use session::{SessionBody, SessionListBody, SessionRequestBody};
pub use task::{OutcomeBody, TaskBody, TaskListBody, UsageBody, WaitBody};
pub use task_id::TaskId;
