//! The services that all agents of a runtime share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_agent::json_schema::{Schema, SchemaCache, SchemaError};
use brigade_agent::{AgentOverrides, client_tool};
use brigade_file_tools as builtin;
use brigade_llm::{SharedLimits, ToolSpec};
use brigade_model::ids::Time;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use super::build::PreparedBlueprint;
use super::delegation;
use super::live_output::LiveOutputs;
use super::mcp_client::McpServers;
use super::options::AgentOptions;
use super::task_link::{DeferredRuntime, TaskLink};
use crate::clock::Clock;
use crate::performer::Reporter;
use crate::processes::ProcessService;
use crate::worktrees::WorktreeService;

/// The services that all agents of a runtime share.
#[derive(Debug)]
pub(crate) struct AgentServices {
    pub(super) options: AgentOptions,
    pub(super) mcp_servers: McpServers,
    /// `None` in a runtime without processes.
    pub(super) worktrees: Option<Arc<WorktreeService>>,
    runtime: DeferredRuntime,
    clock: Arc<dyn Clock>,
    pub(super) schemas: SchemaCache,
    /// The tool specs for models: always the same, and expensive to create.
    tool_specs: Mutex<HashMap<&'static str, ToolSpec>>,
    pub(super) prepared_blueprints: Mutex<HashMap<Json, Arc<PreparedBlueprint>>>,
    /// The texts of recent blueprints, so that agents with the same one share it.
    pub(super) blueprint_texts: Mutex<HashSet<Json>>,
    pub(crate) live_outputs: LiveOutputs,
}

impl AgentServices {
    /// Creates the services. Pid files of MCP servers and worktrees are in the state directory of
    /// processes.
    pub(crate) fn new(
        options: AgentOptions,
        runtime: DeferredRuntime,
        clock: Arc<dyn Clock>,
        processes: Option<&Arc<ProcessService>>,
    ) -> Self {
        let pid_dir = processes.map(|processes| processes.mcp_servers_dir());
        // Each server was checked when it was added.
        let servers = options.mcp_servers.clone();
        let mcp_servers = match pid_dir.filter(|dir| !servers.is_empty() || dir.exists()) {
            Some(dir) => McpServers::with_pid_registry(servers, dir),
            None => McpServers::new(servers),
        };
        let mcp_servers = mcp_servers.unwrap_or_default();
        Self {
            options,
            mcp_servers,
            worktrees: processes.map(|processes| processes.worktrees.clone()),
            runtime,
            clock,
            schemas: SchemaCache::default(),
            tool_specs: Mutex::default(),
            prepared_blueprints: Mutex::default(),
            blueprint_texts: Mutex::default(),
            live_outputs: LiveOutputs::default(),
        }
    }

    /// Divides the limits of providers with other nodes.
    pub(crate) fn share_limits(&self, shared: Arc<dyn SharedLimits>) {
        self.options.models.share_limits(shared);
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn tool_spec(
        &self,
        name: &'static str,
        make: impl FnOnce() -> ToolSpec,
    ) -> ToolSpec {
        let mut specs = self.tool_specs.lock().unwrap_or_else(PoisonError::into_inner);
        specs.entry(name).or_insert_with(make).clone()
    }

    /// Returns a task's link to the runtime.
    pub(crate) fn link(&self, reporter: Reporter) -> TaskLink {
        TaskLink { reporter, runtime: self.runtime.clone() }
    }

    /// Returns the names of all tools that an agent of this runtime can have.
    pub(super) fn tool_names(&self, overrides: &AgentOverrides) -> Vec<Arc<str>> {
        let of_plugins = self.options.plugins.iter().flat_map(|plugin| plugin.tools());
        let own = of_plugins.chain(self.options.tools.iter().cloned());
        let own = own.chain(client_tool::build_client_tools(&overrides.client_tools));
        let files = builtin::READING_TOOLS.into_iter().chain(builtin::WRITING_TOOLS);
        let ours = delegation::TOOL_NAMES.into_iter().chain(files).map(Arc::from);
        ours.chain(own.map(|tool| tool.spec().name.clone())).collect()
    }

    pub(super) fn result_schema(&self, schema: Option<&Json>) -> Result<Option<Schema>, Refusal> {
        let Some(schema) = schema else { return Ok(None) };
        let schema = self.schemas.get_or_compile(&schema.decode::<Value>()?);
        schema.map(Some).map_err(|error| schema_refusal(&error))
    }
}

pub(super) fn schema_refusal(error: &SchemaError) -> Refusal {
    Refusal::invalid(error.to_string())
}
