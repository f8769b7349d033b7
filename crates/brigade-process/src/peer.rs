//! The process at the other end of a Unix socket.
//!
//! The kernel notes who connected. A pid alone says little: the process may have ended since, and its
//! pid may be another's. A peer is therefore held by a pidfd, and one that is dead is nobody.
#![cfg_attr(full_linux, expect(unsafe_code, reason = "SO_PEERPIDFD has no safe wrapper"))]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lineage::{self, ProcessTable, SystemTable};
use crate::shim::record::ProcessId;

/// A connected process.
#[derive(Debug)]
pub struct PeerProcess {
    pid: u32,
    /// None where processes cannot be held, and for a process of an outer pid namespace, which this one
    /// cannot see and did not start.
    pidfd: Option<OwnedFd>,
}

/// What is known of the ancestors of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerLineage {
    /// The peer, its parent and so on up to the first process.
    Complete(Vec<ProcessId>),
    /// The peer is dead, or its ancestors changed whenever they were looked at.
    Broken,
    /// The system does not tell, or the peer is outside of this pid namespace.
    Untraceable,
}

impl PeerProcess {
    /// Takes hold of the process that connected. None if it is dead.
    pub fn from_socket(socket: impl AsFd) -> io::Result<Option<Self>> {
        #[cfg(full_linux)]
        return linux::hold_peer(socket.as_fd());
        #[cfg(not(full_linux))]
        {
            let _ = socket;
            Ok(Some(Self { pid: 0, held: None }))
        }
    }

    /// Whether the peer is this very process.
    pub fn is_self(&self) -> bool {
        self.pid == std::process::id()
    }

    pub fn lineage(&self) -> PeerLineage {
        self.lineage_in(&SystemTable)
    }

    fn lineage_in(&self, table: &impl ProcessTable) -> PeerLineage {
        let Some(held) = &self.pidfd else { return PeerLineage::Untraceable };
        match lineage::trace(table, self.pid) {
            // Alive to the end: the pid was the peer's own in both walks.
            Some(ancestors) if is_alive(held) => PeerLineage::Complete(ancestors),
            _ => PeerLineage::Broken,
        }
    }
}

/// A pidfd becomes readable when its process has ended.
fn is_alive(held: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(held, PollFlags::IN)];
    matches!(poll(&mut watched, Some(&Timespec::default())), Ok(0))
}

#[cfg(full_linux)]
mod linux {
    use std::mem::{self, MaybeUninit};
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::{OwnedFd, PeerProcess, io, is_alive};
    use crate::shim::procfs::read_stat;

    /// Since Linux 6.5.
    const SO_PEERPIDFD: libc::c_int =
        if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x56 } else { 77 };

    pub(super) fn hold_peer(socket: BorrowedFd<'_>) -> io::Result<Option<PeerProcess>> {
        // SAFETY: the kernel fills in three integers.
        let credentials: libc::ucred = unsafe { socket_option(socket, libc::SO_PEERCRED) }?;
        let Some(pid) = Pid::from_raw(credentials.pid) else {
            return Ok(Some(PeerProcess { pid: 0, pidfd: None }));
        };
        let held = match peer_pidfd(socket) {
            Ok(held) => Some(held),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => open_pidfd(pid)?,
            // Reaped already, in the words of several kernels.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => None,
            Err(error) => return Err(error),
        };
        let pid = credentials.pid.unsigned_abs();
        Ok(held.filter(is_alive).map(|held| PeerProcess { pid, pidfd: Some(held) }))
    }

    fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        // SAFETY: the kernel fills in one integer.
        let fd: RawFd = unsafe { socket_option(socket, SO_PEERPIDFD) }?;
        // SAFETY: the kernel has just made this descriptor, nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// For older kernels: whoever has the pid now. A process that took over the pid of a peer that died
    /// before it was accepted passes for it here; such a process still has no operator key.
    pub(super) fn open_pidfd(pid: Pid) -> io::Result<Option<OwnedFd>> {
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        let Some(before) = read_stat(number)? else { return Ok(None) };
        let held = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => held,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let after = read_stat(number)?;
        Ok(after.is_some_and(|after| after.start == before.start).then_some(held))
    }

    /// Reads a socket option of a fixed size.
    ///
    /// # Safety
    ///
    /// The kernel fills in a `T` for this option, and `T` is made of integers.
    unsafe fn socket_option<T>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and the length are those of one local, which lives through the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                value.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: zeroes are a value of integers, and so is whatever the kernel wrote.
        Ok(unsafe { value.assume_init() })
    }
}

#[cfg(all(test, full_linux))]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::lineage::TableEntry;

    /// Another process that has connected, and stays until its input is closed.
    struct Connected {
        _folder: tempfile::TempDir,
        stream: std::os::unix::net::UnixStream,
        child: Child,
    }

    impl Connected {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a peer");
            let path = folder.path().join("s");
            let listener = UnixListener::bind(&path).expect("a peer");
            let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); \
                          s.connect(sys.argv[1]); s.send(b'x'); sys.stdin.read()";
            let child = Command::new("python3")
                .args(["-c", script])
                .arg(&path)
                .stdin(Stdio::piped())
                .spawn()
                .expect("a peer");
            let (mut stream, _) = listener.accept().expect("a peer");
            stream.read_exact(&mut [0]).expect("a peer");
            Self { _folder: folder, stream, child }
        }

        fn end(&mut self) {
            drop(self.child.stdin.take());
            self.child.wait().expect("a peer");
        }
    }

    #[test]
    fn a_peer_is_known_with_its_ancestors() {
        let mut connected = Connected::new();
        let peer = PeerProcess::from_socket(&connected.stream).unwrap().expect("it lives");
        let PeerLineage::Complete(ancestors) = peer.lineage() else {
            panic!("{:?}", peer.lineage())
        };
        let pids: Vec<u32> = ancestors.iter().map(|one| one.pid).collect();
        assert_eq!(pids[..2], [connected.child.id(), std::process::id()]);
        assert_eq!(pids.last(), Some(&1));
        connected.end();
        assert_eq!(peer.lineage(), PeerLineage::Broken, "it is dead");
        connected.stream.flush().unwrap();
    }

    #[test]
    fn a_peer_that_is_dead_is_nobody_at_once() {
        let mut connected = Connected::new();
        connected.end();
        assert!(PeerProcess::from_socket(&connected.stream).unwrap().is_none());
    }

    /// The pid of a dead peer goes to a process that has nothing to do with it, and whose ancestors are
    /// those of the operator.
    #[test]
    fn a_pid_that_is_reused_while_a_peer_is_traced_is_not_believed() {
        struct Reused<'a>(Cell<Option<&'a mut Connected>>);
        impl ProcessTable for Reused<'_> {
            fn look(&self, _pid: u32) -> TableEntry {
                if let Some(connected) = self.0.take() {
                    connected.end();
                }
                TableEntry::Found { start: 77, parent: 0 }
            }
        }
        let mut connected = Connected::new();
        let peer = PeerProcess::from_socket(&connected.stream).unwrap().expect("it lives");
        let table = Reused(Cell::new(Some(&mut connected)));
        assert_eq!(peer.lineage_in(&table), PeerLineage::Broken);
    }

    #[test]
    fn without_the_kernels_help_a_dead_pid_is_nobody() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        child.wait().unwrap();
        assert!(linux::open_pidfd(pid).unwrap().is_none());
        assert!(linux::open_pidfd(rustix::process::getpid()).unwrap().is_some());
    }
}
