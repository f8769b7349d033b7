//! A custom kind of work: the calls to its performer and its reports.

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{
    AfterPark, AttemptReport, EndReport, GivenAnswer, PushResult, WorkResult,
};
use brigade_model::ids::{Attempt, CallIndex, Millis, RunNo, Time};
use brigade_model::limits::Limits;
use brigade_model::message::Receipt;
use brigade_model::outcome::{EndConfirmation, Failure, Outcome};
use brigade_model::work::Work;
use brigade_runtime::{Delivery, StopMode};
use brigade_testkit::TestRuntime;

use crate::support::*;

async fn kitchen() -> (TestRuntime, PuppetCalls) {
    let (puppet, calls) = Puppet::new();
    (TestRuntime::new(|b| b.performer("oven", OVEN, puppet)).await, calls)
}

#[tokio::test(start_paused = true)]
async fn a_performer_starts_the_work_with_its_payload_and_reports_its_end() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    assert_eq!(task.address(), "oven:1");
    let (start, reporter) = oven_calls.started().await;
    assert_eq!((start.no, start.run, start.attempt), (task.no(), RunNo(1), Attempt(1)));
    let Work::Custom(work) = &start.spec.work else { panic!("{start:?}") };
    assert_eq!(work.payload, json("\"bread\""));
    reporter.report(AttemptReport::Progress(json("\"rising\""))).await.unwrap();
    reporter.post(returned("\"brown\"")).await;
    assert_eq!(*outcome(&task).await, succeeded("\"brown\""));
    let late = reporter.report(returned("\"burnt\"")).await;
    refused(late, ENDED, "it has succeeded");
    assert_eq!(*outcome(&task).await, succeeded("\"brown\""), "one ending");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_stored_as_reported() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    let how = WorkResult::Failed { failure: Failure::ExitCode(3), partial: Some(json("1")) };
    reporter.post(AttemptReport::Ended(how.into())).await;
    let end = outcome(&task).await;
    let Outcome::Failed(failed) = &*end else { panic!("{end:?}") };
    assert_eq!(failed.failure, Failure::ExitCode(3));
    assert_eq!(failed.partial, Some(json("1")));
}

#[tokio::test(start_paused = true)]
async fn messages_are_pushed_and_their_results_are_stored() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    let mut receipts = Vec::new();
    let cold = PushResult::Refused { reason: "it does not take input".into() };
    for (body, arrival) in [("hotter", PushResult::Delivered), ("colder", cold)] {
        let no = task.send(body).await.unwrap();
        let Delivery::Message(message) = oven_calls.delivered().await else { panic!("no message") };
        assert_eq!((message.no, message.body.clone()), (no, json(&format!("{body:?}"))));
        reporter
            .report(AttemptReport::Pushed { message: no, result: arrival.clone() })
            .await
            .unwrap();
        receipts.push(test.session.receipt(no).await.unwrap().unwrap().receipt);
        let again = reporter.report(AttemptReport::Pushed { message: no, result: arrival }).await;
        refused(again, NOT_FOUND, "is not in the inbox");
    }
    let dead = Receipt::DeadLettered("it does not take input".into());
    assert_eq!(receipts, [Receipt::Delivered, dead]);
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_queued_task_are_pushed_at_its_start() {
    let (test, mut oven_calls) = kitchen().await;
    test.session.set_limits(Limits { running: Some(1), ..Limits::default() }).await.unwrap();
    test.session.spawn(oven("bread")).await.unwrap();
    let (_, first) = oven_calls.started().await;
    let second = test.session.spawn(oven("cake")).await.unwrap();
    second.send("gently").await.unwrap();
    until_idle().await;
    assert!(oven_calls.is_quiet());
    first.post(returned("null")).await;
    assert_eq!(oven_calls.started().await.0.no, second.no());
    assert!(matches!(oven_calls.delivered().await, Delivery::Message(_)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_graceful_then_forced_and_the_late_result_is_attached() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread").grace(3 * SECOND)).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    task.stop(None).await.unwrap();
    let deadline = Time(TestRuntime::START.0 + 3_000);
    let attempt = Attempt(1);
    assert_eq!(oven_calls.stopped().await, StopMode::Graceful { attempt, deadline });
    assert_eq!(oven_calls.stopped().await, StopMode::Forced { attempt });
    let end = EndReport {
        result: WorkResult::Returned(json("\"half done\"")),
        confirmation: EndConfirmation::Survivors(vec!["a smell".into()]),
    };
    reporter.post(AttemptReport::Ended(end)).await;
    let end = outcome(&task).await;
    assert_eq!(late_result(&end), "\"half done\"");
    assert_eq!(end.to_string(), "cancelled (survivors: a smell)");
}

#[tokio::test(start_paused = true)]
async fn work_that_never_reports_its_end_is_unconfirmed_and_keeps_its_slot() {
    let (test, mut oven_calls) = kitchen().await;
    test.session.set_limits(Limits { running: Some(1), ..Limits::default() }).await.unwrap();
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    let next = test.session.spawn(returns("next")).await.unwrap();
    task.stop(None).await.unwrap();
    let end = wait_result(&task).await;
    assert_eq!(end.outcome.to_string(), "cancelled (unconfirmed)");
    assert_eq!(end.ended_at, Time(TestRuntime::START.0 + 10_000), "grace, then the bound");
    assert_eq!(state(&test.session, next.no()).await, "queued");
    reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
    assert!(outcome(&next).await.is_success());
    assert_eq!(outcome(&task).await.to_string(), "cancelled (unconfirmed)", "one ending");
}

#[tokio::test(start_paused = true)]
async fn the_completion_of_a_parked_call_is_delivered_to_the_performer() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    let question = ConditionRequest::Question { question: json("\"how brown?\"") };
    let asked = vec![
        (CallIndex(0), question),
        (CallIndex(1), ConditionRequest::Timer { duration: Millis(500) }),
    ];
    reporter
        .report(AttemptReport::Park {
            calls: asked,
            acked_entries: u32::MAX,
            then: AfterPark::Continue,
        })
        .await
        .unwrap();
    let Delivery::Completion { index, completion, .. } = oven_calls.delivered().await else {
        panic!("none")
    };
    assert_eq!((index, &*completion), (CallIndex(1), &CallCompletion::Elapsed));
    test.session.answer(&task, GivenAnswer::Reply(json("\"very\""))).await.unwrap();
    let Delivery::Completion { index, completion, .. } = oven_calls.delivered().await else {
        panic!("none")
    };
    assert_eq!((index, &*completion), (CallIndex(0), &CallCompletion::Reply(json("\"very\""))));
}

#[tokio::test(start_paused = true)]
async fn suspended_work_is_started_again_when_a_call_is_complete() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, first) = oven_calls.started().await;
    let calls = vec![(CallIndex(0), ConditionRequest::Timer { duration: Millis(60_000) })];
    let then = AfterPark::Suspend { parked_count: 1 };
    first.report(AttemptReport::Park { calls, acked_entries: u32::MAX, then }).await.unwrap();
    assert_eq!(state(&test.session, task.no()).await, "waiting");
    assert!(matches!(oven_calls.delivered().await, Delivery::Completion { .. }));
    let (start, second) = oven_calls.started().await;
    assert_eq!((start.attempt, start.journal_len), (Attempt(2), 1));
    refused(first.report(returned("1")).await, ENDED, "attempt 1 of oven:1 is over");
    second.post(returned("2")).await;
    assert_eq!(*outcome(&task).await, succeeded("2"));
}

#[tokio::test(start_paused = true)]
async fn a_message_to_ended_work_opens_its_next_run() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    oven_calls.started().await.1.post(returned("1")).await;
    until(&test.session, task.no(), "succeeded").await;
    task.send("once more").await.unwrap();
    let (start, reporter) = oven_calls.started().await;
    assert_eq!((start.run, start.attempt), (RunNo(2), Attempt(2)));
    assert!(matches!(oven_calls.delivered().await, Delivery::Message(_)));
    reporter.post(returned("2")).await;
    let run_results = eventually(test.session.wait_all([(&task)])).await.unwrap();
    let outcomes: Vec<_> = run_results.iter().map(|e| (e.run.0, e.outcome.clone())).collect();
    assert_eq!(outcomes, [(1, succeeded("1").into()), (2, succeeded("2").into())]);
    let earlier = test.session.earlier_run(task.no(), RunNo(1)).await.unwrap();
    assert_eq!(*earlier.unwrap().outcome, succeeded("1"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_resumed_by_the_operator_only() {
    let (test, mut oven_calls) = kitchen().await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    refused(test.session.resume(&task, None).await, CONFLICT, "has not ended");
    task.stop(None).await.unwrap();
    reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
    wait_result(&task).await;
    refused(test.session.resume(&task, None).await, FORBIDDEN, "only the operator");
    refused(task.send("please").await, FORBIDDEN, "only the operator");
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    let resumed = operator.resume(&task, None).await.unwrap();
    assert_eq!(resumed.run(), RunNo(2));
    assert_eq!(state(&test.session, task.no()).await, "running");
    assert_eq!(test.session.task(task.no()).await.unwrap().run(), RunNo(2));
    refused(test.session.task("oven:1#1").await, ENDED, "its latest is 2");
}
