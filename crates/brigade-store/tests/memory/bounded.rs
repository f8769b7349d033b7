//! The memory store does not grow without end.

use std::sync::Arc;

use brigade_model::command::{Caller, Command, EndedHow, Report, Reported, Spawn};
use brigade_model::ids::{Attempt, Epoch, Seq, TaskNo, Time, TreeId};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::spec::Spec;
use brigade_model::tree::Tree;
use brigade_model::turn::{Outputs, handle, open_session};
use brigade_model::work::{JobWork, Recovery, Work};
use brigade_store::{Batch, EventQuery, MemoryOptions, MemoryStore, Store, TaskQuery, TreeBatch};

#[tokio::test]
async fn the_oldest_of_what_is_over_goes() {
    let options = MemoryOptions { events: 10, finished: 3, settled: 3 };
    let store = MemoryStore::with_options(options);
    let id = TreeId::from_uuid(uuid::Uuid::from_u128(1));
    let name = "bounded".parse().unwrap();
    let (mut tree, record) = open_session(id, name, Limits::default(), (Time(1), Epoch(1)));
    let opened = Outputs { events: vec![record], ..Outputs::default() };
    commit(&store, &mut tree, Seq(0), opened).await;
    for _ in 0..20 {
        let spawn = Spawn { caller: Caller::Operator, spec: Arc::new(job()), call: None };
        submit(&store, &mut tree, &Command::Spawn(spawn)).await;
        let no = tree.row().last_task.unwrap();
        let what = Reported::Ended(EndedHow::Returned(Json::null()).into());
        let report = Report { no, attempt: Attempt(1), what };
        submit(&store, &mut tree, &Command::Report(report)).await;
    }
    let kept = store.tasks(id, &TaskQuery::default()).await.unwrap();
    let kept: Vec<u32> = kept.iter().map(|(no, _)| no.get()).collect();
    assert_eq!(kept, [18, 19, 20]);
    let query = EventQuery { tree: None, after: Default::default(), most: usize::MAX };
    let page = store.events(&query).await.unwrap();
    assert_eq!((page.items.len(), page.gap_to.unwrap().0, page.read_to.0), (10, 31, 41));
}

/// The row of an ended task stays while it is the budget of a kept one, and goes after that.
#[tokio::test]
async fn a_budget_goes_after_the_last_that_is_charged_to_it() {
    let store = MemoryStore::with_options(MemoryOptions { finished: 0, ..Default::default() });
    let id = TreeId::from_uuid(uuid::Uuid::from_u128(1));
    let name = "bounded".parse().unwrap();
    let (mut tree, record) = open_session(id, name, Limits::default(), (Time(1), Epoch(1)));
    let opened = Outputs { events: vec![record], ..Outputs::default() };
    commit(&store, &mut tree, Seq(0), opened).await;
    let mut caller = Caller::Operator;
    // The last of them is kept by the one before, which the first awaits.
    for number in 1..=3 {
        let spec = Arc::new(Spec { keep: number == 3, ..job() });
        submit(&store, &mut tree, &Command::Spawn(Spawn { caller, spec, call: None })).await;
        caller = Caller::Task { no: TaskNo::new(number).unwrap(), attempt: Attempt(1) };
    }
    for (number, left) in [(2, 3), (1, 3), (3, 0)] {
        let no = TaskNo::new(number).unwrap();
        let what = Reported::Ended(EndedHow::Returned(Json::null()).into());
        let report = Report { no, attempt: Attempt(1), what };
        submit(&store, &mut tree, &Command::Report(report)).await;
        let kept = store.tasks(id, &TaskQuery::default()).await.unwrap();
        assert_eq!(kept.len(), left, "after the end of {number}");
    }
    assert_eq!(tree.loaded(), 0);
}

async fn submit(store: &MemoryStore, tree: &mut Tree, command: &Command) {
    let base = tree.row().seq;
    let handled = handle(tree, command, Time(2)).unwrap();
    commit(store, tree, base, handled.outputs).await;
    tree.evict();
}

async fn commit(store: &MemoryStore, tree: &mut Tree, base: Seq, outputs: Outputs) {
    let (tasks, messages) = tree.take_touched();
    let (events, journal) = (outputs.events, outputs.journal);
    let part = TreeBatch { row: tree.row().clone(), base, events, tasks, journal, messages };
    store.commit(&Batch { trees: vec![part] }).await.unwrap();
}

fn job() -> Spec {
    Spec::new(Work::Job(JobWork::Named {
        handler: "work".into(),
        args: Json::null(),
        recovery: Recovery::resume(3),
    }))
}
