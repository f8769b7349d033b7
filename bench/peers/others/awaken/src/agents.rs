//! Runs of an agent with one tool call. Each has a thread of its own, and no store.

use std::sync::Arc;

use async_trait::async_trait;
use awaken_contract::contract::content::ContentBlock;
use awaken_contract::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use awaken_contract::contract::inference::{StopReason, StreamResult, TokenUsage};
use awaken_contract::contract::message::{Message, Role, ToolCall};
use awaken_contract::contract::tool::{
    Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use awaken_contract::registry_spec::AgentSpec;
use awaken_runtime::registry::ModelBinding;
use awaken_runtime::{AgentRuntime, AgentRuntimeBuilder, RunRequest};
use peers_harness::{BoxError, Measured, Stopwatch};
use serde_json::{Value, json};
use tokio::task::JoinSet;

struct LookTool;

#[async_trait]
impl Tool for LookTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("look", "Look", "Looks at something.")
            .with_parameters(json!({ "type": "object" }))
    }

    async fn execute(&self, _args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::success("look", json!("It is hot.")).into())
    }
}

/// A model that replies by a script: one tool call, then a final message.
struct ScriptedModel;

#[async_trait]
impl LlmExecutor for ScriptedModel {
    async fn execute(
        &self,
        request: InferenceRequest,
    ) -> Result<StreamResult, InferenceExecutionError> {
        let mut reply = StreamResult {
            content: Vec::new(),
            tool_calls: Vec::new(),
            usage: Some(TokenUsage::default()),
            stop_reason: Some(StopReason::EndTurn),
            has_incomplete_tool_calls: false,
        };
        if request.messages.iter().any(|message| message.role == Role::Tool) {
            reply.content = vec![ContentBlock::text("Done.")];
        } else {
            reply.tool_calls = vec![ToolCall::new("call", "look", json!({ "at": "stove" }))];
            reply.stop_reason = Some(StopReason::ToolUse);
        }
        Ok(reply)
    }

    fn name(&self) -> &str {
        "scripted"
    }
}

fn start_runtime() -> Result<Arc<AgentRuntime>, BoxError> {
    let agent = AgentSpec::new("agent")
        .with_model_id("scripted")
        .with_system_prompt("You are a capable agent.")
        .with_max_rounds(5);
    let binding =
        ModelBinding { provider_id: "scripted".into(), upstream_model: "scripted".into() };
    let runtime = AgentRuntimeBuilder::new()
        .with_agent_spec(agent)
        .with_tool("look", Arc::new(LookTool))
        .with_provider("scripted", Arc::new(ScriptedModel))
        .with_model_binding("scripted", binding)
        .build()?;
    Ok(Arc::new(runtime))
}

async fn run_agent(runtime: Arc<AgentRuntime>, n: usize) -> Result<(), BoxError> {
    let request = RunRequest::new(format!("thread-{n}"), vec![Message::user("Look.")]);
    let result = runtime.run_to_completion(request.with_agent_id("agent")).await?;
    assert_eq!(result.response, "Done.", "{:?}", result.termination);
    Ok(())
}

pub(crate) async fn one_after_another(count: usize) -> Result<Measured, BoxError> {
    let runtime = start_runtime()?;
    let watch = Stopwatch::start();
    for n in 0..count {
        run_agent(runtime.clone(), n).await?;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn at_once(count: usize) -> Result<Measured, BoxError> {
    let runtime = start_runtime()?;
    let watch = Stopwatch::start();
    let mut agents = JoinSet::new();
    for n in 0..count {
        agents.spawn(run_agent(runtime.clone(), n));
    }
    while let Some(ended) = agents.join_next().await {
        ended??;
    }
    Ok(watch.stop().into())
}
