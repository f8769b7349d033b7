//! The identity of a boot.

/// The identity of one boot of one machine, and of a pid namespace on it. Pids and start times of
/// another boot mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// Parses 32 hex digits, with or without hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
        let digits: Vec<u32> = digits.collect::<Option<_>>()?;
        if digits.len() != 32 {
            return None;
        }
        Some(Self(std::array::from_fn(|at| (digits[at * 2] << 4 | digits[at * 2 + 1]) as u8)))
    }

    /// Formats the id as 32 hex digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_round_trips() {
        let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        let boot = BootId::parse(text).unwrap();
        assert_eq!(boot.to_hex(), text.replace('-', ""));
        assert_eq!(BootId::parse(&boot.to_hex()), Some(boot));
        for bad in ["", "0f1e", "zz1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"] {
            assert_eq!(BootId::parse(bad), None);
        }
    }
}
