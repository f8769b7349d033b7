//! Agents that are silent: told, nudged, ended; and agents that are only busy.

use std::time::Duration;

use brigade_agent::{ToolEffect, ToolReply as Done};
use brigade_model::event::Event;
use brigade_model::ids::{Millis, Position};
use brigade_model::outcome::Failure;
use brigade_model::stall::StallPolicy;
use brigade_runtime::{FeedUpdate, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::{Made, failure, playing, run, script, transcript, words};

/// As long as agents may be silent that nobody said anything of.
const USUAL: Duration = Duration::from_secs(20 * 60);

async fn stalls(runtime: &TestRuntime) -> usize {
    let last = runtime.runtime.position();
    let mut events = runtime.runtime.subscribe(Position(0));
    let mut count = 0;
    while events.cursor() < last {
        if let FeedUpdate::Event(item) = events.next().await.unwrap() {
            count += usize::from(matches!(item.record.event, Event::Stalled { .. }));
        }
    }
    count
}

#[tokio::test(start_paused = true)]
async fn a_hung_call_is_broken_off_by_a_nudge_and_the_agent_goes_on() {
    let text = "agent A
turn
  fault hang
  say Here I am.
";
    let runtime = playing(text).await;
    let agent = runtime.session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    let ending = agent.wait().await.unwrap();
    assert_eq!(words(&ending), "Here I am.");
    let said = transcript(&runtime, &agent).await;
    assert!(
        said.contains("<note from=\"brigade\">\n    Nothing has happened here for 20 minutes."),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn who_hangs_again_after_a_nudge_is_ended_as_stalled_with_its_last_words() {
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
    let ending = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    let (failure, partial) = failure(&ending);
    assert!(matches!(failure, Failure::Stalled { quiet: Millis(60_000..=61_000) }), "{failure:?}");
    assert_eq!(partial.as_deref(), Some("So far."));
    assert_eq!(stalls(&runtime).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_runs_for_long_is_busy_and_so_is_a_model_that_streams() {
    let text = "agent A
turn
  call knead {}
turn
  pace 1m
  think one two three four five six seven eight nine ten and so on and on and on it goes for long
  say Kneaded.
";
    let knead = Made::new("knead", ToolEffect::Pure, || async {
        tokio::time::sleep(USUAL * 3).await;
        Ok(Done::text("dough"))
    });
    let options = script(text).tool(knead);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let stall = StallPolicy::after(Millis(5 * 60_000));
    let task = NewTask::agent("go").name("A").stall(stall);
    let ending = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(words(&ending), "Kneaded.");
    assert_eq!(stalls(&runtime).await, 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_slow_child_is_not_taken_for_dead() {
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
    assert_eq!(words(&run(&runtime, "Boss", "go").await), "Nothing there.");
    assert_eq!(stalls(&runtime).await, 0);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_watched_is_left_alone() {
    let runtime = playing("agent A\nturn\n  fault hang\n  say Never.\n").await;
    let task = NewTask::agent("go").name("A").stall(StallPolicy::Off);
    let agent = runtime.session.spawn(task).await.unwrap();
    assert!(agent.wait_within(USUAL * 5).await.unwrap().is_none());
    assert_eq!(stalls(&runtime).await, 0);
    agent.stop(None).await.unwrap();
}
