//! Agents that cannot be run, and what is said of it.

use crate::kitchen::Kitchen;

const REVIEWER: &str = "---
name: reviewer
description: Reads a change.
model: anthropic/claude-sonnet-5-5
---
You are a careful reviewer.
";

#[test]
fn without_a_model_it_says_what_to_do() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["run", "x"]);
    assert_eq!(
        (ran.code, &*ran.err),
        (
            2,
            "brigade: no model is set\n  \
             hint: say --model PROVIDER/MODEL, or set `model` in the configuration\n  \
             hint: `brigade demo` shows agents without any key\n"
        )
    );
}

#[test]
fn without_a_key_it_names_the_variable() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["run", "--model", "anthropic/claude-sonnet-5-5", "x"]);
    assert_eq!(
        (ran.code, &*ran.err),
        (
            2,
            "brigade: there is no key for anthropic: set ANTHROPIC_API_KEY\n  \
             hint: `brigade demo` shows agents without any key\n"
        )
    );
    kitchen.configure("[providers.work]\nkind = \"openai\"\nkey = { file = \"/nowhere/key\" }\n");
    let ran = kitchen.run(["run", "--model", "work/gpt-5", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.starts_with("brigade: there is no key for work: /nowhere/key"), "{}", ran.err);
    assert_eq!(kitchen.json(["ps", "--ended"]), serde_json::json!([]), "nothing was started");
}

#[test]
fn an_unknown_provider_is_named() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["run", "--model", "anthropc/claude", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("anthropc") && ran.err.contains("anthropic"), "{}", ran.err);
    assert!(ran.err.ends_with("  hint: did you mean anthropic/claude?\n"), "{}", ran.err);
    let ran = kitchen.run(["run", "--model", "script:nowhere", "x"]);
    assert_eq!((ran.code, &*ran.err), (2, "brigade: there is no script nowhere\n"));
    let ran = kitchen.run(["run", "--model", "claude", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("provider/model"), "{}", ran.err);
}

#[test]
fn an_unknown_definition_offers_the_nearest() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say Fine.\n");
    kitchen.define("reviewer", REVIEWER);
    let ran = kitchen.run(["run", "--agent", "reviewr", "x"]);
    assert_eq!(ran.code, 127, "{}", ran.err);
    assert!(ran.err.contains("reviewr") && ran.err.contains("reviewer"), "{}", ran.err);
    assert!(ran.err.contains("`brigade agents` lists"), "{}", ran.err);
}

#[test]
fn definitions_are_listed_with_what_is_wrong_with_others() {
    let kitchen = Kitchen::new();
    let listed = kitchen.run(["agents"]);
    assert_eq!((listed.code, &*listed.err), (0, ""));
    assert_eq!(
        listed.out,
        "AGENT    MODEL  DESCRIPTION  FILE\n\
         general  -      Any task.    built in\n"
    );
    kitchen.define("reviewer", REVIEWER);
    kitchen.define("broken", "---\nname: broken\ntemprature: 1\n---\nHello.\n");
    let listed = kitchen.run(["agents"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(
        listed.out.contains("\nreviewer  anthropic/claude-sonnet-5-5  Reads a change."),
        "{}",
        listed.out
    );
    let file = kitchen.project().join(".brigade/agents/broken.md").display().to_string();
    assert!(listed.err.contains(&file) && listed.err.contains("temprature"), "{}", listed.err);
    assert!(listed.err.contains("broken.md:3: `temprature`: unknown"), "{}", listed.err);
    assert!(
        listed.out.ends_with("  .brigade/agents/reviewer.md (not trusted)\n"),
        "{}",
        listed.out
    );
    let json = kitchen.json(["agents"]);
    assert_eq!(json["agents"].as_array().unwrap().len(), 2);
    assert_eq!(json["problems"].as_array().unwrap().len(), 1);
    let ran = kitchen.run(["run", "--agent", "broken", "x"]);
    assert_eq!(ran.code, 127, "{}", ran.err);
    assert!(ran.err.contains(&file) && ran.err.contains("temprature"), "{}", ran.err);
}

#[test]
fn a_script_is_read_again_when_it_is_changed() {
    let kitchen = Kitchen::new();
    let write = |text: &str| std::fs::write(kitchen.project().join("own.script"), text).unwrap();
    write("agent *\nturn\n  say One.\n");
    let run = ["run", "--model", "script:own.script", "x"];
    assert_eq!(kitchen.ok(run), "One.\n");
    std::thread::sleep(std::time::Duration::from_millis(20));
    write("agent *\nturn\n  say Two.\n");
    assert_eq!(kitchen.ok(run), "Two.\n");
}

#[test]
fn a_definition_names_no_file_as_its_model() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say Fine.\n");
    let (home, own) = (kitchen.home(), kitchen.project().join("own.script"));
    std::fs::write(&own, "agent *\nturn\n  say Mine.\n").unwrap();
    std::fs::write(home.join("secret"), "soup\n").unwrap();
    let (home, own) = (home.display(), own.display());
    for model in [format!("script:{home}/secret"), format!("record:script:{own}={home}/new")] {
        let text = format!("---\nname: odd\ndescription: Odd.\nmodel: {model}\n---\nBe odd.\n");
        kitchen.define("odd", &text);
        let ran = kitchen.run(["run", "--agent", "odd", "x"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let told = format!("odd.md:4: `model`: {model} is a file");
        assert!(ran.err.contains(&told) && !ran.err.contains("soup"), "{ran:?}");
        assert!(kitchen.run(["agents"]).err.contains("is a file"));
    }
    assert!(!kitchen.home().join("new").exists());
}

#[test]
fn a_script_that_is_wrong_is_told_with_its_line() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  sing Fine.\n");
    let ran = kitchen.run(["run", "x"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("agents.script:3"), "{}", ran.err);
}

#[test]
fn the_configuration_has_providers_and_prices() {
    let kitchen = Kitchen::new();
    let text = r#"idle_exit = "10m"
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
    kitchen.configure(text);
    let shown = kitchen.ok(["config"]);
    let (_, body) = shown.split_once('\n').unwrap();
    assert_eq!(body, text);
    kitchen.configure("[providers.local]\nkind = \"opnai\"\n");
    let ran = kitchen.run(["ps"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("line 2: `kind`: no provider is named"), "{}", ran.err);
    kitchen.configure("[providers.local]\nkind = \"openai\"\nkey = { file = \"key\" }\n");
    let ran = kitchen.run(["ps"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("providers.local.key"), "{}", ran.err);
}

#[test]
fn faults_of_a_script_are_tried_again() {
    let kitchen = Kitchen::new();
    kitchen.script(
        "agent Patient\nturn\n  fault 429 after 300ms x2\n  fault 503\n  fault cut 2\n  say All is well now.\n\
         agent Hopeless\nturn\n  fault 500 always\n  say Never.\n",
    );
    let began = std::time::Instant::now();
    let patient = kitchen.run(["run", "--name", "Patient", "Go on"]);
    assert_eq!((patient.code, &*patient.out), (0, "All is well now.\n"), "{patient:?}");
    assert!(began.elapsed() >= std::time::Duration::from_millis(600), "as long as it was asked to");
    let hopeless = kitchen.run(["run", "--name", "Hopeless", "Go on"]);
    assert_eq!(hopeless.code, 120, "{hopeless:?}");
    assert!(hopeless.err.contains("tried 8 times"), "{hopeless:?}");
}
