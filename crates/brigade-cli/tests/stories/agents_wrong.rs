//! Agents that cannot run, and their error messages.

use crate::story_env::StoryEnv;

const REVIEWER: &str = "---
name: reviewer
description: Reads a change.
model: anthropic/claude-sonnet-5-5
---
You are a careful reviewer.
";

#[test]
fn a_missing_model_is_reported_with_hints() {
    let story = StoryEnv::new();
    let ran = story.run(["run", "x"]);
    assert_eq!(
        (ran.code, &*ran.err),
        (
            2,
            "brigade: no model is set\n  \
             hint: use --model PROVIDER/MODEL, or set `model` in the configuration\n  \
             hint: `brigade demo` runs agents without a key\n"
        )
    );
}

#[test]
fn a_missing_key_is_reported_with_its_variable() {
    let story = StoryEnv::new();
    let ran = story.run(["run", "--model", "anthropic/claude-sonnet-5-5", "x"]);
    assert_eq!(
        (ran.code, &*ran.err),
        (
            2,
            "brigade: there is no key for anthropic: set ANTHROPIC_API_KEY\n  \
             hint: `brigade demo` runs agents without a key\n"
        )
    );
    story.configure("[providers.work]\nkind = \"openai\"\nkey = { file = \"/nowhere/key\" }\n");
    let ran = story.run(["run", "--model", "work/gpt-5", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.starts_with("brigade: there is no key for work: /nowhere/key"), "{}", ran.err);
    assert_eq!(story.json(["ps", "--ended"]), serde_json::json!([]), "nothing was started");
}

#[test]
fn an_unknown_provider_is_named() {
    let story = StoryEnv::new();
    let ran = story.run(["run", "--model", "anthropc/claude", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("anthropc") && ran.err.contains("anthropic"), "{}", ran.err);
    assert!(ran.err.ends_with("  hint: did you mean anthropic/claude?\n"), "{}", ran.err);
    let ran = story.run(["run", "--model", "script:nowhere", "x"]);
    assert_eq!((ran.code, &*ran.err), (2, "brigade: there is no script nowhere\n"));
    let ran = story.run(["run", "--model", "claude", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("provider/model"), "{}", ran.err);
}

#[test]
fn an_unknown_definition_suggests_the_nearest() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Fine.\n");
    story.define("reviewer", REVIEWER);
    let ran = story.run(["run", "--agent", "reviewr", "x"]);
    assert_eq!(ran.code, 127, "{}", ran.err);
    assert!(ran.err.contains("reviewr") && ran.err.contains("reviewer"), "{}", ran.err);
    assert!(ran.err.contains("`brigade agents` lists"), "{}", ran.err);
}

#[test]
fn definitions_are_listed_with_the_problems_of_others() {
    let story = StoryEnv::new();
    let listed = story.run(["agents"]);
    assert_eq!((listed.code, &*listed.err), (0, ""));
    let expect = "AGENT    RUNS     MODEL  DESCRIPTION  FILE\n\
                  general  brigade  -      Any task.    built in\n\n";
    assert!(listed.out.starts_with(expect), "{}", listed.out);
    story.define("reviewer", REVIEWER);
    story.define("broken", "---\nname: broken\ntemprature: 1\n---\nHello.\n");
    let listed = story.run(["agents"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(
        listed.out.contains("\nreviewer  brigade  anthropic/claude-sonnet-5-5  Reads a change."),
        "{}",
        listed.out
    );
    let file = story.project().join(".brigade/agents/broken.md").display().to_string();
    assert!(listed.err.contains(&file) && listed.err.contains("temprature"), "{}", listed.err);
    assert!(listed.err.contains("broken.md:3: `temprature`: unknown"), "{}", listed.err);
    assert!(listed.out.contains("  .brigade/agents/reviewer.md (not trusted)\n"), "{}", listed.out);
    let json = story.json(["agents"]);
    let is_of_program = |agent: &&serde_json::Value| agent.get("runs").is_some();
    let own = json["agents"].as_array().unwrap().iter().filter(|agent| !is_of_program(agent));
    assert_eq!(own.count(), 2);
    assert_eq!(json["problems"].as_array().unwrap().len(), 1);
    for name in ["broken", "workspace:broken"] {
        let ran = story.run(["run", "--agent", name, "x"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        let expect = format!("brigade: {file}:3: `temprature`: unknown");
        assert!(ran.err.starts_with(&expect), "the fault comes first: {}", ran.err);
    }
}

#[test]
fn a_changed_script_is_read_again() {
    let story = StoryEnv::new();
    let write = |text: &str| std::fs::write(story.project().join("own.script"), text).unwrap();
    write("agent *\nturn\n  say One.\n");
    let run = ["run", "--model", "script:own.script", "x"];
    assert_eq!(story.ok(run), "One.\n");
    std::thread::sleep(std::time::Duration::from_millis(20));
    write("agent *\nturn\n  say Two.\n");
    assert_eq!(story.ok(run), "Two.\n");
}

#[test]
fn a_definition_cannot_use_a_file_as_its_model() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Fine.\n");
    let home = story.home();
    let own = story.project().join("own.script");
    std::fs::write(&own, "agent *\nturn\n  say Mine.\n").unwrap();
    std::fs::write(home.join("secret"), "soup\n").unwrap();
    let home = home.display();
    let own = own.display();
    for model in [format!("script:{home}/secret"), format!("record:script:{own}={home}/new")] {
        let text = format!("---\nname: odd\ndescription: Odd.\nmodel: {model}\n---\nBe odd.\n");
        story.define("odd", &text);
        let ran = story.run(["run", "--agent", "odd", "x"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let message = format!("odd.md:4: `model`: {model} is a file");
        assert!(ran.err.contains(&message) && !ran.err.contains("soup"), "{ran:?}");
        assert!(story.run(["agents"]).err.contains("is a file"));
    }
    assert!(!story.home().join("new").exists());
}

#[test]
fn an_invalid_script_is_reported_with_its_line() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  sing Fine.\n");
    let ran = story.run(["run", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("agents.script:3"), "{}", ran.err);
}

#[test]
fn the_configuration_has_providers_and_prices() {
    let story = StoryEnv::new();
    let text = r#"idle_exit = "10m"
retention = "never"
drain = "0s"
output_cap = 8388608
pass_env = []
shell = "/bin/sh"
model = "local/qwen3"

[providers.local]
kind = "openai-chat"
base_url = "http://localhost:8000/v1"
key = "none"

[providers.openai]
kind = "openai"
key = { file = "/home/me/.secrets/openai" }

[prices."local/qwen3*"]
price = { input = 0.1, output = 0.4 }
context = 131072
"#;
    story.configure(text);
    let shown = story.ok(["config"]);
    let (_, body) = shown.split_once('\n').unwrap();
    assert_eq!(body, text);
    story.configure("[providers.local]\nkind = \"opnai\"\n");
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("line 2: `kind`: no provider is named"), "{}", ran.err);
    story.configure("[providers.local]\nkind = \"openai\"\nkey = { file = \"key\" }\n");
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("providers.local.key"), "{}", ran.err);
}

#[test]
fn faults_of_a_script_are_retried() {
    let story = StoryEnv::new();
    story.script(
        "agent Patient\nturn\n  fault 429 after 300ms x2\n  fault 503\n  fault cut 2\n  say All is well now.\n\
         agent Hopeless\nturn\n  fault 500 always\n  say Never.\n",
    );
    let started = std::time::Instant::now();
    let patient = story.run(["run", "--name", "Patient", "Go on"]);
    assert_eq!((patient.code, &*patient.out), (0, "All is well now.\n"), "{patient:?}");
    assert!(
        started.elapsed() >= std::time::Duration::from_millis(600),
        "at least the requested delays"
    );
    let hopeless = story.run(["run", "--name", "Hopeless", "Go on"]);
    assert_eq!(hopeless.code, 120, "{hopeless:?}");
    assert!(hopeless.err.contains("tried 8 times"), "{hopeless:?}");
}
