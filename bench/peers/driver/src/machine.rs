//! The machine of a run.

use std::fs;
use std::process::Command;

/// The machine and the programs that the figures depend on.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    /// The load averages before the first run, with the other load of the machine.
    pub(crate) load_at_start: String,
    pub(crate) compiler: String,
    pub(crate) commit: String,
}

impl Machine {
    pub(crate) fn read() -> Self {
        let cpu_info = read("/proc/cpuinfo");
        let memory = read("/proc/meminfo");
        let kib: u64 = field(&memory, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field(&cpu_info, "model name").to_owned(),
            memory_gib: kib / (1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_at_start: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", "),
            compiler: output("rustc", &["--version"]),
            commit: output("git", &["describe", "--always", "--dirty"]),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or("unknown", |(_, value)| value.trim())
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|_| "unknown".to_owned())
}
