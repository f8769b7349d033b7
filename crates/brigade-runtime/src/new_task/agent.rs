//! Options of agents.

use brigade_agent::AgentOverrides;
use brigade_agent::permission::PermissionRules;
use brigade_model::arguments::schema_of;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::work::AgentWork;
use schemars::JsonSchema;
use serde::Serialize;

use super::{AgentTask, DraftWork, NewTask};

impl NewTask<AgentTask<String>> {
    /// Creates an agent with this task text. Its result is its last text.
    pub fn agent(task: &str) -> Self {
        Self::new(Ok(DraftWork::Agent(Box::new(AgentWork::new(task)), PermissionRules::all())))
    }
}

impl<R> NewTask<AgentTask<R>> {
    /// Sets the definition. Without one, the agent is a general one.
    #[must_use]
    pub fn definition(self, name: &str) -> Self {
        self.update_agent(|work| {
            work.definition = Some(name.into());
            Ok(())
        })
    }

    /// Sets the model, instead of the definition's.
    #[must_use]
    pub fn model(self, name: &str) -> Self {
        self.update_agent(|work| {
            work.model = Some(name.into());
            Ok(())
        })
    }

    /// Sets overrides for this agent: model parameters, the backend, and tools that the client
    /// executes.
    #[must_use]
    pub fn overrides(self, overrides: &AgentOverrides) -> Self {
        self.update_agent(|work| {
            work.overrides = Some(Json::of(overrides)?);
            Ok(())
        })
    }

    /// Sets the settings that the definition asks for.
    #[must_use]
    pub fn config(self, config: impl Serialize) -> Self {
        self.update_agent(|work| {
            work.config = Some(Json::of(&config)?);
            Ok(())
        })
    }

    /// Sets a JSON schema that the result must match. [`NewTask::returns`] takes it from a type.
    #[must_use]
    pub fn result_schema(self, schema: impl Serialize) -> NewTask<AgentTask<Json>> {
        let changed = self.update_agent(|work| {
            work.result_schema = Some(Json::of(&schema)?);
            Ok(())
        });
        changed.with_kind()
    }

    /// Makes the agent return a value of this type: sets its schema as the result schema, and
    /// decodes the result.
    #[must_use]
    pub fn returns<T: JsonSchema>(self) -> NewTask<AgentTask<T>> {
        self.result_schema(schema_of::<T>()).with_kind()
    }

    /// Makes the result JSON, for an agent whose definition has a result schema.
    #[must_use]
    pub fn returns_json(self) -> NewTask<AgentTask<Json>> {
        self.with_kind()
    }

    /// Adds an MCP server whose tools the agent gets beside those of its definition.
    #[must_use]
    pub fn mcp_server(self, name: &str) -> Self {
        self.update_agent(|work| {
            work.mcp_servers.push(name.into());
            Ok(())
        })
    }

    /// Restricts the permissions of the agent further.
    #[must_use]
    pub fn permissions(self, permissions: PermissionRules) -> Self {
        self.update(|work| {
            if let DraftWork::Agent(_, rules) = work {
                *rules = permissions;
            }
            Ok(())
        })
    }

    /// Lets the agent end while children of its are alive.
    #[must_use]
    pub fn ends_before_children(self) -> Self {
        self.update_agent(|work| {
            work.may_end_before_children = true;
            Ok(())
        })
    }

    /// Declares that nobody approves calls of the agent or its descendants. Calls that need approval
    /// are denied, unless a stored grant allows them.
    #[must_use]
    pub fn unattended(self) -> Self {
        self.update_agent(|work| {
            work.unattended = true;
            Ok(())
        })
    }

    /// Passes no variables of the runtime's environment, such as keys, to programs of the agent and its
    /// descendants. This always holds for an agent that a sandboxed task starts.
    #[must_use]
    pub fn withhold_variables(mut self) -> Self {
        self.draft.withholds_variables = true;
        self
    }

    fn update_agent(self, change: impl FnOnce(&mut AgentWork) -> Result<(), Refusal>) -> Self {
        self.update(|work| match work {
            DraftWork::Agent(work, _) => change(work),
            _ => Ok(()),
        })
    }
}
