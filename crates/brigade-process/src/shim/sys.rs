//! Safe wrappers for the libc functions that the standard library does not offer.
#![expect(unsafe_code, reason = "declares and calls functions of libc")]

use std::ffi::{CStr, CString, OsStr, c_int, c_long, c_ulong};
use std::fs::File;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::environment;
use super::record::ProcessExit;

/// Signal numbers. Those that systems share are written once.
pub(super) mod signal {
    pub(crate) const HUP: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const QUIT: i32 = 3;
    pub(crate) const KILL: i32 = 9;
    pub(crate) const PIPE: i32 = 13;
    pub(crate) const ALRM: i32 = 14;
    pub(crate) const TERM: i32 = 15;
    pub(crate) const TTIN: i32 = 21;
    pub(crate) const TTOU: i32 = 22;
    pub(crate) const XCPU: i32 = 24;
    pub(crate) const XFSZ: i32 = 25;
    #[cfg(target_os = "linux")]
    pub(crate) use linux::*;
    #[cfg(not(target_os = "linux"))]
    pub(crate) use others::*;

    #[cfg(target_os = "linux")]
    mod linux {
        pub(crate) const USR1: i32 = 10;
        pub(crate) const USR2: i32 = 12;
        pub(crate) const CHLD: i32 = 17;
        pub(crate) const CONT: i32 = 18;
        #[cfg(full_linux)]
        pub(crate) const STOP: i32 = 19;
        pub(crate) const TSTP: i32 = 20;
        pub(crate) const IO: i32 = 29;
    }

    #[cfg(not(target_os = "linux"))]
    mod others {
        pub(crate) const TSTP: i32 = 18;
        pub(crate) const CONT: i32 = 19;
        pub(crate) const CHLD: i32 = 20;
        pub(crate) const IO: i32 = 23;
        pub(crate) const USR1: i32 = 30;
        pub(crate) const USR2: i32 = 31;
    }
}

/// Additional flags for `open`.
pub(super) mod flags {
    const IS_LINUX: bool = cfg!(target_os = "linux");
    /// The flag that opens a terminal without making it the controlling terminal.
    pub(crate) const NO_TERMINAL: i32 = if IS_LINUX { 0o400 } else { 0x2_0000 };
    /// The flag that makes reads and writes return an error instead of blocking.
    pub(crate) const NO_WAITING: i32 = if IS_LINUX { 0o4000 } else { 4 };
}

/// Resources with a limit.
pub(super) mod resource {
    const IS_LINUX: bool = cfg!(target_os = "linux");
    pub(crate) const CPU: i32 = 0;
    pub(crate) const OPEN_FILES: i32 = if IS_LINUX { 7 } else { 8 };
    pub(crate) const ADDRESS_SPACE: i32 = if IS_LINUX { 9 } else { 5 };
}

/// An entry of `poll`: readable, writable, or the other end closed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PollEntry {
    fd: c_int,
    events: i16,
    returned_events: i16,
}

impl PollEntry {
    const READABLE: i16 = 1;
    const WRITABLE: i16 = 4;

    /// Polls for reading. A negative descriptor is never ready.
    pub(super) fn new(fd: RawFd) -> Self {
        Self { fd, events: Self::READABLE, returned_events: 0 }
    }

    pub(super) fn writable(fd: RawFd) -> Self {
        Self { fd, events: Self::WRITABLE, returned_events: 0 }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.returned_events != 0
    }

    /// Clears the result after an interrupted wait, for which the kernel has set none.
    pub(super) fn clear(&mut self) {
        self.returned_events = 0;
    }
}

type SignalHandler = extern "C" fn(c_int);
#[cfg(target_os = "linux")]
type PollCount = c_ulong;
#[cfg(not(target_os = "linux"))]
type PollCount = std::ffi::c_uint;
#[cfg(target_os = "linux")]
type FileMode = u32;
#[cfg(not(target_os = "linux"))]
type FileMode = u16;

#[cfg(all(target_env = "gnu", target_pointer_width = "32"))]
type LimitAmount = u32;
#[cfg(not(all(target_env = "gnu", target_pointer_width = "32")))]
type LimitAmount = u64;

/// The limit that causes a signal or an error, and its upper bound.
#[repr(C)]
struct ResourceBounds {
    soft: LimitAmount,
    hard: LimitAmount,
}

/// The size in characters and in pixels. The pixels are unknown.
#[repr(C)]
struct WindowSize {
    rows: u16,
    columns: u16,
    pixels: [u16; 2],
}

/// The time since the start of the machine.
#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

/// As long as the longest known signal set, which is glibc's.
#[repr(C)]
struct SignalSet([c_ulong; 16]);

unsafe extern "C" {
    fn signal(number: c_int, handler: SignalHandler) -> usize;
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn write(fd: c_int, bytes: *const u8, count: usize) -> isize;
    fn poll(entries: *mut PollEntry, count: PollCount, timeout: c_int) -> c_int;
    fn kill(pid: c_int, number: c_int) -> c_int;
    fn mkfifo(path: *const std::ffi::c_char, mode: FileMode) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn getsid(pid: c_int) -> c_int;
    fn setsid() -> c_int;
    fn getrlimit(resource: c_int, bounds: *mut ResourceBounds) -> c_int;
    fn setrlimit(resource: c_int, bounds: *const ResourceBounds) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn grantpt(fd: c_int) -> c_int;
    fn unlockpt(fd: c_int) -> c_int;
    fn ptsname(fd: c_int) -> *const std::ffi::c_char;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

pub(super) fn set_signal_handler(number: i32, handler: SignalHandler) {
    // SAFETY: the handlers only use atomics and `write`, which are allowed in a handler.
    unsafe { signal(number, handler) };
}

pub(super) fn clear_signal_mask() {
    const SET_MASK: c_int = if cfg!(target_os = "linux") { 2 } else { 3 };
    let mut none = SignalSet([0; 16]);
    // SAFETY: the set is as long as that of any system, and the old set is not requested.
    unsafe {
        sigemptyset(&mut none);
        sigprocmask(SET_MASK, &none, std::ptr::null_mut());
    }
}

/// Writes one byte. Safe to call from a signal handler.
pub(super) fn write_byte(fd: RawFd) {
    // SAFETY: one byte is read from a constant that lives during the call.
    unsafe { write(fd, &0, 1) };
}

/// Waits for a ready entry, a signal or the timeout; `None` waits for ever. Returns true after the
/// timeout.
pub(super) fn poll_entries(entries: &mut [PollEntry], milliseconds: Option<i32>) -> bool {
    // SAFETY: the pointer and the count belong to one slice.
    let ready = unsafe {
        poll(entries.as_mut_ptr(), entries.len() as PollCount, milliseconds.unwrap_or(-1))
    };
    if ready < 0 {
        entries.iter_mut().for_each(PollEntry::clear);
    }
    ready == 0
}

/// Returns the time of the monotonic clock, which all processes of the machine share.
pub(super) fn monotonic_milliseconds() -> u64 {
    const MONOTONIC: c_int = if cfg!(target_os = "linux") { 1 } else { 6 };
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the struct has the C library's layout and lives during the call.
    unsafe { clock_gettime(MONOTONIC, &mut time) };
    time.seconds as u64 * 1000 + time.nanoseconds as u64 / 1_000_000
}

/// Sends a signal. A negative pid is a process group.
pub(super) fn send_signal(pid: i32, number: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    check_result(unsafe { kill(pid, number) }).map(drop)
}

pub(super) fn make_fifo(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero and lives during the call.
    check_result(unsafe { mkfifo(path.as_ptr(), 0o600) }).map(drop)
}

/// Reads the byte with which the runtime releases this shim, or the end of the pipe.
pub(super) fn read_gate() {
    let mut byte = [0];
    while let Err(error) = io::stdin().read(&mut byte) {
        if error.kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
}

/// Takes the environment from the file at stdout, if there is one. Then replaces stdin and stdout
/// with the null device.
pub(super) fn take_environment() {
    let variables = read_descriptor(1).ok().and_then(|bytes| environment::decode(&bytes));
    // SAFETY: the shim has one thread. The calls take numbers, and neither stream is used before.
    unsafe {
        if let Some(variables) = variables {
            std::env::vars_os().for_each(|(name, _)| std::env::remove_var(name));
            variables.into_iter().for_each(|(name, value)| std::env::set_var(name, value));
        }
        dup2(2, 0);
        dup2(2, 1);
    }
}

/// Reads a whole file that this process received. Leaves it open and its offset unchanged, because
/// other processes may share it.
pub(super) fn read_descriptor(fd: u32) -> io::Result<Vec<u8>> {
    // SAFETY: the shim received this descriptor, and does not close it here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd as RawFd) });
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match file.read_at(&mut part, bytes.len() as u64)? {
            0 => return Ok(bytes),
            length => bytes.extend_from_slice(&part[..length]),
        }
    }
}

pub(super) fn become_session_leader() {
    // SAFETY: both take no memory. After a failure the shim stays in its starter's session.
    unsafe {
        if getsid(0) != std::process::id() as c_int {
            setsid();
        }
    }
}

/// Limits this process and its descendants, never above an existing limit. Safe between fork and
/// exec.
pub(super) fn set_limit(kind: i32, soft: u64, hard: u64) -> io::Result<()> {
    let mut bounds = ResourceBounds { soft: 0, hard: 0 };
    // SAFETY: the struct is a local that lives during the call.
    check_result(unsafe { getrlimit(kind, &mut bounds) })?;
    let amount = |value: u64| LimitAmount::try_from(value).unwrap_or(LimitAmount::MAX);
    bounds.hard = bounds.hard.min(amount(hard));
    bounds.soft = bounds.hard.min(amount(soft));
    // SAFETY: as above.
    check_result(unsafe { setrlimit(kind, &bounds) }).map(drop)
}

/// Unlocks the child's end of a pseudo-terminal. Returns its path.
pub(super) fn unlock_terminal(shim_end: &File) -> io::Result<PathBuf> {
    let fd = shim_end.as_raw_fd();
    // SAFETY: all take the number of an open descriptor. The next call of `ptsname` would overwrite
    // the name, which is copied at once. The shim has one thread.
    unsafe {
        check_result(grantpt(fd))?;
        check_result(unlockpt(fd))?;
        let name = ptsname(fd);
        if name.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
    }
}

pub(super) fn resize_terminal(terminal: &File, rows: u16, columns: u16) -> io::Result<()> {
    const SET_WINDOW_SIZE: c_ulong = if HAS_PLAIN_IOCTLS { 0x5414 } else { 0x8008_7467 };
    let size = WindowSize { rows, columns, pixels: [0; 2] };
    // SAFETY: the request reads one such struct, which lives during the call.
    check_result(unsafe { ioctl(terminal.as_raw_fd(), SET_WINDOW_SIZE, &size) }).map(drop)
}

/// Makes stdin the controlling terminal of a new session. Safe between fork and exec.
pub(super) fn set_controlling_terminal() -> io::Result<()> {
    const SET_TERMINAL: c_ulong = if cfg!(target_os = "linux") { 0x540e } else { 0x2000_7461 };
    // SAFETY: both take numbers only.
    unsafe {
        check_result(setsid())?;
        check_result(ioctl(0, SET_TERMINAL, 0 as c_int)).map(drop)
    }
}

/// True for most of Linux. Other systems use older ioctl numbers.
const HAS_PLAIN_IOCTLS: bool = cfg!(all(
    target_os = "linux",
    not(any(target_arch = "powerpc", target_arch = "powerpc64", target_arch = "sparc64"))
));

fn check_result(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(not(full_linux))]
pub(super) use posix::*;
#[cfg(not(full_linux))]
mod posix {
    use super::*;

    unsafe extern "C" {
        fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    }

    /// Reaps a child. Returns its exit, or `None` while it runs.
    pub(crate) fn reap(pid: u32) -> Option<ProcessExit> {
        const NO_HANG: c_int = 1;
        let mut status = 0;
        // SAFETY: the status is a local that lives during the call.
        let reaped = unsafe { waitpid(pid as c_int, &mut status, NO_HANG) };
        if reaped <= 0 {
            return None;
        }
        let by_signal = status & 0x7f;
        Some(match by_signal {
            0 => ProcessExit::Code(status >> 8 & 0xff),
            number => ProcessExit::Signal(number),
        })
    }
}

#[cfg(full_linux)]
pub(super) use linux::*;
#[cfg(full_linux)]
mod linux {
    use std::ffi::c_uint;
    use std::os::fd::OwnedFd;

    use super::*;

    /// The head of the kernel's `siginfo_t`, as `waitid` fills it.
    #[repr(C)]
    struct ChildInfo {
        head: [c_int; 2],
        code: c_int,
        #[cfg(target_pointer_width = "64")]
        gap: c_int,
        pid: c_int,
        user: c_uint,
        status: c_int,
        padding: [c_int; 26],
    }

    const NO_HANG: c_int = 1;
    const EXITED: c_int = 4;
    const NO_WAIT: c_int = 0x0100_0000;
    const ANY: c_uint = 0;
    const THIS_PID: c_uint = 1;
    const CLOSE_RANGE: c_long = 436;

    unsafe extern "C" {
        fn waitid(kind: c_uint, id: c_uint, info: *mut ChildInfo, options: c_int) -> c_int;
        fn prctl(option: c_int, ...) -> c_int;
        fn syscall(number: c_long, ...) -> c_long;
    }

    /// The state of all children.
    pub(crate) enum ChildrenState {
        /// This child has ended and is not reaped yet.
        Ended(u32, ProcessExit),
        Alive,
        None,
    }

    /// Finds an ended child without reaping it.
    pub(crate) fn peek_ended_child() -> ChildrenState {
        const CODE: c_int = 1;
        // SAFETY: all fields are integers, for which zeroes are valid.
        let mut info: ChildInfo = unsafe { std::mem::zeroed() };
        // SAFETY: the struct is as long as the kernel's and lives during the call.
        match unsafe { waitid(ANY, 0, &mut info, EXITED | NO_WAIT | NO_HANG) } {
            0 if info.pid == 0 => ChildrenState::Alive,
            0 if info.code == CODE => {
                ChildrenState::Ended(info.pid as u32, ProcessExit::Code(info.status))
            }
            0 => ChildrenState::Ended(info.pid as u32, ProcessExit::Signal(info.status)),
            _ => ChildrenState::None,
        }
    }

    pub(crate) fn reap(pid: u32) {
        // SAFETY: no result is requested.
        unsafe { waitid(THIS_PID, pid, std::ptr::null_mut(), EXITED | NO_HANG) };
    }

    /// Makes this process the subreaper of its descendants.
    pub(crate) fn inherit_orphans() {
        const SET_CHILD_SUBREAPER: c_int = 36;
        // SAFETY: this option takes one number.
        unsafe { prctl(SET_CHILD_SUBREAPER, 1 as c_ulong) };
    }

    /// Closes all descriptors from this one on. An old kernel leaves them open.
    pub(crate) fn close_inherited(first: u32) {
        // SAFETY: the process has opened nothing itself at this time.
        unsafe { syscall(CLOSE_RANGE, first, c_uint::MAX, 0 as c_uint) };
    }

    /// Closes descriptors in every program that is executed.
    pub(crate) fn close_on_exec(first: u32, count: u32) -> io::Result<()> {
        const ON_EXEC: c_uint = 4;
        close_range(first, count, ON_EXEC)
    }

    pub(crate) fn close_fds(first: u32, count: u32) -> io::Result<()> {
        close_range(first, count, 0)
    }

    /// Closes descriptors that this process received and that nothing else owns.
    fn close_range(first: u32, count: u32, flags: c_uint) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: takes three numbers, and nothing owns the closed descriptors.
        let closed = unsafe { syscall(CLOSE_RANGE, first, first + count - 1, flags) };
        check_result(closed as c_int).map(drop)
    }

    /// A Landlock rule for a file, or a directory with its contents. The kernel's struct has no
    /// padding.
    #[repr(C, packed)]
    struct PathRule {
        allowed: u64,
        file: c_int,
    }

    /// Allows sandboxed processes of this ruleset to open this terminal.
    pub(crate) fn allow_terminal(ruleset: u32, terminal: &File) -> io::Result<()> {
        const WRITE: u64 = 1 << 1;
        const READ: u64 = 1 << 2;
        const ASK_DEVICE: u64 = 1 << 15;
        // An older kernel refuses the ioctl right; then the rule is added without it.
        add_rule(ruleset, terminal, READ | WRITE | ASK_DEVICE)
            .or_else(|_| add_rule(ruleset, terminal, READ | WRITE))
    }

    /// Allows sandboxed processes of this ruleset to share memory in this directory.
    pub(crate) fn allow_memory(ruleset: u32, directory: &File) -> io::Result<()> {
        const WRITE: u64 = 1 << 1;
        const READ: u64 = 1 << 2;
        const LIST: u64 = 1 << 3;
        const REMOVE: u64 = 1 << 4 | 1 << 5;
        const MAKE: u64 = 1 << 7 | 1 << 8;
        const TRUNCATE: u64 = 1 << 14;
        add_rule(ruleset, directory, WRITE | READ | LIST | REMOVE | MAKE | TRUNCATE)
    }

    fn add_rule(ruleset: u32, file: &File, allowed: u64) -> io::Result<()> {
        const ADD_RULE: c_long = 445;
        const BENEATH_PATH: c_uint = 1;
        let rule = PathRule { allowed, file: file.as_raw_fd() };
        // SAFETY: the struct has the kernel's layout and lives during the call.
        let added =
            unsafe { syscall(ADD_RULE, ruleset as c_int, BENEATH_PATH, &rule, 0 as c_uint) };
        check_result(added as c_int).map(drop)
    }

    /// Restricts this process and its descendants for ever. Safe between fork and exec.
    pub(crate) fn apply_ruleset(ruleset: u32) -> io::Result<()> {
        const RESTRICT_SELF: c_long = 446;
        // SAFETY: takes two numbers.
        let restricted = unsafe { syscall(RESTRICT_SELF, ruleset as c_int, 0 as c_uint) };
        check_result(restricted as c_int).map(drop)
    }

    /// A process held by a pidfd, even if its pid passes to another one.
    pub(crate) struct ProcessHandle(OwnedFd);

    impl ProcessHandle {
        pub(crate) fn open(pid: u32) -> io::Result<Self> {
            const PIDFD_OPEN: c_long = 434;
            // SAFETY: takes two numbers.
            let fd = unsafe { syscall(PIDFD_OPEN, pid as c_int, 0 as c_uint) };
            let fd = check_result(fd as c_int)?;
            // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
            Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
        }

        pub(crate) fn send_signal(&self, number: i32) -> io::Result<()> {
            const PIDFD_SEND_SIGNAL: c_long = 424;
            let none = std::ptr::null::<ChildInfo>();
            // SAFETY: no signal info is passed, and the descriptor is open.
            let sent = unsafe {
                syscall(PIDFD_SEND_SIGNAL, self.0.as_raw_fd(), number, none, 0 as c_uint)
            };
            check_result(sent as c_int).map(drop)
        }
    }
}
