//! A runtime with the built-in adapters, whose programs are stand-ins.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::AgentOverrides;
use brigade_external::acp::AcpAgent;
use brigade_external::adapter::CliAdapter;
use brigade_external::external_backend::ExternalBackend;
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::call::RunResult;
use brigade_model::ids::TaskNo;
use brigade_model::outcome::Outcome;
use brigade_model::task::StoredTask;
use brigade_runtime::{
    AgentOptions, AgentTask, NewTask, OneModel, ProcessOptions, Runtime, Session, TaskHandle,
};
use brigade_store::{MemoryStore, Store};
use tempfile::TempDir;

const ADAPTERS: [&str; 5] = [
    include_str!("../../adapters/claude.toml"),
    include_str!("../../adapters/codex.toml"),
    include_str!("../../adapters/gemini.toml"),
    include_str!("../../adapters/opencode.toml"),
    include_str!("../../adapters/qwen.toml"),
];

/// A rule for a line with several permission requests.
const BATCH_RULE: &str = r#"
[[events]]
match = { type = "batch" }
each = "requests[]"
permission = { id = "id", tool = "tool", arguments = "input" }
"#;

/// A runtime that can be replaced by the next one, as after a crash.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Runtime,
    pub(crate) session: Session,
}

impl World {
    pub(crate) async fn open() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        Self::open_in(dir, Arc::new(MemoryStore::default())).await
    }

    async fn open_in(dir: TempDir, store: Arc<dyn Store>) -> Self {
        let options = agent_options(dir.path());
        let builder = Runtime::builder().shared_store(store.clone());
        let builder = builder.processes(ProcessOptions::new(dir.path().join("state")));
        let runtime = builder.agents(options).start().await.unwrap();
        let session = runtime.session("test").await.unwrap();
        Self { dir, store, runtime, session }
    }

    /// Shuts the runtime down and starts the next one with the same store and processes.
    pub(crate) async fn restart(self) -> Self {
        let Self { dir, store, runtime, session } = self;
        drop(session);
        runtime.shutdown().await.unwrap();
        Self::open_in(dir, store).await
    }

    /// Returns the working directory of the agents.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Returns a file of the stand-ins, such as their list of starts.
    pub(crate) fn vendor_file(&self, name: &str) -> PathBuf {
        self.dir.path().join("vendor").join(name)
    }

    pub(crate) fn read_vendor_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.vendor_file(name)).unwrap_or_default()
    }

    pub(crate) fn open_gate(&self) {
        std::fs::write(self.vendor_file("gate"), "").unwrap();
    }

    pub(crate) fn agent(&self, vendor: &str, task: &str) -> NewTask<AgentTask<String>> {
        let overrides =
            AgentOverrides { backend: Some(vendor.into()), ..AgentOverrides::default() };
        NewTask::agent(task).overrides(&overrides).cwd(self.work())
    }

    pub(crate) async fn spawn(&self, vendor: &str, task: &str) -> TaskHandle<String> {
        self.session.spawn(self.agent(vendor, task)).await.unwrap()
    }

    /// Runs an agent to its end.
    pub(crate) async fn run(&self, vendor: &str, task: &str) -> RunResult {
        let task = self.spawn(vendor, task).await;
        task.wait_within(Duration::from_secs(120)).await.unwrap().expect("it ends")
    }

    pub(crate) async fn task(&self, no: u32) -> StoredTask {
        let operator = self.runtime.operator_session(self.session.id()).await.unwrap();
        operator.get(TaskNo::new(no).unwrap()).await.unwrap()
    }

    /// Waits until the transcript of the first task contains this text.
    pub(crate) async fn wait_for_transcript(&self, text: &str) {
        let no = TaskNo::new(1).unwrap();
        eventually(async || {
            let transcript = self.session.transcript(no.into()).await.unwrap();
            transcript.is_some_and(|transcript| transcript.contains(text))
        })
        .await;
    }

    pub(crate) async fn is_ended(&self, no: u32) -> bool {
        !self.task(no).await.row.is_alive()
    }
}

/// Checks a condition until it holds. Fails after two minutes.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it does not happen");
}

fn agent_options(dir: &Path) -> AgentOptions {
    let script = Script::parse("never", "agent *\nturn\n say Never.\n").unwrap();
    let models = OneModel(Arc::new(ScriptedModel::new(script)));
    let mut options = AgentOptions::new(models).model("scripted");
    let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
    for text in ADAPTERS {
        let adapter = stand_in(text, &fakes, &dir.join("vendor"));
        let name = brigade_external::external_agent::ExternalAgent::name(&adapter).to_owned();
        options = options.backend(&name, ExternalBackend::new(Arc::new(adapter)));
    }
    for (name, words) in [("acp", &[][..]), ("acp-forgetful", &["forgetful".to_owned()])] {
        let program = fakes.join("acp-agent").to_str().unwrap().to_owned();
        let home = dir.join("vendor").to_str().unwrap().to_owned();
        let agent = AcpAgent::from_command_line(&[&[program, home], words].concat()).unwrap();
        options = options.backend(name, ExternalBackend::new(Arc::new(agent)));
    }
    let batch = ADAPTERS[0].replace("name = \"claude\"", "name = \"batch\"");
    let batch = stand_in(&format!("{batch}\n{BATCH_RULE}"), &fakes, &dir.join("vendor"));
    options = options.backend("batch", ExternalBackend::new(Arc::new(batch)));
    let missing = ADAPTERS[0].replace("program = \"claude\"", "program = \"no-such-agent\"");
    let missing = CliAdapter::parse(&missing).unwrap();
    options.backend("missing", ExternalBackend::new(Arc::new(missing)))
}

/// Returns the adapter with the stand-in as its program, whose files are in `home`.
fn stand_in(text: &str, fakes: &Path, home: &Path) -> CliAdapter {
    let mut file: toml::Table = text.parse().unwrap();
    let program = file["program"].as_str().unwrap().to_owned();
    file["program"] = fakes.join(program).to_str().unwrap().into();
    let environment = file.entry("environment").or_insert_with(|| toml::Table::new().into());
    let set = environment.as_table_mut().unwrap();
    let set = set.entry("set").or_insert_with(|| toml::Table::new().into());
    for name in ["CLAUDE_CONFIG_DIR", "CODEX_HOME"] {
        set.as_table_mut().unwrap().insert(name.into(), home.to_str().unwrap().into());
    }
    let passed = environment.get_mut("pass").unwrap().as_array_mut().unwrap();
    passed.retain(|name| !["CLAUDE_CONFIG_DIR", "CODEX_HOME"].contains(&name.as_str().unwrap()));
    CliAdapter::parse(&file.to_string()).unwrap()
}

#[track_caller]
pub(crate) fn answer(result: &RunResult) -> String {
    match &*result.outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        other => panic!("it ended as {other}"),
    }
}

#[track_caller]
pub(crate) fn failure(result: &RunResult) -> String {
    match &*result.outcome {
        Outcome::Failed(failed) => failed.failure.to_string(),
        other => panic!("it ended as {other}"),
    }
}
