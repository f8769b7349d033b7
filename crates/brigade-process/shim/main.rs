//! The companion binary: the shim alone.
//!
//! `build.rs` compiles it with a bare compiler call, so only the standard library is available.
#![no_main]
#![expect(dead_code, reason = "the shim writes files that only the library reads")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// The source that it shares with the library.
#[path = "../src"]
mod source {
    pub(crate) mod shim;
}

/// Runs the shim. The C library calls it, which skips the start of the Rust runtime (stack overflow
/// handler, thread name), which costs as much as the rest of the start.
#[unsafe(no_mangle)]
pub extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let args = (1..count.max(1) as usize).map(|index| -> OsString {
        // SAFETY: the C library passes this many strings, which live as long as the process.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) };
        OsStr::from_bytes(argument.to_bytes()).to_owned()
    });
    source::shim::main(args)
}
