//! Graceful and forced stops of a process and its descendants.

mod shim_support;

use std::fs;
use std::time::{Duration, Instant};
#[cfg(target_os = "linux")]
use std::{
    fs::Permissions,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
};

use brigade_process::shim::record::{ProcessExit, ShimPhase, ShimStopPhase};
use shim_support::*;

/// The script with which each process of a tree writes its pid to `$D/pids`.
const ADD_PID: &str = "echo $$ >> $D/pids;";

#[test]
fn a_graceful_stop_lets_the_process_clean_up() {
    // A shell that has just forked still has its handler, and the child would take the signal.
    let child = "sh -c 'echo > $D/up; exec sleep 1000'";
    let mut shim = script(&format!("trap 'echo bye; exit 5' TERM; {child} & wait"));
    shim.wait_for_file("up");
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Code(5)));
    assert_eq!(record.stop_phase, ShimStopPhase::Graceful);
    assert_eq!(shim.text(0), "bye\n");
}

#[test]
fn a_process_that_ignores_term_is_killed_after_the_grace_period() {
    let args = TestArgs { grace_ms: 300, ..TestArgs::default() };
    let mut shim = args.script(&format!(
        "trap '' TERM; {ADD_PID} sh -c '{ADD_PID} sleep 1000; :' & sh -c '{ADD_PID} sleep 1000; :' & wait"
    ));
    let pids = shim.pids(3);
    let start = Instant::now();
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(record.exit, Some(ProcessExit::Signal(9)));
    assert_eq!(record.stop_phase, ShimStopPhase::Forced);
    assert_eq!(record.survivors_total, 0);
    assert_ended(&pids);
}

#[test]
fn a_grace_period_in_the_directory_replaces_the_default() {
    let args = TestArgs { grace_ms: 3_600_000, ..TestArgs::default() };
    let mut shim = args.script(&format!("trap '' TERM; {ADD_PID} sleep 1000"));
    shim.pids(1);
    fs::write(shim.path("grace"), "150\n").unwrap();
    shim.signal(Signal::TERM);
    assert_eq!(shim.done().stop_phase, ShimStopPhase::Forced);
}

#[test]
fn a_repeated_stop_can_only_shorten_the_grace_period() {
    let args = TestArgs { grace_ms: 600, ..TestArgs::default() };
    let mut shim = args.script(&format!("trap '' TERM; {ADD_PID} sleep 1000"));
    shim.pids(1);
    let start = Instant::now();
    shim.signal(Signal::TERM);
    shim.wait_until(|record| record.stop_phase == ShimStopPhase::Graceful);
    fs::write(shim.path("grace"), "3600000").unwrap();
    shim.signal(Signal::TERM);
    shim.done();
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_forced_stop_sends_no_term() {
    let mut shim = script(&format!("trap 'echo asked' TERM; {ADD_PID} while :; do sleep 1; done"));
    let pids = shim.pids(1);
    shim.signal(Signal::USR1);
    let record = shim.done();
    assert_eq!(
        (record.exit, record.stop_phase),
        (Some(ProcessExit::Signal(9)), ShimStopPhase::Forced)
    );
    assert_eq!(shim.text(0), "");
    assert_ended(&pids);
}

#[test]
fn a_stopped_process_is_continued_to_get_term() {
    let mut shim = script(&format!("{ADD_PID} kill -STOP $$; sleep 1000"));
    shim.pids(1);
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert_eq!(
        (record.exit, record.stop_phase),
        (Some(ProcessExit::Signal(15)), ShimStopPhase::Graceful)
    );
}

#[test]
fn much_output_does_not_delay_a_stop() {
    let mut shim = TestArgs { cap: 4096, ..TestArgs::default() }.script("yes & yes >&2");
    shim.wait_until(|record| record.produced_bytes.iter().all(|bytes| *bytes > 1 << 20));
    let start = Instant::now();
    shim.signal(Signal::TERM);
    shim.done();
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn remaining_descendants_are_ended_after_the_exit_is_recorded() {
    let args = TestArgs { grace_ms: 700, ..TestArgs::default() };
    let mut shim = args.script(&format!(
        "sh -c 'trap \"\" TERM; {ADD_PID} while :; do sleep 0.1; done' & \
         while [ ! -e $D/pids ]; do sleep 0.01; done; exit 4"
    ));
    let pids = shim.pids(1);
    let record = shim.wait_until(|record| record.phase == ShimPhase::Exited);
    assert_eq!(record.exit, Some(ProcessExit::Code(4)));
    assert!(is_alive(pids[0]));
    assert_eq!(shim.done().stop_phase, ShimStopPhase::None);
    assert_ended(&pids);
}

#[test]
fn a_stop_at_any_time_is_not_lost() {
    for round in 0..100_u64 {
        let mut shim = TestArgs::default().run(&["sleep", "1000"]);
        while shim.record().is_none() {}
        std::thread::sleep(Duration::from_micros(round * 10));
        shim.signal(Signal::TERM);
        assert_eq!(shim.done().exit, Some(ProcessExit::Signal(15)), "round {round}");
    }
}

#[test]
fn a_shim_without_its_directory_still_ends_the_tree() {
    let text = format!("{ADD_PID} while :; do echo line; sleep 0.01; done");
    let mut shim = TestArgs { input: "open", ..TestArgs::default() }.script(&text);
    let pids = shim.pids(1);
    shim.wait_until(|record| record.produced_bytes[0] > 0);
    fs::remove_dir_all(shim.directory.path()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_alive(pids[0]));
    shim.signal(Signal::TERM);
    assert!(shim.exit().success());
    assert_ended(&pids);
}

/// A runtime that cannot hold a shim ends it and waits for its exit.
#[test]
fn a_shim_ended_before_its_start_gate_opens_executes_nothing() {
    for signal in [Signal::USR1, Signal::TERM] {
        let directory = tempfile::tempdir().unwrap();
        let words = ["sh", "-c", "echo > $D/ran"];
        let mut command = TestArgs::default().command(directory.path(), &words);
        let child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut shim = Shim { directory, child };
        // A signal before the shim catches signals ends it as well. The later one is of interest.
        std::thread::sleep(Duration::from_millis(50));
        shim.signal(signal);
        let gate = shim.child.stdin.take();
        shim.exit();
        drop(gate);
        assert!(shim.record().is_none() && !shim.path("ran").exists(), "{signal:?}");
    }
}

/// Without a runtime, only the shim can enforce the deadline.
#[test]
fn a_shim_enforces_the_deadline_of_its_process() {
    let args = TestArgs { timing: "deadline=200", grace_ms: 100, ..TestArgs::default() };
    let start = Instant::now();
    let mut shim = args.script(&format!("trap '' TERM; {ADD_PID} while :; do sleep 0.1; done"));
    let pids = shim.pids(1);
    let record = shim.done();
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!((record.overdue_after_ms, record.stop_phase), (200, ShimStopPhase::Forced));
    assert_ended(&pids);
    let mut shim = TestArgs { timing: "deadline=60000", ..TestArgs::default() }.script("exit 3");
    let record = shim.done();
    assert_eq!((record.overdue_after_ms, record.exit), (0, Some(ProcessExit::Code(3))));
}

/// Nobody can find such a shim, so it must act without an order.
#[test]
fn a_shim_whose_directory_is_removed_ends_the_tree() {
    let args = TestArgs { timing: "look=20", grace_ms: 200, ..TestArgs::default() };
    let stubborn = format!("sh -c 'trap \"\" TERM; {ADD_PID} while :; do sleep 0.1; done' &");
    let mut shim = args.script(&format!("{stubborn} {ADD_PID} wait"));
    let pids = shim.pids(2);
    let removed = Instant::now();
    fs::remove_dir_all(shim.directory.path()).unwrap();
    assert!(shim.exit().success());
    assert!(removed.elapsed() >= Duration::from_millis(200), "it had its grace period");
    assert_ended(&pids);
}

#[test]
fn a_shim_that_finds_its_directory_continues() {
    let mut shim = TestArgs { timing: "look=1", ..TestArgs::default() }.script("sleep 0.3; exit 3");
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(3)));
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;

    #[test]
    fn a_daemon_does_not_escape() {
        if !is_full_linux() {
            return;
        }
        let daemon =
            format!("setsid sh -c '({ADD_PID} exec sleep 1000) & {ADD_PID} exec sleep 1000' &");
        let wait_for_daemon = "while [ $(wc -l < $D/pids) -lt 3 ]; do sleep 0.01; done";
        for (then, signal) in [(wait_for_daemon, None), ("sleep 1000", Some(Signal::TERM))] {
            let mut shim = script(&format!("({daemon}); {ADD_PID} {then}"));
            let pids = shim.pids(3);
            if let Some(signal) = signal {
                shim.signal(signal);
            }
            shim.done();
            assert_ended(&pids);
        }
    }

    #[test]
    fn a_forced_stop_reaches_stubborn_daemons_at_any_depth() {
        if !is_full_linux() {
            return;
        }
        let deep = format!(
            "trap '' TERM; {ADD_PID} setsid sh -c '{ADD_PID} setsid sh -c \"{ADD_PID_INNER} sleep 1000; :\"; :' & wait",
            ADD_PID_INNER = ADD_PID.replace('$', "\\$"),
        );
        let mut shim = script(&deep);
        let pids = shim.pids(3);
        shim.signal(Signal::USR1);
        assert_eq!(shim.done().survivors_total, 0);
        assert_ended(&pids);
    }

    #[test]
    fn many_trees_are_ended_at_once() {
        let text = format!("trap '' TERM; {ADD_PID} sleep 1000 & sleep 1000 & wait");
        let mut shims: Vec<Shim> = (0..40).map(|_| script(&text)).collect();
        let pids: Vec<i32> = shims.iter().flat_map(|shim| shim.pids(1)).collect();
        for shim in &shims {
            shim.signal(Signal::USR1);
        }
        for shim in &mut shims {
            assert_eq!(shim.done().survivors_total, 0);
        }
        assert_ended(&pids);
    }

    /// Needs root to create a set-uid program that runs under another user's shim.
    #[test]
    fn survivors_are_named() {
        const NOBODY: u32 = 65534;
        let become_root = Path::new("/usr/bin/setpriv");
        if !is_full_linux() || !rustix::process::geteuid().is_root() || !become_root.exists() {
            eprintln!("not tested: needs root and setpriv");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let path = |name: &str| directory.path().join(name);
        mode(directory.path(), 0o777).unwrap();
        fs::copy(companion().command().program, path("shim")).unwrap();
        mode(&path("shim"), 0o755).unwrap();
        fs::copy(become_root, path("become-root")).unwrap();
        mode(&path("become-root"), 0o4755).unwrap();
        let stubborn = "echo > $D/up; sleep 1000 & exec $D/become-root --reuid=0 sleep 1000";
        let usual = TestArgs::default().command(directory.path(), &["sh", "-c", stubborn]);
        let mut command = std::process::Command::new(path("shim"));
        command.args(usual.get_args()).env("D", directory.path()).uid(NOBODY);
        let child = command.spawn().unwrap();
        let mut shim = Shim { directory, child };
        shim.wait_for_file("up");
        std::thread::sleep(Duration::from_millis(300));
        shim.signal(Signal::USR1);
        let record = shim.done();
        let command = record.command.unwrap();
        let pid = rustix::process::Pid::from_raw(command.pid as i32).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        assert_eq!((record.exit, record.survivors_total), (None, 1), "{record:?}");
        assert_eq!((record.survivors[0].id, &*record.survivors[0].name), (command, "sleep"));
    }

    /// Needs the right to mount a file system. Other users skip it.
    #[test]
    fn on_a_full_disk_the_process_continues() {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(directory.path());
        if !mount.output().is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("not tested: mount is not permitted");
            return;
        }
        let mount_point = directory.path().to_owned();
        let words = ["sh", "-c", "head -c 1000000 /dev/zero; echo e >&2; exit 6"];
        let mut shim = TestArgs::default().run_in(directory, &words);
        let record = shim.done();
        let unmounted = std::process::Command::new("umount").arg(&mount_point).status().unwrap();
        assert!(unmounted.success());
        assert_eq!(record.exit, Some(ProcessExit::Code(6)));
        assert_eq!(record.produced_bytes, [1_000_000, 2]);
        assert!(
            record.unwritten_bytes[0] > 800_000 && record.unwritten_bytes[0] < 1_000_000,
            "{record:?}"
        );
    }
}
