//! The shell that reads command lines: chosen at the spawn, and recorded with the task.

use std::path::Path;

use brigade_model::limits::Limits;
use brigade_model::work::Work;
use brigade_runtime::{NewTask, TaskHandle};

use crate::support::*;

async fn shell_of<T>(task: &TaskHandle<T>) -> Option<String> {
    let row = task.get().await.unwrap();
    let Work::Process(process) = &row.spec.work else { panic!("it is a process") };
    process.shell.as_deref().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_lines_are_read_by_bash_if_it_is_installed() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo ${BASH_VERSION:+bash} {a,b}");
    let task = kitchen.session.spawn(task).await.unwrap();
    kitchen.task(&task).await;
    let printed = task.output().await.unwrap().tail_text(100).unwrap();
    let has_bash = ["/bin/bash", "/usr/bin/bash"].iter().any(|path| Path::new(path).exists());
    if has_bash {
        assert_eq!(printed, "bash a b\n");
        assert!(shell_of(&task).await.unwrap().ends_with("/bash"));
    } else {
        assert_eq!(printed, "{a,b}\n");
    }
    let program = kitchen.session.spawn(NewTask::program(["true"])).await.unwrap();
    assert_eq!(shell_of(&program).await, None, "there is none in between");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configured_shell_is_used() {
    let kitchen = kitchen().await.reopened_with(|options| options.shell("/bin/sh")).await;
    let task = kitchen.session.spawn(NewTask::shell("echo $0")).await.unwrap();
    kitchen.task(&task).await;
    assert_eq!(task.output().await.unwrap().tail_text(100).unwrap(), "/bin/sh\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_task_keeps_its_shell_when_another_is_configured() {
    let kitchen = kitchen().await;
    let one = Limits { running: Some(1), ..Limits::default() };
    kitchen.session.set_limits(one).await.unwrap();
    let first = kitchen.session.spawn(NewTask::shell("sleep 1000")).await.unwrap();
    let queued = || NewTask::shell("echo read").key("once");
    let second = kitchen.session.spawn(queued()).await.unwrap();
    let shell = shell_of(&second).await;
    let second = second.no();
    let first = first.no();
    let kitchen = kitchen.reopened_with(|options| options.shell("/bin/false")).await;
    let again = kitchen.session.spawn(queued()).await.unwrap();
    assert_eq!((again.no(), again.existed()), (second, true), "the key identifies the request");
    assert_eq!(shell_of(&again).await, shell);
    kitchen.session.stop(first, None).await.unwrap();
    assert_eq!(report(&kitchen.task(&again).await).exit_code, Some(0));
    assert_eq!(again.output().await.unwrap().tail_text(100).unwrap(), "read\n");
}
