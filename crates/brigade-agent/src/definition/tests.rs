//! Definitions from files and from Rust, and what is wrong with some.

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
fn what_is_left_out_comes_from_the_parent() {
    let text = "---\nname: a\ndescription: b\n---\nDo it.";
    let definition = Definition::parse("a.md", text).unwrap();
    assert_eq!(definition, Definition::new("a").description("b").prompt("Do it."));
    assert!(definition.permissions.is_empty());
    assert!(definition.may_delegate_to("anyone"));
    assert!(!reviewer().may_delegate_to("anyone"));
}

/// The error for these fields after a name and a description, in line 4 of the file.
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
            "a.md:5: `limits.tokens`: not as it should be; it wants a whole number of tokens",
        ),
        (
            "limits:\n  steps: 1\n  time: 10x",
            "a.md:6: `limits.time`: \"10x\" is no span of time, such as 90s, 10m or 2h",
        ),
        ("limits:\n  money: -1", "a.md:5: `limits.money`: dollars, such as 2.50"),
        (
            "limits:\n  steps: 0",
            "a.md:5: `limits.steps`: without a step it does nothing; 1 is the least",
        ),
        (
            "tools: read_file, write_file",
            "a.md:4: `tools`: not as it should be; it wants a list of tools, such as \
             [read_file, run_process]",
        ),
        ("effort: hihg", "a.md:4: `effort`: `hihg` is not known here; did you mean `high`?"),
        ("temperature: 3", "a.md:4: `temperature`: from 0 to 2"),
        ("temperature: .nan", "a.md:4: `temperature`: from 0 to 2"),
        ("name: c", "a.md:4: `name`: it is there twice"),
        (
            "permissions:\n  allow: [\"a(b\"]",
            "a.md:5: `permissions.allow`: `a(b` is no rule: its parenthesis is not closed; write \
             `tool` or `tool(pattern)`, such as `run_process(cargo *)`",
        ),
        ("permissions:\n  asks: [a]", "a.md:5: `permissions.asks`: unknown; did you mean `ask`?"),
        (
            "permissions:\n  ask: a",
            "a.md:5: `permissions.ask`: not as it should be; it wants a list of rules, such as \
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
fn a_field_without_a_value_is_a_mistake_and_not_no_limit() {
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
fn errors_of_the_whole_file() {
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
            "a.md:2: `description`: missing; it wants a sentence on what it is for".into(),
        ),
        (
            "---\nname: a\ndescription: b\n---\n\n",
            "a.md:5: `prompt`: it is empty: what is this agent to do?".into(),
        ),
        (
            "---\nname: a b\ndescription: b\n---\nDo it.",
            "a.md:2: `name`: \"a b\" is no name: a letter, then letters, digits, `-`, `_` or `.`, \
             64 at most"
                .into(),
        ),
    ] {
        let problem = Definition::parse("a.md", text).expect_err(text).to_string();
        assert_eq!(problem, expect);
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(name), text).unwrap();
}

fn named(name: &str, prompt: &str) -> String {
    format!("---\nname: {name}\ndescription: x\n---\n{prompt}")
}

#[test]
fn a_name_in_both_places_is_ambiguous_and_a_broken_file_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    let folders = DefinitionSet::folders(&work, Some(&root.path().join("conf")));
    let [here, users] = [&folders[0].path, &folders[1].path];
    assert_eq!(*here, root.path().join("work/.brigade/agents"));
    assert_eq!(*users, root.path().join("conf/brigade/agents"));
    write(here, "both.md", &named("both", "of the workspace"));
    write(here, "broken.md", "---\nnmae: x\n---\n");
    write(here, "again.md", &named("both", "twice"));
    write(here, "notes.txt", "not a definition");
    write(here, "large.md", &named("large", &"x".repeat(1024 * 1024)));
    write(here, "theirs.md", &named("theirs", "of the workspace"));
    fs::write(here.join("binary.md"), [0xff, 0xfe]).unwrap();
    fs::create_dir(here.join("folder.md")).unwrap();
    write(users, "both.md", &named("both", "of the user"));
    write(users, "own.md", &named("own", "of the user"));

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
    let told = definitions.find("both").unwrap_err().to_string();
    assert!(told.contains("`user:both`") && told.contains("`workspace:both`"), "{told}");
    assert!(told.contains(here.join("again.md").to_str().unwrap()), "{told}");
    // What a file replaces does not decide between two files; what is built in Rust does.
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
fn a_definition_knows_the_digest_of_the_text_that_it_is() {
    let root = tempfile::tempdir().unwrap();
    let folder = DefinitionFolder::of_workspace(root.path());
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
fn a_folder_full_of_files_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    let folders = DefinitionSet::folders(root.path(), Some(&root.path().join("conf")));
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
    assert!(definitions.find("b3").is_err(), "a folder has a budget of bytes too");
}

#[cfg(unix)]
#[test]
fn a_folder_that_is_a_link_out_of_the_workspace_is_not_read() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    write(&root.path().join("notes"), "secret.md", &named("secret", "not theirs to show"));
    fs::create_dir_all(work.join(".brigade")).unwrap();
    symlink(root.path().join("notes"), work.join(".brigade/agents")).unwrap();
    let definitions = DefinitionSet::load(&DefinitionSet::folders(&work, None));
    assert!(definitions.by_name.is_empty());
    assert!(definitions.problems[0].to_string().contains("leads out"));
}

#[test]
fn folders_that_are_not_there_have_none() {
    let definitions = DefinitionSet::load(&[DefinitionFolder::user("/nowhere/at/all")]);
    assert!(definitions.by_name.is_empty() && definitions.problems.is_empty());
    let error = definitions.find("x").unwrap_err();
    assert_eq!(error.to_string(), "there is no agent definition \"x\"; there are none");
}

#[test]
fn an_unknown_definition_is_told_with_the_nearest() {
    let mut definitions = DefinitionSet::default();
    definitions.add(reviewer()).unwrap();
    let words = |name| definitions.find(name).unwrap_err().to_string();
    let expect = "there is no agent definition \"revewer\"; did you mean `reviewer`?";
    assert_eq!(words("revewer"), expect);
    assert_eq!(words("cook"), "there is no agent definition \"cook\"; there are reviewer");
    assert!(definitions.add(Definition::new("no prompt")).is_err());
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_not_followed() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("agents");
    write(root.path(), "secret.md", &named("secret", "not theirs to show"));
    write(&folder, "inside.md", &named("inside", "x"));
    symlink(root.path().join("secret.md"), folder.join("link.md")).unwrap();
    symlink(folder.join("nothing"), folder.join("dangling.md")).unwrap();
    let definitions = DefinitionSet::load(&[DefinitionFolder::user(folder)]);
    assert_eq!(definitions.by_name.keys().collect::<Vec<_>>(), ["inside"]);
    assert_eq!(definitions.problems.len(), 2);
}

#[test]
fn the_example_of_the_documentation_is_a_definition() {
    let docs = include_str!("../../../../docs/agents.md");
    let example = docs.split("```markdown\n").nth(1).unwrap().split("```").next().unwrap();
    let definition = Definition::parse("docs/agents.md", example).unwrap();
    assert_eq!(definition.name, "reviewer");
}

/// A call as the documentation writes it: what a shell reads for commands.
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
fn the_permissions_of_the_documentation_are_as_it_says() {
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
fn the_limits_of_the_documentation_are_as_it_says() {
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
fn silences_and_rates_are_read_or_told() {
    let parse = |limit: &str| {
        let text = format!("---\nname: a\ndescription: b\nlimits:\n  {limit}\n---\nDo it.");
        Definition::parse("a.md", &text)
    };
    assert_eq!(parse("stall: off").unwrap().limits.stall, Some(StallPolicy::Off));
    for (wrong, expect) in [
        ("stall: 0s", "a.md:5: `limits.stall`: "),
        ("stall: never", "a.md:5: `limits.stall`: "),
        ("spawn_rate: 10", "a.md:5: `limits.spawn_rate`: "),
        ("spawn_rate: 10/week", "a.md:5: `limits.spawn_rate`: "),
    ] {
        let told = parse(wrong).unwrap_err().to_string();
        assert!(told.starts_with(expect), "{wrong}: {told}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_odd_to_be_told_so(
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
fn commands_can_be_confined() {
    use brigade_model::sandbox::{NetworkPolicy, TcpPolicy};

    let parse = |field: &str| {
        let text = format!("---\nname: a\ndescription: b\n{field}\n---\nDo it.");
        Definition::parse("a.md", &text).unwrap()
    };
    let plain = parse("confine: true");
    assert_eq!(
        (plain.sandbox, plain.resources),
        (Some(SandboxRequest::default()), ResourceLimits::default())
    );
    assert_eq!(parse("confine: false").sandbox, None);
    let all = parse(
        "confine:\n  read: [~/.cargo]\n  write:\n    - /data\n  tcp: false\n  network: false\n  memory: 2G\n  cpu: 10m\n  files: 256",
    );
    let (read, write) = (vec!["~/.cargo".to_owned()], vec!["/data".to_owned()]);
    let (tcp, network) = (TcpPolicy::Denied, NetworkPolicy::Denied);
    assert_eq!(all.sandbox, Some(SandboxRequest { read, write, tcp, network, agents: false }));
    let resources =
        ResourceLimits { memory: Some(2 << 30), cpu_secs: Some(600), open_files: Some(256) };
    assert_eq!(all.resources, resources);
    let stored = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Definition>(&stored).unwrap(), all);
}

#[test]
fn a_confinement_that_is_not_understood_is_refused() {
    for (fields, expect) in [
        ("confine:\n  wirte: [/a]", "a.md:5: `confine.wirte`: unknown; did you mean `write`?"),
        ("confine: maybe", "a.md:4: `confine`: not as it should be; it wants `true`, or what is"),
        (
            "confine:\n  read: /a",
            "a.md:5: `confine.read`: not as it should be; it wants a list of paths",
        ),
        (
            "confine:\n  memory: much",
            "a.md:5: `confine.memory`: \"much\" is no size; write bytes, or a number with K, M, G or T, such as 512M",
        ),
        ("confine:\n  cpu: 10ms", "the limit on processor time is too low: 1s is the least"),
    ] {
        let problem = problem(fields);
        assert!(problem.contains(expect), "{problem}");
    }
}

#[test]
fn other_languages_are_for_people_and_nonsense_is_told_with_its_line() {
    let docs = include_str!("../../../../docs/agents.md");
    let (_, rest) = docs.split_once("people may see it in their own language:").unwrap();
    let (_, example) = rest.split_once("```markdown\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let definition = Definition::parse("docs/agents.md", example).unwrap();
    let local = definition.localized(&"de-AT".parse().unwrap());
    assert_eq!(local.name.as_deref(), Some("Leserin"));
    assert!(local.description.unwrap().starts_with("Liest eine Änderung"));
    assert!(definition.localized(&"fr".parse().unwrap()).is_empty());
    for (line, told) in [
        ("  german: { name: x }", "a.md:5: `localized`: `german` is no language tag"),
        ("  de: {}", "a.md:5: `localized`: `de` has neither a name nor a description"),
        ("  de: { name: \"\" }", "a.md:5: `localized`: `de` has a blank text"),
        ("  de: { nam: x }", "a.md:5: `localized`: unknown"),
    ] {
        let text = format!("---\nname: a\ndescription: x\nlocalized:\n{line}\n---\nDo it.\n");
        let error = Definition::parse("a.md", &text).unwrap_err().to_string();
        assert!(error.starts_with(told), "{error}");
    }
}
