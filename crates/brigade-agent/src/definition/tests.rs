//! Definitions from files and from Rust, and the errors of invalid ones.

use std::fs;
use std::path::Path;

use brigade_model::ids::Millis;
use brigade_model::limits::Money;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::stall::StallPolicy;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::permission::{self, PermissionVerdict, Permissions};

const REVIEWER: &str = r#"---
name: reviewer
description: Reads a change and says what is wrong with it.
model: claude-sonnet-5-5
tools: [read_file, run_process]
permissions:
  allow:
    - read_file
    - run_process(cargo *)
  ask: ["run_process(cargo update*)"]
  deny: ["run_process(cargo publish*)"]
limits:
  steps: 50
  tokens: 200000
  money: 2.50
  time: 10m
  depth: 1
  width: 4
  total: 20
  running: 2
may_delegate_to: [researcher]
config_schema:
  type: object
  properties:
    strict: {type: boolean}
result_schema: {type: array, items: {type: string}}
effort: high
temperature: 0.2
max_output: 8000
---

You are a careful reviewer.

---
Say what is wrong.
"#;

fn reviewer() -> Definition {
    let read = |rules: &[&str]| rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Definition::new("reviewer")
        .description("Reads a change and says what is wrong with it.")
        .prompt("You are a careful reviewer.\n\n---\nSay what is wrong.")
        .model("claude-sonnet-5-5")
        .tools(["read_file", "run_process"])
        .permissions(PermissionRules {
            allow: Some(read(&["read_file", "run_process(cargo *)"])),
            ask: read(&["run_process(cargo update*)"]),
            deny: read(&["run_process(cargo publish*)"]),
        })
        .steps(50)
        .limits(Limits {
            tokens: Some(200_000),
            money: Some(Money(2_500_000)),
            time: Some(Millis(600_000)),
            depth: Some(1),
            width: Some(4),
            total: Some(20),
            running: Some(2),
            ..Limits::default()
        })
        .delegates_to(["researcher"])
        .config_schema(json!({"type": "object", "properties": {"strict": {"type": "boolean"}}}))
        .result_schema(json!({"type": "array", "items": {"type": "string"}}))
        .effort(ReasoningEffort::High)
        .temperature(0.2)
        .max_output(8000)
}

#[test]
fn a_file_and_rust_make_the_same_definition() {
    assert_eq!(Definition::parse("reviewer.md", REVIEWER).unwrap(), reviewer());
    assert_eq!(reviewer().check(), Ok(()));
    let windows = REVIEWER.replace('\n', "\r\n");
    let parsed = Definition::parse("reviewer.md", &windows).unwrap();
    assert_eq!(parsed.limits, reviewer().limits);
}

#[test]
fn a_definition_survives_being_stored() {
    for definition in [reviewer(), Definition::new("small").prompt("Do it.")] {
        let stored = serde_json::to_string(&definition).unwrap();
        assert_eq!(serde_json::from_str::<Definition>(&stored).unwrap(), definition);
    }
    let newer = r#"{"name": "a", "prompt": "b", "of_a_later_version": 1}"#;
    assert!(serde_json::from_str::<Definition>(newer).is_ok());
}

#[test]
fn an_absent_field_comes_from_the_parent() {
    let text = "---\nname: a\ndescription: b\n---\nDo it.";
    let definition = Definition::parse("a.md", text).unwrap();
    assert_eq!(definition, Definition::new("a").description("b").prompt("Do it."));
    assert!(definition.permissions.is_empty());
    assert!(definition.may_delegate_to("anyone"));
    assert!(!reviewer().may_delegate_to("anyone"));
}

/// Returns the error for these fields, which begin in line 4 of the file.
fn problem(fields: &str) -> String {
    let text = format!("---\nname: a\ndescription: b\n{fields}\n---\nDo it.");
    Definition::parse("a.md", &text).expect_err(fields).to_string()
}

#[test]
fn errors_name_file_line_and_field() {
    for (fields, expect) in [
        ("modle: x", "a.md:4: `modle`: unknown; did you mean `model`?"),
        ("limits:\n  token: 5", "a.md:5: `limits.token`: unknown; did you mean `tokens`?"),
        (
            "limits:\n  tokens: many",
            "a.md:5: `limits.tokens`: \"many\" is not a number of tokens, such as 500000, 500k or 1.5M",
        ),
        (
            "limits:\n  steps: 1\n  time: 10x",
            "a.md:6: `limits.time`: \"10x\" is not a duration: the units are ms, s, m, h and d",
        ),
        ("limits:\n  money: -1", "a.md:5: `limits.money`: write dollars, such as 2.50"),
        ("limits:\n  steps: 0", "a.md:5: `limits.steps`: it must be at least 1"),
        (
            "tools: read_file, write_file",
            "a.md:4: `tools`: wrong value; write a list of tools, such as \
             [read_file, run_process]",
        ),
        ("effort: hihg", "a.md:4: `effort`: `hihg` is not known here; did you mean `high`?"),
        ("temperature: 3", "a.md:4: `temperature`: it must be from 0 to 2"),
        ("temperature: .nan", "a.md:4: `temperature`: it must be from 0 to 2"),
        ("name: c", "a.md:4: `name`: it is defined twice"),
        (
            "permissions:\n  allow: [\"a(b\"]",
            "a.md:5: `permissions.allow`: `a(b` is not a rule: its parenthesis is not closed; write \
             `tool` or `tool(pattern)`, such as `run_process(cargo *)`",
        ),
        ("permissions:\n  asks: [a]", "a.md:5: `permissions.asks`: unknown; did you mean `ask`?"),
        (
            "permissions:\n  ask: a",
            "a.md:5: `permissions.ask`: wrong value; write a list of rules, such as \
             [\"run_process(cargo publish*)\"]",
        ),
        (
            "permissions:\n  ask:\n    - read_file\n    - run_process(rm x)\n  deny: [run_process]",
            "a.md:7: `permissions.ask`: `run_process(rm x)` can never match: `run_process` denies \
             all of it",
        ),
        (
            "permissions:\n  allow: [\"a(x/*)\"]\n  deny: [\"a(x/**)\"]",
            "a.md:5: `permissions.allow`: `a(x/*)` can never match: `a(x/**)` denies all of it",
        ),
        (
            "max_output: 5\nresult_schema:\n  type: strnig",
            "a.md:5: `result_schema`: no usable JSON schema: ",
        ),
        ("model: [x", "a.md:"),
    ] {
        let problem = problem(fields);
        assert!(problem.starts_with(expect), "{fields}\n{problem}\n{expect}");
    }
}

#[test]
fn a_field_without_a_value_is_refused_or_empty() {
    for fields in [
        "tools:",
        "permissions:\n  allow:",
        "limits:\n  tokens:",
        "limits:\n  time: ~",
        "may_delegate_to:",
    ] {
        let text = format!("---\nname: a\ndescription: b\n{fields}\n---\nDo it.");
        match Definition::parse("a.md", &text) {
            Err(_) => (),
            Ok(read) => {
                let nothing = Some(Vec::new());
                let closed = read.tools == nothing
                    || read.may_delegate_to == nothing
                    || read.permissions.allow == Some(Vec::new());
                assert!(closed, "{fields}: {read:?}");
            }
        }
    }
}

#[test]
fn errors_of_the_whole_file_name_the_line() {
    let begin = "a definition begins with a line `---`, its fields, and `---` again";
    for (text, expect) in [
        ("", format!("a.md:1: {begin}")),
        ("You are", format!("a.md:1: {begin}")),
        (
            "---\nname: a",
            "a.md:1: the fields that begin here do not end: a second line `---` is missing".into(),
        ),
        ("---\n---\nDo it.", "a.md:2: there are no fields; `name` is the first".into()),
        (
            "---\nname: a\n---\nDo it.",
            "a.md:2: `description`: missing; write a sentence on the agent's purpose".into(),
        ),
        (
            "---\nname: a\ndescription: b\n---\n\n",
            "a.md:5: `prompt`: it is empty; write the agent's instructions".into(),
        ),
        (
            "---\nname: a b\ndescription: b\n---\nDo it.",
            "a.md:2: `name`: \"a b\" is no name: use a letter, then letters, digits, `-`, `_` or \
             `.`, at most 64 in all"
                .into(),
        ),
    ] {
        let problem = Definition::parse("a.md", text).expect_err(text).to_string();
        assert_eq!(problem, expect);
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join(name), text).unwrap();
}

fn named(name: &str, prompt: &str) -> String {
    format!("---\nname: {name}\ndescription: x\n---\n{prompt}")
}

#[test]
fn a_name_of_two_origins_is_ambiguous_and_a_broken_file_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    let folders = DefinitionSet::directories(&work, Some(&root.path().join("conf")));
    let [workspace, user] = [&folders[0].path, &folders[1].path];
    assert_eq!(*workspace, root.path().join("work/.brigade/agents"));
    assert_eq!(*user, root.path().join("conf/brigade/agents"));
    write(workspace, "both.md", &named("both", "of the workspace"));
    write(workspace, "broken.md", "---\nnmae: x\n---\n");
    write(workspace, "again.md", &named("both", "twice"));
    write(workspace, "notes.txt", "not a definition");
    write(workspace, "large.md", &named("large", &"x".repeat(1024 * 1024)));
    write(workspace, "theirs.md", &named("theirs", "of the workspace"));
    fs::write(workspace.join("binary.md"), [0xff, 0xfe]).unwrap();
    fs::create_dir(workspace.join("directory.md")).unwrap();
    write(user, "both.md", &named("both", "of the user"));
    write(user, "own.md", &named("own", "of the user"));

    let mut definitions = DefinitionSet::load(&folders);
    let names: Vec<_> = definitions.by_name.keys().map(String::as_str).collect();
    assert_eq!(names, ["own", "theirs", "user:both", "workspace:both"]);
    let prompt = |name: &str| definitions.find(name).unwrap().definition.prompt.clone();
    assert_eq!(prompt("workspace:both"), "twice", "again.md is first by name");
    assert_eq!(prompt("user:both"), "of the user");
    assert_eq!(prompt("user:own"), prompt("own"));
    assert_eq!(prompt("workspace:theirs"), prompt("theirs"));
    for wrong in ["workspace:own", "user:theirs", "program:own"] {
        assert!(definitions.find(wrong).is_err(), "{wrong}");
    }
    let error = definitions.find("both").unwrap_err().to_string();
    assert!(error.contains("`user:both`") && error.contains("`workspace:both`"), "{error}");
    assert!(error.contains(workspace.join("again.md").to_str().unwrap()), "{error}");
    // A default does not decide between two files; a definition that was added does.
    definitions.add_default(Definition::new("both").prompt("built in"));
    assert!(definitions.find("both").is_err());
    definitions.add(Definition::new("both").prompt("built in")).unwrap();
    assert_eq!(definitions.find("both").unwrap().definition.prompt, "built in");
    assert_eq!(definitions.find("user:both").unwrap().definition.prompt, "of the user");
    let problems: Vec<String> =
        definitions.problems.iter().map(|problem| problem.problem.clone()).collect();
    assert_eq!(problems.len(), 5, "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("did you mean `name`")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("is defined in")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("larger than")), "{problems:?}");
}

#[test]
fn a_loaded_definition_has_the_digest_of_its_text() {
    let root = tempfile::tempdir().unwrap();
    let folder = DefinitionDir::of_workspace(root.path());
    let text = named("cook", "Cook.");
    write(&folder.path, "cook.md", &text);
    let definitions = DefinitionSet::load(std::slice::from_ref(&folder));
    let found = definitions.find("cook").unwrap();
    assert_eq!(found.origin, DefinitionOrigin::Workspace);
    let source = found.source.clone().unwrap();
    assert_eq!(source.digest, DefinitionDigest::of(text.as_bytes()));
    let shown = DefinitionSet::read_texts(&folder);
    assert_eq!(shown, [DefinitionText { name: "cook".to_owned(), source, text }]);
}

#[test]
fn a_full_directory_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    let folders = DefinitionSet::directories(root.path(), Some(&root.path().join("conf")));
    for number in 0..1_001 {
        write(&folders[0].path, &format!("{number:04}.md"), &named(&format!("a{number}"), "x"));
    }
    write(&folders[1].path, "own.md", &named("own", "of the user"));
    let definitions = DefinitionSet::load(&folders);
    assert!(definitions.find("own").is_ok());
    assert_eq!(definitions.by_name.len(), 1_001);
    assert_eq!(definitions.problems.len(), 1);
    for number in 0..5 {
        let text = named(&format!("b{number}"), &"x".repeat(600_000));
        write(&folders[0].path, &format!("00-{number}.md"), &text);
    }
    let definitions = DefinitionSet::load(&folders);
    assert!(definitions.find("own").is_ok() && definitions.find("b2").is_ok());
    assert!(definitions.find("b3").is_err(), "the bytes of a directory are limited too");
}

#[cfg(unix)]
#[test]
fn a_directory_that_is_a_link_out_of_the_workspace_is_not_read() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    write(&root.path().join("notes"), "secret.md", &named("secret", "not theirs to show"));
    fs::create_dir_all(work.join(".brigade")).unwrap();
    symlink(root.path().join("notes"), work.join(".brigade/agents")).unwrap();
    let definitions = DefinitionSet::load(&DefinitionSet::directories(&work, None));
    assert!(definitions.by_name.is_empty());
    assert!(definitions.problems[0].to_string().contains("leads out"));
}

#[test]
fn a_missing_directory_is_empty() {
    let definitions = DefinitionSet::load(&[DefinitionDir::user("/nowhere/at/all")]);
    assert!(definitions.by_name.is_empty() && definitions.problems.is_empty());
    let error = definitions.find("x").unwrap_err();
    assert_eq!(error.to_string(), "there is no agent definition \"x\"; there are none");
}

#[test]
fn the_error_for_an_unknown_definition_suggests_the_nearest() {
    let mut definitions = DefinitionSet::default();
    definitions.add(reviewer()).unwrap();
    let error = |name| definitions.find(name).unwrap_err().to_string();
    let expect = "there is no agent definition \"revewer\"; did you mean `reviewer`?";
    assert_eq!(error("revewer"), expect);
    assert_eq!(error("cook"), "there is no agent definition \"cook\"; there are reviewer");
    assert!(definitions.add(Definition::new("no prompt")).is_err());
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_directory_is_not_followed() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("agents");
    write(root.path(), "secret.md", &named("secret", "not theirs to show"));
    write(&directory, "inside.md", &named("inside", "x"));
    symlink(root.path().join("secret.md"), directory.join("link.md")).unwrap();
    symlink(directory.join("nothing"), directory.join("dangling.md")).unwrap();
    let definitions = DefinitionSet::load(&[DefinitionDir::user(directory)]);
    assert_eq!(definitions.by_name.keys().collect::<Vec<_>>(), ["inside"]);
    assert_eq!(definitions.problems.len(), 2);
}

#[test]
fn the_example_in_the_guide_is_a_definition() {
    let docs = include_str!("../../../../docs/agents.md");
    let example = docs.split("```markdown\n").nth(1).unwrap().split("```").next().unwrap();
    let definition = Definition::parse("docs/agents.md", example).unwrap();
    assert_eq!(definition.name, "reviewer");
}

/// Checks a call as the guide writes it. The argument of `run_process` is a command line.
fn verdict(rules: &PermissionRules, call: &str) -> &'static str {
    let (tool, text) = match call.split_once('(') {
        Some((tool, text)) => (tool, text.strip_suffix(')')),
        None => (call, None),
    };
    let subject = permission::PermissionSubject { tool, text, is_shell: tool == "run_process" };
    match Permissions::of("the example", rules.clone()).check(&subject) {
        PermissionVerdict::Allowed => "allowed",
        PermissionVerdict::Ask { .. } => "asked",
        PermissionVerdict::Refused(_) => "denied",
    }
}

#[test]
fn the_permissions_in_the_guide_have_the_stated_verdicts() {
    let docs = include_str!("../../../../docs/permissions.md");
    let example = docs.split("```markdown\n").nth(1).unwrap().split("```").next().unwrap();
    let definition = Definition::parse("docs/permissions.md", example).unwrap();
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut count = 0;
    for (call, expect) in rows {
        assert_eq!(verdict(&definition.permissions, call), expect.trim_end_matches(" |"), "{call}");
        count += 1;
    }
    assert_eq!(count, 19);
}

#[test]
fn the_limits_in_the_guide_are_parsed_and_listed() {
    let docs = include_str!("../../../../docs/budgets.md");
    let example = docs.split("```markdown\n").nth(1).unwrap().split("```").next().unwrap();
    let definition = Definition::parse("docs/budgets.md", example).unwrap();
    let limits = definition.limits;
    assert_eq!((definition.steps, limits.tokens), (Some(60), Some(500_000)));
    assert_eq!(limits.stall, Some(StallPolicy::after(Millis(600_000))));
    assert_eq!(limits.spawn_rate, Some(SpawnRate { count: 10, per: Millis(60_000) }));
    let named = docs.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let named: Vec<&str> = named.flat_map(|(names, _)| names.split(['`', ',', ' '])).collect();
    for field in example.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(':')) {
        assert!(named.contains(&field.0), "{} is in no table", field.0);
    }
}

#[test]
fn stall_and_spawn_rate_are_parsed_or_refused() {
    let parse = |limit: &str| {
        let text = format!("---\nname: a\ndescription: b\nlimits:\n  {limit}\n---\nDo it.");
        Definition::parse("a.md", &text)
    };
    assert_eq!(parse("stall: off").unwrap().limits.stall, Some(StallPolicy::Off));
    for (tokens, expect) in [("500000", 500_000), ("500k", 500_000), ("1.5M", 1_500_000)] {
        let parsed = parse(&format!("tokens: {tokens}")).unwrap();
        assert_eq!(parsed.limits.tokens, Some(expect), "{tokens}");
    }
    for (wrong, expect) in [
        ("stall: 0s", "a.md:5: `limits.stall`: "),
        ("tokens: 1.5", "a.md:5: `limits.tokens`: "),
        ("tokens: -1", "a.md:5: `limits.tokens`: "),
        ("tokens: [5]", "a.md:5: `limits.tokens`: "),
        ("stall: never", "a.md:5: `limits.stall`: "),
        ("spawn_rate: 10", "a.md:5: `limits.spawn_rate`: "),
        ("spawn_rate: 10/week", "a.md:5: `limits.spawn_rate`: "),
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{wrong}: {error}");
    }
}

proptest! {
    #[test]
    fn the_error_of_any_text_has_a_line_of_it(
        fields in prop::collection::vec(("[a-z_]{1,6}|limits|tools|name", "[ -~é\n]{0,20}"), 0..8),
    ) {
        let fields: String = fields.iter().map(|(key, value)| format!("{key}:{value}\n")).collect();
        let text = format!("---\n{fields}---\nDo it.");
        if let Err(error) = Definition::parse("odd.md", &text) {
            prop_assert!(error.line <= text.lines().count() + 1, "{error}\n{text}");
        }
    }
}

#[test]
fn the_sandbox_field_is_parsed() {
    use brigade_model::sandbox::{NetworkPolicy, TcpPolicy};

    let parse = |field: &str| {
        let text = format!("---\nname: a\ndescription: b\n{field}\n---\nDo it.");
        Definition::parse("a.md", &text).unwrap()
    };
    let plain = parse("sandbox: true");
    assert_eq!(
        (plain.sandbox, plain.resources),
        (Some(SandboxRequest::default()), ResourceLimits::default())
    );
    assert_eq!(parse("sandbox: false").sandbox, None);
    let all = parse(
        "sandbox:\n  read: [~/.cargo]\n  write:\n    - /data\n  tcp: false\n  network: false\n  memory: 2G\n  cpu: 10m\n  files: 256",
    );
    let expected = SandboxRequest {
        read: vec!["~/.cargo".to_owned()],
        write: vec!["/data".to_owned()],
        tcp: TcpPolicy::Denied,
        network: NetworkPolicy::Denied,
        agents: false,
    };
    assert_eq!(all.sandbox, Some(expected));
    let resources =
        ResourceLimits { memory: Some(2 << 30), cpu_secs: Some(600), open_files: Some(256) };
    assert_eq!(all.resources, resources);
    let stored = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Definition>(&stored).unwrap(), all);
}

#[test]
fn an_invalid_sandbox_field_is_refused() {
    for (fields, expect) in [
        ("sandbox:\n  wirte: [/a]", "a.md:5: `sandbox.wirte`: unknown; did you mean `write`?"),
        ("sandbox: maybe", "a.md:4: `sandbox`: wrong value; write `true`, or nested fields"),
        ("sandbox:\n  read: /a", "a.md:5: `sandbox.read`: wrong value; write a list of paths"),
        (
            "sandbox:\n  memory: much",
            "a.md:5: `sandbox.memory`: \"much\" is not a size; write bytes, or a number with K, M, G or T, such as 512M",
        ),
        ("sandbox:\n  cpu: 10ms", "the limit on processor time is too low: the minimum is 1s"),
    ] {
        let problem = problem(fields);
        assert!(problem.contains(expect), "{problem}");
    }
}

#[test]
fn localized_texts_are_found_and_invalid_ones_are_refused_with_their_line() {
    let docs = include_str!("../../../../docs/agents.md");
    let (_, rest) = docs.split_once("people may see it in their own language:").unwrap();
    let (_, example) = rest.split_once("```markdown\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let definition = Definition::parse("docs/agents.md", example).unwrap();
    let local = definition.localized(&"de-AT".parse().unwrap());
    assert_eq!(local.name.as_deref(), Some("Leserin"));
    assert!(local.description.unwrap().starts_with("Liest eine Änderung"));
    assert!(definition.localized(&"fr".parse().unwrap()).is_empty());
    for (line, expect) in [
        ("  german: { name: x }", "a.md:5: `localized`: `german` is no language tag"),
        ("  de: {}", "a.md:5: `localized`: `de` has neither a name nor a description"),
        ("  de: { name: \"\" }", "a.md:5: `localized`: `de` has a blank text"),
        ("  de: { nam: x }", "a.md:5: `localized`: unknown"),
    ] {
        let text = format!("---\nname: a\ndescription: x\nlocalized:\n{line}\n---\nDo it.\n");
        let error = Definition::parse("a.md", &text).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
}

#[test]
fn a_faulty_file_is_found_by_its_name_and_by_the_name_in_its_text() {
    let dir = tempfile::tempdir().unwrap();
    let folder = DefinitionDir::of_workspace(dir.path());
    fs::create_dir_all(&folder.path).unwrap();
    let file = folder.path.join("kitchen.md");
    fs::write(&file, "---\nname: \"cook\"\ndescription: x\ntols: []\n---\nCook.\n").unwrap();
    let definitions = DefinitionSet::load(&[folder]);
    let expect = format!("{}:4: `tols`: unknown; did you mean `tools`?", file.display());
    for name in ["cook", "kitchen", "workspace:cook"] {
        let error = definitions.find(name).unwrap_err();
        assert!(matches!(error, DefinitionLookupError::Faulty(_)), "{name}: {error}");
        assert_eq!(error.to_string(), expect, "{name}");
    }
    let error = definitions.find("cooks").unwrap_err();
    assert!(matches!(error, DefinitionLookupError::Unknown { .. }), "{error}");
}
