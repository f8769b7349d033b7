//! The field `runs` of a definition's file: the loop that runs the agent.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::is_valid_name;

/// The name of Brigade's own loop.
const OWN_LOOP: &str = "brigade";

/// The name of the backend that starts ACP agents from a command line.
pub(crate) const ACP_BACKEND: &str = "acp";

/// The name of the backend that delegates to remote agents over A2A.
pub(crate) const A2A_BACKEND: &str = "a2a";

const COMMAND_WORDS_MAX: usize = 100;

/// The loop that a definition's file chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum RunsField {
    #[default]
    OwnLoop,
    /// A registered agent program, such as `claude`.
    Program(String),
    /// An ACP agent with this command line.
    AcpCommand(Vec<String>),
    /// A remote agent that speaks A2A.
    Remote(RemoteAgent),
}

/// The address of a remote agent, and the environment variable with its token.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteAgent {
    url: String,
    token: Option<String>,
}

/// The backend of a definition, and the command line that it starts. For a remote agent, these are
/// its URL and the variable with its token.
#[derive(Debug, Default)]
pub(super) struct ChosenBackend {
    pub(super) name: Option<String>,
    pub(super) command: Vec<String>,
}

impl RunsField {
    pub(super) fn into_backend(self) -> ChosenBackend {
        match self {
            Self::OwnLoop => ChosenBackend::default(),
            Self::Program(name) => ChosenBackend { name: Some(name), command: Vec::new() },
            Self::AcpCommand(command) => {
                ChosenBackend { name: Some(ACP_BACKEND.to_owned()), command }
            }
            Self::Remote(RemoteAgent { url, token }) => {
                let command = [url].into_iter().chain(token).collect();
                ChosenBackend { name: Some(A2A_BACKEND.to_owned()), command }
            }
        }
    }
}

impl<'de> Deserialize<'de> for RunsField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RunsVisitor)
    }
}

/// The forms of the field with nested fields.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum NestedRuns {
    Acp(Vec<String>),
    A2a(RemoteForm),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RemoteForm {
    Url(String),
    Fields(RemoteAgent),
}

struct RunsVisitor;

impl<'de> Visitor<'de> for RunsVisitor {
    type Value = RunsField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the name of an agent program, such as `claude`, or `{ acp: [command, ..] }`, or \
             `{ a2a: URL }`",
        )
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<RunsField, E> {
        match name {
            OWN_LOOP => Ok(RunsField::OwnLoop),
            ACP_BACKEND => Err(E::custom("add the command line: `{ acp: [command, ..] }`")),
            A2A_BACKEND => Err(E::custom("add the URL: `{ a2a: URL }`")),
            name if is_valid_name(name) => Ok(RunsField::Program(name.to_owned())),
            name => Err(E::custom(format!(
                "{name:?} is no agent program; write a name such as `claude`, or `brigade`"
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RunsField, A::Error> {
        match NestedRuns::deserialize(MapAccessDeserializer::new(map))? {
            NestedRuns::Acp(command) => match find_command_problem(&command) {
                None => Ok(RunsField::AcpCommand(command)),
                Some(problem) => Err(de::Error::custom(problem)),
            },
            NestedRuns::A2a(form) => {
                let remote = match form {
                    RemoteForm::Url(url) => RemoteAgent { url, token: None },
                    RemoteForm::Fields(remote) => remote,
                };
                match remote.url.trim().is_empty() {
                    true => Err(de::Error::custom("`a2a` needs the URL of an agent")),
                    false => Ok(RunsField::Remote(remote)),
                }
            }
        }
    }
}

fn find_command_problem(command: &[String]) -> Option<String> {
    let is_missing = command.first().is_none_or(|program| program.trim().is_empty());
    if is_missing {
        return Some("`acp` is a command line: begin it with a program".to_owned());
    }
    if command.len() > COMMAND_WORDS_MAX {
        return Some(format!("`acp` has more than {COMMAND_WORDS_MAX} words"));
    }
    let has_nul = command.iter().any(|word| word.contains('\0'));
    has_nul.then(|| "`acp` has a NUL character; remove it".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::definition::Definition;

    fn parse(runs: &str) -> Result<Definition, String> {
        let text = format!("---\nname: a\ndescription: b\n{runs}\n---\nDo it.");
        Definition::parse("a.md", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_loop_is_brigades_own_or_a_program() {
        for (runs, backend, command) in [
            ("", None, vec![]),
            ("runs: brigade", None, vec![]),
            ("runs: claude", Some("claude"), vec![]),
            ("runs: claude-acp", Some("claude-acp"), vec![]),
            ("runs: { acp: [goose, acp] }", Some("acp"), vec!["goose", "acp"]),
            ("runs:\n  acp: [/opt/kimi, --acp]", Some("acp"), vec!["/opt/kimi", "--acp"]),
            ("runs: { a2a: 'https://x.org/cook' }", Some("a2a"), vec!["https://x.org/cook"]),
            (
                "runs:\n  a2a: { url: 'https://x.org', token: COOK_TOKEN }",
                Some("a2a"),
                vec!["https://x.org", "COOK_TOKEN"],
            ),
        ] {
            let definition = parse(runs).unwrap();
            assert_eq!(definition.backend.as_deref(), backend, "{runs}");
            assert_eq!(definition.backend_command, command, "{runs}");
        }
    }

    #[test]
    fn a_wrong_loop_is_refused_with_its_line() {
        for (runs, expect) in [
            ("runs: ''", "a.md:4: `runs`: \"\" is no agent program; write a name such as `claude`"),
            ("runs: ./claude", "a.md:4: `runs`: \"./claude\" is no agent program"),
            ("runs: acp", "a.md:4: `runs`: add the command line: `{ acp: [command, ..] }`"),
            (
                "runs: { acp: [] }",
                "a.md:4: `runs`: `acp` is a command line: begin it with a program",
            ),
            ("runs: { acp: [' '] }", "a.md:4: `runs`: `acp` is a command line"),
            ("runs: { acp: [\"a\\0\"] }", "a.md:4: `runs`: `acp` has a NUL character; remove it"),
            ("runs: a2a", "a.md:4: `runs`: add the URL: `{ a2a: URL }`"),
            ("runs: { a2a: '' }", "a.md:4: `runs`: `a2a` needs the URL of an agent"),
            ("runs: { a2a: { url: 'https://x.org', key: x } }", "a.md:4: `runs`: "),
            ("runs: 3", "a.md:4: `runs`: wrong value; write the name of an agent program"),
            ("runs: { acp: goose }", "a.md:4: `runs`: wrong value; write the name of an agent"),
            ("runs: { mcp: [goose] }", "a.md:4: `runs`: "),
        ] {
            let problem = parse(runs).unwrap_err();
            assert!(problem.starts_with(expect), "{runs}\n{problem}\n{expect}");
        }
    }

    #[test]
    fn only_a_program_needs_no_instructions() {
        let text = |runs: &str| format!("---\nname: a\ndescription: b\n{runs}\n---\n");
        assert!(Definition::parse("a.md", &text("runs: claude")).is_ok());
        assert!(Definition::parse("a.md", &text("runs: brigade")).is_err());
    }
}
