//! Agents with one tool call and a scripted model, on the memory store.

use std::sync::Arc;

use brigade::agent::{BoxFuture, ToolInvocation, ToolReply};
use brigade::{
    AgentOptions, ExecutionHints, NewTask, OneModel, Runtime, Script, ScriptedModel, Session,
    ToolEffect, ToolError, ToolHandler, ToolSpec, WaitMode,
};
use peers_harness::{BoxError, Measured, Stopwatch};

use crate::memory_runtime::memory_builder;

/// One tool call and a final message.
const SCRIPT: &str = "agent *\nturn\n  call look {\"at\": \"stove\"}\nturn\n  say Done.\n";

#[derive(Debug)]
struct LookTool(ToolSpec);

impl ToolHandler for LookTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Pure)
    }

    fn call(&self, _call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async { Ok(ToolReply::text("It is hot.")) })
    }
}

async fn start_runtime() -> Result<(Runtime, Session), BoxError> {
    let look = LookTool(ToolSpec {
        name: "look".into(),
        description: "Looks at something.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    });
    let model = ScriptedModel::new(Script::parse("peers", SCRIPT)?);
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted").tool(look);
    let runtime = memory_builder().agents(agents).start().await?;
    let session = runtime.session("agents").await?;
    Ok((runtime, session))
}

pub(crate) async fn one_after_another(count: usize) -> Result<Measured, BoxError> {
    let (_runtime, session) = start_runtime().await?;
    let watch = Stopwatch::start();
    for _ in 0..count {
        let agent = session.spawn(NewTask::agent("Look.")).await?;
        let result = agent.wait().await?;
        assert!(result.outcome.is_success(), "{}", result.outcome);
    }
    Ok(watch.stop().into())
}

pub(crate) async fn at_once(count: usize) -> Result<Measured, BoxError> {
    let (_runtime, session) = start_runtime().await?;
    let watch = Stopwatch::start();
    session.spawn_all((0..count).map(|_| NewTask::agent("Look."))).await?;
    let results = session.wait_uncollected(WaitMode::All).await?;
    let sample = watch.stop();
    assert_eq!(results.len(), count);
    assert!(results.iter().all(|result| result.outcome.is_success()));
    Ok(sample.into())
}
