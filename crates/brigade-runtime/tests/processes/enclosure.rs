//! Commands on a terminal, with limits, and confined.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest, TcpPolicy, TerminalSize};
use brigade_model::work::EnvValue;
use brigade_process::LandlockSupport;
use brigade_runtime::{NewTask, ProcessOptions, Runtime};
use brigade_store::MemoryStore;
use tempfile::TempDir;

use crate::support::*;

/// A place to work in, with a file beside it.
struct Place {
    _folder: TempDir,
    work: PathBuf,
    outside: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (work, outside) = (root.join("work"), root.join("outside"));
    fs::create_dir(&work).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret\n").unwrap();
    Place { _folder: folder, work, outside }
}

fn can_confine() -> bool {
    let can = LandlockSupport::detect().check().is_ok();
    if !can {
        eprintln!(
            "not tested: this kernel cannot confine commands ({:?})",
            LandlockSupport::detect()
        );
    }
    can
}

/// What Landlock refuses may also be hidden, where namespaces can be made.
fn is_kept_out(text: &str) -> bool {
    text.contains("ermission denied") || text.contains("No such file")
}

fn confined(place: &Place, script: &str) -> NewTask {
    NewTask::shell(script).cwd(&place.work).sandbox(SandboxRequest::default())
}

async fn tail(kitchen: &Kitchen, task: NewTask) -> String {
    let task = kitchen.session.spawn(task).await.unwrap();
    report(&kitchen.task(&task).await).tail
}

async fn problem(kitchen: &Kitchen, task: NewTask) -> String {
    let task = kitchen.session.spawn(task).await.unwrap();
    match kitchen.task(&task).await {
        Outcome::Failed(failed) => match failed.failure {
            Failure::Error(text) => text.to_string(),
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confined_command_has_its_directory_and_a_scratch_folder() {
    if !can_confine() {
        return;
    }
    let (kitchen, place) = (kitchen().await, place());
    let script = "exec 2>&1; echo in > made; echo $TMPDIR; echo t > $TMPDIR/t; cat $TMPDIR/t; cat ../outside/file";
    let text = tail(&kitchen, confined(&place, script)).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[1], text.contains("secret")), ("t", false), "{text}");
    assert!(is_kept_out(&text), "{text}");
    assert_eq!(fs::read_to_string(place.work.join("made")).unwrap(), "in\n");
    assert!(!Path::new(lines[0]).exists(), "the scratch folder goes with the command");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_kernel_lacks_it_nothing_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let place = place();
    for (landlock, expect) in [
        (LandlockSupport::Missing, "this kernel has no Landlock: Linux 6.2 or newer is needed"),
        (LandlockSupport::Disabled, "not switched on in this kernel"),
        (LandlockSupport::Version(1), "Landlock (version 1) is too old"),
    ] {
        let options = ProcessOptions::new(folder.path()).landlock(landlock);
        let store = Arc::new(MemoryStore::new());
        let builder = Runtime::builder().shared_store(store.clone()).processes(options);
        let runtime = builder.start().await.unwrap();
        let session = runtime.session("kitchen").await.unwrap();
        let task = session.spawn(confined(&place, "echo ran > ran")).await.unwrap();
        let outcome = task.wait().await.unwrap().outcome.to_string();
        assert!(outcome.contains(expect), "{outcome}");
        let free = session.spawn(NewTask::shell("exit 3")).await.unwrap();
        assert_eq!(free.wait().await.unwrap().outcome.to_string(), "failed (exit code 3)");
        runtime.shutdown().await.unwrap();
    }
    assert!(!place.work.join("ran").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_folder_cannot_be_what_a_command_is_confined_to() {
    if !can_confine() {
        return;
    }
    let (kitchen, place) = (kitchen().await, place());
    let state = kitchen.folder.path();
    let read = vec![state.to_str().unwrap().to_owned()];
    for task in [
        NewTask::shell("true").cwd(state.parent().unwrap()).sandbox(SandboxRequest::default()),
        NewTask::shell("true").cwd(state.join("processes")).sandbox(SandboxRequest::default()),
        confined(&place, "true").sandbox(SandboxRequest { read, ..SandboxRequest::default() }),
    ] {
        let told = problem(&kitchen, task).await;
        assert!(told.contains("Brigade's own state folder"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_became_a_link_is_not_followed() {
    if !can_confine() {
        return;
    }
    let (kitchen, place) = (kitchen().await, place());
    let inner = place.work.join("inner");
    fs::create_dir(&inner).unwrap();
    let write = vec!["inner".to_owned()];
    // Settled when it is asked for; queued behind another, until the path is another.
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    let session = kitchen.runtime.session_with("narrow", limits).await.unwrap();
    let first = NewTask::shell("while [ ! -e go ]; do sleep 0.02; done").cwd(&place.work);
    session.spawn(first).await.unwrap();
    let task = confined(&place, "cat inner/file")
        .sandbox(SandboxRequest { write, ..SandboxRequest::default() });
    let task = session.spawn(task).await.unwrap();
    fs::remove_dir(&inner).unwrap();
    symlink(&place.outside, &inner).unwrap();
    fs::write(place.work.join("go"), "").unwrap();
    let outcome = task.wait().await.unwrap().outcome.to_string();
    assert!(outcome.contains("has become a symbolic link"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_asked_for_is_refused_at_once() {
    let (kitchen, place) = (kitchen().await, place());
    let nowhere = SandboxRequest { write: vec!["nowhere".into()], ..SandboxRequest::default() };
    let low = ResourceLimits { memory: Some(100), ..ResourceLimits::default() };
    for (task, expect) in [
        (NewTask::shell("true").sandbox(SandboxRequest::default()), "needs a working directory"),
        (confined(&place, "true").sandbox(nowhere), "nowhere: No such file"),
        (NewTask::shell("true").resources(low), "memory is too low"),
        (NewTask::job("bake", ()).sandbox(SandboxRequest::default()), "only a command or an agent"),
    ] {
        let refusal = kitchen.session.spawn(task).await.unwrap_err();
        assert!(refusal.message.contains(expect), "{}", refusal.message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endings_by_a_limit_say_so() {
    let kitchen = kitchen().await;
    let resources = ResourceLimits { cpu_secs: Some(1), ..ResourceLimits::default() };
    let task = NewTask::shell("while :; do :; done").resources(resources);
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await;
    assert_eq!(outcome.to_string(), "failed (signal 24: its processor time is used up)");
    assert_eq!(report(&outcome).signal, Some(24));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_acts_as_a_confined_task_starts_nothing_less_confined() {
    if !can_confine() {
        return;
    }
    let (kitchen, place) = (kitchen().await, place());
    let resources = ResourceLimits { open_files: Some(50), ..ResourceLimits::default() };
    let confine = SandboxRequest { tcp: TcpPolicy::Denied, ..SandboxRequest::default() };
    let outer = NewTask::shell("echo up; exec sleep 60").cwd(&place.work);
    let outer = kitchen.session.spawn(outer.sandbox(confine).resources(resources)).await.unwrap();
    said(&outer, "up").await;
    let row = outer.get().await.unwrap();
    let id = brigade_runtime::TaskId { session: kitchen.session.id(), no: outer.no() };
    let inside = kitchen.runtime.task_session(id, row.attempt).await.unwrap();
    // It asks for the whole of the other place, and gets none of it.
    let asked = NewTask::shell("exec 2>&1; ulimit -n; cat file; echo x > new").cwd(&place.outside);
    let inner = inside.spawn(asked.sandbox(SandboxRequest::default())).await.unwrap();
    let kept = inner.get().await.unwrap();
    let enclosure = kept.spec.work.sandbox().unwrap();
    assert_eq!(enclosure.layers.len(), 2);
    assert_eq!(enclosure.layers[0].tcp, TcpPolicy::Denied);
    let unasked = inside.spawn(NewTask::shell("cat file").cwd(&place.outside)).await.unwrap();
    let operator = kitchen.runtime.operator_session(kitchen.session.id()).await.unwrap();
    for (task, limit) in [(&inner, "50\n"), (&unasked, "")] {
        let mut endings = operator.wait_all([task.no().into()]).await.unwrap();
        let outcome = Outcome::clone(&endings.pop().unwrap().outcome);
        if outcome.to_string().contains("cannot be entered") {
            // It is hidden, and nothing is run.
            continue;
        }
        let text = report(&outcome).tail;
        assert!(text.starts_with(limit) && !text.contains("secret"), "{text}");
        assert!(is_kept_out(&text), "{text}");
    }
    assert!(!place.outside.join("new").exists());
    outer.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_acts_as_a_confined_task_has_nothing_read_to_it() {
    if !can_confine() {
        return;
    }
    let (kitchen, place) = (kitchen().await, place());
    let outer = confined(&place, "echo up; exec sleep 60");
    let outer = kitchen.session.spawn(outer).await.unwrap();
    said(&outer, "up").await;
    let row = outer.get().await.unwrap();
    let id = brigade_runtime::TaskId { session: kitchen.session.id(), no: outer.no() };
    let inside = kitchen.runtime.task_session(id, row.attempt).await.unwrap();
    let file = place.outside.join("file").to_str().unwrap().into();
    for reference in [EnvValue::FromFile(file), EnvValue::FromEnv("PATH".into())] {
        let asked = NewTask::shell("echo $X").cwd(&place.work).env("X", reference);
        let refused = inside.spawn(asked).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Forbidden, "{}", refused.message);
        assert!(refused.message.starts_with("X refers to"), "{}", refused.message);
    }
    let plain = NewTask::shell("true").env("X", EnvValue::Text("plain".into()));
    inside.spawn(plain.cwd(&place.work)).await.unwrap();
    outer.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_is_typed_on_by_the_next_runtime_too() {
    let first = kitchen().await;
    let script = "stty -echo; tty > /dev/null && stty size; while read line; do echo got $line; done; echo over";
    let size = TerminalSize { rows: 31, columns: 99 };
    let task = first.session.spawn(NewTask::shell(script).terminal(size)).await.unwrap();
    said(&task, "31 99").await;
    task.send("one").await.unwrap();
    said(&task, "got one").await;
    let no = task.no();
    drop(task);
    let next = first.reopened().await;
    next.session.send(no, "two").await.unwrap();
    next.session.close_input(no).await.unwrap();
    let mut endings = next.session.wait_all([no.into()]).await.unwrap();
    let outcome = Outcome::clone(&endings.pop().unwrap().outcome);
    assert_eq!(report(&outcome).tail, "31 99\r\ngot one\r\ngot two\r\nover\r\n");
    assert_eq!(report(&outcome).exit_code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_no_terminal_to_speak_of_gets_one_that_is_known() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("echo \"[$TERM]\"").terminal(TerminalSize::default());
    let dumb = task.clone().env("TERM", EnvValue::Text("dumb".into()));
    assert_eq!(tail(&kitchen, dumb).await, "[xterm-256color]\r\n");
    let own = task.env("TERM", EnvValue::Text("vt100".into()));
    assert_eq!(tail(&kitchen, own).await, "[vt100]\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_shim_leaves_on_its_terminal_is_found() {
    let kitchen = kitchen().await;
    // Neither the mark in the environment nor the hanging up of the terminal ends it.
    let script = "trap '' HUP; exec env -i /bin/sh -c 'trap \"\" HUP; echo up; while :; do sleep 0.05; done'";
    let task = NewTask::shell(script).terminal(TerminalSize::default());
    let task = kitchen.session.spawn(task).await.unwrap();
    said(&task, "up").await;
    let record = record(&kitchen.place());
    let command = record.command.unwrap().pid;
    let shim = rustix::process::Pid::from_raw(record.shim.pid.cast_signed()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    lost(&kitchen.task(&task).await);
    until("its end", || !Path::new("/proc").join(command.to_string()).exists()).await;
}
