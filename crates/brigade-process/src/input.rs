//! Writing to a command.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::unix::pipe::{OpenOptions, Sender};

use crate::shim::layout::{CLAIM, STDIN};
use crate::shim::record::{ShimPhase, ShimRecord};

/// How often it is looked whether a shim that was just started is ready to be written to.
const OPEN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The writing end of a command's input. Opened when it is first needed.
#[derive(Debug)]
pub struct ProcessInput {
    dir: PathBuf,
    sender: Option<Sender>,
}

impl ProcessInput {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), sender: None }
    }

    /// Writes all of it, however long the command takes to read what is there already. An error says
    /// why nobody will read it; it is not there then, or only in part.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sender = match &mut self.sender {
            Some(sender) => sender,
            None => {
                let opened = open_pipe(&self.dir).await?;
                self.sender.insert(opened)
            }
        };
        let mut left = bytes;
        while !left.is_empty() {
            sender.writable().await?;
            match sender.try_write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(closed_input_error());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets go of this end; the shim is to be told too.
    pub fn close(&mut self) {
        self.sender = None;
    }
}

async fn open_pipe(dir: &Path) -> io::Result<Sender> {
    let path = dir.join(STDIN);
    loop {
        // Looked at first: when it says that the command runs, the pipe is either there or over.
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
