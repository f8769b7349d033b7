//! A handle to a running shim.

use std::fs::File;
use std::io;

use crate::process_identity::ProcessId;

#[cfg(full_linux)]
pub use linux::Shim;
#[cfg(not(full_linux))]
pub use portable::Shim;

/// An order that a runtime sends to a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimOrder {
    /// End the process tree gracefully: TERM, grace period, KILL.
    Stop,
    /// End the process tree now: KILL.
    Kill,
    /// Close the stdin of the process after the last byte.
    CloseInput,
    /// Read new bytes for the stdin of the process from the spool.
    ReadInput,
}

#[cfg(full_linux)]
#[expect(unsafe_code, reason = "registering a descriptor is a promise to keep it open")]
mod linux {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process,
        pidfd_send_signal, waitid, waitpid,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{File, ProcessId, ShimOrder, io};
    use crate::process_identity::{self, read_stat};

    /// A shim held by its pidfd, so that a later owner of the pid is never signalled.
    #[derive(Debug)]
    pub struct Shim {
        id: ProcessId,
        pidfd: AsyncFd<OwnedFd>,
    }

    impl Shim {
        /// Holds a child of this process that nobody has waited for. On error, the child was killed
        /// and reaped, which may block.
        pub(crate) fn from_child(pid: u32) -> io::Result<Self> {
            let mut tries = 0;
            loop {
                match hold_child(pid) {
                    Ok(shim) => return Ok(shim),
                    Err(_) if tries < HOLD_TRIES => {
                        tries += 1;
                        std::thread::sleep(BETWEEN_TRIES);
                    }
                    Err(error) => {
                        end_child(pid);
                        return Err(error);
                    }
                }
            }
        }

        /// Holds a shim found by its claim. Returns `None` if it has exited.
        pub(crate) fn from_claim(id: ProcessId, _claim: File) -> io::Result<Option<Self>> {
            let Some(pidfd) = open_pidfd(id.pid)? else { return Ok(None) };
            // The pidfd is open, so the start time below belongs to the held process.
            let shim = Self { id, pidfd };
            match read_stat(id.pid)?.filter(|stat| stat.start == id.start) {
                Some(stat) if stat.has_exited() => shim.reap().map(|()| None),
                found => Ok(found.map(|_| shim)),
            }
        }

        pub fn pid(&self) -> u32 {
            self.id.pid
        }

        pub fn id(&self) -> ProcessId {
            self.id
        }

        /// Waits until the shim has exited. Reaps it if it is a child of this process.
        pub async fn wait_exit(&self) -> io::Result<()> {
            let _ready = self.pidfd.readable().await?;
            self.reap()
        }

        fn reap(&self) -> io::Result<()> {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match waitid(WaitId::PidFd(self.pidfd.get_ref().as_fd()), options) {
                Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }

        /// Sends an order. Succeeds too if the shim has already exited.
        pub fn send_order(&self, order: ShimOrder) -> io::Result<()> {
            let signal = match order {
                ShimOrder::Stop => Signal::TERM,
                ShimOrder::Kill => Signal::USR1,
                ShimOrder::CloseInput => Signal::USR2,
                ShimOrder::ReadInput => Signal::IO,
            };
            match pidfd_send_signal(self.pidfd.get_ref(), signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }

    /// The number of attempts: a lack of descriptors is often short.
    const HOLD_TRIES: u32 = 100;
    const BETWEEN_TRIES: std::time::Duration = std::time::Duration::from_millis(50);

    /// Kills and reaps a shim that cannot be held. An unreaped child still owns its pid.
    fn end_child(pid: u32) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::USR1);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }

    /// Opens a pidfd for an unreaped child. It still owns its pid, so the start time is its own.
    fn hold_child(pid: u32) -> io::Result<Shim> {
        let no_process = || io::Error::from_raw_os_error(libc::ESRCH);
        let pidfd = open_pidfd(pid)?.ok_or_else(no_process)?;
        let stat = read_stat(pid)?.ok_or_else(no_process)?;
        Ok(Shim { id: ProcessId { pid, start: stat.start }, pidfd })
    }

    fn open_pidfd(pid: u32) -> io::Result<Option<AsyncFd<OwnedFd>>> {
        let Some(pidfd) = process_identity::open_pidfd(pid, PidfdFlags::NONBLOCK)? else {
            return Ok(None);
        };
        // SAFETY: an `OwnedFd` stays open and the same as long as it exists, and the `AsyncFd` owns
        // it.
        Ok(Some(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?))
    }
}

#[cfg(not(full_linux))]
mod portable {
    use std::fs::TryLockError;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    use super::{File, ProcessId, ShimOrder, io};

    /// The interval between checks for the exit of a shim.
    const POLL_INTERVAL: Duration = Duration::from_millis(20);

    /// A shim identified by the lock that it holds until it exits. Without pidfds, the pid alone
    /// could belong to another process.
    #[derive(Debug)]
    pub struct Shim {
        pid: Pid,
        source: ShimSource,
    }

    #[derive(Debug)]
    enum ShimSource {
        Child,
        Claim(File),
    }

    impl Shim {
        pub(crate) fn from_child(pid: u32) -> io::Result<Self> {
            Ok(Self { pid: valid_pid(pid)?, source: ShimSource::Child })
        }

        /// Holds a shim found by its claim. Returns `None` if it has exited.
        pub(crate) fn from_claim(id: ProcessId, claim: File) -> io::Result<Option<Self>> {
            let shim = Self { pid: valid_pid(id.pid)?, source: ShimSource::Claim(claim) };
            Ok(shim.is_alive()?.then_some(shim))
        }

        pub fn pid(&self) -> u32 {
            self.pid.as_raw_nonzero().get().unsigned_abs()
        }

        /// Returns the identity without a start time, which this system does not report.
        pub fn id(&self) -> ProcessId {
            ProcessId { pid: self.pid(), start: 0 }
        }

        /// Waits until the shim has exited. Reaps it if it is a child of this process.
        pub async fn wait_exit(&self) -> io::Result<()> {
            while self.is_alive()? {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok(())
        }

        fn is_alive(&self) -> io::Result<bool> {
            match &self.source {
                ShimSource::Child => match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                    Ok(None) => Ok(true),
                    Ok(Some(_)) | Err(rustix::io::Errno::CHILD) => Ok(false),
                    Err(error) => Err(error.into()),
                },
                ShimSource::Claim(claim) => match claim.try_lock_shared() {
                    Ok(()) => claim.unlock().map(|()| false),
                    Err(TryLockError::WouldBlock) => Ok(true),
                    Err(TryLockError::Error(error)) => Err(error),
                },
            }
        }

        /// Sends an order. Succeeds too if the shim has already exited.
        pub fn send_order(&self, order: ShimOrder) -> io::Result<()> {
            let signal = match order {
                ShimOrder::Stop => Signal::TERM,
                ShimOrder::Kill => Signal::USR1,
                ShimOrder::CloseInput => Signal::USR2,
                ShimOrder::ReadInput => Signal::IO,
            };
            if matches!(self.source, ShimSource::Claim(_)) && !self.is_alive()? {
                return Ok(());
            }
            match kill_process(self.pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }

    fn valid_pid(pid: u32) -> io::Result<Pid> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }
}
