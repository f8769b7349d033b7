//! A tool as an argument type: its definition for an audience, and the parsing of its arguments.

use brigade_model::arguments::{find_problems, read_arguments_by, schema_of};
use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::audience::Audience;

/// The arguments of a delegation tool.
pub trait ToolArgs: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const HINTS: ToolHints;

    /// Returns the description: the use of the tool, and the cases in which not to use it.
    fn description(audience: Audience) -> String;

    /// Returns the arguments that mean nothing to this audience. They are not offered, and refused
    /// as unknown.
    fn hidden_args(_audience: Audience) -> &'static [&'static str] {
        &[]
    }

    /// Other names of arguments, which models know from other tools.
    const ALIASES: &'static [ArgumentAlias] = &[];

    /// Returns the arguments that this audience must give, beside those that the type requires.
    fn required_args(_audience: Audience) -> &'static [&'static str] {
        &[]
    }

    /// Returns the descriptions of arguments that differ between audiences.
    fn argument_docs(_audience: Audience) -> Vec<ArgumentDoc> {
        Vec::new()
    }
}

/// Another name of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentAlias {
    pub alias: &'static str,
    pub name: &'static str,
}

/// The description of one argument for one audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentDoc {
    pub name: &'static str,
    pub text: String,
}

impl ArgumentDoc {
    pub(crate) fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into() }
    }
}

/// The possible effects of a tool, whatever its arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolHints {
    /// The tool changes nothing.
    pub is_read_only: bool,
    /// The tool may destroy something.
    pub is_destructive: bool,
    /// A repeated call has no further effect.
    pub is_idempotent: bool,
    /// The tool affects more than the tasks of the caller.
    pub is_open_world: bool,
}

impl ToolHints {
    /// The hints of a tool that only reads.
    pub const READ_ONLY: Self = Self {
        is_read_only: true,
        is_destructive: false,
        is_idempotent: true,
        is_open_world: false,
    };
    /// The hints of a tool that starts a task, which can do anything.
    pub const STARTS_WORK: Self = Self {
        is_read_only: false,
        is_destructive: true,
        is_idempotent: false,
        is_open_world: true,
    };
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub title: &'static str,
    pub description: String,
    pub schema: Map<String, Value>,
    pub hints: ToolHints,
}

/// Returns the definition of a tool for an audience.
pub fn define_tool<T: ToolArgs>(audience: Audience) -> ToolDefinition {
    ToolDefinition {
        name: T::NAME,
        title: T::TITLE,
        description: T::description(audience),
        schema: schema_for::<T>(audience),
        hints: T::HINTS,
    }
}

fn schema_for<T: ToolArgs>(audience: Audience) -> Map<String, Value> {
    let mut schema = schema_of::<T>();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for name in T::hidden_args(audience) {
            properties.shift_remove(*name);
        }
        for ArgumentDoc { name, text } in T::argument_docs(audience) {
            if let Some(Value::Object(property)) = properties.get_mut(name) {
                property.insert("description".into(), text.into());
            }
        }
    }
    for name in T::required_args(audience) {
        let required = schema.entry("required").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(required) = required {
            required.push((*name).into());
        }
    }
    schema
}

/// Arguments that client programs add to the calls of their model. They are ignored. Gemini CLI
/// uses this one to order its calls.
const CLIENT_ADDED_ARGUMENTS: [&str; 1] = ["wait_for_previous"];

/// Removes nulls and arguments that a client program added, and replaces aliases by their names.
fn normalize_args<T: ToolArgs>(
    audience: Audience,
    arguments: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    arguments.retain(|name, value| {
        !value.is_null()
            && (audience.is_agent() || !CLIENT_ADDED_ARGUMENTS.contains(&name.as_str()))
    });
    for ArgumentAlias { alias, name } in T::ALIASES {
        let Some(value) = arguments.shift_remove(*alias) else { continue };
        if arguments.insert((*name).to_owned(), value.clone()).is_some_and(|other| other != value) {
            return Err(Refusal::invalid(format!("give `{name}` or `{alias}`, not both")));
        }
    }
    Ok(())
}

/// Returns a hint for models that expect a `timeout` argument to kill the task.
fn explain_timeout(schema: &Map<String, Value>, arguments: &Map<String, Value>) -> &'static str {
    let has = |name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
    match arguments.keys().any(|name| name.starts_with("timeout") && !has(name)) {
        true if has("deadline_secs") => {
            "; `wait_secs` is how long this call waits, `deadline_secs` is when the task is killed"
        }
        true if has("wait_secs") => "; `wait_secs` is how long this call waits",
        _ => "",
    }
}

/// Parses the arguments of one call. The error names every wrong argument.
pub fn read_args<T: ToolArgs>(
    audience: Audience,
    mut arguments: Map<String, Value>,
) -> Result<T, Refusal> {
    normalize_args::<T>(audience, &mut arguments)?;
    let is_given = |name: &&str| arguments.contains_key(*name);
    let fits_audience = !T::hidden_args(audience).iter().any(is_given)
        && T::required_args(audience).iter().all(is_given);
    let read = match fits_audience {
        true => read_arguments_by(arguments.clone(), || schema_for::<T>(audience)),
        false => Err(find_problems(&schema_for::<T>(audience), &arguments).join("; ")),
    };
    read.map_err(|problem| {
        let hint = explain_timeout(&schema_for::<T>(audience), &arguments);
        Refusal::invalid(format!("{problem}{hint}"))
    })
}

/// Refuses an argument whose text is blank.
pub(crate) fn require_text(name: &str, text: &str) -> Result<(), Refusal> {
    match text.trim().is_empty() {
        true => Err(Refusal::invalid(format!("the argument `{name}` is blank"))),
        false => Ok(()),
    }
}
