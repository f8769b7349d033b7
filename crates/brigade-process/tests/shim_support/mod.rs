//! A shim under test, started directly and observed through its files.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]
#![allow(dead_code, reason = "each test binary uses another part of this")]

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use brigade_process::companion::Companion;
use brigade_process::shim::layout::{self, FileLayout};
use brigade_process::shim::record::{ShimPhase, ShimRecord};
pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process, test_kill_process};
use tempfile::TempDir;

/// Longer than any step on a busy machine. Reached only if a test fails.
const TOO_LONG: Duration = Duration::from_secs(30);

pub(crate) const BOOT: &str = "000102030405060708090a0b0c0d0e0f";

/// The arguments of a shim.
#[derive(Clone)]
pub(crate) struct TestArgs {
    pub(crate) cap: u64,
    pub(crate) grace_ms: u64,
    pub(crate) input: &'static str,
    pub(crate) settings: &'static str,
    pub(crate) timing: &'static str,
    pub(crate) working_directory: PathBuf,
}

impl Default for TestArgs {
    fn default() -> Self {
        Self {
            cap: 1 << 20,
            grace_ms: 5_000,
            input: "none",
            settings: "",
            timing: "",
            working_directory: PathBuf::new(),
        }
    }
}

impl TestArgs {
    /// Runs a shell script, with the shim's directory in `$D`.
    pub(crate) fn script(&self, script: &str) -> Shim {
        self.run(&["sh", "-c", script])
    }

    pub(crate) fn run(&self, argv: &[&str]) -> Shim {
        self.run_in(tempfile::tempdir().unwrap(), argv)
    }

    pub(crate) fn run_in(&self, directory: TempDir, argv: &[&str]) -> Shim {
        let child = self.command(directory.path(), argv).spawn().unwrap();
        Shim { directory, child }
    }

    pub(crate) fn command(&self, directory: &Path, argv: &[&str]) -> Command {
        let shim = companion().command();
        let mut command = Command::new(shim.program);
        command.args(shim.leading_args).arg("run").arg(directory).arg(BOOT);
        command.args([self.cap, self.grace_ms].map(|number| number.to_string()));
        command
            .arg(self.input)
            .arg(self.settings)
            .arg(self.timing)
            .arg(&self.working_directory)
            .arg("--")
            .args(argv);
        command.env("D", directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

pub(crate) fn companion() -> &'static Companion {
    static COMPANION: OnceLock<Companion> = OnceLock::new();
    COMPANION.get_or_init(|| Companion::prepare(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap())
}

/// Runs a shell script under a shim with the default arguments.
pub(crate) fn script(script: &str) -> Shim {
    TestArgs::default().script(script)
}

/// A running shim. It is killed when dropped.
pub(crate) struct Shim {
    pub(crate) directory: TempDir,
    pub(crate) child: Child,
}

impl Drop for Shim {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.signal(Signal::USR1);
            let _ = self.child.wait();
        }
    }
}

impl Shim {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub(crate) fn record(&self) -> Option<ShimRecord> {
        ShimRecord::read_from(&File::open(self.path(layout::CLAIM)).ok()?).ok()
    }

    pub(crate) fn wait_until(&self, is_met: impl Fn(&ShimRecord) -> bool) -> ShimRecord {
        eventually("the record", || self.record().filter(|record| is_met(record)))
    }

    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        eventually(name, || {
            fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'))
        })
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        eventually("the exit of the shim", || self.child.try_wait().unwrap())
    }

    /// Returns the record after a normal exit of the shim.
    pub(crate) fn done(&mut self) -> ShimRecord {
        let status = self.exit();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "exit status of the shim");
        let record = self.record().expect("a record");
        assert_eq!(record.phase, ShimPhase::Done);
        record
    }

    /// Returns the stored beginning and end of a stream.
    pub(crate) fn stored(&self, stream: usize) -> (Vec<u8>, Vec<u8>) {
        let record = self.record().unwrap();
        let layout = FileLayout::bytes(record.output_cap);
        let file = fs::read(self.path(layout::STREAMS[stream])).unwrap_or_default();
        let dropped = layout.dropped_range(record.produced_bytes[stream]);
        let byte = |position: u64| file[layout.locate(position).offset as usize];
        let head = 0..dropped.start.min(record.produced_bytes[stream]);
        let tail = dropped.end..record.produced_bytes[stream];
        (head.map(byte).collect(), tail.map(byte).collect())
    }

    /// Returns a whole stream of which nothing was dropped.
    pub(crate) fn text(&self, stream: usize) -> String {
        let (mut head, tail) = self.stored(stream);
        head.extend(tail);
        String::from_utf8(head).unwrap()
    }

    /// Returns the pids that processes wrote to the file `pids`, one per line.
    pub(crate) fn pids(&self, count: usize) -> Vec<i32> {
        eventually("pids", || {
            let text =
                fs::read_to_string(self.path("pids")).ok().filter(|text| text.ends_with('\n'))?;
            let pids: Vec<i32> = text.lines().map(|line| line.trim().parse().unwrap()).collect();
            (pids.len() == count).then_some(pids)
        })
    }
}

/// Returns true if the shim was built with all Linux features. The variable is set for build and
/// test.
pub(crate) fn is_full_linux() -> bool {
    cfg!(target_os = "linux") && std::env::var_os("BRIGADE_POSIX_ONLY").is_none()
}

pub(crate) fn is_alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

pub(crate) fn assert_ended(pids: &[i32]) {
    for pid in pids {
        assert!(!is_alive(*pid), "{pid} of {pids:?} is alive");
    }
}

pub(crate) fn eventually<T>(name: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < TOO_LONG, "{name} does not appear");
        thread::sleep(Duration::from_millis(2));
    }
}
