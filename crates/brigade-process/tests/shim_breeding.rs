//! Stopping processes that start another and end, over and over.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "forks without executing anything")]

mod shim_support;

use std::time::{Duration, Instant};

use brigade_process::shim::record::{Ending, StopStage};
use shim_support::*;

const CHAINS: usize = 50;
/// They end by themselves, whatever becomes of the test.
const LIVES: Duration = Duration::from_secs(20);
/// In the environment of the copy of this program that breeds: whether each leaves the session.
const BREED: &str = "BREED";

/// Starts the chains. Each has one process at a time, which lives for as long as a fork takes.
#[test]
#[ignore = "is run by other tests, below a shim"]
fn breed() {
    let Ok(how) = std::env::var(BREED) else { return };
    let end = Instant::now() + LIVES;
    // SAFETY: takes numbers only. What is asked kindly does not end.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    for _ in 0..CHAINS {
        // SAFETY: what follows in the child makes system calls only, and ends without returning.
        if unsafe { libc::fork() } == 0 {
            chain(&how, end);
        }
    }
    std::fs::write(std::env::var("D").expect("a directory") + "/up", "\n").expect("a file");
    std::thread::sleep(LIVES);
}

fn chain(how: &str, end: Instant) -> ! {
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        // SAFETY: the same as above; the parent ends at once, so there are never more than a few.
        unsafe {
            if how == "apart" {
                libc::setsid();
            }
            match libc::fork() {
                0 => {}
                _ => libc::_exit(0),
            }
        }
    }
    // SAFETY: ends the process without running anything of the test's.
    unsafe { libc::_exit(0) }
}

fn assert_stopped(how: &str) {
    let program = std::env::current_exe().expect("this program");
    let script =
        format!("export {BREED}={how}; exec {} --ignored --exact breed -q", program.display());
    let mut shim = Orders { grace_ms: 50, ..Orders::default() }.script(&script);
    let begin = Instant::now();
    shim.wait_for_file("up");
    shim.signal(Signal::TERM);
    let record = shim.done();
    let took = begin.elapsed();
    assert!(took < LIVES, "they may have ended by themselves: {took:?}");
    assert_eq!(record.survivors_total, 0, "{:?} after {took:?}", record.survivors);
    assert_eq!((record.ending, record.stage), (Some(Ending::Signal(9)), StopStage::Forced));
}

#[test]
fn breeding_chains_do_not_outlive_a_stop() {
    assert_stopped("together");
}

#[test]
fn breeding_chains_that_leave_their_session_do_not_either() {
    assert_stopped("apart");
}
