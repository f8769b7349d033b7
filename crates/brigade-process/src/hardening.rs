//! Protects the daemon's own process from other processes of its user.
#![cfg_attr(
    full_linux,
    expect(unsafe_code, reason = "moves the environment out of the block that the kernel shows")
)]

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

/// The limit of descriptors. Some programs iterate over all that they may have.
const FILES_MAX: u64 = 16_384;

/// The limit at the start of this process, set when it was raised.
static ORIGINAL_FILE_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Closes inherited descriptors, such as a lock of the starting shell. Call it first in `main`: it
/// also closes descriptors that the program has opened.
pub fn close_inherited_descriptors() {
    crate::shim::close_inherited();
}

/// Hides the environment and memory of this process from other processes of its user.
///
/// Variables stay readable within the process, but not in `/proc/PID/environ`. Other processes can
/// neither trace this one nor inspect its descriptors, unless they have the capability to trace
/// every process. Fails if this process has more than one thread, because it moves the environment.
pub fn hide_secrets() -> io::Result<()> {
    #[cfg(full_linux)]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other(
                "the environment cannot be hidden after threads have started",
            ));
        }
        // SAFETY: this is the only thread.
        unsafe { move_environment() };
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}

/// Copies each variable to the heap and overwrites the original.
///
/// # Safety
///
/// No other thread may run.
#[cfg(full_linux)]
unsafe fn move_environment() {
    use std::ffi::{CStr, CString, c_char};
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: `environ` is a null-terminated array of C strings, or null. Nothing else reads it
    // meanwhile. Each string is replaced before it is overwritten. It is writable: it is in the
    // block that the kernel created, or on the heap.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let original = *entry;
            let copy: CString = CStr::from_ptr(original).to_owned();
            let length = copy.as_bytes().len();
            *entry = copy.into_raw();
            std::ptr::write_bytes(original, 0, length);
            entry = entry.add(1);
        }
    }
}

/// Raises the limit of open descriptors of this process. Its shims get the old limit.
pub fn raise_file_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let raised = Rlimit { current: Some(hard.min(FILES_MAX)), maximum: limit.maximum };
    if limit.current.is_some_and(|soft| soft < FILES_MAX) && limit.current != raised.current {
        let _ = ORIGINAL_FILE_LIMIT.set(limit);
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(())
}

/// Returns the limit of open descriptors of this process.
pub fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(FILES_MAX)
}

/// Gives a new child the limit with which this process was started, because programs that use
/// `select` fail with more.
pub(crate) fn restore_file_limit(child: u32) {
    #[cfg(target_os = "linux")]
    if let Some(limit) = ORIGINAL_FILE_LIMIT.get()
        && let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw)
    {
        let limit = Rlimit { current: limit.current, maximum: limit.maximum };
        // Fails only if the child has exited.
        let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, limit);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (child, Pid::from_raw);
}
