//! A living shim, as the runtime holds it.

use std::fs::File;
use std::io;

use crate::shim::record::ProcessId;

#[cfg(full_linux)]
pub use linux::Shim;
#[cfg(not(full_linux))]
pub use portable::Shim;

/// What a shim can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimOrder {
    /// End the command and all that came of it, kindly first.
    Stop,
    /// End it now.
    Kill,
    /// Nothing more will be written to the command.
    CloseInput,
    /// Bytes were brought for its input.
    ReadInput,
}

#[cfg(full_linux)]
#[expect(unsafe_code, reason = "registering a descriptor is a promise to keep it open")]
mod linux {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open,
        pidfd_send_signal, waitid, waitpid,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{File, ProcessId, ShimOrder, io};
    use crate::shim::procfs::{ProcessStat, read_stat};

    /// Holds on to one process, not to whoever has its pid later.
    #[derive(Debug)]
    pub struct Shim {
        id: ProcessId,
        pidfd: AsyncFd<OwnedFd>,
    }

    impl Shim {
        /// Of a process that was just started here and has not been waited for. When it cannot be
        /// held, it is ended and the error says why. May block for as long.
        pub(crate) fn from_child(pid: u32) -> io::Result<Self> {
            let mut tried = 0;
            loop {
                match hold_child(pid) {
                    Ok(shim) => return Ok(shim),
                    Err(_) if tried < HOLD_TRIES => {
                        tried += 1;
                        std::thread::sleep(BETWEEN_TRIES);
                    }
                    Err(error) => {
                        end_child(pid);
                        return Err(error);
                    }
                }
            }
        }

        /// Of a process that was found by its claim; none if it is gone.
        pub(crate) fn from_claim(id: ProcessId, _claim: File) -> io::Result<Option<Self>> {
            let pidfd = match open_pidfd(id.pid) {
                Ok(pidfd) => pidfd,
                Err(error) if gone(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            // The pid is held from here on, so its start time is that of what we hold.
            let shim = Self { id, pidfd };
            match read_stat(id.pid)?.filter(|stat| stat.start == id.start) {
                Some(stat) if is_dead(&stat) => shim.reap().map(|()| None),
                found => Ok(found.map(|_| shim)),
            }
        }

        pub fn pid(&self) -> u32 {
            self.id.pid
        }

        pub fn id(&self) -> ProcessId {
            self.id
        }

        /// Returns when it is gone. It is reaped if it was started by this process.
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

        /// Asks it for something. It may be gone already, which is fine.
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

    /// Out of descriptors is often over in a moment.
    const HOLD_TRIES: u32 = 100;
    const BETWEEN_TRIES: std::time::Duration = std::time::Duration::from_millis(50);

    /// Nobody would ever hear of it again. As a child that was not waited for it has its pid still.
    fn end_child(pid: u32) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::USR1);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }

    /// A child that was not waited for has its pid still, so its start time is its own.
    fn hold_child(pid: u32) -> io::Result<Shim> {
        let pidfd = open_pidfd(pid)?;
        let stat = read_stat(pid)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Ok(Shim { id: ProcessId { pid, start: stat.start }, pidfd })
    }

    fn open_pidfd(pid: u32) -> io::Result<AsyncFd<OwnedFd>> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        // SAFETY: an owned descriptor stays open and the same for as long as it is owned, and the
        // AsyncFd owns it.
        Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
    }

    /// Dead, but nobody has waited for it yet.
    fn is_dead(stat: &ProcessStat) -> bool {
        matches!(stat.state, b'Z' | b'X')
    }

    fn gone(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::InvalidInput
    }
}

#[cfg(not(full_linux))]
mod portable {
    use std::fs::TryLockError;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    use super::{File, ProcessId, ShimOrder, io};

    /// How often it is looked whether a shim is gone, where the system does not tell.
    const LOOK: Duration = Duration::from_millis(20);

    /// Knows a shim by the lock that it holds for life: without pidfds, a pid alone could be
    /// somebody else's by now.
    #[derive(Debug)]
    pub struct Shim {
        pid: Pid,
        whose: Whose,
    }

    #[derive(Debug)]
    enum Whose {
        Ours,
        Found(File),
    }

    impl Shim {
        pub(crate) fn of_child(pid: u32) -> io::Result<Self> {
            Ok(Self { pid: real(pid)?, whose: Whose::Ours })
        }

        /// Of a process that was found by its claim; none if it is gone.
        pub(crate) fn of_found(id: ProcessId, claim: File) -> io::Result<Option<Self>> {
            let shim = Self { pid: real(id.pid)?, whose: Whose::Found(claim) };
            Ok(shim.lives()?.then_some(shim))
        }

        pub fn pid(&self) -> u32 {
            self.pid.as_raw_nonzero().get().unsigned_abs()
        }

        /// Without a start time, which this system does not tell.
        pub fn id(&self) -> ProcessId {
            ProcessId { pid: self.pid(), start: 0 }
        }

        /// Returns when it is gone. It is reaped if it was started by this process.
        pub async fn gone(&self) -> io::Result<()> {
            while self.lives()? {
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        }

        fn lives(&self) -> io::Result<bool> {
            match &self.whose {
                Whose::Ours => match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                    Ok(None) => Ok(true),
                    Ok(Some(_)) | Err(rustix::io::Errno::CHILD) => Ok(false),
                    Err(error) => Err(error.into()),
                },
                Whose::Found(claim) => match claim.try_lock_shared() {
                    Ok(()) => claim.unlock().map(|()| false),
                    Err(TryLockError::WouldBlock) => Ok(true),
                    Err(TryLockError::Error(error)) => Err(error),
                },
            }
        }

        /// Asks it for something. It may be gone already, which is fine.
        pub fn ask(&self, order: ShimOrder) -> io::Result<()> {
            let signal = match order {
                ShimOrder::Stop => Signal::TERM,
                ShimOrder::Kill => Signal::USR1,
                ShimOrder::CloseInput => Signal::USR2,
                ShimOrder::ReadInput => Signal::IO,
            };
            if matches!(self.whose, Whose::Found(_)) && !self.lives()? {
                return Ok(());
            }
            match kill_process(self.pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }

    fn real(pid: u32) -> io::Result<Pid> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }
}
