//! What is kept of the state when calls wait, and when an agent is built anew.

use std::sync::{Arc, Mutex};

use brigade_agent::{
    AgentExit, HookContext, HookDecision, HookFuture, Plugin, StateKey, ToolEffect, ToolReply,
};
use brigade_llm::{ModelRequest, ToolCall, ToolResult};
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::paper::{PaperTool, Play, Stage, call, reply, say};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Begun(u32);

impl StateKey for Begun {
    const NAME: &'static str = "begun";
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Over(u32);

impl StateKey for Over {
    const NAME: &'static str = "over";
}

/// Counts the calls that begin and those that are over, and notes before each model call how many.
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
        at: &'a HookContext<'a>,
        _request: &'a mut ModelRequest,
    ) -> HookFuture<'a, ()> {
        Box::pin(async {
            let seen = (at.state.get::<Begun>()?.0, at.state.get::<Over>()?.0);
            self.seen.lock().unwrap().push(seen);
            Ok(())
        })
    }

    fn before_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            at.state.update(|begun: &mut Begun| begun.0 += 1)?;
            Ok(HookDecision::Pass)
        })
    }

    fn after_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _call: &'a ToolCall,
        _result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { Ok(at.state.update(|over: &mut Over| over.0 += 1)?) })
    }
}

fn question() -> ConditionRequest {
    ConditionRequest::Question { question: Json::of("well?").unwrap() }
}

/// Asks something and looks around meanwhile: the first call is over after the second.
fn asking(plays: impl IntoIterator<Item = Play>) -> Stage {
    let parks = ToolReply::Park { asked: question(), effect: None };
    Stage::new(plays)
        .tool(PaperTool::new("ask", ToolEffect::Recorded, [parks, ToolReply::text("well")]))
        .tool(PaperTool::new("look", ToolEffect::Pure, [ToolReply::text("trees")]))
}

fn both() -> Play {
    reply(vec![call("ask", json!({})), call("look", json!({}))])
}

impl Stage {
    /// What waits is answered while the agent is away.
    fn answer_all(&self) {
        let mut host = self.host.lock();
        for (index, _) in std::mem::take(&mut host.parked) {
            host.write(index, "ask", Arc::new(CallCompletion::Reply(Json::of("fine").unwrap())));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_calls_changed_is_there_again_in_the_order_in_which_they_were_over() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let stage = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(stage.run().await, AgentExit::Suspended);
    stage.answer_all();
    assert_eq!(stage.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(over(&seen), [0, 2]);
    // As it is after a crash during the second model call.
    let mut journal = stage.host.lock().journal.clone();
    let step = journal.iter().position(|entry| &*entry.label == "step").unwrap();
    journal.truncate(step + 1);
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let again = asking([say("Done.")]).plugin(counting);
    again.host.lock().journal = journal;
    assert_eq!(again.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(over(&seen), [2]);
}

/// A call of the run before, which is over in the next one, belongs to that.
#[tokio::test(start_paused = true)]
async fn what_a_call_changed_in_a_later_run_is_there_again() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let stage = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(stage.run().await, AgentExit::Suspended);
    assert_eq!(stage.begin(RunNo(2), Vec::new()).await, AgentExit::Finished);
    assert_eq!(over(&seen), [0, 1]);
    let mut journal = stage.host.lock().journal.clone();
    let step = journal.iter().position(|entry| &*entry.label == "step").unwrap();
    journal.truncate(step + 1);
    let again = asking([say("Done.")]).plugin(Counting { seen: seen.clone() });
    again.host.lock().journal = journal;
    assert_eq!(again.begin(RunNo(2), Vec::new()).await, AgentExit::Finished);
    assert_eq!(over(&seen), [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_a_plugin_changed_before_a_call_that_waits_is_kept_once() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let stage = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(stage.run().await, AgentExit::Suspended);
    stage.answer_all();
    assert_eq!(stage.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    let begun: Vec<u32> = seen.lock().unwrap().iter().map(|(begun, _)| *begun).collect();
    assert_eq!(begun, [0, 2]);
}

/// A call that was cut off after the plugins had let it pass is not asked about again.
#[tokio::test(start_paused = true)]
async fn plugins_that_wrote_something_are_asked_about_a_call_once() {
    let counting = Counting::default();
    let seen = counting.seen.clone();
    let stage = asking([both(), say("Done.")]).plugin(counting);
    assert_eq!(stage.run().await, AgentExit::Suspended);
    let mut journal = stage.host.lock().journal.clone();
    journal.retain(|entry| ["plugins", "model", "before"].contains(&&*entry.label));
    assert_eq!(journal.iter().filter(|entry| &*entry.label == "before").count(), 2);
    let again = asking([say("Done.")]).plugin(Counting { seen: seen.clone() });
    again.host.lock().journal = journal;
    assert_eq!(again.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Suspended);
    again.answer_all();
    assert_eq!(again.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(seen.lock().unwrap().last(), Some(&(2, 2)));
}

fn over(seen: &Mutex<Vec<(u32, u32)>>) -> Vec<u32> {
    seen.lock().unwrap().iter().map(|(_, over)| *over).collect()
}
