//! Readers of an agent's text that are too slow or come too late for the output in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_agent::{AgentOutput, ToolEffect, ToolReply};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_runtime::{AgentOptions, OneModel, ResultStream};
use brigade_testkit::TestRuntime;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use tokio::sync::Notify;

use crate::support::*;

const STEP_1: AgentOutput = AgentOutput::Step { step: 1 };

/// Returns text of 140,000 bytes, which is more than an agent has in memory.
fn long_text(word: &str) -> String {
    format!("{word} ").repeat(140_000 / (word.len() + 1)).trim_end().to_owned()
}

/// Returns the outputs that are there, without waiting.
fn ready(output: &mut ResultStream<AgentOutput>) -> Vec<AgentOutput> {
    let next = || output.next().now_or_never().flatten();
    std::iter::from_fn(next).map(Result::unwrap).collect()
}

/// Returns the outputs as short texts: a step as its number, a text as its length.
fn shapes(outputs: &[AgentOutput]) -> Vec<String> {
    let shape = |output: &AgentOutput| match output {
        AgentOutput::Step { step } => format!("step {step}"),
        AgentOutput::Text(text) if text.len() > 30 => format!("{} bytes", text.len()),
        AgentOutput::Text(text) => text.to_string(),
        AgentOutput::ToolCall { name, .. } => format!("call {name}"),
        AgentOutput::ToolResult { name, .. } => format!("result {name}"),
        other => format!("{other:?}"),
    };
    outputs.iter().map(shape).collect()
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_missed_step_whole_and_goes_on() {
    for size in [1, 2] {
        let long = long_text("leek").repeat(size);
        let script = format!(
            "agent A\nturn\n delay 100ms\n say {long}\n call look {{}}\nturn\n when leeks\n say Leek soup.\n"
        );
        let (runtime, agent, go) = agent_with_a_slow_tool(&script).await;
        let mut output = agent.text();
        assert_eq!(output.next().await.unwrap().unwrap(), STEP_1);
        // The agent produces more than is in memory, while the reader does not read.
        until_idle(&runtime).await;
        // The step is stored, so it is there before the tool has a result.
        let missed = ready(&mut output);
        let bytes = format!("{} bytes", long.len());
        assert_eq!(shapes(&missed), ["Lagged", "step 1", &bytes, "call look"]);
        assert_eq!(text_of(&missed), long);
        go.notify_one();
        let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
        assert_eq!(shapes(&following), ["result look", "step 2", "Leek soup."]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_continues_after_the_end_gets_every_step() {
    let long = long_text("leek");
    let last = long_text("soup");
    for (end, expected) in [("Soup.", "Soup."), (last.as_str(), "139999 bytes")] {
        let script = format!(
            "agent A\nturn\n delay 100ms\n say {long}\n call look {{}}\nturn\n when leeks\n say {end}\n"
        );
        let (_runtime, agent, go) = agent_with_a_slow_tool(&script).await;
        let mut output = agent.text();
        assert_eq!(output.next().await.unwrap().unwrap(), STEP_1);
        go.notify_one();
        agent.wait().await.unwrap();
        let missed: Vec<AgentOutput> = output.try_collect().await.unwrap();
        let first = ["Lagged", "step 1", "139999 bytes", "call look", "result look", "step 2"];
        assert_eq!(shapes(&missed), [&first[..], &[expected]].concat());
        assert_eq!(text_of(&missed), format!("{long}{end}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_reader_gets_the_step_when_it_is_stored_and_earlier_steps_at_once() {
    let long = long_text("leek");
    let script = format!(
        "agent A\nturn\n say First.\n call note {{}}\nturn\n when noted\n say {long}\n delay 1s\n say {long}\n \
         delay 10s\n say End.\n call look {{}}\nturn\n when leeks\n say Leek soup.\n"
    );
    let go = Arc::new(Notify::new());
    let note =
        FunctionTool::new("note", ToolEffect::Pure, || async { Ok(ToolReply::text("noted")) });
    let look = slow_tool(&go);
    let options = crate::support::script(&script).tool(note).tool(look);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "cook").await;
    until_idle(&runtime).await;
    until_idle(&runtime).await;
    let mut output = agent.text();
    let stored = ready(&mut output);
    assert_eq!(shapes(&stored), ["step 1", "First.", "call note", "result note"]);
    for _ in 0..10 {
        until_idle(&runtime).await;
    }
    let second = ready(&mut output);
    let expected = ["step 2", "139999 bytes", "139999 bytes", "End.", "call look"];
    assert_eq!(shapes(&second), expected, "no mark, since nothing of it was returned before");
    go.notify_one();
    let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
    assert_eq!(shapes(&following), ["result look", "step 3", "Leek soup."]);
}

#[tokio::test(start_paused = true)]
async fn two_missed_steps_come_from_the_journal_and_the_third_from_memory() {
    let long = long_text("leek");
    let script = format!(
        "agent A\nturn\n delay 100ms\n say {long}\n call look {{}}\nturn\n say Two. {long}\n call look \
         {{\"n\": 2}}\nturn\n say Three.\n call look {{\"n\": 3}}\nturn\n say Leek soup.\n"
    );
    let (runtime, agent, go) = agent_with_a_slow_tool(&script).await;
    let mut output = agent.text();
    assert_eq!(output.next().await.unwrap().unwrap(), STEP_1);
    for _ in 0..2 {
        until_idle(&runtime).await;
        go.notify_one();
    }
    until_idle(&runtime).await;
    let missed = ready(&mut output);
    let expected = [
        ["Lagged", "step 1", "139999 bytes", "call look", "result look"],
        ["step 2", "140004 bytes", "call look", "result look", "step 3"],
    ];
    assert_eq!(shapes(&missed), [&expected.concat()[..], &["Three.", "call look"]].concat());
    go.notify_one();
    let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
    assert_eq!(shapes(&following), ["result look", "step 4", "Leek soup."]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_call_that_a_reader_missed_is_returned_once() {
    let long = long_text("leek");
    let text = format!(
        "agent A\nturn\n fault cut 20000\n say {long}\n call look {{}}\nturn\n say Soup.\n"
    );
    let model = ScriptedModel::new(Script::parse("test", &text).unwrap()).with_retry();
    let go = Arc::new(Notify::new());
    let look = slow_tool(&go);
    let options = AgentOptions::new(OneModel(Arc::new(model))).model("scripted").tool(look);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "cook").await;
    let mut output = agent.text();
    assert!(ready(&mut output).is_empty());
    until_idle(&runtime).await;
    let missed = ready(&mut output);
    assert_eq!(shapes(&missed), ["step 1", "139999 bytes", "call look"]);
    go.notify_one();
    let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
    assert_eq!(shapes(&following), ["result look", "step 2", "Soup."]);
}

#[tokio::test(start_paused = true)]
async fn tool_results_that_do_not_fit_into_memory_are_returned_once_each() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let peel = FunctionTool::new("peel", ToolEffect::Pure, move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(ToolReply::text("x".repeat(60_000))) }
    });
    let go = Arc::new(Notify::new());
    let look = slow_tool(&go);
    let text = "agent A\nturn\n delay 100ms\n call peel {}\n call peel {}\n call peel {}\n call look {}\n call look \
                {}\nturn\n when leeks\n say Leek soup.\n";
    let options = script(text).tool(peel).tool(look);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "cook").await;
    let mut output = agent.text();
    assert_eq!(output.next().await.unwrap().unwrap(), STEP_1);
    until_idle(&runtime).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let missed = ready(&mut output);
    let calls =
        ["Lagged", "step 1", "call peel", "call peel", "call peel", "call look", "call look"];
    let results = ["result peel", "result peel", "result peel"];
    assert_eq!(shapes(&missed), [&calls[..], &results].concat());
    go.notify_one();
    until_idle(&runtime).await;
    assert_eq!(shapes(&ready(&mut output)), ["result look"]);
    go.notify_one();
    let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
    assert_eq!(shapes(&following), ["result look", "step 2", "Leek soup."]);
}

#[tokio::test(start_paused = true)]
async fn a_missed_message_of_an_agent_that_waits_for_its_child_comes_while_it_waits() {
    let long = long_text("leek");
    let text = format!(
        "agent Boss\nturn\n call spawn_agent {{\"name\": \"North\", \"task\": \"Look.\"}}\nturn\n delay 100ms\n \
         say {long}\n delay 1ms\n say Wait.\nturn\n when Seen\n say Done.\nagent North\nturn\n delay 100s\n say Seen.\n"
    );
    let runtime = playing(&text).await;
    let agent = spawn(&runtime, "Boss", "go").await;
    let mut output = agent.text();
    while output.next().await.unwrap().unwrap() != (AgentOutput::Step { step: 2 }) {}
    until_idle(&runtime).await;
    assert_eq!(shapes(&ready(&mut output)), ["Lagged", "step 2", "139999 bytes", "Wait."]);
    let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
    assert_eq!(shapes(&following), ["step 3", "Done."]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_and_a_shutdown_end_a_reader_whose_step_is_not_stored() {
    let long = long_text("leek");
    let text = format!(
        "agent A\nturn\n delay 100ms\n say {long}\n delay 1ms\n say More.\n delay 1000s\n say End.\n call look {{}}\n"
    );
    for shuts_down in [false, true] {
        let (runtime, agent, _go) = agent_with_a_slow_tool(&text).await;
        let mut output = agent.text();
        assert_eq!(output.next().await.unwrap().unwrap(), STEP_1);
        until_idle(&runtime).await;
        assert_eq!(shapes(&ready(&mut output)), ["Lagged"]);
        match shuts_down {
            true => runtime.runtime.clone().shutdown().await.unwrap(),
            false => drop(agent.stop(None).await.unwrap()),
        }
        let following: Vec<AgentOutput> = output.try_collect().await.unwrap();
        assert!(following.is_empty(), "{:?}", shapes(&following));
    }
}
