//! Checks on models that are files. The runtime reads or writes such a file without permissions and
//! outside of every sandbox.

use brigade_agent::definition::{DefinitionError, LoadedDefinition};
use brigade_model::refusal::Refusal;

use super::options::{AgentOptions, ModelSource};
use crate::spawn_parent::SpawnParent;

/// Refuses a sandboxed caller a model that is a file outside of its sandbox: any other than its own
/// model and the default.
pub(super) fn check_requested_model(
    options: &AgentOptions,
    requested: Option<&str>,
    parent: SpawnParent<'_>,
) -> Result<(), Refusal> {
    let is_sandboxed = parent.inherited_sandbox().is_some_and(|outer| !outer.layers.is_empty());
    let own = match parent {
        SpawnParent::Agent(parent) => parent.model.for_children().map(|model| &**model),
        SpawnParent::TopLevel | SpawnParent::SandboxedProcess(_) => None,
    };
    let is_known = |model: &str| own == Some(model) || options.model.as_deref() == Some(model);
    let is_foreign = |model: &&str| options.models.is_file(model) && !is_known(model);
    match requested.filter(|_| is_sandboxed).filter(is_foreign) {
        None => Ok(()),
        Some(model) => Err(Refusal::forbidden(format!(
            "a sandboxed process can start no agent with the model {model}, which is a file"
        ))),
    }
}

/// Returns the problem of a definition file that names a file as its model. A workspace is other
/// people's text, and an agent may be allowed to write there.
pub(super) fn model_file_problem(
    models: &dyn ModelSource,
    found: &LoadedDefinition,
) -> Option<DefinitionError> {
    let file = found.file()?;
    let model = found.definition.model.as_deref().filter(|model| models.is_file(model))?;
    let problem = format!("{model} is a file, which only the caller of a spawn can name");
    let field = Some("model".to_owned());
    Some(DefinitionError { file: None, line: 0, field, problem }.with_file(file))
}
