//! Checks reads by number, by name and by query.

use std::sync::Arc;

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{
    AfterPark, AttemptReport, Caller, CloseCommand, Command, PushResult, Recipient, ResumeCommand,
};
use brigade_model::entry_label::EntryLabel;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{CallIndex, MessageNo, Millis, Owner, RunNo, Seq, SessionId, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::message::Receipt;
use brigade_model::name::TaskName;
use brigade_model::task::StoredTask;

use super::StoreHarness;
use super::scenario::no;
use super::writer::{SessionWriter, agent, client, job, named, process, session_id};
use crate::batch::Batch;
use crate::store::{
    EventQuery, JournalQuery, MessagePage, MessageQuery, Store, TaskOrder, TaskQuery,
};

pub async fn unknown_ids_are_not_found(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    assert_eq!(store.cursor().await.expect("a cursor"), FeedCursor::START);
    assert!(store.sessions().await.expect("sessions are read").is_empty());
    SessionWriter::open(&store, 1, Limits::default()).await;
    for id in [session_id(1), session_id(2)] {
        assert_eq!(store.task(id, no(1)).await.expect("a read"), None);
        assert_eq!(store.missing_tasks(id, &[no(2), no(1)]).await.expect("a read"), [no(2), no(1)]);
        assert_eq!(find_task_no(&store, id, None, "Nobody").await, None);
        assert!(store.tasks(id, &TaskQuery::default()).await.expect("a read").is_empty());
        assert!(store.journal(id, no(1)).await.expect("a read").is_empty());
        assert_eq!(store.run(id, no(1), RunNo(1)).await.expect("a read"), None);
        assert_eq!(store.message(id, MessageNo(1)).await.expect("a read"), None);
        let query = MessageQuery { task: no(1), before: None, limit: 9, read_limit: 9 };
        let page = store.messages(id, &query).await.expect("a read");
        assert_eq!(page, MessagePage::default());
    }
    assert_eq!(store.session(session_id(2)).await.expect("a read"), None);
    assert!(store.load(session_id(2)).await.expect("a read").is_none());
    let name = "nobody's".parse().expect("a name");
    assert_eq!(store.session_named(&name).await.expect("a read"), None);
    let query = EventQuery { session: Some(session_id(2)), after: Default::default(), limit: 9 };
    assert!(store.events(&query).await.expect("a read").items.is_empty());
}

/// Checks that names ignore case, and that the newest task of a name is found, alive or ended.
pub async fn tasks_by_number_and_name(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let top = writer.spawn(client(), named(agent(), "Test Runner")).await;
    let acting = writer.caller_of(top);
    let child = writer.spawn(acting.clone(), named(job(), "test runner")).await;
    writer.finish(child).await;
    let newer = writer.spawn(acting, named(job(), "TEST RUNNER")).await;
    let other = writer.spawn(client(), named(job(), "Other")).await;
    writer.finish(other).await;
    let row = writer.tree.get(top).cloned();
    let id = writer.id();
    drop(writer);
    for _ in 0..2 {
        assert_eq!(store.task(id, top).await.expect("a read"), row);
        let requested = [no(99), top, child, no(98)];
        assert_eq!(store.missing_tasks(id, &requested).await.expect("a read"), [no(99), no(98)]);
        assert_eq!(find_task_no(&store, id, None, "Test runner").await, Some(newer));
        assert_eq!(find_task_no(&store, id, Some(Owner::Session), "test Runner").await, Some(top));
        assert_eq!(
            find_task_no(&store, id, Some(Owner::Task(top)), "Test Runner").await,
            Some(newer)
        );
        assert_eq!(find_task_no(&store, id, Some(Owner::Task(child)), "Test Runner").await, None);
        assert_eq!(find_task_no(&store, id, None, "other").await, Some(other));
        assert_eq!(find_task_no(&store, id, None, "Test").await, None);
        store = harness.reopen(store).await;
    }
}

pub async fn tasks_by_query_and_page(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let top = writer.spawn(client(), agent()).await;
    for number in 0..12 {
        let caller = if number % 3 == 0 { client() } else { writer.caller_of(top) };
        let no = writer.spawn(caller, job()).await;
        if number % 2 == 0 {
            writer.finish(no).await;
        }
    }
    let id = writer.id();
    drop(writer);
    for _ in 0..2 {
        let all = store.tasks(id, &TaskQuery::default()).await.expect("a read");
        assert_eq!(all.iter().map(|task| task.no.get()).collect::<Vec<_>>(), numbers(1..=13));
        for owner in [None, Some(Owner::Session), Some(Owner::Task(top)), Some(Owner::Task(no(2)))]
        {
            for alive_only in [false, true] {
                let expected: Vec<_> = all
                    .iter()
                    .filter(|task| owner.is_none_or(|owner| task.row.owner == owner))
                    .filter(|task| !alive_only || task.row.is_alive())
                    .cloned()
                    .collect();
                let newest: Vec<_> = expected.iter().rev().cloned().collect();
                for limit in [1, 4, usize::MAX] {
                    let query = TaskQuery { owner, alive_only, limit, ..TaskQuery::default() };
                    assert_eq!(read_all_pages(&store, id, query.clone()).await, expected);
                    let query = TaskQuery { order: TaskOrder::NewestFirst, ..query };
                    assert_eq!(read_all_pages(&store, id, query).await, newest);
                }
            }
        }
        let nothing = TaskQuery { limit: 0, ..TaskQuery::default() };
        assert!(store.tasks(id, &nothing).await.expect("a read").is_empty());
        store = harness.reopen(store).await;
    }
}

/// Completes calls in another order than they were made in.
pub async fn journals_are_in_the_order_of_completions(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let task = writer.spawn(client(), job()).await;
    let other = writer.spawn(client(), job()).await;
    let sleeps = [(0, 300), (1, 100), (2, 200)];
    let calls = sleeps.map(|(index, millis)| {
        (CallIndex(index), ConditionRequest::Timer { duration: Millis(millis) })
    });
    let park = AttemptReport::Park {
        calls: calls.to_vec(),
        acked_entries: u32::MAX,
        then: AfterPark::Continue,
    };
    writer.report(task, park).await;
    writer.record(other, 0).await;
    writer.record(task, 3).await;
    for _ in 0..3 {
        writer.tick_after(110).await;
        // A job gets the next completion only after it has acknowledged the last.
        let calls = Vec::new();
        let acknowledgement =
            AttemptReport::Park { calls, acked_entries: u32::MAX, then: AfterPark::Continue };
        writer.report(task, acknowledgement).await;
    }
    let id = writer.id();
    drop(writer);
    for _ in 0..2 {
        let journal = store.journal(id, task).await.expect("a journal");
        let order: Vec<u32> = journal.iter().map(|entry| entry.index.0).collect();
        assert_eq!(order, [3, 1, 2, 0]);
        assert!(journal.is_sorted_by_key(|entry| entry.order));
        assert_eq!(*journal[1].completion, CallCompletion::Elapsed);
        assert_eq!(journal[1].label, EntryLabel::Sleep);
        assert_eq!(store.journal(id, other).await.expect("a journal").len(), 1);
        for start in 0..=journal.len() {
            let after = start.checked_sub(1).map_or(Seq(0), |last| journal[last].order);
            for limit in [0, 1, 2, usize::MAX] {
                let query = JournalQuery { after, limit };
                let page = store.journal_page(id, task, &query).await.expect("a page");
                let end = start.saturating_add(limit).min(journal.len());
                assert_eq!(page, journal[start..end]);
            }
        }
        let beyond = JournalQuery { after: Seq(u64::MAX), limit: 1 };
        assert!(store.journal_page(id, task, &beyond).await.expect("a page").is_empty());
        store = harness.reopen(store).await;
    }
}

pub async fn receipts_report_the_delivery_state(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let task = writer.spawn(client(), process()).await;
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(writer.send(client(), Recipient::Task(task.into())).await);
    }
    let accepted = writer.send(writer.caller_of(task), Recipient::Parent).await;
    writer
        .report(task, AttemptReport::Pushed { message: sent[0], result: PushResult::Delivered })
        .await;
    writer
        .report(
            task,
            AttemptReport::Pushed {
                message: sent[1],
                result: PushResult::Refused { reason: "no input".into() },
            },
        )
        .await;
    writer.recover(task, brigade_model::command::RecoveryFinding::Adopted).await;
    let id = writer.id();
    drop(writer);
    for _ in 0..2 {
        assert_eq!(receipt(&store, id, sent[0]).await, Receipt::Delivered);
        assert!(matches!(receipt(&store, id, sent[1]).await, Receipt::DeadLettered(_)));
        assert_eq!(receipt(&store, id, sent[2]).await, Receipt::DeliveryUnknown);
        assert_eq!(receipt(&store, id, sent[3]).await, Receipt::DeliveryUnknown);
        assert_eq!(receipt(&store, id, accepted).await, Receipt::Accepted);
        let loaded = store.load(id).await.expect("a load").expect("the session is there");
        let unread: Vec<MessageNo> = loaded.unread.iter().map(|message| message.no).collect();
        assert_eq!(unread, [accepted]);
        store = harness.reopen(store).await;
    }
}

/// Checks that a page has the messages to and from a task, and that a bounded read misses none.
pub async fn messages_of_a_task_in_pages(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let task = writer.spawn(client(), process()).await;
    let other = writer.spawn(client(), process()).await;
    let mut expected = Vec::new();
    for number in 0..9 {
        writer.send(client(), Recipient::Task(other.into())).await;
        expected.push(match number % 3 {
            0 => writer.send(writer.caller_of(task), Recipient::Parent).await,
            _ => writer.send(client(), Recipient::Task(task.into())).await,
        });
        writer.send(writer.caller_of(other), Recipient::Parent).await;
    }
    expected.reverse();
    let id = writer.id();
    drop(writer);
    for _ in 0..2 {
        for limit in [1, 4, usize::MAX] {
            for read_limit in [1, 5, usize::MAX] {
                let query = MessageQuery { task, before: None, limit, read_limit };
                assert_eq!(read_all_messages(&store, id, query).await, expected);
            }
        }
        let query = MessageQuery { task, before: None, limit: 9, read_limit: usize::MAX };
        let page = store.messages(id, &query).await.expect("a read");
        assert_eq!(page.items.len(), 9);
        let oldest = MessageQuery { before: Some(MessageNo(3)), ..query };
        let page = store.messages(id, &oldest).await.expect("a read");
        assert_eq!((page.items.len(), page.next), (1, None));
        let row = store.message(id, page.items[0].message.no).await.expect("a read");
        assert_eq!(row.as_ref(), page.items.first(), "it has the receipt");
        store = harness.reopen(store).await;
    }
}

pub async fn earlier_runs_keep_their_outcomes(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let task = writer.spawn(client(), agent()).await;
    writer.finish(task).await;
    for _ in 0..2 {
        let resume = ResumeCommand { caller: client(), task: task.into(), limits: None };
        writer.submit(Command::Resume(resume)).await;
        writer.fail(task).await;
    }
    let id = writer.id();
    drop(writer);
    for _ in 0..2 {
        let first = store.run(id, task, RunNo(1)).await.expect("a run").expect("it is there");
        let second = store.run(id, task, RunNo(2)).await.expect("a run").expect("it is there");
        assert_eq!((first.run, second.run), (RunNo(1), RunNo(2)));
        assert!(first.outcome.is_success() && !second.outcome.is_success());
        assert!(first.ended_at < second.ended_at);
        assert_eq!(store.run(id, task, RunNo(3)).await.expect("a run"), None);
        let row = store.task(id, task).await.expect("a task").expect("it is there");
        assert_eq!(row.run, RunNo(3));
        store = harness.reopen(store).await;
    }
}

/// Checks that an open session of a name comes before closed ones, and a newer closed one before an
/// older.
pub async fn sessions_by_name(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut expected = Vec::new();
    for (number, closes) in [(1, true), (2, true), (3, false)] {
        let (mut writer, part) =
            SessionWriter::begin_named(&store, number, "/a/path", Limits::default());
        store
            .commit(&Batch { sessions: vec![part], ..Batch::default() })
            .await
            .expect("it is committed");
        if closes {
            let close = CloseCommand { caller: Caller::Operator, reason: None };
            writer.submit(Command::Close(close)).await;
        }
        expected.push(find_session_id(&store).await);
    }
    assert_eq!(expected, [session_id(1), session_id(2), session_id(3)].map(Some));
    store = harness.reopen(store).await;
    assert_eq!(find_session_id(&store).await, Some(session_id(3)));
}

async fn find_session_id(store: &Arc<dyn Store>) -> Option<SessionId> {
    let name = "/a/path".parse().expect("a name");
    store.session_named(&name).await.expect("a session is looked up").map(|row| row.id)
}

async fn find_task_no(
    store: &Arc<dyn Store>,
    id: SessionId,
    owner: Option<Owner>,
    name: &str,
) -> Option<TaskNo> {
    let name: TaskName = name.parse().expect("a name");
    let found = store.task_named(id, owner, &name).await.expect("a name is looked up");
    found.map(|task| task.no)
}

async fn read_all_pages(
    store: &Arc<dyn Store>,
    id: SessionId,
    mut query: TaskQuery,
) -> Vec<StoredTask> {
    let mut found = Vec::new();
    loop {
        let page = store.tasks(id, &query).await.expect("tasks are read");
        assert!(page.len() <= query.limit);
        let Some(last) = page.last() else { return found };
        query.after = Some(last.no);
        found.extend(page);
    }
}

async fn read_all_messages(
    store: &Arc<dyn Store>,
    id: SessionId,
    mut query: MessageQuery,
) -> Vec<MessageNo> {
    let mut found = Vec::new();
    loop {
        let page = store.messages(id, &query).await.expect("messages are read");
        assert!(page.items.len() <= query.limit.min(query.read_limit));
        found.extend(page.items.iter().map(|row| row.message.no));
        let Some(next) = page.next else { return found };
        assert!(query.before.is_none_or(|before| next < before), "a page leads on");
        query.before = Some(next);
    }
}

async fn receipt(store: &Arc<dyn Store>, id: SessionId, no: MessageNo) -> Receipt {
    store.message(id, no).await.expect("a message is read").expect("it is there").receipt
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    range.collect()
}
