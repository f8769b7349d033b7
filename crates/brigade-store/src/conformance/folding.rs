//! Checks that rows, events and loaded sessions agree after every commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use brigade_model::apply::apply;
use brigade_model::call::CallCompletion;
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{MessageNo, Owner, RunNo, TaskNo};
use brigade_model::message::{Message, Receipt};
use brigade_model::task::{RunStart, StoredTask};
use brigade_model::task_tree::TaskTree;

use super::StoreHarness;
use super::scenario::{limits, play_scenario};
use super::writer::{EPOCH, SessionWriter, all_events, client, job};
use crate::store::{RunRow, Store, TaskQuery};

/// Checks that a session's events, applied to an empty task tree, produce its stored rows.
pub async fn stored_rows_equal_the_folded_events(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, limits()).await;
    writer.check = CommitCheck::RowsMatchEvents;
    play_scenario(writer, None).await;
}

/// Checks that a loaded session equals the one that the loop has in memory.
pub async fn loaded_sessions_equal_the_live_ones(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, limits()).await;
    writer.check = CommitCheck::LoadMatchesLive;
    play_scenario(writer, None).await;
}

pub async fn everything_is_there_after_reopening(harness: &dyn StoreHarness) {
    let writer = SessionWriter::open(&harness.empty().await, 1, limits()).await;
    let writer = play_scenario(writer, None).await;
    let before = StoreSnapshot::of(&writer).await;
    let writer = writer.reopen(harness).await;
    let after = StoreSnapshot::of(&writer).await;
    assert_eq!(before, after);
    check_folded(&writer, RowWriter::ThisVersion).await;
}

/// Checks that the scenario has the same end if the session is loaded from a reopened store before
/// each step.
pub async fn a_session_continues_after_reopening_at_every_step(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, limits()).await;
    writer.check = CommitCheck::RowsMatchEvents;
    let reopened = play_scenario(writer, Some(harness)).await;
    let whole = SessionWriter::open(&harness.empty().await, 1, limits()).await;
    let whole = play_scenario(whole, None).await;
    let tasks = TaskQuery::default();
    let reopened = reopened.store.tasks(reopened.id(), &tasks).await.expect("tasks are read");
    assert_eq!(reopened, whole.store.tasks(whole.id(), &tasks).await.expect("tasks are read"));
}

/// Checks that a parked wait gets the results of all its tasks, also of those collected before.
pub async fn a_loaded_wait_reports_all_its_tasks(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, limits()).await;
    writer.check = CommitCheck::LoadMatchesLive;
    let parent = writer.spawn(client(), job()).await;
    let acting = writer.caller_of(parent);
    let first = writer.spawn(acting.clone(), job()).await;
    let second = writer.spawn(acting, job()).await;
    writer.finish(first).await;
    writer.wait_for(parent, 0, vec![first]).await;
    writer.wait_for(parent, 1, vec![first, second]).await;
    writer = writer.reopen(harness).await;
    writer.reload().await;
    writer.finish(second).await;
    let journal = writer.store.journal(writer.id(), parent).await.expect("a journal is read");
    let results: Vec<Vec<(TaskNo, bool)>> = journal
        .iter()
        .map(|entry| match &*entry.completion {
            CallCompletion::Results(results) => {
                results.iter().map(|result| (result.no, result.collected_before)).collect()
            }
            other => panic!("a wait completes with {other:?}"),
        })
        .collect();
    assert_eq!(results, [vec![(first, false)], vec![(first, true), (second, false)]]);
}

/// The check that runs after each commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommitCheck {
    Nothing,
    RowsMatchEvents,
    LoadMatchesLive,
}

impl CommitCheck {
    pub(super) async fn run(self, writer: &SessionWriter) {
        match self {
            Self::Nothing => {}
            Self::RowsMatchEvents => check_folded(writer, RowWriter::ThisVersion).await,
            Self::LoadMatchesLive => check_loaded(writer).await,
        }
    }
}

async fn check_loaded(writer: &SessionWriter) {
    let loaded = writer.store.load(writer.id()).await.expect("a load");
    let mut loaded = loaded.expect("the session is there").into_tree();
    let mut live = writer.tree.clone();
    live.evict();
    loaded.evict();
    assert_trees_equal(&loaded, &live);
    assert_eq!(loaded.alive_count(), live.alive_count());
    assert_eq!(loaded.next_due(), live.next_due());
}

/// The version that wrote the rows of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowWriter {
    ThisVersion,
    /// A version that may not have stored the times of states and runs.
    EarlierVersion,
}

pub(super) async fn check_folded(writer: &SessionWriter, version: RowWriter) {
    let store = &*writer.store;
    let id = writer.id();
    let events = all_events(store, Some(id)).await.expect("events are read");
    let folded = fold(&events);
    let row = store.session(id).await.expect("a session is read").expect("the session is there");
    assert_eq!(row, *folded.row());
    let rows = store.tasks(id, &TaskQuery::default()).await.expect("tasks are read");
    let expected: Vec<_> =
        folded.rows().map(|(no, row)| StoredTask::new(no, row.clone())).collect();
    assert_eq!(rows.len(), expected.len());
    for (stored, mut expected) in rows.into_iter().zip(expected) {
        if version == RowWriter::EarlierVersion && stored.row.state_changed_at.is_none() {
            let row = Arc::make_mut(&mut expected.row);
            row.state_changed_at = None;
            row.run_start = RunStart::Unknown;
        }
        assert_eq!(stored, expected);
    }
    check_messages(writer, &events, &folded).await;
    check_runs(writer, &events, &folded).await;
    for (no, expected) in &writer.journals {
        let journal = store.journal(id, *no).await.expect("a journal is read");
        assert_eq!(journal, *expected, "the journal of {no}");
        assert_eq!(journal.len(), folded.get(*no).map_or(0, |row| row.journal_len as usize));
    }
}

pub(super) fn fold(events: &[Arc<EventRecord>]) -> TaskTree {
    let mut tree = TaskTree::open(&events[0], EPOCH).expect("the first event opens the session");
    for record in &events[1..] {
        assert_eq!(record.seq, tree.row().seq.next());
        apply(&mut tree, record);
    }
    tree
}

async fn check_messages(writer: &SessionWriter, events: &[Arc<EventRecord>], folded: &TaskTree) {
    for (no, (message, receipt)) in expected_receipts(events) {
        let row = writer.store.message(writer.id(), no).await.expect("a message is read");
        let row = row.unwrap_or_else(|| panic!("message {no} is not there"));
        assert_eq!(row.message, message);
        assert_eq!(row.receipt, receipt, "message {no}");
    }
    let mut expected: Vec<Arc<Message>> = folded.inbox(Owner::Session).cloned().collect();
    for (no, _) in folded.rows() {
        expected.extend(folded.inbox(Owner::Task(no)).cloned());
    }
    expected.sort_by_key(|message| message.no);
    let loaded =
        writer.store.load(writer.id()).await.expect("a load").expect("the session is there");
    assert_eq!(loaded.unread, expected);
}

fn expected_receipts(events: &[Arc<EventRecord>]) -> BTreeMap<MessageNo, (Arc<Message>, Receipt)> {
    let mut all: BTreeMap<MessageNo, (Arc<Message>, Receipt)> = BTreeMap::new();
    for record in events {
        let (numbers, receipt) = match &record.event {
            Event::MessageSent(message) => {
                all.insert(message.no, (message.clone(), Receipt::Accepted));
                continue;
            }
            Event::MessageDelivered { message, .. } => (vec![*message], Receipt::Delivered),
            Event::MessageRead { message, .. } => (vec![*message], Receipt::Read),
            Event::MessageDeliveryUnknown { message, .. } => {
                (vec![*message], Receipt::DeliveryUnknown)
            }
            Event::DeadLettered { messages, reason, .. } => {
                (messages.clone(), Receipt::DeadLettered(reason.clone()))
            }
            _ => continue,
        };
        for no in numbers {
            all.get_mut(&no).expect("a message is sent before its receipt changes").1 =
                receipt.clone();
        }
    }
    all
}

async fn check_runs(writer: &SessionWriter, events: &[Arc<EventRecord>], folded: &TaskTree) {
    let mut ended_runs: BTreeMap<(TaskNo, RunNo), RunRow> = BTreeMap::new();
    for record in events {
        if let Event::Ended { no, run, outcome, .. } = &record.event {
            let ended_run = RunRow { run: *run, outcome: outcome.clone(), ended_at: record.at };
            ended_runs.insert((*no, *run), ended_run);
        }
    }
    for ((no, run), expected) in ended_runs {
        let latest = folded.get(no).is_some_and(|row| row.run == run);
        let stored = writer.store.run(writer.id(), no, run).await.expect("a run is read");
        assert_eq!(stored, (!latest).then_some(expected), "run {run} of {no}");
    }
}

#[track_caller]
fn assert_trees_equal(loaded: &TaskTree, live: &TaskTree) {
    assert_eq!(loaded.row(), live.row());
    let rows = |tree: &TaskTree| -> BTreeMap<TaskNo, String> {
        tree.rows().map(|(no, row)| (no, format!("{row:?}"))).collect()
    };
    assert_eq!(rows(loaded), rows(live));
    assert!(loaded == live, "the unread messages differ");
}

/// All that a store returns about one session, as text.
#[derive(Debug, PartialEq)]
struct StoreSnapshot(Vec<String>);

impl StoreSnapshot {
    async fn of(writer: &SessionWriter) -> Self {
        let store: &dyn Store = &*writer.store;
        let id = writer.id();
        let mut parts = vec![
            format!("{:?}", store.sessions().await.expect("sessions are read")),
            format!("{:?}", store.cursor().await.expect("a cursor is read")),
            format!("{:?}", all_events(store, None).await.expect("events are read")),
            format!("{:?}", store.load(id).await.expect("a load")),
        ];
        let tasks = store.tasks(id, &TaskQuery::default()).await.expect("tasks are read");
        for StoredTask { no, row } in tasks {
            parts.push(format!("{no}: {row:?}"));
            parts.push(format!("{:?}", store.journal(id, no).await.expect("a journal is read")));
            for run in 1..row.run.0 {
                let run = store.run(id, no, RunNo(run)).await.expect("a run is read");
                parts.push(format!("{run:?}"));
            }
        }
        for no in 1..=writer.tree.row().last_message.0 {
            let message = store.message(id, MessageNo(no)).await.expect("a message is read");
            parts.push(format!("{message:?}"));
        }
        Self(parts)
    }
}
