//! Authors of events: the caller of each command, with the origin that its handle has.

use brigade_model::event::{Event, EventRecord};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::*;

/// Returns the author of each event that `which` selects.
async fn authors(test: &TestRuntime, which: impl Fn(&Event) -> bool) -> Vec<String> {
    let records = test.events_after(FeedCursor::START).await;
    let selected = records.iter().filter(|record| which(&record.event));
    selected.map(|record| author(record)).collect()
}

fn author(record: &EventRecord) -> String {
    record.by.as_ref().map(ToString::to_string).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn every_command_of_a_session_has_its_origin() {
    let test = TestRuntime::new(|b| b.client("chef")).await;
    let form = test.session.clone().with_origin("web form");
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    let operator = operator.with_origin("phone");

    let first = test.session.spawn(forever()).await.unwrap();
    let second = form.spawn(returns(1)).await.unwrap();
    form.spawn_all([returns(2), returns(3)]).await.unwrap();
    form.send(first.no(), "salt").await.unwrap();
    form.send_all([(first.no().into(), "pepper")]).await.unwrap();
    wait_result(&second).await;
    operator.stop(first.no(), Some("enough")).await.unwrap();
    until(&test.session, first.no(), "cancelled").await;
    operator.close(None).await.unwrap();

    let spawned = authors(&test, |event| matches!(event, Event::Spawned(_))).await;
    let by_form = "client chef, web form";
    assert_eq!(spawned, ["client chef", by_form, by_form, by_form]);
    let sent = authors(&test, |event| matches!(event, Event::MessageSent(_))).await;
    assert_eq!(sent, [by_form, by_form]);
    let collected = authors(&test, |event| matches!(event, Event::Collected { .. })).await;
    assert_eq!(collected, [by_form], "the wait of a handle is its own");
    let stopped = authors(&test, |event| matches!(event, Event::StopRequested { .. })).await;
    assert_eq!(stopped, ["operator, phone"]);
    let closed = authors(&test, |event| matches!(event, Event::SessionClosing { .. })).await;
    assert_eq!(closed, ["operator, phone"]);
    let ended = authors(&test, |event| matches!(event, Event::Ended { .. })).await;
    assert!(ended.len() >= 2 && ended.iter().all(String::is_empty), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_the_author_of_its_own_commands() {
    let test = TestRuntime::new(|b| b.client("chef")).await;
    let form = test.session.clone().with_origin("web form");
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        let child = ctx.spawn(returns(1)).await?;
        ctx.wait_all([&child]).await?;
        Ok::<_, JobError>(())
    });
    let parent = form.spawn(parent).await.unwrap();
    wait_result(&parent).await;
    let spawned = authors(&test, |event| matches!(event, Event::Spawned(_))).await;
    assert_eq!(spawned, ["client chef, web form", "task 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_command_leaves_no_event() {
    let test = TestRuntime::new(|b| b).await;
    let form = test.session.clone().with_origin("web form");
    let before = test.runtime.cursor();
    refused(form.stop(number(9), None).await, RefusalKind::NotFound, "");
    assert_eq!(test.runtime.cursor(), before);
}
