//! The life of a remote task.

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::AgentOverrides;
use brigade_external::a2a_backend::A2aBackend;
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::call::Condition;
use brigade_model::command::{GivenAnswer, StopTarget};
use brigade_model::ids::TaskNo;
use brigade_model::json::Json;
use brigade_model::outcome::Outcome;
use brigade_runtime::{AgentOptions, NewTask, OneModel, Runtime, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};

use crate::fake_agent::FakeAgent;

/// A runtime whose agents are remote.
struct World {
    store: Arc<dyn Store>,
    runtime: Runtime,
    session: Session,
    fake: FakeAgent,
}

impl World {
    async fn open() -> Self {
        Self::open_with(Arc::new(MemoryStore::default()), FakeAgent::start().await).await
    }

    async fn open_with(store: Arc<dyn Store>, fake: FakeAgent) -> Self {
        let backend = A2aBackend::new(&fake.url()).unwrap();
        Self::open_backend(store, fake, backend).await
    }

    async fn open_backend(store: Arc<dyn Store>, fake: FakeAgent, backend: A2aBackend) -> Self {
        let script = Script::parse("test", "agent *\nturn\n say Never.\n").unwrap();
        let model = OneModel(Arc::new(ScriptedModel::new(script)));
        let options = AgentOptions::new(model).model("scripted").backend("remote", backend);
        let builder = Runtime::builder().shared_store(store.clone()).agents(options);
        let runtime = builder.start().await.unwrap();
        let session = runtime.session("test").await.unwrap();
        Self { store, runtime, session, fake }
    }

    async fn restart(self) -> Self {
        let Self { store, runtime, session, fake } = self;
        drop(session);
        runtime.shutdown().await.unwrap();
        Self::open_with(store, fake).await
    }

    async fn spawn(&self, task: &str) -> TaskHandle<String> {
        let overrides =
            AgentOverrides { backend: Some("remote".into()), ..AgentOverrides::default() };
        self.session.spawn(NewTask::agent(task).overrides(&overrides)).await.unwrap()
    }

    async fn outcome(&self, no: TaskNo) -> Arc<Outcome> {
        let waited = tokio::time::timeout(Duration::from_secs(60), self.session.wait_all([no]));
        waited.await.unwrap().unwrap().remove(0).outcome
    }

    async fn wait_for_task(&self, task: &str) {
        eventually(|| self.fake.state_of(task) == "TASK_STATE_WORKING").await;
    }

    /// Waits until the id of the agent's remote task is stored.
    async fn wait_for_stored_task(&self, no: TaskNo) {
        let mut tries = 0;
        while self.session.get(no).await.unwrap().row.journal_len < 2 {
            tries += 1;
            assert!(tries < 3_000);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn transcript(&self, no: TaskNo) -> String {
        self.session.transcript(no.into()).await.unwrap().unwrap()
    }
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it does not come true");
}

fn text_of(outcome: &Arc<Outcome>) -> String {
    match &**outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_task_survives_the_runtime() {
    let world = World::open().await;
    let no = world.spawn("Bake.").await.no();
    world.wait_for_task("t-1").await;
    // The id of the remote task is stored as soon as it is known.
    world.wait_for_stored_task(no).await;
    let world = world.restart().await;
    world.fake.complete("t-1", "Baked.");
    assert_eq!(text_of(&world.outcome(no).await), "Baked.");
    let texts = world.fake.texts();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].ends_with("Bake."), "{texts:?}");
    assert!(world.transcript(no).await.contains("Baked."));
}

#[tokio::test(flavor = "multi_thread")]
async fn required_input_is_a_question() {
    let world = World::open().await;
    let no = world.spawn("Paint.").await.no();
    world.wait_for_task("t-1").await;
    world.fake.set_status("t-1", "INPUT_REQUIRED", "Red or blue?");
    let session = world.session.clone();
    let mut tries = 0;
    loop {
        let row = session.get(no).await.unwrap().row;
        let asks = |call: &brigade_model::call::ParkedCall| match &call.condition {
            Condition::Question { question } => question.as_str().contains("Red or blue?"),
            _ => false,
        };
        if row.parked_calls.iter().any(asks) {
            break;
        }
        tries += 1;
        assert!(tries < 3_000);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The question is still there in the next runtime.
    drop(session);
    let world = world.restart().await;
    let answer = GivenAnswer::Reply(Json::of("blue").unwrap());
    world.session.answer(no, answer).await.unwrap();
    world.wait_for_task("t-1").await;
    world.fake.complete("t-1", "Painted blue.");
    assert_eq!(text_of(&world.outcome(no).await), "Painted blue.");
    assert_eq!(world.fake.texts()[1..], ["blue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_cancels_the_remote_task() {
    let world = World::open().await;
    let agent = world.spawn("Sleep.").await;
    world.wait_for_task("t-1").await;
    agent.stop(None).await.unwrap();
    assert_eq!(world.outcome(agent.no()).await.to_string(), "cancelled");
    assert_eq!(world.fake.state_of("t-1"), "TASK_STATE_CANCELED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_does_not_reach_the_remote_task_says_so() {
    let world = World::open().await;
    let agent = world.spawn("Sleep.").await;
    world.wait_for_stored_task(agent.no()).await;
    world.fake.state.lock().unwrap().is_down = true;
    agent.stop(None).await.unwrap();
    let outcome = world.outcome(agent.no()).await.to_string();
    assert!(outcome.starts_with("cancelled (survivors: remote task t-1 at http://"), "{outcome}");
    assert!(outcome.contains("may still run"), "{outcome}");
    // A forced stop has no time for the remote side, and says so too.
    world.fake.state.lock().unwrap().is_down = false;
    let agent = world.spawn("Sleep.").await;
    world.wait_for_stored_task(agent.no()).await;
    world.fake.state.lock().unwrap().is_down = true;
    let target = StopTarget::Task(agent.no().into());
    world.session.stop_with(target, None, Some(Duration::ZERO)).await.unwrap();
    let outcome = world.outcome(agent.no()).await.to_string();
    assert!(outcome.contains("remote task t-2") && outcome.contains("may still run"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_the_start_of_the_next_runtime_tells_the_truth_about_the_remote_task() {
    let mut world = World::open().await;
    for number in 1..=10 {
        let no = world.spawn("Sleep.").await.no();
        world.wait_for_stored_task(no).await;
        world = world.restart().await;
        world.session.stop(no, None).await.unwrap();
        let outcome = world.outcome(no).await.to_string();
        let is_canceled = world.fake.state_of(&format!("t-{number}")) == "TASK_STATE_CANCELED";
        assert!(outcome.starts_with("cancelled"), "{outcome}");
        assert!(is_canceled || outcome.contains("may still run"), "{number}: {outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_the_end_of_the_runtime_interrupts_names_the_remote_task() {
    let world = World::open().await;
    let agent = world.spawn("Sleep.").await;
    let no = agent.no();
    world.wait_for_stored_task(no).await;
    world.fake.state.lock().unwrap().is_down = true;
    agent.stop(None).await.unwrap();
    drop(agent);
    let world = world.restart().await;
    let outcome = world.outcome(no).await.to_string();
    assert!(outcome.starts_with("cancelled (survivors: "), "{outcome}");
    assert!(outcome.contains("may still run"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_after_a_lost_answer_names_the_unknown_task_of_an_earlier_attempt() {
    let world = World::open().await;
    world.fake.state.lock().unwrap().lost_answers = 1;
    let no = world.spawn("Sleep.").await.no();
    eventually(|| world.fake.texts().len() == 1).await;
    world.fake.state.lock().unwrap().is_down = true;
    let world = world.restart().await;
    let mut tries = 0;
    while world.session.get(no).await.unwrap().row.state.label() != "running" {
        tries += 1;
        assert!(tries < 3_000);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.session.stop(no, None).await.unwrap();
    let outcome = world.outcome(no).await.to_string();
    assert!(outcome.contains("may still run"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_refuses_to_be_canceled_is_a_survivor_unless_it_has_ended() {
    let world = World::open().await;
    for (state, expected) in [("WORKING", "may still run: not cancelable"), ("COMPLETED", "")] {
        let agent = world.spawn("Sleep.").await;
        world.wait_for_stored_task(agent.no()).await;
        world.fake.state.lock().unwrap().refused_cancel = Some(state);
        agent.stop(None).await.unwrap();
        let outcome = world.outcome(agent.no()).await.to_string();
        match expected {
            "" => assert_eq!(outcome, "cancelled"),
            expected => assert!(outcome.contains(expected), "{outcome}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_again_only_with_a_note() {
    let world = World::open().await;
    world.fake.state.lock().unwrap().lost_answers = 1;
    let no = world.spawn("Bake.").await.no();
    eventually(|| world.fake.texts().len() == 2).await;
    world.fake.complete("t-1", "Baked.");
    assert_eq!(text_of(&world.outcome(no).await), "Baked.");
    let messages = world.fake.state.lock().unwrap().messages.clone();
    assert_eq!(messages[0], messages[1], "the same id and the same text");
    assert!(world.transcript(no).await.contains("may have received it twice"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_ends_are_failures() {
    let world = World::open().await;
    for (number, state) in ["FAILED", "CANCELED", "REJECTED", "AUTH_REQUIRED"].iter().enumerate() {
        let no = world.spawn("Bake.").await.no();
        let task = format!("t-{}", number + 1);
        world.wait_for_task(&task).await;
        world.fake.set_status(&task, state, "the oven is cold");
        let outcome = world.outcome(no).await;
        assert_eq!(outcome.label(), "failed", "{state}");
        assert!(outcome.to_string().contains("the oven is cold"), "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_of_another_server_gets_nothing() {
    let world = World::open().await;
    world.fake.state.lock().unwrap().interface = Some("http://127.0.0.2:9/rpc".to_owned());
    let no = world.spawn("Bake.").await.no();
    let outcome = world.outcome(no).await.to_string();
    assert!(outcome.contains("another server"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_the_value_of_a_variable() {
    for (variable, expected) in
        [("CARGO_PKG_NAME", "failed"), ("BRIGADE_NO_SUCH_VARIABLE", "not set")]
    {
        let fake = FakeAgent::start().await;
        // The agent ends at its first answer.
        fake.state.lock().unwrap().interface = Some("http://127.0.0.2:9/rpc".to_owned());
        let backend = A2aBackend::new(&fake.url()).unwrap().token_variable(variable);
        let store = Arc::new(MemoryStore::default());
        let world = World::open_backend(store, fake, backend).await;
        let no = world.spawn("Bake.").await.no();
        let outcome = world.outcome(no).await.to_string();
        assert!(outcome.contains(expected), "{outcome}");
        let tokens = world.fake.state.lock().unwrap().tokens.clone();
        match expected {
            "failed" => assert_eq!(tokens, ["brigade-external"]),
            _ => assert!(tokens.is_empty() && outcome.contains(variable), "{outcome}"),
        }
    }
}
