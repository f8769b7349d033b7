//! Helpers of the tests.

use std::future::Future;
use std::sync::Arc;

use brigade_agent::{
    AgentOutput, BoxFuture, ExecutionHints, ToolEffect, ToolError, ToolHandler, ToolInvocation,
    ToolReply,
};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_llm::{Model, ToolSpec};
use brigade_model::call::RunResult;
use brigade_model::command::GivenAnswer;
use brigade_model::json::Json;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_runtime::{
    AgentOptions, ChosenModel, ModelSource, NewTask, OneModel, Runtime, Session, TaskHandle,
};
use brigade_store::TaskQuery;
use brigade_testkit::TestRuntime;
use tokio::sync::Notify;

pub(crate) fn script(text: &str) -> AgentOptions {
    let script = Script::parse("test", text).unwrap();
    AgentOptions::new(OneModel(Arc::new(ScriptedModel::new(script)))).model("scripted")
}

/// Starts a runtime whose agents play this script.
pub(crate) async fn playing(text: &str) -> TestRuntime {
    let options = script(text);
    TestRuntime::new(|builder| builder.agents(options)).await
}

pub(crate) async fn spawn(runtime: &TestRuntime, name: &str, task: &str) -> TaskHandle<String> {
    runtime.session.spawn(NewTask::agent(task).name(name)).await.unwrap()
}

/// Runs an agent to its end.
pub(crate) async fn run(runtime: &TestRuntime, name: &str, task: &str) -> RunResult {
    spawn(runtime, name, task).await.wait().await.unwrap()
}

#[track_caller]
pub(crate) fn final_message(run_result: &RunResult) -> String {
    match &*run_result.outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        other => panic!("it ended as {other}"),
    }
}

/// Returns the transcript of an agent.
pub(crate) async fn transcript<T>(runtime: &TestRuntime, task: &TaskHandle<T>) -> String {
    runtime.session.transcript(task.into()).await.unwrap().unwrap()
}

/// A tool that calls a function.
pub(crate) struct FunctionTool {
    spec: ToolSpec,
    hints: ExecutionHints,
    body: Box<dyn Fn() -> BoxFuture<'static, Result<ToolReply, ToolError>> + Send + Sync>,
}

impl FunctionTool {
    pub(crate) fn new<F, Fut>(name: &str, effect: ToolEffect, body: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolReply, ToolError>> + Send + 'static,
    {
        let parameters = Arc::new(serde_json::json!({ "type": "object" }));
        let spec = ToolSpec { name: name.into(), description: name.into(), parameters };
        Self { spec, hints: ExecutionHints::of(effect), body: Box::new(move || Box::pin(body())) }
    }
}

impl ToolHandler for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        self.hints
    }

    fn call(&self, _call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        (self.body)()
    }
}

impl std::fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spec.name)
    }
}

/// Creates the tool `look`, each call of which waits for a signal.
pub(crate) fn slow_tool(go: &Arc<Notify>) -> FunctionTool {
    let signal = go.clone();
    FunctionTool::new("look", ToolEffect::Pure, move || {
        let signal = signal.clone();
        async move {
            signal.notified().await;
            Ok(ToolReply::text("leeks"))
        }
    })
}

/// Starts the agent A with [`slow_tool`].
pub(crate) async fn agent_with_a_slow_tool(
    text: &str,
) -> (TestRuntime, TaskHandle<String>, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let options = script(text).tool(slow_tool(&go));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "cook").await;
    (runtime, agent, go)
}

/// Returns the text of the model among these outputs.
pub(crate) fn text_of(outputs: &[AgentOutput]) -> String {
    outputs.iter().filter_map(AgentOutput::text).collect()
}

#[track_caller]
pub(crate) fn failure(run_result: &RunResult) -> (Failure, Option<String>) {
    match &*run_result.outcome {
        Outcome::Failed(failed) => {
            let partial = failed.partial.as_ref().map(|partial| partial.decode().unwrap());
            (failed.failure.clone(), partial)
        }
        other => panic!("it ended as {other}"),
    }
}

/// Returns an answer to a question.
pub(crate) fn reply(text: &str) -> GivenAnswer {
    GivenAnswer::Reply(Json::of(text).unwrap())
}

/// Waits until everything that waits for nobody is done.
pub(crate) async fn until_idle(_runtime: &TestRuntime) {
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

/// A source of one model with this context window.
#[derive(Debug)]
pub(crate) struct Narrow {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) window: u64,
}

impl ModelSource for Narrow {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let chosen = OneModel(self.model.clone()).find(name)?;
        Ok(ChosenModel { context_window: self.window, max_output: 500, ..chosen })
    }
}

/// Returns all tasks of a session, at every depth.
pub(crate) async fn everything(runtime: &Runtime, session: &Session) -> Vec<StoredTask> {
    let operator = runtime.operator_session(session.id()).await.unwrap();
    operator.history(&TaskQuery::default()).await.unwrap()
}

/// A story with every kind of delegation call.
pub(crate) const STORY: &str = "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
  call spawn_agent {\"name\": \"South\", \"task\": \"Look.\", \"wait\": true}
  call list_tasks {}
turn
  repeat
  when Which side
  call send_message {\"to\": \"North\", \"message\": \"left\"}
turn
  when is answered
  call wait_tasks {\"tasks\": [\"North\"], \"mode\": \"all\"}
  call stop_task {\"task\": \"South\"}
  call read_output {\"task\": \"South\"}
turn
  when Left it is.
  say All is well.
turn
  repeat
  say I wait.

agent North
turn
  call ask_parent {\"question\": \"Which side?\"}
turn
  when The answer: left
  say Left it is.

agent South
turn
  delay 5s
  say Nothing here.
";

/// Creates a tokio runtime with paused time, for one of several processes in a test.
pub(crate) fn paused() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}
