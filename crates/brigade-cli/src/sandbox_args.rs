//! Options that keep a command, or the commands of an agent, to something; and how that is told.

use std::path::PathBuf;
use std::time::Duration;

use brigade_model::sandbox::{
    NetworkPolicy, ResourceLimits, Sandbox, SandboxRequest, TcpPolicy, parse_bytes,
};
use brigade_runtime::SandboxPart;

use crate::exit_code::CliError;
use crate::{duration, render};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Confinement")]
pub(crate) struct SandboxArgs {
    /// Let commands write in the working directory only, and read only that and the system
    ///
    /// By Landlock, for good, with all that they start. They cannot signal what is outside, nor gain
    /// privileges. Where the kernel cannot do that, they fail and nothing is run.
    #[arg(long)]
    sandbox: bool,
    /// Also let them read and execute this; implies --confine
    #[arg(long, value_name = "PATH")]
    sandbox_read: Vec<PathBuf>,
    /// Also let them read and write this; implies --confine
    #[arg(long, value_name = "PATH")]
    sandbox_write: Vec<PathBuf>,
    /// Also keep them from TCP, both ways; UDP is left to them; implies --confine
    #[arg(long)]
    no_tcp: bool,
    /// Also keep them from every network: no TCP, no UDP, no lookup of names; implies --confine
    #[arg(long)]
    no_network: bool,
    /// The most memory of each process, as address space: 512M, 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_amount)]
    max_memory: Option<u64>,
    /// The most processor time of each process, which ends with signal 24 then: 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration)]
    max_cpu: Option<Duration>,
    /// The most open files of each process
    #[arg(long, value_name = "COUNT")]
    max_files: Option<u64>,
}

/// Bytes as people write them.
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
        let (read, write) =
            (absolute_paths(&self.sandbox_read)?, absolute_paths(&self.sandbox_write)?);
        Ok(Some(SandboxRequest { read, write, tcp, network, ..SandboxRequest::default() }))
    }

    pub(crate) fn to_resources(&self) -> ResourceLimits {
        let secs = |span: Duration| span.as_millis().div_ceil(1_000) as u64;
        ResourceLimits {
            memory: self.max_memory,
            cpu_secs: self.max_cpu.map(secs),
            open_files: self.max_files,
        }
    }
}

/// Relative to where we are, whatever directory the command gets.
fn absolute_paths(paths: &[PathBuf]) -> Result<Vec<String>, CliError> {
    let text = |path: &PathBuf| {
        let path = std::path::absolute(path)?.into_os_string();
        path.into_string()
            .map_err(|path| CliError::usage(format!("the path {path:?} is not UTF-8")))
    };
    paths.iter().map(text).collect()
}

/// What `show` says of it.
pub(crate) fn render_sandbox(
    enclosure: &Sandbox,
    parts: &[SandboxPart],
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(size) = enclosure.terminal {
        lines.push(("terminal", size.to_string()));
    }
    let resources = &enclosure.resources;
    let memory = resources.memory.map(|bytes| format!("{} of memory", render::render_bytes(bytes)));
    let (together, each) = match parts.contains(&SandboxPart::MemoryLimit) {
        true => (memory, None),
        false => (None, memory),
    };
    if let Some(memory) = together {
        lines.push(("limits", format!("{memory} for all processes together")));
    }
    let limits = [
        each,
        resources.cpu_secs.map(|secs| format!("{secs}s of processor time")),
        resources.open_files.map(|files| render::render_count(files, "open file")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        lines.push(("limits", format!("{} for each process", limits.join(", "))));
    }
    for one in &enclosure.layers {
        let mut text = format!("writes {}", one.write.join(", "));
        if !one.read.is_empty() {
            text.push_str(&format!("; reads {}", one.read.join(", ")));
        }
        match (one.network, one.tcp) {
            (NetworkPolicy::Denied, _) => text.push_str("; no network"),
            (NetworkPolicy::Allowed, TcpPolicy::Denied) => text.push_str("; no TCP"),
            (NetworkPolicy::Allowed, TcpPolicy::Allowed) => {}
        }
        if one.agents {
            text.push_str("; may start agents");
        }
        lines.push(("confined", render::render_one_line(&text)));
    }
    lines
}

/// What `show` says of the parts that hold. The filter keeps from the network by itself; without mounts
/// of its own a command can do what the other parts do not know.
pub(crate) fn render_sandbox_parts(parts: &[SandboxPart]) -> Option<(&'static str, String)> {
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
    Some(("sandbox", text))
}

fn part_name(part: SandboxPart) -> &'static str {
    match part {
        SandboxPart::Landlock => "Landlock",
        SandboxPart::Seccomp => "seccomp",
        SandboxPart::Mount => "mount namespace",
        SandboxPart::Network => "network namespace",
        SandboxPart::ControlGroup => "control group",
        SandboxPart::MemoryLimit => "bounded memory",
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::sandbox::{SandboxLayer, TerminalSize};

    use super::*;

    #[test]
    fn what_a_command_is_kept_to_is_told() {
        let enclosure = Sandbox {
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
        let told: Vec<String> = render_sandbox(&enclosure, &[])
            .into_iter()
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        let expect = [
            "terminal: 80x24",
            "limits: 512M of memory, 60s of processor time, 1 open file for each process",
            "confined: writes /src, /out; reads /data; no TCP",
        ];
        assert_eq!(told, expect);
        assert!(render_sandbox(&Sandbox::default(), &[]).is_empty());
        let told = render_sandbox(&enclosure, &[SandboxPart::MemoryLimit]);
        assert_eq!(told[1].1, "512M of memory for all processes together");
        assert_eq!(told[2].1, "60s of processor time, 1 open file for each process");
    }

    #[test]
    fn the_parts_that_hold_are_told() {
        use SandboxPart::{Landlock, Mount, Network, Seccomp};
        let told = |parts: &[SandboxPart]| render_sandbox_parts(parts).map(|(_, text)| text);
        let all = "Landlock, seccomp, mount namespace, network namespace";
        assert_eq!(told(&[Landlock, Seccomp, Mount, Network]).as_deref(), Some(all));
        let less = told(&[Landlock, Seccomp]).unwrap();
        assert!(less.starts_with("Landlock, seccomp; no mount namespace: it can change"), "{less}");
        assert_eq!(told(&[]), None);
    }
}
