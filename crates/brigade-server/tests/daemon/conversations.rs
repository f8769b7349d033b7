//! Conversations that come and go, by a clock that stands still.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::{ClientIdentity, Time};
use brigade_model::refusal::RefusalKind;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_server::DaemonConnection;
use brigade_server::frames::{ClientIntroduction, ClientRole};
use brigade_server::requests::{
    ListTasksRequest, ShowTaskRequest, StatusRequest, WaitReply, WaitRequest,
};
use brigade_server::task_info::ConversationState;
use brigade_testkit::ManualClock;

use crate::support::{House, SESSION, TOO_LONG, refused, target};

async fn house() -> (House, ManualClock) {
    let clock = ManualClock::at(Time(1_000_000));
    let given = Arc::new(clock.clone());
    let house = House::open(|builder| {
        let builder = builder.clock(given);
        let builder =
            builder.job("quick", RecoveryPolicy::resume(3), |_: JobContext, (): ()| async {
                Ok::<_, JobError>("done")
            });
        builder.job("endless", RecoveryPolicy::resume(3), |_: JobContext, (): ()| async {
            std::future::pending::<()>().await;
            Ok::<_, JobError>(())
        })
    })
    .await;
    (house, clock)
}

fn cook(conversation: &str) -> ClientIdentity {
    ClientIdentity { conversation: Some(conversation.parse().unwrap()), .."cook".into() }
}

async fn connect(house: &House, conversation: &str) -> DaemonConnection {
    let who = ClientRole::Client("cook".to_owned());
    let conversation = Some(conversation.parse().unwrap());
    DaemonConnection::connect(&house.places, ClientIntroduction { role: who, conversation })
        .await
        .unwrap()
}

/// Starts a job in a conversation. The quick one has ended when this returns.
async fn start(house: &House, conversation: &str, job: &str) {
    let session = house.runtime.session_as(SESSION, cook(conversation)).await.unwrap();
    let task = session.spawn(NewTask::job(job, ())).await.unwrap();
    if job == "quick" {
        let operator = house.runtime.operator_session(session.id()).await.unwrap();
        operator.wait_all([task.no().into()]).await.unwrap();
    }
}

fn unnamed(timeout_ms: Option<u64>) -> WaitRequest {
    let (session, tasks) = (SESSION.to_owned(), Vec::new());
    WaitRequest { session, tasks, mode: WaitMode::Any, timeout_ms }
}

async fn taken(client: &DaemonConnection) -> Vec<String> {
    let waited: WaitReply = client.call(unnamed(Some(0))).await.unwrap();
    waited.ended.into_iter().map(|info| info.address).collect()
}

/// Goes away, and waits until the daemon knows.
async fn leave(house: &House, client: DaemonConnection) {
    drop(client);
    let operator = house.operator().await;
    while operator.call(StatusRequest {}).await.unwrap().clients > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_conversation_that_died_is_taken_over_after_a_minute() {
    let (house, clock) = house().await;
    let first = connect(&house, "c1").await;
    start(&house, "c1", "quick").await;
    clock.advance(Duration::from_secs(600));
    let second = connect(&house, "c2").await;
    assert_eq!(taken(&second).await, Vec::<String>::new(), "the first is there, and silent");
    first.call(StatusRequest {}).await.unwrap();
    drop(second);
    leave(&house, first).await;
    let second = connect(&house, "c2").await;
    assert_eq!(taken(&second).await, Vec::<String>::new());
    clock.advance(Duration::from_secs(59));
    assert_eq!(taken(&second).await, Vec::<String>::new());
    let shown = second.call(ShowTaskRequest { target: target("1") }).await.unwrap();
    assert_eq!(shown.conversation.unwrap().state, ConversationState::Other);
    clock.advance(Duration::from_secs(1));
    let shown = second.call(ShowTaskRequest { target: target("1") }).await.unwrap();
    assert_eq!(shown.conversation.unwrap().state, ConversationState::Lapsed);
    assert_eq!(taken(&second).await, ["job:1"]);
    assert_eq!(taken(&second).await, Vec::<String>::new(), "once");
}

#[tokio::test]
async fn one_that_comes_back_within_a_minute_keeps_its_results() {
    let (house, clock) = house().await;
    start(&house, "c1", "quick").await;
    let second = connect(&house, "c2").await;
    // As after a restart: the daemon has seen nobody of the first conversation.
    clock.advance(Duration::from_secs(59));
    assert_eq!(taken(&second).await, Vec::<String>::new());
    let first = connect(&house, "c1").await;
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(taken(&second).await, Vec::<String>::new());
    assert_eq!(taken(&first).await, ["job:1"]);
}

#[tokio::test]
async fn a_wait_that_is_under_way_takes_over_too() {
    let (house, clock) = house().await;
    start(&house, "c1", "quick").await;
    start(&house, "c2", "endless").await;
    let second = connect(&house, "c2").await;
    let wait = second.call(unnamed(None));
    let lapse = async { clock.advance(Duration::from_secs(60)) };
    let (waited, ()) = tokio::join!(wait, lapse);
    let waited = waited.unwrap();
    assert_eq!(waited.ended.len(), 1);
    assert_eq!(waited.ended[0].address, "job:1");
}

#[tokio::test]
async fn without_a_conversation_a_wait_names_tasks() {
    let (house, _) = house().await;
    start(&house, "c1", "quick").await;
    let client = house.client("cook").await;
    let refusal = refused(client.call(unnamed(Some(0))).await, RefusalKind::Invalid);
    assert!(refusal.message.contains("name the tasks"), "{refusal:?}");
    let named = WaitRequest { tasks: vec!["1".to_owned()], ..unnamed(None) };
    assert_eq!(client.call(named).await.unwrap().ended.len(), 1);
}

#[tokio::test]
async fn a_list_tells_conversations_apart() {
    let (house, clock) = house().await;
    for conversation in ["c1", "c2", "c3"] {
        start(&house, conversation, "quick").await;
    }
    let first = connect(&house, "c1").await;
    let _second = connect(&house, "c2").await;
    clock.advance(Duration::from_secs(60));
    let list =
        ListTasksRequest { session: Some(SESSION.to_owned()), ..ListTasksRequest::default() };
    let states = first.call(list).await.unwrap().into_iter();
    let states: Vec<_> = states.map(|info| info.conversation.unwrap().state).collect();
    let expect = [ConversationState::Own, ConversationState::Other, ConversationState::Lapsed];
    assert_eq!(states, expect);
}

#[tokio::test]
async fn a_conversation_that_asks_nothing_keeps_no_daemon_from_leaving() {
    let house = House::idling(Some(Duration::from_millis(200)), |builder| builder).await;
    let attending = connect(&house, "c1").await;
    let left = tokio::time::timeout(TOO_LONG, house.left());
    left.await.expect("it has nothing to do");
    attending.wait_closed().await;
}
