//! Output of processes: bounded, and readable at any time.

use std::time::Duration;

use brigade_process::output::{
    self, OutputRead, OutputSearch, OutputView, PagePiece, ReadStart, SearchBounds, SearchCursor,
};
use brigade_runtime::{NewTask, ProcessOptions, Runtime};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_readable_while_the_process_runs_and_after() {
    let kitchen = kitchen().await;
    let text = "echo one; echo two >&2; for n in $(seq 1000); do test -e go && break; sleep 0.02; done; echo three";
    let task = NewTask::shell(text).cwd(kitchen.dir.path());
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "two").await;
    std::fs::write(kitchen.dir.path().join("go"), "").unwrap();
    kitchen.task(&task).await;
    let output = task.output().await.unwrap();
    assert_eq!(output.tail_text(100).unwrap(), "one\ntwo\nthree\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owner_and_the_operator_read_it() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("echo mine")).await.unwrap();
    kitchen.task(&task).await;
    let operator = kitchen.runtime.operator_session(kitchen.session.id()).await.unwrap();
    assert_eq!(operator.output(task.no()).await.unwrap().tail_text(10).unwrap(), "mine\n");
    let unknown = brigade_model::ids::TaskNo::new(99).unwrap();
    let refusal = kitchen.session.output(unknown).await.unwrap_err();
    assert!(refusal.to_string().contains("no task 99"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gibibyte_is_counted_and_its_start_and_end_are_stored() {
    let kitchen = kitchen().await;
    let text = "echo begun; head -c 1073741824 /dev/zero; echo; echo ended";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    let report = report(&kitchen.task(&task).await);
    let total = 6 + (1 << 30) + 1 + 6;
    assert_eq!((report.exit_code, report.stdout_bytes), (Some(0), total));
    assert_eq!(report.tail, "ended\n");
    let output = task.output().await.unwrap();
    let read =
        OutputRead { view: OutputView::Stdout, start: ReadStart::At(0), max_bytes: 64 << 20 };
    let page = output.read(read).unwrap();
    assert_eq!((page.total, page.next, page.ended), (total, total, true));
    let kept: u64 = total - page.dropped_bytes();
    assert_eq!(kept, 8 << 20, "as much as the cap says");
    let Some(PagePiece::Bytes { bytes, .. }) = page.pieces.first() else { panic!("no beginning") };
    assert!(bytes.starts_with(b"begun\n"));
    let sizes = std::fs::read_dir(kitchen.execution_dir()).unwrap();
    let on_disk: u64 = sizes.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk < 9 << 20, "{on_disk} bytes on disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_leaves_before_the_start_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let options = ProcessOptions::new(dir.path());
    let runtime = Runtime::builder().processes(options).max_running(1).start().await.unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    let first = session.spawn(NewTask::shell("sleep 600")).await.unwrap();
    let hour = Duration::from_secs(3600);
    let text = "head -c 20000000 /dev/zero";
    let queued = NewTask::shell(text).first_reader_timeout(hour);
    let queued = session.spawn(queued).await.unwrap();
    session.renew_lease(queued.no(), 7, Some(0), hour).await.unwrap();
    session.renew_lease(queued.no(), 7, None, hour).await.unwrap();
    first.stop(None).await.unwrap();
    let run = queued.wait_within(Duration::from_secs(60)).await.unwrap();
    let run = run.expect("it ends without its reader");
    assert_eq!(report(&run.outcome).stdout_bytes, 20_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_output_is_stored_unchanged() {
    let kitchen = kitchen().await;
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    std::fs::write(kitchen.dir.path().join("all"), &all).unwrap();
    let task = NewTask::shell("cat all; cat all >&2").cwd(kitchen.dir.path());
    let task = kitchen.session.spawn(task).await.unwrap();
    kitchen.task(&task).await;
    let output = task.output().await.unwrap();
    for which in [OutputView::Stdout, OutputView::Stderr] {
        let read = OutputRead { view: which, start: ReadStart::At(0), max_bytes: 1 << 20 };
        let pieces = output.read(read).unwrap().pieces;
        let bytes = pieces.into_iter().flat_map(|piece| match piece {
            PagePiece::Bytes { bytes, .. } => bytes,
            PagePiece::Dropped { .. } => panic!("nothing was cut"),
        });
        assert!(bytes.eq(all.iter().copied()), "{which:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_followed_from_before_the_start_to_the_end() {
    let kitchen = kitchen().await;
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    kitchen.session.set_limits(limits).await.unwrap();
    let first = kitchen.session.spawn(NewTask::shell("exec sleep 60")).await.unwrap();
    let text = "for n in 1 2 3 4 5; do echo $n; sleep 0.02; done";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    assert_eq!(task.get().await.unwrap().state.label(), "queued");
    let mut follow = task.follow(OutputView::Combined, ReadStart::At(0)).await.unwrap();
    first.stop(None).await.unwrap();
    let mut seen = String::new();
    while let Some(page) = follow.next().await.unwrap() {
        seen.push_str(&output::page_text(&page));
    }
    assert_eq!(seen, "1\n2\n3\n4\n5\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_found_by_a_pattern() {
    let kitchen = kitchen().await;
    let text = "echo ok 1; echo error: salt >&2; echo ok 2; echo error: pepper";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    kitchen.task(&task).await;
    let search = OutputSearch {
        view: OutputView::Combined,
        pattern: "^error: (salt|pepper)$",
        ignore_case: false,
        cursor: SearchCursor::default(),
        max_matches: 10,
        max_line_bytes: 100,
        bounds: SearchBounds::default(),
    };
    let found = task.output().await.unwrap().search(search).unwrap();
    let mut lines: Vec<&str> = found.lines.iter().map(|line| line.text.as_str()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["error: pepper", "error: salt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn following_ends_with_the_task_when_its_shim_is_killed() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("echo up; exec sleep 60")).await.unwrap();
    let mut follow = task.follow(OutputView::Stdout, ReadStart::At(0)).await.unwrap();
    let page = follow.next().await.unwrap().unwrap();
    assert_eq!(output::page_text(&page), "up\n");
    let shim = record(&kitchen.execution_dir()).shim.pid.to_string();
    std::process::Command::new("kill").args(["-9", &shim]).status().unwrap();
    assert_eq!(follow.next().await.unwrap(), None);
    lost(&kitchen.task(&task).await);
}
