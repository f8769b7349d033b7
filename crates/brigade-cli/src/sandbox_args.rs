//! Options for the sandbox and the resource limits of processes, and their text in `brigade show`.

use brigade_model::duration::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

use brigade_model::sandbox::{
    NetworkPolicy, ResourceLimits, Sandbox, SandboxRequest, TcpPolicy, parse_bytes,
};
use brigade_runtime::SandboxPart;

use crate::exit_code::CliError;
use crate::render;
use crate::render::LabelledLine;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArgs {
    /// Sandbox the processes: write only the working directory, read only that and the system
    ///
    /// The sandbox is permanent and covers all descendants. They cannot signal processes outside,
    /// and cannot gain privileges. If the kernel lacks the support, the processes fail and nothing
    /// is executed.
    #[arg(long)]
    sandbox: bool,
    /// Also allow reading and executing PATH (implies --sandbox)
    #[arg(long, value_name = "PATH")]
    sandbox_read: Vec<PathBuf>,
    /// Also allow writing PATH (implies --sandbox)
    #[arg(long, value_name = "PATH")]
    sandbox_write: Vec<PathBuf>,
    /// Deny TCP; UDP stays allowed (implies --sandbox)
    #[arg(long)]
    no_tcp: bool,
    /// Deny all networking: TCP, UDP, name lookup (implies --sandbox)
    #[arg(long)]
    no_network: bool,
    /// Memory limit per process, as address space: 512M, 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_amount)]
    max_memory: Option<u64>,
    /// CPU time limit per process (SIGXCPU): 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_cpu: Option<Duration>,
    /// Open file limit per process
    #[arg(long, value_name = "COUNT")]
    max_files: Option<u64>,
}

/// Parses a size such as `512M`.
pub(crate) fn parse_amount(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|refusal| refusal.message)
}

impl SandboxArgs {
    pub(crate) fn to_sandbox_request(&self) -> Result<Option<SandboxRequest>, CliError> {
        let lists = self.sandbox_read.len() + self.sandbox_write.len();
        if !self.sandbox && lists == 0 && !self.no_tcp && !self.no_network {
            return Ok(None);
        }
        let tcp = if self.no_tcp { TcpPolicy::Denied } else { TcpPolicy::Allowed };
        let network = if self.no_network { NetworkPolicy::Denied } else { NetworkPolicy::Allowed };
        let read = absolute_paths(&self.sandbox_read)?;
        let write = absolute_paths(&self.sandbox_write)?;
        Ok(Some(SandboxRequest { read, write, tcp, network, ..SandboxRequest::default() }))
    }

    pub(crate) fn to_resources(&self) -> ResourceLimits {
        let secs = |limit: Duration| limit.as_millis().div_ceil(1_000) as u64;
        ResourceLimits {
            memory: self.max_memory,
            cpu_secs: self.max_cpu.map(secs),
            open_files: self.max_files,
        }
    }
}

/// Resolves paths against the current directory, whatever the working directory of the process is.
fn absolute_paths(paths: &[PathBuf]) -> Result<Vec<String>, CliError> {
    let text = |path: &PathBuf| {
        let path = std::path::absolute(path)?.into_os_string();
        path.into_string()
            .map_err(|path| CliError::usage(format!("the path {path:?} is not UTF-8")))
    };
    paths.iter().map(text).collect()
}

/// Renders a sandbox for `brigade show`.
pub(crate) fn render_sandbox(sandbox: &Sandbox, parts: &[SandboxPart]) -> Vec<LabelledLine> {
    let mut lines = Vec::new();
    if let Some(size) = sandbox.terminal {
        lines.push(LabelledLine::new("terminal", size.to_string()));
    }
    let resources = &sandbox.resources;
    let memory = resources.memory.map(|bytes| format!("{} of memory", render::render_bytes(bytes)));
    let (shared_memory, memory_per_process) = match parts.contains(&SandboxPart::MemoryLimit) {
        true => (memory, None),
        false => (None, memory),
    };
    if let Some(memory) = shared_memory {
        lines.push(LabelledLine::new("limits", format!("{memory} for all processes together")));
    }
    let limits = [
        memory_per_process,
        resources.cpu_secs.map(|secs| format!("{secs}s of processor time")),
        resources.open_files.map(|files| render::render_count(files, "open file")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        lines.push(LabelledLine::new("limits", format!("{} for each process", limits.join(", "))));
    }
    for layer in &sandbox.layers {
        let mut text = format!("writes {}", layer.write.join(", "));
        if !layer.read.is_empty() {
            text.push_str(&format!("; reads {}", layer.read.join(", ")));
        }
        match (layer.network, layer.tcp) {
            (NetworkPolicy::Denied, _) => text.push_str("; no network"),
            (NetworkPolicy::Allowed, TcpPolicy::Denied) => text.push_str("; no TCP"),
            (NetworkPolicy::Allowed, TcpPolicy::Allowed) => {}
        }
        if layer.agents {
            text.push_str("; may start agents");
        }
        lines.push(LabelledLine::new("sandbox", render::render_one_line(&text)));
    }
    lines
}

/// Renders the active layers of a sandbox for `brigade show`. The system call filter denies the
/// network by itself. Without a mount namespace some accesses stay open, and the text says so.
pub(crate) fn render_sandbox_parts(parts: &[SandboxPart]) -> Option<LabelledLine> {
    if !parts.contains(&SandboxPart::Landlock) {
        return None;
    }
    let names: Vec<&str> = parts.iter().map(|part| part_name(*part)).collect();
    let mut text = names.join(", ");
    if !parts.contains(&SandboxPart::Mount) {
        text.push_str(
            "; no mount namespace: it can change modes, owners and times of files outside, and connect \
             to local sockets",
        );
    }
    Some(LabelledLine::new("layers", text))
}

fn part_name(part: SandboxPart) -> &'static str {
    match part {
        SandboxPart::Landlock => "Landlock",
        SandboxPart::Seccomp => "seccomp",
        SandboxPart::Mount => "mount namespace",
        SandboxPart::Network => "network namespace",
        SandboxPart::ControlGroup => "control group",
        SandboxPart::MemoryLimit => "memory limit",
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::sandbox::{SandboxLayer, TerminalSize};

    use super::*;

    #[test]
    fn a_sandbox_and_its_limits_are_rendered() {
        let sandbox = Sandbox {
            terminal: Some(TerminalSize::default()),
            resources: ResourceLimits {
                memory: Some(512 << 20),
                cpu_secs: Some(60),
                open_files: Some(1),
            },
            layers: vec![SandboxLayer {
                read: vec!["/data".into()],
                write: vec!["/src".into(), "/out".into()],
                tcp: TcpPolicy::Denied,
                ..SandboxLayer::default()
            }],
        };
        let lines: Vec<String> = render_sandbox(&sandbox, &[])
            .into_iter()
            .map(|line| format!("{}: {}", line.label, line.text))
            .collect();
        let expect = [
            "terminal: 80x24",
            "limits: 512M of memory, 60s of processor time, 1 open file for each process",
            "sandbox: writes /src, /out; reads /data; no TCP",
        ];
        assert_eq!(lines, expect);
        assert!(render_sandbox(&Sandbox::default(), &[]).is_empty());
        let lines = render_sandbox(&sandbox, &[SandboxPart::MemoryLimit]);
        assert_eq!(lines[1].text, "512M of memory for all processes together");
        assert_eq!(lines[2].text, "60s of processor time, 1 open file for each process");
    }

    #[test]
    fn the_active_layers_are_rendered() {
        use SandboxPart::{Landlock, Mount, Network, Seccomp};
        let render = |parts: &[SandboxPart]| render_sandbox_parts(parts).map(|line| line.text);
        let all = "Landlock, seccomp, mount namespace, network namespace";
        assert_eq!(render(&[Landlock, Seccomp, Mount, Network]).as_deref(), Some(all));
        let without_mounts = render(&[Landlock, Seccomp]).unwrap();
        let expect = "Landlock, seccomp; no mount namespace: it can change";
        assert!(without_mounts.starts_with(expect), "{without_mounts}");
        assert_eq!(render(&[]), None);
    }
}
