//! Checks that `prune` removes finished data and nothing else.

use std::sync::Arc;

use brigade_model::command::{
    AttemptReport, Caller, CloseCommand, Command, Recipient, ResumeCommand,
};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Millis, Owner, SessionId, TaskNo};
use brigade_model::limits::{CostEstimate, Limits, Money, Usage};

use super::StoreHarness;
use super::writer::{
    KeyedSpawn, SessionWriter, agent, client, closure, job, keyed, limited, position, session_id,
};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::store::{EventQuery, PruneResult, Retention, Store, TaskQuery};

/// Checks that alive, uncollected and recent tasks stay.
pub async fn alive_and_uncollected_tasks_stay(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let parent = writer.spawn(client(), agent()).await;
    let acting = writer.caller_of(parent);
    let _alive = writer.spawn(acting.clone(), job()).await;
    let uncollected = writer.spawn(acting, job()).await;
    writer.finish(uncollected).await;
    let pending = writer.spawn(client(), job()).await;
    writer.finish(pending).await;
    let collected = writer.spawn(client(), job()).await;
    writer.finish(collected).await;
    writer.collect(client(), &[collected]).await;
    let before = rows(&writer.store, writer.id()).await;
    let young = Retention { ended: Millis(1_000), events: Millis(u64::MAX) };
    let pruned = writer.store.prune(&young, writer.now).await.expect("the store prunes");
    assert_eq!(pruned, PruneResult::default());
    assert_eq!(rows(&writer.store, writer.id()).await, before);
    assert_eq!(prune_tasks(&writer).await, 1);
    let expected: Vec<_> = before.into_iter().filter(|no| *no != collected).collect();
    assert_eq!(rows(&writer.store, writer.id()).await, expected);
    writer = writer.reopen(harness).await;
    assert_eq!(rows(&writer.store, writer.id()).await, expected);
    let mut live = writer.tree.clone();
    writer.reload().await;
    live.evict();
    writer.tree.evict();
    assert!(writer.tree == live);
}

/// Checks that journals, messages, earlier runs and uncollected descendants go too.
pub async fn finished_tasks_go_with_their_descendants(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let id = writer.id();
    let parent = writer.spawn(client(), agent()).await;
    let acting = writer.caller_of(parent);
    let child = writer.spawn(acting, agent()).await;
    let acting = writer.caller_of(child);
    let grandchild = writer.spawn(acting, job()).await;
    writer.record(grandchild, 0).await;
    let message = writer.send(Caller::Operator, Recipient::Task(grandchild.into())).await;
    writer.finish(grandchild).await;
    writer.finish(child).await;
    let resume = ResumeCommand { caller: Caller::Operator, task: child.into(), limits: None };
    writer.submit(Command::Resume(resume)).await;
    writer.finish(child).await;
    let operators = writer.spawn(Caller::Operator, job()).await;
    writer.finish(operators).await;
    let stays = writer.spawn(client(), job()).await;
    assert_eq!(prune_tasks(&writer).await, 1, "only the operator's task is finished");
    writer.finish(parent).await;
    assert_eq!(prune_tasks(&writer).await, 0, "the parent has yet to be collected");
    writer.collect(client(), &[parent]).await;
    assert_eq!(prune_tasks(&writer).await, 3);
    writer = writer.reopen(harness).await;
    let store = &writer.store;
    assert_eq!(rows(store, id).await, [stays]);
    assert!(store.journal(id, grandchild).await.expect("a journal").is_empty());
    assert_eq!(store.message(id, message).await.expect("a message"), None);
    let run = store.run(id, child, brigade_model::ids::RunNo(1)).await.expect("a run");
    assert_eq!(run, None);
}

/// Checks that a lingering task and its ancestors stay, since its slot is counted.
pub async fn a_held_slot_keeps_its_ancestors(harness: &dyn StoreHarness) {
    let limits = Limits { running: Some(2), ..Limits::default() };
    let mut writer = SessionWriter::open(&harness.empty().await, 1, limits).await;
    let parent = writer.spawn(client(), agent()).await;
    let acting = writer.caller_of(parent);
    let stuck = writer.spawn(acting, closure()).await;
    writer.stop(Caller::Operator, parent).await;
    writer.abort(parent).await;
    writer.tick_after(60).await;
    writer.tick_after(10_000).await;
    writer.collect(client(), &[parent]).await;
    assert_eq!(prune_tasks(&writer).await, 0);
    writer = writer.reopen(harness).await;
    writer.reload().await;
    assert!(writer.tree.get(parent).is_some() && writer.tree.get(stuck).is_some());
    writer.abort(stuck).await;
    let first = writer.spawn(client(), job()).await;
    let second = writer.spawn(client(), job()).await;
    for no in [first, second] {
        assert!(writer.tree.get(no).is_some_and(|row| row.is_performed()), "{no} has a slot");
    }
    assert_eq!(prune_tasks(&writer).await, 2);
}

/// Checks that a key stays taken while the parent can spawn with it again.
pub async fn keys_stay_taken_under_alive_parents(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let top = writer.spawn(client(), keyed(agent(), "top")).await;
    let acting = writer.caller_of(top);
    let child = writer.spawn(acting.clone(), keyed(job(), "child")).await;
    writer.finish(child).await;
    writer.wait_for(top, 0, vec![child]).await;
    let other = writer.spawn(client(), keyed(job(), "other")).await;
    writer.finish(other).await;
    writer.collect(client(), &[other]).await;
    for pruned in [2, 0] {
        assert_eq!(prune_tasks(&writer).await, pruned);
        writer = writer.reopen(harness).await;
        writer.reload().await;
        let again = writer.spawn_or_find(acting.clone(), keyed(job(), "child")).await;
        assert_eq!(again, KeyedSpawn::Existing(child));
        let again = writer.spawn_or_find(client(), keyed(job(), "other")).await;
        assert_eq!(again, KeyedSpawn::Existing(other));
        let again = writer.spawn_or_find(client(), keyed(agent(), "top")).await;
        assert_eq!(again, KeyedSpawn::Existing(top));
    }
    let fresh = writer.spawn_or_find(client(), keyed(job(), "child")).await;
    let is_new = matches!(fresh, KeyedSpawn::New(no) if no > other);
    assert!(is_new, "another parent's key is another key");
    writer.finish(top).await;
    writer.collect(client(), &[top]).await;
    prune_tasks(&writer).await;
    let loaded = writer.store.load(writer.id()).await.expect("a load").expect("it is there");
    assert!(loaded.keys.iter().all(|mark| mark.owner == Owner::Session), "{:?}", loaded.keys);
}

/// Checks that the key of a kept child does not become a key of the session.
pub async fn a_key_does_not_pass_to_the_session(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let parent = writer.spawn(client(), agent()).await;
    let mut kept = keyed(job(), "key");
    kept.keep = true;
    let acting = writer.caller_of(parent);
    let child = writer.spawn(acting, kept).await;
    writer.finish(parent).await;
    writer = writer.reopen(harness).await;
    writer.reload().await;
    assert_eq!(writer.tree.owner_of(child), Some(Owner::Session));
    writer.finish(child).await;
    prune_tasks(&writer).await;
    writer.reload().await;
    let other = writer.spawn_or_find(client(), keyed(job(), "key")).await;
    assert!(matches!(other, KeyedSpawn::New(no) if no > child), "{other:?}");
}

/// Checks that an ended task's row stays while a kept task can be charged to it.
pub async fn a_limit_holder_stays_while_it_is_charged(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let limits = Limits { tokens: Some(100), ..Limits::default() };
    let top = writer.spawn(client(), limited(agent(), limits)).await;
    let acting = writer.caller_of(top);
    let middle = writer.spawn(acting, agent()).await;
    let mut kept = agent();
    kept.keep = true;
    let acting = writer.caller_of(middle);
    let kept = writer.spawn(acting, kept).await;
    writer.finish(middle).await;
    writer.finish(top).await;
    writer.collect(client(), &[top]).await;
    assert_eq!(prune_tasks(&writer).await, 0);
    writer = writer.reopen(harness).await;
    writer.reload().await;
    assert!([top, middle].iter().all(|no| writer.tree.get(*no).is_some()), "they limit {kept}");
    writer.report(kept, AttemptReport::Charge(Usage { tokens: 60, money: Money(0) })).await;
    writer.finish(kept).await;
    // The kept task has ended and is evicted, and so are its limit holders.
    writer = writer.reopen(harness).await;
    writer.reload().await;
    writer.tree.evict();
    assert_eq!(writer.tree.loaded_count(), 0);
    let resume = ResumeCommand { caller: Caller::Operator, task: kept.into(), limits: None };
    writer.submit(Command::Resume(resume)).await;
    let most = Usage { tokens: 1_000, money: Money(0) };
    let reply = writer
        .report(kept, AttemptReport::Reserve(CostEstimate { max: most, min: Usage::NONE }))
        .await;
    assert_eq!(reply, CommandReply::Granted(Usage { tokens: 40, money: Money(0) }));
    writer.finish(kept).await;
    let removed = prune_tasks(&writer).await + prune_tasks(&writer).await;
    assert_eq!(removed, 3, "no row stays without a use");
    assert_eq!(rows(&writer.store, writer.id()).await, []);
}

/// Checks that a writer with a removed task in memory cannot write a part of it again.
pub async fn a_removed_task_is_not_written_again(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let task = writer.spawn(client(), agent()).await;
    writer.record(task, 0).await;
    writer.finish(task).await;
    writer.collect(client(), &[task]).await;
    let resume = ResumeCommand { caller: client(), task: task.into(), limits: None };
    let (_, part) = writer.decide(&Command::Resume(resume)).await;
    assert_eq!(prune_tasks(&writer).await, 1);
    let result = writer.store.commit(&Batch { sessions: vec![part], ..Batch::default() }).await;
    assert!(matches!(result, Err(StoreError::Fenced(_))), "{result:?}");
    assert_eq!(rows(&writer.store, writer.id()).await, []);
}

pub async fn closed_sessions_go_with_their_events(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut closed = SessionWriter::open(&store, 1, Limits::default()).await;
    let task = closed.spawn(client(), job()).await;
    closed.send(closed.caller_of(task), Recipient::Parent).await;
    let mut open = SessionWriter::open(&store, 2, Limits::default()).await;
    open.spawn(client(), job()).await;
    let close = CloseCommand { caller: Caller::Operator, reason: None };
    closed.submit(Command::Close(close)).await;
    closed.abort(task).await;
    let events = closed.tree.row().seq.0 + open.tree.row().seq.0;
    let retention = Retention { ended: Millis(1_000), events: Millis(u64::MAX) };
    let now = closed.now.after(Millis(1_000));
    let pruned = store.prune(&retention, now).await.expect("the store prunes");
    assert_eq!((pruned.sessions, pruned.tasks), (1, 1));
    drop((closed, open));
    let store = harness.reopen(store).await;
    assert_eq!(store.session(session_id(1)).await.expect("a read"), None);
    assert!(store.load(session_id(1)).await.expect("a read").is_none());
    assert_eq!(rows(&store, session_id(1)).await, []);
    assert_eq!(rows(&store, session_id(2)).await.len(), 1);
    let query = EventQuery { session: None, after: Default::default(), limit: usize::MAX };
    let page = store.events(&query).await.expect("events are read");
    assert_eq!(page.gap_to, Some(position(pruned.events).into()), "a gap is at the beginning");
    assert_eq!(page.items.len() as u64, events - pruned.events);
    assert_eq!(page.items[0].record.session, session_id(2));
}

/// Prunes all finished tasks and no events. Returns the number of removed tasks.
pub(super) async fn prune_tasks(writer: &SessionWriter) -> u64 {
    let retention = Retention { ended: Millis(1_000), events: Millis(u64::MAX) };
    let now = writer.now.after(Millis(1_000));
    writer.store.prune(&retention, now).await.expect("the store prunes").tasks
}

async fn rows(store: &Arc<dyn Store>, id: SessionId) -> Vec<TaskNo> {
    let rows = store.tasks(id, &TaskQuery::default()).await.expect("tasks are read");
    rows.into_iter().map(|task| task.no).collect()
}
