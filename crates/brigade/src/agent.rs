//! The agent loop's types: tools, plugins, definitions, permissions, backends and their host.

pub use brigade_agent::agent::{Agent, AgentExit, AttemptInput, PartialResult};
pub use brigade_agent::agent_program::{
    AgentProgram, OutputPiece, ProgramEnd, ProgramHost, ProgramOutput, ProgramSpec, ProgramStart,
    ProgramStream,
};
pub use brigade_agent::arguments::{read_arguments, schema_of};
pub use brigade_agent::definition::{
    Definition, DefinitionDigest, DefinitionDir, DefinitionError, DefinitionLookupError,
    DefinitionOrigin, DefinitionSet, DefinitionSource, DefinitionText, LoadedDefinition,
};
pub use brigade_agent::host::{AgentProgress, Host, JournalRecord, StepGrant, SuspendResult};
pub use brigade_agent::inbox::render_result;
pub use brigade_agent::json_schema::{Schema, SchemaError, SchemaMismatch, SchemaProblem};
pub use brigade_agent::permission::{
    PermissionRefusal, PermissionRefusalReason, PermissionRule, PermissionRules, PermissionVerdict,
    Permissions, ShadowedRule,
};
pub use brigade_agent::plugin::{HookContext, HookDecision, HookFuture, Plugin, PluginError};
pub use brigade_agent::shared_state::{
    SessionStateReader, StateError, StateKey, StateScope, StateView,
};
pub use brigade_agent::tool::{
    BoxFuture, CallSlotRange, ExecutionHints, OutlivingWork, Tool, ToolEffect, ToolError,
    ToolInvocation, ToolReply, ToolSubject,
};
pub use brigade_agent::transcript_page::{TranscriptPage, TranscriptPlace};
pub use brigade_agent::transcript_text::{
    TranscriptCall, TranscriptContent, TranscriptItem, TranscriptReply, TranscriptResult,
};
pub use brigade_agent::{
    AgentOverrides, Backend, BackendModels, BackendRun, ClientTool, ClientToolCall, CostEstimate,
    Locale, LocalizedText, StopPolicy, ToolSet, ToolSource,
};
