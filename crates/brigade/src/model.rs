//! The data of the state machine: tasks, calls, messages, events, outcomes and refusals.

pub use brigade_model::action::StartAction;
pub use brigade_model::address::{TaskAddress, TaskRef, TaskSelector};
pub use brigade_model::approval::{
    ApprovalGrant, ApprovalGrants, ApprovalRequest, ApprovalVerdict, CallCard, CallDigest,
    CardLine, GrantScope, TextExcerpt,
};
pub use brigade_model::call::{
    CallCompletion, Condition, ConditionRequest, InboxBatch, JournalEntry, ParkedCall, RetryPause,
    RunResult, SpawnedTask, TaskEntry, TaskReadiness, TasksCondition, WaitMode,
};
pub use brigade_model::command::{
    AfterPark, AnswerCommand, AttemptReport, CallRecord, Caller, ClientCaller, ClientControl,
    CloseCommand, CollectCommand, Command, EndReport, GivenAnswer, HostAbsence, MarkRead,
    PushResult, ReadInboxCommand, Recipient, RecoverCommand, RecoveryFinding,
    ReleaseWorktreeCommand, ReportCommand, ResumeCommand, RevokeCommand, SendCommand,
    SetLimitsCommand, SpawnCommand, StopCommand, StopTarget, WorkResult,
};
pub use brigade_model::decide::{CommandReply, StopResult};
pub use brigade_model::entry_label::EntryLabel;
pub use brigade_model::error_details::ErrorDetails;
pub use brigade_model::event::{CollectedRun, Event, EventRecord, FeedItem, SpawnedEvent};
pub use brigade_model::event_author::{AuthorKind, CallerOrigin, EventAuthor};
pub use brigade_model::feed_cursor::FeedCursor;
pub use brigade_model::ids::{
    Attempt, CallIndex, ClientIdentity, ClientName, ConversationId, Epoch, Lane, MessageNo, Millis,
    Owner, Position, RunNo, Seq, SessionId, TaskNo, Time,
};
pub use brigade_model::json::Json;
pub use brigade_model::limits::{LimitKind, Limits, Money, Remaining, RemainingBudgets, Usage};
pub use brigade_model::message::{
    Message, MessageKey, MessageKeyScope, MessagePurpose, MessageSender, Receipt,
};
pub use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
pub use brigade_model::outcome::{
    CancelledOutcome, EndConfirmation, FailedOutcome, Failure, LateResult, Outcome, StopInitiator,
    StopOrder,
};
pub use brigade_model::permission::PermissionSubject;
pub use brigade_model::plain_text::PlainText;
pub use brigade_model::process_report::SandboxPart;
pub use brigade_model::program_access::ProgramAccess;
pub use brigade_model::quote_mark::QuoteMark;
pub use brigade_model::readiness::Readiness;
pub use brigade_model::refusal::{Refusal, RefusalKind};
pub use brigade_model::sandbox::{
    NetworkPolicy, ResourceLimits, Sandbox, SandboxLayer, SandboxRequest, TcpPolicy, TerminalSize,
};
pub use brigade_model::shared_values::{SharedValue, SharedValues, SharedWrite};
pub use brigade_model::spawn_rate::{SpawnMeter, SpawnRate};
pub use brigade_model::spec::{DeadlineScope, LocalAttachment, RequestedNotifier, TaskSpec};
pub use brigade_model::stall::{NudgeState, StallPolicy, StallWatch};
pub use brigade_model::task::{
    AwayState, DecidedApproval, EarlierRun, EndedState, InheritedDeadline, QueueReason,
    QueuedState, ResultDelivery, RunClock, RunStart, SpawningAttempt, StopCause, StopPhase,
    StoppingState, StoredTask, TaskExtras, TaskRow, TaskState,
};
pub use brigade_model::task_tree::{
    ChangedRows, KeyMark, MessageKeyMark, MessageRow, SessionRow, SessionState, TaskTree,
};
pub use brigade_model::truncate::truncate_chars;
pub use brigade_model::work::{
    AgentWork, CommandLine, CustomWork, EnvValue, FollowUp, InboxMode, JobWork, KeptDeadline,
    KindPolicy, ParentClosePolicy, ProcessWork, ReadinessCheck, RecoveryPolicy, StdinSource,
    TaskKind, WakeOn, Work,
};
pub use brigade_model::worktree::{Worktree, WorktreeState};
