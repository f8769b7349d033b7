//! The memory store removes old data beyond its bounds.

use std::sync::Arc;

use brigade_model::call::ConditionRequest;
use brigade_model::command::{
    AfterPark, AttemptReport, Caller, Command, Recipient, ReportCommand, SendCommand, SpawnCommand,
    WorkResult,
};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, CallIndex, Epoch, MessageNo, Seq, SessionId, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::needs::{NeededRow, needs};
use brigade_model::spec::TaskSpec;
use brigade_model::task::StoredTask;
use brigade_model::task_tree::{ChangedRows, TaskTree};
use brigade_model::transition::{CommandOutputs, SessionOpening, handle_command, open_session};
use brigade_model::work::{JobWork, RecoveryPolicy, Work};
use brigade_store::{
    Batch, EventQuery, MemoryOptions, MemoryStore, SessionBatch, Store, TaskQuery,
};

#[tokio::test]
async fn the_oldest_finished_tasks_and_events_go() {
    let options =
        MemoryOptions { max_events: 10, max_finished_tasks: 3, max_processed_messages: 3 };
    let store = MemoryStore::with_options(options);
    let id = SessionId::from_uuid(uuid::Uuid::from_u128(1));
    let name = "bounded".parse().unwrap();
    let (mut tree, record) = open_session(SessionOpening {
        id,
        name,
        limits: Limits::default(),
        at: Time(1),
        epoch: Epoch(1),
    });
    let opened = CommandOutputs { events: vec![record], ..CommandOutputs::default() };
    commit(&store, &mut tree, Seq(0), opened).await;
    for _ in 0..20 {
        let spawn = SpawnCommand { caller: Caller::Operator, spec: Arc::new(job()), call: None };
        submit(&store, &mut tree, &Command::Spawn(spawn)).await;
        let no = tree.row().last_task.unwrap();
        let report = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
        let report = ReportCommand { no, attempt: Attempt(1), report };
        submit(&store, &mut tree, &Command::Report(report)).await;
    }
    let stored = store.tasks(id, &TaskQuery::default()).await.unwrap();
    let stored: Vec<u32> = stored.iter().map(|StoredTask { no, .. }| no.get()).collect();
    assert_eq!(stored, [18, 19, 20]);
    let query = EventQuery { session: None, after: Default::default(), limit: usize::MAX };
    let page = store.events(&query).await.unwrap();
    assert_eq!(page.items.len(), 10);
    assert_eq!(page.gap_to.unwrap().to_string(), "31");
    assert_eq!(page.read_to.to_string(), "41");
}

/// An ended task's row stays while a kept task is charged to it, and goes after that.
#[tokio::test]
async fn a_limit_holder_goes_after_the_last_task_charged_to_it() {
    let store =
        MemoryStore::with_options(MemoryOptions { max_finished_tasks: 0, ..Default::default() });
    let id = SessionId::from_uuid(uuid::Uuid::from_u128(1));
    let name = "bounded".parse().unwrap();
    let (mut tree, record) = open_session(SessionOpening {
        id,
        name,
        limits: Limits::default(),
        at: Time(1),
        epoch: Epoch(1),
    });
    let opened = CommandOutputs { events: vec![record], ..CommandOutputs::default() };
    commit(&store, &mut tree, Seq(0), opened).await;
    let mut caller = Caller::Operator;
    // Each task spawns the next one. The third is a kept task.
    for number in 1..=3 {
        let spec = Arc::new(TaskSpec { keep: number == 3, ..job() });
        submit(&store, &mut tree, &Command::Spawn(SpawnCommand { caller, spec, call: None })).await;
        caller = Caller::Task { no: TaskNo::new(number).unwrap(), attempt: Attempt(1) };
    }
    for (number, expected) in [(2, 3), (1, 3), (3, 0)] {
        let no = TaskNo::new(number).unwrap();
        let report = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
        let report = ReportCommand { no, attempt: Attempt(1), report };
        submit(&store, &mut tree, &Command::Report(report)).await;
        let stored = store.tasks(id, &TaskQuery::default()).await.unwrap();
        assert_eq!(stored.len(), expected, "after the end of {number}");
    }
    assert_eq!(tree.loaded_count(), 0);
}

/// The key of a removed message stays taken as long as its recipient is stored.
#[tokio::test]
async fn a_message_key_outlives_its_message() {
    let options = MemoryOptions { max_processed_messages: 0, ..Default::default() };
    let store = MemoryStore::with_options(options);
    let id = SessionId::from_uuid(uuid::Uuid::from_u128(1));
    let (mut tree, record) = open_session(SessionOpening {
        id,
        name: "bounded".parse().unwrap(),
        limits: Limits::default(),
        at: Time(1),
        epoch: Epoch(1),
    });
    let opened = CommandOutputs { events: vec![record], ..CommandOutputs::default() };
    commit(&store, &mut tree, Seq(0), opened).await;
    let spawn = SpawnCommand { caller: Caller::Operator, spec: Arc::new(job()), call: None };
    submit(&store, &mut tree, &Command::Spawn(spawn)).await;
    let to = Recipient::Task(TaskNo::FIRST.into());
    let send = Command::Send(SendCommand {
        key: Some("k".parse().unwrap()),
        ..SendCommand::new(Caller::Operator, to, Json::null())
    });
    submit(&store, &mut tree, &send).await;
    let condition = ConditionRequest::Message { timeout: None, name: None };
    let report = AttemptReport::Park {
        calls: vec![(CallIndex(0), condition)],
        acked_entries: 0,
        then: AfterPark::Continue,
    };
    let read = ReportCommand { no: TaskNo::FIRST, attempt: Attempt(1), report };
    submit(&store, &mut tree, &Command::Report(read)).await;
    assert_eq!(store.message(id, MessageNo(1)).await.unwrap(), None, "it was removed");
    let mut tree = store.load(id).await.unwrap().unwrap().into_tree();
    assert_eq!(needs(&tree, &send), [NeededRow::Message(MessageNo(1))]);
    let repeat = handle_command(&mut tree, &send, Time(2)).unwrap();
    assert_eq!(repeat.reply, CommandReply::Sent(vec![MessageNo(1)]));
    assert!(repeat.outputs.events.is_empty());
}

async fn submit(store: &MemoryStore, tree: &mut TaskTree, command: &Command) {
    let base = tree.row().seq;
    let handled = handle_command(tree, command, Time(2)).unwrap();
    commit(store, tree, base, handled.outputs).await;
    tree.evict();
}

async fn commit(store: &MemoryStore, tree: &mut TaskTree, base: Seq, outputs: CommandOutputs) {
    let ChangedRows { tasks, messages } = tree.take_dirty();
    let part = SessionBatch {
        row: tree.row().clone(),
        base,
        events: outputs.events,
        tasks,
        journal: outputs.journal,
        messages,
    };
    store.commit(&Batch { sessions: vec![part], ..Batch::default() }).await.unwrap();
}

fn job() -> TaskSpec {
    TaskSpec::new(Work::Job(JobWork::Named {
        handler: "work".into(),
        args: Json::null(),
        recovery: RecoveryPolicy::resume_max_crashes(3),
    }))
}
