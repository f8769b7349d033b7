//! The model of an agent: one of the runtime's models, or one that the backend's program has.

use std::sync::Arc;

use brigade_agent::definition::Definition;
use brigade_agent::{Backend, BackendModels};
use brigade_llm::{Model, ModelError, ModelErrorKind, ModelRequest, PartStream};
use brigade_model::refusal::Refusal;
use brigade_model::work::AgentWork;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use super::options::ChosenModel;
use super::services::AgentServices;
use crate::runtime_metrics::provider_and_model;
use crate::spawn_parent::SpawnParent;

/// The model of a blueprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum BlueprintModel {
    /// A model of the runtime, as provider/model.
    OfRuntime(Arc<str>),
    /// A model of the backend's program.
    OfProgram {
        /// The name that the program gets. Without one, it uses its default.
        program_model: Option<Arc<str>>,
        /// The model of children that are not run by a program.
        for_children: Option<Arc<str>>,
    },
}

/// The model of a new agent.
#[derive(Debug)]
pub(super) struct ModelChoice {
    pub(super) model: BlueprintModel,
    /// The model as people see it.
    pub(super) shown: Option<Arc<str>>,
    /// The model, if its price is not known.
    pub(super) unpriced: Option<Arc<str>>,
}

impl BlueprintModel {
    /// Returns the model that children inherit.
    pub(super) fn for_children(&self) -> Option<&Arc<str>> {
        match self {
            Self::OfRuntime(model) => Some(model),
            Self::OfProgram { for_children, .. } => for_children.as_ref(),
        }
    }

    /// Returns the reason why the model cannot work under a money budget.
    pub(super) fn unpriced_problem(&self, unpriced: &str) -> String {
        match self {
            Self::OfRuntime(model) => {
                format!("there is a money budget, and the price of {model} is not known; give it")
            }
            Self::OfProgram { .. } => format!(
                "there is a money budget, the program reports no cost, and the price of {unpriced} \
                 is not known: name a model with a known price, or limit tokens instead"
            ),
        }
    }
}

/// The backend of a new agent, by its name and itself.
#[derive(Debug)]
pub(super) struct NamedBackend<'a> {
    pub(super) name: &'a str,
    pub(super) backend: &'a dyn Backend,
}

impl AgentServices {
    /// Returns the model of a new agent. The model of the parent and the default are models of the
    /// runtime, which a program does not know.
    pub(super) fn choose_model(
        &self,
        work: &AgentWork,
        definition: &Definition,
        backend: NamedBackend<'_>,
        parent: SpawnParent<'_>,
    ) -> Result<ModelChoice, Refusal> {
        let requested = work.model.clone().or_else(|| definition.model.as_deref().map(Arc::from));
        let inherited = match parent {
            SpawnParent::TopLevel | SpawnParent::SandboxedProcess(_) => None,
            SpawnParent::Agent(parent) => parent.model.for_children().cloned(),
        };
        match backend.backend.models() {
            BackendModels::OfRuntime => {
                let model = requested.or(inherited).or_else(|| self.options.model.clone());
                self.choose_runtime_model(&definition.name, model)
            }
            BackendModels::OfProgram { reports_cost } => {
                let cost = requested.as_deref().map(|model| self.options.models.price(model));
                let is_unpriced = !reports_cost && cost.is_none_or(|cost| cost.is_unknown());
                let named = || format!("the model of {}", backend.name).into();
                let unpriced = is_unpriced.then(|| requested.clone().unwrap_or_else(named));
                Ok(ModelChoice {
                    shown: requested.clone(),
                    unpriced,
                    model: BlueprintModel::OfProgram {
                        program_model: requested,
                        for_children: inherited,
                    },
                })
            }
        }
    }

    fn choose_runtime_model(
        &self,
        name: &str,
        model: Option<Arc<str>>,
    ) -> Result<ModelChoice, Refusal> {
        let Some(model) = model else {
            return Err(Refusal::invalid(format!(
                "the agent {name:?} names no model, and there is no default: give one as \
                 provider/model, or set `model` in the configuration"
            )));
        };
        // Existing work waits for a runtime that has its model; new work is refused at once.
        let chosen = self.options.models.find(&model);
        let chosen = chosen.map_err(|refusal| Refusal::invalid(refusal.message))?;
        self.options.models.check_ready(&model)?;
        Ok(ModelChoice {
            shown: Some(model.clone()),
            unpriced: chosen.cost.is_unknown().then(|| model.clone()),
            model: BlueprintModel::OfRuntime(model),
        })
    }

    /// Returns the model for one attempt.
    pub(super) fn open_model(
        &self,
        model: &BlueprintModel,
        backend: Option<&str>,
    ) -> Result<OpenedModel, Refusal> {
        match model {
            BlueprintModel::OfRuntime(name) => {
                let provider = provider_and_model(name).0.into();
                Ok(OpenedModel { chosen: self.options.models.find(name)?, provider })
            }
            BlueprintModel::OfProgram { program_model, .. } => {
                let program: Arc<str> = backend.unwrap_or_default().into();
                let name = program_model.clone().unwrap_or_default();
                let chosen = ChosenModel {
                    model: Arc::new(NoModel { program: program.clone() }),
                    cost: self.options.models.price(&name),
                    name,
                    // The program keeps its own limits.
                    context_window: u64::MAX,
                    max_output: u32::MAX,
                };
                Ok(OpenedModel { chosen, provider: program })
            }
        }
    }
}

/// A model, and its provider as telemetry names it.
#[derive(Debug)]
pub(super) struct OpenedModel {
    pub(super) chosen: ChosenModel,
    pub(super) provider: Arc<str>,
}

/// The model of an agent whose program has its own: every call fails.
#[derive(Debug)]
struct NoModel {
    program: Arc<str>,
}

impl Model for NoModel {
    fn call(&self, _: Arc<ModelRequest>) -> PartStream {
        let program = &self.program;
        let problem = format!("{program} calls its models itself; there is none to call here");
        let error = ModelError::new(ModelErrorKind::Invalid, problem);
        Box::pin(stream::iter([Err(error)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_model_is_a_name_or_one_of_a_program() {
        let stored = r#""anthropic/claude""#;
        let model: BlueprintModel = serde_json::from_str(stored).expect("a model of the runtime");
        assert_eq!(model, BlueprintModel::OfRuntime("anthropic/claude".into()));
        assert_eq!(serde_json::to_string(&model).expect("JSON"), stored);
        for program_model in [None, Some("opus".into())] {
            let model = BlueprintModel::OfProgram { program_model, for_children: None };
            let stored = serde_json::to_string(&model).expect("JSON");
            let loaded: BlueprintModel = serde_json::from_str(&stored).expect("a model");
            assert_eq!(loaded, model);
        }
    }
}
