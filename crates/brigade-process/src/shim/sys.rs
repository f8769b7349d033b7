//! The few functions of libc that the standard library does not offer, each behind a safe one.
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

/// Numbers that systems agree on are written once.
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

/// What `open` is told beside what everybody tells it.
pub(super) mod flags {
    const IS_LINUX: bool = cfg!(target_os = "linux");
    /// A terminal that is opened does not become the one that signals come from.
    pub(crate) const NO_TERMINAL: i32 = if IS_LINUX { 0o400 } else { 0x2_0000 };
    /// Reading and writing say that there is nothing to be done instead of waiting.
    pub(crate) const NO_WAITING: i32 = if IS_LINUX { 0o4000 } else { 4 };
}

/// What can be limited.
pub(super) mod resource {
    const IS_LINUX: bool = cfg!(target_os = "linux");
    pub(crate) const CPU: i32 = 0;
    pub(crate) const OPEN_FILES: i32 = if IS_LINUX { 7 } else { 8 };
    pub(crate) const ADDRESS_SPACE: i32 = if IS_LINUX { 9 } else { 5 };
}

/// What `poll` waits for: something to read, room to write, or the other end closed.
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

    /// A negative descriptor is never ready.
    pub(super) fn new(fd: RawFd) -> Self {
        Self { fd, events: Self::READABLE, returned_events: 0 }
    }

    pub(super) fn writable(fd: RawFd) -> Self {
        Self { fd, events: Self::WRITABLE, returned_events: 0 }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.returned_events != 0
    }

    /// After a wait that was interrupted the kernel has said nothing of it.
    pub(super) fn clear(&mut self) {
        self.returned_events = 0;
    }
}

type SignalHandler = extern "C" fn(c_int);
#[cfg(target_os = "linux")]
type PollCount = c_ulong;
#[cfg(not(target_os = "linux"))]
type Count = std::ffi::c_uint;
#[cfg(target_os = "linux")]
type FileMode = u32;
#[cfg(not(target_os = "linux"))]
type Mode = u16;

#[cfg(all(target_env = "gnu", target_pointer_width = "32"))]
type Amount = u32;
#[cfg(not(all(target_env = "gnu", target_pointer_width = "32")))]
type Amount = u64;

/// What is warned of, and what cannot be passed.
#[repr(C)]
struct ResourceBounds {
    soft: Amount,
    hard: Amount,
}

/// In characters, and in pixels, of which nobody knows.
#[repr(C)]
struct WindowSize {
    rows: u16,
    columns: u16,
    pixels: [u16; 2],
}

/// Since the start of the machine.
#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

/// As long as the longest set of signals known, which is glibc's.
#[repr(C)]
struct SignalSet([c_ulong; 16]);

unsafe extern "C" {
    fn signal(number: c_int, handler: SignalHandler) -> usize;
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn write(fd: c_int, bytes: *const u8, count: usize) -> isize;
    fn poll(watches: *mut PollEntry, count: PollCount, timeout: c_int) -> c_int;
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
    // SAFETY: the handlers given only touch atomics and call `write`, which is allowed in one.
    unsafe { signal(number, handler) };
}

pub(super) fn clear_signal_mask() {
    const SET_MASK: c_int = if cfg!(target_os = "linux") { 2 } else { 3 };
    let mut none = SignalSet([0; 16]);
    // SAFETY: the set is as long as that of any system, and no old set is asked for.
    unsafe {
        sigemptyset(&mut none);
        sigprocmask(SET_MASK, &none, std::ptr::null_mut());
    }
}

/// Safe to call from a signal handler.
pub(super) fn write_byte(fd: RawFd) {
    // SAFETY: one byte is read from a local that lives through the call.
    unsafe { write(fd, &0, 1) };
}

/// Waits until one of them is ready, a signal comes, or the time is up. None waits for ever.
/// Returns whether the time was up.
pub(super) fn poll_entries(watches: &mut [PollEntry], milliseconds: Option<i32>) -> bool {
    // SAFETY: the pointer and the count are those of one slice.
    let ready = unsafe {
        poll(watches.as_mut_ptr(), watches.len() as PollCount, milliseconds.unwrap_or(-1))
    };
    if ready < 0 {
        watches.iter_mut().for_each(PollEntry::clear);
    }
    ready == 0
}

/// The time of a clock that nobody sets, and that all processes of the machine share.
pub(super) fn monotonic_milliseconds() -> u64 {
    const MONOTONIC: c_int = if cfg!(target_os = "linux") { 1 } else { 6 };
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the struct is as the C library has it and lives through the call.
    unsafe { clock_gettime(MONOTONIC, &mut time) };
    time.seconds as u64 * 1000 + time.nanoseconds as u64 / 1_000_000
}

/// A negative pid is a process group.
pub(super) fn send_signal(pid: i32, number: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    check_result(unsafe { kill(pid, number) }).map(drop)
}

pub(super) fn make_fifo(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero and lives through the call.
    check_result(unsafe { mkfifo(path.as_ptr(), 0o600) }).map(drop)
}

/// Takes the byte with which the runtime lets this shim go on, or the end that stands for it.
pub(super) fn read_gate() {
    let mut byte = [0];
    while let Err(error) = io::stdin().read(&mut byte) {
        if error.kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
}

/// Takes over the environment that lies at the standard output, if one does, and puts the null device in
/// place of what the shim was handed at its streams.
pub(super) fn take_environment() {
    let variables = read_descriptor(1).ok().and_then(|bytes| environment::decode(&bytes));
    // SAFETY: the shim has one thread. The calls take numbers; neither stream is used before.
    unsafe {
        if let Some(variables) = variables {
            std::env::vars_os().for_each(|(name, _)| std::env::remove_var(name));
            variables.into_iter().for_each(|(name, value)| std::env::set_var(name, value));
        }
        dup2(2, 0);
        dup2(2, 1);
    }
}

/// All of a file that this process was handed, from its beginning. It stays open, and where it is read
/// or written next stays as it is: whoever shares the descriptor does not notice.
pub(super) fn read_descriptor(fd: u32) -> io::Result<Vec<u8>> {
    // SAFETY: the descriptor is one that the shim was handed, and is not closed here.
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
    // SAFETY: both take no memory. A failure leaves the shim in the session it was started in.
    unsafe {
        if getsid(0) != std::process::id() as c_int {
            setsid();
        }
    }
}

/// Bounds this process and what it starts, never above what it is bounded to already. Safe to call
/// between fork and exec.
pub(super) fn set_limit(kind: i32, soft: u64, hard: u64) -> io::Result<()> {
    let mut bounds = ResourceBounds { soft: 0, hard: 0 };
    // SAFETY: the struct is a local that lives through the call.
    check_result(unsafe { getrlimit(kind, &mut bounds) })?;
    let amount = |wanted: u64| Amount::try_from(wanted).unwrap_or(Amount::MAX);
    bounds.hard = bounds.hard.min(amount(hard));
    bounds.soft = bounds.hard.min(amount(soft));
    // SAFETY: the same.
    check_result(unsafe { setrlimit(kind, &bounds) }).map(drop)
}

/// Lets the command's end of a pseudo-terminal be opened, and says where it is.
pub(super) fn unlock_terminal(ours: &File) -> io::Result<PathBuf> {
    let fd = ours.as_raw_fd();
    // SAFETY: all take the number of an open descriptor. The name is in memory that the next call of
    // `ptsname` would overwrite, and is copied at once; the shim has one thread.
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
    // SAFETY: the request reads one such struct, which lives through the call.
    check_result(unsafe { ioctl(terminal.as_raw_fd(), SET_WINDOW_SIZE, &size) }).map(drop)
}

/// The input becomes the terminal of a session that this process leads. Safe between fork and exec.
pub(super) fn set_controlling_terminal() -> io::Result<()> {
    const SET_TERMINAL: c_ulong = if cfg!(target_os = "linux") { 0x540e } else { 0x2000_7461 };
    // SAFETY: both take numbers only.
    unsafe {
        check_result(setsid())?;
        check_result(ioctl(0, SET_TERMINAL, 0 as c_int)).map(drop)
    }
}

/// Most of Linux. The rest and others have the numbers of an older time.
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

    /// The ending of a child, which is reaped with it. None while it lives.
    pub(crate) fn reap(pid: u32) -> Option<ProcessExit> {
        const NO_HANG: c_int = 1;
        let mut status = 0;
        // SAFETY: the status is a local that lives through the call.
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

    /// The head of the kernel's `siginfo_t` as `waitid` fills it.
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

    /// What there is to know of the children.
    pub(crate) enum ChildrenState {
        /// This one has ended and is not reaped yet.
        Ended(u32, ProcessExit),
        Alive,
        None,
    }

    /// Looks for a child that has ended, without reaping it.
    pub(crate) fn peek_ended_child() -> ChildrenState {
        const CODE: c_int = 1;
        // SAFETY: all its fields are integers, for which zeroes are a value.
        let mut info: ChildInfo = unsafe { std::mem::zeroed() };
        // SAFETY: the struct is as long as the kernel's and lives through the call.
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
        // SAFETY: nothing is asked to be filled in.
        unsafe { waitid(THIS_PID, pid, std::ptr::null_mut(), EXITED | NO_HANG) };
    }

    /// What is left behind below becomes a child of this process, not of init.
    pub(crate) fn inherit_orphans() {
        const SET_CHILD_SUBREAPER: c_int = 36;
        // SAFETY: this option takes one number.
        unsafe { prctl(SET_CHILD_SUBREAPER, 1 as c_ulong) };
    }

    /// Closes all descriptors from this one on. A kernel that cannot do it leaves them open.
    pub(crate) fn close_inherited(first: u32) {
        // SAFETY: at this time the process has opened nothing itself.
        unsafe { syscall(CLOSE_RANGE, first, c_uint::MAX, 0 as c_uint) };
    }

    /// What a command that is executed does not get to see.
    pub(crate) fn close_on_exec(first: u32, count: u32) -> io::Result<()> {
        const ON_EXEC: c_uint = 4;
        close_range(first, count, ON_EXEC)
    }

    pub(crate) fn close_fds(first: u32, count: u32) -> io::Result<()> {
        close_range(first, count, 0)
    }

    /// Of descriptors that this process was handed and that nothing else in it owns.
    fn close_range(first: u32, count: u32, flags: c_uint) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: takes three numbers, and nobody believes to own what is closed.
        let closed = unsafe { syscall(CLOSE_RANGE, first, first + count - 1, flags) };
        check_result(closed as c_int).map(drop)
    }

    /// What a rule of Landlock is about: a file or all below a directory. The kernel's has no gap.
    #[repr(C, packed)]
    struct PathRule {
        allowed: u64,
        file: c_int,
    }

    /// Lets whoever is confined by the ruleset open this terminal.
    pub(crate) fn allow_terminal(ruleset: u32, terminal: &File) -> io::Result<()> {
        const WRITE: u64 = 1 << 1;
        const READ: u64 = 1 << 2;
        const ASK_DEVICE: u64 = 1 << 15;
        // Refused by a kernel that does not know it, and then allowed without.
        add_rule(ruleset, terminal, READ | WRITE | ASK_DEVICE)
            .or_else(|_| add_rule(ruleset, terminal, READ | WRITE))
    }

    /// Lets whoever is confined by the ruleset share memory in this directory.
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
        // SAFETY: the struct is as the kernel has it and lives through the call.
        let added =
            unsafe { syscall(ADD_RULE, ruleset as c_int, BENEATH_PATH, &rule, 0 as c_uint) };
        check_result(added as c_int).map(drop)
    }

    /// Confines this process, and all that it ever starts, for good. Safe between fork and exec.
    pub(crate) fn apply_ruleset(ruleset: u32) -> io::Result<()> {
        const RESTRICT_SELF: c_long = 446;
        // SAFETY: takes two numbers.
        let restricted = unsafe { syscall(RESTRICT_SELF, ruleset as c_int, 0 as c_uint) };
        check_result(restricted as c_int).map(drop)
    }

    /// A process that stays the same one even when its pid goes to another.
    pub(crate) struct ProcessHandle(OwnedFd);

    impl ProcessHandle {
        pub(crate) fn open(pid: u32) -> io::Result<Self> {
            const PIDFD_OPEN: c_long = 434;
            // SAFETY: takes two numbers.
            let fd = unsafe { syscall(PIDFD_OPEN, pid as c_int, 0 as c_uint) };
            let fd = check_result(fd as c_int)?;
            // SAFETY: the kernel has just made this descriptor, nobody else knows it.
            Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
        }

        pub(crate) fn send_signal(&self, number: i32) -> io::Result<()> {
            const PIDFD_SEND_SIGNAL: c_long = 424;
            let none = std::ptr::null::<ChildInfo>();
            // SAFETY: no details of the signal are given, and the descriptor is open.
            let sent = unsafe {
                syscall(PIDFD_SEND_SIGNAL, self.0.as_raw_fd(), number, none, 0 as c_uint)
            };
            check_result(sent as c_int).map(drop)
        }
    }
}
