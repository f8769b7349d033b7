//! Random bytes for secrets.

use std::fs::File;
use std::io::{self, Read};

/// Returns random bytes of the kernel.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut random = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random)
}
