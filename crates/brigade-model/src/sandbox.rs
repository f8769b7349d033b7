//! What a command is started in, and what it is kept to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::truncate;
use crate::refusal::Refusal;

/// All of it, as it is kept with a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    /// A terminal instead of pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    #[serde(skip_serializing_if = "ResourceLimits::is_empty")]
    pub resources: ResourceLimits,
    /// Each of them holds: first those of whoever started it, then its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<SandboxLayer>,
}

/// In characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// What each process of a command may use; two of them may use twice as much.
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

/// What a command may reach, as it is asked for: its working directory to read and write, the system to
/// read, and these. Paths are absolute, begin with `~/`, or are relative to the working directory.
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
    /// It may start agents, out of the budget that it is started with. They run outside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agents: bool,
}

/// The same as it was found to be when it was asked for: whole paths without links, the working
/// directory among them. Where the command runs makes no difference to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxLayer {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<Arc<str>>,
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

/// Everything that is not a socket of this machine's own: TCP, UDP, the lookup of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    #[default]
    Allowed,
    /// TCP is denied with it, whatever is said of that.
    Denied,
}

impl Sandbox {
    /// As many as fit beside those of whoever confines the runtime itself.
    pub const LAYERS_MAX: usize = 12;
    /// Paths of one confinement.
    pub const PATHS_MAX: usize = 256;

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same, started from inside of another: nothing is looser than there.
    #[must_use]
    pub fn nested_in(&self, outer: &Self) -> Self {
        let mut confinement = outer.layers.clone();
        for layer in &self.layers {
            if !confinement.contains(layer) {
                confinement.push(layer.clone());
            }
        }
        let resources = self.resources.intersect(&outer.resources);
        Self { terminal: self.terminal, resources, layers: confinement }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.terminal.is_some_and(|size| size.rows == 0 || size.columns == 0) {
            return Err(Refusal::invalid("a terminal has at least one row and one column"));
        }
        self.resources.check()?;
        if self.layers.len() > Self::LAYERS_MAX {
            let most = Self::LAYERS_MAX;
            return Err(Refusal::invalid(format!(
                "it is confined in more than {most} ways one inside the other; confine it as what \
                 starts it is"
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

    /// Where both have a bound, the smaller one.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            memory: least(self.memory, other.memory),
            cpu_secs: least(self.cpu_secs, other.cpu_secs),
            open_files: least(self.open_files, other.open_files),
        }
    }

    /// Refuses what no program could start with.
    pub fn check(&self) -> Result<(), Refusal> {
        let low = |what: &str, least: &str| {
            Err(Refusal::invalid(format!("the limit on {what} is too low: {least} is the least")))
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
        if self.read.len() + self.write.len() > Sandbox::PATHS_MAX {
            let most = Sandbox::PATHS_MAX;
            return Err(Refusal::invalid(format!("it is confined to more than {most} paths")));
        }
        for path in self.read.iter().chain(&self.write) {
            if !path.starts_with('/') || path.contains('\0') {
                let clipped = truncate(path, 200);
                return Err(Refusal::invalid(format!(
                    "it is confined to {clipped:?}, which is not an absolute path"
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

/// As people write it: `80x24`, the columns first.
impl FromStr for TerminalSize {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parsed = text.split_once('x').and_then(|(columns, rows)| {
            let (columns, rows) = (columns.parse().ok()?, rows.parse().ok()?);
            (columns > 0 && rows > 0).then_some(Self { rows, columns })
        });
        parsed.ok_or_else(|| {
            let clipped = truncate(text, 50);
            Refusal::invalid(format!("{clipped:?} is no size of a terminal, such as 80x24"))
        })
    }
}

/// Bytes as people write them: `512M`, `2G`, `64k`, or a number.
pub fn parse_bytes(text: &str) -> Result<u64, Refusal> {
    let wrong = || {
        let clipped = truncate(text, 50);
        Refusal::invalid(format!(
            "{clipped:?} is no size; write bytes, or a number with K, M, G or T, such as 512M"
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

    fn confined(write: &str) -> SandboxLayer {
        SandboxLayer { write: vec![write.into()], ..SandboxLayer::default() }
    }

    #[test]
    fn inside_of_something_confined_nothing_is_looser() {
        let resources =
            ResourceLimits { memory: Some(5 << 20), cpu_secs: Some(9), open_files: None };
        let outer = Sandbox { resources, layers: vec![confined("/a")], terminal: None };
        let asked =
            ResourceLimits { memory: Some(6 << 20), cpu_secs: Some(8), open_files: Some(64) };
        let terminal = Some(TerminalSize::default());
        let inner = Sandbox { resources: asked, layers: vec![confined("/")], terminal };
        let both = inner.nested_in(&outer);
        assert_eq!(both.layers, [confined("/a"), confined("/")]);
        let least =
            ResourceLimits { memory: Some(5 << 20), cpu_secs: Some(8), open_files: Some(64) };
        assert_eq!((both.resources, both.terminal), (least, terminal));
        assert_eq!(both.nested_in(&both).layers.len(), 2, "the same again adds nothing");
        assert_eq!(Sandbox::default().nested_in(&outer), outer);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let resources = |resources| Sandbox { resources, ..Sandbox::default() };
        let none = ResourceLimits::default();
        let many = (0..13).map(|one| confined(&format!("/{one}"))).collect();
        let table = [
            (resources(ResourceLimits { memory: Some(1), ..none }), "1M"),
            (resources(ResourceLimits { cpu_secs: Some(0), ..none }), "1s"),
            (resources(ResourceLimits { open_files: Some(2), ..none }), "open files"),
            (Sandbox { layers: vec![confined("a")], ..Sandbox::default() }, "absolute"),
            (Sandbox { layers: many, ..Sandbox::default() }, "more than 12"),
            (
                Sandbox {
                    terminal: Some(TerminalSize { rows: 0, columns: 1 }),
                    ..Sandbox::default()
                },
                "row",
            ),
        ];
        for (enclosure, expect) in table {
            let refused = enclosure.check().unwrap_err();
            assert!(refused.message.contains(expect), "{}", refused.message);
        }
        assert!(Sandbox::default().check().is_ok());
    }

    #[test]
    fn amounts_and_sizes() {
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
