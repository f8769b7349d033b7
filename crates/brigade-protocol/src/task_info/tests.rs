//! Tests of tasks as clients see them.

use std::sync::Arc;

use brigade_model::call::{ParkedCall, RetryPause};
use brigade_model::entry_label::EntryLabel;
use brigade_model::error_details::ErrorDetails;
use brigade_model::ids::{Attempt, RunNo};
use brigade_model::spec::TaskSpec;
use brigade_model::task::RunStart;
use brigade_model::work::JobWork;

use super::*;

#[test]
fn a_task_that_waits_to_retry_says_which_call_and_why() {
    let pause = |label: EntryLabel, until: u64| ParkedCall {
        index: CallIndex(until as u32),
        condition: Condition::Retry(Box::new(RetryPause {
            label,
            attempt: 2,
            error: ErrorDetails::new("declined").with_kind("card"),
            until: Time(until),
        })),
    };
    let mut row = waiting_job();
    row.parked_calls = vec![pause(EntryLabel::JobRetry, 90), pause(EntryLabel::step("pay"), 70)];
    let session = "here".parse().expect("a session's name");
    let info = TaskInfo::of(&session, TaskNo::FIRST, &row);
    let text = "waits to retry step pay; attempt 2 failed: declined [card]";
    assert_eq!(info.detail.as_deref(), Some(text));
    let times: Vec<u64> = info.retries.iter().map(|retry| retry.retry_at).collect();
    assert_eq!(times, [70, 90]);
    let json = serde_json::to_value(&info.retries[1]).expect("JSON");
    let expected = serde_json::json!({
        "call": "job", "attempt": 2, "error": "declined [card]", "retry_at": 90,
    });
    assert_eq!(json, expected);
    row.state = TaskState::Running;
    let info = TaskInfo::of(&session, TaskNo::FIRST, &row);
    assert_eq!(info.detail, None, "it does something else meanwhile");
    assert_eq!(info.retries.len(), 2);
}

fn waiting_job() -> TaskRow {
    let work = Work::Job(JobWork::Closure { label: "c".into() });
    TaskRow {
        spec: Arc::new(TaskSpec::new(work)),
        name: None,
        owner: Owner::Session,
        owner_run: RunNo::FIRST,
        call: None,
        spawner: None,
        client: None,
        run: RunNo::FIRST,
        attempt: Attempt(1),
        crashes: 0,
        journal_len: 0,
        spawned_at: Time(1),
        last_activity_at: Time(1),
        state: TaskState::Waiting,
        state_changed_at: None,
        run_start: RunStart::Unknown,
        unacked: None,
        parked_calls: Vec::new(),
        limits: None,
        extras: None,
    }
}

#[test]
fn the_kind_is_sent_or_taken_from_the_address() {
    let task = |address: &str, kind: Option<&str>| -> TaskInfo {
        let mut info = serde_json::json!({
            "address": address, "session": "here", "description": "x", "state": "running",
            "alive": true, "run": 1, "attempt": 1, "spawned_at": 0, "last_activity_at": 0,
        });
        if let Some(kind) = kind {
            info["kind"] = kind.into();
        }
        serde_json::from_value(info).expect("a task")
    };
    assert!(task("3", Some("process")).is_process());
    assert!(!task("process:3", Some("agent")).is_process());
    assert!(task("process:3", None).is_process() && task("agent:3", None).is_agent());
}
