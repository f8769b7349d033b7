//! Brigade runs delegated tasks in the background. A task can be listed, waited for, steered and
//! stopped. It survives `kill -9`, ends exactly once and delivers its result exactly once.
//!
//! ```
//! use brigade::{Job, JobContext, JobError, Runtime};
//!
//! const GREET: Job<String, String> = Job::new("greet");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder()
//!     .job(GREET, |_ctx: JobContext, name| async move {
//!         Ok::<_, JobError>(format!("hello, {name}"))
//!     })
//!     .start()
//!     .await?;
//! let session = runtime.session("demo").await?;
//! let task = session.spawn(GREET.with("world".to_owned()).name("Greeter")).await?;
//! assert_eq!(task.result().await?, "hello, world");
//! # Ok(())
//! # }
//! ```
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `sqlite` | yes | the store on one SQLite file; needs a C compiler |
//! | `processes` | yes | OS processes as tasks |
//! | `agents` | yes | agents as tasks, and `processes` |
//! | `mcp` | yes | MCP servers whose tools agents use, and `agents` |
//! | `external` | no | agents of other vendors, such as Claude Code, and `agents` |
//! | `macros` | no | the attribute macros `#[brigade::tool]` and `#[brigade::job]`, and `agents` |
//!
//! Without features, a program has jobs, custom kinds of work and the store in memory.
//!
//! Start with these types:
//! - [`Runtime`] and [`RuntimeBuilder`]: combine a store, jobs, processes and agents.
//! - [`Session`]: spawn, list, wait, send, stop. [`TaskHandle`]: the same for one task.
//! - [`Job`]: the name of a job with its types. [`JobContext`]: the calls of a job: steps, sleep,
//!   receive, children. [`Session::join_all`]: many tasks and their results in order.
//! - Streams: [`Session::events`], [`TaskHandle::progress`], [`TaskHandle::lines`],
//!   [`TaskHandle::text`] (an agent's text as its model writes it), [`Session::approval_stream`].
//!   [`Session::on_approval`] calls a function for each approval. [`TaskHandle::usage`]: cost.
//! - [`ProcessOptions`]: OS processes as tasks. [`process`] runs one process.
//! - [`AgentOptions`]: agents as tasks. Their models come from [`ModelProviders`] or a [`Script`].
//! - [`Definition`]: an agent as written. [`Tool`] (from a function: [`Tool::from_fn`]),
//!   [`Permissions`] and [`Plugin`] extend and limit it; [`AgentOverrides`] change one run.
//!   [`agent`] has the agent loop, [`llm`] the models.
//! - [`Performer`]: executes a new kind of work; [`RemoteService`]: work of another system.
//! - [`model`]: the state machine: tasks, events, outcomes, refusals.
//!
//! A [`Session`] has two roles. [`Runtime::session`] returns it for a client: it sees its top-level
//! tasks, and a wait consumes their results. [`Runtime::operator_session`] returns it for the
//! operator: every task is visible, and a wait consumes nothing. Take results as the client, and
//! watch progress as the operator.
//!
//! Examples on items import from the crates that define them, such as `brigade_runtime`. All these
//! names are in `brigade` too.
//!
//! The guides are in the directory `docs` of the package. Their listings run as tests:
//!
//! | to | read |
//! |---|---|
//! | write a job: steps, replay, versions, messages, children | `docs/jobs.md` |
//! | embed Brigade in a server: roles, tenants, shutdown, retention, metrics | `docs/embedding.md` |
//! | test jobs and agents | `docs/testing.md`, `docs/scripted-model.md` |
//! | write an agent, tools, plugins | `docs/agents.md`, `docs/tools.md`, `docs/plugins.md` |
//! | use tools of MCP servers | `docs/mcp-servers.md` |
//! | set permissions, sandboxes, budgets | `docs/permissions.md`, `docs/sandbox.md`, `docs/budgets.md` |
//! | run processes | `docs/processes.md` |
//! | add a kind of work | `docs/performers.md` |
//! | recover and resume | `docs/resume.md` |
//! | observe | `docs/telemetry.md` |
//! | know who is trusted; look up a term | `docs/security.md`, `docs/glossary.md` |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "agents")]
pub mod agent;
#[cfg(feature = "external")]
pub mod external;
#[cfg(feature = "agents")]
pub mod llm;
pub mod model;
#[cfg(feature = "processes")]
pub mod process;
pub mod store;

#[cfg(feature = "agents")]
pub use brigade_agent::definition::{Definition, DefinitionError, DefinitionSet};
#[cfg(feature = "agents")]
pub use brigade_agent::permission::{PermissionRule, PermissionRules, Permissions};
#[cfg(feature = "agents")]
pub use brigade_agent::{
    AgentOutput, AgentOverrides, AgentProgress, Backend, BackendModels, BackendRun,
    CancellationToken, ClientTool, ClientToolCall, ExecutionHints, HookContext, HookFuture, Locale,
    LocalizedText, Plugin, PluginError, StateError, StateKey, StateScope, StateView, Tool,
    ToolContext, ToolEffect, ToolError, ToolHandler,
};
#[cfg(feature = "agents")]
pub use brigade_llm::{
    KeySource, Model, ModelError, ModelFacts, PriceTable, ProviderCatalog, ProviderKind,
    ProviderOptions, RateLimitedModel, RateLimiter, RateLimiterOptions, ReasoningEffort, Recorder,
    ReplayModel, RetryModel, RetryOptions, Script, ScriptedModel, TokenPrice, ToolSpec,
};
/// ```
/// use brigade::{ToolContext, ToolError};
///
/// /// Returns the weather of a city.
/// #[brigade::tool(effect = "pure", subject = "city")]
/// async fn weather(
///     context: ToolContext,
///     /// The city, such as "Ghent".
///     city: String,
///     days: Option<u8>,
/// ) -> Result<String, ToolError> {
///     context.progress("looking out of the window");
///     Ok(format!("sunny in {city} for {} days", days.unwrap_or(1)))
/// }
///
/// let tool: brigade::Tool = weather();
/// assert_eq!(&*tool.spec().description, "Returns the weather of a city.");
/// ```
///
#[cfg(feature = "macros")]
pub use brigade_macros::tool;

/// ```
/// use brigade::{JobContext, JobError, Runtime};
///
/// #[brigade::job]
/// async fn bake(_ctx: JobContext, loaves: u32) -> Result<String, JobError> {
///     Ok(format!("{loaves} loaves"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().job(BAKE, bake).start().await?;
/// let session = runtime.session("demo").await?;
/// assert_eq!(session.spawn(BAKE.with(12)).await?.result().await?, "12 loaves");
/// # Ok(())
/// # }
/// ```
///
#[cfg(feature = "macros")]
pub use brigade_macros::job;
#[cfg(feature = "mcp")]
pub use brigade_mcp::client::{
    McpServerConfig, McpServerError, McpTimeouts, McpTransport, ValueSource,
};
pub use brigade_model::address::{TaskAddress, TaskRef};
pub use brigade_model::approval::{
    ApprovalGrant, ApprovalRequest, ApprovalVerdict, CallCard, CallDigest,
};
pub use brigade_model::call::{RunResult, WaitMode};
pub use brigade_model::command::GivenAnswer;
pub use brigade_model::decide::StopResult;
pub use brigade_model::event::{Event, EventRecord};
pub use brigade_model::event_author::{AuthorKind, CallerOrigin, EventAuthor};
pub use brigade_model::feed_cursor::FeedCursor;
pub use brigade_model::ids::{
    CallIndex, Lane, MessageNo, Millis, Position, RunNo, SessionId, TaskNo, Time,
};
pub use brigade_model::json::Json;
pub use brigade_model::limits::{Limits, Money, Usage};
pub use brigade_model::message::{Message, Receipt};
pub use brigade_model::name::TaskName;
pub use brigade_model::outcome::{Failure, Outcome};
pub use brigade_model::readiness::Readiness;
pub use brigade_model::refusal::{Refusal, RefusalKind};
pub use brigade_model::sandbox::{
    NetworkPolicy, ResourceLimits, SandboxRequest, TcpPolicy, TerminalSize,
};
pub use brigade_model::spawn_rate::SpawnRate;
pub use brigade_model::stall::{StallPolicy, StallWatch};
pub use brigade_model::task::{StoredTask, TaskRow, TaskState};
pub use brigade_model::work::{
    EnvValue, KeptDeadline, KindPolicy, ReadinessCheck, RecoveryPolicy, TaskKind,
};
#[cfg(feature = "agents")]
pub use brigade_runtime::agents::{
    BackendChoice, BackendSource, DefinitionFolderLookup, DefinitionTrust, PrivateDirectory,
    TrustNothing,
};
#[cfg(feature = "agents")]
pub use brigade_runtime::{
    AgentOptions, AgentTask, ChosenModel, ModelCost, ModelProviders, ModelSource, OneModel,
    PendingClientCall, RecordedModels,
};
pub use brigade_runtime::{
    AliveTask, AnyTask, ChildTask, ChildWaitResult, Clock, CustomTask, Delivery, DrainResult,
    EventStream, FeedSubscription, FeedUpdate, ForegroundResult, HandlerGuard, Job, JobContext,
    JobError, JobHandler, JobTask, JoinAll, JoinedResults, NewTask, NodeInfo, NodeOptions,
    OpenSession, OpenedSession, PendingApproval, Performer, ReadinessWaitResult, ReconcileResult,
    RemoteError, RemotePerformer, RemoteService, RemoteStatus, Reporter, ResultStream, RetriedStep,
    RetryPolicy, Runtime, RuntimeBuilder, RuntimeRecords, SendMessage, Session, Step, StepBody,
    StopMode, SystemClock, TaskError, TaskHandle, TaskId, TaskType, TaskUsage, WaitResult,
};
#[cfg(feature = "processes")]
pub use brigade_runtime::{
    InputPiece, OutputLine, OutputReader, PeerOrigin, ProcessOptions, ProcessReport, ProcessTask,
    RunsProcesses, TaskOutput, TaskOutputFollower, TaskOutputSearch,
};
#[cfg(feature = "sqlite")]
pub use brigade_sqlite::{SqliteOptions, SqliteStore, SynchronousMode};
pub use brigade_store::{MemoryStore, Retention, Store, StoreError, TaskQuery};

/// A result whose error is a [`Refusal`], as of most calls.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The crates that the code of [`tool`] names. Not for other uses.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod macro_support {
    pub use schemars;
    pub use serde;
}

// `cargo test --doc` compiles and runs the examples of the guides.
#[cfg(doctest)]
#[doc = include_str!("../docs/jobs.md")]
mod jobs_guide {}

#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../docs/embedding.md")]
mod embedding_guide {}

#[cfg(all(doctest, feature = "agents"))]
#[doc = include_str!("../docs/agents.md")]
mod agents_guide {}

#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../docs/tools.md")]
mod tools_guide {}

#[cfg(all(doctest, feature = "agents"))]
#[doc = include_str!("../docs/budgets.md")]
mod budgets_guide {}

#[cfg(all(doctest, feature = "agents"))]
#[doc = include_str!("../docs/permissions.md")]
mod permissions_guide {}

#[cfg(all(doctest, feature = "processes"))]
#[doc = include_str!("../docs/sandbox.md")]
mod sandbox_guide {}

#[cfg(all(doctest, feature = "processes"))]
#[doc = include_str!("../docs/worktrees.md")]
mod worktrees_guide {}

#[cfg(all(doctest, feature = "processes", feature = "sqlite"))]
#[doc = include_str!("../docs/processes.md")]
mod processes_guide {}

#[cfg(all(doctest, feature = "mcp"))]
#[doc = include_str!("../docs/mcp-servers.md")]
mod mcp_servers_guide {}

#[cfg(all(doctest, feature = "agents"))]
#[doc = include_str!("../docs/plugins.md")]
mod plugins_guide {}

#[cfg(doctest)]
#[doc = include_str!("../docs/performers.md")]
mod performers_guide {}

#[cfg(all(doctest, feature = "agents"))]
#[doc = include_str!("../docs/testing.md")]
mod testing_guide {}
