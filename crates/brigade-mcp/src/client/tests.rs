//! Servers as they are: they die, they lie, they shout, they do not answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client as mcp_client;
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::tool::{Tool, ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_agent::tool_set::{ToolSet, ToolSource};

use super::{McpServerConfig, McpServers, McpTimeouts, ValueSource};
use scripted::Script;

mod scripted;
mod services;

/// The servers of a runtime that has one, and what an agent has of it.
struct Kitchen {
    servers: McpServers,
    tools: ToolSet,
}

impl Kitchen {
    async fn with(server: McpServerConfig) -> Self {
        let servers = McpServers::new([("srv".to_owned(), server)]).unwrap();
        let all = Permissions::of("the test", PermissionRules::all());
        let mut tools = ToolSet::default();
        tools.add_source(servers.grant_tools(&["srv".into()], &all).unwrap());
        tools.wait_until_ready().await;
        Self { servers, tools }
    }

    async fn of(script: &Script) -> Self {
        Self::with(server(script)).await
    }

    fn names(&self) -> Vec<String> {
        self.tools.specs().iter().map(|spec| spec.name.to_string()).collect()
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<String, String> {
        let tool = self.tools.get(name).unwrap_or_else(|| panic!("there is no {name}")).clone();
        called(tool, arguments).await
    }
}

async fn called(tool: Arc<dyn Tool>, arguments: Value) -> Result<String, String> {
    let call = ToolInvocation::standalone(arguments);
    match tool.call(call).await {
        Ok(ToolReply::Text(text)) => Ok(text),
        Ok(ToolReply::Park { .. }) => panic!("no tool of a server waits"),
        Err(ToolError(text)) => Err(text),
    }
}

fn server(script: &Script) -> McpServerConfig {
    script.server(concat!(module_path!(), "::scripted"))
}

fn impatient(server: McpServerConfig, start: u64, call: u64) -> McpServerConfig {
    let (start, call) = (Duration::from_millis(start), Duration::from_millis(call));
    server.timeouts(McpTimeouts { start, call, ..McpTimeouts::default() })
}

#[tokio::test]
async fn a_tool_is_listed_with_its_hints_and_called() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    assert_eq!(kitchen.names(), ["srv__look", "srv__put", "srv__act", "srv__odd"]);
    let effect = |name: &str| kitchen.tools.get(name).unwrap().hints().effect;
    assert_eq!(effect("srv__look"), ToolEffect::Pure);
    assert_eq!(effect("srv__put"), ToolEffect::Idempotent);
    assert_eq!(effect("srv__act"), ToolEffect::Once);
    assert_eq!(kitchen.call("srv__act", json!({"n": 3})).await.unwrap(), "act: {\"n\":3}");
    assert_eq!(script.count("act"), 1);
}

#[tokio::test]
async fn arguments_that_do_not_fit_do_not_reach_the_server() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    let refused = kitchen.call("srv__act", json!({"n": "three"})).await.unwrap_err();
    assert!(refused.contains("/n") && refused.contains("nothing was done"), "{refused}");
    assert_eq!(script.count("act"), 0);
}

#[tokio::test]
async fn a_call_that_only_looks_is_made_again_after_the_server_died_in_it() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    for tool in ["look", "put"] {
        script.set(&format!("die-at-{tool}"));
        let told = kitchen.call(&format!("srv__{tool}"), json!({"n": 1})).await.unwrap();
        assert_eq!(told, format!("{tool}: {{\"n\":1}}"));
        assert_eq!(script.count(tool), 2);
    }
    assert_eq!(script.count("listed"), 3, "each connection is listed anew");
}

#[tokio::test]
async fn a_call_that_must_not_happen_twice_is_told_as_unknown() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    script.set("die-at-act");
    let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(told.contains("effect is unknown"), "{told}");
    assert!(told.contains("exit status: 9"), "{told}");
    assert_eq!(script.count("act"), 1);
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "act: {}", "it is back");
}

#[tokio::test]
async fn a_server_that_died_between_calls_is_started_for_any_call() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    script.set("die-at-look");
    let dies = kitchen.call("srv__look", json!({})).await.unwrap();
    assert_eq!(dies, "look: {}");
    let started: Vec<String> =
        script.log().into_iter().filter(|line| line.starts_with("started")).collect();
    let pid: i32 = started[1].rsplit(' ').next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while rustix::process::test_kill_process(pid).is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "act: {}");
    assert_eq!(script.count("act"), 1);
}

#[tokio::test]
async fn a_server_that_never_says_who_it_is_costs_its_tools_only() {
    let script = Script::new();
    script.set("never-answers");
    let kitchen = Kitchen::with(impatient(server(&script), 500, 500)).await;
    assert_eq!(kitchen.names(), ["srv__reconnect"]);
    let specs = kitchen.tools.specs();
    assert!(specs[0].description.contains("has not said who it is within 500ms"), "{specs:?}");
    let refused = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(refused.contains("nothing was done"), "{refused}");
    kitchen.servers.close().await;
}

#[tokio::test]
async fn a_server_that_ends_at_once_is_told_with_its_last_words_and_found_again() {
    let script = Script::new();
    script.set("ends-at-once");
    let kitchen = Kitchen::of(&script).await;
    let specs = kitchen.tools.specs();
    assert!(specs[0].description.contains("exit status: 3"), "{specs:?}");
    assert!(specs[0].description.contains("no licence for this machine"), "{specs:?}");
    script.unset("ends-at-once");
    let told = kitchen.call("srv__reconnect", json!({})).await.unwrap();
    assert!(told.contains("srv__look"), "{told}");
    assert!(kitchen.names().contains(&"srv__look".to_owned()), "for the next model call");
}

#[tokio::test]
async fn an_interrupted_call_of_an_absent_server_is_not_said_to_have_done_nothing() {
    let script = Script::new();
    script.set("ends-at-once");
    let kitchen = Kitchen::of(&script).await;
    // The loop tells of calls that had begun by the tool's effect, before it calls it.
    let effect = kitchen.tools.get("srv__act").unwrap().hints().effect;
    assert_eq!(effect, ToolEffect::Once);
    assert!(kitchen.tools.get("other__act").is_none());
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let kitchen = Kitchen::with(McpServerConfig::stdio("/nowhere/server", [""; 0])).await;
    let specs = kitchen.tools.specs();
    assert!(specs[0].description.contains("/nowhere/server cannot be started"), "{specs:?}");
}

#[tokio::test]
async fn changed_tools_are_there_for_the_next_model_call() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    assert!(!kitchen.names().contains(&"srv__new".to_owned()));
    let before = kitchen.tools.get("srv__look").unwrap();
    script.set("grow");
    kitchen.call("srv__look", json!({})).await.unwrap();
    for _ in 0..3_000 {
        if kitchen.names().contains(&"srv__new".to_owned()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(kitchen.call("srv__new", json!({})).await.unwrap(), "new: {}");
    assert_eq!(&*before.spec().name, "srv__look", "what was handed out stays");
    assert!(script.count("listed") <= 4, "a hundred changes are not listed one by one");
}

#[tokio::test]
async fn a_call_without_an_answer_ends_in_time_and_is_cancelled() {
    let script = Script::new();
    let kitchen = Kitchen::with(impatient(server(&script), 60_000, 2_000)).await;
    script.set("hang");
    let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(told.contains("no answer within 2s") && told.contains("unknown"), "{told}");
    script.until("the call is cancelled", |log| log.contains(&"cancelled".to_owned())).await;
    script.set("wrong-id");
    let told = kitchen.call("srv__look", json!({})).await.unwrap_err();
    assert!(told.contains("no answer within 2s") && told.contains("try it again"), "{told}");
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "act: {}");
    assert_eq!(script.count("act"), 2);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    script.set("hang");
    let tool = kitchen.tools.get("srv__act").unwrap().clone();
    tokio::select! {
        told = called(tool, json!({})) => panic!("{told:?}"),
        () = script.until("the call is there", |log| log.contains(&"act".to_owned())) => {}
    }
    script.until("the call is cancelled", |log| log.contains(&"cancelled".to_owned())).await;
}

#[tokio::test]
async fn a_call_of_a_server_that_does_not_read_ends_in_time() {
    let script = Script::new();
    script.set("deaf");
    let kitchen = Kitchen::with(impatient(server(&script), 60_000, 500)).await;
    let long = "x".repeat(1 << 20);
    let call = kitchen.call("srv__act", json!({"text": long}));
    let told = tokio::time::timeout(Duration::from_secs(60), call).await.expect("it ends");
    let told = told.unwrap_err();
    assert!(told.contains("no answer within 500ms"), "{told}");
    kitchen.servers.close().await;
}

#[tokio::test]
async fn a_server_that_says_otherwise_since_it_is_back_is_believed() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    for tool in ["look-acts", "look-gone"] {
        script.set("die-at-look");
        let look = kitchen.tools.get("srv__look").unwrap().clone();
        script.set(tool);
        let told = called(look, json!({})).await.unwrap_err();
        assert!(told.contains("effect is unknown"), "{tool}: {told}");
    }
    assert_eq!(script.count("look"), 2, "once each");
}

#[tokio::test]
async fn a_list_that_does_not_end_is_cut_and_that_is_told() {
    for (pages, least, most) in [("pages", 99, 101), ("heavy-pages", 2, 3)] {
        let script = Script::new();
        script.set(pages);
        let kitchen = Kitchen::of(&script).await;
        let (names, problems) = kitchen.servers.list_tools("srv").await.unwrap();
        assert!(problems[0].contains("its list goes on after"), "{pages}: {problems:?}");
        assert!(names.contains(&"srv__look".into()), "{pages}: {names:?}");
        let listed = script.count("listed");
        assert!((least..=most).contains(&listed), "{pages} was asked {listed} times");
    }
}

#[tokio::test]
async fn progress_keeps_a_call_alive() {
    let script = Script::new();
    let kitchen = Kitchen::with(impatient(server(&script), 60_000, 2_000)).await;
    script.set("progress");
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "act: {}");
}

#[tokio::test]
async fn floods_garbage_and_lies_do_not_reach_the_model() {
    let script = Script::new();
    script.set("lies");
    let kitchen = Kitchen::of(&script).await;
    assert!(kitchen.names().contains(&"srv__lie".to_owned()), "with a schema of ours");
    assert_eq!(kitchen.call("srv__lie", json!({"any": 1})).await.unwrap(), "lie: {\"any\":1}");
    for trouble in ["flood", "garbage"] {
        script.set(trouble);
        assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "act: {}", "{trouble}");
    }
    let odd = kitchen.call("srv__odd", json!({})).await.unwrap();
    assert!(odd.contains("not what the server says") && odd.contains("\"total\":7"), "{odd}");
    script.set("error");
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap_err(), "no such thing");
    let pids = script.log().iter().filter(|line| line.starts_with("started")).count();
    assert_eq!(pids, 1, "all of it on one connection");
}

#[tokio::test]
async fn large_results_are_cut_and_larger_ones_refused() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    script.set("large");
    let told = kitchen.call("srv__look", json!({})).await.unwrap();
    assert!(told.len() <= 64 << 10 && told.contains("of 10485760 bytes"), "{}", told.len());
    script.set("huge");
    let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(told.contains("16 is the most"), "{told}");
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "act: {}");
}

#[tokio::test]
async fn thousands_of_tools_are_not_all_offered() {
    let script = Script::new();
    script.set("many");
    let kitchen = Kitchen::of(&script).await;
    assert_eq!(kitchen.names().len(), 128);
    let (names, problems) = kitchen.servers.list_tools("srv").await.unwrap();
    assert_eq!((names.len(), problems.len()), (1_000, 1));
}

#[tokio::test]
async fn only_what_is_permitted_is_offered() {
    let script = Script::new();
    let servers = McpServers::new([("srv".to_owned(), server(&script))]).unwrap();
    let only = |rule: &str| {
        let rules = PermissionRules {
            allow: Some(vec![rule.parse().unwrap()]),
            ..PermissionRules::default()
        };
        servers.grant_tools(&["srv".into()], &Permissions::of("the test", rules))
    };
    let granted = only("srv__l*").unwrap();
    granted.wait_until_ready().await;
    let names: Vec<_> = granted.offer().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["srv__look".into()]);
    assert!(only("other__*").is_none(), "it is not even started");
}

#[tokio::test]
async fn a_program_and_its_children_end_with_the_runtime() {
    for stays in [false, true] {
        let script = Script::new();
        script.set("has-child");
        if stays {
            script.set("stays");
        }
        let kitchen = Kitchen::of(&script).await;
        let log = script.log();
        let pids = log.iter().filter_map(|line| {
            let pid = line.strip_prefix("started ").or_else(|| line.strip_prefix("child "))?;
            rustix::process::Pid::from_raw(pid.parse().ok()?)
        });
        let pids: Vec<_> = pids.collect();
        assert_eq!(pids.len(), 2, "{log:?}");
        kitchen.servers.close().await;
        assert!(script.log().contains(&"input ended".to_owned()), "it is asked kindly first");
        for pid in pids {
            // The child's child is reaped by whoever adopted it, in its own time.
            for _ in 0..500 {
                if !is_alive(pid) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(!is_alive(pid), "{pid:?} survived");
        }
    }
}

fn is_alive(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}

#[tokio::test]
async fn secrets_come_by_reference_and_do_not_come_back() {
    let script = Script::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cr3t-t0k3n\n").unwrap();
    let server = server(&script).env("TOKEN", ValueSource::file(&file));
    let kitchen = Kitchen::with(server).await;
    script.set("token");
    let told = kitchen.call("srv__act", json!({})).await.unwrap();
    assert_eq!(told, "the token is [secret]");
    script.set("die-at-act");
    let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(told.contains("the token is [secret]") && !told.contains("s3cr3t"), "{told}");
    std::fs::remove_file(&file).unwrap();
    script.set("die-at-look");
    let told = kitchen.call("srv__look", json!({})).await.unwrap_err();
    assert!(told.contains("`TOKEN`"), "{told}");
}

#[tokio::test]
async fn a_long_line_is_cut_where_no_secret_is() {
    let script = Script::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cr3t-t0k3n\n").unwrap();
    let kitchen = Kitchen::with(server(&script).env("TOKEN", ValueSource::file(&file))).await;
    script.set("token-late");
    kitchen.call("srv__look", json!({})).await.unwrap();
    script.set("die-at-act");
    let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(told.contains("xxx") && !told.contains("s3c"), "{told}");
}

#[tokio::test]
async fn other_variables_of_ours_stay_ours() {
    let script = Script::new();
    let kitchen = Kitchen::of(&script).await;
    let pid = script.log()[0].rsplit(' ').next().unwrap().to_owned();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the test has it");
    assert!(!environment.contains("CARGO_MANIFEST_DIR="), "{environment}");
    assert!(environment.contains("PATH="));
    drop(kitchen);
}
