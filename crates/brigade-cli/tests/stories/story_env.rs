//! The environment of a story: its own home, state directory and project, and no process left
//! behind.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A timeout that only a failing test reaches, even on a busy machine.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(40);

pub(crate) const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");

pub(crate) struct StoryEnv {
    root: TempDir,
}

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl StoryEnv {
    pub(crate) fn new() -> Self {
        let root = TempDir::with_prefix("brigade-").unwrap();
        let story = Self { root };
        for directory in [story.home(), story.project()] {
            fs::create_dir(directory).unwrap();
        }
        story
    }

    fn root(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("socket/brigade.sock")
    }

    /// Creates another directory beside the project.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let directory = self.root().join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    pub(crate) fn configure(&self, text: &str) {
        let directory = self.home().join(".config/brigade");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config.toml"), text).unwrap();
    }

    /// Configures a script as the model of all agents.
    pub(crate) fn script(&self, text: &str) {
        let path = self.root().join("agents.script");
        fs::write(&path, text).unwrap();
        self.configure(&format!("model = \"script:{}\"\n", path.display()));
    }

    /// Writes an agent definition of the project.
    pub(crate) fn define(&self, name: &str, text: &str) {
        let directory = self.project().join(".brigade/agents");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{name}.md")), text).unwrap();
    }

    /// Trusts the current definitions of the project.
    #[track_caller]
    pub(crate) fn trust(&self) {
        let shown = self.json(["trust", "show"]);
        let digests = shown["definitions"].as_array().unwrap().iter();
        let digests = digests.map(|it| it["digest"].as_str().unwrap().to_owned());
        let words = ["trust".to_owned(), "grant".to_owned()].into_iter().chain(digests);
        let ran = Ran::from(self.command(words).output().unwrap());
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(BRIGADE);
        command.args(args);
        self.hermetic(&mut command);
        command
    }

    /// Gives a program the environment of this story.
    pub(crate) fn hermetic(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .env("BRIGADE_STATE", self.state())
            .current_dir(self.project())
            .stdin(Stdio::null());
    }

    pub(crate) fn run<const N: usize>(&self, args: [&str; N]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    pub(crate) fn run_in<const N: usize>(&self, directory: &Path, args: [&str; N]) -> Ran {
        self.command(args).current_dir(directory).output().unwrap().into()
    }

    pub(crate) fn run_with_input<const N: usize>(&self, args: [&str; N], input: &str) -> Ran {
        let mut child = self.start_with(args, Stdio::piped());
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Runs a subcommand that must succeed, and returns its stdout.
    #[track_caller]
    pub(crate) fn ok<const N: usize>(&self, args: [&str; N]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    /// Runs a subcommand that must succeed, and returns its JSON output.
    #[track_caller]
    pub(crate) fn json<const N: usize>(&self, args: [&str; N]) -> Value {
        let out = self.command(args).arg("--json").output().unwrap();
        let ran = Ran::from(out);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    }

    /// Starts a subcommand without waiting for it.
    pub(crate) fn start<const N: usize>(&self, args: [&str; N]) -> Child {
        self.start_with(args, Stdio::null())
    }

    /// Starts a subcommand with a stdin pipe.
    pub(crate) fn start_fed<const N: usize>(&self, args: [&str; N]) -> Child {
        self.start_with(args, Stdio::piped())
    }

    /// Kills the daemon, and waits until it has ended.
    #[track_caller]
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid();
        kill(pid, Signal::KILL);
        poll("it is dead", || (!is_there(pid)).then_some(()));
    }

    fn start_with<const N: usize>(&self, args: [&str; N], stdin: Stdio) -> Child {
        let mut command = self.command(args);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[track_caller]
    pub(crate) fn state_of(&self, task: &str) -> String {
        self.json(["show", task])["state"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn until_state(&self, task: &str, state: &str) {
        poll(&format!("{task} is {state}"), || (self.state_of(task) == state).then_some(()));
    }

    #[track_caller]
    pub(crate) fn daemon_pid(&self) -> u32 {
        let status = self.json(["daemon", "status"]);
        u32::try_from(status["status"]["pid"].as_u64().unwrap()).unwrap()
    }

    /// Waits for a file of the project that ends with a newline, and returns its content.
    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.project().join(name);
        poll(name, || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
    }

    /// Returns the operator key of the state directory.
    pub(crate) fn operator_key(&self) -> String {
        fs::read_to_string(self.state().join("operator.key")).unwrap().trim().to_owned()
    }

    /// Lists all alive processes of this story. The daemon hides its environment and is found by
    /// its arguments.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let state = self.state().display().to_string();
        let mark = format!("BRIGADE_STATE={state}");
        let pids = fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let has = |pid: u32, file: &str, word: &str| {
            let words = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|other| other == word.as_bytes())
        };
        pids.filter(|pid: &u32| has(*pid, "environ", &mark) || has(*pid, "cmdline", &state))
            .collect()
    }
}

impl Drop for StoryEnv {
    fn drop(&mut self) {
        let deadline = Instant::now() + TOO_LONG;
        loop {
            let alive = self.processes();
            if alive.is_empty() || Instant::now() > deadline {
                return;
            }
            for pid in alive {
                kill(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let killed = output.status.signal().map(|signal| -signal);
        Self {
            code: output.status.code().or(killed).unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Polls until there is a value.
#[track_caller]
pub(crate) fn poll<T>(expected: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TOO_LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never happened: {expected}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    let _ = kill_process(pid, signal);
}

pub(crate) fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|fields| !fields.is_empty() && !fields.starts_with(" Z"))
}
