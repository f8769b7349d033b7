//! Checks for permission rules that can never match. Most are typing errors, and such a deny would
//! protect nothing.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{Definition, DefinitionError, DefinitionSet};
use brigade_agent::permission::{KEEP, PermissionRule, PermissionRules, PermissionSubject};
use brigade_model::refusal::Refusal;
use brigade_model::suggestion::did_you_mean;

use super::mcp_client::{McpServers, check_name};

/// Delegation tools whose calls have no subject that a pattern could match.
const TOOLS_WITHOUT_SUBJECT: [&str; 6] =
    ["list_tasks", "wait_tasks", "send_message", "stop_task", "read_output", "ask_parent"];

/// Tools whose calls can start tasks that outlive their agent.
const KEEPING_TOOLS: [&str; 2] = ["spawn_agent", "run_process"];

/// Refuses a definition with rules or tools that do not exist here.
pub(super) fn check_definition(
    definition: &Definition,
    file: Option<&Path>,
    known: &[Arc<str>],
) -> Result<(), Refusal> {
    match definition_problem(definition, file, known) {
        None => Ok(()),
        Some(error) if file.is_some() => Err(Refusal::invalid(error.to_string())),
        Some(error) => {
            Err(Refusal::invalid(format!("the definition {}: {error}", definition.name)))
        }
    }
}

/// Returns the first problem in the rules or tools of a definition.
pub(super) fn definition_problem(
    definition: &Definition,
    file: Option<&Path>,
    known: &[Arc<str>],
) -> Option<DefinitionError> {
    let tool_problem = || {
        let tools = definition.tools.iter().flatten();
        let rules = tools.filter_map(|tool| tool.parse::<PermissionRule>().ok());
        rules.into_iter().find_map(|rule| Some(("tools".to_owned(), rule_problem(&rule, known)?)))
    };
    let (field, problem) =
        rule_list_problem(&definition.permissions, known).or_else(tool_problem)?;
    let error = DefinitionError { file: None, line: 0, field: Some(field), problem };
    Some(file.map_or(error.clone(), |file| error.with_file(file)))
}

/// Refuses a definition that may delegate to a missing one. The user's own definitions are exempt:
/// they are for every directory, and name definitions that only some directories have.
pub(super) fn check_delegates(
    definitions: &DefinitionSet,
    name: &str,
    directory: Option<&str>,
) -> Result<(), Refusal> {
    let file = definitions.find(name).ok().and_then(|found| found.file());
    let elsewhere = file.is_some_and(|file| directory.is_none_or(|here| !file.starts_with(here)));
    match definitions.unknown_delegate(name).filter(|_| !elsewhere) {
        None => Ok(()),
        Some(error) if error.file.is_some() => Err(Refusal::invalid(error.to_string())),
        Some(error) => Err(Refusal::invalid(format!("the definition {name}: {error}"))),
    }
}

/// Refuses the rules of a spawn if one can never match.
pub(super) fn check_rules(rules: &PermissionRules, known: &[Arc<str>]) -> Result<(), Refusal> {
    if let Some((field, problem)) = rule_list_problem(rules, known) {
        return Err(Refusal::invalid(format!("`{field}`: {problem}")));
    }
    match rules.find_shadowed() {
        None => Ok(()),
        Some(shadowed) => Err(Refusal::invalid(format!(
            "`permissions.{}`: `{}` can never match: `{}` denies all of it",
            shadowed.list, shadowed.rule, shadowed.deny
        ))),
    }
}

/// Refuses rules for tools of an unknown server. The tools of a known server are not checked, since
/// they can change and a definition may be for other machines too.
pub(super) fn check_servers(
    rules: &PermissionRules,
    known: &[Arc<str>],
    servers: &McpServers,
) -> Result<(), Refusal> {
    let problem = rule_lists(rules).find_map(|(list, rule)| {
        let server = unknown_server(rule, known, servers)?;
        let near = did_you_mean(server, servers.names().map(|name| &**name));
        let problem = format!("can never match: there is no MCP server {server:?}{near}");
        Some(format!("`permissions.{list}`: `{rule}` {problem}"))
    });
    problem.map_or(Ok(()), |problem| Err(Refusal::invalid(problem)))
}

/// Returns the server of a rule, if that server is unknown.
fn unknown_server<'a>(
    rule: &'a PermissionRule,
    known: &[Arc<str>],
    servers: &McpServers,
) -> Option<&'a str> {
    let (server, _) = rule.tool().split_once("__")?;
    let is_name = check_name(server).is_ok();
    // A tool of the program itself may have such a name too.
    let is_own =
        |name: &Arc<str>| name.split_once("__").is_some_and(|(prefix, _)| prefix == server);
    (is_name && !servers.has(server) && !known.iter().any(is_own)).then_some(server)
}

fn rule_list_problem(rules: &PermissionRules, known: &[Arc<str>]) -> Option<(String, String)> {
    let problem = |rule: &PermissionRule| match rule.tool() == KEEP {
        true => keep_rule_problem(rule),
        false => rule_problem(rule, known),
    };
    rule_lists(rules).find_map(|(list, rule)| Some((format!("permissions.{list}"), problem(rule)?)))
}

/// Returns the reason why a `keep` rule can never match, if so.
fn keep_rule_problem(rule: &PermissionRule) -> Option<String> {
    let matches =
        |tool| rule.denies(&PermissionSubject { tool: KEEP, text: Some(tool), is_shell: false });
    (!KEEPING_TOOLS.into_iter().any(matches)).then(|| {
        let [one, other] = KEEPING_TOOLS;
        format!("`{rule}` can never match: write `keep`, `keep({one})` or `keep({other})`")
    })
}

fn rule_lists(rules: &PermissionRules) -> impl Iterator<Item = (&'static str, &PermissionRule)> {
    let lists = [
        ("allow", rules.allow.as_deref().unwrap_or_default()),
        ("ask", &rules.ask),
        ("deny", &rules.deny),
    ];
    lists.into_iter().flat_map(|(list, rules)| rules.iter().map(move |rule| (list, rule)))
}

/// Returns the reason why a rule can never match, if that is certain. Tools of MCP servers are not
/// checked.
fn rule_problem(rule: &PermissionRule, known: &[Arc<str>]) -> Option<String> {
    let tool = rule.tool();
    if TOOLS_WITHOUT_SUBJECT.contains(&tool) && !rule.is_whole_tool() {
        return Some(format!(
            "`{rule}` can never match: calls of {tool} have no subject for a pattern; \
             write `{tool}`"
        ));
    }
    let is_ours = !tool.contains(['*', '.', ':']) && !tool.contains("__");
    (is_ours && known.iter().all(|name| **name != *tool)).then(|| {
        let near = did_you_mean(tool, known.iter().map(|name| &**name));
        let names =
            if near.is_empty() { format!("; there are {}", known.join(", ")) } else { near };
        format!("`{rule}` can never match: there is no tool {tool:?}{names}")
    })
}

#[cfg(test)]
mod tests {
    use brigade_mcp::client::McpServerConfig;

    use super::*;

    fn known() -> [Arc<str>; 3] {
        ["run_process", "spawn_agent", "list_tasks"].map(Arc::from)
    }

    fn rules(list: &str, rule: &str) -> PermissionRules {
        serde_json::from_value(serde_json::json!({ list: [rule] })).expect("rules")
    }

    #[test]
    fn a_rule_that_can_never_match_is_refused() {
        for (list, rule, expect) in [
            ("allow", "run_process(cargo *)", None),
            ("deny", "mcp_*", None),
            ("ask", "github__create_issue", None),
            (
                "deny",
                "run_proces",
                Some(
                    "`permissions.deny`: `run_proces` can never match: there is no tool \
                     \"run_proces\"; did you mean `run_process`?",
                ),
            ),
            ("ask", "keep(spawn_agent)", None),
            ("deny", "keep", None),
            (
                "deny",
                "keep(spawn)",
                Some(
                    "`permissions.deny`: `keep(spawn)` can never match: write `keep`, \
                     `keep(spawn_agent)` or `keep(run_process)`",
                ),
            ),
            (
                "ask",
                "list_tasks(x)",
                Some(
                    "`permissions.ask`: `list_tasks(x)` can never match: calls of list_tasks have \
                    no subject for a pattern; write `list_tasks`",
                ),
            ),
        ] {
            let problem =
                check_rules(&rules(list, rule), &known()).err().map(|refusal| refusal.message);
            assert_eq!(problem.as_deref(), expect, "{list} {rule}");
        }
        let shadowed = serde_json::json!({ "ask": ["run_process(rm x)"], "deny": ["run_process"] });
        let shadowed: PermissionRules = serde_json::from_value(shadowed).expect("rules");
        let problem = check_rules(&shadowed, &known()).expect_err("shadowed").message;
        assert!(problem.contains("`run_process` denies all of it"), "{problem}");
    }

    #[test]
    fn a_rule_for_an_unknown_server_is_refused() {
        let server = McpServerConfig::stdio("server", [""; 0]);
        let servers = McpServers::new([("github".to_owned(), server)]).expect("a server");
        let own = ["kitchen__bake".into()];
        for (list, rule, is_wrong) in [
            ("allow", "github__*", false),
            ("ask", "github__push", false),
            ("deny", "kitchen__*", false),
            ("deny", "*__delete", false),
            ("deny", "g*", false),
            ("deny", "githb__delete_*", true),
            ("ask", "gitlab__push(main)", true),
            ("allow", "docs__*", true),
        ] {
            let checked = check_servers(&rules(list, rule), &own, &servers);
            assert_eq!(checked.is_err(), is_wrong, "{list} {rule}");
        }
        let refused =
            check_servers(&rules("deny", "githb__*"), &own, &servers).expect_err("unknown");
        assert_eq!(
            refused.message,
            "`permissions.deny`: `githb__*` can never match: there is no MCP server \"githb\"; did \
             you mean `github`?"
        );
    }

    #[test]
    fn a_problem_of_a_definition_names_file_line_and_field() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("cook.md");
        let text = "---\nname: cook\ndescription: Cooks.\npermissions:\n  ask:\n    - run_process\n    \
                    - bake(bread)\n---\nCook.";
        std::fs::write(&file, text).expect("the file is written");
        let definition = Definition::parse(&file, text).expect("a definition");
        let problem =
            check_definition(&definition, Some(&file), &known()).expect_err("unknown").message;
        let expect = format!("{}:7: `permissions.ask`: `bake(bread)` can never", file.display());
        assert!(problem.starts_with(&expect), "{problem}");
        let listed = Definition::new("cook").prompt("Cook.").tools(["run_process", "bake"]);
        let problem = check_definition(&listed, None, &known()).expect_err("unknown").message;
        let expect = "the definition cook: `tools`: `bake` can never match";
        assert!(problem.starts_with(expect), "{problem}");
    }
}
