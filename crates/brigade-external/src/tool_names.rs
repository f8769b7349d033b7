//! The tools of another vendor's agent in the terms of Brigade's permission rules.
//!
//! A rule such as `run_process(git *)` then holds for the agents of all vendors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::path_list::PathList;
use crate::turn_events::{RequestedCall, SubjectKind};

/// The table `tools` of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolNames {
    /// The prefix of the names that Brigade's own tools have in this agent.
    brigade_prefix: Option<String>,
    /// The agent's tools by their names.
    names: BTreeMap<String, KnownTool>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownTool {
    /// The tool of Brigade that does the same.
    same_as: String,
    /// The path of the file or the command in the arguments.
    subject: Option<PathList>,
    #[serde(default)]
    kind: SubjectKind,
}

impl ToolNames {
    /// Returns the call in Brigade's terms. An unknown tool keeps its name.
    pub(crate) fn translate(&self, tool: &str, arguments: &Value) -> RequestedCall {
        let unknown =
            || RequestedCall { tool: tool.to_owned(), subject: None, kind: SubjectKind::Text };
        self.translate_known(tool, arguments).unwrap_or_else(unknown)
    }

    /// Returns the call in Brigade's terms, if the table has its tool.
    pub(crate) fn translate_known(&self, tool: &str, arguments: &Value) -> Option<RequestedCall> {
        if let Some(prefix) = &self.brigade_prefix
            && let Some(own) = tool.strip_prefix(prefix.as_str())
        {
            return Some(own_tool_call(own, arguments));
        }
        let known = self.names.get(tool)?;
        Some(RequestedCall {
            tool: known.same_as.clone(),
            subject: known.subject.as_ref().and_then(|paths| paths.find_text(arguments)),
            kind: known.kind,
        })
    }
}

/// Returns a call of one of Brigade's tools, with the subject that its rules are about.
fn own_tool_call(tool: &str, arguments: &Value) -> RequestedCall {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
    let (subject, kind) = match tool {
        "run_process" => {
            // Variables and a directory change a command line as much as its words do.
            let others = ["env", "cwd"].map(|name| arguments.get(name)).into_iter().flatten();
            let words = others.map(Value::to_string).chain(text("command"));
            (Some(words.collect::<Vec<_>>().join(" ")), SubjectKind::Shell)
        }
        "spawn_agent" => (text("agent"), SubjectKind::Text),
        _ => (None, SubjectKind::Text),
    };
    RequestedCall { tool: tool.to_owned(), subject, kind }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_translated_for_rules() {
        let names: ToolNames = toml::from_str(
            "brigade_prefix = 'mcp__brigade__'\n\
             [names]\n\
             Bash = { same_as = 'run_process', subject = 'command', kind = 'shell' }\n\
             Write = { same_as = 'write_file', subject = 'path', kind = 'file' }\n",
        )
        .unwrap();
        let call = |tool: &str, subject: Option<&str>, kind| RequestedCall {
            tool: tool.into(),
            subject: subject.map(Into::into),
            kind,
        };
        let cases = [
            ("Bash", json!({"command": "ls"}), call("run_process", Some("ls"), SubjectKind::Shell)),
            ("Write", json!({"path": "/a"}), call("write_file", Some("/a"), SubjectKind::File)),
            ("Write", json!({}), call("write_file", None, SubjectKind::File)),
            ("Fetch", json!({"url": "x"}), call("Fetch", None, SubjectKind::Text)),
            (
                "mcp__brigade__spawn_agent",
                json!({"agent": "cook"}),
                call("spawn_agent", Some("cook"), SubjectKind::Text),
            ),
            (
                "mcp__brigade__run_process",
                json!({"command": "git status"}),
                call("run_process", Some("git status"), SubjectKind::Shell),
            ),
            (
                "mcp__brigade__run_process",
                json!({"command": "git status", "env": {"PATH": "."}}),
                call("run_process", Some("{\"PATH\":\".\"} git status"), SubjectKind::Shell),
            ),
        ];
        for (tool, arguments, expected) in cases {
            assert_eq!(names.translate(tool, &arguments), expected);
        }
    }
}
