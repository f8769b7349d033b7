//! Two runtimes with directories of their own on one store, as on two machines.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::outcome::{EndConfirmation, Outcome};
use brigade_model::task::TaskRow;
use brigade_runtime::{
    Clock, NewTask, NodeInfo, NodeOptions, ProcessOptions, Runtime, Session, SystemClock,
};
use brigade_store::{JoinResult, MemoryStore, NewNode, SessionClaim, SessionRelease, Store};
use brigade_testkit::NodeConnection;
use tempfile::TempDir;

use crate::support::*;

fn host_of(row: &TaskRow) -> &str {
    row.host().expect("a process has a host")
}

async fn runtime_on(store: &Arc<dyn Store>, dir: &TempDir) -> (Runtime, Session) {
    let options = ProcessOptions::new(dir.path());
    let builder = Runtime::builder().shared_store(store.clone()).processes(options);
    let runtime = builder.start().await.unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    (runtime, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_another_host_is_neither_started_again_nor_lost() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let here = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir().unwrap();
    let (first, session) = runtime_on(&store, &there).await;
    let text = "echo started; while ! test -e go; do sleep 0.02; done; echo done";
    let task = session.spawn(NewTask::shell(text).cwd(there.path())).await.unwrap();
    until_output(&task, "started").await;
    let no = task.no();

    let (second, session) = runtime_on(&store, &here).await;
    let row = session.get(no).await.unwrap().row;
    let away = row.away().expect("its host is not here");
    assert!(host_of(&row).starts_with(&*away.node), "{away:?} names the machine");
    let host = row.extras.as_ref().and_then(|extras| extras.host.as_deref());
    assert!(host.is_some_and(|host| host.contains('/')), "{host:?}");
    assert!(!here.path().join("processes").join(session.id().to_string()).exists());
    second.shutdown().await.unwrap();
    first.shutdown().await.unwrap();

    // The first host returns and finds its process.
    let (_runtime, session) = runtime_on(&store, &there).await;
    std::fs::write(there.path().join("go"), "").unwrap();
    let mut results = session.wait_all([no]).await.unwrap();
    let outcome = results.pop().unwrap().outcome;
    assert_eq!(report(&outcome).tail, "started\ndone\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_a_process_on_another_host_is_not_confirmed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let here = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir().unwrap();
    let (first, session) = runtime_on(&store, &there).await;
    let task = NewTask::shell("echo started; sleep 600").grace(std::time::Duration::ZERO);
    let task = session.spawn(task).await.unwrap();
    until_output(&task, "started").await;
    let (_second, session) = runtime_on(&store, &here).await;
    session.stop(task.no(), None).await.unwrap();
    let mut results = session.wait_all([task.no()]).await.unwrap();
    let outcome = results.pop().unwrap().outcome;
    let Outcome::Cancelled(cancelled) = &*outcome else { panic!("{outcome}") };
    assert_eq!(cancelled.confirmation, EndConfirmation::Unconfirmed);
    drop(first);
}

/// Starts a node with a short lease. The state directory of an earlier one is unlocked a moment after
/// its end.
async fn node_on(store: &Arc<dyn Store>, dir: &TempDir, name: &str) -> Runtime {
    loop {
        let builder = Runtime::builder()
            .shared_store(store.clone())
            .processes(ProcessOptions::new(dir.path()))
            .node(NodeOptions::new(name).lease(Duration::from_secs(1)));
        match builder.start().await {
            Ok(runtime) => return runtime,
            Err(refusal) if refusal.message.contains("processes cannot be run here") => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returning_host_adopts_the_process_of_a_session_at_rest() {
    let clock = SystemClock;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::shared_by_nodes(move || clock.now()));
    let there = tempfile::tempdir().unwrap();
    let first = node_on(&store, &there, "first").await;
    let session = first.session("kitchen").await.unwrap();
    let text = "echo started; while ! test -e go; do sleep 0.02; done; echo done";
    let task = session.spawn(NewTask::shell(text).cwd(there.path())).await.unwrap();
    until_output(&task, "started").await;
    let no = task.no();
    let id = session.id();
    drop((task, session));
    // Another node has had the session, and has given it up because nothing of it ran there.
    drop(first);
    let fleet = store.fleet().unwrap();
    while fleet.close_expired().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let other = NewNode {
        name: "other".into(),
        host: "other".into(),
        labels: Vec::new(),
        capacity: None,
        version: "1".into(),
        lease: Duration::from_secs(600),
        lanes: 1,
    };
    let JoinResult::Joined(other) = fleet.join(&other).await.unwrap() else { panic!("not joined") };
    let claim = SessionClaim {
        node: other.node,
        lane: other.lanes[0],
        now: clock.now(),
        limit: 10,
        skipped: Vec::new(),
    };
    let claimed = fleet.claim(&claim).await.unwrap()[0];
    let seq = store.session(id).await.unwrap().unwrap().seq;
    let release = SessionRelease {
        lane: other.lanes[0],
        id,
        epoch: claimed.epoch,
        seq,
        next_due: None,
        next_owner: None,
    };
    assert!(fleet.release(&release).await.unwrap());

    let first = node_on(&store, &there, "first").await;
    std::fs::write(there.path().join("go"), "").unwrap();
    let operator = first.operator_session(id).await.unwrap();
    while operator.get(no).await.unwrap().row.is_alive() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_returns_to_the_host_of_its_process() {
    let clock = SystemClock;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::shared_by_nodes(move || clock.now()));
    let here = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir().unwrap();
    let first = node_on(&store, &there, "first").await;
    let second = node_on(&store, &here, "second").await;
    let session = first.session("kitchen").await.unwrap();
    let text = "echo started; while ! test -e go; do sleep 0.02; done; echo done";
    let task = session.spawn(NewTask::shell(text).cwd(there.path())).await.unwrap();
    until_output(&task, "started").await;
    let no = task.no();
    let id = session.id();
    drop((task, session, first));

    // The other node takes the session. A client waits there for the process.
    let owner = async |name: &str| {
        let owners = second.session_owners(&[id]).await.unwrap();
        let nodes = second.nodes().await.unwrap();
        let is_owner = |node: &NodeInfo| owners.iter().any(|owner| owner.node == node.row.id);
        nodes.iter().any(|node| node.row.name == name && is_owner(node))
    };
    while !owner("second").await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let session = second.session("kitchen").await.unwrap();
    while session.get(no).await.unwrap().row.away().is_none_or(|away| &*away.node != "first") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let return_home = async {
        let first = node_on(&store, &there, "first").await;
        while !owner("first").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::write(there.path().join("go"), "").unwrap();
        first
    };
    let (results, _first) = tokio::join!(session.wait_all([no]), return_home);
    let outcome = results.unwrap().pop().unwrap().outcome;
    assert_eq!(report(&outcome).tail, "started\ndone\n");
}

/// The node of the process repeats its reply, not the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_from_another_node_is_written_once_if_its_reply_is_lost() {
    let clock = SystemClock;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::shared_by_nodes(move || clock.now()));
    let [here, there] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = node_on(&store, &there, "first").await;
    let session = first.session("kitchen").await.unwrap();
    let text = "echo started; while read line; do echo $line >> lines; done";
    let task = NewTask::shell(text).cwd(there.path()).reads_messages();
    let task = session.spawn(task).await.unwrap();
    until_output(&task, "started").await;
    let no = task.no();
    drop((task, session, first));
    // The session stays on the second node, because a process of it runs there.
    let second = node_on(&store, &here, "second").await;
    let session = second.session("kitchen").await.unwrap();
    until(async || session.get(no).await.is_ok_and(|found| found.row.away().is_some())).await;
    session.spawn(NewTask::shell("exec sleep 600")).await.unwrap();
    let connection = NodeConnection::new(store.clone());
    let first = node_on(&(connection.clone() as Arc<dyn Store>), &there, "first").await;
    until(async || session.get(no).await.unwrap().row.is_unattended()).await;
    connection.lose_next_answer();
    for line in ["soup", "end"] {
        session.send(no, line).await.unwrap();
    }
    let lines = || std::fs::read_to_string(there.path().join("lines")).unwrap_or_default();
    until(async || lines().contains("end")).await;
    assert_eq!(lines(), "soup\nend\n");
    session.stop_all(None).await.unwrap();
    drop((first, second));
}

async fn until(holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), waiting).await.expect("it happens in time");
}
