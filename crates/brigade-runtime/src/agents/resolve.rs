//! What a new agent is made of: found, checked and put into its blueprint when it is asked for.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{
    Definition, DefinitionLookupError, DefinitionSet, LoadedDefinition,
};
use brigade_agent::permission::{
    PermissionRule, PermissionRules, PermissionSubject, PermissionVerdict, Permissions, RuleError,
};
use brigade_agent::{AgentOverrides, ClientTool};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::Sandbox;
use brigade_model::spec::TaskSpec;
use brigade_model::stall::StallPolicy;
use brigade_model::work::AgentWork;
use serde_json::Value;

use super::blueprint::{Blueprint, SpawnGrant, SpawnParent, backend};
use super::rule_checks::{
    check_definition, check_delegates, check_rules, check_servers, definition_problem,
};
use super::services::{AgentServices, schema_refusal};
use super::trust::{self, TrustLevel};
use super::{mcp_servers, model_files};
use crate::ids::new_quote_mark;
use crate::jobs::HandlerRegistry;
use crate::new_task::NewTask;
use crate::sandbox;

/// The definition that is meant when none is named.
pub(crate) const GENERAL_DEFINITION: &str = "general";

/// How many levels of agents there are below one that nobody set a limit for. Definitions may name each
/// other in a circle; somewhere that has to end.
const DEFAULT_DEPTH_LIMIT: u16 = 8;

impl AgentServices {
    /// What an agent's own task is started with.
    pub(crate) fn child_spec(
        self: &Arc<Self>,
        parent: &Blueprint,
        task: NewTask,
        key: &str,
    ) -> Result<TaskSpec, Refusal> {
        task.into_spec(
            &HandlerRegistry::agents_only(self.clone()),
            Some(key),
            SpawnParent::Agent(parent),
        )
    }

    /// The definitions that an agent in this directory can be made from. Whoever is confined has those of
    /// the folders that it could read itself.
    pub(crate) fn definitions(
        &self,
        directory: Option<&str>,
        confined: Option<&Sandbox>,
    ) -> DefinitionSet {
        let mut folders = (self.options.definition_folders)(directory.map(Path::new));
        if let Some(confined) = confined {
            folders.retain(|folder| sandbox::may_read(confined, &folder.path));
        }
        let mut definitions = DefinitionSet::load(&folders);
        definitions.by_name.extend(self.options.definitions.by_name.clone());
        definitions.add_default(general_definition());
        definitions
    }

    /// The same without those that nothing can be started with: what is wrong with them is told.
    pub(crate) fn usable_definitions(
        &self,
        directory: Option<&str>,
        confined: Option<&Sandbox>,
    ) -> DefinitionSet {
        let mut definitions = self.definitions(directory, confined);
        let tools = self.tool_names(&AgentOverrides::default());
        let mut wrong = Vec::new();
        definitions.by_name.retain(|_, found| {
            let problem = definition_problem(&found.definition, found.file(), &tools);
            let problem =
                problem.or_else(|| model_files::model_file_problem(&*self.options.models, found));
            let is_usable = problem.is_none();
            wrong.extend(problem);
            is_usable
        });
        definitions.problems.extend(wrong);
        definitions
    }

    /// Finds what was asked for, and keeps it with the request.
    pub(crate) fn resolve_agent(
        &self,
        mut work: AgentWork,
        grant: SpawnGrant<'_>,
        parent: SpawnParent<'_>,
    ) -> Result<AgentWork, Refusal> {
        if work.cwd.is_none()
            && let SpawnParent::Agent(parent) = parent
        {
            work.cwd.clone_from(&parent.directory);
        }
        if let SpawnParent::SandboxedProcess(outer) = parent {
            sandbox::check_may_start_agents(outer)?;
        }
        if let (Some(confined), Some(cwd)) = (parent.own_sandbox(), work.cwd.as_deref()) {
            sandbox::check_directory(confined, Path::new(cwd))?;
        }
        let overrides = self.decode_overrides(&work)?;
        let tools = self.tool_names(&overrides);
        check_rules(&grant.rules, &tools)?;
        let found = self.find_definition(&work, parent, &tools)?;
        let definition = found.definition.clone();
        let unattended =
            work.unattended || matches!(parent, SpawnParent::Agent(parent) if parent.unattended);
        let trusted = trust::trust_level(&self.options, &found, work.cwd.as_deref());
        if trusted == TrustLevel::Untrusted {
            trust::check_untrusted(&found, &definition, unattended)?;
        }
        let backend = backend(&overrides, &definition);
        self.backend(backend).map_err(|refusal| Refusal::invalid(refusal.message))?;
        let mcp_servers = match trusted {
            TrustLevel::Trusted => {
                mcp_servers::resolve_servers(&work, &definition, parent, &self.mcp_servers)?
            }
            TrustLevel::Untrusted => Vec::new(),
        };
        check_servers(&grant.rules, &tools, &self.mcp_servers)?;
        let name: Arc<str> = definition.name.as_str().into();
        let (permissions, inherited) = match parent {
            SpawnParent::TopLevel | SpawnParent::SandboxedProcess(_) => {
                (self.options.permissions.clone(), None)
            }
            SpawnParent::Agent(parent) => (parent.permissions.clone(), Some(parent.model.clone())),
        };
        let enclosure = resolve_sandbox(&grant, &definition, work.cwd.as_deref(), parent)?;
        let rules = match parent {
            // What may outlive an unattended run is said where that was started.
            SpawnParent::Agent(_) => definition.permissions.clone().without_keep(),
            _ => definition.permissions.clone(),
        };
        let permissions = permissions
            .narrow("whoever started it", grant.rules)
            .narrow(format!("the definition {name}"), rules)
            .narrow(
                format!("the definition {name}"),
                rules_for_tools(definition.tools.as_deref())?,
            );
        let permissions = match trusted {
            TrustLevel::Trusted => permissions,
            TrustLevel::Untrusted => {
                let by = format!("the definition {name}, which is not trusted,");
                permissions.narrow(by, trust::untrusted_rules())
            }
        };
        check_client_tools(&overrides, &definition)?;
        model_files::check_requested_model(&self.options, work.model.as_deref(), parent)?;
        let model = work.model.clone().or_else(|| definition.model.as_deref().map(Arc::from));
        let model = model.or(inherited).or_else(|| self.options.model.clone());
        let Some(model) = model else {
            return Err(Refusal::invalid(format!(
                "the agent {name:?} names no model, and there is no default: give one as \
                 provider/model, or set `model` in the configuration"
            )));
        };
        let counts_money = grant.limits.money.or(definition.limits.money).is_some()
            || matches!(parent, SpawnParent::Agent(parent) if parent.has_money_budget);
        // Work that is there waits for a runtime that has its model; new work is told at once.
        let chosen = self.options.models.find(&model);
        let chosen = chosen.map_err(|refusal| Refusal::invalid(refusal.message))?;
        self.options.models.check_ready(&model)?;
        work.resolved_model = Some(model.clone());
        work.unpriced_model = chosen.cost.is_unknown().then(|| model.clone());
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
        work.limits = resolve_limits(&definition, (grant.limits, &overrides), parent);
        let blueprint = Blueprint {
            result_schema,
            config: self.resolve_config(&work, &definition)?,
            may_delegate_to: resolve_delegates(&definition, parent),
            mcp_servers,
            definition,
            permissions,
            model,
            directory: work.cwd.clone(),
            has_money_budget: counts_money,
            is_child: matches!(parent, SpawnParent::Agent(_)),
            overrides,
            unattended,
            sandbox: enclosure,
            acts_through_process: false,
        };
        work.blueprint = Json::of(&blueprint)?;
        work.quote_mark = Some(new_quote_mark());
        Ok(work)
    }

    fn find_definition(
        &self,
        work: &AgentWork,
        parent: SpawnParent<'_>,
        tools: &[Arc<str>],
    ) -> Result<LoadedDefinition, Refusal> {
        let name = work.definition.as_deref().unwrap_or(GENERAL_DEFINITION);
        if let SpawnParent::Agent(Blueprint { may_delegate_to: Some(allowed), .. }) = parent
            && !allowed.iter().any(|one| one == name)
        {
            let allowed = allowed.join(", ");
            return Err(Refusal::forbidden(format!(
                "you may not start an agent {name:?}; you may start: {allowed}"
            )));
        }
        let definitions = self.definitions(work.cwd.as_deref(), parent.own_sandbox());
        match definitions.find(name) {
            Ok(found) => {
                if let Some(wrong) = model_files::model_file_problem(&*self.options.models, found) {
                    return Err(Refusal::invalid(wrong.to_string()));
                }
                check_definition(&found.definition, found.file(), tools)?;
                check_delegates(&definitions, name, work.cwd.as_deref())?;
                check_alias(name, found, parent)?;
                Ok(found.clone())
            }
            Err(ambiguous @ DefinitionLookupError::Ambiguous { .. }) => {
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
    fn decode_overrides(&self, work: &AgentWork) -> Result<AgentOverrides, Refusal> {
        let Some(overrides) = &work.overrides else { return Ok(AgentOverrides::default()) };
        let overrides: AgentOverrides = overrides.decode()?;
        if let Some(problem) = overrides.find_problem() {
            return Err(Refusal::invalid(problem));
        }
        Ok(overrides)
    }

    fn resolve_config(
        &self,
        work: &AgentWork,
        definition: &Definition,
    ) -> Result<Option<Json>, Refusal> {
        let name = &definition.name;
        match (&work.config, &definition.config_schema) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(Refusal::invalid(format!("the agent {name:?} has no settings"))),
            (config, Some(schema)) => {
                let schema =
                    self.schemas.get_or_compile(schema).map_err(|error| schema_refusal(&error))?;
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
fn check_alias(
    name: &str,
    found: &LoadedDefinition,
    parent: SpawnParent<'_>,
) -> Result<(), Refusal> {
    let plain = found.definition.name.as_str();
    let SpawnParent::Agent(parent) = parent else { return Ok(()) };
    let subject =
        |text| PermissionSubject { tool: "spawn_agent", text: Some(text), is_shell: false };
    let verdict = parent.permissions.check(&subject(plain));
    match verdict {
        PermissionVerdict::Allowed => Ok(()),
        _ if name == plain => Ok(()),
        PermissionVerdict::Refused(refused) => Err(Refusal::forbidden(refused.to_string())),
        PermissionVerdict::Ask { .. } if parent.permissions.check(&subject(name)).is_allowed() => {
            let problem = format!("there is a rule about {plain:?} that asks: name {plain:?}");
            Err(Refusal::forbidden(problem))
        }
        PermissionVerdict::Ask { .. } => Ok(()),
    }
}

/// A definition that lists its tools leaves out those of a client without a word from anybody; whoever
/// denies one has said so.
fn check_client_tools(overrides: &AgentOverrides, definition: &Definition) -> Result<(), Refusal> {
    let name = &definition.name;
    let listed = Permissions::of(name.as_str(), rules_for_tools(definition.tools.as_deref())?);
    match overrides.client_tools.iter().find(|tool| !listed.may_use(&tool.name)) {
        None => Ok(()),
        Some(ClientTool { name: tool, .. }) => Err(Refusal::invalid(format!(
            "client_tools: the definition {name} lists its tools, and {tool:?} is not among them"
        ))),
    }
}

/// The definition's limits, and what holds where neither it nor whoever asks says anything.
fn resolve_limits(
    definition: &Definition,
    (asked, overrides): (&Limits, &AgentOverrides),
    parent: SpawnParent<'_>,
) -> Option<Box<Limits>> {
    let mut limits = definition.limits;
    if matches!(parent, SpawnParent::TopLevel) && limits.depth.is_none() && asked.depth.is_none() {
        limits.depth = Some(DEFAULT_DEPTH_LIMIT);
    }
    // Of what carries it out instead of our loop nobody knows how often it is heard of.
    if backend(overrides, definition).is_some() && limits.stall.is_none() {
        limits.stall = Some(StallPolicy::Off);
    }
    (!limits.is_empty()).then(|| Box::new(limits))
}

/// The tools that a definition lists, as a rule: so they hold for all below it too.
fn rules_for_tools(tools: Option<&[String]>) -> Result<PermissionRules, Refusal> {
    let Some(tools) = tools else { return Ok(PermissionRules::all()) };
    let rules: Result<Vec<PermissionRule>, RuleError> =
        tools.iter().map(|tool| tool.parse()).collect();
    let allow = rules.map_err(|error| Refusal::invalid(format!("tools: {error}")))?;
    Ok(PermissionRules { allow: Some(allow), ..PermissionRules::default() })
}

/// What the commands of a new agent are kept to: by whoever starts it, by its definition, and by all
/// above it.
fn resolve_sandbox(
    grant: &SpawnGrant<'_>,
    definition: &Definition,
    directory: Option<&str>,
    parent: SpawnParent<'_>,
) -> Result<Sandbox, Refusal> {
    let asked = grant.sandbox_request.into_iter().chain(&definition.sandbox);
    let confinement = asked.map(|asked| sandbox::canonicalize(asked, directory));
    let own = Sandbox {
        terminal: None,
        resources: grant.resources.intersect(&definition.resources),
        layers: confinement.collect::<Result<_, _>>()?,
    };
    let outer =
        Sandbox { terminal: None, ..parent.inherited_sandbox().cloned().unwrap_or_default() };
    Ok(own.nested_in(&outer))
}

/// The definitions that a new agent may use in its turn: never more than its parent.
fn resolve_delegates(definition: &Definition, parent: SpawnParent<'_>) -> Option<Vec<String>> {
    let inherited = match parent {
        SpawnParent::TopLevel | SpawnParent::SandboxedProcess(_) => None,
        SpawnParent::Agent(parent) => parent.may_delegate_to.clone(),
    };
    match (&definition.may_delegate_to, inherited) {
        (Some(own), Some(inherited)) => {
            Some(own.iter().filter(|one| inherited.contains(one)).cloned().collect())
        }
        (Some(own), None) => Some(own.clone()),
        (None, inherited) => inherited,
    }
}

fn general_definition() -> Definition {
    Definition::new(GENERAL_DEFINITION).description("Any task.").prompt(
        "You are a capable agent. Do the task that you are given, completely, and say truthfully what \
         came of it.",
    )
}
