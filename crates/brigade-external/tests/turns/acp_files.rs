//! Files of ACP agents, as users write them, and agents of a bare command line.

use brigade_external::acp::AcpAgent;
use brigade_external::adapter::{AccessLevel, SessionIdSource, TurnStart, TurnStartError};
use brigade_external::agent_file::parse_agent_file;
use brigade_external::built_in::{parse_built_in_acp_agents, parse_built_in_agents};
use brigade_external::external_agent::ExternalAgent;
use brigade_external::turn_outcome::ClosingMark;
use brigade_model::work::EnvValue;

use crate::acp_support::new_turn;

const SMALL: &str = r#"
protocol = "acp"
name = "cook"
title = "Cook"
program = "cook"
"#;

#[test]
fn the_built_in_agents_are_valid() {
    let agents = parse_built_in_agents().unwrap();
    let names: Vec<&str> = agents.iter().map(|agent| agent.name()).collect();
    let expected = [
        "claude",
        "codex",
        "gemini",
        "opencode",
        "qwen",
        "claude-acp",
        "codex-acp",
        "gemini-acp",
        "opencode-acp",
        "qwen-acp",
    ];
    assert_eq!(names, expected);
    let commands = [
        vec!["claude-agent-acp"],
        vec!["codex-acp"],
        vec!["gemini", "--acp"],
        vec!["opencode", "acp"],
        vec!["qwen", "--acp"],
    ];
    for (agent, command) in parse_built_in_acp_agents().unwrap().into_iter().zip(commands) {
        let spec = agent.program_spec(&new_turn("hi"), &|_| false).unwrap();
        assert_eq!(spec.command_line, command);
        assert_eq!(agent.program(), command[0]);
        assert_eq!(agent.session_id_source(), SessionIdSource::Reported);
        assert_eq!(agent.closing_mark(), ClosingMark::Event);
        assert_eq!(agent.resumes_sessions(), agent.name() != "gemini-acp");
        assert_eq!(agent.asks_permission(), agent.name() != "codex-acp");
        let has_cost = ["claude-acp", "opencode-acp"].contains(&agent.name());
        assert_eq!(agent.reports_cost(), has_cost);
    }
}

#[test]
fn both_kinds_of_file_describe_a_login_in_the_same_form() {
    let agents = parse_built_in_agents().unwrap();
    let login = |name: &str| agents.iter().find(|agent| agent.name() == name).unwrap().login();
    for name in ["claude", "codex", "gemini", "opencode", "qwen"] {
        let marks = login(name).unwrap();
        assert!(marks.hint.is_some(), "{name}");
        assert_eq!(login(&format!("{name}-acp")), Some(marks));
    }
    let old = format!("{SMALL}\n[credentials]\nfiles = [\"~/.cook/auth.json\"]\n");
    assert!(AcpAgent::parse(&old).unwrap_err().to_string().contains("credentials"));
    let new = old.replace("credentials", "login");
    assert_eq!(AcpAgent::parse(&new).unwrap().login().unwrap().files, ["~/.cook/auth.json"]);
}

#[test]
fn a_file_is_of_either_kind() {
    assert_eq!(parse_agent_file(SMALL).unwrap().title(), "Cook");
    let adapter = include_str!("../../adapters/gemini.toml");
    assert_eq!(parse_agent_file(adapter).unwrap().name(), "gemini");
    assert_eq!(parse_agent_file("name = ").unwrap_err().field, ".");
    assert_eq!(parse_agent_file("protocol = 'smoke'").unwrap_err().field, "protocol");
}

#[test]
fn variables_are_set_and_passed_on() {
    let file = format!("{SMALL}[environment]\nset = {{ A = '1' }}\npass = ['B', 'C']\n");
    let agent = AcpAgent::parse(&file).unwrap();
    let spec = agent.program_spec(&new_turn("hi"), &|name| name == "C").unwrap();
    let names: Vec<&str> = spec.env.keys().map(String::as_str).collect();
    assert_eq!(names, ["A", "C"]);
    assert_eq!(spec.env["A"], EnvValue::from("1"));
    assert_eq!(spec.env["C"], EnvValue::FromEnv("C".into()));
}

#[test]
fn a_program_that_asks_for_nothing_has_full_access() {
    let file = format!("{SMALL}asks_permission = false\n");
    let agent = AcpAgent::parse(&file).unwrap();
    assert!(agent.program_spec(&new_turn("hi"), &|_| true).is_ok());
    for access in [AccessLevel::Read, AccessLevel::Edit] {
        let turn = TurnStart { access, ..new_turn("hi") };
        let error = agent.program_spec(&turn, &|_| true).unwrap_err();
        assert!(matches!(error, TurnStartError::NoSuchAccess { .. }), "{error}");
    }
}

#[test]
fn a_fault_names_its_field() {
    let cases = [
        ("name = \"cook\"", "name = \"Cook!\"", "name"),
        ("title = \"Cook\"", "title = \"\"", "title"),
        ("program = \"cook\"", "program = \" \"", "program"),
        ("protocol = \"acp\"", "protocol = \"mcp\"", "protocol"),
        ("title = \"Cook\"", "title = \"Cook\"\nresume = \"maybe\"", "resume"),
        ("title = \"Cook\"", "title = \"Cook\"\narguments = [3]", "arguments[0]"),
        ("title = \"Cook\"", "title = \"Cook\"\narguments = [\"\\u0000\"]", "arguments"),
        ("title = \"Cook\"", "title = \"Cook\"\ncolour = \"red\"", "colour"),
        ("title = \"Cook\"", "title = \"Cook\"\nenvironment.pass = [\"A=B\"]", "environment"),
    ];
    for (before, after, field) in cases {
        let fault = AcpAgent::parse(&SMALL.replacen(before, after, 1)).unwrap_err();
        assert_eq!(fault.field, field, "{after}: {fault}");
        assert!(!fault.problem.is_empty());
    }
}

#[test]
fn a_command_line_is_an_agent() {
    let agent = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        AcpAgent::from_command_line(&words)
    };
    let cook = agent(&["/opt/bin/Cook Agent.js", "--acp"]).unwrap();
    assert_eq!(cook.name(), "cook-agent");
    assert_eq!(cook.title(), "Cook Agent.js");
    assert!(cook.resumes_sessions());
    let spec = cook.program_spec(&new_turn("hi"), &|_| true).unwrap();
    assert_eq!(spec.command_line, ["/opt/bin/Cook Agent.js", "--acp"]);
    assert_eq!(agent(&["köche"]).unwrap().name(), "k-che");
    assert_eq!(agent(&[&"x".repeat(99)]).unwrap().name().len(), 32);
    for words in [&[][..], &[""], &["/"], &["cook", "a\0b"]] {
        assert_eq!(agent(words).unwrap_err().field, "acp");
    }
}
