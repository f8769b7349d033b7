//! An experiment: starter, shim or both are killed around the claim and the launch.
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

use brigade_process::shim::layout::CLAIM;
use brigade_process::shim::record::{Claimer, ProcessExit, ShimPhase, ShimRecord};
use rustix::process::{Pid, kill_process, kill_process_group};
use shim_support::*;

const ROUNDS: usize = 1_000;
/// Leaves a line for each time it is run, and an ending that cannot be an accident.
const COMMAND: [&str; 3] = ["sh", "-c", "echo x >> $D/ran; exit 7"];

#[derive(Clone, Copy, Debug)]
enum Victim {
    Shim,
    Starter,
    Both,
}

/// What was found after the kill.
#[derive(Debug, Default)]
struct Tally {
    /// A runtime could still claim.
    unclaimed: usize,
    claimed: usize,
    launching: usize,
    running: usize,
    ended: usize,
}

#[test]
#[ignore = "an experiment of a minute"]
fn shim_killed_anywhere() {
    let mut random = Random::from_the_clock();
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
        settle(&directory);
        let ran = fs::read_to_string(directory.join("ran")).unwrap_or_default();
        assert!(["", "x\n"].contains(&&*ran), "round {round}: it ran {} times", ran.len() / 2);
        // The shim may have gone on since, unless it was killed: what counts is the last word.
        let last = ShimRecord::read_from(&File::open(directory.join(CLAIM)).unwrap()).unwrap();
        assert!(last.phase >= record.phase, "round {round}: {record:?} became {last:?}");
        if last.claimer == Claimer::Runtime || last.phase == ShimPhase::Claimed {
            must_not_have_run.push(directory);
        }
        if let Some(ending) = last.exit {
            assert_eq!((ending, &*ran), (ProcessExit::Code(7), "x\n"), "round {round}, {victim:?}");
        }
        tally.count(&last);
    }
    for directory in must_not_have_run {
        assert!(!directory.join("ran").exists(), "{directory:?} has run after all");
    }
    eprintln!("{tally:?}");
}

fn start(directory: &Path, victim: Victim) -> Child {
    let shim = Orders::default().command(directory, &COMMAND);
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
    // A group for the starter and the shim, as long as that has not made a session of its own.
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
            // Locked: the shim that wrote its pid there is still the one who has it.
            if let Ok(record) = claim
                && is_locked(directory)
            {
                let _ = kill_process(Pid::from_raw(record.shim.pid as i32).unwrap(), Signal::KILL);
            }
        }
    }
    starter.wait().unwrap();
}

/// What a runtime does that recovers: it claims, or reads who did.
fn claim_or_read(directory: &Path) -> ShimRecord {
    brigade_process::find_execution::claim(directory, &[0; 16]).unwrap();
    ShimRecord::read_from(&File::open(directory.join(CLAIM)).unwrap()).unwrap()
}

/// Until the shim has ended, and its command, which may be left alone, has had its time.
fn settle(directory: &Path) {
    eventually("the shim's end", || (!is_locked(directory)).then_some(()));
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
    fn from_the_clock() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self(since.as_nanos() as u64)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
