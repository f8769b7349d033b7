//! Stopping: kind, firm, and with everything that came of the command.

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

/// Each process of these trees writes its pid to `$D/pids`.
const HERE: &str = "echo $$ >> $D/pids;";

#[test]
fn a_kind_stop_lets_the_command_tidy_up() {
    // A shell that has just forked still holds its own handler, and would take the signal with it.
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
fn what_ignores_a_kind_stop_is_killed_after_the_grace() {
    let orders = Orders { grace_ms: 300, ..Orders::default() };
    let mut shim = orders.script(&format!(
        "trap '' TERM; {HERE} sh -c '{HERE} sleep 1000; :' & sh -c '{HERE} sleep 1000; :' & wait"
    ));
    let pids = shim.pids(3);
    let begin = Instant::now();
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert_eq!(record.exit, Some(ProcessExit::Signal(9)));
    assert_eq!(record.stop_phase, ShimStopPhase::Forced);
    assert_eq!(record.survivors_total, 0);
    assert_gone(&pids);
}

#[test]
fn a_grace_in_the_directory_takes_the_place_of_the_first_one() {
    let orders = Orders { grace_ms: 3_600_000, ..Orders::default() };
    let mut shim = orders.script(&format!("trap '' TERM; {HERE} sleep 1000"));
    shim.pids(1);
    fs::write(shim.path("grace"), "150\n").unwrap();
    shim.signal(Signal::TERM);
    assert_eq!(shim.done().stop_phase, ShimStopPhase::Forced);
}

#[test]
fn asking_again_can_only_shorten_the_grace() {
    let orders = Orders { grace_ms: 600, ..Orders::default() };
    let mut shim = orders.script(&format!("trap '' TERM; {HERE} sleep 1000"));
    shim.pids(1);
    let begin = Instant::now();
    shim.signal(Signal::TERM);
    shim.wait_until(|record| record.stop_phase == ShimStopPhase::Graceful);
    fs::write(shim.path("grace"), "3600000").unwrap();
    shim.signal(Signal::TERM);
    shim.done();
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_firm_stop_asks_nobody() {
    let mut shim = script(&format!("trap 'echo asked' TERM; {HERE} while :; do sleep 1; done"));
    let pids = shim.pids(1);
    shim.signal(Signal::USR1);
    let record = shim.done();
    assert_eq!(
        (record.exit, record.stop_phase),
        (Some(ProcessExit::Signal(9)), ShimStopPhase::Forced)
    );
    assert_eq!(shim.text(0), "");
    assert_gone(&pids);
}

#[test]
fn a_stopped_process_is_continued_to_hear_it() {
    let mut shim = script(&format!("{HERE} kill -STOP $$; sleep 1000"));
    shim.pids(1);
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert_eq!(
        (record.exit, record.stop_phase),
        (Some(ProcessExit::Signal(15)), ShimStopPhase::Graceful)
    );
}

#[test]
fn a_chatterer_does_not_delay_a_stop() {
    let mut shim = Orders { cap: 4096, ..Orders::default() }.script("yes & yes >&2");
    shim.wait_until(|record| record.produced_bytes.iter().all(|bytes| *bytes > 1 << 20));
    let begin = Instant::now();
    shim.signal(Signal::TERM);
    shim.done();
    assert!(begin.elapsed() < Duration::from_secs(3));
}

#[test]
fn what_a_command_leaves_behind_is_ended_after_its_ending_is_written() {
    let orders = Orders { grace_ms: 700, ..Orders::default() };
    let mut shim = orders.script(&format!(
        "sh -c 'trap \"\" TERM; {HERE} while :; do sleep 0.1; done' & \
         while [ ! -e $D/pids ]; do sleep 0.01; done; exit 4"
    ));
    let pids = shim.pids(1);
    let record = shim.wait_until(|record| record.phase == ShimPhase::Exited);
    assert_eq!(record.exit, Some(ProcessExit::Code(4)));
    assert!(is_alive(pids[0]));
    assert_eq!(shim.done().stop_phase, ShimStopPhase::None);
    assert_gone(&pids);
}

#[test]
fn a_stop_that_comes_at_any_time_is_not_lost() {
    for round in 0..100_u64 {
        let mut shim = Orders::default().run(&["sleep", "1000"]);
        while shim.record().is_none() {}
        std::thread::sleep(Duration::from_micros(round * 10));
        shim.signal(Signal::TERM);
        assert_eq!(shim.done().exit, Some(ProcessExit::Signal(15)), "round {round}");
    }
}

#[test]
fn without_its_directory_a_shim_still_ends_everything() {
    let text = format!("{HERE} while :; do echo line; sleep 0.01; done");
    let mut shim = Orders { input: "open", ..Orders::default() }.script(&text);
    let pids = shim.pids(1);
    shim.wait_until(|record| record.produced_bytes[0] > 0);
    fs::remove_dir_all(shim.directory.path()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_alive(pids[0]));
    shim.signal(Signal::TERM);
    assert!(shim.exit().success());
    assert_gone(&pids);
}

/// A runtime that cannot hold a shim which it has started ends it, and waits for that.
#[test]
fn a_shim_that_is_told_to_end_before_it_may_begin_executes_nothing() {
    for signal in [Signal::USR1, Signal::TERM] {
        let directory = tempfile::tempdir().unwrap();
        let words = ["sh", "-c", "echo > $D/ran"];
        let mut command = Orders::default().command(directory.path(), &words);
        let child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut shim = Shim { directory, child };
        // Before it catches signals they end it as well: the later one is of interest.
        std::thread::sleep(Duration::from_millis(50));
        shim.signal(signal);
        let gate = shim.child.stdin.take();
        shim.exit();
        drop(gate);
        assert!(shim.record().is_none() && !shim.path("ran").exists(), "{signal:?}");
    }
}

/// Without a runtime nobody else keeps it.
#[test]
fn a_shim_keeps_the_deadline_of_its_command() {
    let orders = Orders { timing: "deadline=200", grace_ms: 100, ..Orders::default() };
    let begin = Instant::now();
    let mut shim = orders.script(&format!("trap '' TERM; {HERE} while :; do sleep 0.1; done"));
    let pids = shim.pids(1);
    let record = shim.done();
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert_eq!((record.overdue_after_ms, record.stop_phase), (200, ShimStopPhase::Forced));
    assert_gone(&pids);
    let mut shim = Orders { timing: "deadline=60000", ..Orders::default() }.script("exit 3");
    let record = shim.done();
    assert_eq!((record.overdue_after_ms, record.exit), (0, Some(ProcessExit::Code(3))));
}

/// Nobody can find such a shim any more, so it must not wait to be told.
#[test]
fn a_shim_whose_directory_is_removed_ends_everything_by_itself() {
    let orders = Orders { timing: "look=20", grace_ms: 200, ..Orders::default() };
    let stubborn = format!("sh -c 'trap \"\" TERM; {HERE} while :; do sleep 0.1; done' &");
    let mut shim = orders.script(&format!("{stubborn} {HERE} wait"));
    let pids = shim.pids(2);
    let removed = Instant::now();
    fs::remove_dir_all(shim.directory.path()).unwrap();
    assert!(shim.exit().success());
    assert!(removed.elapsed() >= Duration::from_millis(200), "it had its grace");
    assert_gone(&pids);
}

#[test]
fn a_shim_that_finds_its_directory_goes_on() {
    let mut shim = Orders { timing: "look=1", ..Orders::default() }.script("sleep 0.3; exit 3");
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
        let daemon = format!("setsid sh -c '({HERE} exec sleep 1000) & {HERE} exec sleep 1000' &");
        let leave = "while [ $(wc -l < $D/pids) -lt 3 ]; do sleep 0.01; done";
        for (then, signal) in [(leave, None), ("sleep 1000", Some(Signal::TERM))] {
            let mut shim = script(&format!("({daemon}); {HERE} {then}"));
            let pids = shim.pids(3);
            if let Some(signal) = signal {
                shim.signal(signal);
            }
            shim.done();
            assert_gone(&pids);
        }
    }

    #[test]
    fn a_firm_stop_reaches_stubborn_daemons_at_any_depth() {
        if !is_full_linux() {
            return;
        }
        let deep = format!(
            "trap '' TERM; {HERE} setsid sh -c '{HERE} setsid sh -c \"{HERE_INNER} sleep 1000; :\"; :' & wait",
            HERE_INNER = HERE.replace('$', "\\$"),
        );
        let mut shim = script(&deep);
        let pids = shim.pids(3);
        shim.signal(Signal::USR1);
        assert_eq!(shim.done().survivors_total, 0);
        assert_gone(&pids);
    }

    #[test]
    fn many_trees_are_ended_at_once() {
        let text = format!("trap '' TERM; {HERE} sleep 1000 & sleep 1000 & wait");
        let mut shims: Vec<Shim> = (0..40).map(|_| script(&text)).collect();
        let pids: Vec<i32> = shims.iter().flat_map(|shim| shim.pids(1)).collect();
        for shim in &shims {
            shim.signal(Signal::USR1);
        }
        for shim in &mut shims {
            assert_eq!(shim.done().survivors_total, 0);
        }
        assert_gone(&pids);
    }

    /// Needs root, to make a program that becomes root under a shim that is not.
    #[test]
    fn what_cannot_be_killed_is_named() {
        const NOBODY: u32 = 65534;
        let become_root = Path::new("/usr/bin/setpriv");
        if !is_full_linux() || !rustix::process::geteuid().is_root() || !become_root.exists() {
            eprintln!("not tested: needs root and setpriv");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let place = |name: &str| directory.path().join(name);
        mode(directory.path(), 0o777).unwrap();
        fs::copy(companion().command().0, place("shim")).unwrap();
        mode(&place("shim"), 0o755).unwrap();
        fs::copy(become_root, place("become-root")).unwrap();
        mode(&place("become-root"), 0o4755).unwrap();
        let stubborn = "echo > $D/up; sleep 1000 & exec $D/become-root --reuid=0 sleep 1000";
        let usual = Orders::default().command(directory.path(), &["sh", "-c", stubborn]);
        let mut command = std::process::Command::new(place("shim"));
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

    /// Needs to mount a file system of its own, so it tests nothing for ordinary users.
    #[test]
    fn on_a_full_disk_the_command_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(directory.path());
        if !mount.output().is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("not tested: mount is not permitted");
            return;
        }
        let place = directory.path().to_owned();
        let words = ["sh", "-c", "head -c 1000000 /dev/zero; echo e >&2; exit 6"];
        let mut shim = Orders::default().run_in(directory, &words);
        let record = shim.done();
        let unmounted = std::process::Command::new("umount").arg(&place).status().unwrap();
        assert!(unmounted.success());
        assert_eq!(record.exit, Some(ProcessExit::Code(6)));
        assert_eq!(record.produced_bytes, [1_000_000, 2]);
        assert!(
            record.unwritten_bytes[0] > 800_000 && record.unwritten_bytes[0] < 1_000_000,
            "{record:?}"
        );
    }
}
