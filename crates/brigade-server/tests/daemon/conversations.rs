//! Conversations that connect and disconnect, with a manual clock.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::{ClientIdentity, Time};
use brigade_model::refusal::RefusalKind;
use brigade_protocol::DaemonConnection;
use brigade_protocol::frames::{ClientIntroduction, ClientRole};
use brigade_protocol::requests::{
    ListTasksRequest, ShowTaskRequest, StatusRequest, WaitReply, WaitRequest, WaitUntil,
};
use brigade_protocol::task_info::ConversationState;
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use brigade_testkit::ManualClock;

use crate::support::{SESSION, TEST_TIMEOUT, TestDaemon, expect_refusal, target};

async fn start_daemon() -> (TestDaemon, ManualClock) {
    let clock = ManualClock::at(Time(1_000_000));
    let shared_clock = Arc::new(clock.clone());
    let daemon = TestDaemon::start(|builder| {
        let builder = builder.clock(shared_clock);
        let builder = builder
            .job(Job::new("quick"), |_: JobContext, (): ()| async { Ok::<_, JobError>("done") });
        builder.job(Job::new("endless"), |_: JobContext, (): ()| async {
            std::future::pending::<()>().await;
            Ok::<_, JobError>(())
        })
    })
    .await;
    (daemon, clock)
}

fn cook(conversation: &str) -> ClientIdentity {
    ClientIdentity { conversation: Some(conversation.parse().unwrap()), .."cook".into() }
}

async fn connect(daemon: &TestDaemon, conversation: &str) -> DaemonConnection {
    let role = ClientRole::Client("cook".to_owned());
    let conversation = Some(conversation.parse().unwrap());
    DaemonConnection::connect(&daemon.state_dir, ClientIntroduction { role, conversation })
        .await
        .unwrap()
}

/// Starts a job in a conversation. The job `quick` has ended when this returns.
async fn start(daemon: &TestDaemon, conversation: &str, job: &str) {
    let session = daemon.runtime.session_as(SESSION, cook(conversation)).await.unwrap();
    let task = session.spawn(NewTask::job(job, ())).await.unwrap();
    if job == "quick" {
        let operator = daemon.runtime.operator_session(session.id()).await.unwrap();
        operator.wait_all([task.no()]).await.unwrap();
    }
}

fn wait_without_tasks(timeout_ms: Option<u64>) -> WaitRequest {
    WaitRequest {
        session: SESSION.to_owned(),
        tasks: Vec::new(),
        mode: WaitMode::Any,
        timeout_ms,
        until: WaitUntil::Ended,
    }
}

async fn take_results(client: &DaemonConnection) -> Vec<String> {
    let waited: WaitReply = client.call(wait_without_tasks(Some(0))).await.unwrap();
    waited.ended.into_iter().map(|info| info.address).collect()
}

/// Disconnects a client and waits until the daemon has noticed.
async fn disconnect(daemon: &TestDaemon, client: DaemonConnection) {
    drop(client);
    let operator = daemon.operator().await;
    while operator.call(StatusRequest {}).await.unwrap().clients > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn results_of_a_lapsed_conversation_go_to_another_one_after_a_minute() {
    let (daemon, clock) = start_daemon().await;
    let first = connect(&daemon, "c1").await;
    start(&daemon, "c1", "quick").await;
    clock.advance(Duration::from_secs(600));
    let second = connect(&daemon, "c2").await;
    assert_eq!(
        take_results(&second).await,
        Vec::<String>::new(),
        "the first conversation is connected"
    );
    first.call(StatusRequest {}).await.unwrap();
    drop(second);
    disconnect(&daemon, first).await;
    let second = connect(&daemon, "c2").await;
    assert_eq!(take_results(&second).await, Vec::<String>::new());
    clock.advance(Duration::from_secs(59));
    assert_eq!(take_results(&second).await, Vec::<String>::new());
    let shown = second.call(ShowTaskRequest { target: target("1") }).await.unwrap();
    assert_eq!(shown.conversation.unwrap().state, ConversationState::Other);
    clock.advance(Duration::from_secs(1));
    let shown = second.call(ShowTaskRequest { target: target("1") }).await.unwrap();
    assert_eq!(shown.conversation.unwrap().state, ConversationState::Lapsed);
    assert_eq!(take_results(&second).await, ["job:1"]);
    assert_eq!(take_results(&second).await, Vec::<String>::new(), "a result is returned once");
}

#[tokio::test]
async fn a_conversation_that_reconnects_within_a_minute_keeps_its_results() {
    let (daemon, clock) = start_daemon().await;
    start(&daemon, "c1", "quick").await;
    let second = connect(&daemon, "c2").await;
    // The daemon has not seen the first conversation, as after a restart.
    clock.advance(Duration::from_secs(59));
    assert_eq!(take_results(&second).await, Vec::<String>::new());
    let first = connect(&daemon, "c1").await;
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(take_results(&second).await, Vec::<String>::new());
    assert_eq!(take_results(&first).await, ["job:1"]);
}

#[tokio::test]
async fn a_pending_wait_gets_results_of_a_lapsed_conversation() {
    let (daemon, clock) = start_daemon().await;
    start(&daemon, "c1", "quick").await;
    start(&daemon, "c2", "endless").await;
    let second = connect(&daemon, "c2").await;
    let wait = second.call(wait_without_tasks(None));
    let lapse = async { clock.advance(Duration::from_secs(60)) };
    let (waited, ()) = tokio::join!(wait, lapse);
    let waited = waited.unwrap();
    assert_eq!(waited.ended.len(), 1);
    assert_eq!(waited.ended[0].address, "job:1");
}

#[tokio::test]
async fn a_wait_without_a_conversation_must_name_tasks() {
    let (daemon, _) = start_daemon().await;
    start(&daemon, "c1", "quick").await;
    let client = daemon.client("cook").await;
    let refusal =
        expect_refusal(client.call(wait_without_tasks(Some(0))).await, RefusalKind::Invalid);
    assert!(refusal.message.contains("name the tasks"), "{refusal:?}");
    let named = WaitRequest { tasks: vec!["1".to_owned()], ..wait_without_tasks(None) };
    assert_eq!(client.call(named).await.unwrap().ended.len(), 1);
}

#[tokio::test]
async fn a_list_reports_the_state_of_each_conversation() {
    let (daemon, clock) = start_daemon().await;
    for conversation in ["c1", "c2", "c3"] {
        start(&daemon, conversation, "quick").await;
    }
    let first = connect(&daemon, "c1").await;
    let _second = connect(&daemon, "c2").await;
    clock.advance(Duration::from_secs(60));
    let list =
        ListTasksRequest { session: Some(SESSION.to_owned()), ..ListTasksRequest::default() };
    let states = first.call(list).await.unwrap().into_iter();
    let states: Vec<_> = states.map(|info| info.conversation.unwrap().state).collect();
    let expect = [ConversationState::Own, ConversationState::Other, ConversationState::Lapsed];
    assert_eq!(states, expect);
}

#[tokio::test]
async fn an_idle_conversation_does_not_prevent_the_idle_shutdown() {
    let daemon =
        TestDaemon::start_with_idle_timeout(Some(Duration::from_millis(200)), |builder| builder)
            .await;
    let idle = connect(&daemon, "c1").await;
    let stopped = tokio::time::timeout(TEST_TIMEOUT, daemon.wait_stopped());
    stopped.await.expect("an idle daemon shuts down");
    idle.wait_closed().await;
}
