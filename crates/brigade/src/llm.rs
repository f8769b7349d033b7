//! Language models: the [`Model`] trait, requests and replies, providers, and layers around them.

pub use brigade_llm::{
    AssistantMessage, CallDemand, ChatMessage, ContentBlock, DeadlineModel, KeySource, LimitShare,
    LimiterShare, LongPrompts, Model, ModelError, ModelErrorKind, ModelFacts, ModelName,
    ModelReply, ModelRequest, OpeningTurn, PartStream, PerMillion, PriceTable, Provider,
    ProviderCatalog, ProviderKind, ProviderOptions, RateLimitedModel, RateLimiter,
    RateLimiterOptions, RateLimiterStatus, ReasoningBlock, ReasoningEffort, Recorder,
    RecordingError, ReplayModel, ReplyPart, ResolvedModel, RetryModel, RetryOptions, Script,
    ScriptError, ScriptedModel, ShareGrant, ShareLevels, ShareReport, SharedLimits, StopReason,
    TokenPrice, TokenUsage, ToolArguments, ToolCall, ToolResult, ToolSpec, TransportLimits,
    UserMessage,
};
