//! A plugin that numbers the tool calls of an agent and refuses an end without any.

use std::error::Error;
use std::sync::Arc;

use brigade::agent::HookDecision;
use brigade::llm::{ToolCall, ToolResult};
use brigade::{
    AgentOptions, HookContext, HookFuture, Json, NewTask, OneModel, Plugin, Runtime, Script,
    ScriptedModel, StateKey,
};

const SCRIPT: &str = "
agent *
turn
  say Done.
turn
  when You cannot end yet: look at the tasks first
  call list_tasks {}
turn
  when (call 1)
  say Nothing is on the stove.
";

/// The number of tool calls. It is committed with the step that changes it.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct CallCount(u32);

impl StateKey for CallCount {
    const NAME: &'static str = "call count";
}

#[derive(Debug)]
struct Thorough;

impl Plugin for Thorough {
    fn name(&self) -> &str {
        "thorough"
    }

    fn after_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _call: &'a ToolCall,
        result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        Box::pin(async move {
            let count = at.state.update(|count: &mut CallCount| {
                count.0 += 1;
                count.0
            })?;
            result.text = format!("{}\n(call {count})", result.text).into();
            Ok(())
        })
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async move {
            Ok(match at.state.get::<CallCount>()?.0 {
                0 => HookDecision::Refuse("look at the tasks first".to_owned()),
                _ => HookDecision::Pass,
            })
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = ScriptedModel::new(Script::parse("plugin", SCRIPT)?);
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted").plugin(Thorough);
    let runtime = Runtime::builder().agents(agents).start().await?;
    let session = runtime.session("kitchen").await?;
    let cook = session.spawn(NewTask::agent("What is on the stove?")).await?;
    println!("{}", cook.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
