//! Parses a definition's file: YAML between two lines `---`, then the prompt.

use brigade_model::duration::parse_duration;
use std::collections::BTreeMap;
use std::time::Duration;

use brigade_llm::ReasoningEffort;
use brigade_model::ids::Millis;
use brigade_model::limits::{Limits, Money};
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::stall::StallPolicy;
use brigade_model::suggestion::did_you_mean;
use brigade_model::token_count::parse_tokens;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Error;

use super::runs_field::{ChosenBackend, RunsField};
use super::sandbox_field::SandboxField;
use super::{Definition, DefinitionError};
use crate::localization::LocalizedText;
use crate::permission::PermissionRules;

const FENCE: &str = "---";

pub(super) fn parse(text: &str) -> Result<Definition, DefinitionError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (front, prompt) = split_front_matter(text)?;
    let options = serde_saphyr::options! { with_snippet: false };
    let fields: FrontMatter = serde_saphyr::from_str_with_options(front, options)
        .map_err(|error| field_error(front, &error))?;
    let definition = fields.with_prompt(prompt.trim());
    definition.check().map_err(|error| locate_error(front, error))?;
    Ok(definition)
}

/// Returns the name in a text that need not be a valid definition.
pub(super) fn find_name(text: &str) -> Option<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut fields = text.lines().skip(1).take_while(|line| line.trim_end() != FENCE);
    let name = fields.find_map(|line| line.strip_prefix("name:"))?;
    Some(name.trim().trim_matches(['"', '\''])).filter(|name| !name.is_empty())
}

/// Splits a file into its front matter, which begins in the second line, and the text after it.
fn split_front_matter(text: &str) -> Result<(&str, &str), DefinitionError> {
    let wrong = |line, problem: &str| {
        Err(DefinitionError { file: None, line, field: None, problem: problem.to_owned() })
    };
    let is_fence = |line: &str| line.trim_end() == FENCE;
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if !is_fence(first) {
        return wrong(1, "a definition begins with a line `---`, its fields, and `---` again");
    }
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok((&text[first.len()..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    wrong(1, "the fields that begin here do not end: a second line `---` is missing")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    name: String,
    description: String,
    #[serde(default, deserialize_with = "present")]
    runs: Option<RunsField>,
    #[serde(default, deserialize_with = "present")]
    model: Option<String>,
    #[serde(default, deserialize_with = "present")]
    tools: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    mcp_servers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    permissions: Option<PermissionRules>,
    #[serde(default, deserialize_with = "present")]
    limits: Option<LimitFields>,
    #[serde(default, deserialize_with = "present")]
    may_delegate_to: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    config_schema: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    result_schema: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    effort: Option<ReasoningEffort>,
    #[serde(default, deserialize_with = "present")]
    temperature: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    max_output: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    sandbox: Option<SandboxField>,
    #[serde(default, deserialize_with = "present")]
    worktree: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    localized: Option<BTreeMap<String, LocalizedText>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitFields {
    #[serde(deserialize_with = "present")]
    steps: Option<u32>,
    #[serde(deserialize_with = "present")]
    tokens: Option<TokenCount>,
    #[serde(deserialize_with = "present")]
    money: Option<DollarAmount>,
    #[serde(deserialize_with = "present")]
    time: Option<DurationText>,
    #[serde(deserialize_with = "present")]
    depth: Option<u16>,
    #[serde(deserialize_with = "present")]
    width: Option<u32>,
    #[serde(deserialize_with = "present")]
    total: Option<u32>,
    #[serde(deserialize_with = "present")]
    running: Option<u32>,
    #[serde(deserialize_with = "present")]
    stall: Option<StallSetting>,
    #[serde(deserialize_with = "present")]
    spawn_rate: Option<SpawnRateText>,
}

/// Refuses a field without a value. It must not read as an absent limit.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl FrontMatter {
    fn with_prompt(self, prompt: &str) -> Definition {
        let limits = self.limits.unwrap_or_default();
        let backend: ChosenBackend = self.runs.unwrap_or_default().into_backend();
        let (sandbox, resources) = self.sandbox.map(SandboxField::into_parts).unwrap_or_default();
        Definition {
            name: self.name,
            description: self.description,
            prompt: prompt.to_owned(),
            model: self.model,
            tools: self.tools,
            mcp_servers: self.mcp_servers,
            permissions: self.permissions.unwrap_or_default(),
            steps: limits.steps,
            limits: Limits {
                depth: limits.depth,
                width: limits.width,
                total: limits.total,
                running: limits.running,
                tokens: limits.tokens.map(|tokens| tokens.0),
                money: limits.money.map(|dollars| dollars.0),
                time: limits.time.map(|time| Millis::from(time.0)),
                stall: limits.stall.map(|stall| stall.0),
                spawn_rate: limits.spawn_rate.map(|rate| rate.0),
                ..Limits::default()
            },
            may_delegate_to: self.may_delegate_to,
            config_schema: self.config_schema,
            result_schema: self.result_schema,
            effort: self.effort,
            temperature: self.temperature,
            max_output: self.max_output,
            backend: backend.name,
            backend_command: backend.command,
            sandbox,
            resources,
            worktree: self.worktree.unwrap_or_default(),
            localized: self.localized.unwrap_or_default(),
        }
    }
}

/// A number of tokens, such as 500000, or the text of one, such as `500k`.
struct TokenCount(u64);

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_tokens(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

struct DollarAmount(Money);

impl<'de> Deserialize<'de> for DollarAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        if !(0.0..=1e9).contains(&dollars) {
            return Err(serde::de::Error::custom("write dollars, such as 2.50"));
        }
        Ok(Self(Money((dollars * 1e6).round() as u64)))
    }
}

pub(super) struct DurationText(pub(super) Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A duration without activity, or `off`.
struct StallSetting(StallPolicy);

impl<'de> Deserialize<'de> for StallSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "off" {
            return Ok(Self(StallPolicy::Off));
        }
        match parse_duration(&text) {
            Ok(duration) if !duration.is_zero() => Ok(Self(StallPolicy::after(duration))),
            _ => {
                let problem = format!("{text:?} is no duration, such as 10m, and not `off`");
                Err(serde::de::Error::custom(problem))
            }
        }
    }
}

struct SpawnRateText(SpawnRate);

impl<'de> Deserialize<'de> for SpawnRateText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// The expected value of each field, for errors.
const FIELD_HINTS: [(&str, &str); 36] = [
    ("name", "a name, such as `reviewer`"),
    ("description", "a sentence on the agent's purpose"),
    ("model", "a model's name"),
    ("tools", "a list of tools, such as [read_file, run_process]"),
    ("mcp_servers", "a list of names from the configuration, such as [github]; [] is none"),
    ("permissions", "`allow`, `ask` and `deny`, each a list of rules"),
    ("permissions.allow", "a list of rules, such as [read_file, \"run_process(cargo *)\"]"),
    ("permissions.ask", "a list of rules, such as [\"run_process(cargo publish*)\"]"),
    ("permissions.deny", "a list of rules, such as [\"run_process(git push*)\"]"),
    ("runs", "the name of an agent program, such as claude, or `{ acp: [command, ..] }`"),
    ("limits", "nested limits, such as `steps: 50`"),
    ("limits.steps", "a whole number of model calls"),
    ("limits.tokens", "a number of tokens, such as 500000, 500k or 1.5M"),
    ("limits.money", "dollars, such as 2.50"),
    ("limits.time", "a duration, such as 90s, 10m or 2h"),
    ("limits.depth", "a whole number of levels of descendants"),
    ("limits.width", "a whole number of children that are alive"),
    ("limits.total", "a whole number of descendants in all"),
    ("limits.running", "a whole number of tasks that run at once"),
    ("limits.stall", "a duration without activity, such as 10m, or `off`"),
    ("limits.spawn_rate", "a number of new descendants in a time, such as 10/min"),
    ("may_delegate_to", "a list of definitions, such as [researcher]; [] is none"),
    ("config_schema", "a JSON schema, written as YAML"),
    ("result_schema", "a JSON schema, written as YAML"),
    ("effort", "low, medium or high"),
    ("temperature", "a number from 0 to 2"),
    ("max_output", "a whole number of tokens"),
    ("sandbox", "`true`, or nested fields, such as `write: [/data]`"),
    ("sandbox.read", "a list of paths, such as [~/.cargo]"),
    ("sandbox.write", "a list of paths, such as [/data]"),
    ("sandbox.tcp", "`false` to deny TCP"),
    ("sandbox.memory", "an amount of memory, such as 512M or 2G"),
    ("sandbox.cpu", "a duration of processor time, such as 90s or 10m"),
    ("sandbox.files", "a whole number of open files"),
    ("localized", "nested languages, such as `de: { name: Prüfer, description: Liest. }`"),
    ("prompt", "text after the fields"),
];

fn field_error(front: &str, error: &Error) -> DefinitionError {
    let error = error.without_snippet();
    let line = error.location().map_or(1, |place| usize::try_from(place.line()).unwrap_or(1));
    let field_here = field_at(front, line);
    let (field, problem) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let near = did_you_mean(field, expected.iter().copied());
            let known = if near.is_empty() { list_known(expected) } else { near };
            (field_here.or_else(|| Some(field.clone())), format!("unknown{known}"))
        }
        Error::SerdeMissingField { field, .. } => {
            (Some((*field).to_owned()), format!("missing{}", field_hint(field)))
        }
        Error::Message { msg, .. } => (field_here, msg.clone()),
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let near = did_you_mean(variant, expected.iter().copied());
            let known = if near.is_empty() { list_known(expected) } else { near };
            (field_here, format!("`{variant}` is not known here{known}"))
        }
        Error::DuplicateMappingKey { .. } => (field_here, "it is defined twice".to_owned()),
        Error::ExternalMessage { msg, .. } => (None, format!("this is not YAML: {msg}")),
        Error::Eof { .. } => (None, "there are no fields; `name` is the first".to_owned()),
        other => match field_here.as_deref().map(field_hint).filter(|hint| !hint.is_empty()) {
            Some(hint) => (field_here, format!("wrong value{hint}")),
            None => {
                let text = other.to_string();
                let text = text.split(" at line ").next().unwrap_or_default().to_owned();
                (field_here, text)
            }
        },
    };
    DefinitionError { file: None, line: line + 1, field, problem }
}

fn list_known(known: &[&str]) -> String {
    format!("; known are {}", known.join(", "))
}

fn field_hint(field: &str) -> String {
    let found = FIELD_HINTS.iter().find(|(name, _)| *name == field);
    found.map(|(_, expected)| format!("; write {expected}")).unwrap_or_default()
}

/// Sets the line of an error that was found after parsing, by its field.
pub(super) fn locate_error_in_text(text: &str, error: DefinitionError) -> DefinitionError {
    match split_front_matter(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        Ok((front, _)) => locate_error(front, error),
        Err(_) => error,
    }
}

/// Sets the line of an error by its field. If the error begins with a quotation, the line that contains it
/// takes precedence.
fn locate_error(front: &str, error: DefinitionError) -> DefinitionError {
    let quoted = error.problem.strip_prefix('`').and_then(|quoted| quoted.split('`').next());
    let numbered = (1..=front.lines().count()).zip(front.lines());
    let mut field_lines = numbered.filter(|(line, _)| field_at(front, *line) == error.field);
    let first = field_lines.next();
    let is_quoted = |text: &str| quoted.is_some_and(|quoted| text.contains(quoted));
    let found = first.into_iter().chain(field_lines).find(|(_, text)| is_quoted(text)).or(first);
    let found = found.map(|(line, _)| line);
    // The prompt begins after the second fence.
    let line = found.map_or(front.lines().count() + 3, |line| line + 1);
    DefinitionError { line, ..error }
}

/// Returns the path of the field that a line belongs to, such as `limits.tokens`. Deeper lines, such as
/// those of a schema, belong to the field above them.
fn field_at(front: &str, line: usize) -> Option<String> {
    let lines: Vec<&str> = front.lines().take(line).collect();
    let mut path: Vec<&str> = Vec::new();
    let mut indent = usize::MAX;
    for text in lines.iter().rev() {
        let Some((key, _)) = text.split_once(':') else { continue };
        let key_indent = key.len() - key.trim_start().len();
        let key = key.trim();
        let is_key =
            !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
        if !is_key || key_indent >= indent {
            continue;
        }
        path.push(key);
        indent = key_indent;
        if key_indent == 0 {
            break;
        }
    }
    path.reverse();
    match path.first()? {
        &"limits" | &"permissions" | &"sandbox" => path.truncate(2),
        _ => path.truncate(1),
    }
    Some(path.join("."))
}
