//! Agent definitions: the prompt, model, tools, permissions and limits of an agent.
//!
//! A definition is a markdown file, with settings in its front matter and the prompt as its text, or it
//! is built in Rust. A spawn stores the definition's content, so a later edit does not change running
//! agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brigade_llm::ReasoningEffort;
use brigade_model::limits::Limits;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json_schema::Schema;
use crate::localization::{self, Locale, LocalizedText};
use crate::permission::{PermissionRules, ShadowedRule};

pub use definition_set::{
    DefinitionLookupError, DefinitionSet, DefinitionSource, DefinitionText, LoadedDefinition,
};
pub use origin::{DefinitionDigest, DefinitionDir, DefinitionOrigin, DigestError, repository_of};

mod definition_set;
mod front_matter;
mod origin;
mod runs_field;
mod sandbox_field;

const NAME_MAX: usize = 64;
const TEMPERATURE_MAX: f64 = 2.0;

/// An agent as written, in a file or with these methods.
///
/// ```
/// use brigade_agent::definition::Definition;
///
/// let cook = Definition::new("cook")
///     .description("Thinks up one course.")
///     .prompt("Look into the pantry first, then name one dish.")
///     .tools(["look_in_pantry"])
///     .steps(5);
/// cook.check()?;
/// # Ok::<(), brigade_agent::definition::DefinitionError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// The name that `spawn_agent` takes.
    pub name: String,
    /// A description for the model or the person that chooses a definition.
    pub description: String,
    pub prompt: String,
    /// The model. `None` is the model of the parent, or the default of the backend's program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The tools. `None` is all tools that the parent grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "PermissionRules::is_empty")]
    pub permissions: PermissionRules,
    /// The MCP servers, by their names in the configuration. `None` is those of the parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<String>>,
    /// The most model calls of one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The definitions that the agent may spawn. `None` is all that its parent may spawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_delegate_to: Option<Vec<String>>,
    /// The schema of `config` in a spawn. Without a schema, a spawn has no config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// The schema of the result. Without a schema, the result is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// The name of a registered backend. Without one, the loop of this crate runs the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The command line that the backend starts, if the definition names it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backend_command: Vec<String>,
    /// The sandbox of all processes of the agent and its descendants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRequest>,
    /// The resource limits of each of these processes.
    #[serde(skip_serializing_if = "ResourceLimits::is_empty")]
    pub resources: ResourceLimits,
    /// True if the agent works in a git worktree of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// Names and descriptions in other languages, by language tag.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub localized: BTreeMap<String, LocalizedText>,
}

/// A problem of a definition, with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", render_location(.file, *.line), render_problem(.field.as_deref(), .problem))]
pub struct DefinitionError {
    /// The file. `None` is a definition that was built in Rust.
    pub file: Option<PathBuf>,
    /// The line, counted from 1. 0 is the file as a whole.
    pub line: usize,
    /// The path of the field, such as `limits.tokens`.
    pub field: Option<String>,
    pub problem: String,
}

impl DefinitionError {
    /// Adds the file, and the line if the file can still be read.
    #[must_use]
    pub fn with_file(self, file: &Path) -> Self {
        let error = match std::fs::read_to_string(file) {
            Ok(text) => front_matter::locate_error_in_text(&text, self),
            Err(_) => self,
        };
        Self { file: Some(file.to_owned()), ..error }
    }
}

fn render_location(file: &Option<PathBuf>, line: usize) -> String {
    match file {
        Some(file) if line > 0 => format!("{}:{line}: ", file.display()),
        Some(file) => format!("{}: ", file.display()),
        None => String::new(),
    }
}

fn render_problem(field: Option<&str>, problem: &str) -> String {
    field.map_or_else(|| problem.to_owned(), |field| format!("`{field}`: {problem}"))
}

impl Definition {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Parses the text of a file. Errors name it `file`.
    pub fn parse(file: impl Into<PathBuf>, text: &str) -> Result<Self, DefinitionError> {
        front_matter::parse(text)
            .map_err(|error| DefinitionError { file: Some(file.into()), ..error })
    }

    /// Returns the names of the set values that only the loop of this crate uses.
    pub fn loop_settings(&self) -> Vec<&'static str> {
        let settings = [
            ("temperature", self.temperature.is_some()),
            ("effort", self.effort.is_some()),
            ("max_output", self.max_output.is_some()),
            ("steps", self.steps.is_some()),
        ];
        settings.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }

    /// Checks the rules that types cannot express. `parse` calls it too.
    pub fn check(&self) -> Result<(), DefinitionError> {
        let wrong = |field: &str, problem: String| {
            Err(DefinitionError { file: None, line: 0, field: Some(field.to_owned()), problem })
        };
        if !is_valid_name(&self.name) {
            return wrong(
                "name",
                format!(
                    "{:?} is no name: use a letter, then letters, digits, `-`, `_` or `.`, at most \
                     {NAME_MAX} in all",
                    self.name
                ),
            );
        }
        // The program of a backend has instructions of its own.
        if self.prompt.trim().is_empty() && self.backend.is_none() {
            return wrong("prompt", "it is empty; write the agent's instructions".to_owned());
        }
        if let Some(ShadowedRule { list, rule, deny }) = self.permissions.find_shadowed() {
            return wrong(
                &format!("permissions.{list}"),
                format!("`{rule}` can never match: `{deny}` denies all of it"),
            );
        }
        if self.steps == Some(0) {
            return wrong("limits.steps", "it must be at least 1".to_owned());
        }
        if self.temperature.is_some_and(|value| !(0.0..=TEMPERATURE_MAX).contains(&value)) {
            return wrong("temperature", format!("it must be from 0 to {TEMPERATURE_MAX}"));
        }
        if self.max_output == Some(0) {
            return wrong("max_output", "it must be at least 1".to_owned());
        }
        if let Err(refusal) = self.resources.check() {
            return wrong("sandbox", refusal.message);
        }
        if let Some(problem) = localization::find_problem(&self.localized) {
            return wrong("localized", problem);
        }
        let schemas =
            [("config_schema", &self.config_schema), ("result_schema", &self.result_schema)];
        for (field, schema) in schemas {
            if let Some(Err(error)) = schema.as_ref().map(Schema::compile) {
                return wrong(field, error.to_string());
            }
        }
        Ok(())
    }

    /// Returns the name and the description in this language, for user interfaces. For `de-AT`, each is
    /// the text for `de-AT` or else for `de`.
    pub fn localized(&self, locale: &Locale) -> LocalizedText {
        localization::find_best_match(&self.localized, locale)
    }

    /// Returns true if the definition itself allows to spawn agents of that definition.
    pub fn may_delegate_to(&self, name: &str) -> bool {
        self.may_delegate_to.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
    }
}

/// Setters for programs that build definitions in Rust.
impl Definition {
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    #[must_use]
    pub fn prompt(self, prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..self }
    }

    #[must_use]
    pub fn model(self, model: impl Into<String>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    #[must_use]
    pub fn tools<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        Self { tools: Some(tools.into_iter().map(Into::into).collect()), ..self }
    }

    #[must_use]
    pub fn mcp_servers<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self { mcp_servers: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    #[must_use]
    pub fn permissions(self, permissions: PermissionRules) -> Self {
        Self { permissions, ..self }
    }

    #[must_use]
    pub fn steps(self, steps: u32) -> Self {
        Self { steps: Some(steps), ..self }
    }

    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    #[must_use]
    pub fn delegates_to<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self { may_delegate_to: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    #[must_use]
    pub fn config_schema(self, schema: Value) -> Self {
        Self { config_schema: Some(schema), ..self }
    }

    #[must_use]
    pub fn result_schema(self, schema: Value) -> Self {
        Self { result_schema: Some(schema), ..self }
    }

    #[must_use]
    pub fn effort(self, effort: ReasoningEffort) -> Self {
        Self { effort: Some(effort), ..self }
    }

    #[must_use]
    pub fn temperature(self, temperature: f64) -> Self {
        Self { temperature: Some(temperature), ..self }
    }

    /// Sets the backend that runs the agent, instead of the loop of this crate.
    #[must_use]
    pub fn backend(self, name: impl Into<String>) -> Self {
        Self { backend: Some(name.into()), ..self }
    }

    /// Sets the command line that the backend starts.
    #[must_use]
    pub fn backend_command<T: Into<String>>(self, command: impl IntoIterator<Item = T>) -> Self {
        Self { backend_command: command.into_iter().map(Into::into).collect(), ..self }
    }

    #[must_use]
    pub fn sandbox(self, sandbox: SandboxRequest) -> Self {
        Self { sandbox: Some(sandbox), ..self }
    }

    #[must_use]
    pub fn resources(self, resources: ResourceLimits) -> Self {
        Self { resources, ..self }
    }

    /// Gives each agent of this definition a git worktree of its own.
    #[must_use]
    pub fn worktree(self) -> Self {
        Self { worktree: true, ..self }
    }

    /// Sets the name and the description in the language of this tag, such as `de`.
    #[must_use]
    pub fn in_language(mut self, tag: impl Into<String>, text: LocalizedText) -> Self {
        self.localized.insert(tag.into(), text);
        self
    }

    #[must_use]
    pub fn max_output(self, tokens: u32) -> Self {
        Self { max_output: Some(tokens), ..self }
    }
}

fn is_valid_name(name: &str) -> bool {
    name.len() <= NAME_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests;
