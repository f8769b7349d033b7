//! Options that override parts of an agent's definition for one run.

use std::path::{Path, PathBuf};

use brigade_agent::{AgentOverrides, ClientTool};
use brigade_llm::ReasoningEffort;
use serde::Deserialize;
use serde::de::value::{Error as WordError, StrDeserializer};

use crate::exit_code::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct OverrideArgs {
    /// Sampling temperature, 0 to 2
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Reasoning effort: low, medium, high
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    effort: Option<ReasoningEffort>,
    /// Max output tokens per model call
    #[arg(long, value_name = "TOKENS")]
    max_output: Option<u32>,
    /// Max steps per run
    #[arg(long, value_name = "NUMBER")]
    steps: Option<u32>,
    /// Client tools: a JSON file with a list of name, description and parameters (a schema). A call
    /// of one waits until `brigade answer` returns its result
    #[arg(long, value_name = "FILE")]
    client_tools: Option<PathBuf>,
}

impl OverrideArgs {
    /// Validates the options before anything starts.
    pub(crate) fn to_overrides(&self) -> Result<AgentOverrides, CliError> {
        let client_tools = match &self.client_tools {
            Some(path) => read_client_tools(path)?,
            None => Vec::new(),
        };
        let overrides = AgentOverrides {
            temperature: self.temperature,
            effort: self.effort,
            max_output: self.max_output,
            steps: self.steps,
            backend: None,
            client_tools,
        };
        match (overrides.find_problem(), &self.client_tools) {
            (None, _) => Ok(overrides),
            (Some(problem), Some(path)) if problem.starts_with("client_tools") => {
                Err(CliError::usage(format!("{}: {problem}", path.display())))
            }
            (Some(problem), _) => Err(CliError::usage(problem)),
        }
    }
}

fn read_client_tools(path: &Path) -> Result<Vec<ClientTool>, CliError> {
    let wrong = |problem: String| {
        CliError::usage(format!("{}: {problem}", path.display())).with_hint(
            r#"the file holds a list: [{"name": "open_editor", "description": "Opens a file."}]"#,
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn parse_effort(word: &str) -> Result<ReasoningEffort, String> {
    let word = StrDeserializer::<WordError>::new(word);
    ReasoningEffort::deserialize(word).map_err(|error| error.to_string())
}
