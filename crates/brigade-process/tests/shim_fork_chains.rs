//! Stops chains of processes that fork and exit over and over.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "forks without executing anything")]

mod shim_support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brigade_process::shim::record::{ProcessExit, ShimStopPhase};
use shim_support::*;

const CHAINS: usize = 20;
/// The limit of forks of all chains. They end by themselves then, and never fill the process table.
const FORKS_MAX: u32 = 8_000;
/// The lifetime of each process of a chain.
const PAUSE: Duration = Duration::from_millis(5);
/// The variable that makes a copy of this program run the chains: `apart` lets each process leave
/// its session.
const CHAIN_MODE: &str = "CHAIN_MODE";

/// Starts the chains. Each has one process at a time.
#[test]
#[ignore = "run by other tests, under a shim"]
fn run_chains() {
    let Ok(mode) = std::env::var(CHAIN_MODE) else { return };
    let dir = std::env::var("D").expect("a directory");
    let forks = shared_count(&dir);
    // SAFETY: takes numbers only. The chains ignore TERM.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    for _ in 0..CHAINS {
        // SAFETY: the child makes system calls only, and exits without returning.
        if unsafe { libc::fork() } == 0 {
            chain(&mode, forks);
        }
    }
    std::fs::write(dir + "/up", "\n").expect("the file is written");
    std::thread::sleep(Duration::from_secs(20));
}

/// Creates a counter in a file that all processes share and the test reads.
fn shared_count(dir: &str) -> &'static AtomicU32 {
    let path = format!("{dir}/forks");
    std::fs::write(&path, [0; 4]).expect("the file is written");
    let file = File::options().read(true).write(true).open(path).expect("the file");
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the file has this length, the mapping is never removed, and all access is atomic.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4, access, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

fn chain(mode: &str, forks: &AtomicU32) -> ! {
    // SAFETY: all take numbers only. The parent exits at once, so that a chain has one process.
    unsafe {
        while forks.fetch_add(1, Ordering::Relaxed) < FORKS_MAX {
            if mode == "apart" {
                libc::setsid();
            }
            libc::usleep(PAUSE.as_micros() as u32);
            if libc::fork() != 0 {
                break;
            }
        }
        libc::_exit(0)
    }
}

fn assert_stopped(mode: &str) {
    let program = std::env::current_exe().expect("this program");
    let script = format!(
        "export {CHAIN_MODE}={mode}; exec {} --ignored --exact run_chains -q",
        program.display()
    );
    let mut shim = TestArgs { grace_ms: 50, ..TestArgs::default() }.script(&script);
    shim.wait_for_file("up");
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert_eq!(record.survivors_total, 0, "{:?}", record.survivors);
    assert_eq!(
        (record.exit, record.stop_phase),
        (Some(ProcessExit::Signal(9)), ShimStopPhase::Forced)
    );
    let forks = std::fs::read(shim.path("forks")).expect("the counter");
    let forks = forks.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    assert!(forks.is_some_and(|forks| forks < FORKS_MAX), "they ended by themselves: {forks:?}");
}

#[test]
fn fork_chains_do_not_outlive_a_stop() {
    assert_stopped("together");
}

#[test]
fn fork_chains_that_leave_their_session_do_not_outlive_a_stop() {
    assert_stopped("apart");
}
