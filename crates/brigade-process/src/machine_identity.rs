//! The identity of this boot of this machine and of its pid namespace.

use std::io;

/// Returns the kernel's boot id, mixed with an id of the pid namespace. A restarted container gives
/// the same pids to other processes. Returns zeros if the system has no boot id; then only a shim's
/// lock shows that it is alive.
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

/// Closes inherited descriptors, such as a lock of the starting shell. Call it first in `main`: it
/// also closes descriptors that the program has opened.
pub fn close_inherited_descriptors() {
    crate::shim::close_inherited();
}

/// Returns the effective user id of this process.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Mixes a checksum of the text into the first half.
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

/// Formats the boot id for the shim's arguments.
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
    fn a_boot_id_round_trips() {
        let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        let boot = parse_boot_id(text).unwrap();
        assert_eq!(boot_id_hex(&boot), text.replace('-', ""));
        for bad in ["", "0f1e", "zz1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"] {
            assert_eq!(parse_boot_id(bad), None);
        }
    }
}
