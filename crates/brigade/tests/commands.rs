//! Kills the `commands` example at random moments. Afterwards each process has its true exit code,
//! none ran twice, and none is left in the process table.
//!
//! `BRIGADE_KILLS` is the number of kills (10). `BRIGADE_SEED` repeats the moments of an earlier
//! run.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const COMMANDS: u32 = 20;
/// The most kills that fit into the time that the processes take.
const KILLS_PER_ROUND: u64 = 10;

/// Returns the path of the example, which is beside the directory of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples/commands")
}

fn start(dir: &Path) -> Child {
    Command::new(example())
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example is built (cargo build --examples)")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Random numbers that a seed repeats.
struct SeededRandom(u64);

impl SeededRandom {
    fn next_below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn a_killed_runtime_loses_no_process_and_repeats_none() {
    let seed = number("BRIGADE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) | 1);
    let kills = number("BRIGADE_KILLS").unwrap_or(KILLS_PER_ROUND);
    println!("BRIGADE_SEED={seed} BRIGADE_KILLS={kills}");
    let mut random = SeededRandom(seed);
    let mut remaining = kills;
    while remaining > 0 {
        let count = remaining.min(KILLS_PER_ROUND);
        run_round(count, &mut random);
        remaining -= count;
    }
}

fn run_round(kills: u64, random: &mut SeededRandom) {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().canonicalize().expect("its path");
    for _ in 0..kills {
        let mut child = start(&dir);
        // Some kills hit the start, most hit running processes.
        let most = if random.next_below(3) == 0 { 30 } else { 350 };
        thread::sleep(Duration::from_millis(random.next_below(most)));
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
    let output = start(&dir).wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    assert!(text.ends_with("all ended\n"), "{text}");
    for number in 0..COMMANDS {
        let code = number % 5;
        let outcome = match code {
            0 => "succeeded".to_owned(),
            _ => format!("failed (exit code {code})"),
        };
        let line = format!("command {number}: {outcome}, printed \"done {number}\"");
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        let runs = fs::read_to_string(dir.join(format!("runs/{number}"))).expect("the process ran");
        assert_eq!(runs.lines().count(), 1, "command {number} ran as {runs}");
    }
    assert_eq!(find_processes(&dir), Vec::<String>::new(), "processes are left behind");
}

/// Returns the processes with this directory in their environment: shims, processes and
/// descendants.
fn find_processes(dir: &Path) -> Vec<String> {
    let mark = format!("EXAMPLE_DIR={}", dir.display());
    let processes = fs::read_dir("/proc").expect("a process table").filter_map(Result::ok);
    let marked = processes.filter(|process| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    marked
        .map(|process| {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ")
        })
        .collect()
}
