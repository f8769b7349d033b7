//! Words that the tests share.

use std::sync::Arc;

use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::outcome::Outcome;
use brigade_runtime::{AgentOptions, NewTask, OneModel, Runtime, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};

/// Agents that play this.
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

pub(crate) async fn spawn(session: &Session, task: NewTask) -> TaskHandle {
    session.spawn(task).await.unwrap()
}

/// What an agent says at its end.
pub(crate) async fn words(session: &Session, task: &TaskHandle) -> String {
    let ending = task.wait().await.unwrap();
    let said = session.transcript(task.into()).await.unwrap().unwrap();
    match &*ending.outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        other => panic!("it ended as {other}: {said}"),
    }
}
