//! Builds the agent of a blueprint for each attempt.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use brigade_agent::inbox::Quoter;
use brigade_agent::json_schema::Schema;
use brigade_agent::{Agent, Backend, Plugin, StopPolicy, Tool, ToolSet, ToolSource, client_tool};
use brigade_file_tools as builtin;
use brigade_model::action::StartAction;
use brigade_model::ids::Millis;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::stall::StallWatch;
use brigade_model::work::Work;

use super::blueprint::Blueprint;
use super::delegation::{self, DelegationContext};
use super::mcp_client::grant_tools;
use super::prompt;
use super::services::AgentServices;
use crate::performer::Reporter;

/// The largest number of blueprints in a cache. When it is reached, all are dropped and prepared
/// again.
const CACHED_BLUEPRINTS_MAX: usize = 1_000;

/// The shortest interval between two heartbeats of an agent.
const HEARTBEAT_MIN: Millis = Millis(20);

/// The part of an agent that is the same for all attempts of its blueprint.
#[derive(Debug)]
pub(super) struct PreparedBlueprint {
    blueprint: Arc<Blueprint>,
    system_prompt: Arc<str>,
    /// The tools that the permissions allow.
    allowed_tools: HashSet<Arc<str>>,
    /// The tools beside the delegation tools, which are bound to each attempt.
    own_tools: Vec<Tool>,
    plugins: Vec<Arc<dyn Plugin>>,
    result_schema: Option<Schema>,
    server_tools: Option<Arc<dyn ToolSource>>,
}

/// An agent and its backend, for one attempt.
pub(super) struct BuiltAgent {
    pub(super) agent: Agent,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) blueprint: Arc<Blueprint>,
}

impl AgentServices {
    /// Builds the agent and its backend for one attempt.
    pub(super) fn build(
        self: &Arc<Self>,
        start: &StartAction,
        reporter: Reporter,
    ) -> Result<BuiltAgent, Refusal> {
        let Work::Agent(work) = &start.spec.work else {
            return Err(Refusal::internal("this is not an agent"));
        };
        let prepared = self.prepare_blueprint(&work.blueprint)?;
        let blueprint = &prepared.blueprint;
        let backend = blueprint.backend();
        let opened = self.open_model(&blueprint.model, backend.map(|backend| backend.name))?;
        let chosen = opened.chosen;
        let backend = self.backend(backend)?;
        let link = self.link(reporter);
        let blueprint = blueprint.clone();
        let agents = self.clone();
        let quoter = Quoter::new(work.quote_mark);
        let delegate =
            Arc::new(DelegationContext { link, agents, blueprint: blueprint.clone(), quoter });
        let tools = prepared.build_tools(&delegate);
        let definition = &blueprint.definition;
        let overrides = &blueprint.overrides;
        let name = start.spec.name.as_ref().map_or(definition.name.as_str(), |name| name.as_str());
        let policy = StopPolicy::default();
        let cost = chosen.cost;
        let steps = overrides.steps.or(definition.steps).unwrap_or(policy.max_steps);
        let max_output = overrides.max_output.or(definition.max_output);
        let agent = Agent {
            name: name.into(),
            task: work.task.clone(),
            system_prompt: match work.quote_mark {
                Some(mark) => prompt::append_quote_mark(&prepared.system_prompt, mark).into(),
                None => prepared.system_prompt.clone(),
            },
            quote_mark: work.quote_mark,
            model: chosen.model,
            provider: opened.provider,
            model_name: chosen.name,
            tools,
            permissions: blueprint.permissions.clone(),
            unattended: blueprint.unattended,
            plugins: prepared.plugins.clone(),
            stop_policy: StopPolicy {
                max_steps: steps,
                progress_interval: heartbeat_interval(start.stall_watch, &policy),
                ..policy
            },
            result_schema: prepared.result_schema.clone(),
            temperature: overrides.temperature.or(definition.temperature),
            effort: overrides.effort.or(definition.effort),
            max_output: max_output.unwrap_or(chosen.max_output).min(chosen.max_output),
            context_window: chosen.context_window,
            cost: Arc::new(move |usage| cost.price_usage(usage)),
        };
        Ok(BuiltAgent { agent, backend, blueprint })
    }

    /// Returns true if another agent spawned this one.
    pub(crate) fn is_child(&self, start: &StartAction) -> bool {
        let Work::Agent(work) = &start.spec.work else { return false };
        self.prepare_blueprint(&work.blueprint).is_ok_and(|prepared| prepared.blueprint.is_child)
    }

    /// Returns a blueprint whose text is shared with other agents that have the same one. A task holds
    /// the text as long as it is in memory, and there may be a million of them.
    pub(super) fn share_blueprint(&self, blueprint: Json) -> Json {
        let mut texts = self.blueprint_texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = texts.get(&blueprint) {
            return same.clone();
        }
        if texts.len() >= CACHED_BLUEPRINTS_MAX {
            texts.clear();
        }
        texts.insert(blueprint.clone());
        blueprint
    }

    /// Returns what all agents of a blueprint share. Often many agents have the same one.
    fn prepare_blueprint(&self, blueprint: &Json) -> Result<Arc<PreparedBlueprint>, Refusal> {
        let cache = || self.prepared_blueprints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = cache().get(blueprint) {
            return Ok(prepared.clone());
        }
        let decoded: Arc<Blueprint> = Arc::new(blueprint.decode()?);
        let is_for = |plugin: &&Arc<dyn Plugin>| plugin.is_for(&decoded.definition.name);
        let plugins: Vec<_> = self.options.plugins.iter().filter(is_for).cloned().collect();
        let own = self.own_tools(&decoded, &plugins);
        let names = delegation::TOOL_NAMES.into_iter().map(Arc::from);
        let names = names.chain(own.iter().map(|tool| tool.spec().name.clone()));
        let tools = names.filter(|name| decoded.permissions.may_use(name)).collect();
        let prepared = Arc::new(PreparedBlueprint {
            system_prompt: prompt::render_system_prompt(&decoded, &tools).into(),
            result_schema: self.result_schema(decoded.result_schema.as_ref())?,
            server_tools: grant_tools(
                &self.mcp_servers,
                &decoded.mcp_servers,
                &decoded.permissions,
            ),
            allowed_tools: tools,
            own_tools: own,
            plugins,
            blueprint: decoded,
        });
        let mut cache = cache();
        if cache.len() >= CACHED_BLUEPRINTS_MAX {
            cache.clear();
        }
        cache.insert(blueprint.clone(), prepared.clone());
        Ok(prepared)
    }

    /// Returns the tools beside the delegation tools. Of two with the same name, the later one is
    /// used.
    fn own_tools(&self, blueprint: &Blueprint, plugins: &[Arc<dyn Plugin>]) -> Vec<Tool> {
        let private = self.options.private_directories.clone();
        let workspace = blueprint.workspace().map(|workspace| workspace.without_private(private));
        let files = workspace.into_iter().flat_map(builtin::file_tools);
        let of_plugins = plugins.iter().flat_map(|plugin| plugin.tools());
        let of_program = self.options.tools.iter().cloned();
        let of_client = client_tool::build_client_tools(&blueprint.overrides.client_tools);
        files.chain(of_plugins).chain(of_program).chain(of_client).collect()
    }
}

impl PreparedBlueprint {
    /// Returns the tools that the permissions allow.
    fn build_tools(&self, delegate: &Arc<DelegationContext>) -> ToolSet {
        let mut tools = delegation::delegation_tools(delegate);
        for tool in &self.own_tools {
            tools.add(tool.clone());
        }
        tools.retain(|name| self.allowed_tools.contains(name));
        if let Some(server_tools) = &self.server_tools {
            tools.add_source(server_tools.clone());
        }
        tools
    }
}

/// Returns the heartbeat interval: a watched agent reports well before its silence counts as a
/// stall.
fn heartbeat_interval(watch: Option<StallWatch>, policy: &StopPolicy) -> Millis {
    let interval = watch.map(|watch| Millis((watch.after.0 / 4).max(HEARTBEAT_MIN.0)));
    interval.map_or(policy.progress_interval, |interval| interval.min(policy.progress_interval))
}
