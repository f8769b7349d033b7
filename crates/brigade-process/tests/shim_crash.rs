//! An experiment that kills starter, shim or both around the claim and the launch.
//!
//! `cargo test -p brigade-process --test shim_crash -- --ignored --nocapture`
#![expect(clippy::unwrap_used, reason = "an experiment fails where something is not as expected")]

mod shim_support;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use brigade_process::BootId;
use brigade_process::shim::layout::CLAIM;
use brigade_process::shim::record::{Claimer, ProcessExit, ShimPhase, ShimRecord};
use rustix::process::{Pid, kill_process, kill_process_group};
use shim_support::*;

const ROUNDS: usize = 1_000;
/// A script that appends a line for each run and exits with a distinctive code.
const COMMAND: [&str; 3] = ["sh", "-c", "echo x >> $D/ran; exit 7"];

#[derive(Clone, Copy, Debug)]
enum Victim {
    Shim,
    Starter,
    Both,
}

/// The number of rounds by the phase found after the kill.
#[derive(Debug, Default)]
struct Tally {
    /// A runtime could still take the claim.
    unclaimed: usize,
    claimed: usize,
    launching: usize,
    running: usize,
    ended: usize,
}

#[test]
#[ignore = "takes a minute"]
fn shim_killed_anywhere() {
    let mut random = Random::from_clock();
    eprintln!("seed {}", random.0);
    let outside = tempfile::tempdir().unwrap();
    let mut tally = Tally::default();
    let mut must_not_have_run = Vec::new();
    for round in 0..ROUNDS {
        let directory = outside.path().join(round.to_string());
        fs::create_dir(&directory).unwrap();
        let victim = [Victim::Shim, Victim::Starter, Victim::Both][round % 3];
        let mut starter = start(&directory, victim);
        thread::sleep(Duration::from_micros(random.below(3_000)));
        kill(&mut starter, &directory, victim);
        let record = claim_or_read(&directory);
        wait_settled(&directory);
        let ran = fs::read_to_string(directory.join("ran")).unwrap_or_default();
        assert!(["", "x\n"].contains(&&*ran), "round {round}: it ran {} times", ran.len() / 2);
        // The shim may have continued, unless it was killed. The last record counts.
        let last = ShimRecord::read_from(&File::open(directory.join(CLAIM)).unwrap()).unwrap();
        assert!(last.phase >= record.phase, "round {round}: {record:?} became {last:?}");
        if last.claimer == Claimer::Runtime || last.phase == ShimPhase::Claimed {
            must_not_have_run.push(directory);
        }
        if let Some(exit) = last.exit {
            assert_eq!((exit, &*ran), (ProcessExit::Code(7), "x\n"), "round {round}, {victim:?}");
        }
        tally.count(&last);
    }
    for directory in must_not_have_run {
        assert!(!directory.join("ran").exists(), "{directory:?} has run");
    }
    eprintln!("{tally:?}");
}

fn start(directory: &Path, victim: Victim) -> Child {
    let shim = TestArgs::default().command(directory, &COMMAND);
    let mut command = match victim {
        Victim::Shim => shim,
        Victim::Starter | Victim::Both => {
            let mut starter = Command::new("sh");
            starter.args(["-c", "\"$@\" & wait", "sh"]).arg(shim.get_program());
            starter.args(shim.get_args()).env("D", directory);
            starter.stdin(Stdio::null()).stdout(Stdio::null());
            starter
        }
    };
    // A group for the starter and the shim, until the shim leads its own session.
    command.process_group(0).spawn().unwrap()
}

fn kill(starter: &mut Child, directory: &Path, victim: Victim) {
    let group = Pid::from_child(starter);
    match victim {
        Victim::Shim | Victim::Starter => starter.kill().unwrap(),
        Victim::Both => {
            let _ = kill_process_group(group, Signal::KILL);
            let claim =
                File::open(directory.join(CLAIM)).and_then(|file| ShimRecord::read_from(&file));
            // The claim is locked, so the shim still owns the pid in it.
            if let Ok(record) = claim
                && is_locked(directory)
            {
                let _ = kill_process(Pid::from_raw(record.shim.pid as i32).unwrap(), Signal::KILL);
            }
        }
    }
    starter.wait().unwrap();
}

/// Does the same as a recovering runtime: takes the claim, or reads it.
fn claim_or_read(directory: &Path) -> ShimRecord {
    brigade_process::find_execution::claim(directory, BootId([0; 16])).unwrap();
    ShimRecord::read_from(&File::open(directory.join(CLAIM)).unwrap()).unwrap()
}

/// Waits until the shim has exited and its process, which may run on, has had time to finish.
fn wait_settled(directory: &Path) {
    eventually("the exit of the shim", || (!is_locked(directory)).then_some(()));
    thread::sleep(Duration::from_millis(10));
}

fn is_locked(directory: &Path) -> bool {
    File::open(directory.join(CLAIM)).is_ok_and(|file| file.try_lock_shared().is_err())
}

impl Tally {
    fn count(&mut self, record: &ShimRecord) {
        let counter = match (record.claimer, record.phase) {
            (Claimer::Runtime, _) => &mut self.unclaimed,
            (_, ShimPhase::Claimed) => &mut self.claimed,
            (_, ShimPhase::Launching) => &mut self.launching,
            (_, ShimPhase::Running) => &mut self.running,
            (_, ShimPhase::Exited | ShimPhase::Done) => &mut self.ended,
        };
        *counter += 1;
    }
}

struct Random(u64);

impl Random {
    #[expect(clippy::disallowed_methods, reason = "a seed that differs each time is the point")]
    fn from_clock() -> Self {
        let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self(elapsed.as_nanos() as u64)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
