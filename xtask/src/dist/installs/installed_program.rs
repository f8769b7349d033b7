//! A command that a package has installed, and the checks that each one passes.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::files::run_quiet;
use super::InstallTest;

/// The time for a program to end after its input or a signal ends it.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const SIGTERM: i32 = 15;

/// A command and the private directories with which it runs.
pub(super) struct InstalledProgram<'a> {
    test: &'a InstallTest,
    line: Vec<OsString>,
    home: PathBuf,
}

/// An MCP server on the streams of a child.
struct McpProcess {
    child: Child,
}

impl<'a> InstalledProgram<'a> {
    pub(super) fn new(test: &'a InstallTest, program: &Path) -> Result<Self, String> {
        Self::of_line(test, [program.into()])
    }

    /// Returns a program that is called with leading arguments.
    pub(super) fn of_line(
        test: &'a InstallTest,
        line: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, String> {
        Ok(Self { test, line: line.into_iter().collect(), home: test.dir("home")? })
    }

    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Checks the version, the exit code of a process, and the MCP server and its ends. Stops the daemon.
    pub(super) fn check(&self) -> Result<(), String> {
        let passed = self.check_version().and_then(|()| self.check_work());
        let stopped = run_quiet(self.command().args(["daemon", "stop"])).map(drop);
        passed.and(stopped)
    }

    /// Checks that the program prints its version. Starts no daemon.
    pub(super) fn check_version(&self) -> Result<(), String> {
        let output = run_quiet(self.command().arg("--version"))?;
        let text = String::from_utf8_lossy(&output);
        let is_version = text.strip_prefix("brigade ").is_some_and(|v| v.trim().contains('.'));
        if is_version { Ok(()) } else { Err(format!("--version printed {text:?}")) }
    }

    fn check_work(&self) -> Result<(), String> {
        let echoed = run_quiet(self.command().args(["exec", "--", "echo", "a  b"]))?;
        if echoed != b"a  b\n" {
            return Err(format!("exec printed {:?}", String::from_utf8_lossy(&echoed)));
        }
        let mut failing = self.command();
        let output = failing.args(["exec", "--", "sh", "-c", "exit 7"]).output();
        let status = output.map_err(|error| error.to_string())?.status;
        if status.code() != Some(7) {
            return Err(format!("exec of a process with exit code 7 ended with {status}"));
        }
        self.check_mcp_until_eof()?;
        self.check_mcp_until_signal()
    }

    /// Returns a call of the program with nothing of the caller's settings.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.line[0]);
        command.args(&self.line[1..]).current_dir(&self.home).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).env("TMPDIR", self.test.run.directory());
        command.env("BRIGADE_STATE", self.home.join("state"));
        command
    }

    /// Checks that the end of the input ends the server.
    fn check_mcp_until_eof(&self) -> Result<(), String> {
        let mut server = self.start_mcp()?;
        drop(server.child.stdin.take());
        let status = server.wait()?;
        if status.success() { Ok(()) } else { Err(format!("mcp ended with {status}")) }
    }

    /// Checks that SIGTERM to the process that was started ends the server too, while its input is open.
    fn check_mcp_until_signal(&self) -> Result<(), String> {
        let mut server = self.start_mcp()?;
        let mut kill = Command::new("kill");
        run_quiet(kill.args(["-s", "TERM", &server.child.id().to_string()]))?;
        let status = server.wait()?;
        // A launcher that has a child ends by the same signal, or with the code of a shell for it.
        if status.signal() != Some(SIGTERM) && status.code() != Some(128 + SIGTERM) {
            return Err(format!("after SIGTERM, mcp ended with {status}"));
        }
        // The daemon has another command line.
        let is_server = |line: &String| line.ends_with(" mcp");
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while let Some(line) = self.test.run.command_lines().into_iter().find(is_server) {
            if Instant::now() >= deadline {
                return Err(format!("SIGTERM to its launcher left {line:?} behind"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Starts the MCP server and waits for its answer to `initialize`.
    fn start_mcp(&self) -> Result<McpProcess, String> {
        let mut command = self.command();
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("mcp: {error}"))?;
        let mut server = McpProcess { child };
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "xtask", "version": "0" },
        });
        let request =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let input = server.child.stdin.as_mut().ok_or("mcp has no input")?;
        writeln!(input, "{request}").map_err(|error| format!("mcp: {error}"))?;
        let output = server.child.stdout.take().ok_or("mcp has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("mcp: {error}"))?;
        let reply: Value = serde_json::from_str(&line).map_err(|e| format!("mcp: {e}: {line}"))?;
        if reply["result"]["serverInfo"]["name"] != "brigade" {
            return Err(format!("initialize was answered with {line}"));
        }
        Ok(server)
    }
}

impl McpProcess {
    fn wait(&mut self) -> Result<ExitStatus, String> {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err("mcp did not end".into())
    }
}

impl Drop for McpProcess {
    fn drop(&mut self) {
        // After `wait` the child has ended, and both calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
