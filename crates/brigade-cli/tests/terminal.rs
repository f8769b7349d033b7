//! `exec` and `top` on a real terminal, which tmux provides: keys, resizes, Ctrl-C, a terminal that
//! goes away. Without tmux there is nothing to test on, and the tests say so.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");
const SOON: Duration = Duration::from_secs(20);

/// A terminal with a shell-less command in it, and a state folder of its own.
struct Terminal {
    folder: TempDir,
    socket: String,
}

impl Terminal {
    /// None, with a word of explanation, where there is no tmux.
    fn open(arguments: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("tmux is not installed: passed over (cargo xtask test installs it)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("tmux").display().to_string();
        let terminal = Self { folder, socket };
        terminal.start(arguments);
        Some(terminal)
    }

    fn start(&self, arguments: &str) {
        let folder = self.folder.path().display();
        let exits = format!("echo exit $? > {folder}/exit");
        let line = format!("{BRIGADE} {arguments}; {exits}");
        let mut tmux = self.tmux();
        tmux.args(["-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "20", &line]);
        surroundings(&mut tmux, self.folder.path());
        assert!(tmux.status().unwrap().success());
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-S", &self.socket]);
        tmux
    }

    fn press(&self, keys: &[&str]) {
        assert!(self.tmux().arg("send-keys").args(keys).status().unwrap().success());
    }

    fn screen(&self) -> String {
        let shown = self.tmux().args(["capture-pane", "-p"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Until the screen shows this.
    fn shows(&self, text: &str) {
        eventually(&format!("{text:?} on the screen"), || self.screen().contains(text));
    }

    /// The exit code, when the program has ended.
    fn exit(&self) -> String {
        let path = self.folder.path().join("exit");
        eventually("the end of the program", || path.exists());
        eventually("its exit code", || !std::fs::read_to_string(&path).unwrap().is_empty());
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Another client of the same daemon.
    fn brigade(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BRIGADE);
        command.args(arguments);
        surroundings(&mut command, self.folder.path());
        command.output().unwrap()
    }

    fn said(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.brigade(arguments).stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").output();
        for line in self.said(&["ps", "--json"]).lines() {
            let tasks: Vec<serde_json::Value> = serde_json::from_str(line).unwrap_or_default();
            for task in tasks {
                self.brigade(&["stop", "--now", task["address"].as_str().unwrap_or_default()]);
            }
        }
        self.brigade(&["daemon", "stop"]);
    }
}

/// Nothing of the user's: an own home, an own state folder, an own place.
fn surroundings(command: &mut Command, folder: &Path) {
    command.current_dir(folder).env_clear().env("HOME", folder);
    command.env("BRIGADE_STATE", folder.join("state")).env("TERM", "xterm-256color");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LANG", "C.UTF-8");
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never came");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn exec_shows_what_comes_and_ends_with_the_command_s_code() {
    let Some(terminal) =
        Terminal::open("exec -- sh -c 'echo first; sleep 0.3; echo second; exit 5'")
    else {
        return;
    };
    assert_eq!(terminal.exit(), "exit 5");
}

#[test]
fn the_first_interrupt_asks_and_the_second_forces() {
    let deaf = "exec --grace 1h --name Deaf -- sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.1; done'";
    let Some(terminal) = Terminal::open(deaf) else { return };
    terminal.shows("up");
    terminal.press(&["C-c"]);
    eventually("the stop", || terminal.said(&["ps"]).contains("stopping"));
    assert!(!terminal.folder.path().join("exit").exists(), "it waits for the end");
    terminal.press(&["C-c"]);
    assert_eq!(terminal.exit(), "exit 121");
    assert!(terminal.said(&["ps", "--ended"]).contains("cancelled (signal 9)"));
}

#[test]
fn interrupts_are_heard_while_nobody_takes_the_output() {
    let hung = "| sh -c 'trap \"\" INT; exec sleep 60'";
    let Some(terminal) = Terminal::open(&format!("exec --name Flood -- yes {hung}")) else {
        return;
    };
    eventually("more output than a pipe holds", || {
        let said = terminal.said(&["logs", "--tail", "1M", "Flood"]);
        said.len() > 500_000
    });
    terminal.press(&["C-c"]);
    terminal.shows("stopping process:1; Ctrl-C again to force it");
    eventually("the end", || terminal.said(&["ps", "--ended"]).contains("cancelled"));
    terminal.press(&["C-c"]);
    terminal.shows("forcing process:1; Ctrl-C again to leave without its end");
    terminal.press(&["C-c"]);
    terminal.shows("process:1 was told to end; `brigade show process:1` says how");
}

#[test]
fn a_terminal_that_goes_away_leaves_the_command_running() {
    let Some(terminal) = Terminal::open("exec --name Long -- sh -c 'echo up; sleep 60'") else {
        return;
    };
    terminal.shows("up");
    assert!(terminal.tmux().arg("kill-server").status().unwrap().success());
    thread::sleep(Duration::from_millis(200));
    assert!(terminal.said(&["ps"]).contains("running"));
    assert!(terminal.said(&["logs", "Long"]).contains("up"));
}

#[test]
fn top_lists_reads_writes_and_stops() {
    let Some(terminal) = Terminal::open("top") else { return };
    terminal.shows("Nothing runs here");
    terminal.brigade(&["exec", "-d", "--stdin", "--name", "Parrot", "--", "cat"]);
    terminal.shows("Parrot");
    terminal.shows("output of Parrot");
    terminal.press(&["m"]);
    terminal.press(&["-l", "hello there"]);
    terminal.shows("message: hello there");
    terminal.press(&["Enter"]);
    terminal.shows("sent to process:1");
    eventually("the echo", || terminal.screen().lines().any(|line| line == "hello there"));
    terminal.press(&["s"]);
    terminal.shows("cancelled");
    terminal.press(&["q"]);
    assert_eq!(terminal.exit(), "exit 0");
}

#[test]
fn top_survives_narrow_terminals_and_a_killed_daemon() {
    let Some(terminal) = Terminal::open("top") else { return };
    terminal.brigade(&["exec", "-d", "--name", "Sleeper", "--", "sleep", "60"]);
    terminal.shows("Sleeper");
    for (columns, rows) in [("30", "6"), ("12", "3"), ("120", "40")] {
        let resized = self::resize(&terminal, columns, rows);
        assert!(resized.status.success());
        eventually("the new size", || {
            let screen = terminal.screen();
            screen.lines().all(|line| line.chars().count() <= columns.parse().unwrap())
        });
    }
    terminal.shows("Sleeper");
    let status = terminal.said(&["daemon", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let pid = status["status"]["pid"].as_u64().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    terminal.shows("the daemon was replaced");
    eventually("the list", || terminal.screen().contains("running"));
    for _ in 0..3 {
        terminal.press(&["Down"]);
        terminal.brigade(&["daemon", "stop"]);
        terminal.shows("the daemon was replaced");
    }
    eventually("the list", || terminal.screen().contains("running"));
    terminal.press(&["C-c"]);
    assert_eq!(terminal.exit(), "exit 0");
}

fn resize(terminal: &Terminal, columns: &str, rows: &str) -> Output {
    terminal.tmux().args(["resize-window", "-x", columns, "-y", rows]).output().unwrap()
}
