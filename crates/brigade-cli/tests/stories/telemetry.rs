//! Telemetry of agents: spans at a collector, and metrics.

use std::net::TcpListener;
use std::process::Command;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::collector::{Collector, has, number, text};
use crate::story_env::{Ran, StoryEnv, poll};

const KEY: &str = "sk-of-nobodys-business";

/// A boss with a helper that calls one tool, and one that does not exist.
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

/// A helper that waits for a file.
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

fn command<const N: usize>(story: &StoryEnv, endpoint: &str, args: [&str; N]) -> Command {
    let mut command = story.command(args);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "20");
    command.env("OPENAI_API_KEY", KEY);
    command
}

/// Runs an agent in a daemon that sends its spans to the endpoint.
fn run(story: &StoryEnv, endpoint: &str) -> Ran {
    let mut command = command(story, endpoint, ["run", "--name", "Boss", "Do it"]);
    command.output().unwrap().into()
}

#[test]
fn spans_have_names_parents_links_and_usage() {
    let story = StoryEnv::new();
    let collector = Collector::new();
    story.script(FAMILY);
    let ran = run(&story, &collector.endpoint);
    assert_eq!(ran.out, "The helper is back.\n", "{}", ran.err);
    story.ok(["daemon", "stop"]);

    let bosses = collector.named("invoke_agent Boss");
    let helpers = collector.named("invoke_agent Helper");
    assert_eq!(helpers.len(), 1, "one attempt");
    let boss = &bosses[0];
    let helper = &helpers[0];
    for span in bosses.iter().chain(&helpers) {
        assert!(span.parent_span_id.is_empty(), "an attempt has no parent span");
        assert_eq!(span.kind, SpanKind::Internal as i32);
        assert_eq!(text(&span.attributes, "gen_ai.operation.name"), "invoke_agent");
        assert_eq!(text(&span.attributes, "gen_ai.provider.name"), "script");
    }
    assert!(bosses.iter().all(|span| span.trace_id == boss.trace_id && span.links.is_empty()));
    assert!(text(&helper.attributes, "gen_ai.agent.id").ends_with("/agent:2"));
    assert_eq!(text(&helper.attributes, "gen_ai.agent.name"), "Helper");
    assert_eq!(text(&helper.attributes, "brigade.attempt.end"), "finished");

    assert_ne!(helper.trace_id, boss.trace_id);
    let first = bosses.iter().find(|span| number(span, "brigade.attempt") == 1).unwrap();
    let links: Vec<_> = helper.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
    assert_eq!(links, [(&first.trace_id, &first.span_id)]);

    let used = |name| bosses.iter().map(|span| number(span, name)).sum::<i64>();
    assert_eq!(used("gen_ai.usage.input_tokens"), 2700);
    assert_eq!(used("gen_ai.usage.output_tokens"), 300);
    assert_eq!(number(helper, "gen_ai.usage.input_tokens"), 120);

    let spans = collector.spans();
    let of_operation = |trace: &[u8], operation: &str| -> Vec<_> {
        let matches = |name: &str| name.split(' ').next() == Some(operation);
        spans.iter().filter(|span| span.trace_id == trace && matches(&span.name)).collect()
    };
    let chats = of_operation(&boss.trace_id, "chat");
    assert_eq!(chats.len(), 3);
    for chat in &chats {
        assert!(bosses.iter().any(|span| span.span_id == chat.parent_span_id));
        assert_eq!(chat.kind, SpanKind::Client as i32);
        let usage = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"];
        assert_eq!(usage.map(|name| number(chat, name)), [900, 100]);
        assert_eq!(chat.name, format!("chat {}", text(&chat.attributes, "gen_ai.request.model")));
        assert!(has(chat, "gen_ai.response.finish_reasons"));
    }
    let tools = of_operation(&helper.trace_id, "execute_tool");
    assert_eq!(tools.len(), 1, "a refused call has no span");
    assert_eq!(tools[0].parent_span_id, helper.span_id);
    assert_eq!(tools[0].name, "execute_tool list_tasks");
    assert_eq!(text(&tools[0].attributes, "gen_ai.tool.name"), "list_tasks");
    assert!(!text(&tools[0].attributes, "gen_ai.tool.call.id").is_empty());
    assert!(tools[0].status.as_ref().is_none_or(|status| status.code == StatusCode::Unset as i32));

    let requests = collector.requests();
    let resource = requests[0].resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "brigade");
}

#[test]
fn spans_have_no_texts_and_no_keys() {
    let story = StoryEnv::new();
    let collector = Collector::new();
    story.script(FAMILY);
    assert_eq!(run(&story, &collector.endpoint).code, 0);
    story.ok(["daemon", "stop"]);
    let sent = collector.bytes();
    let contains = |text: &str| sent.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(contains("invoke_agent Boss"), "they were sent");
    for secret in [KEY, "OPENAI", "curtain", "One helper", "rabbit", "swordfish", "is back"] {
        assert!(!contains(secret), "{secret} was sent");
    }
}

#[test]
fn a_stop_marks_interrupted_spans() {
    let story = StoryEnv::new();
    let collector = Collector::new();
    story.script("agent *\nturn\n  fault hang always\n  say Never.\n");
    let detached = ["run", "--detach", "--name", "Boss", "Do it"];
    assert!(command(&story, &collector.endpoint, detached).output().unwrap().status.success());
    poll("a model call", || {
        let shown = story.json(["show", "Boss"]);
        (shown["progress"]["activity"] == "thinking").then_some(())
    });
    story.ok(["stop", "Boss"]);
    story.ok(["daemon", "stop"]);
    let agent = collector.named("invoke_agent Boss").remove(0);
    assert_eq!(text(&agent.attributes, "brigade.attempt.end"), "stopped");
    let chat = collector.spans().into_iter().find(|span| span.name.starts_with("chat ")).unwrap();
    assert_eq!(text(&chat.attributes, "error.type"), "interrupted");
    assert_eq!(chat.status.unwrap().code, StatusCode::Error as i32);
}

#[test]
fn a_child_links_to_its_parent_after_a_crash() {
    let story = StoryEnv::new();
    let collector = Collector::new();
    story.script(PATIENT);
    let allow = "--allow=run_process";
    let detached = ["run", "--detach", "--name", "Boss", allow, "Do it"];
    assert!(command(&story, &collector.endpoint, detached).output().unwrap().status.success());
    let boss = collector.until_named("invoke_agent Boss").remove(0);
    collector.until_named("invoke_agent Helper");
    story.kill_daemon();
    std::fs::write(story.project().join("go"), "").unwrap();
    let waited = command(&story, &collector.endpoint, ["wait", "Boss"]).output().unwrap();
    assert!(waited.status.success(), "{waited:?}");
    story.ok(["daemon", "stop"]);

    let helpers = collector.named("invoke_agent Helper");
    assert!(helpers.len() > 1, "it continued in the next daemon");
    for helper in &helpers {
        assert_eq!(helper.trace_id, helpers[0].trace_id);
        let links: Vec<_> =
            helper.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
        assert_eq!(links, [(&boss.trace_id, &boss.span_id)]);
    }
    let mut ids: Vec<_> = helpers.iter().map(|helper| &helper.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), helpers.len(), "each attempt has its own span");
}

#[test]
fn an_unreachable_collector_changes_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    for endpoint in ["http://127.0.0.1:9", &silent, "http://[broken"] {
        let story = StoryEnv::new();
        story.script(FAMILY);
        let ran = run(&story, endpoint);
        assert_eq!((ran.code, &*ran.out), (0, "The helper is back.\n"), "{endpoint}: {}", ran.err);
        story.ok(["daemon", "stop"]);
    }
}

#[test]
fn a_collector_that_accepts_nothing_is_logged_once() {
    let refusing = Collector::answering("401 Unauthorized");
    for (endpoint, problem) in [
        (&*refusing.endpoint, "it answers 401 Unauthorized"),
        ("http://127.0.0.1:9", "Connection refused"),
    ] {
        let story = StoryEnv::new();
        story.script(FAMILY);
        let headers = "authorization=Bearer%20of-the-collector";
        let mut run = command(&story, endpoint, ["run", "--name", "Boss", "Do it"]);
        run.env("OTEL_EXPORTER_OTLP_HEADERS", headers);
        assert!(run.output().unwrap().status.success());
        story.ok(["daemon", "stop"]);
        let log = std::fs::read_to_string(story.state().join("daemon.log")).unwrap();
        let warnings: Vec<&str> =
            log.lines().filter(|line| line.contains("does not accept")).collect();
        assert!(warnings.len() == 1 && warnings[0].contains(problem), "{log}");
        assert!(!log.contains("of-the-collector"), "{log}");
    }
}

#[test]
fn a_configured_endpoint_is_used() {
    let story = StoryEnv::new();
    let collector = Collector::new();
    story.script(FAMILY);
    let config = story.home().join(".config/brigade/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let endpoint = &collector.endpoint;
    std::fs::write(config, format!("{text}\n[telemetry]\nendpoint = \"{endpoint}/\"\n")).unwrap();
    story.ok(["run", "--name", "Boss", "Do it"]);
    story.ok(["daemon", "stop"]);
    assert_eq!(collector.named("invoke_agent Helper").len(), 1);
}

#[test]
fn the_standard_variables_are_respected() {
    for (name, value, is_sent) in [
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-collector", true),
        ("OTEL_SDK_DISABLED", "true", false),
        ("OTEL_TRACES_EXPORTER", "none", false),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", false),
    ] {
        let story = StoryEnv::new();
        let collector = Collector::new();
        story.script(FAMILY);
        let mut run = command(&story, &collector.endpoint, ["run", "--name", "Boss", "Do it"]);
        assert!(run.env(name, value).output().unwrap().status.success());
        story.ok(["daemon", "stop"]);
        assert_eq!(!collector.spans().is_empty(), is_sent, "{name}");
        let is_signed = |key: &String| key == "Bearer of-the-collector";
        assert!(collector.keys().iter().all(is_signed), "{:?}", collector.keys());
        assert_eq!(!collector.keys().is_empty(), is_sent, "{name}");
    }
}

#[test]
fn metrics_count_tasks_calls_and_tokens() {
    let story = StoryEnv::new();
    story.script(FAMILY);
    story.ok(["run", "--name", "Boss", "Do it"]);
    assert_eq!(story.run(["exec", "--", "sh", "-c", "exit 3"]).code, 3);
    let metrics = story.ok(["metrics"]);
    let all: Vec<&str> = metrics.lines().collect();
    for expected in [
        r#"brigade_spawns_total{kind="agent"} 2"#,
        r#"brigade_spawns_total{kind="process"} 1"#,
        r#"brigade_runs_ended_total{kind="agent",outcome="succeeded",failure=""} 2"#,
        r#"brigade_runs_ended_total{kind="process",outcome="failed",failure="exit_code"} 1"#,
        r#"brigade_tool_calls_total{tool="spawn_agent",status="succeeded"} 1"#,
        r#"brigade_tool_calls_total{tool="list_tasks",status="succeeded"} 1"#,
        r#"brigade_tool_calls_total{tool="unknown",status="refused"} 1"#,
        r#"brigade_tasks{state="queued"} 0"#,
        r#"brigade_tasks{state="running"} 0"#,
        "brigade_commit_failures_total 0",
    ] {
        assert!(all.contains(&expected), "no {expected} in\n{metrics}");
    }
    let tokens = all.iter().find(|line| line.starts_with("brigade_tokens_total{")).unwrap();
    assert!(tokens.ends_with(" 3126"), "{tokens}");
    assert!(metrics.contains("brigade_commit_seconds_bucket{le="), "{metrics}");
    assert!(!metrics.contains("no_such_tool"), "a model could invent any number of names");
}

#[test]
fn the_own_usage_of_a_task_excludes_its_subtree() {
    let story = StoryEnv::new();
    story.script(FAMILY);
    story.ok(["run", "--name", "Boss", "Do it"]);
    let tokens = |task: &str| {
        let shown = story.json(["show", task]);
        ["usage", "own_usage"].map(|field| shown[field]["tokens"].as_u64().unwrap())
    };
    assert_eq!(tokens("Boss"), [3126, 3000]);
    assert_eq!(tokens("Helper"), [126, 126]);
    let shown = story.ok(["show", "Boss"]);
    assert!(shown.contains("own usage  3000 tokens"), "{shown}");
    let tree = story.ok(["tree", "--ended"]);
    assert!(tree.contains("3126 tokens") && tree.contains("126 tokens"), "{tree}");
}
