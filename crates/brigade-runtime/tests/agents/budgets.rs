//! Budgets and limits of agents: announced before they end a run, refused with a reason, and
//! extended.

use std::path::Path;
use std::time::Duration;

use brigade_agent::definition::{Definition, DefinitionDir};
use brigade_model::limits::{LimitKind, Limits};
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::StoredTask;
use brigade_runtime::NewTask;
use brigade_testkit::TestRuntime;

use crate::support::{everything, failure, final_message, playing, script, transcript};

fn tokens(most: u64) -> Limits {
    Limits { tokens: Some(most), ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn an_agent_gets_its_remaining_budget_then_fails_and_resumes_with_more() {
    let text = "agent A
usage input=100 output=3900
turn
  when 8,000 tokens of 20,000 tokens left for you and all that you start
  say Four.
  call list_tasks {\"state\": \"ended\"}
turn
  when Go on
  say Five.
turn
  say One.
  call list_tasks {}
turn
  say Two.
  call list_tasks {\"state\": \"all\"}
turn
  say Three.
  call list_tasks {\"state\": \"alive\"}
";
    let runtime = playing(text).await;
    let task = NewTask::agent("go").name("A").limits(tokens(20_000));
    let agent = runtime.session.spawn(task).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    let budget = Failure::Budget { limit: LimitKind::Tokens };
    assert_eq!(failure(&run_result), (budget, Some("Four.".to_owned())));
    let transcript_text = transcript(&runtime, &agent).await;
    assert_eq!(transcript_text.matches("[note]").count(), 1, "{transcript_text}");
    runtime.session.resume(agent.no(), Some(tokens(200_000))).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Five.");
}

#[tokio::test(start_paused = true)]
async fn raising_one_limit_keeps_the_others() {
    let text = "agent A
usage input=100 output=6000
turn
  say So far.
  call list_tasks {}
turn
  call spawn_agent {\"name\": \"Two\", \"task\": \"Look.\", \"wait\": true}
turn
  when the depth limit of agent:1 is reached
  say Alone.
";
    let runtime = playing(text).await;
    let limits = Limits { depth: Some(0), ..tokens(5_000) };
    let agent = runtime.session.spawn(NewTask::agent("go").name("A").limits(limits)).await.unwrap();
    assert!(matches!(failure(&agent.wait().await.unwrap()).0, Failure::Budget { .. }));
    runtime.session.resume(agent.no(), Some(tokens(500_000))).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Alone.");
}

#[tokio::test(start_paused = true)]
async fn an_agent_gets_its_remaining_time_before_the_deadline() {
    let text = "agent A
turn
  delay 50s
  say Slow.
  call list_tasks {}
turn
  when 10 seconds of 60 seconds left for you and all that you start.
  say Quick.
";
    let runtime = playing(text).await;
    let task = NewTask::agent("go").name("A").deadline(Duration::from_secs(60));
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(final_message(&run_result), "Quick.");
}

#[tokio::test(start_paused = true)]
async fn a_spawn_over_the_rate_is_refused_with_the_time_to_retry() {
    let text = "agent Boss
turn
  call spawn_agent {\"name\": \"One\", \"task\": \"Look.\", \"wait\": true}
  call spawn_agent {\"name\": \"Two\", \"task\": \"Look.\", \"wait\": true}
turn
  call spawn_agent {\"name\": \"Three\", \"task\": \"Look.\"}
turn
  when the spawn rate of agent:1 is reached: 2/h; try again in
  say Two are enough.

agent *
turn
  say Seen.
";
    let runtime = playing(text).await;
    let task = NewTask::agent("go").name("Boss").spawn_rate("2/h".parse().unwrap());
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(final_message(&run_result), "Two are enough.");
    assert_eq!(everything(&runtime.runtime, &runtime.session).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn definitions_that_name_each_other_end_at_the_default_depth() {
    let text = "agent hen
turn
  call spawn_agent {\"agent\": \"egg\", \"task\": \"Hatch.\", \"wait\": true}
turn
  when nothing may nest deeper
  say Which was first?
turn
  say Laid.

agent egg
turn
  call spawn_agent {\"agent\": \"hen\", \"task\": \"Lay.\", \"wait\": true}
turn
  when nothing may nest deeper
  say Which was first?
turn
  say Hatched.
";
    let hen = Definition::new("hen").prompt("Lay.").delegates_to(["egg", "hen"]);
    let egg = Definition::new("egg").prompt("Hatch.").delegates_to(["hen", "egg"]);
    let options = script(text).definition(hen).unwrap().definition(egg).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").definition("hen");
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(final_message(&run_result), "Laid.");
    let tasks = everything(&runtime.runtime, &runtime.session).await;
    assert_eq!(tasks.len(), 9, "eight levels below the first");
    let last = tasks
        .iter()
        .map(|StoredTask { row, .. }| row.ended().unwrap().outcome.clone())
        .next_back()
        .unwrap();
    let Outcome::Succeeded { result } = &*last else { panic!("{last}") };
    assert_eq!(result.as_str(), "\"Which was first?\"", "the deepest agent got the reason");
}

#[tokio::test(start_paused = true)]
async fn an_undefined_delegate_is_refused_before_the_start() {
    let cook = Definition::new("cook").prompt("Cook.").delegates_to(["general", "generl"]);
    let options = script("agent *\nturn\n say Done.\n").definition(cook).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").definition("cook");
    let refused = runtime.session.spawn(task).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    let expect = "the definition cook: `may_delegate_to`: `generl` is no agent definition; did you \
                  mean `general`?";
    assert_eq!(refused.message, expect);
}

#[tokio::test(start_paused = true)]
async fn only_workspace_definitions_must_name_existing_delegates() {
    let dir = tempfile::tempdir().unwrap();
    let [here, users] = ["here/.brigade/agents", "config"].map(|path| dir.path().join(path));
    for place in [&here, &users] {
        std::fs::create_dir_all(place).unwrap();
    }
    let text = |name: &str| {
        format!("---\nname: {name}\ndescription: Cooks.\nmay_delegate_to:\n  - waiter\n---\nCook.")
    };
    std::fs::write(here.join("own.md"), text("own")).unwrap();
    std::fs::write(users.join("mine.md"), text("mine")).unwrap();
    let options = script("agent *\nturn\n say Done.\n").definition_dirs(|cwd| {
        let above = cwd.and_then(Path::parent);
        let own = cwd.map(DefinitionDir::of_workspace);
        let users = above.map(|above| DefinitionDir::user(above.join("config")));
        own.into_iter().chain(users).collect()
    });
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let cwd = dir.path().join("here");
    let task = |name: &str| NewTask::agent("go").definition(name).cwd(&cwd);
    let refused = runtime.session.spawn(task("own")).await.unwrap_err();
    let expect = format!(
        "{}:5: `may_delegate_to`: `waiter` is no agent definition",
        here.join("own.md").display()
    );
    assert!(refused.message.starts_with(&expect), "{refused}");
    let run_result = runtime.session.spawn(task("mine")).await.unwrap().wait().await.unwrap();
    assert_eq!(final_message(&run_result), "Done.");
}
