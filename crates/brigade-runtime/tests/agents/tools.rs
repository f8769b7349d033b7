//! Tools that misbehave, and their results for the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_agent::{ToolEffect, ToolError, ToolReply};
use brigade_testkit::TestRuntime;

use crate::support::{FunctionTool, final_message, run, script, spawn, transcript};

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_fails_its_call_only() {
    let text = "agent A\nturn\n call boom {}\nturn\n when the tool panicked: ouch\n say Noted.\n";
    let options =
        script(text).tool(FunctionTool::new("boom", ToolEffect::Pure, || async { panic!("ouch") }));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    assert_eq!(final_message(&run(&runtime, "A", "go").await), "Noted.");
}

#[tokio::test(start_paused = true)]
async fn a_huge_result_is_truncated_with_a_marker() {
    let text = "agent A\nturn\n call big {}\nturn\n when bytes are omitted here\n say Too much.\n";
    let options = script(text).tool(FunctionTool::new("big", ToolEffect::Pure, || async {
        Ok(ToolReply::text("x".repeat(100 * 1024 * 1024)))
    }));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "go").await;
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Too much.");
    let transcript_text = transcript(&runtime, &agent).await;
    assert!(transcript_text.len() < 100_000, "{} bytes are kept", transcript_text.len());
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_message_run_side_by_side() {
    let text = "agent A\nturn\n call nap {}\n call nap {}\n call nap {}\nturn\n say Rested.\n";
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let options = script(text).tool(FunctionTool::new("nap", ToolEffect::Pure, move || {
        let now = now.clone();
        let seen = seen.clone();
        async move {
            seen.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok(ToolReply::text("rested"))
        }
    }));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    run(&runtime, "A", "rest").await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_effect_inside_a_running_tool() {
    let text = "agent A\nturn\n call hang {}\nturn\n say Never.\n";
    let options = script(text).tool(FunctionTool::new("hang", ToolEffect::Pure, || async {
        std::future::pending::<Result<ToolReply, ToolError>>().await
    }));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "hang").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.stop(None).await.unwrap();
    assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_the_program_replaces_a_built_in_one() {
    let text = "agent A\nturn\n call list_tasks {}\nturn\n when mine\n say Mine.\n";
    let own =
        FunctionTool::new("list_tasks", ToolEffect::Pure, || async { Ok(ToolReply::text("mine")) });
    let options = script(text).tool(own);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    assert_eq!(final_message(&run(&runtime, "A", "go").await), "Mine.");
}

#[tokio::test(start_paused = true)]
async fn two_calls_with_the_same_id_are_two_calls() {
    let text = "agent A\nturn\n call tick {}\n call tick {}\nturn\n say Done.\n";
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let options = script(text).tool(FunctionTool::new("tick", ToolEffect::Once, move || {
        let counted = counted.clone();
        async move { Ok(ToolReply::text(counted.fetch_add(1, Ordering::Relaxed).to_string())) }
    }));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    run(&runtime, "A", "go").await;
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn arguments_of_ten_megabytes_are_refused_and_not_stored() {
    let huge = "x".repeat(10 * 1024 * 1024);
    let text = format!(
        "agent A\nturn\n say Look.\n call tick {{\"a\": \"{huge}\"}}\nturn\n when far too long\n say Sorry.\n"
    );
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let options = script(&text).tool(FunctionTool::new("tick", ToolEffect::Once, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(ToolReply::text("ticked")) }
    }));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "go").await;
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Sorry.");
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert!(transcript(&runtime, &agent).await.len() < 1_000);
}
