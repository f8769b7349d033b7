//! Wrong input is refused with a reason and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::{TaskAddress, TaskRef};
use brigade_model::command::GivenAnswer;
use brigade_model::json::PAYLOAD_MAX;
use brigade_runtime::{Job, JobContext, JobError, NewTask, Runtime};
use brigade_testkit::TestRuntime;

use crate::support::*;

async fn kitchen() -> TestRuntime {
    TestRuntime::new(|b| {
        b.job(Job::new("double"), |_: JobContext, n: u32| async move { Ok::<_, JobError>(n * 2) })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_wrong_spawn_changes_nothing() {
    let test = kitchen().await;
    let before = test.runtime.cursor();
    let big = "x".repeat(PAYLOAD_MAX);
    let nan = std::collections::HashMap::from([(vec![1], 1)]);
    let cases = [
        (returns(1).name(""), INVALID, "is empty"),
        (returns(1).name("3 pigs"), INVALID, "must start with a letter"),
        (returns(1).name("a/b"), INVALID, "contains '/'"),
        (returns(1).name("a\nb"), INVALID, "contains '\\n'"),
        (returns(1).name(&"n".repeat(65)), INVALID, "65 characters long; the maximum is 64"),
        (returns(1).name(&big), INVALID, "the maximum is 64"),
        (returns(1).key(""), INVALID, "is empty"),
        (returns(1).key("a\0b"), INVALID, "control character"),
        (returns(1).key(&"k".repeat(257)), INVALID, "the maximum is 256"),
        (NewTask::job("double", &big).erase(), INVALID, "1048578 bytes; the maximum is 1048576"),
        (NewTask::job("double", nan).erase(), INVALID, "is not JSON"),
        (NewTask::job("treble", 1).erase(), NOT_FOUND, "registered are: double"),
        (NewTask::job("", 1).erase(), NOT_FOUND, "no job is registered as \"\""),
        (NewTask::custom("Oven", 1).erase(), INVALID, "the kind \"Oven\""),
        (NewTask::custom("", 1).erase(), INVALID, "the kind \"\""),
        (NewTask::custom(&"k".repeat(33), 1).erase(), INVALID, "1 to 32 lower-case letters"),
        (NewTask::custom("oven", &big).erase(), INVALID, "the maximum is"),
    ];
    for (task, kind, part) in cases {
        let result = test.session.spawn(task).await;
        assert!(result.as_ref().unwrap_err().message.len() < 500, "bad input is not repeated");
        refused(result, kind, part);
    }
    assert_eq!(test.runtime.cursor(), before);
    assert!(test.session.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_the_handler_fail_the_task_with_the_reason() {
    let test = kitchen().await;
    for (task, part) in [
        (NewTask::job("double", "two"), "invalid type: string \"two\", expected u32"),
        (NewTask::job("double", -1), "invalid value: integer `-1`, expected u32"),
        (NewTask::job("double", ()), "invalid type: null, expected u32"),
    ] {
        let task = test.session.spawn(task).await.unwrap();
        let end = outcome(&task).await.to_string();
        assert!(end.starts_with("failed (error: ") && end.contains(part), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_or_step_over_the_cap_fails_with_the_sizes() {
    let test = kitchen().await;
    let big = || "x".repeat(PAYLOAD_MAX);
    let task = test.session.spawn(returns(big())).await.unwrap();
    let end = outcome(&task).await.to_string();
    assert!(end.contains("1048578 bytes; the maximum is 1048576"), "{end}");
    let steps = NewTask::closure("steps", move |ctx: JobContext| async move {
        let step = ctx.step("big", || async { Ok::<_, JobError>(big()) }).await;
        let note = ctx.progress(big()).await;
        let state = ctx.set_state(big()).await;
        let asked = ctx.ask::<u32>(big()).await;
        let sent = ctx.send_parent(big()).await;
        let all = [step.is_err(), note.is_err(), state.is_err(), asked.is_err(), sent.is_err()];
        Ok::<_, JobError>(all)
    });
    let task = test.session.spawn(steps).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("[true,true,true,true,true]"));
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_cap_is_refused() {
    let test = kitchen().await;
    let task = test.session.spawn(forever()).await.unwrap();
    let before = test.runtime.cursor();
    refused(task.send("x".repeat(PAYLOAD_MAX)).await, INVALID, "the maximum is");
    assert_eq!(test.runtime.cursor(), before);
}

#[tokio::test(start_paused = true)]
async fn malformed_addresses_are_refused_as_such() {
    for (text, part) in [
        ("", "is empty"),
        ("job:", "has no number"),
        ("job:0", "has no number"),
        ("job:-1", "has no number"),
        ("job:4294967296", "has no number"),
        ("Job:1", "lower-case"),
        ("1#0", "has no number"),
        ("self", "is reserved"),
    ] {
        refused(text.parse::<TaskRef>(), INVALID, part);
        refused(text.parse::<TaskAddress>(), INVALID, part);
    }
    let long = "job:1".repeat(1_000_000).parse::<TaskAddress>().unwrap_err();
    assert!(long.message.len() < 500);
    let test = kitchen().await;
    test.session.spawn(forever()).await.unwrap();
    let run: TaskRef = "job:1#2".parse().unwrap();
    refused(test.session.get(run.clone()).await, NOT_FOUND, "has no run 2; its latest is 1");
    refused(test.session.wait_any([run]).await, NOT_FOUND, "has no run 2; its latest is 1");
}

#[tokio::test(start_paused = true)]
async fn session_names_are_checked() {
    let test = kitchen().await;
    let before = test.runtime.sessions().await.unwrap().len();
    for (name, part) in [("", "is blank"), ("  ", "is blank"), ("a\u{7}", "control character")] {
        refused(test.runtime.session(name).await, INVALID, part);
    }
    let long = test.runtime.session(&"s".repeat(5_000)).await;
    refused(long, INVALID, "5000 bytes long; the maximum is 1024");
    assert_eq!(test.runtime.sessions().await.unwrap().len(), before);
}

#[tokio::test(start_paused = true)]
async fn one_key_with_another_request_is_a_conflict() {
    let test = kitchen().await;
    let dinner = || NewTask::job("double", 1).name("Dinner").key("dinner");
    let first = test.session.spawn(dinner()).await.unwrap();
    assert!(!first.existed());
    let before = test.runtime.cursor();
    for other in [
        NewTask::job("double", 2).name("Dinner").key("dinner").erase(),
        NewTask::job("double", 1).name("Supper").key("dinner").erase(),
        NewTask::job("double", 1).key("dinner").erase(),
        dinner().keep().erase(),
        dinner().grace(SECOND).erase(),
        returns(1).key("dinner"),
    ] {
        let part = "the key \"dinner\" stands for task 1 with another request";
        refused(test.session.spawn(other).await, CONFLICT, part);
    }
    until_idle().await;
    let again = test.session.spawn(dinner()).await.unwrap();
    assert!(again.existed() && again.no() == first.no());
    assert_eq!(*outcome(&again).await, succeeded("2"));
    let late = test.session.spawn(dinner()).await.unwrap();
    assert!(late.existed(), "also after it ended and was collected");
    assert!(outcome(&late).await.is_success());
    let other = test.session.spawn(NewTask::job("double", 2).key("dinner")).await;
    refused(other, CONFLICT, "another request");
    assert!(!before.includes_all(&test.runtime.cursor()));
    assert_eq!(test.session.row().last_task, Some(number(1)));
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_question_are_refused() {
    let test = kitchen().await;
    let task = test.session.spawn(forever()).await.unwrap();
    let reply = || GivenAnswer::Reply(json("1"));
    refused(test.session.answer(&task, reply()).await, NOT_FOUND, "no such question open");
    task.stop(None).await.unwrap();
    refused(test.session.answer(&task, reply()).await, ENDED, "is stopping");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_wrong_shape_fails_the_job_that_asked() {
    let test = TestRuntime::new(|b| b).await;
    let asks = NewTask::closure("asks", |ctx: JobContext| async move {
        let n: u32 = ctx.ask("how many?").await?;
        Ok::<_, JobError>(n)
    });
    let task = test.session.spawn(asks).await.unwrap();
    until(&test.session, task.no(), "waiting").await;
    test.session.answer(&task, GivenAnswer::Reply(json("\"many\""))).await.unwrap();
    let end = outcome(&task).await.to_string();
    assert!(end.contains("invalid type: string \"many\", expected u32"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_with_an_impossible_kind_does_not_start() {
    let (puppet, _strings) = Puppet::new();
    let started = Runtime::builder().performer("Not A Kind", OVEN, puppet).start().await;
    refused(started, INVALID, "the kind \"Not A Kind\"");
}

#[tokio::test(start_paused = true)]
async fn durations_beyond_all_time_never_end() {
    let test = TestRuntime::new(|b| b).await;
    let sleeps = NewTask::closure("sleeps", |ctx: JobContext| async move {
        let slept = ctx.sleep(Duration::MAX).await;
        Ok::<_, JobError>(slept.is_ok())
    });
    let sleeper = test.session.spawn(sleeps).await.unwrap();
    let stubborn = test.session.spawn(forever().grace(Duration::MAX)).await.unwrap();
    stubborn.stop(None).await.unwrap();
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!(state(&test.session, sleeper.no()).await, "waiting");
    assert_eq!(state(&test.session, stubborn.no()).await, "stopping");
    let store: Arc<str> = "still answers".into();
    assert!(
        outcome(&test.session.spawn(returns(store.to_string())).await.unwrap()).await.is_success()
    );
}
