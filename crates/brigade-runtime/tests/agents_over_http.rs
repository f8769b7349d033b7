//! Agents whose model is behind a real connection: every wire format, and its failures.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brigade_agent::definition::Definition;
use brigade_agent::{
    BoxFuture, ExecutionHints, ToolEffect, ToolError, ToolHandler, ToolInvocation,
    ToolReply as Done,
};
use brigade_llm::wire_server::{WireFormat, WireReply, WireRequest, WireServer, WireStatus};
use brigade_llm::{
    ChatMessage, KeySource, Model, ModelReply, ModelRequest, ProviderOptions, Recorder,
    ReplayModel, ReplyPart, RetryOptions, Script, ScriptedModel, ToolSpec, TransportLimits,
};
use brigade_model::call::RunResult;
use brigade_model::call::WaitMode;
use brigade_model::outcome::Outcome;
use brigade_runtime::{
    AgentOptions, ModelProviders, ModelSource, NewTask, OneModel, RecordedModels,
};
use brigade_testkit::TestRuntime;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};

/// The request does not name the agent, so the turns of an agent are found by the name of its
/// model.
const DELEGATING: &str = "
agent boss
usage input=100 output=10
turn
  think Somebody else could look.
  say I send somebody.
  call spawn_agent {\"name\": \"North\", \"agent\": \"north\", \"task\": \"Look in the north.\"}
turn
  when three mushrooms
  say Found: three mushrooms.
turn
  repeat
  when has started
  say On its way.

agent north
usage input=50 output=5
turn
  call look {\"path\": \"woods\"}
turn
  when you see trees
  say North: three mushrooms.
";

const PAYING: &str = "
agent boss
turn
  say I pay.
  call pay {}
turn
  when paid
  say Paid, and that was all there was to do here.
";

/// Serves a script over the wire. `answer` turns each reply into the server's response, and gets
/// the number of the request for this model.
async fn server(
    script: &str,
    answer: impl Fn(usize, ModelReply) -> WireReply + Send + Sync + 'static,
) -> WireServer {
    let model = ScriptedModel::new(Script::parse("http", script).unwrap());
    let counts = Mutex::new(HashMap::<String, usize>::new());
    let answered = move |request: WireRequest| {
        let nth = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(request.model.clone()).or_default();
            *count += 1;
            *count
        };
        answer(nth, reply(&model, request))
    };
    WireServer::start(answered).await.unwrap()
}

fn reply(model: &ScriptedModel, request: WireRequest) -> ModelReply {
    let parts = model.call(Arc::new(ModelRequest {
        agent: request.model.as_str().into(),
        model: request.model.into(),
        system: request.system.into(),
        messages: request.messages,
        tools: request.tools.into(),
        max_output: u32::MAX,
        temperature: None,
        effort: None,
    }));
    let parts = parts.collect::<Vec<_>>().now_or_never().expect("no turn of these scripts waits");
    match parts.into_iter().last() {
        Some(Ok(ReplyPart::Finished(reply))) => *reply,
        other => panic!("the script has {other:?}"),
    }
}

/// Returns options that retry soon, so that the tests do not wait.
fn soon() -> RetryOptions {
    RetryOptions { min_pause: Duration::from_millis(5), seed: Some(1), ..RetryOptions::default() }
}

/// Returns limits that are long enough for a busy machine and short enough to wait for a hang.
fn quick() -> TransportLimits {
    TransportLimits {
        header_timeout: Duration::from_secs(4),
        idle_timeout: Duration::from_secs(4),
        ..TransportLimits::default()
    }
}

/// Starts a runtime whose models are at `wire`.
async fn kitchen(wire: ProviderOptions, tools: Vec<Counted>) -> TestRuntime {
    kitchen_of(ModelProviders::new().provider("wire", wire).retry(soon()), tools).await
}

async fn kitchen_of(models: impl ModelSource, tools: Vec<Counted>) -> TestRuntime {
    let north = Definition::new("north").prompt("You look.").model("wire/north");
    let mut options = AgentOptions::new(models).model("wire/boss").definition(north).unwrap();
    for tool in tools {
        options = options.tool(tool);
    }
    TestRuntime::new(|builder| builder.agents(options)).await
}

async fn run(runtime: &TestRuntime, task: &str) -> (RunResult, String) {
    let boss = runtime.session.spawn(NewTask::agent(task).name("Boss")).await.unwrap();
    let run_result = boss.wait().await.unwrap();
    (run_result, runtime.session.transcript((&boss).into()).await.unwrap().unwrap())
}

#[track_caller]
fn final_message(run_result: &RunResult) -> String {
    match &*run_result.outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        other => panic!("it ended as {other}"),
    }
}

/// A tool that returns a text and counts its calls.
#[derive(Debug)]
struct Counted {
    spec: ToolSpec,
    says: &'static str,
    effect: ToolEffect,
    times: Arc<AtomicUsize>,
}

impl Counted {
    fn new(name: &str, effect: ToolEffect, says: &'static str) -> (Self, Arc<AtomicUsize>) {
        let times = Arc::<AtomicUsize>::default();
        let parameters = Arc::new(serde_json::json!({ "type": "object" }));
        let spec = ToolSpec { name: name.into(), description: name.into(), parameters };
        (Self { spec, says, effect, times: times.clone() }, times)
    }
}

impl ToolHandler for Counted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(self.effect)
    }

    fn call(&self, _call: ToolInvocation) -> BoxFuture<'_, Result<Done, ToolError>> {
        self.times.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Done::text(self.says)) })
    }
}

/// Runs a test for every format at once, and names the formats for which it failed.
async fn each<F: Future<Output = ()>>(test: impl Fn(WireFormat) -> F) {
    let tests = WireFormat::ALL.map(|format| {
        let test = tokio::time::timeout(Duration::from_secs(60), test(format));
        async move { (format, AssertUnwindSafe(test).catch_unwind().await) }
    });
    let ended = join_all(tests).await.into_iter();
    let failed: Vec<_> =
        ended.filter(|(_, ended)| !matches!(ended, Ok(Ok(())))).map(|(format, _)| format).collect();
    assert!(failed.is_empty(), "failed or hung for {failed:?}");
}

#[tokio::test]
async fn a_root_delegates_and_gets_the_result() {
    each(|format| async move {
        let server = server(DELEGATING, |_, reply| WireReply::ByteByByte(reply)).await;
        let (look, looked) = Counted::new("look", ToolEffect::Pure, "you see trees");
        let runtime = kitchen(server.options(format), vec![look]).await;
        let (run_result, transcript_text) = run(&runtime, "Find mushrooms.").await;
        assert_eq!(final_message(&run_result), "Found: three mushrooms.", "{transcript_text}");
        assert_eq!(looked.load(Ordering::Relaxed), 1);
        let requests = server.requests();
        let of = |model: &str| requests.iter().filter(|one| one.model == model).count();
        assert!((2..=3).contains(&of("boss")), "{} requests of the boss", of("boss"));
        assert_eq!(of("north"), 2);
        let tools = |request: &WireRequest| request.tools.iter().any(|t| &*t.name == "spawn_agent");
        assert!(requests.iter().all(tools), "each request has the tools");
        let row = runtime.session.get(run_result.no).await.unwrap().row;
        let tokens = 110 * of("boss") as u64 + 55 * of("north") as u64;
        assert_eq!(row.usage().tokens, tokens, "the usage is the count of the providers");
    })
    .await;
}

type Trouble = fn(ModelReply) -> WireReply;

/// Returns the failures of the server at the first request for the second turn.
fn troubles() -> [(&'static str, Trouble); 6] {
    [
        ("500", |_| WireReply::Status(WireStatus::new(500, "{\"error\":{\"message\":\"oh\"}}"))),
        ("garbage", |_| WireReply::Bytes(b"<html>Hello</html>\n\n".to_vec())),
        ("cut", WireReply::DisconnectMidway),
        ("ended early", WireReply::EndMidway),
        ("hung in the middle", WireReply::HangMidway),
        ("hung", |_| WireReply::Hang),
    ]
}

#[tokio::test]
async fn a_single_failure_is_retried_and_nothing_is_done_twice() {
    each(|format| async move {
        let all = troubles().map(|(what, trouble)| async move {
            let server = server(PAYING, move |nth, reply| match nth {
                2 => trouble(reply),
                _ => WireReply::Reply(reply),
            })
            .await;
            let (pay, paid) = Counted::new("pay", ToolEffect::Once, "paid");
            let runtime = kitchen(server.options(format).limits(quick()), vec![pay]).await;
            let (run_result, transcript_text) = run(&runtime, "Pay.").await;
            assert_eq!(
                final_message(&run_result),
                "Paid, and that was all there was to do here.",
                "{what}"
            );
            assert_eq!(paid.load(Ordering::Relaxed), 1, "{what}");
            assert_eq!(server.requests().len(), 3, "{what}");
            assert_eq!(
                transcript_text.matches("that was all").count(),
                1,
                "{what}: {transcript_text}"
            );
            let [_, cut, again] = &server.requests()[..] else { panic!("{what}") };
            assert_eq!(cut.messages, again.messages, "{what}");
            assert!(matches!(again.messages.last(), Some(ChatMessage::Results(_))), "{what}");
        });
        join_all(all).await;
    })
    .await;
}

#[tokio::test]
async fn a_repeated_failure_fails_the_run_truthfully() {
    each(|format| async move {
        let server = server(PAYING, |nth, reply| match nth {
            1 => WireReply::Reply(reply),
            _ => WireReply::DisconnectMidway(reply),
        })
        .await;
        let (pay, paid) = Counted::new("pay", ToolEffect::Once, "paid");
        let runtime = kitchen(server.options(format), vec![pay]).await;
        let (run_result, _) = run(&runtime, "Pay.").await;
        assert_eq!(run_result.outcome.label(), "failed");
        let problem = run_result.outcome.to_string();
        assert!(
            problem.contains("the model: ") && problem.contains("(tried 8 times)"),
            "{problem}"
        );
        let Outcome::Failed(failed) = &*run_result.outcome else { panic!("{problem}") };
        let partial = failed.partial.as_ref().unwrap().decode::<String>().unwrap();
        assert_eq!(partial, "I pay.", "the last message is kept");
        assert_eq!((paid.load(Ordering::Relaxed), server.requests().len()), (1, 9));
    })
    .await;
}

#[tokio::test]
async fn siblings_slow_down_together() {
    const SIBLINGS: usize = 12;
    const BUSY: Duration = Duration::from_millis(900);
    const ASKED: Duration = Duration::from_secs(1);
    const REPLY: Duration = Duration::from_millis(25);
    each(|format| async move {
        let arrivals = Arc::new(Mutex::new(Vec::<Instant>::new()));
        let noted = arrivals.clone();
        let server = server("agent *\nturn\n say Done.\n", move |_, reply| {
            let mut arrivals = noted.lock().unwrap();
            arrivals.push(Instant::now());
            if arrivals[0].elapsed() > BUSY {
                return WireReply::Slow(reply, REPLY);
            }
            let status = WireStatus::new(429, "{\"error\":{\"message\":\"Slow down.\"}}");
            WireReply::Status(status.header("retry-after", "1"))
        })
        .await;
        let runtime = kitchen(server.options(format), Vec::new()).await;
        let tasks = (0..SIBLINGS).map(|_| NewTask::agent("Go."));
        runtime.session.spawn_all(tasks).await.unwrap();
        let run_results = runtime.session.wait_uncollected(WaitMode::All).await.unwrap();
        let done = run_results
            .iter()
            .filter(|run_result| run_result.outcome.label() == "succeeded")
            .count();
        assert_eq!(done, SIBLINGS, "{format:?}");
        let arrivals = arrivals.lock().unwrap();
        let since: Vec<Duration> = arrivals.iter().map(|at| *at - arrivals[0]).collect();
        let refused = since.iter().filter(|at| **at <= BUSY).count();
        assert!(refused <= SIBLINGS, "{format:?}: {refused} were refused: {since:?}");
        let after: Vec<_> = since.iter().filter(|at| **at > BUSY).collect();
        assert_eq!(after.len(), SIBLINGS, "{format:?}: no request was refused: {since:?}");
        assert!(*after[0] >= ASKED, "{format:?}: too soon: {since:?}");
        // The second waits for the reply of the first.
        assert!(*after[1] - *after[0] >= REPLY, "{format:?}: a herd: {since:?}");
    })
    .await;
}

#[tokio::test]
async fn a_missing_key_is_named_and_nothing_is_sent() {
    each(|format| async move {
        let server = server(PAYING, |_, reply| WireReply::Reply(reply)).await;
        let key = KeySource::Env("BRIGADE_TEST_HAS_NO_SUCH_KEY".to_owned());
        let runtime = kitchen(server.options(format).key(key), Vec::new()).await;
        let refused = runtime.session.spawn(NewTask::agent("Pay.")).await.unwrap_err();
        assert!(refused.message.contains("BRIGADE_TEST_HAS_NO_SUCH_KEY"), "{refused}");
        assert!(runtime.session.list().is_empty() && server.requests().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_wrong_key_fails_at_once() {
    each(|format| async move {
        let status = WireStatus::new(401, "{\"error\":{\"message\":\"no such key\"}}");
        let server = server(PAYING, move |_, _| WireReply::Status(status.clone())).await;
        let runtime = kitchen(server.options(format), Vec::new()).await;
        let (run_result, _) = run(&runtime, "Pay.").await;
        assert_eq!(run_result.outcome.label(), "failed");
        assert_eq!(server.requests().len(), 1, "a wrong key stays wrong");
    })
    .await;
}

/// Returns the script in which the boss waits for its helper, so that every run is the same.
fn waiting() -> String {
    DELEGATING.replace(r#""agent": "north", "#, r#""agent": "north", "wait": true, "#)
}

#[tokio::test]
async fn a_recorded_run_is_played_again_without_a_server() {
    each(|format| async move {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mushrooms.jsonl");
        let server = server(&waiting(), |_, reply| WireReply::ByteByByte(reply)).await;
        let source = ModelProviders::new().provider("wire", server.options(format)).retry(soon());
        let recorder = Recorder::open(&file).unwrap();
        let (look, _) = Counted::new("look", ToolEffect::Pure, "you see trees");
        let runtime = kitchen_of(RecordedModels { source, recorder }, vec![look]).await;
        let (run_result, transcript_text) = run(&runtime, "Find mushrooms.").await;
        assert_eq!(final_message(&run_result), "Found: three mushrooms.", "{transcript_text}");
        let used = runtime.session.get(run_result.no).await.unwrap().row.usage().tokens;
        drop((runtime, server));

        let replay = OneModel(Arc::new(ReplayModel::load(&file).unwrap()));
        let (look, looked) = Counted::new("look", ToolEffect::Pure, "you see trees");
        let runtime = kitchen_of(replay, vec![look]).await;
        let (again, transcript_again) = run(&runtime, "Find mushrooms.").await;
        assert_eq!(final_message(&again), final_message(&run_result));
        assert_eq!(transcript_again, transcript_text);
        assert_eq!(looked.load(Ordering::Relaxed), 1, "tools are called, models are not");
        assert_eq!(runtime.session.get(again.no).await.unwrap().row.usage().tokens, used);
    })
    .await;
}

#[tokio::test]
async fn a_result_that_differs_from_the_recording_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mushrooms.jsonl");
    let scripted = Arc::new(ScriptedModel::new(
        Script::parse("played", PAYING.replace("boss", "Boss").as_str()).unwrap(),
    ));
    let models =
        RecordedModels { source: OneModel(scripted), recorder: Recorder::open(&file).unwrap() };
    let (pay, _) = Counted::new("pay", ToolEffect::Once, "paid 3 coins");
    run(&kitchen_of(models, vec![pay]).await, "Pay.").await;
    let replay = OneModel(Arc::new(ReplayModel::load(&file).unwrap()));
    let (pay, _) = Counted::new("pay", ToolEffect::Once, "paid 4 coins");
    let (run_result, _) = run(&kitchen_of(replay, vec![pay]).await, "Pay.").await;
    let problem = run_result.outcome.to_string();
    for part in ["mushrooms.jsonl:3", "the result of pay", "paid 3 coins", "paid 4 coins"] {
        assert!(problem.contains(part), "{part:?} is not in {problem}");
    }
}
