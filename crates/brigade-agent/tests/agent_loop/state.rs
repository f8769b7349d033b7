//! State across parked calls and later attempts.

use std::sync::{Arc, Mutex};

use brigade_agent::{
    AgentExit, HookContext, HookDecision, HookFuture, Plugin, StateKey, ToolEffect, ToolReply,
};
use brigade_llm::{ModelRequest, ToolCall, ToolResult};
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fakes::{FakeTool, ScriptedReply, TestAgent, call, reply, say};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct StartedCount(u32);

impl StateKey for StartedCount {
    const NAME: &'static str = "started";
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct FinishedCount(u32);

impl StateKey for FinishedCount {
    const NAME: &'static str = "finished";
}

/// Counts the calls that start and finish, and notes both counts before each model call.
#[derive(Debug, Default)]
struct Counting {
    seen: Arc<Mutex<Vec<(u32, u32)>>>,
}

impl Plugin for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn before_model<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        _request: &'a mut ModelRequest,
    ) -> HookFuture<'a, ()> {
        Box::pin(async {
            let seen =
                (context.state.get::<StartedCount>()?.0, context.state.get::<FinishedCount>()?.0);
            self.seen.lock().unwrap().push(seen);
            Ok(())
        })
    }

    fn before_tool<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        _call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            context.state.update(|started: &mut StartedCount| started.0 += 1)?;
            Ok(HookDecision::Pass)
        })
    }

    fn after_tool<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        _call: &'a ToolCall,
        _result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        Box::pin(async {
            Ok(context.state.update(|finished: &mut FinishedCount| finished.0 += 1)?)
        })
    }
}

fn question() -> ConditionRequest {
    ConditionRequest::Question { question: Json::of("well?").unwrap() }
}

/// Creates an agent with a call that parks and one that does not, so that the first finishes last.
fn asking(replies: impl IntoIterator<Item = ScriptedReply>) -> TestAgent {
    let park = ToolReply::Park { condition: question(), effect: None };
    TestAgent::new(replies)
        .tool(FakeTool::new("ask", ToolEffect::Recorded, [park, ToolReply::text("well")]))
        .tool(FakeTool::new("look", ToolEffect::Pure, [ToolReply::text("trees")]))
}

fn both() -> ScriptedReply {
    reply(vec![call("ask", json!({})), call("look", json!({}))])
}

impl TestAgent {
    /// Completes all parked calls while no attempt runs.
    fn complete_all(&self) {
        let mut host = self.host.lock();
        for (index, _) in std::mem::take(&mut host.parked) {
            host.write(
                index,
                EntryLabel::Ask,
                Arc::new(CallCompletion::Reply(Json::of("fine").unwrap())),
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn state_is_restored_in_the_order_in_which_calls_finished() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let test = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(test.run().await, AgentExit::Suspended);
    test.complete_all();
    assert_eq!(test.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(finished_counts(&seen), [0, 2]);
    // The journal after a crash during the second model call.
    let mut journal = test.host.lock().journal.clone();
    let step = journal.iter().position(|entry| entry.label == EntryLabel::StepEnd).unwrap();
    journal.truncate(step + 1);
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let again = asking([say("Done.")]).plugin(counting);
    again.host.lock().journal = journal;
    assert_eq!(again.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(finished_counts(&seen), [2]);
}

/// A call of one run that finishes in the next run changes the state of the next run.
#[tokio::test(start_paused = true)]
async fn changes_of_a_call_that_finishes_in_a_later_run_are_restored() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let test = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(test.run().await, AgentExit::Suspended);
    assert_eq!(test.run_attempt(RunNo(2), Vec::new()).await, AgentExit::Finished);
    assert_eq!(finished_counts(&seen), [0, 1]);
    let mut journal = test.host.lock().journal.clone();
    let step = journal.iter().position(|entry| entry.label == EntryLabel::StepEnd).unwrap();
    journal.truncate(step + 1);
    let again = asking([say("Done.")]).plugin(Counting { seen: seen.clone() });
    again.host.lock().journal = journal;
    assert_eq!(again.run_attempt(RunNo(2), Vec::new()).await, AgentExit::Finished);
    assert_eq!(finished_counts(&seen), [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_plugin_before_a_parked_call_are_applied_once() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let test = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(test.run().await, AgentExit::Suspended);
    test.complete_all();
    assert_eq!(test.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    let started: Vec<u32> = seen.lock().unwrap().iter().map(|(started, _)| *started).collect();
    assert_eq!(started, [0, 2]);
}

/// Plugins are not asked again about a call that was interrupted after they admitted it.
#[tokio::test(start_paused = true)]
async fn plugins_that_changed_state_are_asked_about_a_call_once() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let test = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(test.run().await, AgentExit::Suspended);
    let mut journal = test.host.lock().journal.clone();
    journal.retain(|entry| {
        [EntryLabel::PluginsStarted, EntryLabel::ModelReply, EntryLabel::BeforeTool]
            .contains(&entry.label)
    });
    assert_eq!(journal.iter().filter(|entry| entry.label == EntryLabel::BeforeTool).count(), 2);
    let again = asking([say("Done.")]).plugin(Counting { seen: seen.clone() });
    again.host.lock().journal = journal;
    assert_eq!(again.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Suspended);
    again.complete_all();
    assert_eq!(again.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(seen.lock().unwrap().last(), Some(&(2, 2)));
}

fn finished_counts(seen: &Mutex<Vec<(u32, u32)>>) -> Vec<u32> {
    seen.lock().unwrap().iter().map(|(_, finished)| *finished).collect()
}
