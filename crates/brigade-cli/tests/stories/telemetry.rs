//! What is seen of agents from outside: spans at a collector, and counts.

use std::net::TcpListener;
use std::process::Command;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::collector::{Collector, has, number, text};
use crate::kitchen::{Kitchen, Ran, poll};

const KEY: &str = "sk-of-nobodys-business";

/// A boss with a helper that uses one tool, and asks for one that is not there.
const FAMILY: &str = r#"
agent Boss
usage input=900 output=100
turn
  say One helper will do.
  call spawn_agent {"name": "Helper", "task": "Look behind the curtain."}
turn
  when has started
  call wait_tasks {}
turn
  say The helper is back.

agent Helper
usage input=40 output=2
turn
  call list_tasks {}
turn
  call no_such_tool {"password": "swordfish"}
turn
  say A rabbit.
"#;

/// The helper stays until there is a file.
const PATIENT: &str = r#"
agent Boss
turn
  call spawn_agent {"name": "Helper", "task": "Wait."}
turn
  when has started
  call wait_tasks {}
turn
  say Over.

agent Helper
turn
  call run_process {"command": "until [ -e go ]; do sleep 0.02; done"}
turn
  say Gone.
"#;

fn command<const N: usize>(kitchen: &Kitchen, endpoint: &str, args: [&str; N]) -> Command {
    let mut command = kitchen.command(args);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "20");
    command.env("OPENAI_API_KEY", KEY);
    command
}

/// A daemon that sends its spans there, and an agent in it.
fn run(kitchen: &Kitchen, endpoint: &str) -> Ran {
    let mut command = command(kitchen, endpoint, ["run", "--name", "Boss", "Do it"]);
    command.output().unwrap().into()
}

#[test]
fn spans_say_who_did_what_within_what_and_for_whom() {
    let (kitchen, collector) = (Kitchen::new(), Collector::new());
    kitchen.script(FAMILY);
    let ran = run(&kitchen, &collector.endpoint);
    assert_eq!(ran.out, "The helper is back.\n", "{}", ran.err);
    kitchen.ok(["daemon", "stop"]);

    let (bosses, helpers) =
        (collector.named("invoke_agent Boss"), collector.named("invoke_agent Helper"));
    assert_eq!(helpers.len(), 1, "it was never interrupted");
    let (boss, helper) = (&bosses[0], &helpers[0]);
    for span in bosses.iter().chain(&helpers) {
        assert!(span.parent_span_id.is_empty(), "an attempt is within nothing");
        assert_eq!(span.kind, SpanKind::Internal as i32);
        assert_eq!(text(&span.attributes, "gen_ai.operation.name"), "invoke_agent");
        assert_eq!(text(&span.attributes, "gen_ai.provider.name"), "script");
    }
    assert!(bosses.iter().all(|one| one.trace_id == boss.trace_id && one.links.is_empty()));
    assert!(text(&helper.attributes, "gen_ai.agent.id").ends_with("/agent:2"));
    assert_eq!(text(&helper.attributes, "gen_ai.agent.name"), "Helper");
    assert_eq!(text(&helper.attributes, "brigade.outcome"), "finished");

    assert_ne!(helper.trace_id, boss.trace_id);
    let first = bosses.iter().find(|one| number(one, "brigade.attempt") == 1).unwrap();
    let links: Vec<_> = helper.links.iter().map(|one| (&one.trace_id, &one.span_id)).collect();
    assert_eq!(links, [(&first.trace_id, &first.span_id)]);

    let spent = |name| bosses.iter().map(|one| number(one, name)).sum::<i64>();
    assert_eq!(spent("gen_ai.usage.input_tokens"), 2700);
    assert_eq!(spent("gen_ai.usage.output_tokens"), 300);
    assert_eq!(number(helper, "gen_ai.usage.input_tokens"), 120);

    let spans = collector.spans();
    let within = |trace: &[u8], what: &str| -> Vec<_> {
        let is = |name: &str| name.split(' ').next() == Some(what);
        spans.iter().filter(|span| span.trace_id == trace && is(&span.name)).collect()
    };
    let chats = within(&boss.trace_id, "chat");
    assert_eq!(chats.len(), 3);
    for chat in &chats {
        assert!(bosses.iter().any(|one| one.span_id == chat.parent_span_id));
        assert_eq!(chat.kind, SpanKind::Client as i32);
        let usage = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"];
        assert_eq!(usage.map(|name| number(chat, name)), [900, 100]);
        assert_eq!(chat.name, format!("chat {}", text(&chat.attributes, "gen_ai.request.model")));
        assert!(has(chat, "gen_ai.response.finish_reasons"));
    }
    let tools = within(&helper.trace_id, "execute_tool");
    assert_eq!(tools.len(), 1, "what is refused is not carried out");
    assert_eq!(tools[0].parent_span_id, helper.span_id);
    assert_eq!(tools[0].name, "execute_tool list_tasks");
    assert_eq!(text(&tools[0].attributes, "gen_ai.tool.name"), "list_tasks");
    assert!(!text(&tools[0].attributes, "gen_ai.tool.call.id").is_empty());
    assert!(tools[0].status.as_ref().is_none_or(|is| is.code == StatusCode::Unset as i32));

    let requests = collector.requests();
    let resource = requests[0].resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "brigade");
}

#[test]
fn spans_have_no_words_and_no_keys() {
    let (kitchen, collector) = (Kitchen::new(), Collector::new());
    kitchen.script(FAMILY);
    assert_eq!(run(&kitchen, &collector.endpoint).code, 0);
    kitchen.ok(["daemon", "stop"]);
    let sent = collector.bytes();
    let contains = |text: &str| sent.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(contains("invoke_agent Boss"), "they were sent");
    for words in [KEY, "OPENAI", "curtain", "One helper", "rabbit", "swordfish", "is back"] {
        assert!(!contains(words), "{words} was sent");
    }
}

#[test]
fn what_a_stop_cuts_off_is_marked_so() {
    let (kitchen, collector) = (Kitchen::new(), Collector::new());
    kitchen.script("agent *\nturn\n  fault hang always\n  say Never.\n");
    let detached = ["run", "--detach", "--name", "Boss", "Do it"];
    assert!(command(&kitchen, &collector.endpoint, detached).output().unwrap().status.success());
    poll("it asks its model", || {
        let shown = kitchen.json(["show", "Boss"]);
        (shown["progress"]["doing"] == "thinking").then_some(())
    });
    kitchen.ok(["stop", "Boss"]);
    kitchen.ok(["daemon", "stop"]);
    let agent = collector.named("invoke_agent Boss").remove(0);
    assert_eq!(text(&agent.attributes, "brigade.outcome"), "stopped");
    let chat = collector.spans().into_iter().find(|span| span.name.starts_with("chat ")).unwrap();
    assert_eq!(text(&chat.attributes, "error.type"), "interrupted");
    assert_eq!(chat.status.unwrap().code, StatusCode::Error as i32);
}

#[test]
fn a_child_finds_its_parent_after_a_crash() {
    let (kitchen, collector) = (Kitchen::new(), Collector::new());
    kitchen.script(PATIENT);
    let allow = "--allow=run_process";
    let detached = ["run", "--detach", "--name", "Boss", allow, "Do it"];
    assert!(command(&kitchen, &collector.endpoint, detached).output().unwrap().status.success());
    let boss = collector.until_named("invoke_agent Boss").remove(0);
    collector.until_named("invoke_agent Helper");
    kitchen.kill_daemon();
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let waited = command(&kitchen, &collector.endpoint, ["wait", "Boss"]).output().unwrap();
    assert!(waited.status.success(), "{waited:?}");
    kitchen.ok(["daemon", "stop"]);

    let helpers = collector.named("invoke_agent Helper");
    assert!(helpers.len() > 1, "it went on in the next daemon");
    for helper in &helpers {
        assert_eq!(helper.trace_id, helpers[0].trace_id);
        let links: Vec<_> = helper.links.iter().map(|one| (&one.trace_id, &one.span_id)).collect();
        assert_eq!(links, [(&boss.trace_id, &boss.span_id)]);
    }
    let mut ids: Vec<_> = helpers.iter().map(|helper| &helper.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), helpers.len(), "each attempt is a span of its own");
}

#[test]
fn a_collector_that_is_away_changes_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (format!("http://{}", silent.local_addr().unwrap()), silent);
    for endpoint in ["http://127.0.0.1:9", &silent.0, "http://[broken"] {
        let kitchen = Kitchen::new();
        kitchen.script(FAMILY);
        let ran = run(&kitchen, endpoint);
        assert_eq!((ran.code, &*ran.out), (0, "The helper is back.\n"), "{endpoint}: {}", ran.err);
        kitchen.ok(["daemon", "stop"]);
    }
}

#[test]
fn a_collector_that_takes_nothing_is_told_of_once() {
    let refusing = Collector::answering("401 Unauthorized");
    for (endpoint, problem) in [
        (&*refusing.endpoint, "it answers 401 Unauthorized"),
        ("http://127.0.0.1:9", "Connection refused"),
    ] {
        let kitchen = Kitchen::new();
        kitchen.script(FAMILY);
        let headers = "authorization=Bearer%20of-the-collector";
        let mut run = command(&kitchen, endpoint, ["run", "--name", "Boss", "Do it"]);
        run.env("OTEL_EXPORTER_OTLP_HEADERS", headers);
        assert!(run.output().unwrap().status.success());
        kitchen.ok(["daemon", "stop"]);
        let log = std::fs::read_to_string(kitchen.state().join("daemon.log")).unwrap();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("does not take")).collect();
        assert!(told.len() == 1 && told[0].contains(problem), "{log}");
        assert!(!log.contains("of-the-collector"), "{log}");
    }
}

#[test]
fn a_configured_endpoint_is_used() {
    let (kitchen, collector) = (Kitchen::new(), Collector::new());
    kitchen.script(FAMILY);
    let config = kitchen.home().join(".config/brigade/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let endpoint = &collector.endpoint;
    std::fs::write(config, format!("{text}\n[telemetry]\nendpoint = \"{endpoint}/\"\n")).unwrap();
    kitchen.ok(["run", "--name", "Boss", "Do it"]);
    kitchen.ok(["daemon", "stop"]);
    assert_eq!(collector.named("invoke_agent Helper").len(), 1);
}

#[test]
fn the_standard_variables_hold() {
    for (name, value, is_sent) in [
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-collector", true),
        ("OTEL_SDK_DISABLED", "true", false),
        ("OTEL_TRACES_EXPORTER", "none", false),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", false),
    ] {
        let (kitchen, collector) = (Kitchen::new(), Collector::new());
        kitchen.script(FAMILY);
        let mut run = command(&kitchen, &collector.endpoint, ["run", "--name", "Boss", "Do it"]);
        assert!(run.env(name, value).output().unwrap().status.success());
        kitchen.ok(["daemon", "stop"]);
        assert_eq!(!collector.spans().is_empty(), is_sent, "{name}");
        let is_signed = |key: &String| key == "Bearer of-the-collector";
        assert!(collector.keys().iter().all(is_signed), "{:?}", collector.keys());
        assert_eq!(!collector.keys().is_empty(), is_sent, "{name}");
    }
}

#[test]
fn what_is_stored_is_counted() {
    let kitchen = Kitchen::new();
    kitchen.script(FAMILY);
    kitchen.ok(["run", "--name", "Boss", "Do it"]);
    assert_eq!(kitchen.run(["exec", "--", "sh", "-c", "exit 3"]).code, 3);
    let counts = kitchen.ok(["metrics"]);
    let all: Vec<&str> = counts.lines().collect();
    for expected in [
        r#"brigade_spawns_total{kind="agent"} 2"#,
        r#"brigade_spawns_total{kind="process"} 1"#,
        r#"brigade_endings_total{kind="agent",outcome="succeeded",failure=""} 2"#,
        r#"brigade_endings_total{kind="process",outcome="failed",failure="exit_code"} 1"#,
        r#"brigade_tool_calls_total{tool="spawn_agent",outcome="succeeded"} 1"#,
        r#"brigade_tool_calls_total{tool="list_tasks",outcome="succeeded"} 1"#,
        r#"brigade_tool_calls_total{tool="unknown",outcome="refused"} 1"#,
        r#"brigade_tasks{state="queued"} 0"#,
        r#"brigade_tasks{state="running"} 0"#,
        "brigade_commit_failures_total 0",
    ] {
        assert!(all.contains(&expected), "no {expected} in\n{counts}");
    }
    let tokens = all.iter().find(|line| line.starts_with("brigade_tokens_total{")).unwrap();
    assert!(tokens.ends_with(" 3126"), "{tokens}");
    assert!(counts.contains("brigade_commit_seconds_bucket{le="), "{counts}");
    assert!(!counts.contains("no_such_tool"), "a model could make up names without end");
}

#[test]
fn what_a_task_spent_itself_is_apart_from_its_subtree() {
    let kitchen = Kitchen::new();
    kitchen.script(FAMILY);
    kitchen.ok(["run", "--name", "Boss", "Do it"]);
    let spent = |task: &str| {
        let shown = kitchen.json(["show", task]);
        ["usage", "own_usage"].map(|which| shown[which]["tokens"].as_u64().unwrap())
    };
    assert_eq!(spent("Boss"), [3126, 3000]);
    assert_eq!(spent("Helper"), [126, 126]);
    let shown = kitchen.ok(["show", "Boss"]);
    assert!(shown.contains("itself     3000 tokens"), "{shown}");
    let tree = kitchen.ok(["tree", "--ended"]);
    assert!(tree.contains("3126 tokens") && tree.contains("126 tokens"), "{tree}");
}
