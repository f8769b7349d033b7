//! The `survive` example, killed for real: a process that dies with -9 and another that goes on.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Examples lie beside the folder of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("a test knows where it is");
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

/// Reads lines until so many steps were walked, or to the end.
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
fn a_killed_program_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("survive.db");
    let mut walked: Vec<String> = Vec::new();
    let mut cut: Vec<String> = Vec::new();
    for steps in [2, 4, 1] {
        let mut child = start(&store);
        let seen = walk(&mut child, steps);
        child.kill().expect("killed");
        child.wait().expect("gone");
        walked.extend(seen.into_iter().filter(|line| line.starts_with("step ")));
        cut.extend(walked.last().cloned());
    }
    let mut child = start(&store);
    let seen = walk(&mut child, usize::MAX);
    assert!(child.wait().expect("ended").success());
    walked.extend(seen.iter().filter(|line| line.starts_with("step ")).cloned());
    let last = seen.last().expect("a last word");
    assert!(last.starts_with("arrived: \"20 steps, each walked once, by "), "{last}");
    for step in 1..=20 {
        let line = format!("step {step} of 20");
        let times = walked.iter().filter(|other| **other == line).count();
        // The step whose record a kill came before is walked again; no other is.
        let kills = cut.iter().filter(|other| **other == line).count();
        assert!((1..=1 + kills).contains(&times), "{line}: {times} times, {kills} kills in it");
    }
}
