//! Permissions of agents; a child never has more than its parent.

use brigade_agent::definition::Definition;
use brigade_agent::permission::PermissionRules;
use brigade_runtime::NewTask;
use brigade_testkit::TestRuntime;

use crate::support::{final_message, script, transcript};

fn rules(allow: &[&str], deny: &[&str]) -> PermissionRules {
    let all = |rules: &[&str]| rules.iter().map(|rule| rule.parse().unwrap()).collect();
    PermissionRules { allow: Some(all(allow)), ask: Vec::new(), deny: all(deny) }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_allowed_is_refused_and_starts_nothing() {
    let text = "agent A
turn
  call spawn_agent {\"task\": \"more\", \"agent\": \"cook\"}
turn
  when is not permitted
  say Not me.
";
    let cook = Definition::new("cook").prompt("Cook.");
    let options = script(text).definition(cook).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let allowed = rules(&["spawn_agent(waiter)", "list_tasks"], &[]);
    let task = NewTask::agent("go").name("A").permissions(allowed);
    let agent = runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Not me.");
    assert!(runtime.session.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_child_has_no_more_permissions_than_its_parent() {
    let text = "agent A
turn
  call spawn_agent {\"task\": \"run it\", \"agent\": \"runner\", \"wait\": true}
turn
  say It said so.

agent runner
turn
  call run_process {\"command\": \"true\"}
turn
  when no tool \"run_process\"
  say I have no shell.
";
    let runner = Definition::new("runner").prompt("Run.").permissions(rules(&["*"], &[]));
    let options = script(text).definition(runner).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let no_shell =
        PermissionRules { deny: vec!["run_process".parse().unwrap()], ..PermissionRules::all() };
    let task = NewTask::agent("go").name("A").permissions(no_shell);
    let agent = runtime.session.spawn(task).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    let transcript_text = transcript(&runtime, &agent).await;
    assert!(transcript_text.contains("I have no shell."), "{transcript_text}");
    assert_eq!(final_message(&run_result), "It said so.");
}

#[tokio::test(start_paused = true)]
async fn the_allowed_delegates_are_named_and_inherited() {
    let text = "agent boss
turn
  call spawn_agent {\"task\": \"x\", \"agent\": \"stranger\"}
  call spawn_agent {\"task\": \"x\", \"agent\": \"helper\", \"wait\": true}
turn
  say Done.

agent helper
turn
  call spawn_agent {\"task\": \"x\", \"agent\": \"stranger\"}
turn
  when you may not start an agent
  say Neither may I.
";
    let options = script(text)
        .definition(Definition::new("boss").prompt("Lead.").delegates_to(["helper"]))
        .and_then(|options| options.definition(Definition::new("helper").prompt("Help.")))
        .and_then(|options| options.definition(Definition::new("stranger").prompt("Be.")))
        .unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let boss = runtime.session.spawn(NewTask::agent("go").definition("boss")).await.unwrap();
    boss.wait().await.unwrap();
    let transcript_text = transcript(&runtime, &boss).await;
    assert!(
        transcript_text.contains("you may not start an agent \"stranger\"; you may start: helper"),
        "{transcript_text}"
    );
    assert!(transcript_text.contains("Neither may I."), "{transcript_text}");
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_a_definition_hold_for_its_children_too() {
    let text = "agent lead
turn
  call spawn_agent {\"task\": \"run it\", \"name\": \"Runner\", \"wait\": true}
turn
  when I have no shell.
  say It has none.

agent Runner
turn
  call run_process {\"command\": \"true\"}
turn
  when no tool \"run_process\"
  say I have no shell.
";
    let lead = Definition::new("lead").prompt("Lead.").tools(["spawn_agent", "list_tasks"]);
    let options = script(text).definition(lead).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").definition("lead");
    let agent = runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "It has none.");
}

#[tokio::test(start_paused = true)]
async fn variables_count_for_the_permission_of_a_process() {
    let text = "agent A
turn
  call run_process {\"command\": \"git status\", \"env\": {\"PATH\": \"/tmp/evil\"}}
  call run_process {\"command\": \"rm x\", \"env\": {\"A\": \"b c\"}}
  call run_process {\"command\": \"touch x\", \"env\": {\"git log X\": \"1\"}}
turn
  when `run_process(PATH=/tmp/evil git status)` is not permitted
  when `run_process(A='b c' rm x)` is not permitted
  when `run_process('git log X'=1 touch x)` is not permitted
  say Not me.
";
    let options = script(text);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let allowed = rules(&["run_process(git *)"], &["run_process(rm *)"]);
    let task = NewTask::agent("go").name("A").permissions(allowed);
    let agent = runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Not me.");
}

#[tokio::test(start_paused = true)]
async fn another_directory_counts_for_the_permission_of_a_process() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("more")).unwrap();
    let own = dir.path().display();
    let text = format!(
        "agent A
turn
  call run_process {{\"command\": \"make test\", \"cwd\": \"own/..\", \"deadline_secs\": 0}}
  call run_process {{\"command\": \"make test\", \"cwd\": \"{own}/more\", \"deadline_secs\": 0}}
  call run_process {{\"command\": \"rm x\", \"cwd\": \"more\", \"deadline_secs\": 0}}
turn
  when `run_process(PWD=own/.. make test)` is not permitted
  when `run_process(PWD={own}/more make test)` is not permitted
  when denies `run_process(rm *)`
  call run_process {{\"command\": \"make test\", \"cwd\": \"./\", \"deadline_secs\": 0}}
  call run_process {{\"command\": \"make test\", \"cwd\": \"{own}\", \"deadline_secs\": 0}}
  call run_process {{\"command\": \"make test\", \"cwd\": \"more\", \"deadline_secs\": 0}}
turn
  say Done.
"
    );
    let options = script(&text);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let allowed =
        rules(&["run_process(make test)", "run_process(PWD=more make *)"], &["run_process(rm *)"]);
    let task = NewTask::agent("go").name("A").cwd(dir.path()).permissions(allowed);
    let agent = runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Done.");
    let transcript_text = transcript(&runtime, &agent).await;
    assert_eq!(transcript_text.matches("is not permitted").count(), 3, "{transcript_text}");
    // The calls were permitted, and refused for their wrong arguments.
    assert_eq!(
        transcript_text.matches("the argument `deadline_secs`").count(),
        3,
        "{transcript_text}"
    );
}
