//! The types of the HTTP API. Their names without `Body` are the names of the OpenAPI schemas.
//!
//! - [`api_time`], [`task_id`]: times and ids as text. [`problem`]: an error.
//! - [`change`], [`author`]: the feed, and who caused its changes. [`live_stream`]: output while it is produced.
//! - [`access`]: tokens and logins. [`node`]: servers that share a store. [`session`], [`task`], [`task_detail`], [`definition`]: what there
//!   is. [`new_task`]: what is started.
//! - [`wait`], [`steering`], [`approval`], [`message`], [`limits`]: what is done with tasks.
//! - [`output`], [`transcript`]: what processes wrote, and agents said and did.
//!
//! A field that is documented as open may get further values. An absent value is omitted, never
//! `null`.

pub mod access;
pub mod api_time;
pub mod approval;
pub mod author;
pub mod change;
pub mod definition;
mod json_object;
pub mod limits;
pub mod live_stream;
pub mod message;
pub mod new_task;
pub mod node;
pub mod output;
pub mod problem;
pub mod session;
pub mod steering;
pub mod task;
pub mod task_detail;
pub mod task_id;
pub mod transcript;
pub mod wait;

pub use access::{
    LoginBody, LoginRequestBody, NewTokenBody, TokenBody, TokenListBody, TokenRequestBody,
    TokenScope, WhoAmIBody,
};
pub use api_time::ApiTime;
pub use approval::{
    GrantBody, GrantListBody, PendingApprovalBody, PendingBody, PendingQuestionBody, VerdictBody,
    VerdictKind,
};
pub use author::AuthorBody;
pub use change::{ChangeBody, ChangeListBody, change_types};
pub use definition::{DefinitionBody, DefinitionListBody};
pub use limits::{InheritedLimitsBody, LimitsBody, RemainingBody, TaskLimitsBody, TaskUsageBody};
pub use live_stream::{AgentOutputBody, CursorBody, DroppedOutputBody, ProcessOutputBody};
pub use message::{
    InboxBody, InboxItemBody, MessageBody, MessageListBody, MessageRequestBody, ReadRequestBody,
    ReceiptBody, SentBody,
};
pub use new_task::{
    NewAgentBody, NewJobBody, NewProcessBody, NewTaskBody, PermissionsBody, ResourcesBody,
    SandboxBody,
};
pub use node::{
    DrainRequestBody, MoveRequestBody, NodeBody, NodeListBody, RequiredLabelsRequestBody,
};
pub use output::{
    OutputBytesBody, OutputLineBody, OutputPageBody, OutputPieceBody, OutputSearchBody,
};
pub use problem::{ProblemBody, ProblemCode};
pub use session::{SessionBody, SessionListBody, SessionRequestBody};
pub use steering::{AnswerBody, CloseRequestBody, ResumeRequestBody, StopRequestBody, StoppedBody};
pub use task::{
    ApprovalBody, OutcomeBody, QuestionBody, TaskBody, TaskListBody, UsageBody, WaitBody,
};
pub use task_detail::{RunBody, SubtreeBody, TaskDetailBody};
pub use task_id::TaskId;
pub use transcript::{TranscriptBody, TranscriptItemBody};
pub use wait::{EndedTaskBody, WaitRequestBody, WaitResultBody};
