//! Starts an agent.

use brigade_agent::AgentOverrides;
use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest};
use brigade_runtime::NewTask;
use brigade_runtime::agents::delegation;
use serde::{Deserialize, Serialize};

use super::StartReply;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;
use crate::task_info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRequest {
    pub session: String,
    pub prompt: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
    /// The definition; a general one, when there is none.
    #[serde(default)]
    pub agent: Option<String>,
    /// Instead of the definition's.
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub config: Option<Json>,
    #[serde(default)]
    pub result_schema: Option<Json>,
    /// Where it works, and where its definitions are looked for.
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub limits: Box<Limits>,
    /// What it may do at the most.
    #[serde(default)]
    pub permissions: PermissionRules,
    /// MCP servers whose tools it has beside those of its definition. What it may do with them,
    /// `permissions` say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// It passes to the session when the task that started it ends.
    #[serde(default)]
    pub keep: bool,
    /// Nobody is there to approve anything.
    #[serde(default)]
    pub unattended: bool,
    /// What its commands are confined to, and those of all below it.
    #[serde(default)]
    pub sandbox: Option<SandboxRequest>,
    /// What each process of theirs may use.
    #[serde(default)]
    pub resources: ResourceLimits,
    /// Instead of what its definition says of the model's parameters, and the tools that the client
    /// runs. What it may do with those, `permissions` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<AgentOverrides>>,
}

impl RunRequest {
    pub fn new(session: impl Into<String>, task: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            prompt: task.into(),
            name: None,
            key: None,
            agent: None,
            model: None,
            config: None,
            result_schema: None,
            cwd: None,
            limits: Box::default(),
            permissions: PermissionRules::all(),
            mcp_servers: Vec::new(),
            keep: false,
            unattended: false,
            sandbox: None,
            resources: ResourceLimits::default(),
            overrides: None,
        }
    }

    /// What an agent may do whom nobody allowed more: delegate, wait, ask, and read and search files, but
    /// write none and run no command.
    pub fn default_permissions(more: impl IntoIterator<Item = PermissionRule>) -> PermissionRules {
        let tools = delegation::TOOL_NAMES.into_iter().filter(|name| *name != "run_process");
        let tools = tools.chain(brigade_file_tools::READING_TOOLS).filter_map(|name| name.parse().ok());
        PermissionRules { allow: Some(tools.chain(more).collect()), ..PermissionRules::default() }
    }

    fn new_task(&self) -> NewTask {
        let mut task = NewTask::agent(&self.prompt).permissions(self.permissions.clone());
        if let Some(name) = &self.name {
            task = task.name(name);
        }
        if let Some(key) = &self.key {
            task = task.key(key);
        }
        if let Some(agent) = &self.agent {
            task = task.definition(agent);
        }
        if let Some(model) = &self.model {
            task = task.model(model);
        }
        if let Some(config) = &self.config {
            task = task.config(config);
        }
        if let Some(schema) = &self.result_schema {
            task = task.result_schema(schema);
        }
        if let Some(cwd) = &self.cwd {
            task = task.cwd(cwd);
        }
        if !self.limits.is_empty() {
            task = task.limits(*self.limits);
        }
        for server in &self.mcp_servers {
            task = task.mcp_server(server);
        }
        if self.unattended {
            task = task.unattended();
        }
        if let Some(confine) = &self.sandbox {
            task = task.sandbox(confine.clone());
        }
        if let Some(overrides) = &self.overrides {
            task = task.overrides(overrides);
        }
        let task = task.resources(self.resources);
        if self.keep { task.keep() } else { task }
    }
}

impl Call for RunRequest {
    type Reply = StartReply;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<StartReply, Refusal> {
        let session = desk.open_session(&self.session).await?;
        let task = session.spawn(self.new_task()).await?;
        let row = task.get().await?;
        let name = session.row().name;
        Ok(StartReply { task: TaskInfo::of(&name, task.no(), &row), existed: task.existed() })
    }
}
