//! The namespaces of a sandboxed process, created by the shim's child before it executes anything.
//!
//! An ordinary user needs a user namespace to create the others. In it, the user keeps its id. Root
//! gets no user namespace, because it would gain capabilities in it.
//!
//! The layers are mounted one after the other in one mount namespace. Each takes its sources from
//! the result of the previous one and makes nothing writable again. So a later layer never widens
//! an earlier one.
#![expect(unsafe_code, reason = "declares and calls functions of libc")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::sandbox::{BindAccess, MountLayer, MountStep, SandboxNamespaces};
use super::sys;

const OPEN_TREE: c_long = 428;
const MOVE_MOUNT: c_long = 429;
const FSOPEN: c_long = 430;
const FSCONFIG: c_long = 431;
const FSMOUNT: c_long = 432;
const OPENAT2: c_long = 437;
const MOUNT_SETATTR: c_long = 442;

const CURRENT_DIRECTORY: c_int = -100;
const EMPTY_PATH: c_uint = 0x1000;
const RECURSIVE: c_uint = 0x8000;
const CLOSE_ON_EXEC: c_uint = 0o2000000;
const READ_ONLY: u64 = 1;
const NO_SET_UID: u64 = 2;
const NO_DEVICES: u64 = 4;
const NOT_FOUND: i32 = 2;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn unshare(flags: c_int) -> c_int;
    fn geteuid() -> c_uint;
    fn getegid() -> c_uint;
}

/// The argument of `mount_setattr`.
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// The argument of `openat2`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Moves this process into new namespaces. After an error, nothing must be executed.
pub(super) fn unshare_namespaces(namespaces: SandboxNamespaces) -> io::Result<()> {
    const MOUNTS: c_int = 0x0002_0000;
    const IPC: c_int = 0x0800_0000;
    const USERS: c_int = 0x1000_0000;
    const NETWORK: c_int = 0x4000_0000;
    let mut flags = 0;
    if namespaces.mount {
        flags |= MOUNTS | IPC;
    }
    if namespaces.network {
        flags |= NETWORK;
    }
    if flags == 0 {
        return Ok(());
    }
    // SAFETY: takes no arguments.
    let user = unsafe { geteuid() };
    // SAFETY: as above.
    let group = unsafe { getegid() };
    if user != 0 {
        flags |= USERS;
    }
    // SAFETY: takes a number. The shim has one thread, so nothing else sees the change.
    check_result(unsafe { unshare(flags) }.into())?;
    if user != 0 {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    if namespaces.mount {
        make_mounts_private()?;
    }
    Ok(())
}

/// Mounts all layers. The Landlock `rulesets` get a rule for each memory directory created here.
pub(super) fn mount_all_layers(
    layers: &[MountLayer],
    rulesets: std::ops::Range<u32>,
) -> io::Result<()> {
    for (depth, layer) in layers.iter().enumerate() {
        let sources = open_sources(layer, depth)?;
        set_attributes(CURRENT_DIRECTORY, c"/", RECURSIVE, READ_ONLY)?;
        let mut hidden = Vec::new();
        for (step, source) in layer.steps.iter().zip(sources) {
            match step {
                MountStep::Hide(at) => hidden.extend(cover_with_tmpfs(at)?),
                MountStep::Memory(at) => {
                    if let Some(memory) = cover_with_tmpfs(at)? {
                        let mut rulesets = rulesets.clone();
                        rulesets.try_for_each(|ruleset| sys::allow_memory(ruleset, &memory))?;
                    }
                }
                MountStep::Link { at, target } => std::os::unix::fs::symlink(target, at)?,
                MountStep::Bind { at, .. } => {
                    if let Some(source) = source {
                        place_source(&source, at)?;
                    }
                }
            }
        }
        for mount in hidden {
            set_attributes(mount.as_raw_fd(), c"", EMPTY_PATH, READ_ONLY)?;
        }
    }
    Ok(())
}

/// Tries to change mounts and to leave the network, in a process that does nothing else.
pub(super) fn probe() -> [io::Result<()>; 2] {
    let mounted =
        unshare_namespaces(SandboxNamespaces { mount: true, network: false }).and_then(|()| {
            let root = "/".into();
            let source =
                MountStep::Bind { source: "/usr".into(), at: root, access: BindAccess::Read };
            let layer = MountLayer { steps: vec![source] };
            open_sources(&layer, 0)?;
            set_attributes(CURRENT_DIRECTORY, c"/", RECURSIVE, READ_ONLY)?;
            cover_with_tmpfs(Path::new("/dev")).map(drop)
        });
    let unshared_network = match &mounted {
        // The user namespace exists already, if one was needed.
        Ok(()) => {
            const NETWORK: c_int = 0x4000_0000;
            // SAFETY: takes a number.
            check_result(unsafe { unshare(NETWORK) }.into()).map(drop)
        }
        Err(_) => unshare_namespaces(SandboxNamespaces { mount: false, network: true }),
    };
    [mounted, unshared_network]
}

/// Detaches mount propagation, so that later mounts outside are not seen here, and vice versa.
fn make_mounts_private() -> io::Result<()> {
    const PRIVATE: u64 = 1 << 18;
    let attributes = MountAttributes { propagation: PRIVATE, ..MountAttributes::default() };
    mount_setattr(CURRENT_DIRECTORY, c"/", RECURSIVE, &attributes)
}

/// Opens the sources of a layer in their current state. A source is `None` if its step has none, or
/// if an outer layer has hidden it.
fn open_sources(layer: &MountLayer, depth: usize) -> io::Result<Vec<Option<OwnedFd>>> {
    let source = |step: &MountStep| {
        let MountStep::Bind { source, access, .. } = step else { return Ok(None) };
        let opened = match open_path(source) {
            Err(error) if depth > 0 && error.raw_os_error() == Some(NOT_FOUND) => return Ok(None),
            opened => opened?,
        };
        let tree = clone_tree(&opened)?;
        if *access == BindAccess::Read {
            set_attributes(tree.as_raw_fd(), c"", EMPTY_PATH | RECURSIVE, READ_ONLY)?;
        }
        Ok(Some(tree))
    };
    layer.steps.iter().map(source).collect()
}

/// Mounts an empty file system in memory over a directory. Returns `None` without a directory.
fn cover_with_tmpfs(at: &Path) -> io::Result<Option<File>> {
    let target = match open_path(at) {
        Err(error) if error.raw_os_error() == Some(NOT_FOUND) => return Ok(None),
        opened => opened?,
    };
    let memory = create_tmpfs()?;
    attach_mount(&memory, &target)?;
    Ok(Some(File::from(memory)))
}

/// Mounts a source at its target. Creates the target first in a hidden directory.
fn place_source(source: &OwnedFd, at: &Path) -> io::Result<()> {
    let target = match open_path(at) {
        Err(error) if error.raw_os_error() == Some(NOT_FOUND) => {
            let is_directory = File::from(source.try_clone()?).metadata()?.is_dir();
            create_target(at, is_directory)?;
            open_path(at)?
        }
        opened => opened?,
    };
    attach_mount(source, &target)
}

fn create_target(at: &Path, is_directory: bool) -> io::Result<()> {
    if is_directory {
        return fs::create_dir_all(at);
    }
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(at).map(drop)
}

/// Opens a path without following links, because a sandboxed process may have created one.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    const PATH_ONLY: u64 = 0o10000000;
    const NO_LINKS: u64 = 4;
    let path = c_path(path)?;
    let how = OpenHow { flags: PATH_ONLY | u64::from(CLOSE_ON_EXEC), mode: 0, resolve: NO_LINKS };
    // SAFETY: the path ends with a zero. Both live during the call, and the size is that of the
    // struct.
    let opened =
        unsafe { syscall(OPENAT2, CURRENT_DIRECTORY, path.as_ptr(), &how, size_of::<OpenHow>()) };
    into_owned_fd(opened)
}

/// Clones the mounts of a directory. The clone is not attached yet.
fn clone_tree(source: &OwnedFd) -> io::Result<OwnedFd> {
    const CLONE: c_uint = 1;
    let flags = CLONE | CLOSE_ON_EXEC | EMPTY_PATH | RECURSIVE;
    // SAFETY: the path is empty and ends with a zero.
    into_owned_fd(unsafe { syscall(OPEN_TREE, source.as_raw_fd(), c"".as_ptr(), flags) })
}

/// Creates a file system in memory. It is not attached yet.
fn create_tmpfs() -> io::Result<OwnedFd> {
    const SET_STRING: c_uint = 1;
    const CREATE: c_uint = 6;
    const CLOEXEC: c_uint = 1;
    let none = std::ptr::null::<c_char>();
    // SAFETY: all strings end with a zero and live during the calls.
    unsafe {
        let context = into_owned_fd(syscall(FSOPEN, c"tmpfs".as_ptr(), CLOEXEC))?;
        let fd = context.as_raw_fd();
        let mode = c"mode".as_ptr();
        let value = c"0755".as_ptr();
        check_result(syscall(FSCONFIG, fd, SET_STRING, mode, value, 0 as c_int))?;
        check_result(syscall(FSCONFIG, fd, CREATE, none, none, 0 as c_int))?;
        into_owned_fd(syscall(FSMOUNT, fd, CLOEXEC, (NO_SET_UID | NO_DEVICES) as c_uint))
    }
}

fn attach_mount(mount: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_uint = 0x04;
    const TO_EMPTY_PATH: c_uint = 0x40;
    let from = mount.as_raw_fd();
    let to = target.as_raw_fd();
    let empty = c"".as_ptr();
    let flags = FROM_EMPTY_PATH | TO_EMPTY_PATH;
    // SAFETY: both paths are empty and end with a zero.
    check_result(unsafe { syscall(MOVE_MOUNT, from, empty, to, empty, flags) }).map(drop)
}

fn set_attributes(fd: c_int, path: &CStr, flags: c_uint, set: u64) -> io::Result<()> {
    mount_setattr(fd, path, flags, &MountAttributes { set, ..MountAttributes::default() })
}

fn mount_setattr(
    fd: c_int,
    path: &CStr,
    flags: c_uint,
    attributes: &MountAttributes,
) -> io::Result<()> {
    let size = size_of::<MountAttributes>();
    // SAFETY: the path ends with a zero, the struct has the kernel's layout, and both live during
    // the call.
    let set = unsafe { syscall(MOUNT_SETATTR, fd, path.as_ptr(), flags, attributes, size) };
    check_result(set).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn check_result(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn into_owned_fd(result: c_long) -> io::Result<OwnedFd> {
    let fd = check_result(result)? as c_int;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
