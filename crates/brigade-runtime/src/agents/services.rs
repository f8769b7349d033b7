//! What all agents of a runtime have in common.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_agent::backend::OwnLoop;
use brigade_file_tools as builtin;
use brigade_agent::json_schema::{Schema, SchemaCache, SchemaError};
use brigade_mcp::client::McpServers;
use brigade_agent::{AgentOverrides, Backend, client_tool};
use brigade_llm::ToolSpec;
use brigade_model::ids::Time;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use super::build::PreparedBlueprint;
use super::delegation;
use super::options::AgentOptions;
use super::task_link::{DeferredRuntime, TaskLink};
use crate::clock::Clock;
use crate::performer::Reporter;

/// Everything that agents of this runtime have in common.
#[derive(Debug)]
pub(crate) struct AgentServices {
    pub(super) options: AgentOptions,
    pub(super) mcp_servers: McpServers,
    runtime: DeferredRuntime,
    clock: Arc<dyn Clock>,
    pub(super) schemas: SchemaCache,
    /// Tools as models are told of them: always the same, and costly to make.
    tool_specs: Mutex<HashMap<&'static str, ToolSpec>>,
    pub(super) prepared_blueprints: Mutex<HashMap<Json, Arc<PreparedBlueprint>>>,
}

impl AgentServices {
    /// `folder` is where it is written down what runs.
    pub(crate) fn new(
        options: AgentOptions,
        runtime: DeferredRuntime,
        clock: Arc<dyn Clock>,
        folder: Option<PathBuf>,
    ) -> Self {
        let (schemas, specs, prepared) =
            (SchemaCache::default(), Mutex::default(), Mutex::default());
        // Each was checked when it was added.
        let servers = options.mcp_servers.clone();
        let mcp_servers = match folder.filter(|folder| !servers.is_empty() || folder.exists()) {
            Some(folder) => McpServers::with_pid_registry(servers, folder),
            None => McpServers::new(servers),
        };
        let mcp_servers = mcp_servers.unwrap_or_default();
        Self {
            options,
            mcp_servers,
            runtime,
            clock,
            schemas,
            tool_specs: specs,
            prepared_blueprints: prepared,
        }
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

    /// A task's hold on the runtime.
    pub(crate) fn link(&self, reporter: Reporter) -> TaskLink {
        TaskLink { reporter, runtime: self.runtime.clone() }
    }

    /// What carries out an agent.
    pub(super) fn backend(&self, name: Option<&str>) -> Result<Arc<dyn Backend>, Refusal> {
        let Some(name) = name else { return Ok(Arc::new(OwnLoop)) };
        self.options.backends.get(name).cloned().ok_or_else(|| {
            Refusal::unavailable(format!("nothing here carries out agents as {name:?}"))
        })
    }

    /// Every tool that an agent of this runtime can have.
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
