//! A terminal of tmux, with its own home and state directory.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The size of a terminal.
#[derive(Clone, Copy)]
pub(crate) struct TerminalSize {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// A terminal that runs one command line, with its own state directory.
pub(crate) struct Terminal {
    pub(crate) home: TempDir,
    socket: String,
}

impl Terminal {
    /// Opens a terminal; `None` without tmux.
    pub(crate) fn open(arguments: &str) -> Option<Self> {
        Self::playing("", TerminalSize { columns: 90, rows: 20 }, arguments)
    }

    /// Opens a terminal of a size, with agents that play a script.
    pub(crate) fn playing(script: &str, size: TerminalSize, arguments: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("tmux is not installed: skipped (cargo xtask test installs it)");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("tmux").display().to_string();
        let terminal = Self { home, socket };
        terminal.configure(script);
        terminal.start(size, arguments);
        Some(terminal)
    }

    pub(crate) fn configure(&self, script: &str) {
        let file = self.home.path().join("script");
        let config_dir = self.home.path().join(".config/brigade");
        std::fs::write(&file, script).unwrap();
        std::fs::create_dir_all(&config_dir).unwrap();
        let model = format!("model = \"script:{}\"\n", file.display());
        std::fs::write(config_dir.join("config.toml"), model).unwrap();
    }

    pub(crate) fn start(&self, size: TerminalSize, arguments: &str) {
        let home = self.home.path().display();
        // The screen must stay readable after the program has ended.
        let exits = format!("echo exit $? > {home}/exit; sleep 60");
        let line = format!("{BRIGADE} {arguments}; {exits}");
        let mut tmux = self.tmux();
        let columns = size.columns.to_string();
        let rows = size.rows.to_string();
        tmux.args(["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, &line]);
        set_environment(&mut tmux, self.home.path());
        assert!(tmux.status().unwrap().success());
    }

    pub(crate) fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-S", &self.socket]);
        tmux
    }

    pub(crate) fn press(&self, keys: &[&str]) {
        assert!(self.tmux().arg("send-keys").args(keys).status().unwrap().success());
    }

    pub(crate) fn screen(&self) -> String {
        let shown = self.tmux().args(["capture-pane", "-p"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Waits until the screen shows this text.
    pub(crate) fn shows(&self, text: &str) {
        eventually(&format!("{text:?} on the screen"), || self.screen().contains(text));
    }

    /// Waits until the program has ended, and returns its exit code.
    pub(crate) fn exit(&self) -> String {
        let path = self.home.path().join("exit");
        eventually("the end of the program", || path.exists());
        eventually("its exit code", || !std::fs::read_to_string(&path).unwrap().is_empty());
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Runs another client of the same daemon.
    pub(crate) fn brigade(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BRIGADE);
        command.args(arguments);
        set_environment(&mut command, self.home.path());
        command.output().unwrap()
    }

    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.brigade(arguments).stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").output();
        for line in self.stdout(&["ps", "--json"]).lines() {
            let tasks: Vec<serde_json::Value> = serde_json::from_str(line).unwrap_or_default();
            for task in tasks {
                self.brigade(&["stop", "--now", task["address"].as_str().unwrap_or_default()]);
            }
        }
        self.brigade(&["daemon", "stop"]);
    }
}

/// Gives a command its own home, state directory and working directory.
pub(crate) fn set_environment(command: &mut Command, home: &Path) {
    command.current_dir(home).env_clear().env("HOME", home);
    command.env("BRIGADE_STATE", home.join("state")).env("TERM", "xterm-256color");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LANG", "C.UTF-8");
}

pub(crate) fn eventually(expected: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {expected}");
        thread::sleep(Duration::from_millis(20));
    }
}
