//! Tools from functions, in agents with the scripted model.

use std::sync::{Arc, Mutex};

use brigade_agent::{StateKey, StateScope, Tool, ToolContext, ToolEffect, ToolError};
use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_store::MemoryStore;
use brigade_testkit::TestRuntime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::support::{final_message, run, script, spawn, transcript};

#[derive(Debug, Default, Serialize, Deserialize)]
struct CallCount(u32);

impl StateKey for CallCount {
    const NAME: &'static str = "call_count";
    const SCOPE: StateScope = StateScope::Session;
}

/// Returns a tool that counts its calls in the state of the session.
fn counting(keys: &Arc<Mutex<Vec<String>>>) -> Tool {
    let keys = keys.clone();
    let count = move |context: ToolContext, _: Value| {
        keys.lock().unwrap().push(context.key());
        async move {
            let count = context.state().update(|count: &mut CallCount| {
                count.0 += 1;
                count.0
            })?;
            Ok::<_, ToolError>(format!("call number {count}"))
        }
    };
    Tool::from_fn_with("count", "Counts its calls.", ToolEffect::Idempotent, count)
}

#[tokio::test(start_paused = true)]
async fn the_model_corrects_wrong_arguments_and_survives_a_panic() {
    let text = "agent A
turn
  call add {\"left\": \"one\", \"rigth\": 2}
turn
  when unknown argument `rigth`
  call add {\"left\": 1}
turn
  when missing argument `right`
  call add {\"left\": 1, \"right\": 0}
turn
  when the tool panicked
  call add {\"left\": 40, \"right\": 2}
turn
  when 42
  say It is 42.
";
    #[derive(Deserialize, schemars::JsonSchema)]
    struct Addition {
        left: i64,
        right: i64,
    }
    let add = Tool::from_fn("add", "Adds.", ToolEffect::Pure, |args: Addition| async move {
        assert_ne!(args.right, 0, "nothing to add");
        Ok::<_, ToolError>(args.left + args.right)
    });
    let options = script(text).tool(add);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    assert_eq!(final_message(&run(&runtime, "A", "add").await), "It is 42.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_cancels_work_that_the_drop_of_the_future_does_not_reach() {
    let (started, mut is_started) = mpsc::unbounded_channel();
    let (cancelled, mut is_cancelled) = mpsc::unbounded_channel();
    let hang = move |context: ToolContext, _: Value| {
        let started = started.clone();
        let cancelled = cancelled.clone();
        async move {
            let spawned = context.clone();
            TaskTracker::new().spawn(async move {
                spawned.cancelled().await;
                cancelled.send(()).unwrap();
            });
            started.send(()).unwrap();
            // A loop that does not yield cannot be dropped.
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            Ok::<_, ToolError>("late")
        }
    };
    let hang = Tool::from_fn_with("hang", "Hangs.", ToolEffect::Pure, hang);
    let options = script("agent A\nturn\n call hang {}\nturn\n say Never.\n").tool(hang);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "hang").await;
    is_started.recv().await.unwrap();
    agent.stop(None).await.unwrap();
    assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
    is_cancelled.recv().await.unwrap();
}

#[tokio::test]
async fn an_urgent_message_lets_a_tool_return_early() {
    let (started, mut is_started) = mpsc::unbounded_channel();
    let search = move |context: ToolContext, _: Value| {
        let started = started.clone();
        async move {
            started.send(()).unwrap();
            context.cancelled().await;
            Ok::<_, ToolError>("half of the shelves are searched")
        }
    };
    let search = Tool::from_fn_with("search", "Searches.", ToolEffect::Pure, search);
    let text = "agent A
turn
  call search {}
turn
  when half of the shelves
  when come home
  say Coming.
";
    let runtime = TestRuntime::new(|builder| builder.agents(script(text).tool(search))).await;
    let agent = spawn(&runtime, "A", "search").await;
    is_started.recv().await.unwrap();
    runtime.session.interrupt(&agent, "come home").await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Coming.");
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_tool_is_in_the_feed() {
    let bake = |context: ToolContext, _: Value| async move {
        context.progress("the crust is golden");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        Ok::<_, ToolError>("baked")
    };
    let bake = Tool::from_fn_with("bake", "Bakes.", ToolEffect::Once, bake);
    let options = script("agent A\nturn\n call bake {}\nturn\n say Done.\n").tool(bake);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    run(&runtime, "A", "bake").await;
    let events = runtime.events_after(FeedCursor::START).await;
    let is_reported = events.iter().any(|record| match &record.event {
        Event::Progressed { note, .. } => note.as_str().contains("bake: the crust is golden"),
        _ => false,
    });
    assert!(is_reported, "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn state_is_committed_with_the_result_and_each_call_has_its_own_key() {
    let store = Arc::new(MemoryStore::new());
    let text = "agent *\nturn\n call count {}\nturn\n call count {}\nturn\n say Done.\n";
    let keys = Arc::default();
    let mut transcripts = Vec::new();
    for _ in 0..2 {
        let options = script(text).tool(counting(&keys));
        let runtime = TestRuntime::on_store(store.clone(), |builder| builder.agents(options)).await;
        let agent = spawn(&runtime, "Counter", "count").await;
        agent.wait().await.unwrap();
        transcripts.push(transcript(&runtime, &agent).await);
        runtime.runtime.shutdown().await.unwrap();
    }
    assert!(transcripts[0].contains("call number 1") && transcripts[0].contains("call number 2"));
    assert!(transcripts[1].contains("call number 3") && transcripts[1].contains("call number 4"));
    let mut keys = keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 4);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 4, "{keys:?}");
}
