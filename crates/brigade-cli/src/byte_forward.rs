//! Forwards stdin to a process byte by byte. Each byte arrives once, even if the daemon is
//! replaced.

use std::io::{self, Read};
use std::sync::mpsc as blocking;

use brigade_protocol::TaskTarget;
use brigade_protocol::daemon_client::{DaemonClient, ReconnectPolicy};
use brigade_protocol::requests::{Base64Bytes, WriteInputRequest};
use tokio::sync::mpsc;

use crate::exit_code::CliError;

/// Limits of one read and of one request.
const READ_BYTES_MAX: usize = 256 * 1024;
const SEND_BYTES_MAX: usize = 1024 * 1024;
/// Pieces that the thread reads ahead.
const PIECES_AHEAD_MAX: usize = 16;

/// A reader of stdin on its own thread, since a read of a terminal cannot be cancelled.
#[derive(Debug)]
pub(crate) struct StdinReader {
    start_signal: blocking::Sender<()>,
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
}

impl StdinReader {
    /// Starts the thread. It reads nothing before the first call of `next_bytes`.
    pub(crate) fn start() -> io::Result<Self> {
        let (start_signal, started) = blocking::channel();
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD_MAX);
        let thread = std::thread::Builder::new().name("stdin".into());
        thread.spawn(move || {
            if started.recv().is_ok() {
                read_stdin(&sender);
            }
        })?;
        Ok(Self { start_signal, pieces })
    }

    /// Returns the available bytes; empty at the end.
    async fn next_bytes(&mut self) -> io::Result<Vec<u8>> {
        let _ = self.start_signal.send(());
        let mut bytes = match self.pieces.recv().await {
            Some(piece) => piece?,
            None => return Ok(Vec::new()),
        };
        while bytes.len() < SEND_BYTES_MAX
            && let Ok(piece) = self.pieces.try_recv()
        {
            bytes.extend(piece?);
        }
        Ok(bytes)
    }
}

fn read_stdin(sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut piece = vec![0; READ_BYTES_MAX];
        let read = match input.read(&mut piece) {
            Ok(0) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map(|length| {
                piece.truncate(length);
                piece
            }),
        };
        let has_failed = read.is_err();
        if sender.blocking_send(read).is_err() || has_failed {
            return;
        }
    }
}

/// Sends all of stdin, and its end.
pub(crate) async fn forward_bytes(
    client: DaemonClient,
    target: TaskTarget,
    mut input: StdinReader,
) -> Result<(), CliError> {
    let writer = brigade_runtime::new_lease_holder();
    let mut offset = 0;
    loop {
        let bytes = input.next_bytes().await?;
        let length = bytes.len() as u64;
        let closes_input = bytes.is_empty();
        let bytes = Base64Bytes(bytes);
        let target = target.clone();
        let piece = WriteInputRequest { target, writer, offset, bytes, closes_input };
        // The next daemon knows the bytes that the last one stored.
        client.send_request(ReconnectPolicy::UNBOUNDED, piece).await?;
        if closes_input {
            return Ok(());
        }
        offset += length;
    }
}
