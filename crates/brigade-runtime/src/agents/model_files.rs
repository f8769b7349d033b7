//! Who may choose a model that is a file: it is read or written by the runtime, beyond the reach of any
//! permission and outside of every confinement.

use brigade_agent::definition::{DefinitionError, LoadedDefinition};
use brigade_model::refusal::Refusal;

use super::blueprint::SpawnParent;
use super::options::{AgentOptions, ModelSource};

/// Refuses a model that whoever is confined asks for, and that would get it a file from outside: another
/// than it has, and than all have.
pub(super) fn check_requested_model(
    options: &AgentOptions,
    asked: Option<&str>,
    parent: SpawnParent<'_>,
) -> Result<(), Refusal> {
    let confined = parent.inherited_sandbox().is_some_and(|outer| !outer.layers.is_empty());
    let own = match parent {
        SpawnParent::Agent(parent) => Some(&*parent.model),
        SpawnParent::TopLevel | SpawnParent::SandboxedProcess(_) => None,
    };
    let is_known = |model: &str| own == Some(model) || options.model.as_deref() == Some(model);
    let is_foreign = |model: &&str| options.models.is_file(model) && !is_known(model);
    match asked.filter(|_| confined).filter(is_foreign) {
        None => Ok(()),
        Some(model) => Err(Refusal::forbidden(format!(
            "a confined command can start no agent with the model {model}, which is a file"
        ))),
    }
}

/// What is wrong with the model of a definition: a workspace is other people's text, and an agent may
/// be allowed to write there.
pub(super) fn model_file_problem(
    models: &dyn ModelSource,
    found: &LoadedDefinition,
) -> Option<DefinitionError> {
    let file = found.file()?;
    let model = found.definition.model.as_deref().filter(|model| models.is_file(model))?;
    let problem = format!("{model} is a file; only whoever starts an agent can name one");
    let field = Some("model".to_owned());
    Some(DefinitionError { file: None, line: 0, field, problem }.with_file(file))
}
