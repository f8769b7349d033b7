//! A place of its own for each story: home, state folder and project, and nothing left behind.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine; reached only when a test fails.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(40);

pub(crate) const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");

pub(crate) struct Kitchen {
    root: TempDir,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Kitchen {
    pub(crate) fn new() -> Self {
        let root = TempDir::with_prefix("brigade-").unwrap();
        let kitchen = Self { root };
        for folder in [kitchen.home(), kitchen.project()] {
            fs::create_dir(folder).unwrap();
        }
        kitchen
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

    /// Makes another directory beside the project.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.root().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(crate) fn configure(&self, text: &str) {
        let folder = self.home().join(".config/brigade");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), text).unwrap();
    }

    /// Agents say what a script says: this is their model.
    pub(crate) fn script(&self, text: &str) {
        let path = self.root().join("agents.script");
        fs::write(&path, text).unwrap();
        self.configure(&format!("model = \"script:{}\"\n", path.display()));
    }

    /// A definition of an agent.
    pub(crate) fn define(&self, name: &str, text: &str) {
        let folder = self.project().join(".brigade/agents");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.md")), text).unwrap();
    }

    /// Trusts all definitions of the project, as they are now.
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

    /// Another program in the same surroundings.
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

    pub(crate) fn run_in<const N: usize>(&self, folder: &Path, args: [&str; N]) -> Ran {
        self.command(args).current_dir(folder).output().unwrap().into()
    }

    pub(crate) fn run_with_input<const N: usize>(&self, args: [&str; N], input: &str) -> Ran {
        let mut child = self.start_with(args, Stdio::piped());
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Runs what has to succeed.
    #[track_caller]
    pub(crate) fn ok<const N: usize>(&self, args: [&str; N]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    /// The same, for what prints one JSON value.
    #[track_caller]
    pub(crate) fn json<const N: usize>(&self, args: [&str; N]) -> Value {
        let out = self.command(args).arg("--json").output().unwrap();
        let ran = Ran::from(out);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    }

    /// Starts one and does not wait for it.
    pub(crate) fn start<const N: usize>(&self, args: [&str; N]) -> Child {
        self.start_with(args, Stdio::null())
    }

    /// The same with an input that is written to meanwhile.
    pub(crate) fn start_fed<const N: usize>(&self, args: [&str; N]) -> Child {
        self.start_with(args, Stdio::piped())
    }

    /// Kills the daemon, and waits until it is gone.
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

    /// Waits for the file that a command makes, and reads it.
    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.project().join(name);
        poll(name, || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
    }

    /// The secret of this state directory.
    pub(crate) fn operator_key(&self) -> String {
        fs::read_to_string(self.state().join("operator.key")).unwrap().trim().to_owned()
    }

    /// Every process that was started here, and is still there. The daemon hides its environment and is
    /// known by its arguments.
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

impl Drop for Kitchen {
    fn drop(&mut self) {
        let deadline = Instant::now() + TOO_LONG;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > deadline {
                return;
            }
            for pid in left {
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

/// Looks again and again until there is something.
#[track_caller]
pub(crate) fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TOO_LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    let _ = kill_process(pid, signal);
}

pub(crate) fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
