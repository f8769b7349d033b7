//! Tests of every provider over real HTTP, against the server of the feature `wire-server`.

mod conversations;
mod failures;
mod hostile;
mod keys;
mod live;
mod replies;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use brigade_llm::wire_server::{WireFormat, WireReply, WireRequest, WireServer};
use brigade_llm::{
    AssistantMessage, ChatMessage, ContentBlock, KeySource, Model, ModelError, ModelReply,
    ModelRequest, Provider, ReasoningBlock, ReplyPart, StopReason, TokenUsage, ToolArguments,
    ToolCall, ToolSpec, TransportLimits,
};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

/// The key, stored in a file: a test must not change the environment of the others.
pub(crate) const KEY: &str = "sk-very-secret-0123456789";

pub(crate) fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        agent: "tester".into(),
        model: "some-model".into(),
        system: "You are a test.".into(),
        messages,
        tools: Arc::new([ToolSpec {
            name: "look".into(),
            description: "Looks at a path.".into(),
            parameters: Arc::new(json!({
                "type": "object",
                "properties": { "path": { "type": "string" } },
                "required": ["path"],
            })),
        }]),
        max_output: 1000,
        temperature: None,
        effort: None,
    }
}

pub(crate) fn hello() -> ModelRequest {
    request(vec![ChatMessage::user("Hello")])
}

pub(crate) fn reply(content: Vec<ContentBlock>) -> ModelReply {
    ModelReply {
        message: AssistantMessage { content, opaque: Value::Null },
        usage: TokenUsage { input: 120, cached: 100, cache_written: 0, output: 30 },
        stop: StopReason::EndOfTurn,
    }
}

pub(crate) fn text(text: &str) -> ContentBlock {
    ContentBlock::Text(text.into())
}

pub(crate) fn thought(text: &str) -> ContentBlock {
    ContentBlock::Reasoning(ReasoningBlock { text: text.into(), opaque: Value::Null })
}

pub(crate) fn call(id: &str, arguments: Value) -> ContentBlock {
    let arguments = ToolArguments::Json(arguments);
    let name = "look".into();
    ContentBlock::Call(ToolCall { id: id.into(), name, arguments, opaque: Value::Null })
}

/// Returns the content without data that only its provider understands.
pub(crate) fn plain(message: &AssistantMessage) -> Vec<ContentBlock> {
    let mut content = message.content.clone();
    for part in &mut content {
        match part {
            ContentBlock::Text(_) => {}
            ContentBlock::Reasoning(reasoning) => reasoning.opaque = Value::Null,
            ContentBlock::Call(call) => call.opaque = Value::Null,
        }
    }
    content
}

pub(crate) fn quick() -> TransportLimits {
    TransportLimits {
        header_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        ..TransportLimits::default()
    }
}

pub(crate) struct Bench {
    pub(crate) server: WireServer,
    pub(crate) provider: Provider,
    _key: tempfile::NamedTempFile,
}

impl Bench {
    pub(crate) async fn new(
        format: WireFormat,
        answer: impl Fn(WireRequest) -> WireReply + Send + Sync + 'static,
    ) -> Self {
        Self::limited(format, TransportLimits::default(), answer).await
    }

    pub(crate) async fn limited(
        format: WireFormat,
        limits: TransportLimits,
        answer: impl Fn(WireRequest) -> WireReply + Send + Sync + 'static,
    ) -> Self {
        let server = WireServer::start(answer).await.expect("a server");
        let key = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(key.path(), format!("{KEY}\n")).expect("a file");
        let source = KeySource::File(key.path().to_owned());
        let options = server.options(format).key(source).limits(limits);
        Self { server, provider: Provider::new(options).expect("a provider"), _key: key }
    }

    pub(crate) async fn ask(
        &self,
        request: ModelRequest,
    ) -> Result<(Vec<ReplyPart>, ModelReply), ModelError> {
        ask(&self.provider, request).await
    }

    pub(crate) async fn refused(&self) -> ModelError {
        let error = self.ask(hello()).await.expect_err("an error");
        let text = format!("{error} {error:?} {:?}", self.provider);
        assert!(!text.contains(KEY), "the key is in {text}");
        error
    }
}

pub(crate) async fn ask(
    model: &dyn Model,
    request: ModelRequest,
) -> Result<(Vec<ReplyPart>, ModelReply), ModelError> {
    let mut stream = model.call(Arc::new(request));
    let mut parts = Vec::new();
    while let Some(part) = stream.next().await {
        match part? {
            ReplyPart::Finished(reply) => {
                assert!(stream.next().await.is_none(), "a part follows the last one");
                return Ok((parts, *reply));
            }
            part => parts.push(part),
        }
    }
    panic!("the stream ended without a last part");
}

/// Runs the test for every format at once and reports the formats that failed.
pub(crate) async fn each<F: Future<Output = ()>>(test: impl Fn(WireFormat) -> F) {
    let tests = WireFormat::ALL.map(|format| {
        let test = tokio::time::timeout(Duration::from_secs(60), test(format));
        async move { (format, AssertUnwindSafe(test).catch_unwind().await) }
    });
    let ended = join_all(tests).await.into_iter();
    let failed: Vec<_> =
        ended.filter(|(_, ended)| !matches!(ended, Ok(Ok(())))).map(|(format, _)| format).collect();
    assert!(failed.is_empty(), "failed or hung for {failed:?}");
}
