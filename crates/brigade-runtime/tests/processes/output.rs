//! What a command prints is kept within bounds and can be read at any time.

use brigade_runtime::NewTask;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_there_while_the_command_runs_and_after() {
    let kitchen = kitchen().await;
    let text = "echo one; echo two >&2; while ! test -e go; do sleep 0.02; done; echo three";
    let task = NewTask::shell(text).cwd(kitchen.folder.path());
    let task = kitchen.session.spawn(task).await.unwrap();
    said(&task, "two").await;
    std::fs::write(kitchen.folder.path().join("go"), "").unwrap();
    kitchen.task(&task).await;
    let output = task.output().await.unwrap();
    assert_eq!(output.tail_text(100).unwrap(), "one\ntwo\nthree\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owner_and_the_operator_read_it() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("echo mine")).await.unwrap();
    kitchen.task(&task).await;
    let operator = kitchen.runtime.operate(kitchen.session.id()).await.unwrap();
    assert_eq!(operator.output(task.no()).await.unwrap().tail_text(10).unwrap(), "mine\n");
    let unknown = brigade_model::ids::TaskNo::new(99).unwrap();
    let refusal = kitchen.session.output(unknown).await.unwrap_err();
    assert!(refusal.to_string().contains("no task 99"), "{refusal}");
}
