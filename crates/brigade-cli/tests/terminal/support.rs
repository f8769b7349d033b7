//! A terminal that tmux provides, with a home and a state folder of its own.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A terminal with a shell-less command in it, and a state folder of its own.
pub(crate) struct Terminal {
    pub(crate) folder: TempDir,
    socket: String,
}

impl Terminal {
    /// None, with a word of explanation, where there is no tmux.
    pub(crate) fn open(arguments: &str) -> Option<Self> {
        Self::playing("", (90, 20), arguments)
    }

    /// The same of a size, with agents that play a script.
    pub(crate) fn playing(script: &str, size: (u16, u16), arguments: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("tmux is not installed: passed over (cargo xtask test installs it)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("tmux").display().to_string();
        let terminal = Self { folder, socket };
        terminal.configure(script);
        terminal.start(size, arguments);
        Some(terminal)
    }

    pub(crate) fn configure(&self, script: &str) {
        let (file, folder) =
            (self.folder.path().join("script"), self.folder.path().join(".config/brigade"));
        std::fs::write(&file, script).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        let model = format!("model = \"script:{}\"\n", file.display());
        std::fs::write(folder.join("config.toml"), model).unwrap();
    }

    pub(crate) fn start(&self, (columns, rows): (u16, u16), arguments: &str) {
        let folder = self.folder.path().display();
        // The screen is looked at when the program has ended, too.
        let exits = format!("echo exit $? > {folder}/exit; sleep 60");
        let line = format!("{BRIGADE} {arguments}; {exits}");
        let mut tmux = self.tmux();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        tmux.args(["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, &line]);
        surroundings(&mut tmux, self.folder.path());
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

    /// Until the screen shows this.
    pub(crate) fn shows(&self, text: &str) {
        eventually(&format!("{text:?} on the screen"), || self.screen().contains(text));
    }

    /// The exit code, when the program has ended.
    pub(crate) fn exit(&self) -> String {
        let path = self.folder.path().join("exit");
        eventually("the end of the program", || path.exists());
        eventually("its exit code", || !std::fs::read_to_string(&path).unwrap().is_empty());
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Another client of the same daemon.
    pub(crate) fn brigade(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BRIGADE);
        command.args(arguments);
        surroundings(&mut command, self.folder.path());
        command.output().unwrap()
    }

    pub(crate) fn said(&self, arguments: &[&str]) -> String {
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
pub(crate) fn surroundings(command: &mut Command, folder: &Path) {
    command.current_dir(folder).env_clear().env("HOME", folder);
    command.env("BRIGADE_STATE", folder.join("state")).env("TERM", "xterm-256color");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LANG", "C.UTF-8");
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never came");
        thread::sleep(Duration::from_millis(20));
    }
}
