//! Processes of a host whose node has ended. The host is a node without a runtime, so that a test says
//! what it does.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::ids::{Attempt, Epoch, Seq, SessionId, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::outcome::EndConfirmation;
use brigade_model::outcome::Outcome;
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::TaskTree;
use brigade_model::transition::{CommandOutputs, SessionOpening, handle_command, open_session};
use brigade_model::work::{CommandLine, JobWork, ProcessWork, RecoveryPolicy, Work};
use brigade_runtime::{Clock, NodeOptions};
use brigade_store::{Batch, JoinResult, JoinedNode, NewNode, SessionBatch, SessionClaim, Store};
use brigade_testkit::{PausedClock, TestRuntime};

use crate::support::*;

const HOST: &str = "stove/0f3a";
const GRACE: Duration = Duration::from_secs(600);

/// A node on the host of the processes.
struct HostNode<'a> {
    fleet: &'a TestFleet,
    joined: JoinedNode,
}

impl<'a> HostNode<'a> {
    async fn join(fleet: &'a TestFleet, name: &str) -> Self {
        let node = NewNode {
            name: name.to_owned(),
            host: HOST.to_owned(),
            labels: Vec::new(),
            capacity: None,
            version: "1".to_owned(),
            lease: Duration::from_secs(100_000),
            lanes: 1,
        };
        match fleet.store.fleet().unwrap().join(&node).await.unwrap() {
            JoinResult::Joined(joined) => Self { fleet, joined },
            JoinResult::NameTaken(node) => panic!("{node:?} has the name"),
        }
    }

    async fn close(self) {
        self.fleet.store.fleet().unwrap().close_node(self.joined.node).await.unwrap();
    }

    /// Opens a session with a process that runs on this host.
    async fn open_with_process(&self, name: &str) -> (SessionId, TaskNo) {
        let client = Caller::Client("cook".into());
        self.open_with(name, vec![(client, process_spec())]).await
    }

    /// Opens a session with tasks that run on this host, the last of them a process.
    async fn open_with(&self, name: &str, specs: Vec<(Caller, TaskSpec)>) -> (SessionId, TaskNo) {
        let now = PausedClock::starting_at(TestRuntime::START).now();
        let id = SessionId::from_uuid(uuid::Uuid::from_u128(name.len() as u128));
        let name = name.parse().unwrap();
        let opening =
            SessionOpening { id, name, limits: Limits::default(), at: now, epoch: Epoch::FIRST };
        let (mut tree, record) = open_session(opening);
        tree.set_host(Some(HOST.into()));
        let mut all = CommandOutputs::default();
        all.events.push(record);
        for (caller, spec) in specs {
            let spawn = Command::Spawn(SpawnCommand { caller, spec: Arc::new(spec), call: None });
            let outputs = handle_command(&mut tree, &spawn, now).unwrap().outputs;
            all.events.extend(outputs.events);
        }
        let last = tree.row().last_task.unwrap();
        self.commit(&mut tree, all).await;
        (id, last)
    }

    async fn commit(&self, tree: &mut TaskTree, outputs: CommandOutputs) {
        let changed = tree.take_dirty();
        let part = SessionBatch {
            row: tree.row().clone(),
            base: Seq(0),
            events: outputs.events,
            tasks: changed.tasks,
            journal: outputs.journal,
            messages: changed.messages,
        };
        let lane = self.joined.lanes[0];
        let batch = Batch { lane, sessions: vec![part], answers: Vec::new() };
        self.fleet.store.commit(&batch).await.unwrap();
    }

    /// Claims sessions that wait for this node.
    async fn claim(&self) -> Vec<SessionId> {
        let now = PausedClock::starting_at(TestRuntime::START).now();
        let lane = self.joined.lanes[0];
        let skipped = Vec::new();
        let claim = SessionClaim { node: self.joined.node, lane, now, limit: 10, skipped };
        let claimed = self.fleet.store.fleet().unwrap().claim(&claim).await.unwrap();
        claimed.into_iter().map(|session| session.id).collect()
    }
}

fn process_spec() -> TaskSpec {
    let work = ProcessWork::new(CommandLine::Shell("sleep 600".into()));
    TaskSpec::new(Work::Process(work))
}

async fn row(fleet: &TestFleet, id: SessionId, no: TaskNo) -> TaskRow {
    fleet.store.task(id, no).await.unwrap().unwrap()
}

/// Waits until a task has a state. Returns the time that it took, to the quarter of a second.
async fn wait_for_state(fleet: &TestFleet, id: SessionId, no: TaskNo, state: &str) -> Duration {
    let pause = Duration::from_millis(250);
    for looks in 0..10_000 {
        if row(fleet, id, no).await.state.label() == state {
            return looks * pause;
        }
        tokio::time::sleep(pause).await;
    }
    panic!("it is {:?}, not {state}", row(fleet, id, no).await.state)
}

#[tokio::test(start_paused = true)]
async fn a_process_of_a_dead_node_is_away_and_lost_after_the_grace() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let (id, no) = host.open_with_process("kitchen").await;
    host.close().await;
    let one = fleet.node("one").await;
    wait_for_state(&fleet, id, no, "away").await;
    let away = row(&fleet, id, no).await.away().unwrap().clone();
    assert_eq!(&*away.node, "kitchen-2");
    // It costs nothing until its grace is over.
    let session = one.runtime.operator_session(id).await.unwrap();
    one.wait_for_owner(&session, None).await;
    let waited = wait_for_state(&fleet, id, no, "failed").await;
    assert!(waited <= GRACE, "{waited:?}");
    let ended = row(&fleet, id, no).await;
    assert!(ended.ended().unwrap().at >= away.until, "not before the end of the grace");
    let Outcome::Failed(failed) = &*ended.ended().unwrap().outcome else { panic!("it failed") };
    assert_eq!(failed.confirmation, EndConfirmation::Unconfirmed);
    let text = failed.failure.to_string();
    assert!(text.contains("lost") && text.contains("node kitchen-2 not seen since 20"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_grace_is_a_setting_of_the_owner() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let (id, no) = host.open_with_process("kitchen").await;
    host.close().await;
    let grace = Duration::from_secs(7);
    let options = NodeOptions::new("one").lease(LEASE).host_grace(grace);
    let _one = fleet.node_with("one", |builder| builder.node(options)).await;
    wait_for_state(&fleet, id, no, "away").await;
    let waited = wait_for_state(&fleet, id, no, "failed").await;
    assert!(waited <= grace + SECOND && waited + SECOND >= grace, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_to_its_process_if_the_host_has_another_node() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let (id, no) = host.open_with_process("kitchen").await;
    let again = HostNode::join(&fleet, "kitchen-3").await;
    host.close().await;
    let one = fleet.node("one").await;
    let session = one.runtime.operator_session(id).await.unwrap();
    // It is acquired, and given up for the node of the process.
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(row(&fleet, id, no).await.state.label(), "running");
    assert_eq!(one.owner(&session).await, None);
    assert_eq!(again.claim().await, [id]);
    tokio::time::sleep(2 * GRACE).await;
    assert_eq!(row(&fleet, id, no).await.state.label(), "running", "its node is there");
    // That node ends too.
    again.close().await;
    wait_for_state(&fleet, id, no, "away").await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_and_goes_is_noticed_by_a_busy_owner() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let (id, no) = host.open_with_process("kitchen").await;
    host.close().await;
    let one = fleet.node("one").await;
    wait_for_state(&fleet, id, no, "away").await;
    let session = one.session("kitchen").await;
    session.spawn(WORK.with(4_000)).await.unwrap();
    for _ in 0..3 {
        let host = HostNode::join(&fleet, "kitchen-2").await;
        let waited = wait_for_state(&fleet, id, no, "running").await;
        assert!(waited <= 3 * SECOND, "{waited:?}");
        assert_eq!(one.owner(&session).await.as_deref(), Some("one"), "it is busy");
        tokio::time::sleep(2 * GRACE).await;
        assert_eq!(row(&fleet, id, no).await.state.label(), "running");
        host.close().await;
        let waited = wait_for_state(&fleet, id, no, "away").await;
        assert!(waited <= 3 * SECOND, "{waited:?}");
    }
    wait_for_state(&fleet, id, no, "failed").await;
    fleet.work.check();
}

#[tokio::test(start_paused = true)]
async fn a_wait_continues_until_an_away_process_is_lost() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let (id, no) = host.open_with_process("kitchen").await;
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let ending = async {
        tokio::time::sleep(5 * SECOND).await;
        host.close().await;
    };
    let (results, more, ()) = tokio::join!(here.wait_all([no]), there.wait_all([no]), ending);
    let (results, more) = (results.unwrap(), more.unwrap());
    let fresh = results.iter().chain(&more).filter(|result| !result.collected_before).count();
    assert_eq!((results.len(), more.len(), fresh), (1, 1, 1));
    assert!(results[0].outcome.to_string().contains("kitchen-2"), "{}", results[0].outcome);
    assert_eq!(row(&fleet, id, no).await.state.label(), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_an_away_process_does_not_wait_for_its_host() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let (id, no) = host.open_with_process("kitchen").await;
    host.close().await;
    let one = fleet.node("one").await;
    wait_for_state(&fleet, id, no, "away").await;
    let session = one.runtime.operator_session(id).await.unwrap();
    session.stop(no, None).await.unwrap();
    let ended = row(&fleet, id, no).await;
    assert_eq!(ended.ended().unwrap().outcome.to_string(), "cancelled (unconfirmed)");
    // The host comes back and changes nothing about that.
    let _host = HostNode::join(&fleet, "kitchen-2").await;
    tokio::time::sleep(2 * GRACE).await;
    assert_eq!(row(&fleet, id, no).await, ended);
}

/// As an agent with its program: the task is restarted elsewhere, and its process is not.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_program_goes_to_the_host_with_it() {
    let fleet = TestFleet::new();
    let host = HostNode::join(&fleet, "kitchen-2").await;
    let recovery = RecoveryPolicy::resume_max_crashes(5);
    let args = Json::of(&4_000_u64).unwrap();
    let job = TaskSpec::new(Work::Job(JobWork::Named { handler: "work".into(), args, recovery }));
    let program = TaskSpec { part_of_parent: true, ..process_spec() };
    let first = TaskNo::new(1).unwrap();
    let parent = Caller::Task { no: first, attempt: Attempt(1) };
    let specs = vec![(Caller::Client("cook".into()), job), (parent, program)];
    let (id, no) = host.open_with("kitchen", specs).await;
    host.close().await;
    let one = fleet.node("one").await;
    wait_for_state(&fleet, id, no, "away").await;
    let session = one.session("kitchen").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(row(&fleet, id, first).await.state.label(), "running", "it was restarted");
    assert_eq!(one.owner(&session).await.as_deref(), Some("one"));
    let host = HostNode::join(&fleet, "kitchen-2").await;
    one.wait_for_owner(&session, None).await;
    assert!(fleet.work.spans(&session, 1).iter().all(|span| span.to.is_some()), "it was halted");
    assert_eq!(host.claim().await, [id]);
    assert_eq!(row(&fleet, id, no).await.state.label(), "running");
}
