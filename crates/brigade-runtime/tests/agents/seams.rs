//! Where what a program brings meets the runtime: nothing it does leaves a run in between.

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
use brigade_runtime::{
    AgentOptions, ChosenModel, Delivery, FeedUpdate, ModelSource, NewTask, OneModel, Performer,
    ReconcileResult, Reporter, Runtime, StopMode, TaskId,
};
use brigade_store::MemoryStore;
use brigade_testkit::{ManualClock, TestRuntime};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::support::{Made, failure, run, script, settled, spawn, words};

/// Leaves as it is told, without a word to the host.
#[derive(Debug)]
struct Leaving(AgentExit);

impl Backend for Leaving {
    fn run<'a>(&'a self, _run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async { self.0.clone() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_leaves_without_an_ending_is_the_end_of_the_run() {
    for exit in [
        AgentExit::Finished,
        AgentExit::Suspended,
        AgentExit::Refused(Refusal::unavailable("the service is away")),
    ] {
        let options =
            script("agent A\nturn\n say Never.\n").backend("theirs", Leaving(exit.clone()));
        let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
        let overrides =
            AgentOverrides { backend: Some("theirs".into()), ..AgentOverrides::default() };
        let task = NewTask::agent("dig").overrides(&overrides);
        let agent = runtime.session.spawn(task).await.unwrap();
        let ending = agent.wait_within(Duration::from_secs(3600)).await.unwrap();
        let ending = ending.unwrap_or_else(|| panic!("after {exit:?} it runs for ever"));
        assert_eq!(ending.outcome.label(), "failed", "{exit:?}: {}", ending.outcome);
    }
}

/// Takes its time, and does not end before it has heard of everything.
#[derive(Debug, Default)]
struct Hearing(Arc<Mutex<Vec<Arc<CallCompletion>>>>);

impl Backend for Hearing {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move { self.hear(&run).await.unwrap_or_else(AgentExit::Refused) })
    }
}

impl Hearing {
    async fn hear(&self, run: &BackendRun<'_>) -> Result<AgentExit, Refusal> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut next = run.input.journal.len() as u32;
        while !run.host.finish(Vec::new(), Json::of("dug")?).await? {
            run.host.park(CallIndex(next), ConditionRequest::Inbox).await?;
            let SuspendResult::Completed(_, news) = run.host.suspend(1).await? else {
                return Ok(AgentExit::Suspended);
            };
            self.0.lock().unwrap().push(news);
            next += 1;
        }
        Ok(AgentExit::Finished)
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_hears_of_everything_before_it_ends() {
    let hearing = Hearing::default();
    let heard = hearing.0.clone();
    let options = script("agent A\nturn\n say Never.\n").backend("theirs", hearing);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let overrides = AgentOverrides { backend: Some("theirs".into()), ..AgentOverrides::default() };
    let agent = runtime.session.spawn(NewTask::agent("dig").overrides(&overrides)).await.unwrap();
    agent.send("Deeper.").await.unwrap();
    assert_eq!(words(&agent.wait().await.unwrap()), "dug");
    let heard = format!("{:?}", heard.lock().unwrap());
    assert!(heard.contains("Deeper."), "{heard}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_delegates_to_what_something_else_carries_out() {
    let text = "agent Boss\nturn\n call spawn_agent {\"agent\": \"digger\", \"task\": \"Dig.\", \"wait\": \
                true}\nturn\n when dug\n say It is dug.\n";
    let digger = Definition::new("digger").description("Digs.").prompt("Dig.");
    let options = script(text).definition(digger.clone().backend("theirs")).unwrap();
    let options = options.backend("theirs", Hearing::default());
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    assert_eq!(words(&run(&runtime, "Boss", "dig").await), "It is dug.");
    let options = script(text).definition(digger.backend("nobodys")).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let refused = runtime.session.spawn(NewTask::agent("dig").definition("digger")).await;
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("\"nobodys\""), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_a_reply_cost_is_charged_once_when_a_tool_is_stopped() {
    for limits in [Limits::default(), Limits { tokens: Some(100_000), ..Limits::default() }] {
        let options = script(
            "agent A\nusage input=1000 output=100\nturn\n say I wait now, for as long as it takes.\n \
             call hang {}\n",
        );
        let hang = Made::new("hang", ToolEffect::Pure, std::future::pending);
        let runtime = TestRuntime::new(|builder| builder.agents(options.tool(hang))).await;
        let task = NewTask::agent("wait").name("A").limits(limits);
        let agent = runtime.session.spawn(task).await.unwrap();
        settled(&runtime).await;
        agent.stop(None).await.unwrap();
        agent.wait().await.unwrap();
        assert_eq!(agent.get().await.unwrap().usage().tokens, 1100, "{limits:?}");
    }
}

/// Keeps more for the session than there is room for.
#[derive(Debug)]
struct Hoarding;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Hoard(String);

impl StateKey for Hoard {
    const NAME: &'static str = "hoard";
    const SCOPE: StateScope = StateScope::Session;
}

impl Plugin for Hoarding {
    fn name(&self) -> &str {
        "hoarding"
    }

    fn after_model<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { Ok(at.state.set(&Hoard("x".repeat(SHARED_MAX)))?) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_keeps_too_much_is_the_end_of_the_run_and_its_cost_is_said() {
    let text = "agent A\nusage input=1000 output=100\nturn\n say Done.\n";
    let options = script(text).plugin(Hoarding);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "hoard").await;
    let (failure, _) = failure(&agent.wait().await.unwrap());
    let expected = "what its plugins keep: what the session shares would have";
    assert!(failure.to_string().contains(expected), "{failure}");
    assert_eq!(agent.get().await.unwrap().usage().tokens, 1100);
}

/// Thinks for ever about the end.
#[derive(Debug)]
struct Brooding;

impl Plugin for Brooding {
    fn name(&self) -> &str {
        "brooding"
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
async fn a_stop_while_plugins_think_about_the_end_says_what_the_last_words_cost() {
    for limits in [Limits::default(), Limits { tokens: Some(100_000), ..Limits::default() }] {
        let text = "agent A\nusage input=1000 output=100\nturn\n say Done.\n";
        let options = script(text).plugin(Brooding);
        let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
        let task = NewTask::agent("end").name("A").limits(limits);
        let agent = runtime.session.spawn(task).await.unwrap();
        settled(&runtime).await;
        agent.stop(None).await.unwrap();
        assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
        assert_eq!(agent.get().await.unwrap().usage().tokens, 1100, "{limits:?}");
    }
}

/// Holds the thread that it runs on until it is let go.
#[derive(Debug, Default)]
struct Holding {
    begun: CancellationToken,
    let_go: Arc<AtomicBool>,
}

impl Plugin for Holding {
    fn name(&self) -> &str {
        "holding"
    }

    fn run_start<'a>(&'a self, _at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async {
            self.begun.cancel();
            while !self.let_go.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        })
    }
}

/// Lets the plugin go, whatever becomes of the test.
struct LetGo(Arc<AtomicBool>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_plugin_that_never_yields_does_not_keep_a_stop_from_ending_the_run() {
    let holding = Holding::default();
    let (begun, let_go) = (holding.begun.clone(), LetGo(holding.let_go.clone()));
    let clock = ManualClock::at(TestRuntime::START);
    let options = script("agent A\nturn\n say Never.\n").plugin(holding);
    let builder = Runtime::builder().clock(Arc::new(clock.clone())).agents(options);
    let session = builder.start().await.unwrap().session("test").await.unwrap();
    let agent = session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    begun.cancelled().await;
    let mut news = session.subscribe(Default::default());
    agent.stop(None).await.unwrap();
    clock.advance(Duration::from_secs(5));
    // The bound of the firm stop counts from when it began, so that must be seen first.
    loop {
        match news.next().await.unwrap() {
            FeedUpdate::Event(item) if matches!(item.record.event, Event::StopForced { .. }) => {
                break;
            }
            _ => {}
        }
    }
    clock.advance(Duration::from_secs(5));
    let ending = agent.wait().await.unwrap();
    let Outcome::Cancelled(cancelled) = &*ending.outcome else { panic!("{}", ending.outcome) };
    assert_eq!(cancelled.confirmation, EndConfirmation::Unconfirmed);
    drop(let_go);
}

/// What somebody has left for the others of the session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Left(u32);

impl StateKey for Left {
    const NAME: &'static str = "left";
    const SCOPE: StateScope = StateScope::Session;
}

/// The first agent leaves something, and each notes what it sees.
#[derive(Debug, Default)]
struct Looking(Arc<Mutex<Vec<u32>>>);

impl Plugin for Looking {
    fn name(&self) -> &str {
        "looking"
    }

    fn run_start<'a>(&'a self, at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async {
            if at.agent == "First" {
                at.state.set(&Left(7))?;
            }
            let left = at.state.get::<Left>()?.0;
            self.0.lock().unwrap().push(left);
            Ok(())
        })
    }
}

/// Has its model so many times.
#[derive(Debug)]
struct Fickle(AtomicUsize, OneModel);

impl ModelSource for Fickle {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let times = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        times.map_err(|_| Refusal::unavailable("not today"))?;
        self.1.find(name)
    }
}

/// A kind of work whose performer takes its time when a runtime starts.
#[derive(Debug)]
struct Slow;

impl Performer for Slow {
    fn start(&self, _start: StartAction, _reporter: Reporter) {}

    fn deliver(&self, _task: TaskId, _attempt: Attempt, _delivery: Delivery) {}

    fn stop(&self, _task: TaskId, _how: StopMode) {}

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
            // Time enough for everything else.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            Vec::new()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_begun_while_the_runtime_starts_sees_what_the_session_shares() {
    let store = Arc::new(MemoryStore::new());
    let text = "agent *\nturn\n say Done.\n";
    let seen = Arc::default();
    let looking = || Looking(Arc::clone(&seen));
    let model = ScriptedModel::new(Script::parse("test", text).unwrap());
    // The first agent is settled and built, the second is only settled.
    let fickle = Fickle(AtomicUsize::new(3), OneModel(Arc::new(model)));
    let options = AgentOptions::new(fickle).model("scripted").plugin(looking());
    let runtime = TestRuntime::on_store(store.clone(), |builder| builder.agents(options)).await;
    run(&runtime, "First", "leave").await;
    spawn(&runtime, "Second", "look").await;
    settled(&runtime).await;
    drop(runtime);
    let options = script(text).plugin(looking());
    let runtime = TestRuntime::on_store(store, |builder| {
        builder.agents(options).performer("slow", Arc::new(Slow))
    })
    .await;
    settled(&runtime).await;
    assert_eq!(*seen.lock().unwrap(), [7, 7]);
}
