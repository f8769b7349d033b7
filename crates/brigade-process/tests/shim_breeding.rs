//! Stopping processes that start another and end, over and over.
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
/// Of all chains together. They end by themselves then, whatever becomes of the test, and never fill the
/// table of processes.
const FORKS_MAX: u32 = 8_000;
/// How long each process of a chain lives.
const PAUSE: Duration = Duration::from_millis(5);
/// In the environment of the copy of this program that breeds: whether each leaves the session.
const BREED: &str = "BREED";

/// Starts the chains. Each has one process at a time.
#[test]
#[ignore = "is run by other tests, below a shim"]
fn breed() {
    let Ok(how) = std::env::var(BREED) else { return };
    let folder = std::env::var("D").expect("a directory");
    let forks = shared_count(&folder);
    // SAFETY: takes numbers only. What is asked kindly does not end.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    for _ in 0..CHAINS {
        // SAFETY: what follows in the child makes system calls only, and ends without returning.
        if unsafe { libc::fork() } == 0 {
            chain(&how, forks);
        }
    }
    std::fs::write(folder + "/up", "\n").expect("a file");
    std::thread::sleep(Duration::from_secs(20));
}

/// A number in a file, which all processes count in and the test reads.
fn shared_count(folder: &str) -> &'static AtomicU32 {
    let path = format!("{folder}/forks");
    std::fs::write(&path, [0; 4]).expect("a file");
    let file = File::options().read(true).write(true).open(path).expect("the file");
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the file is as long as that, the mapping is never undone, and all count by atomics.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4, access, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

fn chain(how: &str, forks: &AtomicU32) -> ! {
    // SAFETY: all take numbers only. The parent ends at once, so that a chain has one process.
    unsafe {
        while forks.fetch_add(1, Ordering::Relaxed) < FORKS_MAX {
            if how == "apart" {
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

fn assert_stopped(how: &str) {
    let program = std::env::current_exe().expect("this program");
    let script =
        format!("export {BREED}={how}; exec {} --ignored --exact breed -q", program.display());
    let mut shim = Orders { grace_ms: 50, ..Orders::default() }.script(&script);
    shim.wait_for_file("up");
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert_eq!(record.survivors_total, 0, "{:?}", record.survivors);
    assert_eq!(
        (record.exit, record.stop_phase),
        (Some(ProcessExit::Signal(9)), ShimStopPhase::Forced)
    );
    let forks = std::fs::read(shim.path("forks")).expect("their number");
    let forks = forks.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    assert!(forks.is_some_and(|forks| forks < FORKS_MAX), "they ended by themselves: {forks:?}");
}

#[test]
fn breeding_chains_do_not_outlive_a_stop() {
    assert_stopped("together");
}

#[test]
fn breeding_chains_that_leave_their_session_do_not_either() {
    assert_stopped("apart");
}
