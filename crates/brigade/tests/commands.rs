//! The `commands` example, killed for real at random moments while its commands run: afterwards
//! each has its true exit code, none ran twice, and the process table has nothing left of them.
//!
//! `BRIGADE_KILLS` says how often (10), `BRIGADE_SEED` repeats the moments of an earlier run.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const COMMANDS: u32 = 20;
/// In one life of the commands there is no time for more.
const KILLS_PER_ROUND: u64 = 10;

/// Examples lie beside the folder of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("a test knows where it is");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples/commands")
}

fn start(folder: &Path) -> Child {
    Command::new(example())
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example is built (cargo build --examples)")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Numbers that a seed repeats.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

#[test]
fn a_killed_runtime_loses_no_command_and_repeats_none() {
    let seed = number("BRIGADE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) | 1);
    let kills = number("BRIGADE_KILLS").unwrap_or(KILLS_PER_ROUND);
    println!("BRIGADE_SEED={seed} BRIGADE_KILLS={kills}");
    let mut dice = Dice(seed);
    let mut left = kills;
    while left > 0 {
        let now = left.min(KILLS_PER_ROUND);
        round(now, &mut dice);
        left -= now;
    }
}

fn round(kills: u64, dice: &mut Dice) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("its path");
    for _ in 0..kills {
        let mut child = start(&folder);
        // Some kills hit the start, most hit commands at work.
        let most = if dice.below(3) == 0 { 30 } else { 350 };
        thread::sleep(Duration::from_millis(dice.below(most)));
        child.kill().expect("killed");
        child.wait().expect("gone");
    }
    let output = start(&folder).wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    assert!(text.ends_with("all ended\n"), "{text}");
    for number in 0..COMMANDS {
        let code = number % 5;
        let how = match code {
            0 => "succeeded".to_owned(),
            _ => format!("failed (exit code {code})"),
        };
        let line = format!("command {number}: {how}, said \"done {number}\"");
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        let runs = fs::read_to_string(folder.join(format!("runs/{number}"))).expect("it ran");
        assert_eq!(runs.lines().count(), 1, "command {number} ran as {runs}");
    }
    assert_eq!(left_of(&folder), Vec::<String>::new(), "processes that are left");
}

/// What bears the folder in its environment: shims, commands and all that came of them.
fn left_of(folder: &Path) -> Vec<String> {
    let mark = format!("FOLDER={}", folder.display());
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
