//! What one agent is made of: settled when it is spawned, so that a later edit does not change it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_agent::backend::OwnLoop;
use brigade_agent::definition::{Definition, Definitions, Found};
use brigade_agent::mcp::{Granted, McpServers};
use brigade_agent::permission::{Permissions, Rule, RuleError, Rules};
use brigade_agent::tools::{self as builtin, Workspace};
use brigade_agent::validate::{Schema, SchemaError, Schemas};
use brigade_agent::{Agent, Backend, Overrides, Plugin, Policy, Tool, Tools, client_tool};
use brigade_llm::ToolSpec;
use brigade_model::action::Start;
use brigade_model::enclosure::{Confine, Enclosure, Resources};
use brigade_model::ids::{Millis, Time};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::spec::Spec;
use brigade_model::stall::{Stall, Watch};
use brigade_model::work::{AgentWork, Work};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::delegation::{self, Delegate};
use super::link::{LateRuntime, TaskLink};
use super::models;
use super::options::AgentOptions;
use super::prompt;
use super::rules::{
    check_definition, check_delegates, check_rules, check_servers, wrong_definition,
};
use super::servers;
use super::spans::provider_and_model;
use crate::clock::Clock;
use crate::enclosing;
use crate::jobs::Handlers;
use crate::new_task::NewTask;
use crate::performer::Reporter;

/// The definition that is meant when none is named.
pub(crate) const GENERAL: &str = "general";

/// As many blueprints are kept ready; when there are more, all are forgotten and made again.
const PREPARED_MAX: usize = 1_000;

/// Signs of life come no more often than this.
const BEAT_LEAST: Millis = Millis(20);

/// How many levels of agents there are below one that nobody set a limit for. Definitions may name each
/// other in a circle; somewhere that has to end.
const DEPTH_DEFAULT: u16 = 8;

/// Kept with the task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Blueprint {
    pub(crate) definition: Arc<Definition>,
    pub(crate) permissions: Permissions,
    pub(crate) model: Arc<str>,
    /// Where its commands run, unless they say otherwise.
    #[serde(default)]
    pub(crate) directory: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) config: Option<Json>,
    #[serde(default)]
    pub(crate) result_schema: Option<Json>,
    /// The definitions that it and all below it may use. None is all.
    #[serde(default)]
    may_delegate_to: Option<Vec<String>>,
    /// The MCP servers that it and all below it may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) mcp_servers: Vec<Arc<str>>,
    /// A budget of money holds here, so what a model costs must be known.
    #[serde(default)]
    counts_money: bool,
    #[serde(default)]
    pub(crate) is_child: bool,
    /// Nobody is there to approve anything, here and below.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unattended: bool,
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub(crate) overrides: Overrides,
    /// What its commands are kept to, and those of all below it.
    #[serde(default, skip_serializing_if = "Enclosure::is_empty")]
    pub(crate) enclosure: Enclosure,
}

/// Everything that agents of this runtime have in common.
#[derive(Debug)]
pub(crate) struct Agents {
    options: AgentOptions,
    pub(super) mcp_servers: McpServers,
    runtime: LateRuntime,
    clock: Arc<dyn Clock>,
    schemas: Schemas,
    /// Tools as models are told of them: always the same, and costly to make.
    specs: Mutex<HashMap<&'static str, ToolSpec>>,
    prepared: Mutex<HashMap<Json, Arc<Prepared>>>,
}

/// What follows from a blueprint.
#[derive(Debug)]
struct Prepared {
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

/// Whom an agent is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parent<'a> {
    Nobody,
    Agent(&'a Blueprint),
    /// A command that is kept to something.
    Enclosed(&'a Enclosure),
}

impl<'a> Parent<'a> {
    /// What everything that it starts is kept to as well.
    pub(crate) fn enclosure(self) -> Option<&'a Enclosure> {
        match self {
            Self::Nobody => None,
            Self::Agent(parent) => Some(&parent.enclosure),
            Self::Enclosed(enclosure) => Some(enclosure),
        }
    }
}

/// What whoever starts an agent leaves to it.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) rules: Rules,
    pub(crate) limits: &'a Limits,
    pub(crate) confine: Option<&'a Confine>,
    pub(crate) resources: Resources,
}

impl Agents {
    pub(crate) fn new(options: AgentOptions, runtime: LateRuntime, clock: Arc<dyn Clock>) -> Self {
        let (schemas, specs, prepared) = (Schemas::default(), Mutex::default(), Mutex::default());
        // Each was checked when it was added.
        let mcp_servers = McpServers::new(options.mcp_servers.clone()).unwrap_or_default();
        Self { options, mcp_servers, runtime, clock, schemas, specs, prepared }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn spec(&self, name: &'static str, make: impl FnOnce() -> ToolSpec) -> ToolSpec {
        let mut specs = self.specs.lock().unwrap_or_else(PoisonError::into_inner);
        specs.entry(name).or_insert_with(make).clone()
    }

    /// What an agent's own task is started with.
    pub(crate) fn spec_of_child(
        self: &Arc<Self>,
        parent: &Blueprint,
        task: NewTask,
        key: &str,
    ) -> Result<Spec, Refusal> {
        task.into_spec(&Handlers::only(self.clone()), Some(key), Parent::Agent(parent))
    }

    /// The definitions that an agent in this directory can be made from.
    pub(crate) fn definitions(&self, directory: Option<&str>) -> Definitions {
        let folders = (self.options.folders)(directory.map(Path::new));
        let mut definitions = Definitions::load(&folders);
        definitions.found.extend(self.options.definitions.found.clone());
        let general = || Found { definition: Arc::new(general()), file: None };
        definitions.found.entry(GENERAL.to_owned()).or_insert_with(general);
        definitions
    }

    /// The same without those that nothing can be started with: what is wrong with them is told.
    pub(crate) fn usable_definitions(&self, directory: Option<&str>) -> Definitions {
        let mut definitions = self.definitions(directory);
        let tools = self.tool_names(&Overrides::default());
        let mut wrong = Vec::new();
        definitions.found.retain(|_, found| {
            let problem = wrong_definition(&found.definition, found.file.as_deref(), &tools);
            let problem = problem.or_else(|| models::wrong_model(&*self.options.models, found));
            let is_usable = problem.is_none();
            wrong.extend(problem);
            is_usable
        });
        definitions.problems.extend(wrong);
        definitions
    }

    /// Finds what was asked for, and keeps it with the request.
    pub(crate) fn settle(
        &self,
        mut work: AgentWork,
        grant: Grant<'_>,
        parent: Parent<'_>,
    ) -> Result<AgentWork, Refusal> {
        if work.cwd.is_none()
            && let Parent::Agent(parent) = parent
        {
            work.cwd.clone_from(&parent.directory);
        }
        let overrides = self.overrides(&work)?;
        let tools = self.tool_names(&overrides);
        check_rules(&grant.rules, &tools)?;
        let definition = self.definition(&work, parent, &tools)?;
        let backend = backend(&overrides, &definition);
        self.backend(backend).map_err(|refusal| Refusal::invalid(refusal.message))?;
        let mcp_servers = servers::of(&work, &definition, parent, &self.mcp_servers)?;
        check_servers(&grant.rules, &tools, &self.mcp_servers)?;
        let name: Arc<str> = definition.name.as_str().into();
        let (permissions, inherited) = match parent {
            Parent::Nobody | Parent::Enclosed(_) => (self.options.permissions.clone(), None),
            Parent::Agent(parent) => (parent.permissions.clone(), Some(parent.model.clone())),
        };
        let enclosure = enclosure(&grant, &definition, work.cwd.as_deref(), parent)?;
        let permissions = permissions
            .narrowed("whoever started it", grant.rules)
            .narrowed(format!("the definition {name}"), definition.permissions.clone())
            .narrowed(format!("the definition {name}"), only(definition.tools.as_deref())?);
        models::check_asked(&self.options, work.model.as_deref(), parent)?;
        let model = work.model.clone().or_else(|| definition.model.as_deref().map(Arc::from));
        let model = model.or(inherited).or_else(|| self.options.model.clone());
        let Some(model) = model else {
            return Err(Refusal::invalid(format!(
                "the agent {name:?} names no model, and there is no default: give one as \
                 provider/model, or set `model` in the configuration"
            )));
        };
        let counts_money = grant.limits.money.or(definition.limits.money).is_some()
            || matches!(parent, Parent::Agent(parent) if parent.counts_money);
        // Work that is there waits for a runtime that has its model; new work is told at once.
        let chosen = self.options.models.find(&model);
        let chosen = chosen.map_err(|refusal| Refusal::invalid(refusal.message))?;
        self.options.models.ready(&model)?;
        work.chosen = Some(model.clone());
        work.unpriced = chosen.cost.is_unknown().then(|| model.clone());
        if counts_money && chosen.cost.is_unknown() {
            return Err(Refusal::invalid(format!(
                "there is a budget of money, and what {model} costs is not known; give its price"
            )));
        }
        let result_schema = match &work.result_schema {
            Some(schema) => Some(schema.clone()),
            None => definition.result_schema.as_ref().map(Json::of).transpose()?,
        };
        self.result_schema(result_schema.as_ref())?;
        work.limits = own_limits(&definition, (grant.limits, &overrides), parent);
        let blueprint = Blueprint {
            result_schema,
            config: self.config(&work, &definition)?,
            may_delegate_to: delegates(&definition, parent),
            mcp_servers,
            definition,
            permissions,
            model,
            directory: work.cwd.clone(),
            counts_money,
            is_child: matches!(parent, Parent::Agent(_)),
            overrides,
            unattended: work.unattended
                || matches!(parent, Parent::Agent(parent) if parent.unattended),
            enclosure,
        };
        work.blueprint = Json::of(&blueprint)?;
        Ok(work)
    }

    fn definition(
        &self,
        work: &AgentWork,
        parent: Parent<'_>,
        tools: &[Arc<str>],
    ) -> Result<Arc<Definition>, Refusal> {
        let name = work.definition.as_deref().unwrap_or(GENERAL);
        if let Parent::Agent(Blueprint { may_delegate_to: Some(allowed), .. }) = parent
            && !allowed.iter().any(|one| one == name)
        {
            let allowed = allowed.join(", ");
            return Err(Refusal::forbidden(format!(
                "you may not start an agent {name:?}; you may start: {allowed}"
            )));
        }
        let definitions = self.definitions(work.cwd.as_deref());
        let wrong_model = |found| models::wrong_model(&*self.options.models, found);
        if let Some(wrong) = definitions.found.get(name).and_then(wrong_model) {
            return Err(Refusal::invalid(wrong.to_string()));
        }
        match definitions.find(name) {
            Ok(found) => {
                let file = definitions.found.get(name).and_then(|found| found.file.as_deref());
                check_definition(found, file, tools)?;
                check_delegates(&definitions, name, work.cwd.as_deref())?;
                Ok(found.clone())
            }
            Err(missing) => {
                // A file that could not be read may be the one that is meant.
                let problems = definitions.problems.iter().take(5).map(|one| format!("; {one}"));
                let problems: String = problems.collect();
                Err(Refusal::not_found(format!("{missing}{problems}")))
            }
        }
    }

    /// What is changed of the definition, as far as it makes sense here.
    fn overrides(&self, work: &AgentWork) -> Result<Overrides, Refusal> {
        let Some(overrides) = &work.overrides else { return Ok(Overrides::default()) };
        let overrides: Overrides = overrides.decode()?;
        if let Some(problem) = overrides.problem() {
            return Err(Refusal::invalid(problem));
        }
        Ok(overrides)
    }

    /// What carries out an agent.
    fn backend(&self, name: Option<&str>) -> Result<Arc<dyn Backend>, Refusal> {
        let Some(name) = name else { return Ok(Arc::new(OwnLoop)) };
        self.options.backends.get(name).cloned().ok_or_else(|| {
            Refusal::unavailable(format!("nothing here carries out agents as {name:?}"))
        })
    }

    /// A task's hold on the runtime.
    pub(crate) fn link(&self, reporter: Reporter) -> TaskLink {
        TaskLink { reporter, runtime: self.runtime.clone() }
    }

    /// Every tool that an agent of this runtime can have.
    fn tool_names(&self, overrides: &Overrides) -> Vec<Arc<str>> {
        let of_plugins = self.options.plugins.iter().flat_map(|plugin| plugin.tools());
        let own = of_plugins.chain(self.options.tools.iter().cloned());
        let own = own.chain(client_tool::tools(&overrides.client_tools));
        let files = builtin::READING.into_iter().chain(builtin::WRITING);
        let ours = delegation::NAMES.into_iter().chain(files).map(Arc::from);
        ours.chain(own.map(|tool| tool.spec().name.clone())).collect()
    }

    fn config(&self, work: &AgentWork, definition: &Definition) -> Result<Option<Json>, Refusal> {
        let name = &definition.name;
        match (&work.config, &definition.config_schema) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(Refusal::invalid(format!("the agent {name:?} has no settings"))),
            (config, Some(schema)) => {
                let schema = self.schemas.compiled(schema).map_err(|error| unusable(&error))?;
                // Settings that all have defaults may be left out.
                let config = config.clone().map_or_else(|| Json::parse("{}"), Ok)?;
                schema.check(&config.decode::<Value>()?).map_err(|mismatch| {
                    Refusal::invalid(format!("the settings of {name:?} do not fit: {mismatch}"))
                })?;
                Ok(Some(config))
            }
        }
    }

    fn result_schema(&self, schema: Option<&Json>) -> Result<Option<Schema>, Refusal> {
        let Some(schema) = schema else { return Ok(None) };
        let schema = self.schemas.compiled(&schema.decode::<Value>()?);
        schema.map(Some).map_err(|error| unusable(&error))
    }

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
        let delegate = Arc::new(Delegate { link, agents, blueprint: blueprint.clone() });
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
            system: prepared.system.clone(),
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
        Ok((agent, self.backend(backend(overrides, definition))?))
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
        let files = blueprint.workspace().into_iter().flat_map(builtin::files);
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

impl Blueprint {
    /// What is left of it for a command of its: that is kept to no less than the agent is, and where it
    /// is confined it has none of the servers, which are outside.
    pub(crate) fn act_through(&mut self, command: &Enclosure) {
        self.enclosure.clone_from(command);
        if !command.confinement.is_empty() {
            self.mcp_servers.clear();
        }
    }

    /// The files that it works on, where it is known which. Those tools work outside of what its
    /// commands are confined to, so they are for directories only that these may write.
    fn workspace(&self) -> Option<Workspace> {
        let directory = self.directory.as_deref().filter(|path| path.starts_with('/'))?;
        let workspace = Workspace::new(directory, self.permissions.clone());
        if self.enclosure.confinement.is_empty() {
            return Some(workspace);
        }
        let found = std::fs::canonicalize(directory).ok()?;
        let may_write = enclosing::may_write(&self.enclosure, found.to_str()?);
        may_write.then(|| workspace.found_at(found))
    }
}

/// The definition's limits, and what holds where neither it nor whoever asks says anything.
fn own_limits(
    definition: &Definition,
    (asked, overrides): (&Limits, &Overrides),
    parent: Parent<'_>,
) -> Option<Box<Limits>> {
    let mut limits = definition.limits;
    if matches!(parent, Parent::Nobody) && limits.depth.is_none() && asked.depth.is_none() {
        limits.depth = Some(DEPTH_DEFAULT);
    }
    // Of what carries it out instead of our loop nobody knows how often it is heard of.
    if backend(overrides, definition).is_some() && limits.stall.is_none() {
        limits.stall = Some(Stall::Off);
    }
    (!limits.is_empty()).then(|| Box::new(limits))
}

/// The name of what carries out an agent, where that is not our own loop.
fn backend<'a>(overrides: &'a Overrides, definition: &'a Definition) -> Option<&'a str> {
    overrides.backend.as_deref().or(definition.backend.as_deref())
}

/// An agent that is watched shows a sign of life well before its silence is too long.
fn beat(watch: Option<Watch>, policy: &Policy) -> Millis {
    let often = watch.map(|watch| Millis((watch.after.0 / 4).max(BEAT_LEAST.0)));
    often.map_or(policy.beat, |often| often.min(policy.beat))
}

/// The tools that a definition lists, as a rule: so they hold for all below it too.
fn only(tools: Option<&[String]>) -> Result<Rules, Refusal> {
    let Some(tools) = tools else { return Ok(Rules::all()) };
    let rules: Result<Vec<Rule>, RuleError> = tools.iter().map(|tool| tool.parse()).collect();
    let allow = rules.map_err(|error| Refusal::invalid(format!("tools: {error}")))?;
    Ok(Rules { allow: Some(allow), ..Rules::default() })
}

/// What the commands of a new agent are kept to: by whoever starts it, by its definition, and by all
/// above it.
fn enclosure(
    grant: &Grant<'_>,
    definition: &Definition,
    directory: Option<&str>,
    parent: Parent<'_>,
) -> Result<Enclosure, Refusal> {
    let asked = grant.confine.into_iter().chain(&definition.confine);
    let confinement = asked.map(|asked| enclosing::settle(asked, directory));
    let own = Enclosure {
        terminal: None,
        resources: grant.resources.and(&definition.resources),
        confinement: confinement.collect::<Result<_, _>>()?,
    };
    let outer = Enclosure { terminal: None, ..parent.enclosure().cloned().unwrap_or_default() };
    Ok(own.inside(&outer))
}

/// The definitions that a new agent may use in its turn: never more than its parent.
fn delegates(definition: &Definition, parent: Parent<'_>) -> Option<Vec<String>> {
    let inherited = match parent {
        Parent::Nobody | Parent::Enclosed(_) => None,
        Parent::Agent(parent) => parent.may_delegate_to.clone(),
    };
    match (&definition.may_delegate_to, inherited) {
        (Some(own), Some(inherited)) => {
            Some(own.iter().filter(|one| inherited.contains(one)).cloned().collect())
        }
        (Some(own), None) => Some(own.clone()),
        (None, inherited) => inherited,
    }
}

fn general() -> Definition {
    Definition::new(GENERAL).description("Any task.").prompt(
        "You are a capable agent. Do the task that you are given, completely, and say truthfully what \
         came of it.",
    )
}

fn unusable(error: &SchemaError) -> Refusal {
    Refusal::invalid(error.to_string())
}
