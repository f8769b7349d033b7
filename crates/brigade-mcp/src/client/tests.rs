//! Tests with unreliable servers: they crash, flood, lie or do not reply.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client as mcp_client;
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::tool::{Tool, ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_agent::tool_set::{ToolSet, ToolSource};
use brigade_process::process_identity::is_process_alive;

use super::{McpServerConfig, McpServers, McpTimeouts, ValueSource};
use scripted::Script;

mod scripted;
mod services;

/// The servers of a runtime that has one, and the tools of an agent.
struct TestSetup {
    servers: McpServers,
    tools: ToolSet,
}

impl TestSetup {
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
        call_tool(tool, arguments).await
    }
}

async fn call_tool(tool: Tool, arguments: Value) -> Result<String, String> {
    let call = ToolInvocation::standalone(arguments);
    match tool.call(call).await {
        Ok(ToolReply::Text(text)) => Ok(text),
        Ok(ToolReply::Park { .. }) => panic!("no MCP tool parks"),
        Err(ToolError(text)) => Err(text),
    }
}

fn server(script: &Script) -> McpServerConfig {
    script.server(concat!(module_path!(), "::scripted"))
}

fn with_timeouts(server: McpServerConfig, start: u64, call: u64) -> McpServerConfig {
    let start = Duration::from_millis(start);
    let call = Duration::from_millis(call);
    server.timeouts(McpTimeouts { start, call, ..McpTimeouts::default() })
}

#[tokio::test]
async fn a_tool_is_listed_with_its_hints_and_called() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    assert_eq!(setup.names(), ["srv__look", "srv__put", "srv__act", "srv__odd"]);
    let effect = |name: &str| setup.tools.get(name).unwrap().hints().effect;
    assert_eq!(effect("srv__look"), ToolEffect::Pure);
    assert_eq!(effect("srv__put"), ToolEffect::Idempotent);
    assert_eq!(effect("srv__act"), ToolEffect::Once);
    assert_eq!(setup.call("srv__act", json!({"n": 3})).await.unwrap(), "act: {\"n\":3}");
    assert_eq!(script.count("act"), 1);
}

#[tokio::test]
async fn invalid_arguments_do_not_reach_the_server() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    let refused = setup.call("srv__act", json!({"n": "three"})).await.unwrap_err();
    assert!(refused.contains("/n") && refused.contains("nothing was done"), "{refused}");
    assert_eq!(script.count("act"), 0);
}

#[tokio::test]
async fn a_repeatable_call_is_repeated_after_a_crash_of_the_server() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    for tool in ["look", "put"] {
        script.set(&format!("die-at-{tool}"));
        let reply = setup.call(&format!("srv__{tool}"), json!({"n": 1})).await.unwrap();
        assert_eq!(reply, format!("{tool}: {{\"n\":1}}"));
        assert_eq!(script.count(tool), 2);
    }
    assert_eq!(script.count("listed"), 3, "each connection lists the tools again");
}

#[tokio::test]
async fn an_unrepeatable_call_is_reported_as_effect_unknown() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    script.set("die-at-act");
    let reply = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(reply.contains("effect is unknown"), "{reply}");
    assert!(reply.contains("exit status: 9"), "{reply}");
    assert_eq!(script.count("act"), 1);
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "act: {}", "the server is back");
}

#[tokio::test]
async fn a_server_that_crashed_between_calls_is_restarted_for_any_call() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    script.set("die-at-look");
    let dies = setup.call("srv__look", json!({})).await.unwrap();
    assert_eq!(dies, "look: {}");
    let started: Vec<String> =
        script.log().into_iter().filter(|line| line.starts_with("started")).collect();
    let pid: i32 = started[1].rsplit(' ').next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while rustix::process::test_kill_process(pid).is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "act: {}");
    assert_eq!(script.count("act"), 1);
}

#[tokio::test]
async fn without_a_handshake_only_the_tools_are_missing() {
    let script = Script::new();
    script.set("never-answers");
    let setup = TestSetup::with(with_timeouts(server(&script), 500, 500)).await;
    assert_eq!(setup.names(), ["srv__reconnect"]);
    let specs = setup.tools.specs();
    assert!(
        specs[0].description.contains("did not complete the handshake within 500ms"),
        "{specs:?}"
    );
    let refused = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(refused.contains("nothing was done"), "{refused}");
    setup.servers.close().await;
}

#[tokio::test]
async fn a_server_that_exits_at_once_is_reported_and_can_be_reconnected() {
    let script = Script::new();
    script.set("ends-at-once");
    let setup = TestSetup::of(&script).await;
    let specs = setup.tools.specs();
    assert!(specs[0].description.contains("exit status: 3"), "{specs:?}");
    assert!(specs[0].description.contains("no licence for this machine"), "{specs:?}");
    script.unset("ends-at-once");
    let reply = setup.call("srv__reconnect", json!({})).await.unwrap();
    assert!(reply.contains("srv__look"), "{reply}");
    assert!(setup.names().contains(&"srv__look".to_owned()), "for the next model call");
}

#[tokio::test]
async fn an_interrupted_call_of_an_absent_server_has_unknown_effect() {
    let script = Script::new();
    script.set("ends-at-once");
    let setup = TestSetup::of(&script).await;
    // The agent loop reports interrupted calls by the tool's effect before it calls the tool.
    let effect = setup.tools.get("srv__act").unwrap().hints().effect;
    assert_eq!(effect, ToolEffect::Once);
    assert!(setup.tools.get("other__act").is_none());
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let setup = TestSetup::with(McpServerConfig::stdio("/nowhere/server", [""; 0])).await;
    let specs = setup.tools.specs();
    assert!(specs[0].description.contains("cannot start /nowhere/server"), "{specs:?}");
}

#[tokio::test]
async fn changed_tools_are_available_for_the_next_model_call() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    assert!(!setup.names().contains(&"srv__new".to_owned()));
    let before = setup.tools.get("srv__look").unwrap();
    script.set("grow");
    setup.call("srv__look", json!({})).await.unwrap();
    for _ in 0..3_000 {
        if setup.names().contains(&"srv__new".to_owned()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(setup.call("srv__new", json!({})).await.unwrap(), "new: {}");
    assert_eq!(&*before.spec().name, "srv__look", "a tool in use stays valid");
    assert!(script.count("listed") <= 4, "a hundred changes cause few listings");
}

#[tokio::test]
async fn a_call_without_a_reply_times_out_and_is_cancelled() {
    let script = Script::new();
    let setup = TestSetup::with(with_timeouts(server(&script), 60_000, 2_000)).await;
    script.set("hang");
    let reply = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(reply.contains("no answer within 2s") && reply.contains("unknown"), "{reply}");
    script.until("the call is cancelled", |log| log.contains(&"cancelled".to_owned())).await;
    script.set("wrong-id");
    let reply = setup.call("srv__look", json!({})).await.unwrap_err();
    assert!(reply.contains("no answer within 2s") && reply.contains("try it again"), "{reply}");
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "act: {}");
    assert_eq!(script.count("act"), 2);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    script.set("hang");
    let tool = setup.tools.get("srv__act").unwrap().clone();
    tokio::select! {
        reply = call_tool(tool, json!({})) => panic!("{reply:?}"),
        () = script.until("the call is there", |log| log.contains(&"act".to_owned())) => {}
    }
    script.until("the call is cancelled", |log| log.contains(&"cancelled".to_owned())).await;
}

#[tokio::test]
async fn a_call_to_a_server_that_does_not_read_times_out() {
    let script = Script::new();
    script.set("deaf");
    let setup = TestSetup::with(with_timeouts(server(&script), 60_000, 500)).await;
    let long = "x".repeat(1 << 20);
    let call = setup.call("srv__act", json!({"text": long}));
    let reply = tokio::time::timeout(Duration::from_secs(60), call).await.expect("it ends");
    let reply = reply.unwrap_err();
    assert!(reply.contains("no answer within 500ms"), "{reply}");
    setup.servers.close().await;
}

#[tokio::test]
async fn new_hints_of_a_restarted_server_are_used() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    for tool in ["look-acts", "look-gone"] {
        script.set("die-at-look");
        let look = setup.tools.get("srv__look").unwrap().clone();
        script.set(tool);
        let reply = call_tool(look, json!({})).await.unwrap_err();
        assert!(reply.contains("effect is unknown"), "{tool}: {reply}");
    }
    assert_eq!(script.count("look"), 2, "once each");
}

#[tokio::test]
async fn an_endless_list_is_truncated_and_reported() {
    for (pages, min, max) in [("pages", 99, 101), ("heavy-pages", 2, 3)] {
        let script = Script::new();
        script.set(pages);
        let setup = TestSetup::of(&script).await;
        let (names, problems) = setup.servers.list_tools("srv").await.unwrap();
        assert!(problems[0].contains("its list continues after"), "{pages}: {problems:?}");
        assert!(names.contains(&"srv__look".into()), "{pages}: {names:?}");
        let listed = script.count("listed");
        assert!((min..=max).contains(&listed), "{pages}: listed {listed} times");
    }
}

#[tokio::test]
async fn progress_keeps_a_call_alive() {
    let script = Script::new();
    let setup = TestSetup::with(with_timeouts(server(&script), 60_000, 2_000)).await;
    script.set("progress");
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "act: {}");
}

#[tokio::test]
async fn floods_garbage_and_invalid_schemas_do_not_reach_the_model() {
    let script = Script::new();
    script.set("lies");
    let setup = TestSetup::of(&script).await;
    assert!(setup.names().contains(&"srv__lie".to_owned()), "with a replaced schema");
    assert_eq!(setup.call("srv__lie", json!({"any": 1})).await.unwrap(), "lie: {\"any\":1}");
    for trouble in ["flood", "garbage"] {
        script.set(trouble);
        assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "act: {}", "{trouble}");
    }
    let odd = setup.call("srv__odd", json!({})).await.unwrap();
    assert!(
        odd.contains("does not match the output schema") && odd.contains("\"total\":7"),
        "{odd}"
    );
    script.set("error");
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap_err(), "no such thing");
    let pids = script.log().iter().filter(|line| line.starts_with("started")).count();
    assert_eq!(pids, 1, "all on one connection");
}

#[tokio::test]
async fn large_results_are_truncated_and_larger_ones_refused() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    script.set("large");
    let reply = setup.call("srv__look", json!({})).await.unwrap();
    assert!(reply.len() <= 64 << 10 && reply.contains("of 10485760 bytes"), "{}", reply.len());
    script.set("huge");
    let reply = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(reply.contains("the maximum is 16 MB"), "{reply}");
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "act: {}");
}

#[tokio::test]
async fn the_number_of_offered_tools_is_bounded() {
    let script = Script::new();
    script.set("many");
    let setup = TestSetup::of(&script).await;
    assert_eq!(setup.names().len(), 128);
    let (names, problems) = setup.servers.list_tools("srv").await.unwrap();
    assert_eq!((names.len(), problems.len()), (1_000, 1));
}

#[tokio::test]
async fn only_permitted_tools_are_offered() {
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
    assert!(only("other__*").is_none(), "the server is not started");
}

#[tokio::test]
async fn a_server_and_its_children_end_with_the_runtime() {
    for stays in [false, true] {
        let script = Script::new();
        script.set("has-child");
        if stays {
            script.set("stays");
        }
        let setup = TestSetup::of(&script).await;
        let log = script.log();
        let pids = log.iter().filter_map(|line| {
            let pid = line.strip_prefix("started ").or_else(|| line.strip_prefix("child "))?;
            rustix::process::Pid::from_raw(pid.parse().ok()?)
        });
        let pids: Vec<_> = pids.collect();
        assert_eq!(pids.len(), 2, "{log:?}");
        setup.servers.close().await;
        assert!(script.log().contains(&"input ended".to_owned()), "its input is closed first");
        for pid in pids {
            // Another process reaps the orphaned child, in its own time.
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
    is_process_alive(pid.as_raw_nonzero().get().unsigned_abs())
}

#[tokio::test]
async fn referenced_secrets_are_redacted() {
    let script = Script::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cr3t-t0k3n\n").unwrap();
    let server = server(&script).env("TOKEN", ValueSource::file(&file));
    let setup = TestSetup::with(server).await;
    script.set("token");
    let reply = setup.call("srv__act", json!({})).await.unwrap();
    assert_eq!(reply, "the token is [secret]");
    script.set("die-at-act");
    let reply = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(reply.contains("the token is [secret]") && !reply.contains("s3cr3t"), "{reply}");
    std::fs::remove_file(&file).unwrap();
    script.set("die-at-look");
    let reply = setup.call("srv__look", json!({})).await.unwrap_err();
    assert!(reply.contains("`TOKEN`"), "{reply}");
}

#[tokio::test]
async fn a_long_line_is_redacted_before_truncation() {
    let script = Script::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cr3t-t0k3n\n").unwrap();
    let setup = TestSetup::with(server(&script).env("TOKEN", ValueSource::file(&file))).await;
    script.set("token-late");
    setup.call("srv__look", json!({})).await.unwrap();
    script.set("die-at-act");
    let reply = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(reply.contains("xxx") && !reply.contains("s3c"), "{reply}");
}

#[tokio::test]
async fn other_variables_are_not_inherited() {
    let script = Script::new();
    let setup = TestSetup::of(&script).await;
    let pid = script.log()[0].rsplit(' ').next().unwrap().to_owned();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the test has it");
    assert!(!environment.contains("CARGO_MANIFEST_DIR="), "{environment}");
    assert!(environment.contains("PATH="));
    drop(setup);
}
