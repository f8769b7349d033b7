//! Kills the `survive` example with SIGKILL and starts it again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns the path of the example, which is beside the directory of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples/survive")
}

fn start(store: &Path) -> Child {
    Command::new(example())
        .arg(store)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example is built (cargo build --examples)")
}

/// Reads lines until this number of steps, or up to the end.
fn walk(child: &mut Child, steps: usize) -> Vec<String> {
    let output = child.stdout.take().expect("a pipe");
    let mut seen = Vec::new();
    for line in BufReader::new(output).lines() {
        seen.push(line.expect("text").trim().to_owned());
        if seen.iter().filter(|line| line.starts_with("step ")).count() == steps {
            break;
        }
    }
    seen
}

#[test]
fn a_killed_program_continues_with_its_next_step() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("survive.db");
    let mut walked: Vec<String> = Vec::new();
    let mut killed_steps: Vec<String> = Vec::new();
    for steps in [2, 4, 1] {
        let mut child = start(&store);
        let seen = walk(&mut child, steps);
        child.kill().expect("killed");
        child.wait().expect("reaped");
        walked.extend(seen.into_iter().filter(|line| line.starts_with("step ")));
        killed_steps.extend(walked.last().cloned());
    }
    let mut child = start(&store);
    let seen = walk(&mut child, usize::MAX);
    assert!(child.wait().expect("ended").success());
    walked.extend(seen.iter().filter(|line| line.starts_with("step ")).cloned());
    let last = seen.last().expect("a last line");
    assert!(last.starts_with("arrived: \"20 steps, each walked once, by "), "{last}");
    for step in 1..=20 {
        let line = format!("step {step} of 20");
        let times = walked.iter().filter(|other| **other == line).count();
        // Only a step that was killed before it was recorded runs again.
        let kills = killed_steps.iter().filter(|other| **other == line).count();
        assert!((1..=1 + kills).contains(&times), "{line}: {times} times, {kills} kills in it");
    }
}
