//! A runtime with one client as the backend of its agents.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::AgentOverrides;
use brigade_agent::permission::PermissionRules;
use brigade_external::external_backend::ExternalBackend;
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_llm::wire_server::WireServer;
use brigade_model::call::RunResult;
use brigade_model::ids::TaskNo;
use brigade_model::outcome::Outcome;
use brigade_model::refusal::Refusal;
use brigade_runtime::{
    AgentOptions, NewTask, OneModel, ProcessOptions, Runtime, Session, TaskHandle,
};
use brigade_store::{MemoryStore, Store};
use serde_json::Value;
use tempfile::TempDir;

use crate::loopback_model::{TOKENS_OF_A_CALL, start_model};
use crate::process_scan::find_processes;
use crate::programs::Client;

/// A runtime that can be replaced by the next one, with the model of its client.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    client: Client,
    model: WireServer,
    store: Arc<dyn Store>,
    runtime: Runtime,
    pub(crate) session: Session,
}

impl World {
    pub(crate) async fn open(client: &Client) -> Self {
        // Codex refuses to work in the directory of temporary files.
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["work", "home"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let model = start_model().await;
        Self::open_in(dir, *client, model, Arc::new(MemoryStore::default())).await
    }

    async fn open_in(
        dir: TempDir,
        client: Client,
        model: WireServer,
        store: Arc<dyn Store>,
    ) -> Self {
        let agent = client.agent(&dir.path().join("home"), &model);
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/mcp_stand_in");
        let backend = ExternalBackend::new(agent).brigade_program(tools);
        let options = agent_options().backend(client.file, backend);
        let builder = Runtime::builder().shared_store(store.clone());
        let builder = builder.processes(ProcessOptions::new(dir.path().join("state")));
        let runtime = builder.agents(options).start().await.unwrap();
        let session = runtime.session("test").await.unwrap();
        Self { dir, client, model, store, runtime, session }
    }

    /// Shuts the runtime down and starts the next one with the same store and processes.
    pub(crate) async fn restart(self) -> Self {
        let Self { dir, client, model, store, runtime, session } = self;
        drop(session);
        runtime.shutdown().await.unwrap();
        Self::open_in(dir, client, model, store).await
    }

    /// Returns the working directory of the agent.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) async fn spawn(&self, task: &str) -> TaskHandle<String> {
        self.spawn_with_rules(task, serde_json::json!({})).await
    }

    pub(crate) async fn spawn_with_rules(&self, task: &str, rules: Value) -> TaskHandle<String> {
        self.try_spawn(task, rules).await.unwrap()
    }

    pub(crate) async fn try_spawn(
        &self,
        task: &str,
        rules: Value,
    ) -> Result<TaskHandle<String>, Refusal> {
        let backend = Some(self.client.file.to_owned());
        let overrides = AgentOverrides { backend, ..AgentOverrides::default() };
        let rules: PermissionRules = serde_json::from_value(rules).unwrap();
        let task = NewTask::agent(task).overrides(&overrides).cwd(self.work()).permissions(rules);
        self.session.spawn(task).await
    }

    /// Waits for the end of a run, and shows what there is if it does not come.
    pub(crate) async fn wait(&self, task: &TaskHandle<String>) -> RunResult {
        match task.wait_within(Duration::from_secs(180)).await.unwrap() {
            Some(result) => result,
            None => panic!("it does not end\n{}", self.describe().await),
        }
    }

    /// Waits until a command of the model has touched this file.
    pub(crate) async fn wait_for_file(&self, name: &str) {
        let path = self.work().join(name);
        if !eventually(async || path.exists()).await {
            panic!("{name} does not appear\n{}", self.describe().await);
        }
    }

    pub(crate) async fn wait_for_approval(&self) {
        if !eventually(async || self.session.approvals().len() == 1).await {
            panic!("nobody asks\n{}", self.describe().await);
        }
    }

    /// Fails if a process of the client outlives its task.
    pub(crate) async fn assert_no_process(&self) {
        let home = self.home();
        // The kernel removes a killed process shortly after its signal.
        if !eventually(async || find_processes(&home).is_empty()).await {
            panic!("left: {:#?}", find_processes(&home));
        }
    }

    pub(crate) async fn transcript(&self) -> String {
        let no = TaskNo::new(1).unwrap();
        self.session.transcript(no.into()).await.unwrap().unwrap_or_default()
    }

    /// Checks the tokens of all turns. Clients also call the model for titles and memories, and not
    /// all of them report these calls.
    pub(crate) async fn assert_charged_once(&self, turns: u64) {
        let operator = self.runtime.operator_session(self.session.id()).await.unwrap();
        let row = operator.get(TaskNo::new(1).unwrap()).await.unwrap().row;
        let calls = row.usage().tokens / TOKENS_OF_A_CALL;
        assert_eq!(row.usage().tokens % TOKENS_OF_A_CALL, 0, "{}", row.usage().tokens);
        let answered = self.model.requests().len() as u64;
        assert!((turns..=answered).contains(&calls), "{calls} of {answered} calls are charged");
    }

    #[track_caller]
    pub(crate) fn expect_answer(&self, result: &RunResult, expected: &str) {
        match &*result.outcome {
            Outcome::Succeeded { result } => {
                assert_eq!(result.decode::<String>().unwrap(), expected);
            }
            other => panic!("it ended as {other}\n{}", self.describe_model()),
        }
    }

    async fn describe(&self) -> String {
        let processes = find_processes(&self.home());
        let transcript = self.transcript().await;
        format!("{}\n{transcript}\n{processes:#?}", self.describe_model())
    }

    /// Returns the requests that the model got, in short.
    fn describe_model(&self) -> String {
        let requests = self.model.requests();
        let lines = requests.iter().map(|request| {
            let tools: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
            let messages = request.messages.len();
            format!("{} {messages} messages, tools {tools:?}\n", request.target)
        });
        lines.collect()
    }
}

/// Checks a condition until it holds. Returns false after two minutes.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..6_000 {
        if holds().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// Returns options with a default model, which no client may get: each uses its own.
fn agent_options() -> AgentOptions {
    let script = Script::parse("never", "agent *\nturn\n say Never.\n").unwrap();
    AgentOptions::new(OneModel(Arc::new(ScriptedModel::new(script)))).model("never")
}

#[track_caller]
pub(crate) fn failure(result: &RunResult) -> String {
    match &*result.outcome {
        Outcome::Failed(failed) => failed.failure.to_string(),
        other => panic!("it ended as {other}"),
    }
}
