//! Silent agents are nudged and ended; busy agents are not.

use std::time::Duration;

use brigade_agent::{ToolEffect, ToolReply};
use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Millis;
use brigade_model::outcome::Failure;
use brigade_model::stall::StallPolicy;
use brigade_runtime::{FeedUpdate, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::{FunctionTool, failure, final_message, playing, run, script, transcript};

/// The default time after which a silent agent stalls.
const USUAL: Duration = Duration::from_secs(20 * 60);

async fn stalls(runtime: &TestRuntime) -> usize {
    let last = runtime.runtime.cursor();
    let mut events = runtime.runtime.subscribe(FeedCursor::START);
    let mut count = 0;
    while !events.cursor().includes_all(&last) {
        if let FeedUpdate::Event(item) = events.next().await.unwrap().unwrap() {
            count += usize::from(matches!(item.record.event, Event::Stalled { .. }));
        }
    }
    count
}

#[tokio::test(start_paused = true)]
async fn a_nudge_interrupts_a_hung_call_and_the_agent_continues() {
    let text = "agent A
turn
  fault hang
  say Here I am.
";
    let runtime = playing(text).await;
    let agent = runtime.session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    assert_eq!(final_message(&run_result), "Here I am.");
    let transcript_text = transcript(&runtime, &agent).await;
    assert!(
        transcript_text
            .contains("<note from=\"brigade\">\n    Nothing has happened here for 20 minutes."),
        "{transcript_text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_after_a_nudge_fails_as_stalled_with_its_last_message() {
    let text = "agent A
turn
  say So far.
  call list_tasks {}
turn
  fault hang always
  say Never.
";
    let runtime = playing(text).await;
    let stall = StallPolicy::after(Millis(60_000));
    let task = NewTask::agent("go").name("A").stall(stall);
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    let (failure, partial) = failure(&run_result);
    assert!(matches!(failure, Failure::Stalled { quiet: Millis(60_000..=61_000) }), "{failure:?}");
    assert_eq!(partial.as_deref(), Some("So far."));
    assert_eq!(stalls(&runtime).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_long_tool_call_and_a_streaming_model_are_no_stall() {
    let text = "agent A
turn
  call knead {}
turn
  pace 1m
  think one two three four five six seven eight nine ten and so on and on and on it goes for long
  say Kneaded.
";
    let knead = FunctionTool::new("knead", ToolEffect::Pure, || async {
        tokio::time::sleep(USUAL * 3).await;
        Ok(ToolReply::text("dough"))
    });
    let options = script(text).tool(knead);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let stall = StallPolicy::after(Millis(5 * 60_000));
    let task = NewTask::agent("go").name("A").stall(stall);
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(final_message(&run_result), "Kneaded.");
    assert_eq!(stalls(&runtime).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_waits_for_a_slow_child_does_not_stall() {
    let text = "agent Boss
turn
  call spawn_agent {\"name\": \"Slow\", \"task\": \"Look.\", \"wait\": true}
turn
  when Nothing
  say Nothing there.

agent Slow
turn
  repeat
  pace 1m
  say Nothing but words and words and words and words and words and words and words and words
";
    let runtime = playing(text).await;
    assert_eq!(final_message(&run(&runtime, "Boss", "go").await), "Nothing there.");
    assert_eq!(stalls(&runtime).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_stall_policy_is_not_nudged() {
    let runtime = playing("agent A\nturn\n  fault hang\n  say Never.\n").await;
    let task = NewTask::agent("go").name("A").stall(StallPolicy::Off);
    let agent = runtime.session.spawn(task).await.unwrap();
    assert!(agent.wait_within(USUAL * 5).await.unwrap().is_none());
    assert_eq!(stalls(&runtime).await, 0);
    agent.stop(None).await.unwrap();
}
