//! Layers, limits and terminal of a process, passed to the shim in one argument.

use std::fmt;

/// The descriptor of the first ruleset, right after the three streams. The file with the other
/// parts of the sandbox follows the last ruleset.
pub(crate) const FIRST_RULESET: u32 = 3;
/// The most rulesets. The kernel allows a few more, which are left for outer sandboxes.
pub const LAYERS_MAX: usize = 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchSettings {
    /// The number of Landlock rulesets that the shim receives. All of them apply.
    pub layers: u32,
    pub limits: ProcessLimits,
    /// A terminal instead of pipes.
    pub terminal: Option<PtySize>,
}

/// The limits of each single process. The kernel does not add them up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// The bytes of address space.
    pub memory: Option<u64>,
    /// The seconds of processor time.
    pub cpu_seconds: Option<u64>,
    pub open_files: Option<u64>,
}

/// The size of a pseudo-terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtySize {
    pub rows: u16,
    pub columns: u16,
}

impl LaunchSettings {
    /// Returns the number of descriptors that the shim receives: the rulesets, and the file after
    /// them.
    pub(super) fn descriptor_count(&self) -> u32 {
        if self.layers == 0 { 0 } else { self.layers + 1 }
    }

    /// Returns true if the child has nothing to apply between fork and exec.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for part in text.split(' ').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            match name {
                "layers" => parsed.layers = value.parse().ok()?,
                "memory" => parsed.limits.memory = Some(value.parse().ok()?),
                "cpu" => parsed.limits.cpu_seconds = Some(value.parse().ok()?),
                "files" => parsed.limits.open_files = Some(value.parse().ok()?),
                "terminal" => {
                    let (rows, columns) = value.split_once('x')?;
                    let size = PtySize { rows: rows.parse().ok()?, columns: columns.parse().ok()? };
                    parsed.terminal = Some(size);
                }
                // A shim that does not know a restriction must not start the process.
                _ => return None,
            }
        }
        (parsed.layers as usize <= LAYERS_MAX).then_some(parsed)
    }
}

impl fmt::Display for LaunchSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessLimits { memory, cpu_seconds, open_files } = self.limits;
        let limits = [("memory", memory), ("cpu", cpu_seconds), ("files", open_files)];
        write!(f, "layers={}", self.layers)?;
        for (name, limit) in limits {
            if let Some(limit) = limit {
                write!(f, " {name}={limit}")?;
            }
        }
        match self.terminal {
            Some(PtySize { rows, columns }) => write!(f, " terminal={rows}x{columns}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip() {
        let all = LaunchSettings {
            layers: 2,
            limits: ProcessLimits {
                memory: Some(1 << 40),
                cpu_seconds: Some(60),
                open_files: Some(256),
            },
            terminal: Some(PtySize { rows: 24, columns: 80 }),
        };
        for given in [all, LaunchSettings { terminal: None, ..all }, LaunchSettings::default()] {
            assert_eq!(LaunchSettings::parse(&given.to_string()), Some(given));
        }
        assert_eq!(LaunchSettings::parse(""), Some(LaunchSettings::default()));
    }

    #[test]
    fn unknown_settings_are_refused() {
        for wrong in ["layers", "layers=-1", "layers=13", "memory=1k", "terminal=24", "jail=1"] {
            assert_eq!(LaunchSettings::parse(wrong), None, "{wrong}");
        }
    }
}
