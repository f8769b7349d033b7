//! Attacks on the daemon and the sandbox by a normal user, repeated for a bounded time.
//!
//! Each takes three seconds, or a minute with `cargo xtask test --only attacks`, which sets
//! `BRIGADE_ATTACK_SECONDS`. All traffic stays on this machine, and every process ends by itself.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The user `nobody`, if this runs as root: permissions and namespaces hardly restrict root.
const NOBODY: u32 = 65534;
const TOO_LONG: Duration = Duration::from_secs(60);

/// A state directory and a project of a normal user.
struct Victim {
    root: TempDir,
}

impl Victim {
    fn new() -> Self {
        let root = TempDir::with_prefix("brigade-attack-").unwrap();
        let victim = Self { root };
        // The user may not be able to read the build directory.
        fs::copy(env!("CARGO_BIN_EXE_brigade"), victim.path("brigade")).unwrap();
        for name in ["home", "project"] {
            fs::create_dir(victim.path(name)).unwrap();
            victim.hand_over(&victim.path(name));
        }
        victim.hand_over(victim.root.path());
        for script in ["identity.py", "limits.py", "tcp.py"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks").join(script);
            let copy = victim.path("project").join(script);
            fs::copy(source, &copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
        }
        victim
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn hand_over(&self, path: &Path) {
        if is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    fn brigade(&self, args: &[&str]) -> Output {
        let mut command = match is_root() {
            true => Command::new("setpriv"),
            false => Command::new("env"),
        };
        if is_root() {
            let nobody = NOBODY.to_string();
            command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
        }
        command
            .arg(self.path("brigade"))
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("BRIGADE_STATE", self.path("home/state"))
            .current_dir(self.path("project"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.brigade(args);
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }

    fn socket(&self) -> String {
        self.path("home/state/socket/brigade.sock").display().to_string()
    }

    fn daemon_pid(&self) -> u32 {
        let lock = fs::read_to_string(self.path("home/state/daemon.lock")).unwrap();
        lock.lines().next().unwrap().parse().unwrap()
    }

    /// Starts an attack and returns the address of its task.
    fn start(&self, sandbox: &[&str], script: &str, target: &str) -> String {
        let seconds = match (sandbox, script) {
            // Without a sandbox it only has to show that the attack works.
            ([], "limits.py") => 0,
            ([], _) => 1,
            _ => seconds().as_secs(),
        };
        let seconds = seconds.to_string();
        let args = [&["exec", "--detach"], sandbox, &["--", "python3", script, target, &seconds]];
        self.ok(&args.concat()).trim().to_owned()
    }

    /// Waits for an attack, and returns its summary.
    fn finish(&self, task: &str) -> Value {
        let waited = self.brigade(&["wait", task]);
        let output = self.ok(&["logs", task]);
        assert!(waited.status.success(), "{waited:?}: {output}");
        let summary =
            serde_json::from_str(output.trim()).unwrap_or_else(|e| panic!("{e}: {output}"));
        println!("{task}: {summary}");
        summary
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.brigade(&["stop", "--now", "1"]);
        self.brigade(&["daemon", "stop"]);
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn seconds() -> Duration {
    let set = std::env::var("BRIGADE_ATTACK_SECONDS").ok();
    Duration::from_secs(set.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// Polls until there is a value.
fn poll<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TOO_LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing was found in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Uses up pids outside of the sandbox too, a few hundred per second.
fn churn_pids(until: Instant) {
    while Instant::now() < until {
        Command::new("true").status().unwrap();
    }
}

#[track_caller]
fn assert_always_a_task(summary: &Value) {
    let count = |name: &str| summary[name].as_u64().unwrap_or(0);
    assert_eq!(count("operator"), 0, "{summary}");
    // Without the key such a connection would be useless; the ancestors alone must decide.
    assert_eq!(count("outside"), 0, "{summary}");
    assert!(count("task") + count("nobody") > 20, "too few attempts: {summary}");
}

#[test]
fn no_reused_pid_and_no_dying_parent_makes_a_process_the_operator() {
    let victim = Victim::new();
    victim.ok(&["daemon", "start"]);
    let task = victim.start(&["--sandbox"], "identity.py", &victim.socket());
    churn_pids(Instant::now() + seconds());
    assert_always_a_task(&victim.finish(&task));
}

#[test]
fn no_killed_daemon_makes_a_process_the_operator() {
    let victim = Victim::new();
    victim.ok(&["daemon", "start"]);
    let task = victim.start(&["--sandbox"], "identity.py", &victim.socket());
    let end = Instant::now() + seconds();
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(900));
        let pid = i32::try_from(victim.daemon_pid()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        victim.ok(&["ps"]);
    }
    assert_always_a_task(&victim.finish(&task));
}

#[test]
fn no_system_call_reaches_the_daemon_or_the_shim() {
    let victim = Victim::new();
    victim.ok(&["daemon", "start"]);
    let stranger = victim.ok(&["exec", "--detach", "--shell", "echo $$ > pid; exec sleep 60"]);
    let pid =
        poll(|| fs::read_to_string(victim.path("project/pid")).ok().filter(|t| !t.is_empty()));
    let control = victim.start(&[], "limits.py", pid.trim());
    let expected = serde_json::json!(["limit of file size", "priority"]);
    assert_eq!(victim.finish(&control)["succeeded"], expected);
    victim.brigade(&["stop", "--now", stranger.trim()]);
    let daemon = victim.daemon_pid();
    let limits = || fs::read_to_string(format!("/proc/{daemon}/limits")).unwrap();
    let before = limits();
    let task = victim.start(&["--sandbox"], "limits.py", &daemon.to_string());
    let summary = victim.finish(&task);
    assert_eq!(summary["succeeded"], serde_json::json!([]), "{summary}");
    assert_eq!(limits(), before);
    assert_eq!(victim.daemon_pid(), daemon);
}

#[test]
fn no_detour_reaches_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for sandbox in [&[][..], &["--no-tcp"], &["--no-network"]] {
        let victim = Victim::new();
        let over = AtomicBool::new(false);
        let reached = AtomicUsize::new(0);
        let summary = std::thread::scope(|scope| {
            scope.spawn(|| {
                let deadline = Instant::now() + seconds() + TOO_LONG;
                while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
                    match listener.accept() {
                        Ok(_) => drop(reached.fetch_add(1, Ordering::Relaxed)),
                        Err(_) => std::thread::sleep(Duration::from_millis(2)),
                    }
                }
            });
            let task = victim.start(sandbox, "tcp.py", &port.to_string());
            let summary = victim.finish(&task);
            over.store(true, Ordering::Relaxed);
            summary
        });
        let reached = reached.load(Ordering::Relaxed);
        if sandbox.is_empty() {
            assert!(reached > 0, "the attack works: {summary}");
            continue;
        }
        assert_eq!(summary["seemed"], serde_json::json!([]), "{sandbox:?}: {summary}");
        assert_eq!(reached, 0, "{sandbox:?}");
    }
}
