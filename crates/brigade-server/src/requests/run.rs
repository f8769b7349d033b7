//! Starts an agent.

use brigade_agent::Overrides;
use brigade_agent::permission::{Rule, Rules};
use brigade_agent::tools;
use brigade_model::enclosure::{Confine, Resources};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_runtime::NewTask;
use brigade_runtime::agents::delegation;
use serde::{Deserialize, Serialize};

use super::Started;
use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;
use crate::info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub session: String,
    pub task: String,
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
    pub permissions: Rules,
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
    pub confine: Option<Confine>,
    /// What each process of theirs may use.
    #[serde(default)]
    pub resources: Resources,
    /// Instead of what its definition says of the model's parameters, and the tools that the client
    /// runs. What it may do with those, `permissions` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<Overrides>>,
}

impl Run {
    pub fn new(session: impl Into<String>, task: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            task: task.into(),
            name: None,
            key: None,
            agent: None,
            model: None,
            config: None,
            result_schema: None,
            cwd: None,
            limits: Box::default(),
            permissions: Rules::all(),
            mcp_servers: Vec::new(),
            keep: false,
            unattended: false,
            confine: None,
            resources: Resources::default(),
            overrides: None,
        }
    }

    /// What an agent may do whom nobody allowed more: delegate, wait, ask, and read and search files, but
    /// write none and run no command.
    pub fn usual_permissions(more: impl IntoIterator<Item = Rule>) -> Rules {
        let tools = delegation::NAMES.into_iter().filter(|name| *name != "run_process");
        let tools = tools.chain(tools::READING).filter_map(|name| name.parse().ok());
        Rules { allow: Some(tools.chain(more).collect()), ..Rules::default() }
    }

    fn new_task(&self) -> NewTask {
        let mut task = NewTask::agent(&self.task).permissions(self.permissions.clone());
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
        if let Some(confine) = &self.confine {
            task = task.confine(confine.clone());
        }
        if let Some(overrides) = &self.overrides {
            task = task.overrides(overrides);
        }
        let task = task.resources(self.resources);
        if self.keep { task.keep() } else { task }
    }
}

impl Ask for Run {
    type Done = Started;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Started, Refusal> {
        let session = desk.open(&self.session).await?;
        let task = session.spawn(self.new_task()).await?;
        let row = task.get().await?;
        let name = session.row().name;
        Ok(Started { task: TaskInfo::of(&name, task.no(), &row), existed: task.existed() })
    }
}
