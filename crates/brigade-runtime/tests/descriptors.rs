//! A process without file descriptors concludes nothing from that. The test has a program of its
//! own, since all threads share the descriptors.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::TaskNo;
use brigade_model::outcome::Outcome;
use brigade_runtime::{NewTask, ProcessOptions, Runtime};
use brigade_store::{MemoryStore, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Takes all descriptors except this many.
fn take_all_but(free: usize) -> Vec<File> {
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len().saturating_sub(free));
    taken
}

async fn outcome(runtime: &Runtime, no: u32) -> Arc<Outcome> {
    let session = runtime.session("kitchen").await.expect("a session");
    let no = TaskNo::new(no).expect("a number");
    let mut run_results = session.wait_all([no]).await.expect("endings");
    run_results.pop().expect("one").outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_descriptors_nothing_is_lost_or_killed() {
    let limit = Rlimit { current: Some(200), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let dir = tempfile::tempdir().expect("a folder");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let start = || {
        let options = ProcessOptions::new(dir.path());
        Runtime::builder().shared_store(store.clone()).processes(options).start()
    };
    let runtime = start().await.expect("a runtime");
    let session = runtime.session("kitchen").await.expect("a session");
    let command = |text: &str| NewTask::shell(text).cwd(dir.path());

    // At the end of a process: its exit code is found when there are descriptors again.
    session.spawn(command("sleep 0.3; exit 6")).await.expect("a task");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let taken = take_all_but(0);
    tokio::time::sleep(Duration::from_millis(600)).await;
    drop(taken);
    assert_eq!(outcome(&runtime, 1).await.to_string(), "failed (exit code 6)");

    // At the start: the process either starts or fails to start, never both.
    let taken = take_all_but(0);
    session.spawn(command("echo ran >> runs; exit 7")).await.expect("a task");
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(taken);
    let ended = outcome(&runtime, 2).await.to_string();
    let runs = fs::read_to_string(dir.path().join("runs")).unwrap_or_default();
    assert!(
        ended == "failed (exit code 7)" && runs == "ran\n"
            || ended.contains("error:") && runs.is_empty(),
        "{ended}, and it ran as {runs:?}"
    );

    // At recovery: the start is refused, and the processes continue.
    for _ in 0..20 {
        session.spawn(command("sleep 2; echo end >> ends")).await.expect("a task");
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(session);
    runtime.shutdown().await.expect("a good end");
    let taken = take_all_but(12);
    let refused = start().await;
    drop(taken);
    if let Err(refusal) = refused {
        assert!(refusal.to_string().contains("Too many open files"), "{refusal}");
    }
    let runtime = loop {
        // The refused runtime releases its lock when it is dropped.
        match start().await {
            Ok(runtime) => break runtime,
            Err(refusal) => assert!(refusal.to_string().contains("another runtime"), "{refusal}"),
        }
    };
    for no in 3..23 {
        assert_eq!(outcome(&runtime, no).await.to_string(), "succeeded", "command {no}");
    }
    let ends = fs::read_to_string(dir.path().join("ends")).expect("they ran");
    assert_eq!(ends.lines().count(), 20);
}
