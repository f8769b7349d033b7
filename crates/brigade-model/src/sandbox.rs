//! The sandbox of a process: terminal, resource limits and layers of access restrictions.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::truncate::truncate_chars;

/// A sandbox as stored with a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    /// A terminal instead of pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    #[serde(skip_serializing_if = "ResourceLimits::is_empty")]
    pub resources: ResourceLimits,
    /// The layers, which all apply: first those of the task that started it, then its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<SandboxLayer>,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// The limits of each process of a command line. Two processes may use twice as much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceLimits {
    /// Bytes of address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Seconds of processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_secs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// A sandbox as requested: its working directory is writable, the system is readable, and these
/// paths are added. Paths are absolute, begin with `~/`, or are relative to the working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxRequest {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    #[serde(skip_serializing_if = "TcpPolicy::is_allowed")]
    pub tcp: TcpPolicy,
    #[serde(skip_serializing_if = "NetworkPolicy::is_allowed")]
    pub network: NetworkPolicy,
    /// True if it may start agents, within its own budget. They run outside the sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agents: bool,
}

/// A sandbox as resolved when it was requested: canonical paths, the working directory among them.
/// It does not depend on the current directory of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxLayer {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<Arc<str>>,
    /// Paths to write too, but without links, pipes and sockets: the shared directories of git.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write_plain: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "TcpPolicy::is_allowed")]
    pub tcp: TcpPolicy,
    #[serde(skip_serializing_if = "NetworkPolicy::is_allowed")]
    pub network: NetworkPolicy,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agents: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcpPolicy {
    #[default]
    Allowed,
    Denied,
}

/// The policy for all sockets except local ones: TCP, UDP, name lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    #[default]
    Allowed,
    /// Denies TCP too, regardless of the [`TcpPolicy`].
    Denied,
}

impl Sandbox {
    /// The maximum number of layers. The kernel allows more; the others are for sandboxes around
    /// the runtime itself.
    pub const LAYERS_MAX: usize = 12;
    /// The maximum number of paths in one layer.
    pub const PATHS_MAX: usize = 256;

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this sandbox nested in `outer`, so that nothing is less restricted than there.
    #[must_use]
    pub fn nested_in(&self, outer: &Self) -> Self {
        let mut layers = outer.layers.clone();
        for layer in &self.layers {
            if !layers.contains(layer) {
                layers.push(layer.clone());
            }
        }
        let resources = self.resources.intersect(&outer.resources);
        Self { terminal: self.terminal, resources, layers }
    }

    /// Returns whether a process in it can serve no TCP port of the machine.
    pub(crate) fn denies_tcp(&self) -> bool {
        self.layers.iter().any(|layer| !layer.tcp.is_allowed() || !layer.network.is_allowed())
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.terminal.is_some_and(|size| size.rows == 0 || size.columns == 0) {
            return Err(Refusal::invalid("a terminal has at least one row and one column"));
        }
        self.resources.check()?;
        if self.layers.len() > Self::LAYERS_MAX {
            let max = Self::LAYERS_MAX;
            return Err(Refusal::invalid(format!(
                "the sandbox has more than {max} layers; use the sandbox of the task that starts it"
            )));
        }
        self.layers.iter().try_for_each(SandboxLayer::check)
    }
}

impl ResourceLimits {
    const MEMORY_MIN: u64 = 1 << 20;
    const FILES_MIN: u64 = 8;

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the smaller limit where both have one.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let smaller = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            memory: smaller(self.memory, other.memory),
            cpu_secs: smaller(self.cpu_secs, other.cpu_secs),
            open_files: smaller(self.open_files, other.open_files),
        }
    }

    /// Refuses limits with which no program could start.
    pub fn check(&self) -> Result<(), Refusal> {
        let low = |subject: &str, min: &str| {
            Err(Refusal::invalid(format!(
                "the limit on {subject} is too low: the minimum is {min}"
            )))
        };
        if self.memory.is_some_and(|bytes| bytes < Self::MEMORY_MIN) {
            return low("memory", "1M");
        }
        if self.cpu_secs == Some(0) {
            return low("processor time", "1s");
        }
        if self.open_files.is_some_and(|files| files < Self::FILES_MIN) {
            return low("open files", "8");
        }
        Ok(())
    }
}

impl SandboxLayer {
    fn check(&self) -> Result<(), Refusal> {
        let paths = || self.read.iter().chain(&self.write).chain(&self.write_plain);
        if paths().count() > Sandbox::PATHS_MAX {
            let max = Sandbox::PATHS_MAX;
            return Err(Refusal::invalid(format!("a sandbox layer has more than {max} paths")));
        }
        for path in paths() {
            if !path.starts_with('/') || path.contains('\0') {
                let shown = truncate_chars(path, 200);
                return Err(Refusal::invalid(format!(
                    "the sandbox path {shown:?} is not an absolute path"
                )));
            }
        }
        Ok(())
    }
}

impl NetworkPolicy {
    fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }
}

impl TcpPolicy {
    fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, columns: 80 }
    }
}

impl fmt::Display for TerminalSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.columns, self.rows)
    }
}

/// Parses `80x24`, columns first.
impl FromStr for TerminalSize {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parsed = text.split_once('x').and_then(|(columns, rows)| {
            let columns = columns.parse().ok()?;
            let rows = rows.parse().ok()?;
            (columns > 0 && rows > 0).then_some(Self { rows, columns })
        });
        parsed.ok_or_else(|| {
            let shown = truncate_chars(text, 50);
            Refusal::invalid(format!(
                "{shown:?} is not a terminal size; write columns and rows, such as 80x24"
            ))
        })
    }
}

/// Parses a number of bytes: `512M`, `2G`, `64k`, or a plain number.
pub fn parse_bytes(text: &str) -> Result<u64, Refusal> {
    let wrong = || {
        let shown = truncate_chars(text, 50);
        Refusal::invalid(format!(
            "{shown:?} is not a size; write bytes, or a number with K, M, G or T, such as 512M"
        ))
    };
    let letters = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (digits, times) = match letters.char_indices().last() {
        Some((at, 'k' | 'K')) => (&letters[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&letters[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&letters[..at], 1 << 30),
        Some((at, 't' | 'T')) => (&letters[..at], 1 << 40),
        _ => (letters, 1),
    };
    let amount: u64 = digits.trim().parse().map_err(|_| wrong())?;
    amount.checked_mul(times).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_writing(write: &str) -> SandboxLayer {
        SandboxLayer { write: vec![write.into()], ..SandboxLayer::default() }
    }

    #[test]
    fn a_nested_sandbox_is_never_less_restricted() {
        let resources =
            ResourceLimits { memory: Some(5 << 20), cpu_secs: Some(9), open_files: None };
        let outer = Sandbox { resources, layers: vec![layer_writing("/a")], terminal: None };
        let asked =
            ResourceLimits { memory: Some(6 << 20), cpu_secs: Some(8), open_files: Some(64) };
        let terminal = Some(TerminalSize::default());
        let inner = Sandbox { resources: asked, layers: vec![layer_writing("/")], terminal };
        let both = inner.nested_in(&outer);
        assert_eq!(both.layers, [layer_writing("/a"), layer_writing("/")]);
        let smaller =
            ResourceLimits { memory: Some(5 << 20), cpu_secs: Some(8), open_files: Some(64) };
        assert_eq!((both.resources, both.terminal), (smaller, terminal));
        assert_eq!(both.nested_in(&both).layers.len(), 2, "a repeated layer adds nothing");
        assert_eq!(Sandbox::default().nested_in(&outer), outer);
    }

    #[test]
    fn impossible_sandboxes_are_refused() {
        let resources = |resources| Sandbox { resources, ..Sandbox::default() };
        let none = ResourceLimits::default();
        let many = (0..13).map(|one| layer_writing(&format!("/{one}"))).collect();
        let table = [
            (resources(ResourceLimits { memory: Some(1), ..none }), "1M"),
            (resources(ResourceLimits { cpu_secs: Some(0), ..none }), "1s"),
            (resources(ResourceLimits { open_files: Some(2), ..none }), "open files"),
            (Sandbox { layers: vec![layer_writing("a")], ..Sandbox::default() }, "absolute"),
            (Sandbox { layers: many, ..Sandbox::default() }, "more than 12"),
            (
                Sandbox {
                    terminal: Some(TerminalSize { rows: 0, columns: 1 }),
                    ..Sandbox::default()
                },
                "row",
            ),
        ];
        for (sandbox, expect) in table {
            let refused = sandbox.check().unwrap_err();
            assert!(refused.message.contains(expect), "{}", refused.message);
        }
        assert!(Sandbox::default().check().is_ok());
    }

    #[test]
    fn byte_counts_and_terminal_sizes_are_parsed() {
        for (text, expect) in
            [("512M", 512 << 20), ("2G", 2 << 30), ("64k", 64 << 10), ("7", 7), ("1GiB", 1 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(expect), "{text}");
        }
        for wrong in ["", "M", "-1", "1.5G", "99999999999T", "much"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong:?}");
        }
        let size: TerminalSize = "132x43".parse().unwrap();
        assert_eq!((size.columns, size.rows, size.to_string().as_str()), (132, 43, "132x43"));
        for wrong in ["", "80", "80x", "0x24", "80x70000"] {
            assert!(wrong.parse::<TerminalSize>().is_err(), "{wrong:?}");
        }
    }
}
