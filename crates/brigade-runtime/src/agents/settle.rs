//! What a new agent is made of: found, checked and put into its blueprint when it is asked for.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{Definition, Definitions, Found, NoSuchDefinition};
use brigade_agent::permission::{Permissions, Rule, RuleError, Rules, Subject, Verdict};
use brigade_agent::{ClientTool, Overrides};
use brigade_model::enclosure::Enclosure;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::spec::Spec;
use brigade_model::stall::Stall;
use brigade_model::work::AgentWork;
use serde_json::Value;

use super::blueprint::{Blueprint, Grant, Parent, backend};
use super::common::{Agents, unusable};
use super::rules::{
    check_definition, check_delegates, check_rules, check_servers, wrong_definition,
};
use super::trust::{self, Trusted};
use super::{models, servers};
use crate::enclosing;
use crate::ids::new_quote_mark;
use crate::jobs::Handlers;
use crate::new_task::NewTask;

/// The definition that is meant when none is named.
pub(crate) const GENERAL: &str = "general";

/// How many levels of agents there are below one that nobody set a limit for. Definitions may name each
/// other in a circle; somewhere that has to end.
const DEPTH_DEFAULT: u16 = 8;

impl Agents {
    /// What an agent's own task is started with.
    pub(crate) fn spec_of_child(
        self: &Arc<Self>,
        parent: &Blueprint,
        task: NewTask,
        key: &str,
    ) -> Result<Spec, Refusal> {
        task.into_spec(&Handlers::only(self.clone()), Some(key), Parent::Agent(parent))
    }

    /// The definitions that an agent in this directory can be made from. Whoever is confined has those of
    /// the folders that it could read itself.
    pub(crate) fn definitions(
        &self,
        directory: Option<&str>,
        confined: Option<&Enclosure>,
    ) -> Definitions {
        let mut folders = (self.options.folders)(directory.map(Path::new));
        if let Some(confined) = confined {
            folders.retain(|folder| enclosing::may_read(confined, &folder.path));
        }
        let mut definitions = Definitions::load(&folders);
        definitions.found.extend(self.options.definitions.found.clone());
        definitions.add_default(general());
        definitions
    }

    /// The same without those that nothing can be started with: what is wrong with them is told.
    pub(crate) fn usable_definitions(
        &self,
        directory: Option<&str>,
        confined: Option<&Enclosure>,
    ) -> Definitions {
        let mut definitions = self.definitions(directory, confined);
        let tools = self.tool_names(&Overrides::default());
        let mut wrong = Vec::new();
        definitions.found.retain(|_, found| {
            let problem = wrong_definition(&found.definition, found.file(), &tools);
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
        if let Parent::Enclosed(outer) = parent {
            enclosing::check_starts_agents(outer)?;
        }
        if let (Some(confined), Some(cwd)) = (parent.confinement(), work.cwd.as_deref()) {
            enclosing::check_directory(confined, Path::new(cwd))?;
        }
        let overrides = self.overrides(&work)?;
        let tools = self.tool_names(&overrides);
        check_rules(&grant.rules, &tools)?;
        let found = self.definition(&work, parent, &tools)?;
        let definition = found.definition.clone();
        let unattended =
            work.unattended || matches!(parent, Parent::Agent(parent) if parent.unattended);
        let trusted = trust::of(&self.options, &found, work.cwd.as_deref());
        if trusted == Trusted::No {
            trust::check_untrusted(&found, &definition, unattended)?;
        }
        let backend = backend(&overrides, &definition);
        self.backend(backend).map_err(|refusal| Refusal::invalid(refusal.message))?;
        let mcp_servers = match trusted {
            Trusted::Yes => servers::of(&work, &definition, parent, &self.mcp_servers)?,
            Trusted::No => Vec::new(),
        };
        check_servers(&grant.rules, &tools, &self.mcp_servers)?;
        let name: Arc<str> = definition.name.as_str().into();
        let (permissions, inherited) = match parent {
            Parent::Nobody | Parent::Enclosed(_) => (self.options.permissions.clone(), None),
            Parent::Agent(parent) => (parent.permissions.clone(), Some(parent.model.clone())),
        };
        let enclosure = enclosure(&grant, &definition, work.cwd.as_deref(), parent)?;
        let rules = match parent {
            // What may outlive an unattended run is said where that was started.
            Parent::Agent(_) => definition.permissions.clone().without_keep(),
            _ => definition.permissions.clone(),
        };
        let permissions = permissions
            .narrowed("whoever started it", grant.rules)
            .narrowed(format!("the definition {name}"), rules)
            .narrowed(format!("the definition {name}"), only(definition.tools.as_deref())?);
        let permissions = match trusted {
            Trusted::Yes => permissions,
            Trusted::No => {
                let by = format!("the definition {name}, which is not trusted,");
                permissions.narrowed(by, trust::untrusted_rules())
            }
        };
        check_client_tools(&overrides, &definition)?;
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
            unattended,
            enclosure,
            is_through_command: false,
        };
        work.blueprint = Json::of(&blueprint)?;
        work.mark = Some(new_quote_mark());
        Ok(work)
    }

    fn definition(
        &self,
        work: &AgentWork,
        parent: Parent<'_>,
        tools: &[Arc<str>],
    ) -> Result<Found, Refusal> {
        let name = work.definition.as_deref().unwrap_or(GENERAL);
        if let Parent::Agent(Blueprint { may_delegate_to: Some(allowed), .. }) = parent
            && !allowed.iter().any(|one| one == name)
        {
            let allowed = allowed.join(", ");
            return Err(Refusal::forbidden(format!(
                "you may not start an agent {name:?}; you may start: {allowed}"
            )));
        }
        let definitions = self.definitions(work.cwd.as_deref(), parent.confinement());
        match definitions.find(name) {
            Ok(found) => {
                if let Some(wrong) = models::wrong_model(&*self.options.models, found) {
                    return Err(Refusal::invalid(wrong.to_string()));
                }
                check_definition(&found.definition, found.file(), tools)?;
                check_delegates(&definitions, name, work.cwd.as_deref())?;
                check_alias(name, found, parent)?;
                Ok(found.clone())
            }
            Err(ambiguous @ NoSuchDefinition::Ambiguous { .. }) => {
                Err(Refusal::invalid(ambiguous.to_string()))
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
}

/// Refuses a name with an origin to an agent that may not use the plain name without being asked: a rule
/// on `spawn_agent(reviewer)` holds for `user:reviewer` too.
fn check_alias(name: &str, found: &Found, parent: Parent<'_>) -> Result<(), Refusal> {
    let plain = found.definition.name.as_str();
    let Parent::Agent(parent) = parent else { return Ok(()) };
    let subject = |text| Subject { tool: "spawn_agent", text: Some(text), is_shell: false };
    let verdict = parent.permissions.check(&subject(plain));
    match verdict {
        Verdict::Allowed => Ok(()),
        _ if name == plain => Ok(()),
        Verdict::Refused(refused) => Err(Refusal::forbidden(refused.to_string())),
        Verdict::Ask { .. } if parent.permissions.check(&subject(name)).is_allowed() => {
            let problem = format!("there is a rule about {plain:?} that asks: name {plain:?}");
            Err(Refusal::forbidden(problem))
        }
        Verdict::Ask { .. } => Ok(()),
    }
}

/// A definition that lists its tools leaves out those of a client without a word from anybody; whoever
/// denies one has said so.
fn check_client_tools(overrides: &Overrides, definition: &Definition) -> Result<(), Refusal> {
    let name = &definition.name;
    let listed = Permissions::of(name.as_str(), only(definition.tools.as_deref())?);
    match overrides.client_tools.iter().find(|tool| !listed.may_use(&tool.name)) {
        None => Ok(()),
        Some(ClientTool { name: tool, .. }) => Err(Refusal::invalid(format!(
            "client_tools: the definition {name} lists its tools, and {tool:?} is not among them"
        ))),
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
