//! What a command is started in, and what it is kept to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::clip;
use crate::refusal::Refusal;

/// All of it, as it is kept with a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Enclosure {
    /// A terminal instead of pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Each of them holds: first those of whoever started it, then its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confinement: Vec<Confinement>,
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
pub struct Resources {
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
pub struct Confine {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    #[serde(skip_serializing_if = "Tcp::is_allowed")]
    pub tcp: Tcp,
    #[serde(skip_serializing_if = "Network::is_allowed")]
    pub network: Network,
    /// It may start agents, out of the budget that it is started with. They run outside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agents: bool,
}

/// The same as it was found to be when it was asked for: whole paths without links, the working
/// directory among them. Where the command runs makes no difference to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Tcp::is_allowed")]
    pub tcp: Tcp,
    #[serde(skip_serializing_if = "Network::is_allowed")]
    pub network: Network,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agents: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tcp {
    #[default]
    Allowed,
    Denied,
}

/// Everything that is not a socket of this machine's own: TCP, UDP, the lookup of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    #[default]
    Allowed,
    /// TCP is denied with it, whatever is said of that.
    Denied,
}

impl Enclosure {
    /// As many as fit beside those of whoever confines the runtime itself.
    pub const LAYERS_MAX: usize = 12;
    /// Paths of one confinement.
    pub const PATHS_MAX: usize = 256;

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same, started from inside of another: nothing is looser than there.
    #[must_use]
    pub fn inside(&self, outer: &Self) -> Self {
        let mut confinement = outer.confinement.clone();
        for layer in &self.confinement {
            if !confinement.contains(layer) {
                confinement.push(layer.clone());
            }
        }
        let resources = self.resources.and(&outer.resources);
        Self { terminal: self.terminal, resources, confinement }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.terminal.is_some_and(|size| size.rows == 0 || size.columns == 0) {
            return Err(Refusal::invalid("a terminal has at least one row and one column"));
        }
        self.resources.check()?;
        if self.confinement.len() > Self::LAYERS_MAX {
            let most = Self::LAYERS_MAX;
            return Err(Refusal::invalid(format!(
                "it is confined in more than {most} ways one inside the other; confine it as what \
                 starts it is"
            )));
        }
        self.confinement.iter().try_for_each(Confinement::check)
    }
}

impl Resources {
    const MEMORY_MIN: u64 = 1 << 20;
    const FILES_MIN: u64 = 8;

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Where both have a bound, the smaller one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
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

impl Confinement {
    fn check(&self) -> Result<(), Refusal> {
        if self.read.len() + self.write.len() > Enclosure::PATHS_MAX {
            let most = Enclosure::PATHS_MAX;
            return Err(Refusal::invalid(format!("it is confined to more than {most} paths")));
        }
        for path in self.read.iter().chain(&self.write) {
            if !path.starts_with('/') || path.contains('\0') {
                let clipped = clip(path, 200);
                return Err(Refusal::invalid(format!(
                    "it is confined to {clipped:?}, which is not an absolute path"
                )));
            }
        }
        Ok(())
    }
}

impl Network {
    fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }
}

impl Tcp {
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
            let clipped = clip(text, 50);
            Refusal::invalid(format!("{clipped:?} is no size of a terminal, such as 80x24"))
        })
    }
}

/// Bytes as people write them: `512M`, `2G`, `64k`, or a number.
pub fn bytes(text: &str) -> Result<u64, Refusal> {
    let wrong = || {
        let clipped = clip(text, 50);
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

    fn confined(write: &str) -> Confinement {
        Confinement { write: vec![write.into()], ..Confinement::default() }
    }

    #[test]
    fn inside_of_something_confined_nothing_is_looser() {
        let resources = Resources { memory: Some(5 << 20), cpu_secs: Some(9), open_files: None };
        let outer = Enclosure { resources, confinement: vec![confined("/a")], terminal: None };
        let asked = Resources { memory: Some(6 << 20), cpu_secs: Some(8), open_files: Some(64) };
        let terminal = Some(TerminalSize::default());
        let inner = Enclosure { resources: asked, confinement: vec![confined("/")], terminal };
        let both = inner.inside(&outer);
        assert_eq!(both.confinement, [confined("/a"), confined("/")]);
        let least = Resources { memory: Some(5 << 20), cpu_secs: Some(8), open_files: Some(64) };
        assert_eq!((both.resources, both.terminal), (least, terminal));
        assert_eq!(both.inside(&both).confinement.len(), 2, "the same again adds nothing");
        assert_eq!(Enclosure::default().inside(&outer), outer);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let resources = |resources| Enclosure { resources, ..Enclosure::default() };
        let none = Resources::default();
        let many = (0..13).map(|one| confined(&format!("/{one}"))).collect();
        let table = [
            (resources(Resources { memory: Some(1), ..none }), "1M"),
            (resources(Resources { cpu_secs: Some(0), ..none }), "1s"),
            (resources(Resources { open_files: Some(2), ..none }), "open files"),
            (Enclosure { confinement: vec![confined("a")], ..Enclosure::default() }, "absolute"),
            (Enclosure { confinement: many, ..Enclosure::default() }, "more than 12"),
            (
                Enclosure {
                    terminal: Some(TerminalSize { rows: 0, columns: 1 }),
                    ..Enclosure::default()
                },
                "row",
            ),
        ];
        for (enclosure, expect) in table {
            let refused = enclosure.check().unwrap_err();
            assert!(refused.message.contains(expect), "{}", refused.message);
        }
        assert!(Enclosure::default().check().is_ok());
    }

    #[test]
    fn amounts_and_sizes() {
        for (text, expect) in
            [("512M", 512 << 20), ("2G", 2 << 30), ("64k", 64 << 10), ("7", 7), ("1GiB", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(expect), "{text}");
        }
        for wrong in ["", "M", "-1", "1.5G", "99999999999T", "much"] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
        let size: TerminalSize = "132x43".parse().unwrap();
        assert_eq!((size.columns, size.rows, size.to_string().as_str()), (132, 43, "132x43"));
        for wrong in ["", "80", "80x", "0x24", "80x70000"] {
            assert!(wrong.parse::<TerminalSize>().is_err(), "{wrong:?}");
        }
    }
}
