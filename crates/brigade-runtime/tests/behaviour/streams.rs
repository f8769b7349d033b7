//! The feed and the progress of a run as streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Lane;
use brigade_model::refusal::Refusal;
use brigade_runtime::{
    EventStream, FeedUpdate, JobContext, JobError, JobTask, NewTask, OutputLine, TaskHandle,
};
use brigade_store::MemoryStore;
use brigade_testkit::TestRuntime;
use futures_util::{StreamExt, TryStreamExt};

use crate::support::*;

/// Returns a job that reports numbers from zero.
fn counting(notes: u32) -> NewTask<JobTask<u32>> {
    NewTask::closure("counting", move |ctx: JobContext| async move {
        for n in 0..notes {
            ctx.progress(n).await?;
        }
        Ok::<_, JobError>(notes)
    })
}

/// Returns the positions of the next events.
async fn take_positions(events: &mut EventStream, count: usize) -> Vec<u64> {
    let mut positions = Vec::new();
    while positions.len() < count {
        match eventually(events.next()).await.unwrap().unwrap() {
            FeedUpdate::Event(item) => positions.push(item.position.no),
            other => panic!("{other:?}"),
        }
    }
    positions
}

#[tokio::test(start_paused = true)]
async fn an_event_stream_dropped_anywhere_continues_at_its_cursor() {
    let test = TestRuntime::new(|b| b).await;
    wait_result(&test.session.spawn(counting(30)).await.unwrap()).await;
    let last = test.runtime.cursor().number_in(Lane(0));
    let all: Vec<u64> = (1..=last).collect();
    for cut in 0..=all.len() {
        let mut first = test.runtime.subscribe(FeedCursor::START).into_stream();
        let mut seen = take_positions(&mut first, cut).await;
        // A dropped poll loses nothing either.
        let cursor = first.cursor();
        drop(first.next());
        assert_eq!(first.cursor(), cursor);
        drop(first);
        let mut second = test.runtime.subscribe(cursor).into_stream();
        seen.extend(take_positions(&mut second, all.len() - cut).await);
        assert_eq!(seen, all, "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn session_events_start_now_and_end_with_the_runtime() {
    let test = TestRuntime::new(|b| b).await;
    wait_result(&test.session.spawn(returns(1)).await.unwrap()).await;
    let events = test.session.events();
    let task = test.session.spawn(returns(2)).await.unwrap();
    wait_result(&task).await;
    let open = test.session.spawn(forever()).await.unwrap();
    let of_open = open.events();
    let of_open_notes = open.progress::<u32>();
    let approvals = test.session.approval_stream();
    test.runtime.clone().shutdown().await.unwrap();
    let events: Vec<FeedUpdate> = eventually(events.try_collect()).await.unwrap();
    let FeedUpdate::Event(first) = &events[0] else { panic!("{events:?}") };
    assert!(matches!(&first.record.event, Event::Spawned(spawned) if spawned.no == task.no()));
    assert!(eventually(of_open.count()).await > 0);
    assert_eq!(eventually(of_open_notes.count()).await, 0);
    assert_eq!(eventually(approvals.count()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn progress_is_typed_and_ends_with_the_run() {
    let test = TestRuntime::new(|b| b).await;
    let other = test.session.spawn(counting(5)).await.unwrap();
    let task = test.session.spawn(counting(100)).await.unwrap();
    let read: Vec<u32> = eventually(task.progress::<u32>().try_collect()).await.unwrap();
    assert_eq!(read, (0..100).collect::<Vec<_>>());
    // The handle knows since when, so a reader after the end misses nothing.
    wait_result(&other).await;
    let late: Vec<u32> = eventually(other.progress::<u32>().try_collect()).await.unwrap();
    assert_eq!(late, [0, 1, 2, 3, 4]);
    let mut dropped = task.progress::<u32>();
    assert_eq!(eventually(dropped.next()).await.unwrap().unwrap(), 0);
    drop(dropped);
    let wrong: Vec<Result<String, Refusal>> =
        eventually(other.progress::<String>().collect()).await;
    assert_eq!(wrong.len(), 5, "a wrong note does not end the stream");
    assert!(wrong.iter().all(Result::is_err));
}

#[tokio::test(start_paused = true)]
async fn the_newest_progress_is_read_without_a_stream() {
    let test = TestRuntime::new(|b| b).await;
    let silent = test.session.spawn(forever()).await.unwrap();
    assert_eq!(silent.last_progress::<u32>().await, Ok(None));
    let task = test.session.spawn(counting(5)).await.unwrap();
    wait_result(&task).await;
    assert_eq!(task.last_progress::<u32>().await, Ok(Some(4)), "also after the end");
    assert_eq!(task.get().await.unwrap().progress(), Some(&json("4")));
    refused(task.last_progress::<String>().await, INVALID, "string");
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_run_that_has_ended_before_has_a_stream_that_ends() {
    let test = TestRuntime::new(|b| b).await;
    let keyed = || counting(3).key("once");
    wait_result(&test.session.spawn(keyed()).await.unwrap()).await;
    let again = test.session.spawn(keyed()).await.unwrap();
    assert!(again.existed());
    assert_eq!(eventually(again.progress::<u32>().count()).await, 0);
    assert_eq!(eventually(again.events().count()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_operator_sees_the_events_of_descendants_and_a_client_those_of_its_task() {
    let test = TestRuntime::new(|b| b).await;
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    let session = test.session.clone();
    let family = |name: &'static str| {
        NewTask::closure(name, move |ctx: JobContext| async move {
            let child = ctx.spawn(counting(2)).await?;
            ctx.wait_all([&child]).await?;
            Ok::<_, JobError>(())
        })
    };
    let of_client = session.spawn(family("one")).await.unwrap();
    let of_operator = operator.spawn(family("two")).await.unwrap();
    let client_tasks = tasks_of(&of_client).await;
    assert_eq!(client_tasks, BTreeSet::from([of_client.no()]));
    let operator_tasks = tasks_of(&of_operator).await;
    assert_eq!(operator_tasks.len(), 2, "{operator_tasks:?}");
    assert!(operator_tasks.contains(&of_operator.no()));
    assert!(!operator_tasks.contains(&of_client.no()));
}

async fn tasks_of<T>(task: &TaskHandle<T>) -> BTreeSet<brigade_model::ids::TaskNo> {
    let events: Vec<FeedUpdate> = eventually(task.events().try_collect()).await.unwrap();
    let Some(FeedUpdate::Event(last)) = events.last() else { panic!("{events:?}") };
    assert!(matches!(&last.record.event, Event::Ended { no, .. } if *no == task.no()), "{last:?}");
    let tasks = events.iter().filter_map(|update| match update {
        FeedUpdate::Event(item) => item.record.event.task(),
        _ => None,
    });
    tasks.collect()
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_progress_misses_nothing() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store, |b| b).await;
    let task = test.session.spawn(counting(20_000)).await.unwrap();
    let mut notes = task.progress::<u32>();
    assert_eq!(eventually(notes.next()).await.unwrap().unwrap(), 0);
    // More events follow than the feed has in memory.
    wait_result(&task).await;
    let read: Vec<u32> = eventually(notes.try_collect()).await.unwrap();
    assert_eq!(read, (1..20_000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn only_a_process_has_lines() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(returns(1)).await.unwrap();
    let lines: Vec<Result<OutputLine, Refusal>> = eventually(task.lines().collect()).await;
    let [Err(refusal)] = &lines[..] else { panic!("{lines:?}") };
    assert!(refusal.message.contains("has no output"), "{refusal}");
    let output: Vec<_> = eventually(task.text().collect()).await;
    let [Err(refusal)] = &output[..] else { panic!("{output:?}") };
    assert!(refusal.message.contains("is no agent"), "{refusal}");
    assert!(task.usage().await.unwrap().total().is_none());
}
