//! An unknown outcome is `lost`, with its reason, and nothing keeps running.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use brigade_model::ids::TaskNo;
use brigade_model::outcome::EndConfirmation;
use brigade_model::task::StoredTask;
use brigade_runtime::NewTask;

use crate::support::*;

/// Runs a process with a child in another session, and restarts the runtime.
async fn interrupted(meanwhile: impl FnOnce(&Path)) -> (Kitchen, String, EndConfirmation) {
    let first = kitchen().await;
    let text = "setsid sleep 61 & echo up; sleep 62";
    let task = first.session.spawn(NewTask::shell(text)).await.unwrap();
    until_output(&task, "up").await;
    until_started(&first).await;
    drop(task);
    let next = first.reopened_after(meanwhile).await;
    let outcome = next.session.wait_all([TaskNo::FIRST]).await.unwrap().pop().unwrap();
    let (evidence, verified) = lost(&outcome.outcome);
    (next, evidence, verified)
}

/// Waits until the start of the process is stored.
async fn until_started(kitchen: &Kitchen) {
    loop {
        let StoredTask { row, .. } = kitchen.session.list().pop().unwrap();
        if row.extras.as_ref().is_some_and(|extra| extra.state.is_some()) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn damage(dir: &Path) {
    let claim = only_execution_dir(dir).join("claim");
    fs::File::options().write(true).open(claim).unwrap().write_all_at(b"!", 200).unwrap();
}

fn halve(dir: &Path) {
    let claim = only_execution_dir(dir).join("claim");
    fs::File::options().write(true).open(claim).unwrap().set_len(100).unwrap();
}

/// Changes the record as if the machine had been restarted, except for the processes.
fn another_boot(dir: &Path) {
    let execution_dir = only_execution_dir(dir);
    let mut record = record(&execution_dir);
    record.boot_id = brigade_process::BootId([1; 16]);
    let claim = fs::File::options().write(true).open(execution_dir.join("claim")).unwrap();
    record.write_to(&claim).unwrap();
}

fn kill(pid: u32) {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_or_damaged_directory_means_lost_and_orphans_are_ended() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    type Accident = fn(&Path);
    let table: [(Accident, &str); 4] = [
        (|dir| fs::remove_dir_all(only_execution_dir(dir)).unwrap(), "its directory is gone"),
        (|dir| fs::remove_dir_all(dir.join("processes")).unwrap(), "its directory is gone"),
        (damage, "the record is damaged"),
        (halve, "the record is truncated"),
    ];
    for (meanwhile, expect) in table {
        let (next, evidence, verified) = interrupted(meanwhile).await;
        assert_eq!((evidence.as_str(), verified), (expect, EndConfirmation::Confirmed));
        assert_eq!(processes_with(&task_mark(&next)), Vec::<u32>::new(), "{expect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_machine_means_lost() {
    let (_, evidence, _) = interrupted(another_boot).await;
    assert_eq!(evidence, "the machine has been restarted since");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_killed_without_a_runtime_means_lost_and_its_orphans_are_ended() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    let shot = |dir: &Path| kill(record(&only_execution_dir(dir)).shim.pid);
    let (next, evidence, verified) = interrupted(shot).await;
    assert_eq!(evidence, "its shim is gone and recorded no exit status");
    assert_eq!(verified, EndConfirmation::Confirmed);
    assert_eq!(processes_with(&task_mark(&next)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_killed_under_a_runtime_means_lost_at_once() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    let kitchen = kitchen().await;
    let text = "setsid sleep 61 & (trap '' TERM; sleep 62) & echo up; sleep 63";
    let task = kitchen.session.spawn(NewTask::shell(text)).await.unwrap();
    until_output(&task, "up").await;
    let shim = record(&kitchen.execution_dir()).shim.pid;
    kill(shim);
    let (evidence, verified) = lost(&kitchen.task(&task).await);
    assert_eq!(evidence, "its shim is gone and recorded no exit status");
    assert_eq!(verified, EndConfirmation::Confirmed);
    assert_eq!(processes_with(&task_mark(&kitchen)), Vec::<u32>::new());
    assert_eq!(own_zombies(shim), 0, "inherited orphans are reaped");
}

/// Counts the zombie children of this process that were in this session.
fn own_zombies(session: u32) -> usize {
    let me = std::process::id();
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let zombies = stats.filter(|stat| stat.contains(&format!(") Z {me} ")));
    zombies.filter(|stat| stat.contains(&format!(" {session} "))).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_other_code_in_this_process_are_not_reaped() {
    let kitchen = kitchen().await;
    let mut own =
        tokio::process::Command::new("sh").args(["-c", "sleep 0.3; exit 11"]).spawn().unwrap();
    for _ in 0..20 {
        let task = kitchen.session.spawn(NewTask::shell("sleep 61")).await.unwrap();
        let execution_dir =
            kitchen.dir.path().join("processes").join(kitchen.session.id().to_string());
        let execution_dir = execution_dir.join(format!("{}.1.1", task.no()));
        until("a shim", || execution_dir.join("claim").exists()).await;
        kill(record(&execution_dir).shim.pid);
        lost(&kitchen.task(&task).await);
    }
    assert_eq!(own.wait().await.unwrap().code(), Some(11));
}
