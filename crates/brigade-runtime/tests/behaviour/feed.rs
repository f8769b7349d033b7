//! The feed: nothing is missed or repeated, in order; a gap is reported.

use std::sync::Arc;

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Millis, Position, Time};
use brigade_runtime::{FeedSubscription, FeedUpdate, JobContext, JobError, JobTask, NewTask};
use brigade_store::{MemoryOptions, MemoryStore, Retention};
use brigade_testkit::{ManualClock, TestRuntime};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// Returns a job that reports progress this many times.
fn chatty(notes: u32) -> NewTask<JobTask<u32>> {
    NewTask::closure("chatty", move |ctx: JobContext| async move {
        for n in 0..notes {
            ctx.progress(n).await?;
        }
        Ok::<_, JobError>(notes)
    })
}

/// The lane of the first runtime on a store in memory.
const LANE: Lane = Lane(0);

fn at(no: u64) -> FeedCursor {
    Position { lane: LANE, no }.into()
}

/// Returns the positions of all events up to `to`.
async fn drain(feed: &mut FeedSubscription, to: FeedCursor) -> Vec<u64> {
    let mut positions = Vec::new();
    while !feed.cursor().includes_all(&to) {
        match eventually(feed.next()).await.unwrap().unwrap() {
            FeedUpdate::Event(item) => positions.push(item.position.no),
            gap => panic!("{gap:?}"),
        }
    }
    positions
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_progress_loses_none_and_the_end_comes_last() {
    let test = TestRuntime::new(|b| b).await;
    let mut feed = test.session.subscribe(test.runtime.cursor());
    let task = test.session.spawn(chatty(100)).await.unwrap();
    let mut notes = Vec::new();
    let end = loop {
        match next_event(&mut feed).await {
            Event::Progressed { no, note } => {
                assert_eq!(no, task.no());
                notes.push(note.to_string());
            }
            Event::Ended { no, outcome, .. } => {
                assert_eq!(no, task.no());
                break outcome;
            }
            Event::Spawned(_) | Event::Started { .. } => assert!(notes.is_empty()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(notes, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(*end, succeeded("100"), "the end carries the result");
    let row = task.get().await.unwrap();
    assert_eq!(row.extras.as_ref().unwrap().progress, Some(json("99")));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_reconnects_anywhere_misses_nothing_and_sees_nothing_twice() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::with_one_loop(store.clone(), |b| b).await;
    let task = test.session.spawn(chatty(40)).await.unwrap();
    wait_result(&task).await;
    let last = test.runtime.cursor().number_in(LANE);
    assert!(last > 40);
    let all: Vec<u64> = (1..=last).collect();
    assert_eq!(drain(&mut test.runtime.subscribe(FeedCursor::START), at(last)).await, all);
    for cut in 0..=last {
        let mut first = test.runtime.subscribe(FeedCursor::START);
        let mut seen = drain(&mut first, at(cut)).await;
        let mut second = test.runtime.subscribe(first.cursor());
        drop(first);
        seen.extend(drain(&mut second, at(last)).await);
        assert_eq!(seen, all, "cut at {cut}");
    }
    crash(test).await;
    // Without recent events in memory, the store is read.
    let test = TestRuntime::with_one_loop(store, |b| b).await;
    for cut in 0..last {
        let seen = drain(&mut test.runtime.subscribe(at(cut)), at(last)).await;
        assert_eq!(seen, all[usize::try_from(cut).unwrap()..], "from {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_the_end_waits_for_new_events() {
    let test = TestRuntime::new(|b| b).await;
    let mut feed = test.session.subscribe(test.runtime.cursor());
    let nothing = tokio::time::timeout(SECOND, feed.next()).await;
    assert!(nothing.is_err());
    let (event, task) = tokio::join!(next_event(&mut feed), test.session.spawn(forever()));
    let Event::Spawned(spawned) = event else { panic!("{event:?}") };
    assert_eq!(spawned.no, task.unwrap().no());
}

#[tokio::test(start_paused = true)]
async fn a_sessions_feed_has_its_own_events_only_and_the_runtimes_has_all() {
    let test = TestRuntime::with_one_loop(Arc::new(MemoryStore::new()), |b| b).await;
    let other = test.runtime.session("other").await.unwrap();
    for _ in 0..5 {
        wait_result(&test.session.spawn(returns(1)).await.unwrap()).await;
        wait_result(&other.spawn(returns(2)).await.unwrap()).await;
    }
    let last = test.runtime.cursor().number_in(LANE);
    let mut seen = 0;
    for session in [&test.session, &other] {
        let mut feed = session.subscribe(FeedCursor::START);
        let mut before = 0;
        while let Ok(message) = tokio::time::timeout(SECOND, feed.next()).await {
            let FeedUpdate::Event(item) = message.unwrap().unwrap() else { panic!("a gap") };
            assert_eq!(item.record.session, session.id());
            assert_eq!(
                item.record.seq.0,
                before + 1,
                "the sequence numbers of a session have no gap"
            );
            before = item.record.seq.0;
            seen += 1;
        }
    }
    assert_eq!(seen, last);
    assert_eq!(
        drain(&mut test.runtime.subscribe(FeedCursor::START), at(last)).await.len() as u64,
        last
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_falls_back_to_the_store_and_catches_up() {
    let test =
        TestRuntime::with_one_loop(Arc::new(MemoryStore::new()), |b| b.max_batch(1024)).await;
    let mut slow = test.session.subscribe(FeedCursor::START);
    let mut reading = test.session.subscribe(FeedCursor::START);
    drain(&mut reading, at(1)).await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        tasks.push(test.session.spawn(chatty(1_000)).await.unwrap());
    }
    for task in &tasks {
        wait_result(task).await;
    }
    let last = test.runtime.cursor().number_in(LANE);
    assert!(last > 20_000, "more than the ring holds");
    assert_eq!(drain(&mut slow, at(last)).await, (1..=last).collect::<Vec<_>>());
    assert_eq!(drain(&mut reading, at(last)).await, (2..=last).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_reader_gets_one_gap_and_then_continues() {
    let options = MemoryOptions { max_events: 10, ..MemoryOptions::default() };
    let store = Arc::new(MemoryStore::with_options(options));
    let test = TestRuntime::with_one_loop(store.clone(), |b| b).await;
    wait_result(&test.session.spawn(chatty(40)).await.unwrap()).await;
    let last = test.runtime.cursor().number_in(LANE);
    crash(test).await;
    let test = TestRuntime::with_one_loop(store, |b| b).await;
    let mut feed = test.session.subscribe(at(3));
    let gap = eventually(feed.next()).await.unwrap().unwrap();
    assert_eq!(gap, FeedUpdate::Gap { to: at(last - 10) });
    let positions = drain(&mut feed, at(last)).await;
    assert_eq!(positions, (last - 9..=last).collect::<Vec<_>>());
    let mut kept = test.session.subscribe(at(last - 5));
    assert_eq!(drain(&mut kept, at(last)).await.len(), 5, "a reader of stored events sees no gap");
}

#[tokio::test(start_paused = true)]
async fn pruned_events_are_a_gap_also_when_nothing_is_left() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::with_one_loop(store.clone(), |b| b).await;
    wait_result(&test.session.spawn(returns(1)).await.unwrap()).await;
    let last = test.runtime.cursor().number_in(LANE);
    tokio::time::sleep(10 * SECOND).await;
    let all = Retention { ended: Millis(5_000), events: Millis(5_000) };
    let pruned = test.runtime.prune(&all).await.unwrap();
    assert_eq!((pruned.tasks, pruned.events), (1, last));
    refused(test.session.get(number(1)).await, NOT_FOUND, "1");
    crash(test).await;
    let test = TestRuntime::with_one_loop(store, |b| b).await;
    let mut feed = test.session.subscribe(FeedCursor::START);
    let gap = eventually(feed.next()).await.unwrap().unwrap();
    assert_eq!(gap, FeedUpdate::Gap { to: at(last) });
    let again = test.session.spawn(returns(1)).await.unwrap();
    assert_eq!(again.address(), "job:2", "a number is never used again");
    assert!(matches!(next_event(&mut feed).await, Event::Spawned(_)));
}

#[tokio::test(start_paused = true)]
async fn time_in_a_session_does_not_run_backwards_when_the_clock_does() {
    let clock = ManualClock::at(TestRuntime::START);
    let test = TestRuntime::new(|b| b.clock(Arc::new(clock.clone()))).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    clock.set(Time(TestRuntime::START.0 - 3_600_000));
    gate.cancel();
    let end = wait_result(&task).await;
    assert_eq!(end.ended_at, TestRuntime::START, "not before it was spawned");
    let mut last = Time(0);
    for record in test.events_after(FeedCursor::START).await {
        assert!(record.at >= last);
        last = record.at;
    }
}
