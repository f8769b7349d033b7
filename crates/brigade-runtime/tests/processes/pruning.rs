//! Removal of the data of many ended processes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use brigade_model::ids::{Millis, TaskNo};
use brigade_runtime::{JobError, NewTask, ProcessOptions, Runtime};
use brigade_sqlite::SqliteStore;
use brigade_store::Retention;

use crate::support::only_execution_dir;

const MANY: u32 = 10_000;

/// Longer than it takes on a busy machine. Reading all directories for each task took minutes.
const TOO_LONG: Duration = Duration::from_secs(20);

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Creates a directory in memory if possible, so that the disk is not measured.
fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_removed_with_their_directories_at_once() {
    let dir = dir();
    let store = SqliteStore::open(dir.path().join("brigade.db")).unwrap();
    let runtime = Runtime::builder()
        .store(store)
        .processes(ProcessOptions::new(dir.path()))
        .start()
        .await
        .unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    let jobs = (0..MANY).map(|_| NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) }));
    let spawned = session.spawn_all(jobs).await.unwrap();
    let numbers: Vec<TaskNo> = spawned.into_iter().map(|task| task.unwrap().no()).collect();
    session.wait_all(numbers.clone()).await.unwrap();
    let last = session.spawn(NewTask::shell("true")).await.unwrap();
    last.wait().await.unwrap();
    let real = only_execution_dir(dir.path());
    let execution_dir = real.parent().unwrap();
    for no in numbers {
        copy(&real, &execution_dir.join(format!("{no}.1.1")));
    }
    let alive = session.spawn(NewTask::shell("exec sleep 60")).await.unwrap();
    let everything = Retention { ended: Millis(0), events: Millis(0) };
    tokio::time::sleep(Duration::from_millis(5)).await;
    let began = Instant::now();
    let pruned = runtime.prune(&everything).await.unwrap();
    let took = began.elapsed();
    assert_eq!(pruned.tasks, u64::from(MANY) + 1);
    let remaining: Vec<_> =
        fs::read_dir(execution_dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(remaining, [&*format!("{}.1.1", alive.no())], "a running task keeps its data");
    assert!(took < TOO_LONG, "{MANY} tasks took {took:?}");
    println!("{MANY} tasks were removed in {took:?}");
    alive.stop(None).await.unwrap();
    alive.wait().await.unwrap();
}
