//! Lists of tasks that are longer than one reply may be.

use brigade_model::ids::TaskNo;
use brigade_model::refusal::RefusalKind;
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::requests::{ListTaskPagesRequest, ListTasksRequest, ShowTaskRequest};
use brigade_protocol::{DaemonConnection, TaskInfo};
use brigade_runtime::{JobError, NewTask, Session};
use brigade_sqlite::SqliteStore;

use crate::support::{SESSION, TestDaemon, expect_refusal, target};

const TASK_COUNT: u32 = 10_050;

async fn spawn_ended(session: &Session, count: u32) {
    let jobs = (0..count).map(|_| NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) }));
    let spawned = session.spawn_all(jobs).await.unwrap();
    let numbers = spawned.into_iter().map(|task| task.unwrap().no());
    session.wait_all(numbers).await.unwrap();
}

async fn read_pages(client: &DaemonConnection, list: ListTasksRequest) -> Vec<Vec<TaskInfo>> {
    let mut stream = client.call_streaming(ListTaskPagesRequest { list }).unwrap();
    let mut pages = Vec::new();
    loop {
        match stream.next_part().await.unwrap() {
            ReplyStreamPart::Item(page) => pages.push(page),
            ReplyStreamPart::Reply(count) => {
                assert_eq!(count, pages.iter().map(|page| page.len() as u64).sum::<u64>());
                return pages;
            }
        }
    }
}

fn addresses(pages: &[Vec<TaskInfo>]) -> Vec<&str> {
    pages.iter().flatten().map(|task| &*task.address).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_tasks_than_fit_a_reply_come_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("brigade.db")).unwrap();
    let daemon = TestDaemon::start(|builder| builder.store(store)).await;
    let session = daemon.runtime.session(SESSION).await.unwrap();
    spawn_ended(&session, TASK_COUNT).await;
    let operator = daemon.operator().await;
    let all =
        ListTasksRequest { session: Some(SESSION.to_owned()), include_ended: true, limit: None };
    let whole = operator.call(all.clone()).await.map(|tasks| tasks.len());
    let refusal = expect_refusal(whole, RefusalKind::Limit);
    assert!(refusal.message.contains("`brigade ps --newest 100`"), "{refusal}");

    let listed = read_pages(&operator, all.clone()).await;
    assert!(listed.iter().all(|page| (1..=250).contains(&page.len())));
    let expected: Vec<String> = (1..=TASK_COUNT).map(|no| format!("job:{no}")).collect();
    assert!(addresses(&listed) == expected, "each task once, in ascending order");

    let newest = read_pages(&operator, ListTasksRequest { limit: Some(300), ..all.clone() }).await;
    assert_eq!(addresses(&newest), expected[TASK_COUNT as usize - 300..]);
    assert_eq!(
        operator.call(ListTasksRequest { limit: Some(300), ..all }).await.unwrap().len(),
        300
    );

    let named = NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) }).name("Newest");
    session.spawn(named).await.unwrap();
    let found = operator.call(ShowTaskRequest { target: target("newe") }).await.unwrap();
    assert_eq!(found.name.as_deref(), Some("Newest"), "by the beginning of its name");
}

#[tokio::test]
async fn the_newest_tasks_of_several_sessions_are_those_spawned_last() {
    let daemon = TestDaemon::start(|builder| builder).await;
    let first = daemon.runtime.session(SESSION).await.unwrap();
    let second = daemon.runtime.session("pantry").await.unwrap();
    for session in [&first, &second, &first, &second, &first] {
        spawn_ended(session, 1).await;
        // The list orders tasks of several sessions by their time.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let operator = daemon.operator().await;
    let list = ListTasksRequest { session: None, include_ended: true, limit: Some(3) };
    let newest = read_pages(&operator, list).await;
    let session = |task: &TaskInfo| (task.session.clone(), task.address.clone());
    let newest: Vec<(String, String)> = newest.iter().flatten().map(session).collect();
    let expected = [(SESSION, 2), ("pantry", 2), (SESSION, 3)];
    let expected = expected.map(|(session, no)| (session.to_owned(), format!("job:{no}")));
    assert_eq!(newest, expected);
    assert_eq!(first.row().last_task, TaskNo::new(3));
}
