//! Agents from definitions: settings, results, and independence of later edits.

use brigade_agent::definition::{Definition, DefinitionDir};
use brigade_model::outcome::Outcome;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::Work;
use brigade_runtime::{AgentTask, NewTask};
use brigade_testkit::TestRuntime;
use serde_json::json;

use crate::support::{failure, final_message, playing, reply, script, spawn, until_idle};

#[tokio::test(start_paused = true)]
async fn settings_must_fit_and_need_a_definition_that_has_them() {
    let schema = json!({
        "type": "object", "required": ["depth"], "properties": { "depth": { "type": "integer" } }
    });
    let digger = Definition::new("digger").prompt("Dig.").config_schema(schema);
    let options = script("agent *\nturn\n say Dug.\n").definition(digger).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let spawn = |task: NewTask<AgentTask<String>>| runtime.session.spawn(task);
    let dig = || NewTask::agent("dig").definition("digger");
    let refused = spawn(dig().config(json!({ "depth": "deep" }))).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(refused.message.contains("/depth"), "{refused}");
    let refused = spawn(dig()).await.unwrap_err();
    assert!(refused.message.contains("depth"), "{refused}");
    let refused = spawn(NewTask::agent("dig").config(json!({}))).await.unwrap_err();
    assert!(refused.message.contains("has no settings"), "{refused}");
    let refused = spawn(NewTask::agent("dig").definition("diger")).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound);
    assert!(refused.message.contains("digger"), "{refused}");
    let dug = spawn(dig().config(json!({ "depth": 3 }))).await.unwrap();
    assert_eq!(dug.wait().await.unwrap().outcome.label(), "succeeded");
}

fn number() -> serde_json::Value {
    json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } })
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_match_its_schema_is_repaired() {
    let text = "agent A
turn
  say Three, I think.
turn
  when is not JSON
  say {\"n\": \"three\"}
turn
  when /n
  say {\"n\": 3}
";
    let options = script(text);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("count").name("A").result_schema(number());
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    let Outcome::Succeeded { result } = &*run_result.outcome else {
        panic!("{}", run_result.outcome)
    };
    assert_eq!(result.as_str(), "{\"n\":3}");
}

#[tokio::test(start_paused = true)]
async fn repair_of_a_result_is_bounded() {
    let options = script("agent A\nturn\n repeat\n say Three.\n");
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("count").name("A").result_schema(number());
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    let (failure, partial) = failure(&run_result);
    assert!(failure.to_string().contains("no usable result after 4 tries"), "{failure}");
    assert_eq!(partial.as_deref(), Some("Three."));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_schema_is_refused_before_the_start() {
    let options = script("agent *\nturn\n say Never.\n");
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("count").result_schema(json!({ "type": 7 }));
    let refused = runtime.session.spawn(task).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(runtime.session.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_edited_definition_does_not_change_running_agents() {
    let text = "agent asker
turn
  call ask_parent {\"question\": \"One?\"}
turn
  when The answer: yes
  call ask_parent {\"question\": \"Two?\"}
turn
  when The answer: no
  say Asked twice.
";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("asker.md");
    let define = |tools: &str| {
        let text = format!("---\nname: asker\ndescription: Asks.\ntools: {tools}\n---\nAsk.\n");
        std::fs::write(&file, text).unwrap();
    };
    define("[ask_parent]");
    let options =
        script(text).definition_dirs(|cwd| cwd.map(DefinitionDir::user).into_iter().collect());
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("ask").definition("asker").cwd(dir.path());
    let agent = runtime.session.spawn(task).await.unwrap();
    until_idle(&runtime).await;
    define("[]");
    runtime.session.answer(agent.no(), reply("yes")).await.unwrap();
    until_idle(&runtime).await;
    runtime.session.answer(agent.no(), reply("no")).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Asked twice.");
}

#[tokio::test(start_paused = true)]
async fn agents_with_the_same_blueprint_share_its_text() {
    let test = playing("agent *\nturn\n  say Done.\n").await;
    let mut texts = Vec::new();
    for name in ["one", "two"] {
        let agent = spawn(&test, name, name).await;
        match &agent.get().await.unwrap().spec.work {
            Work::Agent(agent) => texts.push(agent.blueprint.clone()),
            other => panic!("an agent was expected, not {other:?}"),
        }
    }
    assert!(std::ptr::eq(texts[0].as_str(), texts[1].as_str()), "in memory twice: {texts:?}");
}
