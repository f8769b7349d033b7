//! A language model as a stream of parts.
//!
//! [`Model`] is the one seam: a [`Request`] goes in, [`Part`]s come out, the last of them the whole
//! [`Reply`]. Whatever is around a provider is a `Model` too, so that layers are put together as
//! they are needed:
//!
//! ```text
//! retry ─> gate ─> provider (HTTP)        or        retry ─> scripted
//! ```
//!
//! - [`conversation`]: what is said, in our own words, as it is kept in a transcript
//! - [`model`]: the trait, the request and the parts
//! - [`error`]: what can go wrong with a call, and whether trying again helps
//! - [`catalog`]: which providers there are, and how a person names a model
//! - [`providers`]: one provider as a `Model`, over HTTP; [`keys`]: where its key comes from;
//!   [`transport`]: what it may take in time and in bytes
//! - [`retry`]: tries again what may pass; [`deadline`]: a bound on a whole call
//! - [`gate`]: one for each provider, so that all who ask it slow down together
//! - [`prices`]: what models cost, and how much fits into them
//! - [`recording`]: what was asked and said, written down, and a model that says it again
//! - [`scripted`]: a model that plays a script, for tests, demonstrations and benchmarks
//! - `wire_server`: the other end of the wire, for tests and examples (feature `wire-server`)
//! - [`nearest`]: what somebody may have meant to type

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
pub mod suggestion;
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
pub use rate_limiter::{RateLimitedModel, RateLimiter, RateLimiterOptions, RateLimiterStatus};
pub use recording::{Recorder, RecordingError, ReplayModel};
pub use retry::{RetryModel, RetryOptions};
pub use scripted::{Script, ScriptError, ScriptedModel};
pub use transport::TransportLimits;
