//! Turns of agents. Each has a session of its own in koda's database, which koda always has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use koda_core::bg_agent;
use koda_core::config::{KodaConfig, ProviderType};
use koda_core::db::{Database, Role};
use koda_core::engine::{EngineCommand, EngineEvent, EngineSink};
use koda_core::file_tracker::FileTracker;
use koda_core::inference::{InferenceContext, inference_loop};
use koda_core::persistence::Persistence;
use koda_core::providers::ToolDefinition;
use koda_core::sub_agent_cache::SubAgentCache;
use koda_core::tools::ToolRegistry;
use koda_core::trust::TrustMode;
use peers_harness::{BoxError, Measured, Stopwatch};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::scripted_provider::ScriptedProvider;

/// Counts final messages and results of tools.
#[derive(Debug, Default)]
struct CountingSink {
    texts: AtomicUsize,
    tool_results: AtomicUsize,
}

impl EngineSink for CountingSink {
    fn emit(&self, event: EngineEvent) {
        match event {
            EngineEvent::TextDelta { .. } => self.texts.fetch_add(1, Ordering::Relaxed),
            EngineEvent::ToolCallResult { .. } => self.tool_results.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// The parts that all agents share.
struct AgentHost {
    dir: TempDir,
    db: Database,
    config: KodaConfig,
    tools: ToolRegistry,
    tool_defs: Vec<ToolDefinition>,
    sink: CountingSink,
}

impl AgentHost {
    async fn start() -> Result<Arc<Self>, BoxError> {
        let dir = tempfile::tempdir()?;
        let db = Database::init(dir.path()).await?;
        let config = KodaConfig::default_for_testing(ProviderType::LMStudio);
        let tools = ToolRegistry::new(dir.path().to_owned(), config.max_context_tokens);
        let tool_defs = tools.get_definitions(&["ListSkills".to_owned()], &[]);
        let sink = CountingSink::default();
        Ok(Arc::new(Self { dir, db, config, tools, tool_defs, sink }))
    }

    /// Runs one turn of an agent to its final message.
    async fn run_agent(&self) -> Result<(), BoxError> {
        let project_root: &Path = self.dir.path();
        let session_id = self.db.create_session("agent", project_root).await?;
        let prompt = Some("Look.");
        self.db.insert_message(&session_id, &Role::User, prompt, None, None, None).await?;
        let mut file_tracker = FileTracker::new(&session_id, self.db.clone()).await;
        let (_commands, mut cmd_rx) = mpsc::channel::<EngineCommand>(1);
        inference_loop(InferenceContext {
            project_root,
            config: &self.config,
            db: &self.db,
            session_id: &session_id,
            system_prompt: "You are a capable agent.",
            provider: &ScriptedProvider,
            tools: &self.tools,
            tool_defs: &self.tool_defs,
            pending_images: None,
            mode: TrustMode::Auto,
            sink: &self.sink,
            cancel: CancellationToken::new(),
            cmd_rx: &mut cmd_rx,
            file_tracker: &mut file_tracker,
            bg_agents: &bg_agent::new_shared(),
            sub_agent_cache: &SubAgentCache::new(),
        })
        .await?;
        Ok(())
    }

    fn assert_done(&self, count: usize) {
        assert_eq!(self.sink.tool_results.load(Ordering::Relaxed), count);
        assert_eq!(self.sink.texts.load(Ordering::Relaxed), count);
    }
}

pub(crate) async fn one_after_another(count: usize) -> Result<Measured, BoxError> {
    let host = AgentHost::start().await?;
    let watch = Stopwatch::start();
    for _ in 0..count {
        host.run_agent().await?;
    }
    let sample = watch.stop();
    host.assert_done(count);
    Ok(sample.into())
}

pub(crate) async fn at_once(count: usize) -> Result<Measured, BoxError> {
    let host = AgentHost::start().await?;
    let watch = Stopwatch::start();
    let mut agents = JoinSet::new();
    for _ in 0..count {
        let host = host.clone();
        agents.spawn(async move { host.run_agent().await });
    }
    while let Some(ended) = agents.join_next().await {
        ended??;
    }
    let sample = watch.stop();
    host.assert_done(count);
    Ok(sample.into())
}
