//! Processes on a terminal, with resource limits, and in a sandbox.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest, TcpPolicy, TerminalSize};
use brigade_model::work::EnvValue;
use brigade_process::LandlockSupport;
use brigade_runtime::{NewTask, ProcessOptions, ProcessTask, Runtime};
use brigade_store::MemoryStore;
use tempfile::TempDir;

use crate::support::*;

/// A working directory, with a file outside of it.
struct WorkDirs {
    _folder: TempDir,
    work: PathBuf,
    outside: PathBuf,
}

fn work_dirs() -> WorkDirs {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let work = root.join("work");
    let outside = root.join("outside");
    fs::create_dir(&work).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret\n").unwrap();
    WorkDirs { _folder: dir, work, outside }
}

fn can_sandbox() -> bool {
    let can = LandlockSupport::detect().check().is_ok();
    if !can {
        eprintln!(
            "not tested: this kernel cannot sandbox processes ({:?})",
            LandlockSupport::detect()
        );
    }
    can
}

/// Returns true if access was denied: Landlock refuses it, and namespaces hide the file.
fn is_kept_out(text: &str) -> bool {
    text.contains("ermission denied") || text.contains("No such file")
}

fn sandboxed(work_dirs: &WorkDirs, script: &str) -> NewTask<ProcessTask> {
    NewTask::shell(script).cwd(&work_dirs.work).sandbox(SandboxRequest::default())
}

async fn tail(kitchen: &Kitchen, task: NewTask<ProcessTask>) -> String {
    let task = kitchen.session.spawn(task).await.unwrap();
    report(&kitchen.task(&task).await).tail
}

async fn problem(kitchen: &Kitchen, task: NewTask<ProcessTask>) -> String {
    let task = kitchen.session.spawn(task).await.unwrap();
    match kitchen.task(&task).await {
        Outcome::Failed(failed) => match failed.failure {
            Failure::Error(error) => error.to_string(),
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_process_has_its_directory_and_a_scratch_directory() {
    if !can_sandbox() {
        return;
    }
    let kitchen = kitchen().await;
    let work_dirs = work_dirs();
    let script = "exec 2>&1; echo in > made; echo $TMPDIR; echo t > $TMPDIR/t; cat $TMPDIR/t; cat ../outside/file";
    let text = tail(&kitchen, sandboxed(&work_dirs, script)).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[1], text.contains("secret")), ("t", false), "{text}");
    assert!(is_kept_out(&text), "{text}");
    assert_eq!(fs::read_to_string(work_dirs.work.join("made")).unwrap(), "in\n");
    assert!(!Path::new(lines[0]).exists(), "the scratch directory is removed with the process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_kernel_support_nothing_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let work_dirs = work_dirs();
    for (landlock, expect) in [
        (LandlockSupport::Missing, "this kernel has no Landlock: Linux 6.2 or newer is needed"),
        (LandlockSupport::Disabled, "not switched on in this kernel"),
        (LandlockSupport::Version(1), "Landlock (version 1) is too old"),
    ] {
        let options = ProcessOptions::new(dir.path()).landlock(landlock);
        let store = Arc::new(MemoryStore::new());
        let builder = Runtime::builder().shared_store(store.clone()).processes(options);
        let runtime = builder.start().await.unwrap();
        let session = runtime.session("kitchen").await.unwrap();
        let task = session.spawn(sandboxed(&work_dirs, "echo ran > ran")).await.unwrap();
        let outcome = task.wait().await.unwrap().outcome.to_string();
        assert!(outcome.contains(expect), "{outcome}");
        let free = session.spawn(NewTask::shell("exit 3")).await.unwrap();
        assert_eq!(free.wait().await.unwrap().outcome.to_string(), "failed (exit code 3)");
        runtime.shutdown().await.unwrap();
    }
    assert!(!work_dirs.work.join("ran").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_cannot_contain_the_state_directory() {
    if !can_sandbox() {
        return;
    }
    let kitchen = kitchen().await;
    let work_dirs = work_dirs();
    let state = kitchen.dir.path();
    let read = vec![state.to_str().unwrap().to_owned()];
    for task in [
        NewTask::shell("true").cwd(state.parent().unwrap()).sandbox(SandboxRequest::default()),
        NewTask::shell("true").cwd(state.join("processes")).sandbox(SandboxRequest::default()),
        sandboxed(&work_dirs, "true").sandbox(SandboxRequest { read, ..SandboxRequest::default() }),
    ] {
        let problem = problem(&kitchen, task).await;
        assert!(problem.contains("Brigade's own state directory"), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_became_a_link_is_not_followed() {
    if !can_sandbox() {
        return;
    }
    let kitchen = kitchen().await;
    let work_dirs = work_dirs();
    let inner = work_dirs.work.join("inner");
    fs::create_dir(&inner).unwrap();
    let write = vec!["inner".to_owned()];
    // The sandbox is resolved at the spawn; the task is queued until the path has changed.
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    let session = kitchen.runtime.session_with("narrow", limits).await.unwrap();
    let first = NewTask::shell("while [ ! -e go ]; do sleep 0.02; done").cwd(&work_dirs.work);
    session.spawn(first).await.unwrap();
    let task = sandboxed(&work_dirs, "cat inner/file")
        .sandbox(SandboxRequest { write, ..SandboxRequest::default() });
    let task = session.spawn(task).await.unwrap();
    fs::remove_dir(&inner).unwrap();
    symlink(&work_dirs.outside, &inner).unwrap();
    fs::write(work_dirs.work.join("go"), "").unwrap();
    let outcome = task.wait().await.unwrap().outcome.to_string();
    assert!(outcome.contains("has become a symbolic link"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_sandbox_is_refused_at_once() {
    let kitchen = kitchen().await;
    let work_dirs = work_dirs();
    let nowhere = SandboxRequest { write: vec!["nowhere".into()], ..SandboxRequest::default() };
    let low = ResourceLimits { memory: Some(100), ..ResourceLimits::default() };
    for (task, expect) in [
        (NewTask::shell("true").sandbox(SandboxRequest::default()), "needs a working directory"),
        (sandboxed(&work_dirs, "true").sandbox(nowhere), "nowhere: No such file"),
        (NewTask::shell("true").resources(low), "memory is too low"),
    ] {
        let refusal = kitchen.session.spawn(task).await.unwrap_err();
        assert!(refusal.message.contains(expect), "{}", refusal.message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_ended_by_a_limit_names_it() {
    let kitchen = kitchen().await;
    let resources = ResourceLimits { cpu_secs: Some(1), ..ResourceLimits::default() };
    let task = NewTask::shell("while :; do :; done").resources(resources);
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await;
    assert_eq!(outcome.to_string(), "failed (signal 24: its processor time is used up)");
    assert_eq!(report(&outcome).signal, Some(24));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_caller_starts_nothing_with_a_weaker_sandbox() {
    if !can_sandbox() {
        return;
    }
    let kitchen = kitchen().await;
    let work_dirs = work_dirs();
    let resources = ResourceLimits { open_files: Some(50), ..ResourceLimits::default() };
    let request = SandboxRequest { tcp: TcpPolicy::Denied, ..SandboxRequest::default() };
    let outer = NewTask::shell("echo up; exec sleep 60").cwd(&work_dirs.work);
    let outer = kitchen.session.spawn(outer.sandbox(request).resources(resources)).await.unwrap();
    until_output(&outer, "up").await;
    let row = outer.get().await.unwrap();
    let id = brigade_runtime::TaskId { session: kitchen.session.id(), no: outer.no() };
    let inside = kitchen.runtime.task_session(id, row.attempt).await.unwrap();
    // The process requests the whole other directory, and gets none of it.
    let asked =
        NewTask::shell("exec 2>&1; ulimit -n; cat file; echo x > new").cwd(&work_dirs.outside);
    let inner = inside.spawn(asked.sandbox(SandboxRequest::default())).await.unwrap();
    let kept = inner.get().await.unwrap();
    let sandbox = kept.spec.work.sandbox().unwrap();
    assert_eq!(sandbox.layers.len(), 2);
    assert_eq!(sandbox.layers[0].tcp, TcpPolicy::Denied);
    let unasked = inside.spawn(NewTask::shell("cat file").cwd(&work_dirs.outside)).await.unwrap();
    let operator = kitchen.runtime.operator_session(kitchen.session.id()).await.unwrap();
    for (task, limit) in [(&inner, "50\n"), (&unasked, "")] {
        let mut run_results = operator.wait_all([task.no()]).await.unwrap();
        let outcome = Outcome::clone(&run_results.pop().unwrap().outcome);
        if outcome.to_string().contains("cannot be entered") {
            // The directory is hidden, and nothing is run.
            continue;
        }
        let text = report(&outcome).tail;
        assert!(text.starts_with(limit) && !text.contains("secret"), "{text}");
        assert!(is_kept_out(&text), "{text}");
    }
    assert!(!work_dirs.outside.join("new").exists());
    outer.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_caller_cannot_pass_references() {
    if !can_sandbox() {
        return;
    }
    let kitchen = kitchen().await;
    let work_dirs = work_dirs();
    let outer = sandboxed(&work_dirs, "echo up; exec sleep 60");
    let outer = kitchen.session.spawn(outer).await.unwrap();
    until_output(&outer, "up").await;
    let row = outer.get().await.unwrap();
    let id = brigade_runtime::TaskId { session: kitchen.session.id(), no: outer.no() };
    let inside = kitchen.runtime.task_session(id, row.attempt).await.unwrap();
    let file = work_dirs.outside.join("file").to_str().unwrap().into();
    for reference in [EnvValue::FromFile(file), EnvValue::FromEnv("PATH".into())] {
        let asked = NewTask::shell("echo $X").cwd(&work_dirs.work).env("X", reference);
        let refused = inside.spawn(asked).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Forbidden, "{}", refused.message);
        assert!(refused.message.starts_with("X refers to"), "{}", refused.message);
    }
    let plain = NewTask::shell("true").env("X", EnvValue::Text("plain".into()));
    inside.spawn(plain.cwd(&work_dirs.work)).await.unwrap();
    outer.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_runtime_types_on_a_terminal_too() {
    let first = kitchen().await;
    let script = "stty -echo; tty > /dev/null && stty size; while read line; do echo got $line; done; echo over";
    let size = TerminalSize { rows: 31, columns: 99 };
    let task = first.session.spawn(NewTask::shell(script).terminal(size)).await.unwrap();
    until_output(&task, "31 99").await;
    task.send("one").await.unwrap();
    until_output(&task, "got one").await;
    let no = task.no();
    drop(task);
    let next = first.reopened().await;
    next.session.send(no, "two").await.unwrap();
    next.session.close_input(no).await.unwrap();
    let mut run_results = next.session.wait_all([no]).await.unwrap();
    let outcome = Outcome::clone(&run_results.pop().unwrap().outcome);
    assert_eq!(report(&outcome).tail, "31 99\r\ngot one\r\ngot two\r\nover\r\n");
    assert_eq!(report(&outcome).exit_code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_a_usable_term_gets_a_default() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo \"[$TERM]\"").terminal(TerminalSize::default());
    let dumb = task.clone().env("TERM", EnvValue::Text("dumb".into()));
    assert_eq!(tail(&kitchen, dumb).await, "[xterm-256color]\r\n");
    let own = task.env("TERM", EnvValue::Text("vt100".into()));
    assert_eq!(tail(&kitchen, own).await, "[vt100]\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_on_the_terminal_of_a_killed_shim_are_ended() {
    let kitchen = kitchen().await;
    // Neither the mark in the environment nor the hang-up of the terminal ends this process.
    let script = "trap '' HUP; exec env -i /bin/sh -c 'trap \"\" HUP; echo up; while :; do sleep 0.05; done'";
    let task = NewTask::shell(script).terminal(TerminalSize::default());
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "up").await;
    let record = record(&kitchen.execution_dir());
    let command = record.command.unwrap().pid;
    let shim = rustix::process::Pid::from_raw(record.shim.pid.cast_signed()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    lost(&kitchen.task(&task).await);
    until("its end", || !Path::new("/proc").join(command.to_string()).exists()).await;
}
