//! The resident memory of this process.

use std::io;

/// Returns the resident bytes of this process, from `/proc/self/statm`.
pub fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no resident pages"))?;
    Ok(pages * rustix::param::page_size() as u64)
}
