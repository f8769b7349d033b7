//! The delegation tools, defined once: arguments, schemas, descriptions, bounds and replies.
//!
//! ```text
//!   agents (brigade-runtime) ──┐                         ┌── arguments: strict, read by the schema
//!                              ├── Audience ── tool ─────┤
//!   MCP clients (brigade-server)┘                        └── reply: text, and the same as JSON
//! ```
//!
//! Agents and MCP clients have the same tools. The few differences are data: an [`Audience`] decides
//! which arguments are offered, how long a call may wait, and which words describe both. How a call is
//! carried out is the business of the two users.
//!
//! - [`audience`]: the readers of the tools, and how long their calls may wait.
//! - [`tool_args`]: a tool as an argument type; its definition, and how its arguments are read.
//! - The tools, one file each: [`spawn_agent`], [`run_process`], [`list_tasks`], [`wait_tasks`],
//!   [`send_message`], [`stop_task`], [`read_output`], [`ask_parent`].
//! - [`task_summary`], [`agent_summary`]: a task as a model reads of it, in a line and as JSON.
//! - [`tool_reply`]: a reply whose text and whose JSON are each enough; [`ended_task`],
//!   [`background_task`], [`note`], [`user_approval`]: parts of replies that several tools have.
//! - [`output`]: the output of a process, cut to what a reader gets to see.
//! - [`span`]: durations and short lines as text.

pub mod agent_summary;
pub mod ask_parent;
pub mod audience;
pub mod background_task;
pub mod delegation_reply;
pub mod ended_task;
pub mod list_tasks;
pub mod output_tail;
pub mod read_output;
pub mod run_process;
pub mod send_message;
pub mod short_text;
pub mod spawn_agent;
pub mod stop_task;
pub mod task_note;
pub mod task_summary;
pub mod tool_args;
pub mod user_approval;
pub mod wait_tasks;

pub use agent_summary::{AgentSummary, ApprovalSummary, OpenQuestion, UsageSummary};
pub use ask_parent::AskParent;
pub use audience::{Audience, ClientProfile, WaitBounds};
pub use background_task::{BackgroundReason, BackgroundTask};
pub use delegation_reply::DelegationReply;
pub use ended_task::{EndedResult, EndedTask};
pub use list_tasks::{ListTasks, ListTasksReply, TaskFilter};
pub use output_tail::OutputTail;
pub use read_output::{OutputMatches, OutputPart, OutputStream, ReadOutput};
pub use run_process::RunProcess;
pub use send_message::{SendMessage, SendMessageReply};
pub use spawn_agent::{BudgetArgs, SpawnAgent};
pub use stop_task::{StopTask, StopTaskReply};
pub use task_note::TaskNote;
pub use task_summary::TaskSummary;
pub use tool_args::{ToolArgs, ToolDefinition, ToolHints, define_tool, read_args};
pub use user_approval::UserApproval;
pub use wait_tasks::{WaitEnd, WaitTasks, WaitTasksReply};

/// The names of the tools.
pub const TOOL_NAMES: [&str; 8] = [
    SpawnAgent::NAME,
    RunProcess::NAME,
    ListTasks::NAME,
    WaitTasks::NAME,
    SendMessage::NAME,
    StopTask::NAME,
    ReadOutput::NAME,
    AskParent::NAME,
];

#[cfg(test)]
mod tests;
