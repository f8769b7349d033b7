//! What a command is started in, and what it is kept to: as a shim is told it, in one word.

use std::fmt;

/// Where the first of the rulesets lies that a shim is handed, right after the three streams. After the
/// last one follows the file with the rest of the sandbox.
pub(crate) const FIRST_RULESET: u32 = 3;
/// As many rulesets as the kernel stacks, less a few for whoever is confined already.
pub const LAYERS_MAX: usize = 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchSettings {
    /// Rulesets of Landlock that the shim has open, each of which is to hold.
    pub layers: u32,
    pub limits: ProcessLimits,
    /// Instead of pipes.
    pub terminal: Option<PtySize>,
}

/// What each process of the command may use. The kernel counts them one by one, not together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
    pub open_files: Option<u64>,
}

/// A pseudo-terminal of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtySize {
    pub rows: u16,
    pub columns: u16,
}

impl LaunchSettings {
    /// Descriptors that the shim is handed: the rulesets, and the file after them.
    pub(super) fn descriptor_count(&self) -> u32 {
        if self.layers == 0 { 0 } else { self.layers + 1 }
    }

    /// Nothing has to be done between fork and exec.
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
                    let (rows, columns) = (rows.parse().ok()?, columns.parse().ok()?);
                    parsed.terminal = Some(PtySize { rows, columns });
                }
                // A shim that does not know what it is to keep a command to must not start it.
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
    fn surroundings_are_understood_as_they_were_told() {
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
    fn what_is_not_understood_is_refused() {
        for wrong in ["layers", "layers=-1", "layers=13", "memory=1k", "terminal=24", "jail=1"] {
            assert_eq!(LaunchSettings::parse(wrong), None, "{wrong}");
        }
    }
}
