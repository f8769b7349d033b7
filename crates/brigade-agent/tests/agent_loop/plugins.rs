//! What plugins see, change, refuse and keep.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_agent::{
    AgentExit, AttemptInput, BoxFuture, ExecutionHints, HookContext, HookDecision, HookFuture,
    PartialResult, Plugin, PluginError, StateKey, Tool, ToolEffect, ToolError, ToolInvocation,
    ToolReply,
};
use brigade_llm::{ModelReply, ModelRequest, ToolCall, ToolResult, ToolSpec};
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::paper::{PaperTool, Play, Stage, call, reply, say, text_of};

/// What happened, in the order in which it did.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Diary(Vec<String>);

impl StateKey for Diary {
    const NAME: &'static str = "diary";
}

/// What a plugin does out of the ordinary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Quirk {
    #[default]
    None,
    RefusesTools,
    /// So many endings.
    RefusesEndings(u32),
    Panics,
    PanicsAtOnce,
    Blocks,
    Fails,
}

/// Writes everything down, in the state and for the test.
#[derive(Debug, Default)]
struct Diarist {
    quirk: Quirk,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Diarist {
    fn write(&self, at: &HookContext<'_>, what: &str) -> Result<(), PluginError> {
        self.seen.lock().unwrap().push(format!("{what} {}", at.step));
        Ok(at.state.update(|diary: &mut Diary| diary.0.push(what.to_owned()))?)
    }
}

impl Plugin for Diarist {
    fn name(&self) -> &str {
        "diarist"
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn run_start<'a>(&'a self, at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async { self.write(at, "run start") })
    }

    fn before_model<'a>(
        &'a self,
        at: &'a HookContext<'a>,
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
            self.write(at, "before model")
        })
    }

    fn after_model<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { self.write(at, "after model") })
    }

    fn before_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            self.write(at, &format!("before {}", call.name))?;
            Ok(match self.quirk {
                Quirk::RefusesTools => HookDecision::Refuse("not today".into()),
                _ => HookDecision::Pass,
            })
        })
    }

    fn after_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        call: &'a ToolCall,
        result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        Box::pin(async move {
            result.text = format!("{} (noted)", result.text).into();
            self.write(at, &format!("after {}", call.name))
        })
    }

    fn step_end<'a>(&'a self, at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async { self.write(at, "step end") })
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            self.write(at, "run end")?;
            let Quirk::RefusesEndings(times) = self.quirk else { return Ok(HookDecision::Pass) };
            let ends = at.state.get::<Diary>()?.0.iter().filter(|what| *what == "run end").count();
            Ok(match ends as u32 <= times {
                true => HookDecision::Refuse("the diary has room".into()),
                false => HookDecision::Pass,
            })
        })
    }
}

const WHOLE: [&str; 9] = [
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

fn looking() -> Stage {
    Stage::new([reply(vec![call("look", json!({}))]), say("Seen.")]).tool(PaperTool::new(
        "look",
        ToolEffect::Pure,
        [ToolReply::text("trees")],
    ))
}

#[tokio::test(start_paused = true)]
async fn each_hook_comes_in_its_place_and_has_its_say() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let stage = looking().plugin(diarist);
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(*seen.lock().unwrap(), WHOLE);
    let asked = stage.model.requests();
    assert!(asked.iter().all(|request| request.system.ends_with("Write neatly.")));
    assert!(asked.iter().all(|request| request.max_output == 1_000), "no more than is paid for");
    assert!(text_of(&asked[1]).contains("trees (noted)"));
    let labels = stage.host.labels();
    let expected = [
        "plugins",
        "state",
        "state",
        "model",
        "before",
        "result and state",
        "step",
        "state",
        "state",
        "model",
        "state",
    ];
    assert_eq!(labels, expected);
}

/// Wherever it is cut, the diary tells of each thing once, in order, as if nothing had happened.
#[tokio::test(start_paused = true)]
async fn state_is_there_again_with_the_step_that_it_belongs_to() {
    let whole = looking().plugin(Diarist::default());
    whole.run().await;
    let journal = whole.host.lock().journal.clone();
    for cut in 0..=journal.len() {
        let diarist = Diarist::default();
        let seen = diarist.seen.clone();
        let plays = match journal[..cut].iter().filter(|entry| &*entry.label == "model").count() {
            0 => vec![reply(vec![call("look", json!({}))]), say("Seen.")],
            _ => vec![say("Seen.")],
        };
        let again = Stage::new(plays)
            .tool(PaperTool::new("look", ToolEffect::Pure, [ToolReply::text("trees")]))
            .plugin(diarist)
            .plugin(Reader);
        again.host.lock().journal = journal[..cut].to_vec();
        assert_eq!(
            again.begin(RunNo::FIRST, Vec::new()).await,
            AgentExit::Finished,
            "cut at {cut}"
        );
        let begun =
            seen.lock().unwrap().iter().filter(|what| what.starts_with("run start")).count();
        assert_eq!(begun, usize::from(cut == 0), "bound once in a run, cut at {cut}");
        let last = again.host.lock().journal.clone();
        let diary = last.iter().rev().find(|entry| {
            entry.label.contains("state") || ["plugins", "step"].contains(&&*entry.label)
        });
        let text = format!("{:?}", diary.unwrap().completion);
        let at = |what: &str| text.matches(what).count();
        assert_eq!((at("run start"), at("after look"), at("step end")), (1, 1, 1), "{cut}: {text}");
    }
}

/// A crash during the first model call does not begin the run a second time.
#[tokio::test(start_paused = true)]
async fn that_plugins_know_of_the_run_is_written_down_before_the_model_is_asked() {
    let stage = Stage::new([Play::Hang]).plugin(Diarist::default());
    let (run, journal, parked_calls) = (RunNo::FIRST, Vec::new(), Vec::new());
    let begun = AttemptInput { run, journal, parked_calls, skip_first_gate: true };
    let partial = PartialResult::default();
    let hangs = stage.agent.run(&stage.host, begun, &partial);
    assert!(tokio::time::timeout(Duration::from_secs(60), hangs).await.is_err());
    assert_eq!(stage.model.requests().len(), 1);
    assert_eq!(stage.host.labels(), ["plugins"]);
}

#[tokio::test(start_paused = true)]
async fn plugins_have_their_say_too_when_the_conversation_is_summed_up() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let results = (0..5).map(|n| ToolReply::text(format!("{n}{}", "x".repeat(500))));
    let mut plays = vec![reply(vec![call("dig", json!({}))]); 5];
    plays.extend([say("SUMMARY."), say("Dug.")]);
    let stage = Stage::new(plays).tool(PaperTool::new("dig", ToolEffect::Pure, results));
    let mut stage = stage.plugin(diarist);
    (stage.agent.context_window, stage.agent.max_output) = (1_000, 100);
    assert_eq!(stage.run().await, AgentExit::Finished);
    let asked = stage.model.requests();
    assert_eq!(asked.len(), 7);
    assert!(asked.iter().all(|request| request.system.ends_with("Write neatly.")));
    assert!(asked.iter().all(|request| request.max_output <= 100));
    let count = |what: &str| seen.lock().unwrap().iter().filter(|it| it.starts_with(what)).count();
    assert_eq!((count("before model"), count("after model")), (7, 7));
    // It is the same when it is built again.
    stage.host.lock().journal.pop();
    assert_eq!(stage.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
}

#[tokio::test(start_paused = true)]
async fn of_words_that_were_not_the_last_nothing_is_kept() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let stage = looking().plugin(diarist);
    stage.host.lock().not_done = 1;
    assert_eq!(stage.run().await, AgentExit::Suspended);
    assert_eq!(seen.lock().unwrap().last().map(String::as_str), Some("run end 2"));
    let journal = format!("{:?}", stage.host.lock().journal);
    assert!(journal.contains("after model") && !journal.contains("run end"), "{journal}");
}

/// Only looks.
#[derive(Debug)]
struct Reader;

impl Plugin for Reader {
    fn name(&self) -> &str {
        "reader"
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            let diary = at.state.get::<Diary>()?;
            assert!(diary.0.contains(&"run end".to_owned()), "it sees what the one before wrote");
            Ok(HookDecision::Pass)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_plugin_refuses_is_not_carried_out() {
    let diarist = Diarist { quirk: Quirk::RefusesTools, ..Diarist::default() };
    let tool = PaperTool::new("look", ToolEffect::Once, [ToolReply::text("trees")]);
    let calls = tool.calls.clone();
    let stage =
        Stage::new([reply(vec![call("look", json!({}))]), say("Well.")]).tool(tool).plugin(diarist);
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(calls.lock().unwrap().len(), 0);
    assert!(text_of(&stage.model.requests()[1]).contains("refused: not today (diarist)"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_ending_sends_the_agent_back_to_work_a_bounded_number_of_times() {
    let refusing = |times| {
        let diarist = Diarist { quirk: Quirk::RefusesEndings(times), ..Diarist::default() };
        Stage::new([say("Done.")]).plugin(diarist)
    };
    let stage = refusing(2);
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(stage.model.requests().len(), 3);
    assert!(text_of(&stage.model.requests()[1]).contains("You cannot end yet: the diary has room"));
    let stage = refusing(u32::MAX);
    let AgentExit::Failed { failure: Failure::Error(failure), partial } = stage.run().await else {
        panic!("it should fail")
    };
    assert!(failure.contains("refused its ending 11 times"), "{failure}");
    assert_eq!(partial, Some(Json::of("Done.").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_panics_or_blocks_ends_the_run_and_says_so() {
    let cases = [
        (Quirk::Fails, "\"diarist\", before the model was asked: no ink"),
        (Quirk::Panics, "it panicked: the pen broke"),
        (Quirk::PanicsAtOnce, "\"diarist\", before the model was asked: it panicked: assertion"),
        (Quirk::Blocks, "it took longer than 5s"),
    ];
    for (quirk, expected) in cases {
        let stage = looking().plugin(Diarist { quirk, ..Diarist::default() });
        let AgentExit::Failed { failure: Failure::Error(failure), .. } = stage.run().await else {
            panic!("it should fail")
        };
        assert!(failure.contains(expected), "{failure}");
        assert_eq!(stage.model.requests().len(), 0);
        assert_eq!(stage.host.lock().charged.len(), 1, "what was set aside is settled");
    }
}

/// Counts what it is told, each call for itself.
#[derive(Debug)]
struct Counter(ToolSpec);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Count(u32);

impl StateKey for Count {
    const NAME: &'static str = "count";
}

impl Tool for Counter {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Idempotent)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let count = call.state.get::<Count>().map_err(|e| ToolError::new(e.to_string()))?.0;
            // All that run side by side have looked by now.
            tokio::task::yield_now().await;
            call.state.set(&Count(count + 1)).map_err(|e| ToolError::new(e.to_string()))?;
            Ok(ToolReply::text(format!("{}", count + 1)))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn of_calls_side_by_side_that_write_the_same_only_one_is_kept() {
    let both = || reply(vec![call("count", json!({})), call("count", json!({}))]);
    let stage = Stage::new([both(), reply(vec![call("count", json!({}))]), say("Counted.")]);
    let parameters = Arc::new(json!({ "type": "object" }));
    let spec = ToolSpec { name: "count".into(), description: "Counts.".into(), parameters };
    let mut stage = stage;
    stage.agent.tools.add(Arc::new(Counter(spec)));
    assert_eq!(stage.run().await, AgentExit::Finished);
    let asked = stage.model.requests();
    let told = text_of(&asked[1]);
    assert_eq!(
        told.matches("the state \"count\" was changed by another call").count(),
        1,
        "{told}"
    );
    assert!(text_of(&asked[2]).ends_with("results: 2"), "{}", text_of(&asked[2]));
}

#[tokio::test(start_paused = true)]
async fn a_new_run_begins_with_nothing_and_plugins_are_told() {
    let diarist = Diarist::default();
    let seen = diarist.seen.clone();
    let stage = looking().plugin(diarist);
    stage.run().await;
    seen.lock().unwrap().clear();
    assert_eq!(stage.begin(RunNo::FIRST.next(), Vec::new()).await, AgentExit::Finished);
    assert_eq!(seen.lock().unwrap()[0], "run start 0");
    let journal = stage.host.lock().journal.clone();
    let bound = journal.iter().rev().find(|entry| &*entry.label == "plugins").unwrap();
    assert_eq!(format!("{:?}", bound.completion).matches("run end").count(), 0);
}
