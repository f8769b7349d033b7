//! Tools from functions in the loop: context, cancellation, progress.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_agent::{CancellationToken, Tool, ToolContext, ToolEffect, ToolError};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::fakes::{TestAgent, call, reply, say, text_of};

/// Returns a tool that hands out its token and then runs `body`.
fn observed<F, Fut>(tokens: &Arc<Mutex<Vec<CancellationToken>>>, body: F) -> Tool
where
    F: Fn(ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let tokens = tokens.clone();
    Tool::from_fn_with("work", "Works.", ToolEffect::Pure, move |context: ToolContext, (): ()| {
        tokens.lock().unwrap().push(context.cancellation().clone());
        body(context)
    })
}

fn calling(tool: Tool) -> TestAgent {
    let mut test = TestAgent::new([reply(vec![call("work", json!({}))]), say("done")]);
    test.agent.tools.add(tool);
    test
}

#[tokio::test(start_paused = true)]
async fn a_token_is_cancelled_when_the_call_is_dropped_and_not_when_it_returned() {
    let tokens = Arc::default();
    let returning = calling(observed(&tokens, |_| async { Ok("ok".to_owned()) }));
    returning.run().await;
    assert!(!tokens.lock().unwrap()[0].is_cancelled());

    let tokens = Arc::default();
    let hanging = calling(observed(&tokens, |_| std::future::pending()));
    let stopped = tokio::time::timeout(Duration::from_secs(1), hanging.run()).await;
    assert!(stopped.is_err() && tokens.lock().unwrap()[0].is_cancelled());
}

#[tokio::test]
async fn a_panic_cancels_the_work_that_the_function_spawned() {
    let tokens = Arc::default();
    let test = calling(observed(&tokens, |_| async { panic!("ouch") }));
    test.run().await;
    assert!(tokens.lock().unwrap()[0].is_cancelled());
    assert!(text_of(&test.model.requests()[1]).contains("the tool panicked: ouch"));
    assert_eq!(test.host.result_text(), "done");
}

#[tokio::test]
async fn an_interrupt_cancels_the_token_and_the_result_is_used() {
    let tokens = Arc::default();
    let (started, is_started) = oneshot::channel();
    let started = Mutex::new(Some(started));
    let test = calling(observed(&tokens, move |context| {
        started.lock().unwrap().take().unwrap().send(()).unwrap();
        async move {
            context.cancelled().await;
            Ok("half of it".to_owned())
        }
    }));
    let interrupt = async {
        is_started.await.unwrap();
        test.host.interrupted.notify_one();
    };
    tokio::join!(test.run(), interrupt);
    assert!(text_of(&test.model.requests()[1]).contains("half of it"));
    assert_eq!(test.host.result_text(), "done");
}

#[tokio::test(start_paused = true)]
async fn progress_is_reported_while_the_call_runs() {
    let tokens = Arc::default();
    let test = calling(observed(&tokens, |context| async move {
        context.progress("1 of 3");
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Only the newest of several texts is reported.
        context.progress("2 of 3");
        context.progress("3 of 3");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let late = context.clone();
        TaskTracker::new().spawn(async move { late.progress("too late") });
        Ok("ok".to_owned())
    }));
    test.run().await;
    tokio::task::yield_now().await;
    let progress = test.host.lock().progress.clone();
    let activities: Vec<&str> = progress.iter().map(|report| &*report.activity).collect();
    assert_eq!(activities, ["work: 1 of 3", "work: 3 of 3"]);
}

#[tokio::test(start_paused = true)]
async fn frequent_progress_does_not_flood_the_host() {
    let tokens = Arc::default();
    let test = calling(observed(&tokens, |context| async move {
        for at in 0..1_000 {
            context.progress(format!("{at}"));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok("ok".to_owned())
    }));
    test.run().await;
    let count = test.host.lock().progress.len();
    assert!((2..=5).contains(&count), "{count} reports");
}

#[tokio::test]
async fn each_call_has_a_key_of_its_own_that_a_repetition_keeps() {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = keys.clone();
    let tool =
        Tool::from_fn_with("work", "d", ToolEffect::Pure, move |context: ToolContext, (): ()| {
            seen.lock().unwrap().push(context.key());
            async move { Ok::<_, ToolError>("ok") }
        });
    let two = reply(vec![call("work", json!({})), call("work", json!({}))]);
    let mut test = TestAgent::new([two, say("done")]);
    test.agent.tools.add(tool);
    test.run().await;
    // The results are lost, as after a crash.
    test.host.lock().journal.truncate(1);
    test.run().await;
    let keys = keys.lock().unwrap();
    assert_eq!(keys.len(), 4);
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[..2], keys[2..]);
}
