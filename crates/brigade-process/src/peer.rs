//! The process at the other end of a Unix socket.
//!
//! The kernel reports the pid of the peer. The peer may have died meanwhile, and its pid may belong
//! to another process. So the peer is held by a pidfd, and a dead peer is rejected.
#![cfg_attr(full_linux, expect(unsafe_code, reason = "SO_PEERPIDFD has no safe wrapper"))]

use std::io;
use std::os::fd::AsFd;

use crate::lineage::{self, ProcessTable, SystemTable};
use crate::process_identity::{HeldProcess, ProcessId, ProcessStat};

/// A connected process.
#[derive(Debug)]
pub struct PeerProcess {
    pid: u32,
    /// `None` if this system has no pidfds, or if the peer is in an outer pid namespace. This
    /// process cannot see or have started such a peer.
    held: Option<HeldProcess>,
}

/// The ancestors of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerLineage {
    /// The peer, its parent and so on, up to the first process.
    Complete(Vec<ProcessId>),
    /// The peer is dead, or its ancestors changed during every trace.
    Broken,
    /// The system reports no ancestors, or the peer is outside this pid namespace.
    Untraceable,
}

impl PeerProcess {
    /// Holds the process that connected. Returns `None` if it is dead.
    pub fn from_socket(socket: impl AsFd) -> io::Result<Option<Self>> {
        #[cfg(full_linux)]
        return linux::hold_peer(socket.as_fd());
        #[cfg(not(full_linux))]
        {
            let _ = socket;
            Ok(Some(Self { pid: 0, held: None }))
        }
    }

    /// Returns true if the peer is this process.
    pub fn is_self(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Describes the peer for a person by facts of the kernel: its controlling terminal, as in
    /// `terminal pts/3`, or `process 41 (python3)`. Returns `None` if the system does not tell. A
    /// process can choose its name, so that part may be any text.
    pub fn describe(&self) -> Option<String> {
        let held = self.held.as_ref()?;
        let stat = crate::process_identity::stat_if_readable(self.pid)?;
        // The peer is still alive, so the pid was its own.
        held.is_alive().then(|| describe_process(self.pid, &stat))
    }

    pub fn lineage(&self) -> PeerLineage {
        self.lineage_in(&SystemTable)
    }

    fn lineage_in(&self, table: &impl ProcessTable) -> PeerLineage {
        let Some(held) = &self.held else { return PeerLineage::Untraceable };
        match lineage::trace(table, self.pid) {
            // The peer is still alive, so the pid was its own in both walks.
            Some(ancestors) if held.is_alive() => PeerLineage::Complete(ancestors),
            _ => PeerLineage::Broken,
        }
    }
}

fn describe_process(pid: u32, stat: &ProcessStat) -> String {
    match terminal_name(stat.terminal) {
        Some(terminal) => format!("terminal {terminal}"),
        None => format!("process {pid} ({})", stat.name),
    }
}

/// Returns the name of a terminal under `/dev` by its device number.
fn terminal_name(device: u32) -> Option<String> {
    /// The first and the last major number of pseudo-terminals.
    const PTS_FIRST: u32 = 136;
    const PTS_LAST: u32 = 143;
    const FIRST_SERIAL: u32 = 64;
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0xf_ff00);
    match (major, minor) {
        (0, 0) => None,
        (PTS_FIRST..=PTS_LAST, _) => Some(format!("pts/{}", (major - PTS_FIRST) * 256 + minor)),
        (4, ..FIRST_SERIAL) => Some(format!("tty{minor}")),
        (4, _) => Some(format!("ttyS{}", minor - FIRST_SERIAL)),
        _ => Some(format!("{major}:{minor}")),
    }
}

#[cfg(full_linux)]
mod linux {
    use std::mem::{self, MaybeUninit};
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

    use super::{HeldProcess, PeerProcess, ProcessId, io};
    use crate::process_identity::read_stat;

    /// Supported since Linux 6.5.
    const SO_PEERPIDFD: libc::c_int =
        if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x56 } else { 77 };

    pub(super) fn hold_peer(socket: BorrowedFd<'_>) -> io::Result<Option<PeerProcess>> {
        // SAFETY: the kernel fills in three integers.
        let credentials: libc::ucred = unsafe { socket_option(socket, libc::SO_PEERCRED) }?;
        let pid = credentials.pid.unsigned_abs();
        if pid == 0 {
            return Ok(Some(PeerProcess { pid, held: None }));
        }
        let held = match peer_pidfd(socket) {
            Ok(pidfd) => Some(HeldProcess::from_pidfd(pidfd)),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => hold_pid(pid)?,
            // Already reaped, reported differently by different kernels.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => None,
            Err(error) => return Err(error),
        };
        let held = held.filter(HeldProcess::is_alive);
        Ok(held.map(|held| PeerProcess { pid, held: Some(held) }))
    }

    fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        // SAFETY: the kernel fills in one integer.
        let fd: RawFd = unsafe { socket_option(socket, SO_PEERPIDFD) }?;
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Holds the current owner of the pid, for older kernels. If the peer died before the accept,
    /// that may be another process. Such a process still has no operator key.
    pub(super) fn hold_pid(pid: u32) -> io::Result<Option<HeldProcess>> {
        let Some(stat) = read_stat(pid)? else { return Ok(None) };
        HeldProcess::open(ProcessId { pid, start: stat.start })
    }

    /// Reads a socket option of a fixed size.
    ///
    /// # Safety
    ///
    /// The kernel fills in a `T` for this option, and `T` is made of integers.
    unsafe fn socket_option<T>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and the length belong to one local, which lives during the call.
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
        // SAFETY: zeroes are valid integers, and so are the bytes that the kernel wrote.
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

    /// A connected process that stays until its stdin is closed.
    struct Connected {
        _dir: tempfile::TempDir,
        stream: std::os::unix::net::UnixStream,
        child: Child,
    }

    impl Connected {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("s");
            let listener = UnixListener::bind(&path).expect("a listener");
            let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); \
                          s.connect(sys.argv[1]); s.send(b'x'); sys.stdin.read()";
            let child = Command::new("python3")
                .args(["-c", script])
                .arg(&path)
                .stdin(Stdio::piped())
                .spawn()
                .expect("python3 starts");
            let (mut stream, _) = listener.accept().expect("the peer connects");
            stream.read_exact(&mut [0]).expect("the peer writes");
            Self { _dir: dir, stream, child }
        }

        fn end(&mut self) {
            drop(self.child.stdin.take());
            self.child.wait().expect("the peer exits");
        }
    }

    #[test]
    fn a_peer_is_traced_to_the_first_process() {
        let mut connected = Connected::new();
        let peer = PeerProcess::from_socket(&connected.stream).unwrap().expect("the peer is alive");
        let PeerLineage::Complete(ancestors) = peer.lineage() else {
            panic!("{:?}", peer.lineage())
        };
        let pids: Vec<u32> = ancestors.iter().map(|ancestor| ancestor.pid).collect();
        assert_eq!(pids[..2], [connected.child.id(), std::process::id()]);
        assert_eq!(pids.last(), Some(&1));
        connected.end();
        assert_eq!(peer.lineage(), PeerLineage::Broken, "the peer is dead");
        connected.stream.flush().unwrap();
    }

    #[test]
    fn a_peer_is_described_while_it_is_alive() {
        let mut connected = Connected::new();
        let peer = PeerProcess::from_socket(&connected.stream).unwrap().expect("the peer is alive");
        let described = peer.describe().unwrap();
        let own = format!("process {} (python3", connected.child.id());
        assert!(described.starts_with(&own) || described.starts_with("terminal "), "{described}");
        connected.end();
        assert_eq!(peer.describe(), None);
    }

    #[test]
    fn a_terminal_is_named_by_its_device() {
        for (device, name) in [
            (0, None),
            (0x8800, Some("pts/0")),
            (0x8803, Some("pts/3")),
            (0x88ff, Some("pts/255")),
            // The kernel splits larger numbers.
            (0x0010_8801, Some("pts/257")),
            (0x8901, Some("pts/257")),
            (0x0401, Some("tty1")),
            (0x0440, Some("ttyS0")),
            (0x0501, Some("5:1")),
        ] {
            assert_eq!(terminal_name(device).as_deref(), name, "{device:#x}");
        }
    }

    #[test]
    fn a_dead_peer_is_rejected_at_once() {
        let mut connected = Connected::new();
        connected.end();
        assert!(PeerProcess::from_socket(&connected.stream).unwrap().is_none());
    }

    /// The pid of a dead peer passes to an unrelated process whose ancestors are the operator's.
    #[test]
    fn a_pid_that_is_reused_while_a_peer_is_traced_is_not_believed() {
        struct Reused<'a>(Cell<Option<&'a mut Connected>>);
        impl ProcessTable for Reused<'_> {
            fn entry(&self, _pid: u32) -> TableEntry {
                if let Some(connected) = self.0.take() {
                    connected.end();
                }
                TableEntry::Found { start: 77, parent: 0 }
            }
        }
        let mut connected = Connected::new();
        let peer = PeerProcess::from_socket(&connected.stream).unwrap().expect("the peer is alive");
        let table = Reused(Cell::new(Some(&mut connected)));
        assert_eq!(peer.lineage_in(&table), PeerLineage::Broken);
    }

    #[test]
    fn without_peer_pidfds_a_dead_pid_is_rejected() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(linux::hold_pid(pid).unwrap().is_none());
        assert!(linux::hold_pid(std::process::id()).unwrap().is_some());
    }
}
