//! The companion binary: nothing but the shim.
//!
//! Built by `build.rs` with a bare compiler call, so only the standard library is at hand.
#![no_main]
#![expect(dead_code, reason = "the shim writes files that only the library reads")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// The source that it shares with the library.
#[path = "../src"]
mod source {
    pub(crate) mod shim;
}

/// Called by the C library. Without the runtime of the standard library there is no handler for
/// stack overflows to set up and no thread to name, which costs as much as the rest of the start.
#[unsafe(no_mangle)]
pub extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let given = (1..count.max(1) as usize).map(|at| -> OsString {
        // SAFETY: the C library passes this many strings, which live as long as the process.
        let argument = unsafe { CStr::from_ptr(*arguments.add(at)) };
        OsStr::from_bytes(argument.to_bytes()).to_owned()
    });
    source::shim::main(given)
}
