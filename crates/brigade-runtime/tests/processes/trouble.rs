//! Failures around a process, which must not make things worse.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::{Millis, TaskNo};
use brigade_model::message::Receipt;
use brigade_model::outcome::{EndConfirmation, Outcome};
use brigade_model::task::StoredTask;
use brigade_model::work::EnvValue;
use brigade_process::output::{self, OutputView, ReadStart};
use brigade_runtime::{Job, JobContext, JobError, NewTask, ProcessOptions, Runtime};
use brigade_store::{MemoryStore, Retention};

use crate::support::*;

/// Leaves the state as a crash just before the execution would: a directory without a claim.
fn unexecute(dir: &Path) {
    let execution_dir = only_execution_dir(dir);
    let shim = record(&execution_dir).shim.pid.to_string();
    std::process::Command::new("kill").args(["-9", &shim]).status().unwrap();
    let session = execution_dir.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    for pid in processes_with(&format!("BRIGADE_SHIM={session}.")) {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    fs::remove_dir_all(&execution_dir).unwrap();
    fs::create_dir(&execution_dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_never_started_is_started_and_followed_from_its_start() {
    let first = kitchen().await;
    // The runtime stops before it records the start, within 50 ms.
    let task = NewTask::shell("sleep 0.3; echo hello; sleep 0.2; echo bye");
    let task = first.session.spawn(task).await.unwrap();
    let execution_dir = first.dir.path().join("processes").join(first.session.id().to_string());
    let execution_dir = execution_dir.join("1.1.1");
    until("the shim", || execution_dir.join("claim").exists()).await;
    drop(task);
    let next = first.reopened_after(unexecute).await;
    let StoredTask { row, .. } = next.session.list().pop().unwrap();
    if row.extras.as_ref().is_some_and(|extra| extra.state.is_some()) {
        // The machine was too slow for this: the start had been recorded.
        let run_result = next.session.wait_all([TaskNo::FIRST]).await.unwrap().pop().unwrap();
        assert_eq!(lost(&run_result.outcome).0, "its claim is gone");
        return;
    }
    let mut follow =
        next.session.follow(TaskNo::FIRST, OutputView::Combined, ReadStart::At(0)).await.unwrap();
    let mut seen = String::new();
    while let Some(page) = follow.next().await.unwrap() {
        seen.push_str(&output::page_text(&page));
    }
    assert_eq!(seen, "hello\nbye\n", "not the output of the first attempt");
    let row = next.session.get(TaskNo::FIRST).await.unwrap().row;
    assert_eq!(row.attempt.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_claim_does_not_cause_a_second_execution() {
    let first = kitchen().await;
    let task = NewTask::shell("echo ran >> runs; sleep 60").cwd(first.dir.path());
    first.session.spawn(task).await.unwrap();
    let ran = first.dir.path().join("runs");
    until("it runs", || ran.exists()).await;
    let removed = |dir: &Path| fs::remove_file(only_execution_dir(dir).join("claim")).unwrap();
    let next = first.reopened_after(removed).await;
    let run_result = next.session.wait_all([TaskNo::FIRST]).await.unwrap().pop().unwrap();
    if brigade_process::IS_COMPLETE {
        assert_eq!(
            lost(&run_result.outcome),
            ("its claim is gone".to_owned(), EndConfirmation::Confirmed)
        );
        assert_eq!(processes_with(&task_mark(&next)), Vec::<u32>::new());
    }
    assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_closes_the_input_of_its_child_once() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder()
        .processes(ProcessOptions::new(dir.path()))
        .job(Job::new("feeder"), |ctx: JobContext, (): ()| async move {
            let cat = ctx.spawn(NewTask::shell("cat").reads_messages()).await?;
            ctx.send(&cat, "salt").await?;
            ctx.close_input(&cat).await?;
            let run_results = ctx.wait_all([&cat]).await?;
            Ok::<_, JobError>(report(&run_results[0].outcome).tail)
        })
        .start()
        .await
        .unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    let task = session.spawn(NewTask::job("feeder", ())).await.unwrap();
    let run_result = task.wait().await.unwrap();
    let Outcome::Succeeded { result } = &*run_result.outcome else {
        panic!("{}", run_result.outcome)
    };
    assert_eq!(result.decode::<String>().unwrap(), "salt\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_the_store_does_not_know_are_ended_by_the_next_runtime() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    let first = kitchen().await;
    let task = first.session.spawn(NewTask::shell("echo up; exec sleep 60")).await.unwrap();
    until_output(&task, "up").await;
    drop(task);
    let mark = task_mark(&first);
    let Kitchen { dir, runtime, session, .. } = first;
    drop(session);
    runtime.shutdown().await.unwrap();
    assert_eq!(processes_with(&mark).len(), 2, "processes outlive a shutdown");
    let forgetful = Arc::new(MemoryStore::new());
    let options = ProcessOptions::new(dir.path());
    let _next =
        Runtime::builder().shared_store(forgetful).processes(options).start().await.unwrap();
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    assert_eq!(fs::read_dir(dir.path().join("processes")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_without_processes_does_not_confirm_their_end() {
    let first = kitchen().await;
    let task = first.session.spawn(NewTask::shell("echo up; exec sleep 60")).await.unwrap();
    until_output(&task, "up").await;
    drop(task);
    let mark = task_mark(&first);
    let Kitchen { dir, store, runtime, session } = first;
    drop(session);
    runtime.shutdown().await.unwrap();
    let bare = Runtime::builder().shared_store(store.clone()).start().await.unwrap();
    let session = bare.session("kitchen").await.unwrap();
    let run_result = session.wait_all([TaskNo::FIRST]).await.unwrap().pop().unwrap();
    let (evidence, verified) = lost(&run_result.outcome);
    assert_eq!(evidence, "no performer for process is registered");
    assert_eq!(verified, EndConfirmation::Unconfirmed);
    drop(session);
    bare.shutdown().await.unwrap();
    let options = ProcessOptions::new(dir.path());
    let again = Runtime::builder().shared_store(store).processes(options).start().await.unwrap();
    let everything = Retention { ended: Millis(0), events: Millis(0) };
    tokio::time::sleep(Duration::from_millis(5)).await;
    again.prune(&everything).await.unwrap();
    if brigade_process::IS_COMPLETE {
        assert_eq!(
            processes_with(&mark),
            Vec::<u32>::new(),
            "a pruned process does not keep running"
        );
    }
}

#[tokio::test]
async fn a_reference_to_a_fifo_blocks_nobody() {
    let kitchen = kitchen().await;
    let fifo = kitchen.dir.path().join("fifo");
    std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    let reference = EnvValue::FromFile(fifo.to_str().unwrap().into());
    let task = NewTask::shell("true").env("KEY", reference);
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await;
    assert!(outcome.to_string().contains("it is not a plain file"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_to_a_process_without_a_directory_is_a_dead_letter() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo up; exec sleep 60").reads_messages();
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "up").await;
    fs::remove_dir_all(kitchen.execution_dir()).unwrap();
    let no = task.send("anybody there?").await.unwrap();
    let dead = Receipt::DeadLettered("its directory is gone".into());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while kitchen.session.receipt(no).await.unwrap().unwrap().receipt != dead {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    task.stop(None).await.unwrap();
    kitchen.task(&task).await;
    assert_eq!(processes_with(&task_mark(&kitchen)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_has_one_owner_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let kitchen = kitchen().await;
    let start = |path: &Path| Runtime::builder().processes(ProcessOptions::new(path)).start();
    let refusal = start(kitchen.dir.path()).await.unwrap_err();
    assert!(refusal.to_string().contains("another runtime uses the directory"), "{refusal}");
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refusal = start(open.path()).await.unwrap_err();
    assert!(refusal.to_string().contains("can be written by others"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_run_has_its_own_output() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo x >> runs; wc -l < runs; exit 3").cwd(kitchen.dir.path());
    let first = kitchen.session.spawn(task).await.unwrap();
    kitchen.task(&first).await;
    let second = kitchen.session.resume(first.no(), None).await.unwrap().typed();
    kitchen.task(&second).await;
    for (task, expect) in [(&first, "1\n"), (&second, "2\n")] {
        assert_eq!(task.output().await.unwrap().tail_text(10).unwrap(), expect);
    }
}
