//! The output of processes as lines and bytes.

use brigade_process::output::StdStream;
use brigade_runtime::{NewTask, OutputLine};
use futures_util::{StreamExt, TryStreamExt};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_arrive_while_the_process_runs_and_end_with_it() {
    let kitchen = kitchen().await;
    let text = "echo one; while ! test -e go; do sleep 0.02; done; echo two >&2; printf three";
    let task = NewTask::shell(text).cwd(kitchen.dir.path());
    let task = kitchen.session.spawn(task).await.unwrap();
    let mut lines = task.lines();
    let first = lines.next().await.unwrap().unwrap();
    assert_eq!((first.stream, &*first.text), (StdStream::Stdout, "one"));
    // A second reader that is dropped half-way takes nothing from the first.
    let mut other = task.lines();
    assert_eq!(other.next().await.unwrap().unwrap(), first);
    drop(other);
    std::fs::write(kitchen.dir.path().join("go"), "").unwrap();
    let mut following: Vec<OutputLine> = lines.try_collect().await.unwrap();
    following.sort_by_key(|line| line.stream == StdStream::Stdout);
    let following: Vec<(StdStream, &str)> =
        following.iter().map(|line| (line.stream, &*line.text)).collect();
    assert_eq!(following, [(StdStream::Stderr, "two"), (StdStream::Stdout, "three")]);
    kitchen.task(&task).await;
    assert_eq!(task.lines().count().await, 3, "also after the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_has_all_bytes_of_the_output_and_then_its_end() {
    let kitchen = kitchen().await;
    let text = "head -c 300000 /dev/zero; echo; echo last";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    let mut bytes = Vec::new();
    task.reader().read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len(), 300_000 + 1 + 5);
    assert!(bytes.ends_with(b"\0\nlast\n"));
    let mut lines = task.reader().lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap().len(), 300_000);
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "last");
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_output_is_counted_by_lines_and_an_error_of_one_read() {
    let kitchen = kitchen().await;
    let text = "echo first; head -c 33554432 /dev/zero; echo; echo last";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    kitchen.task(&task).await;
    let lines: Vec<OutputLine> = task.lines().try_collect().await.unwrap();
    assert_eq!(lines[0].text, "first");
    assert_eq!(lines.last().unwrap().text, "last");
    let dropped: u64 = lines.iter().map(|line| line.dropped_before).sum();
    let text_bytes: usize = lines.iter().map(|line| line.text.len()).sum();
    assert!(dropped > 0);
    assert_eq!(dropped + text_bytes as u64, 5 + 33_554_432 + 4);
    let mut reader = task.reader();
    let mut bytes = Vec::new();
    let error = reader.read_to_end(&mut bytes).await.unwrap_err();
    assert!(error.to_string().contains("bytes of the output are not stored"), "{error}");
    reader.read_to_end(&mut bytes).await.unwrap();
    assert!(bytes.starts_with(b"first\n") && bytes.ends_with(b"last\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_the_streams_and_the_next_runtime_continues() {
    let kitchen = kitchen().await;
    let text = "echo one; while ! test -e go; do sleep 0.02; done; echo two";
    let task = NewTask::shell(text).cwd(kitchen.dir.path());
    let task = kitchen.session.spawn(task).await.unwrap();
    let mut lines = task.lines();
    assert_eq!(lines.next().await.unwrap().unwrap().text, "one");
    let no = task.no();
    drop(task);
    let (next, kitchen) = tokio::join!(lines.next(), kitchen.reopened());
    assert_eq!(next, None);
    std::fs::write(kitchen.dir.path().join("go"), "").unwrap();
    let run_results = kitchen.session.wait_all([no]).await.unwrap();
    assert_eq!(run_results[0].outcome.label(), "succeeded");
    assert_eq!(kitchen.session.output(no).await.unwrap().tail_text(20).unwrap(), "one\ntwo\n");
}
