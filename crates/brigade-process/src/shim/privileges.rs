//! Drops root's capabilities and system calls of a sandboxed process.
#![expect(unsafe_code, reason = "declares and calls functions of libc")]

use std::ffi::{c_int, c_uint, c_ulong, c_ushort, c_void};
use std::io;

const NO_NEW_PRIVILEGES: c_int = 38;
const SET_SECCOMP: c_int = 22;
const READ_BOUNDING_SET: c_int = 23;
const DROP_FROM_BOUNDING_SET: c_int = 24;
const AMBIENT: c_int = 47;

/// chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service: capabilities over
/// its own files and processes. The others (loading modules, tracing, mounting) would bypass the
/// sandbox.
const KEPT_CAPABILITIES: [u32; 8] = [0, 1, 3, 4, 5, 6, 7, 10];
/// More than the kernel has. The kernel reports an error beyond its last one.
const CAPABILITIES: u32 = 64;

const NOT_PERMITTED: i32 = 1;

unsafe extern "C" {
    fn prctl(option: c_int, ...) -> c_int;
    fn capget(header: *mut CapabilityHeader, sets: *mut CapabilitySets) -> c_int;
    fn capset(header: *mut CapabilityHeader, sets: *const CapabilitySets) -> c_int;
    fn getuid() -> c_uint;
    fn geteuid() -> c_uint;
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// One half of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

type CapabilitySets = [CapabilityHalf; 2];

/// Prevents set-uid gains and keeps only the listed capabilities of root. After an error, the
/// process would have more. A user other than root cannot shrink its bounding set, but cannot gain
/// capabilities either. Safe between fork and exec.
pub(super) fn drop_privileges() -> io::Result<()> {
    const CLEAR_ALL: c_ulong = 4;
    let yes: c_ulong = 1;
    let no: c_ulong = 0;
    // SAFETY: all take numbers only.
    let is_root = unsafe {
        check_result(prctl(NO_NEW_PRIVILEGES, yes, no, no, no))?;
        check_result(prctl(AMBIENT, CLEAR_ALL, no, no, no))?;
        getuid() == 0 || geteuid() == 0
    };
    for capability in (0..CAPABILITIES).filter(|capability| !KEPT_CAPABILITIES.contains(capability))
    {
        let number = c_ulong::from(capability);
        // SAFETY: both take numbers only.
        let is_bounded = unsafe {
            prctl(DROP_FROM_BOUNDING_SET, number, no, no, no);
            prctl(READ_BOUNDING_SET, number, no, no, no) != 1
        };
        if is_root && !is_bounded {
            return Err(io::Error::from_raw_os_error(NOT_PERMITTED));
        }
    }
    drop_capabilities()
}

/// Clears the sets too: an executed program of root gets the inheritable set despite the bounding
/// set.
fn drop_capabilities() -> io::Result<()> {
    const VERSION: u32 = 0x2008_0522;
    let mut header = CapabilityHeader { version: VERSION, pid: 0 };
    let mut sets = CapabilitySets::default();
    // SAFETY: the structs have the kernel's layout for this version and live during the call.
    check_result(unsafe { capget(&mut header, &mut sets) })?;
    // All kept capabilities are in the first half.
    let kept = KEPT_CAPABILITIES.iter().fold(0, |bits, capability| bits | 1 << capability);
    for (half, kept) in sets.iter_mut().zip([kept, 0]) {
        half.permitted &= kept;
        half.effective &= kept;
        half.inheritable = 0;
    }
    // SAFETY: as above.
    check_result(unsafe { capset(&mut header, &sets) }).map(drop)
}

/// Installs the filter for all later system calls of this process and its descendants. Safe between
/// fork and exec.
pub(super) fn install_filter(filter: &[u8]) -> io::Result<()> {
    const BY_FILTER: c_ulong = 2;
    const INSTRUCTION_BYTES: usize = 8;
    #[repr(C)]
    struct FilterProgram {
        length: c_ushort,
        instructions: *const c_void,
    }
    let instructions = filter.as_ptr().cast();
    let program =
        FilterProgram { length: (filter.len() / INSTRUCTION_BYTES) as c_ushort, instructions };
    let no: c_ulong = 0;
    // SAFETY: the struct has the kernel's layout, and its bytes live during the call.
    check_result(unsafe { prctl(SET_SECCOMP, BY_FILTER, &program, no, no) }).map(drop)
}

fn check_result(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
