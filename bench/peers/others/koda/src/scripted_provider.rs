//! A provider that replies by a script: one tool call, then a final message.

use anyhow::Result;
use async_trait::async_trait;
use koda_core::config::ModelSettings;
use koda_core::providers::stream_collector::SseCollector;
use koda_core::providers::{
    ChatMessage, LlmProvider, LlmResponse, ModelInfo, StreamChunk, TokenUsage, ToolCall,
    ToolDefinition,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// The built-in tool that does the least: it lists the skills of the registry.
const TOOL: &str = "ListSkills";

#[derive(Debug)]
pub(crate) struct ScriptedProvider;

impl ScriptedProvider {
    fn reply(messages: &[ChatMessage]) -> StreamChunk {
        if messages.last().is_some_and(|message| message.role == "tool") {
            return StreamChunk::TextDelta("Done.".to_owned());
        }
        StreamChunk::ToolCalls(vec![ToolCall {
            id: "call".to_owned(),
            function_name: TOOL.to_owned(),
            arguments: "{}".to_owned(),
            thought_signature: None,
        }])
    }
}

#[async_trait]
impl LlmProvider for ScriptedProvider {
    async fn chat(
        &self,
        _messages: &[ChatMessage],
        _tools: &[ToolDefinition],
        _settings: &ModelSettings,
    ) -> Result<LlmResponse> {
        anyhow::bail!("the script has only streams")
    }

    async fn chat_stream(
        &self,
        messages: &[ChatMessage],
        _tools: &[ToolDefinition],
        _settings: &ModelSettings,
    ) -> Result<SseCollector> {
        let (sender, rx) = mpsc::channel(2);
        sender.try_send(Self::reply(messages))?;
        let usage = TokenUsage { prompt_tokens: 10, completion_tokens: 5, ..TokenUsage::default() };
        sender.try_send(StreamChunk::Done(usage))?;
        let handle = Handle::current().spawn(async {});
        Ok(SseCollector { rx, handle })
    }

    async fn list_models(&self) -> Result<Vec<ModelInfo>> {
        Ok(Vec::new())
    }

    fn provider_name(&self) -> &str {
        "scripted"
    }
}
