//! Races on several threads, which would reveal a check that is apart from its action.

use brigade_model::event::Event;
use brigade_model::outcome::Outcome;
use brigade_runtime::{FeedUpdate, NewTask, Runtime, Session, TaskHandle};
use brigade_store::MemoryStore;
use brigade_testkit::with_test_loops;
use tokio::task::JoinSet;

use crate::support::*;

async fn session() -> Session {
    let builder = with_test_loops(Runtime::builder(), &MemoryStore::new()).await;
    let runtime = builder.start().await.unwrap();
    runtime.session("test").await.unwrap()
}

async fn all<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let set: JoinSet<T> = futures.into_iter().collect();
    soon(set.join_all()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_two_spawns_gets_a_name() {
    let session = session().await;
    let spawns = (0..1_000).flat_map(|pair| {
        [session.clone(), session.clone()].map(|session| async move {
            (pair, session.spawn(forever().name(&format!("Pair {pair}"))).await)
        })
    });
    let mut won = vec![0; 1_000];
    for (pair, result) in all(spawns.collect::<Vec<_>>()).await {
        match result {
            Ok(_) => won[pair] += 1,
            Err(refusal) => assert_eq!(refusal.kind, CONFLICT, "{refusal}"),
        }
    }
    assert!(won.iter().all(|wins| *wins == 1), "{won:?}");
    assert_eq!(session.list().len(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn spawns_with_one_key_get_one_task_and_one_of_them_created_it() {
    let session = session().await;
    let spawns = (0..400).flat_map(|key: u32| {
        [0; 4].map(|_| {
            let session = session.clone();
            let task = returns(key).key(&format!("key {key}"));
            async move { (key, session.spawn(task).await.unwrap()) }
        })
    });
    let mut by_key: Vec<Vec<TaskHandle>> = vec![Vec::new(); 400];
    for (key, task) in all(spawns.collect::<Vec<_>>()).await {
        by_key[key as usize].push(task);
    }
    assert_eq!(session.row().last_task, Some(number(400)));
    for (key, tasks) in by_key.iter().enumerate() {
        assert!(tasks.iter().all(|task| task.no() == tasks[0].no()));
        assert_eq!(tasks.iter().filter(|task| !task.existed()).count(), 1, "one claim won");
        let end = soon(tasks[0].wait()).await.unwrap();
        assert_eq!(*end.outcome, succeeded(&key.to_string()), "the result of this key's task");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wait_that_races_with_the_end_always_returns() {
    let session = session().await;
    for _ in 0..20 {
        let rounds = (0..200).map(|n: u32| {
            let session = session.clone();
            async move {
                let task = session.spawn(returns(n)).await.unwrap();
                if n.is_multiple_of(3) {
                    tokio::task::yield_now().await;
                }
                let end = task.wait().await.unwrap();
                assert_eq!(*end.outcome, succeeded(&n.to_string()));
                assert!(!end.collected_before);
            }
        });
        all(rounds.collect::<Vec<_>>()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_several_waits_collects_a_result() {
    let session = session().await;
    let rounds = (0..500).map(|n: u32| {
        let session = session.clone();
        async move {
            let task = session.spawn(returns(n)).await.unwrap();
            let other = task.clone();
            let third = task.clone();
            let ends = tokio::join!(task.wait(), other.wait(), third.wait());
            let ends = [ends.0.unwrap(), ends.1.unwrap(), ends.2.unwrap()];
            assert!(ends.iter().all(|end| *end.outcome == succeeded(&n.to_string())));
            ends.iter().filter(|end| !end.collected_before).count()
        }
    });
    let fresh = all(rounds.collect::<Vec<_>>()).await;
    assert!(fresh.iter().all(|fresh| *fresh == 1), "{fresh:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_that_races_with_the_end_has_one_outcome() {
    let session = session().await;
    let rounds = (0..500).map(|n: u32| {
        let session = session.clone();
        async move {
            let task = session.spawn(returns(n)).await.unwrap();
            let stopper = task.clone();
            let (end, stopped) = tokio::join!(task.wait(), stopper.stop(None));
            let end = end.unwrap();
            let stopped = stopped.unwrap();
            match &*end.outcome {
                Outcome::Succeeded { .. } => assert!(stopped.already_stopped, "it came too late"),
                Outcome::Cancelled(_) => assert!(!stopped.already_stopped, "it came in time"),
                Outcome::Failed(failed) => panic!("{failed:?}"),
            }
            let row = session.get(task.no()).await.unwrap().row;
            assert_eq!(row.ended().unwrap().outcome, end.outcome);
        }
    });
    all(rounds.collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_of_the_feed_finds_the_ended_task() {
    let session = session().await;
    let mut feed = session.subscribe(Default::default());
    let spawner = session.clone();
    let mut set = JoinSet::new();
    set.spawn(async move {
        for n in 0..3_000 {
            spawner.spawn(returns(n)).await.unwrap();
        }
    });
    let mut ended = 0;
    while ended < 3_000 {
        let update = soon(feed.next()).await.unwrap().unwrap();
        let FeedUpdate::Event(item) = update else { panic!("a gap") };
        if let Event::Ended { no, .. } = item.record.event {
            let row = session.get(no).await.unwrap().row;
            assert_eq!(row.state.label(), "succeeded", "{no} after {ended}");
            ended += 1;
        }
    }
    soon(set.join_all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_of_many_senders_arrive_in_the_order_of_each_sender() {
    let session = session().await;
    let senders = 8_u32;
    let each = 100_u32;
    let reads = NewTask::closure("reads", move |ctx: brigade_runtime::JobContext| async move {
        let mut got: Vec<(u32, u32)> = Vec::new();
        for _ in 0..senders * each {
            got.push(ctx.receive().await?.body.decode()?);
        }
        Ok::<_, brigade_runtime::JobError>(got)
    });
    let reader = session.spawn(reads).await.unwrap();
    let sends = (0..senders).map(|sender| {
        let reader = reader.clone();
        async move {
            for n in 0..each {
                reader.send((sender, n)).await.unwrap();
            }
        }
    });
    all(sends.collect::<Vec<_>>()).await;
    let end = soon(reader.wait()).await.unwrap();
    let Outcome::Succeeded { result } = &*end.outcome else { panic!("{end:?}") };
    let got: Vec<(u32, u32)> = result.decode().unwrap();
    for sender in 0..senders {
        let of: Vec<u32> = got.iter().filter(|(from, _)| *from == sender).map(|g| g.1).collect();
        assert_eq!(of, (0..each).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn children_that_end_while_their_parent_is_suspended_always_wake_it() {
    let session = session().await;
    let rounds = (0..300).map(|n: u32| {
        let session = session.clone();
        async move {
            let parent =
                NewTask::closure("parent", move |ctx: brigade_runtime::JobContext| async move {
                    let mut sum = 0;
                    for _ in 0..5 {
                        let child = ctx.spawn(returns(n)).await?;
                        let ended = ctx.wait_all([&child]).await?;
                        assert!(!ended[0].collected_before);
                        if let Outcome::Succeeded { result } = &*ended[0].outcome {
                            sum += result.decode::<u32>()?;
                        }
                    }
                    Ok::<_, brigade_runtime::JobError>(sum)
                });
            let parent = session.spawn(parent).await.unwrap();
            let end = parent.wait().await.unwrap();
            assert_eq!(*end.outcome, succeeded(&(n * 5).to_string()));
        }
    });
    all(rounds.collect::<Vec<_>>()).await;
}
