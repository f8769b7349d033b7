//! The agent of a blueprint, made for each attempt.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use brigade_agent::mcp::Granted;
use brigade_agent::news::Quoter;
use brigade_agent::tools as builtin;
use brigade_agent::validate::Schema;
use brigade_agent::{Agent, Backend, Plugin, Policy, Tool, Tools, client_tool};
use brigade_model::action::Start;
use brigade_model::ids::Millis;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::stall::Watch;
use brigade_model::work::Work;

use super::blueprint::Blueprint;
use super::common::Agents;
use super::delegation::{self, Delegate};
use super::prompt;
use super::spans::provider_and_model;
use crate::performer::Reporter;

/// As many blueprints are kept ready; when there are more, all are forgotten and made again.
const PREPARED_MAX: usize = 1_000;

/// Signs of life come no more often than this.
const BEAT_LEAST: Millis = Millis(20);

/// What follows from a blueprint.
#[derive(Debug)]
pub(super) struct Prepared {
    blueprint: Arc<Blueprint>,
    system: Arc<str>,
    /// The tools that are left by the permissions.
    tools: HashSet<Arc<str>>,
    /// Those beside the delegation tools, which each attempt has its own of.
    own: Vec<Arc<dyn Tool>>,
    plugins: Vec<Arc<dyn Plugin>>,
    result: Option<Schema>,
    from_servers: Option<Arc<Granted>>,
}

impl Agents {
    /// The agent itself, and what carries it out, for one attempt.
    pub(crate) fn build(
        self: &Arc<Self>,
        start: &Start,
        reporter: Reporter,
    ) -> Result<(Agent, Arc<dyn Backend>), Refusal> {
        let Work::Agent(work) = &start.spec.work else {
            return Err(Refusal::internal("this is not an agent"));
        };
        let prepared = self.prepared(&work.blueprint)?;
        let blueprint = &prepared.blueprint;
        let chosen = self.options.models.find(&blueprint.model)?;
        let link = self.link(reporter);
        let (agents, blueprint) = (self.clone(), blueprint.clone());
        let quoter = Quoter::new(work.mark);
        let delegate = Arc::new(Delegate { link, agents, blueprint: blueprint.clone(), quoter });
        let tools = prepared.tools(&delegate);
        let (definition, overrides) = (&blueprint.definition, &blueprint.overrides);
        let name = start.spec.name.as_ref().map_or(definition.name.as_str(), |name| name.as_str());
        let policy = Policy::default();
        let cost = chosen.cost;
        let steps = overrides.steps.or(definition.steps).unwrap_or(policy.max_steps);
        let max_output = overrides.max_output.or(definition.max_output);
        let agent = Agent {
            name: name.into(),
            task: work.task.clone(),
            system: match work.mark {
                Some(mark) => prompt::with_mark(&prepared.system, mark).into(),
                None => prepared.system.clone(),
            },
            mark: work.mark,
            model: chosen.model,
            provider: provider_and_model(&blueprint.model).0.into(),
            model_name: chosen.name,
            tools,
            permissions: blueprint.permissions.clone(),
            unattended: blueprint.unattended,
            plugins: prepared.plugins.clone(),
            policy: Policy { max_steps: steps, beat: beat(start.watch, &policy), ..policy },
            result: prepared.result.clone(),
            temperature: overrides.temperature.or(definition.temperature),
            effort: overrides.effort.or(definition.effort),
            max_output: max_output.unwrap_or(chosen.max_output).min(chosen.max_output),
            window: chosen.window,
            cost: Arc::new(move |usage| cost.usage(usage)),
        };
        Ok((agent, self.backend(blueprint.backend())?))
    }

    /// Whether another agent spawned it.
    pub(crate) fn is_child(&self, start: &Start) -> bool {
        let Work::Agent(work) = &start.spec.work else { return false };
        self.prepared(&work.blueprint).is_ok_and(|prepared| prepared.blueprint.is_child)
    }

    /// What is the same for all agents of a blueprint. They are often many.
    fn prepared(&self, blueprint: &Json) -> Result<Arc<Prepared>, Refusal> {
        let kept = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = kept().get(blueprint) {
            return Ok(prepared.clone());
        }
        let decoded: Arc<Blueprint> = Arc::new(blueprint.decode()?);
        let is_for = |plugin: &&Arc<dyn Plugin>| plugin.is_for(&decoded.definition.name);
        let plugins: Vec<_> = self.options.plugins.iter().filter(is_for).cloned().collect();
        let own = self.own_tools(&decoded, &plugins);
        let names = delegation::NAMES.into_iter().map(Arc::from);
        let names = names.chain(own.iter().map(|tool| tool.spec().name.clone()));
        let tools = names.filter(|name| decoded.permissions.may_use(name)).collect();
        let prepared = Arc::new(Prepared {
            system: prompt::system(&decoded, &tools).into(),
            result: self.result_schema(decoded.result_schema.as_ref())?,
            from_servers: self.mcp_servers.granted(&decoded.mcp_servers, &decoded.permissions),
            tools,
            own,
            plugins,
            blueprint: decoded,
        });
        let mut kept = kept();
        if kept.len() >= PREPARED_MAX {
            kept.clear();
        }
        kept.insert(blueprint.clone(), prepared.clone());
        Ok(prepared)
    }

    /// Tools beside the delegation tools, in this order: of two with the same name the later one counts.
    fn own_tools(&self, blueprint: &Blueprint, plugins: &[Arc<dyn Plugin>]) -> Vec<Arc<dyn Tool>> {
        let private = self.options.private.clone();
        let workspace = blueprint.workspace().map(|workspace| workspace.without(private));
        let files = workspace.into_iter().flat_map(builtin::files);
        let of_plugins = plugins.iter().flat_map(|plugin| plugin.tools());
        let of_program = self.options.tools.iter().cloned();
        let of_client = client_tool::tools(&blueprint.overrides.client_tools);
        files.chain(of_plugins).chain(of_program).chain(of_client).collect()
    }
}

impl Prepared {
    /// What the permissions leave.
    fn tools(&self, delegate: &Arc<Delegate>) -> Tools {
        let mut tools = delegation::tools(delegate);
        for tool in &self.own {
            tools.add(tool.clone());
        }
        tools.retain(|name| self.tools.contains(name));
        if let Some(from_servers) = &self.from_servers {
            tools.add_source(from_servers.clone());
        }
        tools
    }
}

/// An agent that is watched shows a sign of life well before its silence is too long.
fn beat(watch: Option<Watch>, policy: &Policy) -> Millis {
    let often = watch.map(|watch| Millis((watch.after.0 / 4).max(BEAT_LEAST.0)));
    often.map_or(policy.beat, |often| often.min(policy.beat))
}
