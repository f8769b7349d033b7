//! What tells this boot of this machine, and these pids, from others.

use std::io;

/// The kernel's id of this boot, mixed with what tells this container's pids from those of another:
/// a container that is restarted gives the same pids to others. Zeros where there is none to be had:
/// then only the lock that a shim holds tells whether it lives.
pub fn boot_id() -> io::Result<[u8; 16]> {
    #[cfg(full_linux)]
    {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = parse_boot_id(text.trim()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the boot id is unreadable")
        })?;
        let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let first = crate::shim::procfs::read_stat(1)?.map_or(0, |init| init.start);
        Ok(mix_text(boot, &format!("{} {first}", pids.display())))
    }
    #[cfg(not(full_linux))]
    Ok([0; 16])
}

/// Closes what whoever started this process left open in it, such as the lock of a shell. Only as the
/// first thing that a program does: what it opened itself would be closed too.
pub fn close_inherited_descriptors() {
    crate::shim::close_inherited();
}

/// The user that this process acts as.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A sum of the text, laid over the first half.
#[cfg(any(full_linux, test))]
fn mix_text(mut boot: [u8; 16], text: &str) -> [u8; 16] {
    let sum = crate::shim::fnv::of_bytes(text.as_bytes());
    boot.iter_mut().zip(sum.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
    boot
}

#[cfg(any(full_linux, test))]
fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    if digits.len() != 32 {
        return None;
    }
    Some(std::array::from_fn(|at| (digits[at * 2] << 4 | digits[at * 2 + 1]) as u8))
}

/// As the shim is told it.
pub(crate) fn boot_id_hex(boot: &[u8; 16]) -> String {
    boot.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pids_are_another_boot() {
        let boot = [7; 16];
        assert_ne!(mix_text(boot, "pid:[1] 3"), mix_text(boot, "pid:[1] 4"));
        assert_eq!(mix_text(boot, "pid:[1] 3"), mix_text(boot, "pid:[1] 3"));
    }

    #[test]
    fn a_boot_id_survives_being_told() {
        let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        let boot = parse_boot_id(text).unwrap();
        assert_eq!(boot_id_hex(&boot), text.replace('-', ""));
        for bad in ["", "0f1e", "zz1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"] {
            assert_eq!(parse_boot_id(bad), None);
        }
    }
}
