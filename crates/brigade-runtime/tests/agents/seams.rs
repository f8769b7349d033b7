//! Backends, plugins and performers of a program: none of them leaves a run without an outcome.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_agent::definition::Definition;
use brigade_agent::{
    AgentExit, AgentOverrides, Backend, BackendRun, BoxFuture, HookContext, HookDecision,
    HookFuture, Plugin, StateKey, StateScope, SuspendResult, ToolEffect,
};
use brigade_llm::ModelReply;
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::action::StartAction;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::event::Event;
use brigade_model::ids::{Attempt, CallIndex};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::outcome::{EndConfirmation, Outcome};
use brigade_model::refusal::Refusal;
use brigade_model::shared_values::SHARED_MAX;
use brigade_model::task::TaskRow;
use brigade_model::work::KindPolicy;
use brigade_runtime::{
    AgentOptions, ChosenModel, Delivery, FeedUpdate, ModelSource, NewTask, OneModel, Performer,
    ReconcileResult, Reporter, Runtime, StopMode, TaskId,
};
use brigade_store::MemoryStore;
use brigade_testkit::{ManualClock, TestRuntime};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::support::{FunctionTool, failure, final_message, run, script, spawn, until_idle};

/// A backend that returns this exit, without a report to the host.
#[derive(Debug)]
struct Returning(AgentExit);

impl Backend for Returning {
    fn run<'a>(&'a self, _run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async { self.0.clone() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_returns_without_a_report_fails_the_run() {
    for exit in [
        AgentExit::Finished,
        AgentExit::Suspended,
        AgentExit::Refused(Refusal::unavailable("the service is away")),
    ] {
        let options =
            script("agent A\nturn\n say Never.\n").backend("theirs", Returning(exit.clone()));
        let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
        let overrides =
            AgentOverrides { backend: Some("theirs".into()), ..AgentOverrides::default() };
        let task = NewTask::agent("dig").overrides(&overrides);
        let agent = runtime.session.spawn(task).await.unwrap();
        let run_result = agent.wait_within(Duration::from_secs(3600)).await.unwrap();
        let run_result = run_result.unwrap_or_else(|| panic!("after {exit:?} it runs for ever"));
        assert_eq!(run_result.outcome.label(), "failed", "{exit:?}: {}", run_result.outcome);
    }
}

/// A slow backend that reads its whole inbox before it ends.
#[derive(Debug, Default)]
struct Reading(Arc<Mutex<Vec<Arc<CallCompletion>>>>);

impl Backend for Reading {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move { self.read_inbox(&run).await.unwrap_or_else(AgentExit::Refused) })
    }
}

impl Reading {
    async fn read_inbox(&self, run: &BackendRun<'_>) -> Result<AgentExit, Refusal> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut next = run.input.journal.len() as u32;
        while !run.host.finish(Vec::new(), Json::of("dug")?).await? {
            run.host.park(CallIndex(next), ConditionRequest::Inbox).await?;
            let SuspendResult::Completed(_, completion) = run.host.suspend(1).await? else {
                return Ok(AgentExit::Suspended);
            };
            self.0.lock().unwrap().push(completion);
            next += 1;
        }
        Ok(AgentExit::Finished)
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_reads_its_whole_inbox_before_it_ends() {
    let reading = Reading::default();
    let received = reading.0.clone();
    let options = script("agent A\nturn\n say Never.\n").backend("theirs", reading);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let overrides = AgentOverrides { backend: Some("theirs".into()), ..AgentOverrides::default() };
    let agent = runtime.session.spawn(NewTask::agent("dig").overrides(&overrides)).await.unwrap();
    agent.send("Deeper.").await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "dug");
    let received = format!("{:?}", received.lock().unwrap());
    assert!(received.contains("Deeper."), "{received}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_delegates_to_an_agent_with_a_backend() {
    let text = "agent Boss\nturn\n call spawn_agent {\"agent\": \"digger\", \"task\": \"Dig.\", \"wait\": \
                true}\nturn\n when dug\n say It is dug.\n";
    let digger = Definition::new("digger").description("Digs.").prompt("Dig.");
    let options = script(text).definition(digger.clone().backend("theirs")).unwrap();
    let options = options.backend("theirs", Reading::default());
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    assert_eq!(final_message(&run(&runtime, "Boss", "dig").await), "It is dug.");
    let options = script(text).definition(digger.backend("nobodys")).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let refused = runtime.session.spawn(NewTask::agent("dig").definition("digger")).await;
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("\"nobodys\""), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_charged_once_when_a_tool_is_stopped() {
    for limits in [Limits::default(), Limits { tokens: Some(100_000), ..Limits::default() }] {
        let options = script(
            "agent A\nusage input=1000 output=100\nturn\n say I wait now, for as long as it takes.\n \
             call hang {}\n",
        );
        let hang = FunctionTool::new("hang", ToolEffect::Pure, std::future::pending);
        let runtime = TestRuntime::new(|builder| builder.agents(options.tool(hang))).await;
        let task = NewTask::agent("wait").name("A").limits(limits);
        let agent = runtime.session.spawn(task).await.unwrap();
        until_idle(&runtime).await;
        agent.stop(None).await.unwrap();
        agent.wait().await.unwrap();
        assert_eq!(agent.get().await.unwrap().usage().tokens, 1100, "{limits:?}");
    }
}

/// A plugin that stores more in the session than is allowed.
#[derive(Debug)]
struct Overfilling;

#[derive(Debug, Default, Serialize, Deserialize)]
struct LargeState(String);

impl StateKey for LargeState {
    const NAME: &'static str = "large";
    const SCOPE: StateScope = StateScope::Session;
}

impl Plugin for Overfilling {
    fn name(&self) -> &str {
        "overfilling"
    }

    fn after_model<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { Ok(at.state.set(&LargeState("x".repeat(SHARED_MAX)))?) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_with_too_much_state_fails_the_run_and_its_cost_is_charged() {
    let text = "agent A\nusage input=1000 output=100\nturn\n say Done.\n";
    let options = script(text).plugin(Overfilling);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "hoard").await;
    let (failure, _) = failure(&agent.wait().await.unwrap());
    let expected = "the state of its plugins: the session's shared values would have";
    assert!(failure.to_string().contains(expected), "{failure}");
    assert_eq!(agent.get().await.unwrap().usage().tokens, 1100);
}

/// A plugin whose hook at the end of a run never returns.
#[derive(Debug)]
struct Hanging;

impl Plugin for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn run_end<'a>(
        &'a self,
        _at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_end_hooks_charges_the_last_reply() {
    for limits in [Limits::default(), Limits { tokens: Some(100_000), ..Limits::default() }] {
        let text = "agent A\nusage input=1000 output=100\nturn\n say Done.\n";
        let options = script(text).plugin(Hanging);
        let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
        let task = NewTask::agent("end").name("A").limits(limits);
        let agent = runtime.session.spawn(task).await.unwrap();
        until_idle(&runtime).await;
        agent.stop(None).await.unwrap();
        assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
        assert_eq!(agent.get().await.unwrap().usage().tokens, 1100, "{limits:?}");
    }
}

/// A plugin that blocks its thread until it is released.
#[derive(Debug, Default)]
struct Blocking {
    started: CancellationToken,
    release: Arc<AtomicBool>,
}

impl Plugin for Blocking {
    fn name(&self) -> &str {
        "blocking"
    }

    fn run_start<'a>(&'a self, _at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async {
            self.started.cancel();
            while !self.release.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        })
    }
}

/// A guard that releases the plugin, also if the test fails.
struct ReleaseOnDrop(Arc<AtomicBool>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_plugin_that_never_yields_does_not_block_a_stop() {
    let blocking = Blocking::default();
    let started = blocking.started.clone();
    let release = ReleaseOnDrop(blocking.release.clone());
    let clock = ManualClock::at(TestRuntime::START);
    let options = script("agent A\nturn\n say Never.\n").plugin(blocking);
    let builder = Runtime::builder().clock(Arc::new(clock.clone())).agents(options);
    let session = builder.start().await.unwrap().session("test").await.unwrap();
    let agent = session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    started.cancelled().await;
    let mut feed = session.subscribe(Default::default());
    agent.stop(None).await.unwrap();
    clock.advance(Duration::from_secs(5));
    // The deadline of the forced stop counts from its start, so wait for that event first.
    loop {
        match feed.next().await.unwrap().unwrap() {
            FeedUpdate::Event(item) if matches!(item.record.event, Event::StopForced { .. }) => {
                break;
            }
            _ => {}
        }
    }
    clock.advance(Duration::from_secs(5));
    let run_result = agent.wait().await.unwrap();
    let Outcome::Cancelled(cancelled) = &*run_result.outcome else {
        panic!("{}", run_result.outcome)
    };
    assert_eq!(cancelled.confirmation, EndConfirmation::Unconfirmed);
    drop(release);
}

/// A value that an agent shares with the session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Shared(u32);

impl StateKey for Shared {
    const NAME: &'static str = "shared";
    const SCOPE: StateScope = StateScope::Session;
}

/// A plugin with which the first agent sets the value, and each agent records what it reads.
#[derive(Debug, Default)]
struct Recording(Arc<Mutex<Vec<u32>>>);

impl Plugin for Recording {
    fn name(&self) -> &str {
        "recording"
    }

    fn run_start<'a>(&'a self, at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async {
            if at.agent == "First" {
                at.state.set(&Shared(7))?;
            }
            let shared = at.state.get::<Shared>()?.0;
            self.0.lock().unwrap().push(shared);
            Ok(())
        })
    }
}

/// A source that finds its model this many times.
#[derive(Debug)]
struct LimitedSource(AtomicUsize, OneModel);

impl ModelSource for LimitedSource {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let times = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        times.map_err(|_| Refusal::unavailable("not today"))?;
        self.1.find(name)
    }
}

/// A kind of work whose performer delays the start of a runtime.
#[derive(Debug)]
struct SlowPerformer;

impl Performer for SlowPerformer {
    fn start(&self, _start: StartAction, _reporter: Reporter) {}

    fn deliver(&self, _task: TaskId, _attempt: Attempt, _delivery: Delivery) {}

    fn stop(&self, _task: TaskId, _mode: StopMode) {}

    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        _row: &'a TaskRow,
        _reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        Box::pin(std::future::ready(ReconcileResult::NeverStarted))
    }

    fn tasks_with_data(&self) -> BoxFuture<'_, Vec<TaskId>> {
        Box::pin(async {
            // Let all other tasks run.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            Vec::new()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_during_recovery_reads_the_shared_state() {
    let store = Arc::new(MemoryStore::new());
    let text = "agent *\nturn\n say Done.\n";
    let seen = Arc::default();
    let recording = || Recording(Arc::clone(&seen));
    let model = ScriptedModel::new(Script::parse("test", text).unwrap());
    // The first agent is resolved and built, the second is only resolved.
    let source = LimitedSource(AtomicUsize::new(3), OneModel(Arc::new(model)));
    let options = AgentOptions::new(source).model("scripted").plugin(recording());
    let runtime = TestRuntime::on_store(store.clone(), |builder| builder.agents(options)).await;
    run(&runtime, "First", "leave").await;
    spawn(&runtime, "Second", "look").await;
    until_idle(&runtime).await;
    drop(runtime);
    let options = script(text).plugin(recording());
    let runtime = TestRuntime::on_store(store, |builder| {
        builder.agents(options).performer("slow", KindPolicy::restarted(), SlowPerformer)
    })
    .await;
    until_idle(&runtime).await;
    assert_eq!(*seen.lock().unwrap(), [7, 7]);
}
