//! Plugins: the order of hooks, their state, refusals and failures.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_agent::{
    AgentExit, AttemptInput, BoxFuture, ExecutionHints, HookContext, HookDecision, HookFuture,
    PartialResult, Plugin, PluginError, StateKey, ToolEffect, ToolError, ToolHandler,
    ToolInvocation, ToolReply,
};
use brigade_llm::{ModelReply, ModelRequest, ToolCall, ToolResult, ToolSpec};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fakes::{FakeTool, ScriptedReply, TestAgent, call, reply, say, text_of};

/// The hooks that ran, in order.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Diary(Vec<String>);

impl StateKey for Diary {
    const NAME: &'static str = "diary";
}

/// A misbehaviour of the plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Quirk {
    #[default]
    None,
    RefusesTools,
    /// Refuses the end of the run so many times.
    RefusesEndings(u32),
    Panics,
    PanicsAtOnce,
    Blocks,
    Fails,
}

/// Notes every hook, in the state and for the test.
#[derive(Debug, Default)]
struct Diarist {
    quirk: Quirk,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Diarist {
    fn write(&self, context: &HookContext<'_>, hook: &str) -> Result<(), PluginError> {
        self.seen.lock().unwrap().push(format!("{hook} {}", context.step));
        Ok(context.state.update(|diary: &mut Diary| diary.0.push(hook.to_owned()))?)
    }
}

impl Plugin for Diarist {
    fn name(&self) -> &str {
        "diarist"
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn run_start<'a>(&'a self, context: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async { self.write(context, "run start") })
    }

    fn before_model<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        request: &'a mut ModelRequest,
    ) -> HookFuture<'a, ()> {
        assert_ne!(self.quirk, Quirk::PanicsAtOnce, "the pen was never there");
        Box::pin(async move {
            match self.quirk {
                Quirk::Panics => panic!("the pen broke"),
                Quirk::Blocks => std::future::pending().await,
                Quirk::Fails => return Err(PluginError::new("no ink")),
                _ => {}
            }
            request.system = format!("{} Write neatly.", request.system).into();
            request.max_output = u32::MAX;
            self.write(context, "before model")
        })
    }

    fn after_model<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { self.write(context, "after model") })
    }

    fn before_tool<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            self.write(context, &format!("before {}", call.name))?;
            Ok(match self.quirk {
                Quirk::RefusesTools => HookDecision::Refuse("not today".into()),
                _ => HookDecision::Pass,
            })
        })
    }

    fn after_tool<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        call: &'a ToolCall,
        result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        Box::pin(async move {
            result.text = format!("{} (noted)", result.text).into();
            self.write(context, &format!("after {}", call.name))
        })
    }

    fn step_end<'a>(&'a self, context: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async { self.write(context, "step end") })
    }

    fn run_end<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            self.write(context, "run end")?;
            let Quirk::RefusesEndings(times) = self.quirk else { return Ok(HookDecision::Pass) };
            let ends =
                context.state.get::<Diary>()?.0.iter().filter(|hook| *hook == "run end").count();
            Ok(match ends as u32 <= times {
                true => HookDecision::Refuse("the diary is not full".into()),
                false => HookDecision::Pass,
            })
        })
    }
}

const ALL_HOOKS: [&str; 9] = [
    "run start 0",
    "before model 0",
    "after model 0",
    "before look 1",
    "after look 1",
    "step end 1",
    "before model 1",
    "after model 1",
    "run end 2",
];

fn looking() -> TestAgent {
    TestAgent::new([reply(vec![call("look", json!({}))]), say("Seen.")]).tool(FakeTool::new(
        "look",
        ToolEffect::Pure,
        [ToolReply::text("trees")],
    ))
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_order_and_their_changes_take_effect() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let test = looking().plugin(diarist);
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(*seen.lock().unwrap(), ALL_HOOKS);
    let requests = test.model.requests();
    assert!(requests.iter().all(|request| request.system.ends_with("Write neatly.")));
    assert!(
        requests.iter().all(|request| request.max_output == 1_000),
        "no more than the budget covers"
    );
    assert!(text_of(&requests[1]).contains("trees (noted)"));
    let labels = test.host.labels();
    let expected = [
        "plugins started",
        "state",
        "state",
        "model reply",
        "before tool",
        "tool result and state",
        "step end",
        "state",
        "state",
        "model reply",
        "state",
    ];
    assert_eq!(labels, expected);
}

/// After a crash at any entry, the diary names each hook once, in order.
#[tokio::test(start_paused = true)]
async fn state_is_restored_with_the_step_that_changed_it() {
    let whole = looking().plugin(Diarist::default());
    whole.run().await;
    let journal = whole.host.lock().journal.clone();
    for cut in 0..=journal.len() {
        let diarist = Diarist::default();
        let seen = diarist.seen.clone();
        let replies = match journal[..cut]
            .iter()
            .filter(|entry| entry.label == EntryLabel::ModelReply)
            .count()
        {
            0 => vec![reply(vec![call("look", json!({}))]), say("Seen.")],
            _ => vec![say("Seen.")],
        };
        let again = TestAgent::new(replies)
            .tool(FakeTool::new("look", ToolEffect::Pure, [ToolReply::text("trees")]))
            .plugin(diarist)
            .plugin(Reader);
        again.host.lock().journal = journal[..cut].to_vec();
        assert_eq!(
            again.run_attempt(RunNo::FIRST, Vec::new()).await,
            AgentExit::Finished,
            "cut at {cut}"
        );
        let starts =
            seen.lock().unwrap().iter().filter(|hook| hook.starts_with("run start")).count();
        assert_eq!(starts, usize::from(cut == 0), "`run_start` runs once, cut at {cut}");
        let last = again.host.lock().journal.clone();
        let diary = last.iter().rev().find(|entry| {
            entry.label.to_string().contains("state")
                || [EntryLabel::PluginsStarted, EntryLabel::StepEnd].contains(&entry.label)
        });
        let text = format!("{:?}", diary.unwrap().completion);
        let count = |hook: &str| text.matches(hook).count();
        let counts = (count("run start"), count("after look"), count("step end"));
        assert_eq!(counts, (1, 1, 1), "{cut}: {text}");
    }
}

/// After a crash during the first model call, the `run_start` hooks do not run again.
#[tokio::test(start_paused = true)]
async fn run_start_hooks_are_recorded_before_the_first_model_call() {
    let test = TestAgent::new([ScriptedReply::Pending]).plugin(Diarist::default());
    let input = AttemptInput {
        run: RunNo::FIRST,
        journal: Vec::new(),
        parked_calls: Vec::new(),
        skip_first_gate: true,
    };
    let partial = PartialResult::default();
    let attempt = test.agent.run(&test.host, input, &partial);
    assert!(tokio::time::timeout(Duration::from_secs(60), attempt).await.is_err());
    assert_eq!(test.model.requests().len(), 1);
    assert_eq!(test.host.labels(), ["plugins started"]);
}

#[tokio::test(start_paused = true)]
async fn model_hooks_run_for_a_summary_too() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let results = (0..5).map(|n| ToolReply::text(format!("{n}{}", "x".repeat(500))));
    let mut replies = vec![reply(vec![call("dig", json!({}))]); 5];
    replies.extend([say("SUMMARY."), say("Dug.")]);
    let test = TestAgent::new(replies).tool(FakeTool::new("dig", ToolEffect::Pure, results));
    let mut test = test.plugin(diarist);
    test.agent.context_window = 1_000;
    test.agent.max_output = 100;
    assert_eq!(test.run().await, AgentExit::Finished);
    let requests = test.model.requests();
    assert_eq!(requests.len(), 7);
    assert!(requests.iter().all(|request| request.system.ends_with("Write neatly.")));
    assert!(requests.iter().all(|request| request.max_output <= 100));
    let count = |hook: &str| seen.lock().unwrap().iter().filter(|it| it.starts_with(hook)).count();
    assert_eq!((count("before model"), count("after model")), (7, 7));
    // The next attempt rebuilds it from the journal.
    test.host.lock().journal.pop();
    assert_eq!(test.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
}

#[tokio::test(start_paused = true)]
async fn changes_of_run_end_hooks_are_dropped_if_the_run_does_not_end() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let test = looking().plugin(diarist);
    test.host.lock().refused_ends = 1;
    assert_eq!(test.run().await, AgentExit::Suspended);
    assert_eq!(seen.lock().unwrap().last().map(String::as_str), Some("run end 2"));
    let journal = format!("{:?}", test.host.lock().journal);
    assert!(journal.contains("after model") && !journal.contains("run end"), "{journal}");
}

/// A plugin that only reads state.
#[derive(Debug)]
struct Reader;

impl Plugin for Reader {
    fn name(&self) -> &str {
        "reader"
    }

    fn run_end<'a>(
        &'a self,
        context: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            let diary = context.state.get::<Diary>()?;
            assert!(
                diary.0.contains(&"run end".to_owned()),
                "it sees the changes of the plugin before it"
            );
            Ok(HookDecision::Pass)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_plugin_refuses_is_not_executed() {
    let diarist = Diarist { quirk: Quirk::RefusesTools, ..Diarist::default() };
    let tool = FakeTool::new("look", ToolEffect::Once, [ToolReply::text("trees")]);
    let calls = tool.calls.clone();
    let test = TestAgent::new([reply(vec![call("look", json!({}))]), say("Well.")])
        .tool(tool)
        .plugin(diarist);
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(calls.lock().unwrap().len(), 0);
    assert!(text_of(&test.model.requests()[1]).contains("refused: not today (diarist)"));
}

#[tokio::test(start_paused = true)]
async fn plugins_refuse_the_end_of_a_run_a_bounded_number_of_times() {
    let refusing = |times| {
        let diarist = Diarist { quirk: Quirk::RefusesEndings(times), ..Diarist::default() };
        TestAgent::new([say("Done.")]).plugin(diarist)
    };
    let test = refusing(2);
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(test.model.requests().len(), 3);
    assert!(
        text_of(&test.model.requests()[1]).contains("You cannot end yet: the diary is not full")
    );
    let test = refusing(u32::MAX);
    let AgentExit::Failed { failure: Failure::Error(failure), partial } = test.run().await else {
        panic!("it should fail")
    };
    assert!(failure.message.contains("refused the end of the run 11 times"), "{failure}");
    assert_eq!(partial, Some(Json::of("Done.").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_panics_or_blocks_fails_the_run() {
    let cases = [
        (Quirk::Fails, "\"diarist\", before the model was asked: no ink"),
        (Quirk::Panics, "it panicked: the pen broke"),
        (Quirk::PanicsAtOnce, "\"diarist\", before the model was asked: it panicked: assertion"),
        (Quirk::Blocks, "it took longer than 5s"),
    ];
    for (quirk, expected) in cases {
        let test = looking().plugin(Diarist { quirk, ..Diarist::default() });
        let AgentExit::Failed { failure: Failure::Error(failure), .. } = test.run().await else {
            panic!("it should fail")
        };
        assert!(failure.message.contains(expected), "{failure}");
        assert_eq!(test.model.requests().len(), 0);
        assert_eq!(test.host.lock().charged.len(), 1, "the reservation is released");
    }
}

/// A tool that counts its calls in the state.
#[derive(Debug)]
struct Counter(ToolSpec);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Count(u32);

impl StateKey for Count {
    const NAME: &'static str = "count";
}

impl ToolHandler for Counter {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Idempotent)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let count = call.state.get::<Count>().map_err(|e| ToolError::new(e.to_string()))?.0;
            // All concurrent calls have read the state by now.
            tokio::task::yield_now().await;
            call.state.set(&Count(count + 1)).map_err(|e| ToolError::new(e.to_string()))?;
            Ok(ToolReply::text(format!("{}", count + 1)))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn only_one_of_two_concurrent_calls_changes_the_same_state() {
    let both = || reply(vec![call("count", json!({})), call("count", json!({}))]);
    let test = TestAgent::new([both(), reply(vec![call("count", json!({}))]), say("Counted.")]);
    let parameters = Arc::new(json!({ "type": "object" }));
    let spec = ToolSpec { name: "count".into(), description: "Counts.".into(), parameters };
    let mut test = test;
    test.agent.tools.add(Counter(spec));
    assert_eq!(test.run().await, AgentExit::Finished);
    let requests = test.model.requests();
    let text = text_of(&requests[1]);
    assert_eq!(
        text.matches("the state \"count\" was changed by another call").count(),
        1,
        "{text}"
    );
    assert!(text_of(&requests[2]).ends_with("results: 2"), "{}", text_of(&requests[2]));
}

#[tokio::test(start_paused = true)]
async fn a_later_run_starts_with_empty_state_and_runs_the_run_start_hooks() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let test = looking().plugin(diarist);
    test.run().await;
    seen.lock().unwrap().clear();
    assert_eq!(test.run_attempt(RunNo::FIRST.next(), Vec::new()).await, AgentExit::Finished);
    assert_eq!(seen.lock().unwrap()[0], "run start 0");
    let journal = test.host.lock().journal.clone();
    let started =
        journal.iter().rev().find(|entry| entry.label == EntryLabel::PluginsStarted).unwrap();
    assert_eq!(format!("{:?}", started.completion).matches("run end").count(), 0);
}
