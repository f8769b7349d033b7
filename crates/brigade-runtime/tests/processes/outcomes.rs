//! Outcomes of processes.

use std::time::Duration;

use brigade_model::outcome::{Failure, Outcome};
use brigade_model::task::StoredTask;
use brigade_runtime::{ForegroundResult, JobError, NewTask};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_and_signals_are_the_real_ones() {
    let kitchen = kitchen().await;
    for (command, expect) in [
        ("exit 0", "succeeded"),
        ("exit 7", "failed (exit code 7)"),
        ("kill -9 $$", "failed (signal 9)"),
        ("kill -TERM $$", "failed (signal 15)"),
        ("no-such-program-here", "failed (exit code 127)"),
    ] {
        let task = kitchen.session.spawn(NewTask::shell(command)).await.unwrap();
        let outcome = kitchen.task(&task).await;
        assert_eq!(outcome.to_string(), expect, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_result_has_exit_code_output_and_duration() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo one; echo two >&2; sleep 0.1; exit 3");
    let task = kitchen.session.spawn(task).await.unwrap();
    let report = report(&kitchen.task(&task).await);
    assert_eq!((report.exit_code, report.signal), (Some(3), None));
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (4, 4));
    assert_eq!(report.tail, "one\ntwo\n");
    assert!(report.duration_ms >= 100, "{report:?}");
    assert!(report.survivors.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_cannot_be_executed_has_the_reason() {
    let kitchen = kitchen().await;
    let dir = kitchen.dir.path().to_str().unwrap().to_owned();
    let gone = format!("{dir}/not-there");
    for (task, expect) in [
        (
            NewTask::program(["no-such-program-here"]),
            "`no-such-program-here` cannot be executed: No such file or directory in its PATH",
        ),
        (
            NewTask::program([dir.as_str()]),
            &*format!("`{dir}` cannot be executed: Permission denied"),
        ),
        (
            NewTask::shell("true").cwd(&gone),
            &*format!("its working directory {gone} cannot be entered: No such file or directory"),
        ),
    ] {
        let task = kitchen.session.spawn(task).await.unwrap();
        let outcome = kitchen.task(&task).await;
        let Outcome::Failed(failed) = &outcome else { panic!("{outcome:?}") };
        let Failure::Error(error) = &failed.failure else { panic!("{failed:?}") };
        assert_eq!(&*error.message, expect);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_and_jobs_are_one_list_with_one_numbering() {
    let kitchen = kitchen().await;
    let session = &kitchen.session;
    let command = session.spawn(NewTask::shell("sleep 60").name("Sleeper").erase()).await.unwrap();
    let closure = NewTask::closure("nap", |_| std::future::pending::<Result<(), JobError>>());
    let closure = session.spawn(closure.erase()).await.unwrap();
    let listed: Vec<String> = session
        .list()
        .iter()
        .map(|StoredTask { no, row }| format!("{} {}", row.address(*no), row.state.label()))
        .collect();
    assert_eq!(listed, ["process:1 running", "job:2 running"]);
    for task in [&command, &closure] {
        task.stop(None).await.unwrap();
        assert_eq!(kitchen.task(task).await.label(), "cancelled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreground_process_continues_in_the_background_after_its_timeout() {
    let kitchen = kitchen().await;
    let quick = NewTask::shell("echo quick");
    let run = kitchen.session.run(quick, Duration::from_secs(20)).await.unwrap();
    let ForegroundResult::Ended(_, run_result) = run else { panic!("{run:?}") };
    assert_eq!(report(&run_result.outcome).tail, "quick\n");
    let slow = NewTask::shell("sleep 0.5; echo slow");
    let run = kitchen.session.run(slow, Duration::from_millis(50)).await.unwrap();
    let ForegroundResult::Background(task) = run else { panic!("{run:?}") };
    assert_eq!(task.get().await.unwrap().state.label(), "running");
    assert_eq!(report(&kitchen.task(&task).await).tail, "slow\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_fails_a_process_with_its_output() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo begun; exec sleep 60").deadline(Duration::from_millis(300));
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await;
    assert_eq!(outcome.to_string(), "failed (timeout after 300 ms)");
    let report = report(&outcome);
    assert_eq!((report.signal, report.tail.as_str()), (Some(15), "begun\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_is_the_same_process() {
    let kitchen = kitchen().await;
    let command = || NewTask::shell("echo x >> ran").cwd(kitchen.dir.path()).key("once");
    let first = kitchen.session.spawn(command()).await.unwrap();
    kitchen.task(&first).await;
    let again = kitchen.session.spawn(command()).await.unwrap();
    assert!(again.existed() && again.no() == first.no());
    kitchen.task(&again).await;
    assert_eq!(std::fs::read_to_string(kitchen.dir.path().join("ran")).unwrap(), "x\n");
    let other = kitchen.session.spawn(NewTask::shell("echo y").key("once")).await;
    assert!(other.unwrap_err().to_string().contains("another request"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_processes_at_once_have_their_outcomes() {
    let kitchen = kitchen().await;
    let commands = (0..200).map(|n| NewTask::shell(&format!("echo {n}; exit {}", n % 3)));
    let tasks = kitchen.session.spawn_all(commands).await.unwrap();
    for (n, task) in tasks.into_iter().enumerate() {
        let report = report(&kitchen.task(&task.unwrap()).await);
        assert_eq!((report.exit_code, report.tail), (Some(n as i32 % 3), format!("{n}\n")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_closes_its_streams_is_waited_for() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo before; exec >&- 2>&-; sleep 0.3; exit 4");
    let task = kitchen.session.spawn(task).await.unwrap();
    let report = report(&kitchen.task(&task).await);
    assert_eq!((report.exit_code, report.tail.as_str()), (Some(4), "before\n"));
    assert!(report.duration_ms >= 300, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_descendants_of_a_process_end_with_it() {
    let kitchen = kitchen().await;
    let text = "sleep 61 & setsid sh -c 'sleep 62 & wait' & exit 5";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    assert_eq!(kitchen.task(&task).await.to_string(), "failed (exit code 5)");
    assert_eq!(processes_with(&task_mark(&kitchen)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_without_processes_keeps_them_queued() {
    let runtime = brigade_runtime::Runtime::builder().start().await.unwrap();
    let session = runtime.session("bare").await.unwrap();
    let task = session.spawn(NewTask::shell("true")).await.unwrap();
    loop {
        let row = task.get().await.unwrap();
        if row.state.label() == "queued" {
            assert!(format!("{:?}", row.state).contains("no performer for process"), "{row:?}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(task.output().await.unwrap_err().to_string().contains("has no output"));
}

#[tokio::test]
async fn blank_command_lines_and_relative_directories_are_refused() {
    let kitchen = kitchen().await;
    for (task, expect) in [
        (NewTask::shell("true").cwd("here"), "not an absolute path"),
        (NewTask::shell("  "), "blank"),
    ] {
        let refusal = kitchen.session.spawn(task).await.unwrap_err();
        assert!(refusal.to_string().contains(expect), "{refusal}");
    }
}
