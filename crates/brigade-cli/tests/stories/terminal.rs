//! On a terminal, and not on one.

use std::process::Command;

use crate::kitchen::{BRIGADE, Kitchen};

/// What a terminal of this width shows.
fn on_a_terminal(kitchen: &Kitchen, columns: u16, variables: &str, args: &str) -> String {
    let mut script = Command::new("script");
    kitchen.hermetic(&mut script);
    let line = format!("stty cols {columns} rows 20; {variables} {BRIGADE} {args}");
    let shown = script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output().unwrap();
    String::from_utf8(shown.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn colours_are_for_terminals_only() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--", "sleep", "60"]);
    assert!(on_a_terminal(&kitchen, 80, "", "ps").contains("\u{1b}[36mrunning"));
    assert!(!on_a_terminal(&kitchen, 80, "NO_COLOR=1", "ps").contains('\u{1b}'));
    assert!(!kitchen.ok(["ps"]).contains('\u{1b}'));
}

#[test]
fn a_table_fits_a_narrow_terminal() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--", "sleep", "60", "61", "62", "63", "64", "65", "66", "67", "68"]);
    let shown = on_a_terminal(&kitchen, 50, "NO_COLOR=1", "ps --ended");
    assert!(shown.lines().all(|line| line.chars().count() <= 50), "{shown}");
    assert!(shown.contains('…'), "{shown}");
    kitchen.ok(["stop", "--now", "--wait", "1"]);
    kitchen.ok(["exec", "--name", "Somebody with a name", "--", "true"]);
    let shown = on_a_terminal(&kitchen, 40, "NO_COLOR=1", "ps --ended");
    assert!(shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
    assert!(shown.contains("\nprocess:1  -") && shown.contains("\nprocess:2  Someb"), "{shown}");
    kitchen.ok(["exec", "-d", "--shell", "sleep 60 # and more that does not fit into a line"]);
    let shown = on_a_terminal(&kitchen, 50, "NO_COLOR=1", "tree");
    assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 50), "{shown}");
    assert!(shown.contains('…'), "{shown}");
    assert!(kitchen.ok(["ps", "--ended"]).contains("66 67 68"), "whole where nothing is narrow");
}

#[test]
fn ctrl_c_stops_and_the_terminal_is_given_back() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let mut script = Command::new("script");
    kitchen.hermetic(&mut script);
    let line = format!("{BRIGADE} exec --shell 'echo up > up; sleep 60'; echo code $?");
    script.args(["-qc", &line, "/dev/null"]).stdin(std::process::Stdio::piped());
    let mut terminal = script.stdout(std::process::Stdio::piped()).spawn().unwrap();
    kitchen.file("up");
    std::io::Write::write_all(terminal.stdin.as_mut().unwrap(), b"\x03").unwrap();
    let shown = terminal.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("stopping process:1"), "{shown}");
    assert!(kitchen.run(["wait", "1"]).code == 121, "{shown}");
    assert_eq!(kitchen.run(["daemon", "status"]).code, 0, "the daemon is on no terminal");
}
