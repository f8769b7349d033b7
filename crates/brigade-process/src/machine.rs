//! What tells this boot of this machine from another.

use std::io;

/// The kernel's id of this boot, or zeros where there is none to be had: then only the lock that a
/// shim holds tells whether it lives.
pub fn boot_id() -> io::Result<[u8; 16]> {
    #[cfg(full_linux)]
    {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        parse(text.trim())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the boot id is unreadable"))
    }
    #[cfg(not(full_linux))]
    Ok([0; 16])
}

#[cfg(any(full_linux, test))]
fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    if digits.len() != 32 {
        return None;
    }
    Some(std::array::from_fn(|at| (digits[at * 2] << 4 | digits[at * 2 + 1]) as u8))
}

/// As the shim is told it.
pub(crate) fn hex(boot: &[u8; 16]) -> String {
    boot.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_survives_being_told() {
        let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        let boot = parse(text).unwrap();
        assert_eq!(hex(&boot), text.replace('-', ""));
        for bad in ["", "0f1e", "zz1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"] {
            assert_eq!(parse(bad), None);
        }
    }
}
