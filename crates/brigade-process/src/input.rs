//! Messages to a process, through a named pipe to its stdin.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::unix::pipe::{OpenOptions, Sender};

use crate::shim::layout::{CLAIM, STDIN};
use crate::shim::record::{ShimPhase, ShimRecord};

/// The interval between attempts to open the pipe of a shim that is starting.
const OPEN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The write end of a process's stdin. It is opened at the first write.
#[derive(Debug)]
pub struct ProcessInput {
    dir: PathBuf,
    sender: Option<Sender>,
}

impl ProcessInput {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), sender: None }
    }

    /// Writes all bytes, however long the process takes to read. After an error, none or a part of
    /// them arrived.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sender = match &mut self.sender {
            Some(sender) => sender,
            None => {
                let opened = open_pipe(&self.dir).await?;
                self.sender.insert(opened)
            }
        };
        let mut remaining = bytes;
        while !remaining.is_empty() {
            sender.writable().await?;
            match sender.try_write(remaining) {
                Ok(written) => remaining = &remaining[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(closed_input_error());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes this end. The caller must send [`crate::ShimOrder::CloseInput`] to the shim too.
    pub fn close(&mut self) {
        self.sender = None;
    }
}

async fn open_pipe(dir: &Path) -> io::Result<Sender> {
    let path = dir.join(STDIN);
    loop {
        // The record is read first: if it says that the process runs, the pipe exists or is closed
        // for good.
        let ready = is_ready(dir);
        match OpenOptions::new().open_sender(&path) {
            Ok(sender) => return Ok(sender),
            Err(error) if error.kind() == io::ErrorKind::NotFound && ready => {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "its input is closed"));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) && ready => {
                return Err(closed_input_error());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.exists() => {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "its directory is gone"));
            }
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || error.raw_os_error() == Some(libc::ENXIO) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(OPEN_POLL_INTERVAL).await;
    }
}

fn closed_input_error() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "it has closed its input")
}

fn is_ready(dir: &Path) -> bool {
    let record = std::fs::File::open(dir.join(CLAIM)).and_then(|file| ShimRecord::read_from(&file));
    record.is_ok_and(|record| record.phase >= ShimPhase::Running)
}
