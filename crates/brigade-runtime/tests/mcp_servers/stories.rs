//! Agents that use the tools of a server.

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::definition::Definition;
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_mcp::client::McpServerConfig;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::{AgentTask, NewTask};
use brigade_store::{MemoryStore, Store};

use crate::scripted::Script;
use crate::support::{final_message, playing, spawn, start, start_on};

fn server(script: &Script) -> McpServerConfig {
    script.server("mcp_servers::scripted")
}

fn cook() -> NewTask<AgentTask<String>> {
    NewTask::agent("cook").name("Cook")
}

#[tokio::test]
async fn an_agent_calls_tools_of_its_server() {
    let script = Script::new();
    let text = "agent Cook
turn
  call srv__look {\"n\": 7}
  call srv__act {}
turn
  when look: {\"n\":7}
  when act: {}
  say Both.
";
    let options = playing(text).mcp_server("srv", server(&script)).unwrap();
    let (runtime, session) = start(options).await;
    let agent = spawn(&session, cook().mcp_server("srv")).await;
    assert_eq!(final_message(&session, &agent).await, "Both.");
    runtime.shutdown().await.unwrap();
    assert!(script.log().contains(&"input ended".to_owned()), "it ends with the runtime");
}

#[tokio::test]
async fn a_server_is_started_only_for_agents_that_may_use_it() {
    let script = Script::new();
    let text = "agent *
turn
  call srv__look {}
turn
  when there is no tool
  say None.
";
    let options = playing(text).mcp_server("srv", server(&script)).unwrap();
    let (_runtime, session) = start(options).await;
    let nobody = spawn(&session, cook()).await;
    assert_eq!(final_message(&session, &nobody).await, "None.");
    let rules =
        PermissionRules { deny: vec!["srv__*".parse().unwrap()], ..PermissionRules::default() };
    let denied = spawn(&session, cook().mcp_server("srv").permissions(rules)).await;
    assert_eq!(final_message(&session, &denied).await, "None.");
    assert_eq!(script.log(), [""; 0]);
}

#[tokio::test]
async fn a_child_has_no_server_that_its_parent_does_not_have() {
    let one = Script::new();
    let other = Script::new();
    let text = "agent Boss
turn
  call spawn_agent {\"name\": \"Heir\", \"task\": \"go\", \"wait\": true}
  call spawn_agent {\"name\": \"Greedy\", \"agent\": \"greedy\", \"task\": \"go\", \"wait\": true}
  call spawn_agent {\"name\": \"Modest\", \"agent\": \"modest\", \"task\": \"go\", \"wait\": true}
turn
  say Seen.
agent *
turn
  call one__look {}
  call other__look {}
turn
  say Done.
";
    let greedy = Definition::new("greedy").prompt("Take all.").mcp_servers(["one", "other"]);
    let modest = Definition::new("modest").prompt("Take none.").mcp_servers(Vec::<String>::new());
    let options = playing(text).mcp_server("one", server(&one)).unwrap();
    let options = options.mcp_server("other", server(&other)).unwrap();
    let options = options.definition(greedy).unwrap().definition(modest).unwrap();
    let (_runtime, session) = start(options).await;
    let boss = NewTask::agent("go").name("Boss").mcp_server("one");
    let boss = spawn(&session, boss).await;
    assert_eq!(final_message(&session, &boss).await, "Seen.");
    assert_eq!(one.count("look"), 2, "of the heir and the greedy one");
    assert_eq!(other.log(), [""; 0], "nobody has it");
}

#[tokio::test]
async fn an_unknown_server_is_refused_before_the_start() {
    let script = Script::new();
    let wants = Definition::new("wants").prompt("Do it.").mcp_servers(["github"]);
    let options = playing("agent *\nturn\n  say Never.\n").definition(wants).unwrap();
    let options = options.mcp_server("srv", server(&script)).unwrap();
    let (_runtime, session) = start(options).await;
    for task in [cook().mcp_server("github"), cook().definition("wants")] {
        let refusal = session.spawn(task).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        let message = &refusal.message;
        assert!(
            message.contains("\"github\"") && message.contains("configured are: srv"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_agent_continues_without_its_server_and_reconnects() {
    let script = Script::new();
    script.set("ends-at-once");
    let text = "agent Cook
turn
  call srv__look {}
turn
  when cannot be reached, and nothing was done
  call wait_tasks {\"wait_secs\": 1}
turn
  call srv__reconnect {}
turn
  when srv__look
  call srv__look {}
turn
  when look: {}
  say Found.
";
    let options = playing(text).mcp_server("srv", server(&script)).unwrap();
    let (_runtime, session) = start(options).await;
    let agent = spawn(&session, cook().mcp_server("srv")).await;
    let ended = |log: &[String]| log.iter().filter(|line| *line == "ends at once").count();
    script.until("it was tried for the call too", |log| ended(log) == 2).await;
    script.unset("ends-at-once");
    assert_eq!(final_message(&session, &agent).await, "Found.");
}

/// Crashes during a call. At the next start the server is unavailable, or has changed its tools.
#[tokio::test]
async fn after_a_crash_pure_calls_are_repeated_and_others_have_an_unknown_effect() {
    for (tool, then, expect) in [
        ("look", None, "look: {}"),
        ("act", None, "its effect is unknown"),
        ("act", Some("ends-at-once"), "its effect is unknown"),
        ("act", Some("act-gone"), "its effect is unknown"),
        ("act", Some("act-only-looks"), "its effect is unknown"),
    ] {
        let script = Script::new();
        script.set("hang");
        let text = format!(
            "agent Cook\nturn\n  call srv__{tool} {{}}\nturn\n  when {expect}\n  say As it was.\n"
        );
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let options = || playing(&text).mcp_server("srv", server(&script)).unwrap();
        let (runtime, session) = start_on(store.clone(), options()).await;
        let task = || cook().mcp_server("srv").key("cook");
        spawn(&session, task()).await;
        script.until("it is called", |log| log.contains(&tool.to_owned())).await;
        drop((session, runtime));
        if let Some(then) = then {
            script.set(then);
        }
        let (_runtime, session) = start_on(store, options()).await;
        let handle = spawn(&session, task()).await;
        assert_eq!(final_message(&session, &handle).await, "As it was.", "{tool} {then:?}");
        assert_eq!(script.count(tool), if tool == "look" { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_stop_cancels_the_call_at_the_server() {
    let script = Script::new();
    script.set("hang");
    let text = "agent Cook\nturn\n  call srv__act {}\nturn\n  say Never.\n";
    let options = playing(text).mcp_server("srv", server(&script)).unwrap();
    let (_runtime, session) = start(options).await;
    let agent = spawn(&session, cook().mcp_server("srv")).await;
    script.until("it is called", |log| log.contains(&"act".to_owned())).await;
    agent.stop(None).await.unwrap();
    assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
    script.until("it is cancelled", |log| log.contains(&"cancelled".to_owned())).await;
}

#[tokio::test]
async fn agents_share_one_connection_and_a_suspended_one_does_not_block_the_shutdown() {
    let script = Script::new();
    let text = "agent *
turn
  call srv__look {}
turn
  when look: {}
  call ask_parent {\"question\": \"More?\"}
turn
  say Enough.
";
    let options = playing(text).mcp_server("srv", server(&script)).unwrap();
    let options = options.permissions(Permissions::of("the test", PermissionRules::all()));
    let (runtime, session) = start(options).await;
    for number in 0..20 {
        let task = NewTask::agent("look").name(&format!("Cook {number}")).mcp_server("srv");
        spawn(&session, task).await;
    }
    script
        .until("all have looked", |log| log.iter().filter(|one| *one == "look").count() == 20)
        .await;
    assert_eq!(script.log().iter().filter(|line| line.starts_with("started")).count(), 1);
    tokio::time::timeout(Duration::from_secs(60), runtime.shutdown()).await.unwrap().unwrap();
}
