//! Rules that can never match: most are typing errors, and a deny among them would protect nothing.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{Definition, DefinitionError, DefinitionSet};
use brigade_mcp::client::{McpServers, check_name};
use brigade_agent::permission::{KEEP, PermissionRule, PermissionRules, PermissionSubject};
use brigade_llm::suggestion::did_you_mean;
use brigade_model::refusal::Refusal;

/// Tools of our own whose calls have nothing that a pattern could be held against.
const TOOLS_WITHOUT_SUBJECT: [&str; 6] =
    ["list_tasks", "wait_tasks", "send_message", "stop_task", "read_output", "ask_parent"];

/// Tools whose calls can start what outlives their agent.
const KEEPING_TOOLS: [&str; 2] = ["spawn_agent", "run_process"];

/// Refuses a definition with rules or tools that mean nothing here.
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

/// What is wrong with the rules or tools of a definition.
pub(super) fn definition_problem(
    definition: &Definition,
    file: Option<&Path>,
    known: &[Arc<str>],
) -> Option<DefinitionError> {
    let wrong_tool = || {
        let tools = definition.tools.iter().flatten();
        let rules = tools.filter_map(|tool| tool.parse::<PermissionRule>().ok());
        rules.into_iter().find_map(|rule| Some(("tools".to_owned(), rule_problem(&rule, known)?)))
    };
    let (field, problem) = rule_list_problem(&definition.permissions, known).or_else(wrong_tool)?;
    let error = DefinitionError { file: None, line: 0, field: Some(field), problem };
    Some(file.map_or(error.clone(), |file| error.with_file(file)))
}

/// Refuses a definition that may delegate to one that is not there. The user's own definitions are for
/// every directory, and name what only some of them have.
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

/// The same for the rules that somebody starts an agent with.
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

/// Refuses rules for tools of a server that is not there. Which tools a server has is its own affair, and
/// a definition may be for other machines too.
pub(super) fn check_servers(
    rules: &PermissionRules,
    known: &[Arc<str>],
    servers: &McpServers,
) -> Result<(), Refusal> {
    let wrong = rule_lists(rules).find_map(|(list, rule)| {
        let server = unknown_server(rule, known, servers)?;
        let near = did_you_mean(server, servers.names().map(|name| &**name));
        let problem = format!("can never match: there is no MCP server {server:?}{near}");
        Some(format!("`permissions.{list}`: `{rule}` {problem}"))
    });
    wrong.map_or(Ok(()), |problem| Err(Refusal::invalid(problem)))
}

/// The server that a rule is for, if it is for one that is not there.
fn unknown_server<'a>(
    rule: &'a PermissionRule,
    known: &[Arc<str>],
    servers: &McpServers,
) -> Option<&'a str> {
    let (server, _) = rule.tool().split_once("__")?;
    let is_name = check_name(server).is_ok();
    // A tool of the program itself may be called so too.
    let is_there =
        |name: &Arc<str>| name.split_once("__").is_some_and(|(begin, _)| begin == server);
    (is_name && !servers.has(server) && !known.iter().any(is_there)).then_some(server)
}

fn rule_list_problem(rules: &PermissionRules, known: &[Arc<str>]) -> Option<(String, String)> {
    let problem = |rule: &PermissionRule| match rule.tool() == KEEP {
        true => keep_rule_problem(rule),
        false => rule_problem(rule, known),
    };
    rule_lists(rules).find_map(|(list, rule)| Some((format!("permissions.{list}"), problem(rule)?)))
}

/// Why a rule on what may outlive an agent can never match.
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

/// Why a rule can never match, if that is sure. Tools of other servers come and go, and have names of
/// their own kind.
fn rule_problem(rule: &PermissionRule, known: &[Arc<str>]) -> Option<String> {
    let tool = rule.tool();
    if TOOLS_WITHOUT_SUBJECT.contains(&tool) && !rule.is_whole_tool() {
        return Some(format!(
            "`{rule}` can never match: calls of {tool} have nothing that a pattern is held against; \
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
    fn what_can_never_match_is_told() {
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
                     nothing that a pattern is held against; write `list_tasks`",
                ),
            ),
        ] {
            let told =
                check_rules(&rules(list, rule), &known()).err().map(|refusal| refusal.message);
            assert_eq!(told.as_deref(), expect, "{list} {rule}");
        }
        let shadowed = serde_json::json!({ "ask": ["run_process(rm x)"], "deny": ["run_process"] });
        let shadowed: PermissionRules = serde_json::from_value(shadowed).expect("rules");
        let told = check_rules(&shadowed, &known()).expect_err("shadowed").message;
        assert!(told.contains("`run_process` denies all of it"), "{told}");
    }

    #[test]
    fn a_rule_for_a_server_that_is_not_there_is_told() {
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
            let told = check_servers(&rules(list, rule), &own, &servers);
            assert_eq!(told.is_err(), is_wrong, "{list} {rule}");
        }
        let told = check_servers(&rules("deny", "githb__*"), &own, &servers).expect_err("unknown");
        assert_eq!(
            told.message,
            "`permissions.deny`: `githb__*` can never match: there is no MCP server \"githb\"; did \
             you mean `github`?"
        );
    }

    #[test]
    fn a_definition_is_told_with_its_file_line_and_field() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cook.md");
        let text = "---\nname: cook\ndescription: Cooks.\npermissions:\n  ask:\n    - run_process\n    \
                    - bake(bread)\n---\nCook.";
        std::fs::write(&file, text).expect("it can be written");
        let definition = Definition::parse(&file, text).expect("a definition");
        let told =
            check_definition(&definition, Some(&file), &known()).expect_err("unknown").message;
        let expect = format!("{}:7: `permissions.ask`: `bake(bread)` can never", file.display());
        assert!(told.starts_with(&expect), "{told}");
        let listed = Definition::new("cook").prompt("Cook.").tools(["run_process", "bake"]);
        let told = check_definition(&listed, None, &known()).expect_err("unknown").message;
        assert!(told.starts_with("the definition cook: `tools`: `bake` can never match"), "{told}");
    }
}
