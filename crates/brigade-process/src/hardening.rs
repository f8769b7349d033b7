//! Protection of the daemon's own process against other processes of its user.
#![cfg_attr(
    full_linux,
    expect(unsafe_code, reason = "moves the environment out of the block that the kernel shows")
)]

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

/// More descriptors than any daemon needs; some programs walk through all that they may have.
const FILES_MAX: u64 = 16_384;

/// The limit that this process was started with, once it has been raised.
static ORIGINAL_FILE_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Hides this process's environment and memory from other processes of its user.
///
/// Variables stay readable within the process. The kernel no longer shows them in `/proc/PID/environ`,
/// and other processes without the capability to trace everything can neither trace this one nor look
/// at its descriptors. Only for a process that has one thread yet, because the environment is moved.
pub fn hide_secrets() -> io::Result<()> {
    #[cfg(full_linux)]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("the environment cannot be hidden once threads run"));
        }
        // SAFETY: this is the only thread.
        unsafe { move_environment() };
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}

/// Copies each variable to the heap and overwrites it where it was.
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
    // SAFETY: `environ` is an array of C strings that ends with null, or null itself. Nobody else reads
    // it meanwhile. Each string is replaced before it is overwritten, and is writable: it lies in the
    // block that the kernel made, or on the heap.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let shown = *entry;
            let copy: CString = CStr::from_ptr(shown).to_owned();
            let length = copy.as_bytes().len();
            *entry = copy.into_raw();
            std::ptr::write_bytes(shown, 0, length);
            entry = entry.add(1);
        }
    }
}

/// Raises the number of descriptors that this process may have open. Its shims get the old one back.
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

/// How many descriptors this process may have open.
pub fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(FILES_MAX)
}

/// Gives a child that was just started the limit that this process was started with: programs that
/// still use `select` fail with more.
pub(crate) fn restore_file_limit(of: u32) {
    #[cfg(target_os = "linux")]
    if let Some(limit) = ORIGINAL_FILE_LIMIT.get()
        && let Some(pid) = i32::try_from(of).ok().and_then(Pid::from_raw)
    {
        let limit = Rlimit { current: limit.current, maximum: limit.maximum };
        // A child that has ended needs none.
        let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, limit);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (of, Pid::from_raw);
}
