//! Helpers of the tests.

use std::sync::Arc;

use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::outcome::Outcome;
use brigade_runtime::{AgentOptions, AgentTask, NewTask, OneModel, Runtime, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};

/// Returns options for agents that play this script.
pub(crate) fn playing(text: &str) -> AgentOptions {
    let script = Script::parse("test", text).unwrap();
    AgentOptions::new(OneModel(Arc::new(ScriptedModel::new(script)))).model("scripted")
}

pub(crate) async fn start(options: AgentOptions) -> (Runtime, Session) {
    start_on(Arc::new(MemoryStore::new()), options).await
}

pub(crate) async fn start_on(store: Arc<dyn Store>, options: AgentOptions) -> (Runtime, Session) {
    let runtime = Runtime::builder().shared_store(store).agents(options).start().await.unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    (runtime, session)
}

pub(crate) async fn spawn(
    session: &Session,
    task: NewTask<AgentTask<String>>,
) -> TaskHandle<String> {
    session.spawn(task).await.unwrap()
}

/// Returns the last message of an agent.
pub(crate) async fn final_message<T>(session: &Session, task: &TaskHandle<T>) -> String {
    let run_result = task.wait().await.unwrap();
    let transcript_text = session.transcript(task.into()).await.unwrap().unwrap();
    match &*run_result.outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        other => panic!("it ended as {other}: {transcript_text}"),
    }
}
