//! A language model as a stream of parts.
//!
//! [`Model`] is the interface: it takes a [`ModelRequest`] and returns a stream of [`ReplyPart`]s.
//! The last part is the whole [`ModelReply`]. Each layer around a provider is a `Model` too, so
//! layers can be combined freely:
//!
//! ```text
//! retry ─> rate limiter ─> provider (HTTP)        or        retry ─> scripted
//! ```
//!
//! - [`conversation`]: messages of an agent and its model, as a transcript stores them
//! - [`model`]: the trait, the request and the parts
//! - [`error`]: errors of a call, and the kinds that are worth a retry
//! - [`catalog`]: the known providers, and model names such as `ollama/qwen3`
//! - [`providers`]: one provider as a `Model`, over HTTP; [`keys`]: the source of its key;
//!   [`transport`]: its limits in time and bytes
//! - [`retry`]: repeats calls after transient errors; [`deadline`]: a time limit for a whole call
//! - [`rate_limiter`]: one per provider, shared by all its callers; shares of several processes
//! - [`prices`]: prices and token limits of models
//! - [`recording`]: records calls to a file; a model that replays them
//! - [`scripted`]: a model that plays a script, for tests, demonstrations and benchmarks
//! - `wire_server`: a server that speaks the providers' formats, for tests and examples (feature
//!   `wire-server`)

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod catalog;
pub mod conversation;
pub mod deadline;
pub mod error;
pub mod keys;
pub mod model;
pub mod prices;
pub mod providers;
pub mod rate_limiter;
pub mod recording;
pub mod retry;
pub mod scripted;
#[cfg(test)]
mod testing;
pub mod transport;
#[cfg(feature = "wire-server")]
pub mod wire_server;

pub use catalog::{ModelName, ProviderCatalog, ProviderKind, ResolvedModel};
pub use conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ReasoningBlock, ToolArguments, ToolCall,
    ToolResult, UserMessage,
};
pub use deadline::DeadlineModel;
pub use error::{ModelError, ModelErrorKind};
pub use keys::KeySource;
pub use model::{
    Model, ModelReply, ModelRequest, PartStream, ReasoningEffort, ReplyPart, StopReason,
    TokenUsage, ToolSpec,
};
pub use prices::{LongPrompts, ModelFacts, PerMillion, PriceTable, TokenPrice};
pub use providers::{Provider, ProviderOptions};
pub use rate_limiter::{
    CallDemand, LimitShare, LimiterShare, OpeningTurn, RateLimitedModel, RateLimiter,
    RateLimiterOptions, RateLimiterStatus, ShareGrant, ShareLevels, ShareReport, SharedLimits,
};
pub use recording::{Recorder, RecordingError, ReplayModel};
pub use retry::{RetryModel, RetryOptions};
pub use scripted::{Script, ScriptError, ScriptedModel};
pub use transport::TransportLimits;
