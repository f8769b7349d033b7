//! Resolves a requested agent: finds and checks its definition and creates its blueprint.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{
    Definition, DefinitionLookupError, DefinitionSet, LoadedDefinition,
};
use brigade_agent::permission::{
    PermissionRule, PermissionRules, PermissionSubject, PermissionVerdict, Permissions, RuleError,
};
use brigade_agent::{AgentOverrides, BackendModels, ClientTool};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::Sandbox;
use brigade_model::spec::TaskSpec;
use brigade_model::stall::StallPolicy;
use brigade_model::work::AgentWork;
use serde_json::Value;

use super::blueprint::{Blueprint, SpawnGrant, backend_choice};
use super::model_choice::{ModelChoice, NamedBackend};
use super::rule_checks::{
    check_definition, check_delegates, check_rules, check_servers, definition_problem,
};
use super::services::{AgentServices, schema_refusal};
use super::trust::{self, TrustLevel};
use super::{mcp_servers, model_files};
use crate::ids::new_quote_mark;
use crate::jobs::HandlerRegistry;
use crate::new_task::TaskDraft;
use crate::sandbox;
use crate::spawn_parent::SpawnParent;

/// The definition of an agent that names none.
pub(crate) const GENERAL_DEFINITION: &str = "general";

/// The depth limit of a top-level agent without one. Definitions may name each other in a circle,
/// so the depth must be bounded.
const DEFAULT_DEPTH_LIMIT: u16 = 8;

impl AgentServices {
    /// Returns the spec of a child of an agent.
    pub(crate) fn child_spec(
        self: &Arc<Self>,
        parent: &Blueprint,
        task: TaskDraft,
        key: &str,
    ) -> Result<TaskSpec, Refusal> {
        task.into_spec(
            &HandlerRegistry::agents_only(self.clone()),
            Some(key),
            SpawnParent::Agent(parent),
        )
    }

    /// Returns the definitions for agents in this directory. A sandboxed caller gets only those of
    /// the folders that it could read itself.
    pub(crate) fn definitions(
        &self,
        directory: Option<&str>,
        sandbox: Option<&Sandbox>,
    ) -> DefinitionSet {
        let mut folders = (self.options.definition_dirs)(directory.map(Path::new));
        if let Some(sandbox) = sandbox {
            folders.retain(|folder| sandbox::may_read(sandbox, &folder.path));
        }
        let mut definitions = DefinitionSet::load(&folders);
        definitions.by_name.extend(self.options.definitions.by_name.clone());
        definitions.add_default(general_definition());
        let of_programs =
            self.options.backend_source.iter().flat_map(|source| source.definitions());
        of_programs.for_each(|definition| definitions.add_default(definition));
        definitions
    }

    /// Returns the definitions that an agent can be started with. Those with problems are listed as
    /// problems.
    pub(crate) fn usable_definitions(
        &self,
        directory: Option<&str>,
        sandbox: Option<&Sandbox>,
    ) -> DefinitionSet {
        let mut definitions = self.definitions(directory, sandbox);
        let tools = self.tool_names(&AgentOverrides::default());
        let mut problems = Vec::new();
        definitions.by_name.retain(|_, found| {
            let problem = definition_problem(&found.definition, found.file(), &tools);
            let problem =
                problem.or_else(|| model_files::model_file_problem(&*self.options.models, found));
            let is_usable = problem.is_none();
            problems.extend(problem);
            is_usable
        });
        definitions.problems.extend(problems);
        definitions
    }

    /// Resolves a requested agent and stores its blueprint in the work.
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
        if let (Some(sandbox), Some(cwd)) = (parent.own_sandbox(), work.cwd.as_deref()) {
            sandbox::check_directory(sandbox, Path::new(cwd))?;
        }
        let overrides = self.decode_overrides(&work)?;
        let tools = self.tool_names(&overrides);
        check_rules(&grant.rules, &tools)?;
        let found = self.find_definition(&work, parent, &tools)?;
        let definition = found.definition.clone();
        let unattended =
            work.unattended || matches!(parent, SpawnParent::Agent(parent) if parent.unattended);
        let trusted = trust::trust_level(&self.options, &found, work.cwd.as_deref());
        let backend = backend_choice(&overrides, &definition);
        if trusted == TrustLevel::Untrusted {
            trust::check_untrusted(&found, backend, unattended)?;
        }
        let opened = self.backend_for_new_agent(backend)?;
        let name = backend.map_or("brigade", |backend| backend.name);
        let backend = NamedBackend { name, backend: &*opened };
        check_program_settings(&overrides, &definition, &backend)?;
        let mcp_servers = match trusted {
            TrustLevel::Trusted => {
                mcp_servers::resolve_servers(&work, &definition, parent, &self.mcp_servers)?
            }
            TrustLevel::Untrusted => Vec::new(),
        };
        check_servers(&grant.rules, &tools, &self.mcp_servers)?;
        let name: Arc<str> = definition.name.as_str().into();
        let permissions = match parent {
            SpawnParent::TopLevel | SpawnParent::SandboxedProcess(_) => {
                self.options.permissions.clone()
            }
            SpawnParent::Agent(parent) => parent.permissions.clone(),
        };
        let sandbox = resolve_sandbox(&grant, &definition, work.cwd.as_deref(), parent)?;
        let rules = match parent {
            // The `keep` rules of an unattended run come from its top-level spawn.
            SpawnParent::Agent(_) => definition.permissions.clone().without_keep(),
            _ => definition.permissions.clone(),
        };
        let permissions = permissions
            .narrow("the caller", grant.rules)
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
        opened.check_permissions(&permissions)?;
        check_client_tools(&overrides, &definition)?;
        model_files::check_requested_model(&self.options, work.model.as_deref(), parent)?;
        let has_money_budget = grant.limits.money.or(definition.limits.money).is_some()
            || matches!(parent, SpawnParent::Agent(parent) if parent.has_money_budget);
        let ModelChoice { model, shown, unpriced } =
            self.choose_model(&work, &definition, backend, parent)?;
        if let Some(unpriced) = unpriced.as_ref().filter(|_| has_money_budget) {
            return Err(Refusal::invalid(model.unpriced_problem(unpriced)));
        }
        work.works_remotely = opened.works_remotely();
        work.program_access = opened.program_access(&permissions);
        work.worktree = definition.worktree;
        work.resolved_model = shown;
        work.unpriced_model = unpriced;
        let result_schema = match &work.result_schema {
            Some(schema) => Some(schema.clone()),
            None => definition.result_schema.as_ref().map(Json::of).transpose()?,
        };
        self.result_schema(result_schema.as_ref())?;
        work.limits = resolve_limits(&definition, grant.limits, &overrides, parent);
        let withholds_variables = grant.withholds_variables || withholds_variables(parent);
        let blueprint = Blueprint {
            result_schema,
            config: self.resolve_config(&work, &definition)?,
            may_delegate_to: resolve_delegates(&definition, parent),
            mcp_servers,
            definition,
            permissions,
            model,
            directory: work.cwd.clone(),
            has_money_budget,
            is_child: matches!(parent, SpawnParent::Agent(_)),
            overrides,
            unattended,
            sandbox,
            withholds_variables,
            acts_through_process: false,
        };
        work.blueprint = self.share_blueprint(Json::of(&blueprint)?);
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
                let problem = model_files::model_file_problem(&*self.options.models, found);
                if let Some(problem) = problem {
                    return Err(Refusal::invalid(problem.to_string()));
                }
                check_definition(&found.definition, found.file(), tools)?;
                check_delegates(&definitions, name, work.cwd.as_deref())?;
                check_alias(name, found, parent)?;
                Ok(found.clone())
            }
            Err(ambiguous @ DefinitionLookupError::Ambiguous { .. }) => {
                Err(Refusal::invalid(ambiguous.to_string()))
            }
            Err(DefinitionLookupError::Faulty(fault)) => Err(Refusal::invalid(fault.to_string())),
            Err(missing @ DefinitionLookupError::Unknown { .. }) => {
                let source = self.options.backend_source.as_ref();
                if let Some(problem) = source.and_then(|source| source.definition_problem(name)) {
                    return Err(Refusal::invalid(problem));
                }
                // A directory that could not be read may have the requested one.
                let problems = definitions.problems.iter().take(5).map(|one| format!("; {one}"));
                let problems: String = problems.collect();
                Err(Refusal::not_found(format!("{missing}{problems}")))
            }
        }
    }

    /// Decodes and checks the overrides of a definition.
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
                // Settings may be omitted if all of them have defaults.
                let config = config.clone().map_or_else(|| Json::parse("{}"), Ok)?;
                schema.check(&config.decode::<Value>()?).map_err(|mismatch| {
                    Refusal::invalid(format!("the settings of {name:?} do not fit: {mismatch}"))
                })?;
                Ok(Some(config))
            }
        }
    }
}

/// Refuses a name with an origin to an agent that may not use the plain name without approval: a
/// rule on `spawn_agent(reviewer)` also holds for `user:reviewer`.
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
            let problem =
                format!("a rule about {plain:?} asks for approval: use the name {plain:?}");
            Err(Refusal::forbidden(problem))
        }
        PermissionVerdict::Ask { .. } => Ok(()),
    }
}

/// Refuses settings that an agent program would never see: it has model settings, a loop and tools
/// of its own.
fn check_program_settings(
    overrides: &AgentOverrides,
    definition: &Definition,
    backend: &NamedBackend<'_>,
) -> Result<(), Refusal> {
    let BackendModels::OfProgram { .. } = backend.backend.models() else { return Ok(()) };
    let defined = definition.loop_settings();
    let (lost, place) = match overrides.loop_settings() {
        lost if lost.is_empty() => (defined, format!(" in the definition {}", definition.name)),
        lost => (lost, String::new()),
    };
    if lost.is_empty() {
        return Ok(());
    }
    let name = backend.name;
    let verb = if lost.len() == 1 { "is" } else { "are" };
    let lost = lost.join(", ");
    Err(Refusal::invalid(format!(
        "{lost}{place} {verb} not possible with {name}: Brigade cannot pass such settings on to that \
         program"
    )))
}

/// Refuses client tools that the definition's own list of tools leaves out. Such a tool would be
/// missing silently, while a deny rule is explicit.
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

/// Returns the definition's limits, with defaults where neither the definition nor the spawn sets
/// one.
fn resolve_limits(
    definition: &Definition,
    requested: &Limits,
    overrides: &AgentOverrides,
    parent: SpawnParent<'_>,
) -> Option<Box<Limits>> {
    let mut limits = definition.limits;
    let has_depth = limits.depth.is_some() || requested.depth.is_some();
    if matches!(parent, SpawnParent::TopLevel) && !has_depth {
        limits.depth = Some(DEFAULT_DEPTH_LIMIT);
    }
    // A backend may report progress seldom, so that it would seem to stall.
    if backend_choice(overrides, definition).is_some() && limits.stall.is_none() {
        limits.stall = Some(StallPolicy::Off);
    }
    (!limits.is_empty()).then(|| Box::new(limits))
}

/// Returns the listed tools of a definition as rules, so that they also hold for its descendants.
fn rules_for_tools(tools: Option<&[String]>) -> Result<PermissionRules, Refusal> {
    let Some(tools) = tools else { return Ok(PermissionRules::all()) };
    let rules: Result<Vec<PermissionRule>, RuleError> =
        tools.iter().map(|tool| tool.parse()).collect();
    let allow = rules.map_err(|error| Refusal::invalid(format!("tools: {error}")))?;
    Ok(PermissionRules { allow: Some(allow), ..PermissionRules::default() })
}

/// Returns the sandbox for the processes of a new agent: the one of the spawn and the definition,
/// nested in the inherited one.
fn resolve_sandbox(
    grant: &SpawnGrant<'_>,
    definition: &Definition,
    directory: Option<&str>,
    parent: SpawnParent<'_>,
) -> Result<Sandbox, Refusal> {
    let requests = grant.sandbox_request.into_iter().chain(&definition.sandbox);
    let layers = requests.map(|request| sandbox::canonicalize(request, directory));
    let own = Sandbox {
        terminal: None,
        resources: grant.resources.intersect(&definition.resources),
        layers: layers.collect::<Result<_, _>>()?,
    };
    let outer =
        Sandbox { terminal: None, ..parent.inherited_sandbox().cloned().unwrap_or_default() };
    Ok(own.nested_in(&outer))
}

/// Returns true if the programs of a new agent get no variables of the runtime's environment: its
/// parent is in a sandbox, and could read them by such a program.
fn withholds_variables(parent: SpawnParent<'_>) -> bool {
    parent.inherited_sandbox().is_some_and(|outer| !outer.layers.is_empty())
        || matches!(parent, SpawnParent::Agent(parent) if parent.withholds_variables)
}

/// Returns the definitions that a new agent may use: never more than its parent.
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
        "You are a capable agent. Complete the task that you are given, and report the result \
        truthfully.",
    )
}
